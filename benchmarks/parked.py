"""A daemon's file with very many parked operations: open, adopted, read once, due again only in days.

The first few are the product's own: a daemon adopts them by its API and reads them from the provider. All others are
copies of their rows, straight SQL, under ids of their own and with the hashes that the product's own chain gives them.
A check sees to it that this makes of each row of the product's exactly what the product wrote.
"""

import itertools
import secrets
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.adopting import adopt, job_ids
from benchmarks.home import DECLARED, Home, daemon
from benchmarks.processes import BESIDE, running, until
from reconcile.chain import GENESIS, fields_hash

#: A provider whose jobs take weeks: read once, they are left alone for days.
PATIENT: Final = (
    DECLARED
    + """\
[providers.acme.poll]
base = "7d"
cap = "14d"
sweep = "14d"
deadline = "60d"
[providers.acme.limits]
requests_per_second = 1000
concurrency = 32
"""
)
#: Operations that the product makes by itself. 100: arbitrary; each is copied alike.
OWN: Final = 100
#: How the other tables name an operation.
_TABLES: Final = {
    "operations": "key",
    "starts": "operation_key",
    "schedule": "key",
    "requests": "operation_key",
    "observations": "operation_key",
    "history": "operation_key",
}
#: Nobody else knows the file, and a half one is thrown away.
_FILLING: Final = (
    "PRAGMA locking_mode = EXCLUSIVE",
    "PRAGMA journal_mode = OFF",
    "PRAGMA synchronous = OFF",
    "PRAGMA cache_size = -4000000",
    "PRAGMA temp_store = MEMORY",
)
#: The columns of a history row as `fields_hash` takes them; the operation's id goes behind the first.
_HASHED: Final = (
    "position", "seq", "at", "actor", "kind", "from_state", "to_state", "cause", "remote_job_id", "reason", "facts",
)  # fmt: skip
#: Operations that one statement inserts.
_SLICE: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Template:
    """The rows of one operation that the product made, ready to be copied."""

    #: By table: each row's values, and the columns that hold an id, with the ids in it.
    rows: Mapping[str, Sequence[tuple[list[Any], Sequence[tuple[int, Sequence[str]]]]]]
    #: Operation, token, trace, job, and each request and observation.
    ids: tuple[str, ...]

    def copy(
        self, columns: Mapping[str, Sequence[str]], key: int, positions: Sequence[int], ids: Mapping[str, str]
    ) -> dict[str, list[list[Any]]]:
        """Its rows under another key, other positions and other ids; the chain hashed anew."""
        made: dict[str, list[list[Any]]] = {}
        for table, rows in self.rows.items():
            at = columns[table].index(_TABLES[table])
            copies = made[table] = []
            for values, named in rows:
                row = values.copy()
                row[at] = key
                for column, olds in named:
                    for old in olds:
                        row[column] = _put(row[column], old, ids[old])
                copies.append(row)
        told, operation_id, head = columns["history"], ids[self.ids[0]], GENESIS
        at_hash, hashed = told.index("hash"), [told.index(name) for name in _HASHED]
        for row, position in zip(made["history"], positions, strict=True):
            row[hashed[0]] = position
            row[at_hash] = head = fields_hash(head, [position, operation_id, *(row[n] for n in hashed[1:])])
        made["operations"][0][columns["operations"].index("head")] = head
        return made


def park(home: Home, count: int) -> list[str]:
    """Fill the home's file, which nobody has open, with so many parked operations; their ids."""
    own = grow(home, min(OWN, count))
    with closing(sqlite3.connect(home.database, isolation_level=None)) as connection:
        return [*own, *_multiply(connection, count - len(own))]


def grow(home: Home, count: int) -> list[str]:
    """Let the product adopt so many jobs and read each once; its ids. Afterwards nobody has the file open."""
    home.configure()
    provider = [sys.executable, "-m", "benchmarks.provider", str(home.provider_port)]
    with running(provider, port=home.provider_port, log=home.log, core=BESIDE), daemon(home):
        ids = adopt(home, "acme", job_ids(count))
        until(lambda: home.get("/v1/status")["operations"].get("observing") == count, what="all jobs to be read")
    return ids


