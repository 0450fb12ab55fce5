"""A list page's entries, told apart by their text, so that one that says what it said before is not parsed again.

An object that is whole up to the comma between two objects is an entry, since no JSON object is the beginning of
another. What does not look like a plain array of objects is parsed as a whole.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Final

from reconcile.errors import Unreadable
from reconcile.provider import KnownAs
from reconcile.read_json import SMALL, JsonValue, listing, read_object, read_value_at

#: Characters in which the end of an entry is sought. 65,536: arbitrary, far beyond the few KiB of a job. To seek
#: each through a whole page would stop the event loop for seconds, where somebody sets them apart so.
LONGEST: Final = 65_536
#: Stands in the place of all entries where the rest of a page is parsed; a page that holds it otherwise is not cut.
_CUT: Final = "all the entries"
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_COMMA: Final = re.compile(r"[ \t\n\r]*,[ \t\n\r]*(?=\{)")


@dataclass(slots=True)
class ListPage:
    """One page, read."""

    #: The body; what stands in it for the entries means nothing.
    around: dict[str, JsonValue] = field(default_factory=dict)
    count: int = 0
    last: JsonValue = None
    #: The entries that have to be looked at, each with its text.
    entries: list[tuple[JsonValue, bytes]] = field(default_factory=list)
    #: What the caller calls the others.
    known: list[int] = field(default_factory=list)

    def take(self, entry: JsonValue, text: bytes, known_as: KnownAs) -> None:
        """The next entry."""
        self.count += 1
        self.last = entry
        known = known_as(text)
        if known is None:
            self.entries.append((entry, text))
        else:
            self.known.append(known)


def read_list_page(data: bytes, key: str, known_as: KnownAs, *, most: int) -> ListPage:
    """The page whose entries are the array at `key`; those of a page of more than `most` are counted alone.

    Raises: Unreadable, as of the whole body.
    """
    if len(data) <= SMALL:  # a larger one is counted before anything of it is parsed
        try:
            page = _cut(data.decode("utf-8"), key, known_as, most)
        except (Unreadable, UnicodeDecodeError):
            page = None  # nor is the whole to be read, and that says why
        if page is not None:
            return page
    return _parse(data, key, known_as, most)


def _parse(data: bytes, key: str, known_as: KnownAs, most: int) -> ListPage:
    body = read_object(data)
    entries = listing(body, key)
    if entries is None:
        raise Unreadable("no list of entries")
    page = ListPage(body)
    if len(entries) > most:
        page.count = len(entries)
        return page
    for entry in entries:
        page.take(entry, json.dumps(entry, separators=(",", ":"), ensure_ascii=False).encode(), known_as)
    return page


def _cut(text: str, key: str, known_as: KnownAs, most: int) -> ListPage | None:
    """The page, where the first array in it is that of its entries and holds objects alone, no more than `most`.

    Raises: Unreadable.
    """
    begin = at = _past_space(text, text.find("[") + 1)
    page, between = ListPage(), ""
    if not text.startswith("{", at):
        return None
    while page.count < most:
        end = text.find(between, at, at + LONGEST) + 1 if between else 0
        known = known_as(text[at:end].encode()) if end else None
        if known is not None:
            page.count += 1
            page.known.append(known)
            at = end + len(between) - 2
            continue
        entry, end = read_value_at(text, at)
        page.take(entry, text[at:end].encode(), known_as)
        comma = _COMMA.match(text, end)
        if comma is None:
            around = _around(text[:begin], text[_past_space(text, end) :], key)
            page.around = around or {}
            return None if around is None else page
        between, at = f"}}{comma[0]}{{", comma.end()
    return None


def _around(before: str, behind: str, key: str) -> dict[str, JsonValue] | None:
    """The rest of a page, where what stood between the two was the array at `key`, and no other. Raises: Unreadable."""
    if any("\\" in part or _CUT in part for part in (before, behind)):  # an escape could spell it as well
        return None
    body = read_object(f'{before}"{_CUT}"{behind}'.encode())
    return body if body.get(key) == [_CUT] else None


def _past_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return at if space is None else space.end()
