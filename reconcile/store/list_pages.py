"""List pages into rows: what a page shows is evidence for each of its jobs, and needs no lease of a row.

A page that tells nothing new writes nothing at all. It tells nothing of an operation that nothing may be asked about:
the list may be of another account. The bytes kept with an observation are the page's entry of the job, as it stood
there; the page itself is not kept.
"""

import json
import sqlite3
from dataclasses import dataclass
from typing import Any, Final

from reconcile.absence import Served
from reconcile.evidence import JobRead
from reconcile.familiar import ENDED
from reconcile.listing import Stands, is_known, is_news
from reconcile.model import Observation, Progress, UnixMs, Verdict
from reconcile.states import TERMINAL, State
from reconcile.store.absence import SERVED, as_pairs
from reconcile.store.evidence import Applier, Arrival, Rules
from reconcile.store.kept import MAX_RAW, ObservationRecord, RequestRecord
from reconcile.store.writer import Done, Kind

#: Steps of the golden ratio fall far apart: one draw a page gives each job on it one of its own.
_GOLDEN: Final = 0.6180339887498949


@dataclass(frozen=True, slots=True)
class ListedJob:
    """One job on a page: what was read, what it means, and the text that it was read from."""

    observation: Observation
    verdict: Verdict
    entry: bytes


@dataclass(frozen=True, slots=True)
class PageRecord:
    """One page on its way into the store. `renew_until`: the lease is to be renewed with it."""

    provider: str
    owner: str
    fence: int
    #: Whose jobs the list can show.
    served: Served
    at: UnixMs
    draw: float
    request: RequestRecord
    #: From this the ids of its observations are made.
    page_id: str
    jobs: tuple[ListedJob, ...]
    renew_until: UnixMs | None = None


@dataclass(frozen=True, slots=True)
class PageKept:
    """What a page came to."""

    #: The lease still holds; else its facts were kept and the sweep is another's.
    is_held: bool
    #: Keys of the operations that it showed, whatever state they are in.
    seen: tuple[int, ...]
    #: Jobs of which it told nothing that their open operations do not show, with the operations' keys, and those whose
    #: operations have ended, with `ENDED`: as long as neither changes, the same entry tells nothing either.
    known: tuple[tuple[str, int], ...] = ()


_RENEW: Final = "UPDATE sweeps SET lease_until = ? WHERE provider = ? AND lease_owner = ? AND fence = ?"
_IS_HELD: Final = "SELECT 1 FROM sweeps WHERE provider = ? AND lease_owner = ? AND fence = ?"
#: CROSS: the page is the outer loop, each of its ids one look into the index.
_SHOWN: Final = (
    "SELECT j.key, o.key, o.operation_id, o.state, o.remote_status, o.living ->> '$.progress',"
    " o.living ->> '$.total_items', s.errors, s.gone_reads, s.last_read_at, s.lease_owner IS NOT NULL"
    " FROM json_each(?2) j CROSS JOIN present o ON o.provider = ?3 AND o.remote_job_id = j.value"
    f" LEFT JOIN schedule s ON s.key = o.key WHERE {SERVED} ORDER BY j.key, o.key"
)


def _keep_page(connection: sqlite3.Connection, page: PageRecord, rules: Rules) -> Done:
    lease = (page.provider, page.owner, page.fence)
    if page.renew_until is not None:
        is_held = connection.execute(_RENEW, (page.renew_until, *lease)).rowcount == 1
    else:
        is_held = connection.execute(_IS_HELD, lease).fetchone() is not None
    seen, known, arrivals = _read_page(connection, page)
    kept = PageKept(is_held, tuple(seen), tuple(known.items()))
    if not arrivals:
        return Done(kept)
    applier = Applier(connection, rules)
    applier.load([arrival.operation_id for arrival in arrivals])
    done = [applier.apply(arrival) for arrival in arrivals]
    applier.flush()
    due = [one.due_at for one in done if one.due_at is not None]
    return Done(kept, tuple(change for one in done for change in one.changes), min(due, default=None))


def _read_page(connection: sqlite3.Connection, page: PageRecord) -> tuple[list[int], dict[str, int], list[Arrival]]:
    """Which operations the page shows, and what of it is news. A job that stands twice on a page is read once."""
    jobs: dict[str, ListedJob] = {}
    for job in page.jobs:
        jobs.setdefault(str(job.observation.remote_job_id), job)
    names = list(jobs)
    seen: list[int] = []
    known: dict[str, int] = {}
    others: set[str] = set()
    arrivals: list[Arrival] = []
    for index, key, operation_id, state, *as_known in connection.execute(
        _SHOWN, (as_pairs(page.served), json.dumps(names), page.provider)
    ).fetchall():
        seen.append(key)
        job, stands = jobs[names[index]], _stands(state, *as_known)
        if is_news(stands, job.observation, job.verdict, sent_at=page.request.sent_at):
            arrivals.append(_as_arrival(page, operation_id, job, index))
        elif is_known(stands, sent_at=page.request.sent_at):
            known[names[index]] = max(known.get(names[index], ENDED), ENDED if stands.state in TERMINAL else key)
        else:
            others.add(names[index])
    return seen, {name: key for name, key in known.items() if name not in others}, arrivals


def _stands(state: str, status: str | None, progress: str | None, *rest: Any) -> Stands:
    total, errors, gone_reads, last_read_at, is_leased = rest
    shown = Progress(**json.loads(progress)) if progress else None
    return Stands(State(state), status, shown, total, errors, gone_reads, last_read_at, bool(is_leased))


def _as_arrival(page: PageRecord, operation_id: str, job: ListedJob, index: int) -> Arrival:
    observation_id = f"obs_{page.page_id}_{index}"
    return Arrival(
        operation_id,
        JobRead(job.observation),
        actor=f"sweep:{page.provider}",
        cause=f"observation:{observation_id}",
        at=page.at,
        draw=(page.draw + index * _GOLDEN) % 1,
        requests=(page.request,),
        observation=ObservationRecord(observation_id, "list", job.entry[:MAX_RAW], job.observation),
    )


def kind(rules: Rules) -> Kind:
    """The write that brings a page."""
    return Kind("list_page", lambda connection, payloads: [_keep_page(connection, page, rules) for page in payloads])
