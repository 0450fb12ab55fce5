"""What is known of providers as such: which kind each is, and how its newest ends came to light."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reconcile.store.reading import Reader
from reconcile.store.writer import Done, Kind


@dataclass(frozen=True, slots=True)
class Known:
    """One provider as the file knows it."""

    kind: str
    #: As health.py reads it.
    recent_ends: str


#: The deliveries of another kind say nothing of this one's.
_KNOW: Final = (
    "INSERT INTO providers (provider, kind) VALUES (?, ?) ON CONFLICT (provider) DO UPDATE"
    " SET kind = excluded.kind, recent_ends = '' WHERE kind <> excluded.kind"
)


def recent_ends(connection: sqlite3.Connection, provider: str) -> str:
    """How the newest ends of a provider came to light; nothing where the file does not know it."""
    row = connection.execute("SELECT recent_ends FROM providers WHERE provider = ?", (provider,)).fetchone()
    return str(row[0]) if row is not None else ""


def keep_ends(connection: sqlite3.Connection, ends: Mapping[str, str]) -> None:
    """Write the windows back, in the transaction of the ends themselves."""
    sql = "UPDATE providers SET recent_ends = ? WHERE provider = ?"
    connection.executemany(sql, [(recent, provider) for provider, recent in ends.items()])


async def load(reader: Reader) -> dict[str, Known]:
    """Every provider that the file knows, by name."""
    found = await reader.execute_fetchall("SELECT provider, kind, recent_ends FROM providers")
    return {provider: Known(kind, recent) for provider, kind, recent in found}


def _know(connection: sqlite3.Connection, kinds: Mapping[str, str]) -> Done:
    connection.executemany(_KNOW, sorted(kinds.items()))
    return Done()


def _run(connection: sqlite3.Connection, payloads: Sequence[Mapping[str, str]]) -> list[Done]:
    return [_know(connection, kinds) for kinds in payloads]


KNOW: Final = Kind("providers", _run)
