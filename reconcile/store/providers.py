"""What the file knows of providers as such: which kind each configured one was, so that it is known once it is not."""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

from reconcile.store.schema import Connection
from reconcile.store.writer import Done, Kind

_KNOW: Final = (
    "INSERT INTO providers (provider, kind) VALUES (?, ?) ON CONFLICT (provider) DO UPDATE SET kind = excluded.kind"
    " WHERE kind <> excluded.kind"
)


def _know(connection: sqlite3.Connection, kinds: Mapping[str, str]) -> Done:
    connection.executemany(_KNOW, list(kinds.items()))
    return Done()


async def load(reader: Connection) -> dict[str, str]:
    """The kind of every provider that was ever configured, by name."""
    return dict(await reader.execute_fetchall("SELECT provider, kind FROM providers ORDER BY provider"))


def _run(connection: sqlite3.Connection, payloads: Sequence[Mapping[str, str]]) -> list[Done]:
    return [_know(connection, kinds) for kinds in payloads]


KNOW: Final = Kind("providers", _run)
