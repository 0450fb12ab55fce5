"""The store as everyone else sees it: writes that are answered after their commit, reads that never block them."""

import json
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from reconcile.absence import OpenAt, Served
from reconcile.evidence import JobRead
from reconcile.history_row import HistoryRow
from reconcile.limits import Pause
from reconcile.model import Operation, UnixMs
from reconcile.notice import Notice
from reconcile.states import ENDED_REMOTELY, REASON_OF
from reconcile.store import (
    absence,
    claims,
    events,
    evidence,
    grounds,
    history,
    items,
    kept,
    lost_creates,
    notices,
    pauses,
    providers,
    pruned_events,
    pruning,
    repeats,
    rows,
    starts,
)
from reconcile.store.absence import Roused
from reconcile.store.claims import Claimed, ClaimWish, Renewal
from reconcile.store.consumers import Consumers
from reconcile.store.deliveries import Deliveries
from reconcile.store.events import EventRecord, HasRead
from reconcile.store.evidence import Announce, Arrival, Judge, Rules
from reconcile.store.grounds import Grounds
from reconcile.store.items import Absentees, Doubled, ItemSlice, ItemView, Place, Tally
from reconcile.store.kept import Seen
from reconcile.store.notices import Acknowledgement, Conditions
from reconcile.store.providers import Known
from reconcile.store.pruning import WasPruned
from reconcile.store.reading import Reader, store_error
from reconcile.store.record import Record
from reconcile.store.repeats import Repeat
from reconcile.store.schema import READER_PRAGMAS, Connection, Opener, read_only_uri
from reconcile.store.single_reads import SingleReads
from reconcile.store.starts import Started, StartRecord
from reconcile.store.sweeps import Sweeps
from reconcile.store.writer import Done, GroupCommit, Hooks, Kind, Measured, Pulse, open_writer, unmeasured

#: Rows of a list or a history that one read gives at most.
MAX_PAGE: Final = 1000
_UNCOLLECTED: Final = ", ".join(f"'{state}'" for state in sorted(ENDED_REMOTELY))
_ASKING: Final = ", ".join(f"'{state}'" for state in REASON_OF)
#: Where an operation stands among the others, pruned or not.
_PLACE: Final = "(SELECT key FROM places WHERE operation_id = ?)"
_MISSING: Final = (
    "SELECT j.value FROM json_each(?) j WHERE NOT EXISTS (SELECT 1 FROM present o WHERE o.operation_id = j.value)"
)
#: Any key a label may have would do here; a JSON path would take some for syntax.
_HAS_LABEL: Final = "EXISTS (SELECT 1 FROM json_each(o.living, '$.labels') l WHERE l.key = ? AND l.value = ?)"


