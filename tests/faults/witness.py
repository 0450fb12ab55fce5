"""What others know of a process, by the record of what it heard and said; and what of that its file has forgotten."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tests.faults.record import Entry
from tests.stories.stage import Home

#: In the body of a create: whose job it makes.
_MARK: Final = re.compile(rb'"reconciled_operation":\s*"(op_[0-9a-f]+)"')


@dataclass(slots=True)
class Witness:
    """What others know of a process, from what went over its sockets."""

    #: Operations whose start was answered 2xx, and ids of deliveries that were.
    started: set[str] = field(default_factory=set)
    delivered: set[str] = field(default_factory=set)
    #: Operations whose create is on its way.
    created: set[str] = field(default_factory=set)
    _heard: dict[int, bytes] = field(default_factory=dict, repr=False)

    def hear(self, entry: Entry) -> None:
        """One thing that it heard or said."""
        socket, data = entry.where, entry.data
        if entry.kind == "i":
            self._heard[socket] = data if data.startswith((b"POST ", b"GET ")) else self._heard.get(socket, b"") + data
            return
        self.created |= {found.decode() for found in _MARK.findall(data)}
        if data.startswith((b"HTTP/1.1 200", b"HTTP/1.1 202")):
            heard = self._heard.get(socket, b"")
            if heard.startswith(b"POST /v1/operations "):
                self.started |= {name.decode() for name in re.findall(rb"Location: /v1/operations/(op_\w+)", data)}
            if heard.startswith(b"POST /webhooks/"):
                self.delivered |= {name.decode() for name in re.findall(rb"(?i)webhook-id: (\w+)", heard)}

    def misses(self, home: Home) -> Iterator[str]:
        """What of that is not in the file."""
        rows = home.rows("SELECT operation_id, state, mark_at FROM operations LEFT JOIN schedule USING (key)")
        kept = {row["operation_id"]: row for row in rows}
        yield from (f"answered 2xx, and gone: {name}" for name in self.started - kept.keys())
        events = {row["event_id"] for row in home.rows("SELECT event_id FROM events")}
        yield from (f"delivery answered 200, and gone: {name}" for name in self.delivered - events)
        for name in self.created:
            row = kept.get(name)
            if row is None or (row["state"] == "create_pending" and row["mark_at"] is None):
                yield f"a create had left, and of that the file says {row}"
