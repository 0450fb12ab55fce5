"""Open operations by where they were started, and what a start rings: what nothing may be asked about any more, so that
it says so, and what may be asked about again, so that it is read.
"""

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from reconcile.absence import OpenAt, Served
from reconcile.model import Absence, UnixMs
from reconcile.states import CANCELLING, CREATING, STOPPED, WATCHING, Priority, State
from reconcile.store.reading import Reader
from reconcile.store.writer import Done, Kind


@dataclass(frozen=True, slots=True)
class Roused:
    """How many rows a start made due: by provider those that are asked about again, and all that became absent."""

    back: dict[str, int]
    absent: int


@dataclass(frozen=True, slots=True)
class Rousing:
    """What may be asked about since this start."""

    served: Served
    at: UnixMs


def _listed(words: Iterable[str]) -> str:
    return ", ".join(f"'{word}'" for word in sorted(words))


_ABSENCES: Final = _listed([absence.value for absence in Absence])
#: What a request follows for, once it may be sent: the rest waits for a person.
_ACTING: Final = _listed([*WATCHING, *CANCELLING, *STOPPED, *CREATING, State.RESULT_COLLECTING])
#: The schedule holds exactly the open operations.
_OPEN: Final = (
    "SELECT s.provider, o.living ->> '$.origin', count(*) FROM schedule s JOIN operations o ON o.key = s.key"
    " GROUP BY 1, 2 ORDER BY 1, 2"
)
#: Two looks, each in an index of its own.
_HAS_OPEN: Final = (
    "SELECT EXISTS (SELECT 1 FROM schedule WHERE provider = ? AND lease_owner IS NULL)"
    " OR EXISTS (SELECT 1 FROM schedule WHERE provider = ? AND lease_owner IS NOT NULL)"
)
#: Whether the operation `o` may be asked about: ?1 is what `as_pairs` gives. Where no origin is kept, any will do. The
#: list names nothing of `o`, so that SQLite makes it once for all rows.
SERVED: Final = (
    "(o.provider, coalesce(o.living ->> '$.origin', '')) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?1))"
)
#: A question that a removed provider left, now that it stands there at another address, or the other way round.
_ASKS_OTHERWISE: Final = (
    "(o.state = 'observation_failed' AND o.living ->> '$.attention.reason' = CASE WHEN EXISTS"
    " (SELECT 1 FROM json_each(?1) j WHERE j.value ->> 0 = o.provider)"
    f" THEN '{Absence.MISSING}' ELSE '{Absence.MOVED}' END)"
)
#: Its own next read may be a day off where a list carried it; rung, so that no list takes it up again.
_RING_ABSENT: Final = (
    "UPDATE schedule SET due_at = ?2, priority = min(schedule.priority, ?3) FROM operations o"
    " WHERE o.key = schedule.key AND schedule.due_at > ?2"
    f" AND (o.state IN ({_listed(WATCHING)}) OR {_ASKS_OTHERWISE}) AND NOT {SERVED}"
)
#: A notice tells which operations had been absent; a row of its own that became a question tells it by itself.
_RING_BACK: Final = (
    "UPDATE schedule SET due_at = min(schedule.due_at, ?2), priority = min(schedule.priority, ?3),"
    " ring = 'start:' || o.provider FROM operations o WHERE o.key = schedule.key AND"
    f" ((o.state = 'observation_failed' AND o.living ->> '$.attention.reason' IN ({_ABSENCES}))"
    f" OR (o.state IN ({_ACTING}) AND EXISTS (SELECT 1 FROM notices n WHERE n.provider = o.provider AND"
    f" (n.reason = '{Absence.MISSING}' OR (n.reason = '{Absence.MOVED}'"
    "   AND o.living ->> '$.origin' IN (SELECT value FROM json_each(n.evidence, '$.origins')))))))"
    f" AND {SERVED} RETURNING schedule.provider"
)


def as_pairs(served: Served) -> str:
    """What `SERVED` asks for: each provider with each of its origins, and with none, as JSON."""
    return json.dumps(
        [[name, origin] for name in sorted(served.origins) for origin in ("", *sorted(served.origins[name]))]
    )


def _rouse(connection: sqlite3.Connection, rousing: Rousing) -> Done:
    served = as_pairs(rousing.served)
    back: dict[str, int] = {}
    for (provider,) in connection.execute(_RING_BACK, (served, rousing.at, Priority.RUNG)).fetchall():
        back[provider] = back.get(provider, 0) + 1
    absent = connection.execute(_RING_ABSENT, (served, rousing.at, Priority.RUNG)).rowcount
    return Done(Roused(back, absent))  # nobody sleeps yet who would have to be woken


async def open_at(reader: Reader) -> tuple[OpenAt, ...]:
    """The open operations, counted by provider and origin."""
    return tuple(OpenAt(*row) for row in await reader.execute_fetchall(_OPEN))


async def has_open(reader: Reader, provider: str) -> bool:
    """Whether an open operation names this provider."""
    return bool((await reader.execute_fetchall(_HAS_OPEN, (provider, provider)))[0][0])


ROUSE: Final = Kind("rouse", lambda connection, payloads: [_rouse(connection, rousing) for rousing in payloads])
