"""What the interface shows of a record, all of it; and what must hold of any record, whatever was done to it."""

from typing import Any, Final

from structlog.testing import CapturingLogger

from reconcile.chain import ChainedRow
from reconcile.checkpoint import AuditKey, Head, PrunedHead, SignedCheckpoint, fault_of
from reconcile.fingerprint import canonical_json
from reconcile.fold import Fold
from reconcile.history_row import HistoryRow
from reconcile.merkle import Tree
from reconcile.model import Operation, UnixMs
from reconcile.notary import Notary
from reconcile.store.pruned_events import IdsKept
from reconcile.store.pruning import Pruned, Pruning
from reconcile.store.store import Store
from tests.conformance.owner import Owner
from tests.reconcile.chains import verify
from tests.reconcile.rows import ARROWS, DAY, NOW, TERMINAL, running

#: States that a start leads to. One that a test put elsewhere has deadlines that no row tells.
_STARTS: Final = ("create_pending", "accepted", "observing")
Shown = dict[str, Any]
KEY: Final = AuditKey.made(b"k" * 32)
#: Ids of deliveries are known for a week in these tests.
IDS: Final = IdsKept({"test": NOW - 7 * DAY}, NOW - 7 * DAY)


# ---- all that is shown ----


async def operations(store: Store) -> list[Operation]:
    """Every operation, oldest first."""
    found: list[Operation] = []
    while page := await store.find(after=found[-1].operation_id if found else None, limit=100, is_open=None):
        found += page
    return found[::-1]


async def everything(owner: Owner) -> Shown:
    """All that the store's reads tell, so that two moments can be compared."""
    store = owner.store
    found = await operations(store)
    checkpoint = await store.record.last_checkpoint()
    return {
        "operations": found,
        "histories": {op.operation_id: await store.history(op.operation_id) for op in found},
        "observations": {op.operation_id: await store.observations(op.operation_id) for op in found},
        "grounds": await store.grounds([op.operation_id for op in found]),
        "items": {op.operation_id: await store.items(op, limit=1000) for op in found},
        "submitted": {op.operation_id: await store.tally(op.operation_id, 0) for op in found},
        "questions": await store.questions(after=None, limit=1000),
        "counts": await store.counts(),
        "due": await store.due_backlog(NOW + 1000 * DAY),
        "open": await store.open_at(),
        "notices": await store.notices(),
        "pauses": await store.pauses(),
        "providers": await store.known_providers(),
        "events": await store.event_counts(),
        "sweeps": await store.sweeps.rows(),
        "deliveries": await store.deliveries.counts(),
        "told": await all_history(store),
        "ends": await store.consumers.completions(after=0, limit=1000),
        "last_position": await store.consumers.last_position(),
        "checkpoint": checkpoint,
        "heads": [] if checkpoint is None else await store.record.heads(checkpoint.checkpoint.number, after=""),
        "has_unsigned_pruning": await store.record.has_unsigned_pruning(),
        "backup_made_at": await store.record.backup_made_at(),
    }


async def all_history(store: Store) -> list[HistoryRow]:
    """Every history row in the order of positions."""
    told: list[HistoryRow] = []
    while page := await store.consumers.history_of_all(after=told[-1].position if told else 0):
        told += page
    return told


# ---- what must hold ----


def chained(row: HistoryRow) -> tuple[ChainedRow, str]:
    """A row as its hash covers it, and that hash."""
    return (
        ChainedRow(
            row.position,
            row.operation_id,
            row.seq,
            row.at,
            row.actor,
            row.kind,
            row.from_state,
            row.to_state,
            row.cause,
            row.remote_job_id,
            row.reason,
            canonical_json(row.facts).decode(),
        ),
        row.hash,
    )


