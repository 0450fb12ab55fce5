"""Where something stands in a body: a JSONPath (RFC 9535), parsed by a library and walked here.

Taken are names, indexes and `*`, one to a step. Refused are `..`, filters, slices and several selectors in one step:
a filter may hold a pattern that takes for ever on a stranger's text, `..` visits a whole document for one value, and
with the other two nobody could say how many values there may be. What is left costs no more than the document has
values, and is walked by a few lines of our own, since the library keeps a record of every node that it passes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Final

from jsonpath import JSONPath, JSONPathEnvironment, JSONPathError
from jsonpath.segments import JSONPathChildSegment
from jsonpath.selectors import IndexSelector, NameSelector, WildcardSelector

from reconcile.errors import DeclarationInvalid, Unreadable
from reconcile.read_json import JsonValue, read_id

#: Characters of a path. 512: arbitrary; one that is written by hand has about 30.
MAX_LENGTH: Final = 512
_RFC_9535: Final = JSONPathEnvironment(strict=True)

#: A name, an index, or None for each child.
Step = str | int | None


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A path that was taken."""

    text: str
    steps: tuple[Step, ...] = ()

    @property
    def is_of_many(self) -> bool:
        """Whether it may name several values."""
        return None in self.steps

    def values(self, document: JsonValue) -> list[JsonValue]:
        """What stands there, in the document's order; nothing where there is no such place."""
        found = [document]
        for step in self.steps:
            found = list(chain.from_iterable(_children(value, step) for value in found))
        return found

    def one(self, document: JsonValue) -> JsonValue:
        """The one value that stands there; None where there is none, or null. Raises: Unreadable, for several."""
        if self.is_of_many:
            found = self.values(document)
            if len(found) > 1:
                raise Unreadable(f"{self.text}: several values where one was declared")
            return found[0] if found else None
        value = document
        for step in self.steps:
            if isinstance(value, dict) and isinstance(step, str):
                value = value.get(step)
            elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
                value = value[step]
            else:
                return None
        return value

    def word(self, document: JsonValue) -> str | None:
        """The one id or word that stands there: text on a line; a whole number or a truth value is spelled out.

        Raises: Unreadable, for anything else but an absent one.
        """
        value = self.one(document)
        return None if value is None else spelled(value, what=self.text)

    def every(self, document: JsonValue) -> list[JsonValue]:
        """The entries of the list that stands there, or what stands at this place of each that `*` names.

        Raises: Unreadable, where there is no list: that is not the same as an empty one.
        """
        found, is_within = [document], False
        for step in self.steps if self.is_of_many else (*self.steps, None):
            if step is None:
                may_be = (list, dict) if self.is_of_many else (list,)
                if not (found or is_within) or not all(isinstance(value, may_be) for value in found):
                    raise Unreadable(f"{self.text}: no list where one was declared")
                is_within = True
            found = list(chain.from_iterable(_children(value, step) for value in found))
        return found


def read_path(text: str) -> JsonPath:
    """The path that `text` spells. Raises: DeclarationInvalid, which says what is wrong with it."""
    if len(text) > MAX_LENGTH:
        raise DeclarationInvalid(f"longer than {MAX_LENGTH} characters")
    try:
        parsed = _RFC_9535.compile(text)
    except JSONPathError as fault:
        # Its own str() shows the place in several lines, and fails where the place is the end of the text.
        raise DeclarationInvalid(str(fault.args[0]) if fault.args else "not a JSONPath") from fault
    if not isinstance(parsed, JSONPath):
        raise DeclarationInvalid("paths joined by operators are not taken")
    return JsonPath(text, tuple(_step(segment) for segment in parsed.segments))


def spelled(value: JsonValue, *, what: str) -> str:
    """An id or a word as text. Raises: Unreadable."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return read_id(str(value) if isinstance(value, int) else value, what=what)


def _step(segment: object) -> Step:
    if not isinstance(segment, JSONPathChildSegment):
        raise DeclarationInvalid("`..` is not taken: say where it stands")
    if len(segment.selectors) != 1:
        raise DeclarationInvalid("several selectors in one step are not taken")
    match segment.selectors[0]:
        case NameSelector(name=name):
            return name
        case IndexSelector(index=index):
            return index
        case WildcardSelector():
            return None
        case _:
            raise DeclarationInvalid("filters and slices are not taken: names, indexes and `*` are")


def _children(value: JsonValue, step: Step) -> Iterable[JsonValue]:
    match value, step:
        case dict(), str() if step in value:
            return (value[step],)
        case list(), int() if -len(value) <= step < len(value):
            return (value[step],)
        case dict(), None:
            return value.values()
        case list(), None:
            return value
        case _:
            return ()
