"""The daemon's file as a stranger reads it: plain rows, by a connection that can neither write nor checkpoint."""

import contextlib
import json
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from reconcile.store.schema import read_only_uri
from tests.simulation.world import SimWorld

Row = dict[str, Any]
_DEADLINES: Final = frozenset({"create", "result", "cancel", "input", "collect", "attention"})


@dataclass(slots=True)
class View:
    """The file's rows, and the world around it."""

    world: SimWorld
    operations: list[Row]
    schedule: Mapping[int, Row]
    history: Mapping[int, list[Row]]
    events: list[Row]
    items: Mapping[int, list[Row]]
    causes: Mapping[str, set[str]]
    client_keys: list[Row]
    deliveries: list[Row] = field(default_factory=list)
    notices: list[Row] = field(default_factory=list)

    def jobs(self, op: Row) -> list[Any]:
        """The provider's jobs of an operation."""
        return self.world.provider.jobs_of(op["operation_id"])


def load(world: SimWorld) -> View:
    """Read the file by a connection that can neither write nor checkpoint."""
    connection = sqlite3.connect(read_only_uri(str(world.database)), uri=True)
    with contextlib.closing(connection):
        connection.row_factory = sqlite3.Row
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'operations'").fetchall():
            return View(world, [], {}, {}, [], {}, defaultdict(set), [])

        def rows(sql: str) -> list[Row]:
            return [dict(row) for row in connection.execute(sql)]

        operations = rows("SELECT * FROM operations ORDER BY key")
        for op in operations:
            op["living"] = json.loads(op["living"])
        causes = {
            "start": {op["operation_id"] for op in operations},
            "observation": {row["observation_id"] for row in rows("SELECT observation_id FROM observations")},
            "request": {row["request_id"] for row in rows("SELECT request_id FROM requests")},
            "event": {row["event_id"] for row in rows("SELECT event_id FROM events")},
            "deadline": set(_DEADLINES),
            "cancel": {op["living"]["cancel"]["cancel_id"] for op in operations if op["living"].get("cancel")},
        }
        broken = [words for (words,) in connection.execute("PRAGMA integrity_check") if words != "ok"]
        assert not broken, broken
        return View(
            world,
            operations,
            {row["key"]: row for row in rows("SELECT * FROM schedule")},
            _grouped(rows("SELECT * FROM history ORDER BY position")),
            rows("SELECT * FROM events ORDER BY key"),
            _grouped(rows("SELECT * FROM items ORDER BY operation_key, attempt, item_id, line")),
            causes,
            rows("SELECT * FROM client_keys"),
            rows("SELECT * FROM deliveries ORDER BY created_at, delivery_id"),
            rows("SELECT * FROM notices ORDER BY notice_id"),
        )


def _grouped(rows: Sequence[Row]) -> Mapping[int, list[Row]]:
    groups: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["operation_key"]].append(row)
    return groups


def moves(view: View, op: Row) -> list[Row]:
    """The history rows that change an operation's state."""
    return [row for row in view.history[op["key"]] if row["kind"] == "move"]


def facts(view: View, op: Row) -> list[Row]:
    """All its history rows, with their facts read."""
    return [{**row, "facts": json.loads(row["facts"])} for row in view.history[op["key"]]]