async def check_record(owner: Owner, *, was_pruned: bool = False) -> None:
    """That each history is whole and tells its row, and that positions number all history in one order.

    They have no gap as long as nothing was pruned, and are never given twice.
    """
    store = owner.store
    told = await all_history(store)
    positions = [row.position for row in told]
    last = await store.consumers.last_position()
    if was_pruned:
        assert positions == sorted(set(positions))
        assert not positions or positions[-1] <= last
    else:
        assert positions == list(range(1, last + 1))
    found = await operations(store)
    by_id: dict[str, list[HistoryRow]] = {op.operation_id: [] for op in found}
    for row in told:
        by_id[row.operation_id].append(row)
    for op in found:
        rows = await store.history(op.operation_id)
        assert rows == by_id[op.operation_id]
        assert await store.consumers.history_of(op.operation_id, after=0, limit=1000) == rows
        assert verify(map(chained, rows), head=op.head, length=op.seq) is None
        _check_told(op, rows)
        if op.remote_job_id is not None and not op.is_terminal:
            holders = [o for o in found if (o.provider, o.remote_job_id) == (op.provider, op.remote_job_id)]
            assert [o for o in holders if o.outcome not in ("timed_out", "abandoned")] == [op], "a job has two holders"


def _check_told(op: Operation, rows: list[HistoryRow]) -> None:
    """That the operation is what its history folds to, each move a legal one, its end the last of them."""
    fold = Fold()
    ends = contradictions = 0
    for row in rows:
        assert row.cause
        assert row.actor
        if row.seq > 1:
            assert row.from_state == fold.state
        if row.kind == "move":
            assert row.seq == 1 or row.to_state in ARROWS[str(fold.state)]
            ends += row.to_state in [end.value for end in TERMINAL]
        contradictions += row.kind == "contradiction"
        if row.facts.get("remote_job_id") != fold.remote_job_id and "remote_job_id" in row.facts:
            assert fold.remote_job_id is None, "a job id was written twice"
        fold.take(row.kind, row.to_state, row.facts)
    assert (fold.state, fold.remote_job_id, fold.outcome) == (op.state, op.remote_job_id, op.outcome)
    if rows[0].to_state in _STARTS or any("deadlines" in row.facts for row in rows[1:]):
        assert fold.difference(op) is None
        assert {name: at for name, at in (fold.deadlines or {}).items() if at is not None} == running(op)
    assert contradictions == op.contradictions
    assert ends == op.is_terminal


# ---- checkpoints and pruning ----


class Still:
    """A clock that stands."""

    def __init__(self, at: UnixMs = NOW) -> None:
        self._at = at

    def now(self) -> UnixMs:
        return self._at

    def monotonic(self) -> float:
        return 0.0


def notary(owner: Owner, log: Any = None) -> Notary:
    """The one who signs, on a clock that stands."""
    return Notary(record=owner.store.record, key=KEY, clock=Still(), log=log or CapturingLogger())


async def sign(owner: Owner) -> SignedCheckpoint | None:
    """Sign what has changed, by a notary who knows of nothing before, as after a restart."""
    return await notary(owner).sign()


async def check_checkpoint(owner: Owner, before: SignedCheckpoint | None = None) -> SignedCheckpoint:
    """That the newest checkpoint follows `before`, is signed, and covers just the leaves under its number."""
    signed = await owner.store.record.last_checkpoint()
    assert signed is not None
    assert fault_of(signed, before) is None
    number = signed.checkpoint.number
    tree = Tree()
    heads: list[Head] = []
    while some := await owner.store.record.heads(number, after=heads[-1].operation_id if heads else ""):
        heads += some
    gone: list[PrunedHead] = []
    while more := await owner.store.record.pruned_heads(number, after=gone[-1].operation_id if gone else ""):
        gone += more
    for leaf in [*(head.leaf() for head in heads), *(head.leaf() for head in gone)]:
        tree.add(leaf)
    assert (signed.checkpoint.heads, signed.checkpoint.pruned) == (len(heads), len(gone))
    assert signed.checkpoint.root == tree.finish()
    return signed


async def prune(owner: Owner, *, ended_before: UnixMs = NOW - 90 * DAY, at: UnixMs = NOW) -> list[Pruned]:
    """A whole round; what each slice came to."""
    done = [await owner.store.record.prune(Pruning(at, ended_before, IDS))]
    while done[-1].has_gone_on:
        wish = Pruning(at, ended_before, IDS, done[-1].after, done[-1].passed_over)
        done.append(await owner.store.record.prune(wish))
    return done