def _multiply(connection: sqlite3.Connection, count: int) -> list[str]:
    columns = {table: _columns(connection, table) for table in _TABLES}
    keys = connection.execute("SELECT key FROM operations ORDER BY key").fetchall()
    templates = [_template(connection, columns, key) for (key,) in keys]
    for setting in _FILLING:
        connection.execute(setting).fetchall()
    # As a bulk load does: what is derived is made anew at the end, by its own text.
    derived = connection.execute(
        "SELECT type, name, sql FROM sqlite_schema WHERE type IN ('index', 'trigger') AND sql IS NOT NULL"
    ).fetchall()
    connection.execute("BEGIN")
    for kind, name, _ in derived:
        connection.execute(f"DROP {kind} {name}")
    ids: list[str] = []
    key = keys[-1][0]
    position = int(connection.execute("SELECT max(position) FROM history").fetchone()[0])
    turns = itertools.cycle(templates)
    while len(ids) < count:
        made: dict[str, list[list[Any]]] = {table: [] for table in _TABLES}
        for template in itertools.islice(turns, min(_SLICE, count - len(ids))):
            key += 1
            new = _new_ids(template.ids, key)
            ids.append(new[template.ids[0]])
            rows = len(template.rows["history"])
            for table, copies in template.copy(columns, key, range(position + 1, position + 1 + rows), new).items():
                made[table] += copies
            position += rows
        for table, copies in made.items():
            places = ", ".join("?" * len(columns[table]))
            connection.executemany(f"INSERT INTO {table} ({', '.join(columns[table])}) VALUES ({places})", copies)
    for _, _, sql in derived:
        connection.execute(sql)
    connection.execute("COMMIT")
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    return ids


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    """Those that are written; a number that SQLite gives out by itself is left to it."""
    found = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    return [name for name in found if name != "number"]


def _template(connection: sqlite3.Connection, columns: Mapping[str, Sequence[str]], key: int) -> _Template:
    """What stands of one operation. Raises: SystemExit, where a copy under its own ids is not what stands there."""
    rows = {
        table: [list(row) for row in connection.execute(f"SELECT {', '.join(columns[table])} FROM {table}"
                f" WHERE {name} = ?{' ORDER BY seq' if table == 'history' else ''}", (key,))]
        for table, name in _TABLES.items()
    }  # fmt: skip

    def column(table: str, name: str) -> list[Any]:
        return [row[columns[table].index(name)] for row in rows[table]]

    one = [column("operations", name)[0] for name in ("operation_id", "token", "trace_id", "remote_job_id")]
    ids = (*one, *column("requests", "request_id"), *column("observations", "observation_id"))
    template = _Template(
        {
            table: [
                (row, [(n, olds) for n, value in enumerate(row) if (olds := [i for i in ids if _holds(value, i)])])
                for row in found
            ]
            for table, found in rows.items()
        },
        ids,
    )
    if template.copy(columns, key, column("history", "position"), {name: name for name in ids}) != rows:
        raise SystemExit(f"parked: a copy of {ids[0]} is not what the product wrote")
    return template


def _new_ids(ids: Sequence[str], key: int) -> dict[str, str]:
    """Ids of the same make in place of these."""
    made = {}
    for name in ids:
        prefix, bar, _ = name.rpartition("_")
        made[name] = f"job_{key:07d}" if prefix == "job" else f"{prefix}{bar}{secrets.token_hex(16)}"
    return made


def _holds(value: object, name: str) -> bool:
    return name in value if isinstance(value, str) else isinstance(value, bytes) and name.encode() in value


def _put(value: Any, old: str, new: str) -> Any:
    return value.replace(old, new) if isinstance(value, str) else value.replace(old.encode(), new.encode())
