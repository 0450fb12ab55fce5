"""What a client said its result must be (`expect` in a start), beside what the provider itself must keep. Pure.

The schema of the items' bodies has a room of its own, json_schema.py.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from reconcile.errors import RequestInvalid
from reconcile.model import JsonObject


@dataclass(frozen=True, slots=True)
class Expected:
    """A checked `expect`. Where items are sent, `items` and `ids` only repeat what is known, and are not kept."""

    items: int | None = None
    ids: tuple[str, ...] = ()
    content_type: str | None = None
    #: Lower-case hex, over the stored bytes of all result files in order.
    sha256: str | None = None
    json_schema: JsonObject | None = None

    def agree(self, sent: Collection[str]) -> None:
        """Refuse what contradicts the items of the same start. Raises: RequestInvalid."""
        if self.items is not None and self.items != len(sent):
            raise RequestInvalid("/expect/items", f"is {self.items}, but {len(sent)} items are sent")
        for index, item_id in enumerate(self.ids):
            if item_id not in sent:
                raise RequestInvalid(f"/expect/items/{index}", f"the id {item_id!r} is not among the items sent")
        if self.ids and len(self.ids) != len(sent):
            raise RequestInvalid("/expect/items", f"has {len(self.ids)} ids, but {len(sent)} items are sent")

    def kept(self) -> JsonObject:
        """As it stands in the operation's row. The ids do not: they become the submitted ones."""
        stated: dict[str, Any] = {
            "items": self.items,
            "content_type": self.content_type,
            "sha256": self.sha256,
            "json_schema": self.json_schema,
        }
        return {name: value for name, value in stated.items() if value is not None}


def is_of_type(promised: str, seen: str | None) -> bool:
    """Whether a `Content-Type` is the promised one; its parameters count where the promise names them."""
    if seen is None:
        return False
    (wanted, wanted_more), (found, found_more) = _media_type(promised), _media_type(seen)
    return wanted == found and wanted_more.items() <= found_more.items()


def _media_type(value: str) -> tuple[str, dict[str, str]]:
    """Type and parameters, spelled so that they can be compared (RFC 9110, 8.3.1)."""
    kind, *rest = (part.strip() for part in value.split(";"))
    named = (part.partition("=") for part in rest)
    return kind.lower(), {name.strip().lower(): text.strip().strip('"').lower() for name, _, text in named if name}
