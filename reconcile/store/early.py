"""Files of the first hours: a migration's text was then still edited in place, so files of one number differ.

Each script under migrations/early brings one object of such a file to the text of its migration as it stands. Which of
them a file needs, the file itself shows: by an object that is not there, or that lacks a word. A migration that has
landed is not edited any more, so no script joins these: what changes later is a migration of its own.
"""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Final


@dataclass(frozen=True, slots=True)
class Mend:
    """A script, and by what a file shows that it needs it."""

    #: Of the migration whose text was edited.
    version: int
    script: str
    #: The object that the script brings up to date, and a word that stands in its text only since then.
    name: str
    word: str = ""


#: The last version whose files may be early: what has gone beyond it was mended on the way.
LAST: Final = 3
MENDS: Final = (
    Mend(1, "0001_schedule.sql", "schedule", "deadline_at"),
    Mend(1, "0001_history.sql", "history_is_never_replaced"),
    Mend(1, "0001_observations.sql", "observations", "number INTEGER"),
    Mend(1, "0001_events.sql", "events", "verdict TEXT"),
    Mend(3, "0003_events.sql", "events_by_operation"),
    Mend(3, "0003_sweeps.sql", "sweeps", "Requests that"),
)
_IS_THERE: Final = "SELECT count(*) FROM sqlite_schema WHERE name = ? AND instr(sql, ?) > 0"


def mends(connection: sqlite3.Connection, version: int) -> Iterator[str]:
    """The scripts that a file of this version needs, in order, before any later migration."""
    folder = resources.files("reconcile.store") / "migrations" / "early"
    for mend in MENDS:
        if mend.version <= version <= LAST and not connection.execute(_IS_THERE, (mend.name, mend.word)).fetchone()[0]:
            yield (folder / mend.script).read_text(encoding="utf-8")