class Store:
    """One SQLite file: one writer, and readers that cannot write. Made by `open_store`."""

    def __init__(
        self,
        group: GroupCommit,
        writer: Connection,
        reader: Reader,
        scanner: Reader,
        kinds: tuple[Kind, Kind, Kind, Kind],
        sweeps: Sweeps,
    ) -> None:
        self.sweeps = sweeps
        self.record = Record(group, scanner)
        self.consumers = Consumers(group, reader, scanner)
        self.deliveries = Deliveries(group, reader, scanner)
        self._group = group
        self._writer = writer
        self._reader = reader
        self._single = SingleReads(reader)
        self._scanner = scanner
        self._start, self._evidence, self._events, self._claim = kinds

    # ---- writes ----

    async def start(self, record: StartRecord) -> Started:
        """Write a new operation, or find the one its client key stands for. Raises: KeyReused, JobHeld, StoreError."""
        started: Started = await self._group.write(self._start, record)
        return started

    async def apply(self, arrival: Arrival) -> Any:
        """Bring evidence to its operation; gives the Change. Raises: StoreError."""
        # Nobody waits for what a read has shown, and one that is lost is made again.
        return await self._group.write(self._evidence, arrival, is_patient=isinstance(arrival.evidence, JobRead))

    async def repeat(self, read: Repeat) -> bool:
        """Plan the read after one that told nothing new; False: its row has changed. Raises: StoreError."""
        return bool(await self._group.write(repeats.KEEP, read, is_patient=True))

    async def receive(self, event: EventRecord) -> str:
        """Keep a verified delivery; "new" or "duplicate". Raises: StoreError."""
        answer: str = await self._group.write(self._events, event)
        return answer

    async def claim(self, wish: ClaimWish) -> Claimed:
        """Lease due rows. Raises: StoreError."""
        claimed: Claimed = await self._group.write(self._claim, wish)
        return claimed

    async def renew(self, renewals: Sequence[Renewal]) -> list[bool]:
        """Keep leases, in one write; False for each that was lost. Raises: StoreError."""
        kept: list[bool] = await self._group.write(claims.RENEW, renewals)
        return kept

    async def release_all(self) -> int:
        """Release every lease: only under the state directory's lock. Raises: StoreError."""
        return int(await self._group.write(claims.RELEASE_ALL, None))

    async def cut_waits(self, now: UnixMs, longest_ms: Mapping[str, int], lease_ms: int) -> int:
        """Cut waits longer than any that is planned; how many there were. Raises: StoreError."""
        return int(await self._group.write(claims.CUT_WAITS, claims.CutWaits(now, longest_ms, lease_ms)))

    async def keep_pauses(self, changed: Mapping[str, Pause], at: UnixMs) -> None:
        """Keep, or forget, the pauses named; the end of one rings what had stopped. Raises: StoreError."""
        await self._group.write(pauses.KEEP, pauses.Changed(changed, at))

    async def know_providers(self, kinds: Mapping[str, str]) -> None:
        """Write down which providers are configured, each with its kind. Raises: StoreError."""
        await self._group.write(providers.KNOW, kinds)

    async def rouse(self, served: Served, at: UnixMs) -> Roused:
        """Make due what became absent with this start, and ring what was and is so no more. Raises: StoreError."""
        roused: Roused = await self._group.write(absence.ROUSE, absence.Rousing(served, at))
        return roused

    async def stand(self, standing: Sequence[Notice]) -> tuple[list[str], list[str]]:
        """Bring the notices of what lasts to what stands now; the ids opened and closed. Raises: StoreError."""
        changed: tuple[list[str], list[str]] = await self._group.write(notices.STAND, Conditions(tuple(standing)))
        return changed

    async def tell(self, happened: Sequence[Notice]) -> None:
        """Keep notices of what happened. Raises: StoreError."""
        await self._group.write(notices.TELL, happened)

    async def acknowledge(self, notice_id: str, *, by: str, because: str, at: UnixMs) -> bool:
        """Take a notice from the inbox; False where none of that id waits there. Raises: StoreError."""
        return bool(await self._group.write(notices.ACKNOWLEDGE, Acknowledgement(notice_id, by, because, at)))

    async def index(self, part: ItemSlice) -> None:
        """Write a slice of item rows. Raises: StoreError."""
        await self._group.write(items.INSERT, part)

    async def mark_doubled(self, part: Doubled) -> None:
        """Mark ids that stand in more than one line. Raises: StoreError."""
        await self._group.write(items.DOUBLED, part)

    async def index_absent(self, wish: Absentees) -> tuple[int, str]:
        """Write one slice of submitted ids that stand in no result; how many, and the last. Raises: StoreError."""
        written: tuple[int, str] = await self._group.write(items.ABSENT, wish)
        return written

    async def prune_items(self, operation_id: str, keep: int) -> int:
        """Remove one slice of rows of other attempts; 0 when none is left. Raises: StoreError."""
        return int(await self._group.write(items.PRUNE, (operation_id, keep)))

    # ---- reads; each may raise StoreError ----

    async def get(self, operation_id: str) -> Operation | None:
        """One operation as it stands, without its request."""
        found = await self._single.get(operation_id)
        return None if found is None else rows.load(found)[1]

    async def was_pruned(self, operation_id: str) -> WasPruned | None:
        """That an operation was pruned, or is leaving; None where there is one, or never was."""
        return await pruning.was_pruned(self._reader, operation_id)

    async def has_place(self, operation_id: str) -> bool:
        """Whether there is or was such an operation, so that a list can go on after it."""
        sql = f"SELECT {_PLACE} IS NOT NULL"
        return bool((await self._reader.execute_fetchall(sql, (operation_id,)))[0][0])

    async def missing(self, operation_ids: Sequence[str]) -> set[str]:
        """Which of these name no operation that is shown to anybody; on the connection for long reads."""
        return {row[0] for row in await self._scanner.execute_fetchall(_MISSING, (json.dumps(operation_ids),))}

    async def find(
        self,
        *,
        after: str | None,
        limit: int,
        is_open: bool | None,
        states: Collection[str] | None = None,
        provider: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> list[Operation]:
        """Operations, newest first, after the one named, which may be gone; None: whatever it is.

        Labels have no index: where few rows bear them, all the others are walked, on the connection for long reads.
        """
        where: list[str] = ["1 = 1"]
        parameters: list[str] = []
        if states is not None:
            where.append("o.state IN (SELECT value FROM json_each(?))")
            parameters.append(json.dumps(sorted(states)))
        if provider is not None:
            where.append("o.provider = ?")
            parameters.append(provider)
        for label in (labels or {}).items():
            where.append(_HAS_LABEL)
            parameters.extend(label)
        # The schedule holds exactly the open operations: an inner join finds them without a look at the ended ones.
        sql = rows.SELECT.replace("LEFT JOIN", "JOIN") if is_open else rows.SELECT
        if after is not None:
            where.append(f"o.key < {_PLACE}")
            parameters.append(after)
        if is_open is False:
            where.append("o.completed_at IS NOT NULL")
        sql = f"{sql} WHERE {' AND '.join(where)} ORDER BY o.key DESC LIMIT ?"
        found = await (self._scanner if labels else self._reader).execute_fetchall(
            sql, (*parameters, min(limit, MAX_PAGE))
        )
        return [rows.load(row)[1] for row in found]

    async def questions(self, *, after: str | None, limit: int) -> list[Operation]:
        """Operations that wait for a person, oldest first, after the one named."""
        where, parameters = [f"o.state IN ({_ASKING})"], []
        if after is not None:
            where.append(f"o.key > {_PLACE}")
            parameters.append(after)
        sql = f"{rows.SELECT} WHERE {' AND '.join(where)} ORDER BY o.key LIMIT ?"
        found = await self._reader.execute_fetchall(sql, (*parameters, min(limit, MAX_PAGE)))
        return [rows.load(row)[1] for row in found]

    async def results_expiring(self, provider: str, *, before: UnixMs) -> list[Operation]:
        """Operations whose result is not safely here and is dropped by the provider before a moment; some of them."""
        sql = f"{rows.SELECT} WHERE o.state IN ({_UNCOLLECTED}) AND o.provider = ?"
        sql += " AND o.living ->> 'results_kept_until' <= ? ORDER BY o.key LIMIT ?"
        found = await self._scanner.execute_fetchall(sql, (provider, before, MAX_PAGE))
        return [rows.load(row)[1] for row in found]

    async def notices(self, *, after: tuple[UnixMs, str] = (0, ""), limit: int = MAX_PAGE) -> list[Notice]:
        """What people are told and nobody has acknowledged, oldest first, after the (since, id) of one."""
        return await notices.load(self._reader, after=after, limit=limit)

    async def notice_counts(self) -> dict[str, int]:
        """How much people are told and nobody has acknowledged, by reason."""
        return await notices.counts(self._reader)

    async def grounds(self, operation_ids: Sequence[str]) -> dict[str, Grounds]:
        """The last requests and observations of each operation named."""
        return await grounds.load(self._reader, operation_ids)

    async def history(self, operation_id: str, *, after: int = 0, limit: int = MAX_PAGE) -> list[HistoryRow]:
        """An operation's history after a sequence number, oldest first."""
        found = await self._reader.execute_fetchall(history.OF_OPERATION, (operation_id, after, 0, limit))
        return [history.load(row) for row in found]

    async def observations(self, operation_id: str, *, after: int = 0, limit: int = MAX_PAGE) -> list[Seen]:
        """What was observed of an operation after a number, oldest first."""
        found = await self._reader.execute_fetchall(kept.OBSERVATIONS, (operation_id, after, limit))
        return [Seen(*row) for row in found]

    async def as_shown(self, op: Operation) -> Operation:
        """An operation as it is shown: a lost create without candidates that others came to hold since."""
        return await lost_creates.shown_now(self._reader, op)

    async def items(
        self, op: Operation, *, after: str = "", limit: int = 50, outcome: str | None = None
    ) -> list[ItemView]:
        """A page of items: of the served attempt, else the submitted ids."""
        return await items.page(
            self._reader, op.operation_id, op.collect_attempt, after=after, limit=limit, outcome=outcome
        )

    async def item(self, op: Operation, item_id: str) -> ItemView | None:
        """One item of the served attempt, else of the submitted ids."""
        return await items.one(self._reader, op.operation_id, op.collect_attempt, item_id)

    async def places(self, op: Operation, item_id: str) -> list[Place]:
        """Where the lines of one item stand in the collected files."""
        return await items.places(self._reader, op.operation_id, op.collect_attempt, item_id)

    async def doubled_ids(self, operation_id: str, attempt: int, *, after: str) -> tuple[str, ...]:
        """One slice of doubled ids, in order; on the connection for long reads."""
        return await items.doubled_ids(self._scanner, operation_id, attempt, after=after)

    async def tally(self, operation_id: str, attempt: int) -> Tally:
        """How one attempt adds up; on a connection of its own, since it reads every row."""
        return await items.tally(self._scanner, operation_id, attempt)

    async def open_at(self) -> tuple[OpenAt, ...]:
        """How many operations are open, by provider and by where they were started."""
        return await absence.open_at(self._scanner)

    async def has_open(self, provider: str) -> bool:
        """Whether an open operation names this provider."""
        return await absence.has_open(self._reader, provider)

    async def pauses(self) -> dict[str, Pause]:
        """The pauses that last, by provider; read at the start."""
        return await pauses.load(self._reader)

    async def known_providers(self) -> dict[str, Known]:
        """Every provider that was configured at some time."""
        return await providers.load(self._reader)

    async def counts(self) -> dict[str, int]:
        """Operations by state; on the connection for long reads: a quarter of a second for a million of them."""
        found = await self._scanner.execute_fetchall("SELECT state, count(*) FROM present GROUP BY state")
        return dict(found)

    async def due_backlog(self, now: UnixMs) -> dict[str, tuple[int, UnixMs]]:
        """By provider: how many rows are due and unleased, and since when the oldest is; on that connection too."""
        sql = (
            "SELECT provider, count(*), min(due_at) FROM schedule WHERE lease_owner IS NULL AND due_at <= ? GROUP BY 1"
        )
        return {row[0]: (row[1], row[2]) for row in await self._scanner.execute_fetchall(sql, (now,))}

    async def event_counts(self) -> dict[str, dict[str, Any]]:
        """By provider: deliveries taken, duplicates, unmatched, and when the last one came; pruned ones count too."""
        return await pruned_events.counts(self._scanner)

    # ---- life ----

    @property
    def commits(self) -> int:
        """Transactions committed since the start."""
        return self._group.commits

    @property
    def pulse(self) -> Pulse:
        """How far the writer has come (watchdog)."""
        return self._group.pulse

    @property
    def found_schema(self) -> int:
        """The schema that the file had when it was opened; 0: a fresh one."""
        return self._group.found_schema

    @property
    def is_writable(self) -> bool:
        """Whether writes are taken."""
        return self._group.is_open

    async def run(self) -> None:
        """The writer's loop. Raises: StoreBroken, when the outcome of a commit is unknown: the process must end."""
        await self._group.run()

    def stop(self) -> None:
        """Take no further write; `run` ends once what waits is committed."""
        self._group.stop()

    async def close(self) -> None:
        """Take no further write, let `run` commit what waits, and close the connections."""
        self.stop()
        await self._group.ended()
        for connection in (self._reader, self._scanner, self._writer):
            await connection.close()


async def open_store(
    path: str,
    *,
    opener: Opener,
    judge: Judge,
    has_read: HasRead,
    on_done: Callable[[Sequence[Done]], None],
    announce: Announce = lambda _op, _event, _at: None,
    hooks: Hooks | None = None,
    measured: Measured = unmeasured,
) -> Store:
    """Open or make the file at `path`. Raises: SchemaTooNew, StoreBusy.

    `on_done` hears of every commit, on the event loop, before the callers do; `measured` is entered around each.
    """
    opened: list[Connection] = []
    try:
        group, writer = await open_writer(opener, path, hooks or Hooks(), on_done, measured)
        opened.append(writer)
        for _ in range(2):
            opened.append(await opener(read_only_uri(path), uri=True))
            for pragma in READER_PRAGMAS:
                await opened[-1].execute_fetchall(pragma)
    except BaseException as fault:
        for connection in opened:
            await connection.close()
        if isinstance(fault, sqlite3.Error):
            raise store_error(f"{path} cannot be opened: {fault}", fault) from fault
        raise
    rules = Rules(judge, announce)
    kinds = (starts.kind(rules), evidence.kind(rules), events.kind(rules, has_read), claims.claim_kind())
    reader, scanner = Reader(opened[1]), Reader(opened[2])
    return Store(group, opened[0], reader, scanner, kinds, Sweeps(group, scanner, rules))
