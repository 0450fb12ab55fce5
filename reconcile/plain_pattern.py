"""A pattern of a client without groups and choices: what looking for it in a text costs at most can be told. Pure."""

import re
from dataclasses import dataclass
from typing import Final

from reconcile.errors import Unreadable

#: Characters of a pattern. 256: arbitrary.
MAX_PATTERN: Final = 256
#: Characters of a set in brackets that are looked through in the time of one try: `re` goes along those above U+FFFF.
SET_A_TRY: Final = 10

_ATOM: Final = r"(?:\\[dDwWsSnrtfv]|\\[^\w\s]|\\u[0-9a-fA-F]{4}|\[\^?(?:\\.|[^\\\[\]])+\]|[^\\\[\](){}*+?|^$])"
_COUNT: Final = r"(?:(?P<open>[*+])|(?P<maybe>\?)|\{(?P<least>\d{1,3})(?P<to>,(?P<most>\d{0,3}))?\})?"
_ONE: Final = re.compile(rf"(?P<atom>{_ATOM}){_COUNT}", re.DOTALL)
_WHOLE: Final = re.compile(
    rf"(?P<start>\^?)(?P<middle>(?:{re.sub(r'[?]P<[a-z]+>', '?:', _ATOM + _COUNT)})*)(?P<end>\$?)", re.DOTALL
)
#: What Python reads as set arithmetic some day, and warns of: https://docs.python.org/3/library/re.html
_SET_ARITHMETIC: Final = re.compile(r"--|&&|~~|\|\|")


@dataclass(frozen=True, slots=True)
class _Part:
    """One character of the pattern, how often it may stand there (no `most`: without end), and what looking costs."""

    least: int
    most: int | None
    cost: int


class PlainPattern:
    """A pattern as JSON Schema means it: `$` is the very end, `\\d` and `\\w` are ASCII (ECMA-262).

    Raises: Unreadable, for what is none, and for what `re` might never finish with.
    """

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_PATTERN:
            raise Unreadable(f"has more than {MAX_PATTERN} characters")
        whole = _WHOLE.fullmatch(pattern)
        if whole is None or _SET_ARITHMETIC.search(pattern):
            raise Unreadable(
                "is taken without groups, choices, back references and look-arounds only: "
                "others may never come to an end"
            )
        try:
            self._compiled = re.compile(f"{pattern[:-1]}\\Z" if whole["end"] else pattern, re.ASCII)
        except (re.error, OverflowError, RecursionError) as error:
            raise Unreadable("is no regular expression") from error
        self._starts_anywhere = not whole["start"]
        self._parts = tuple(_part(one) for one in _ONE.finditer(whole["middle"]))

    def is_in(self, text: str) -> bool:
        return self._compiled.search(text) is not None

    def tries(self, length: int) -> int:
        """How many characters `re` looks at in the worst case, in a text of so many.

        From each start, each part is gone along once for each choice of counts that the parts before it leave.
        """
        ways, tries = 1, len(self._parts)
        for part in self._parts:
            most = length if part.most is None else min(part.most, length)
            tries += ways * (most + 1) * part.cost
            ways *= most - min(part.least, most) + 1
        return (tries + ways) * (length + 1 if self._starts_anywhere else 1)


def _part(one: re.Match[str]) -> _Part:
    cost = 1 + len(one["atom"]) // SET_A_TRY
    if one["open"]:
        return _Part(1 if one["open"] == "+" else 0, None, cost)
    if one["maybe"]:
        return _Part(0, 1, cost)
    if one["least"] is None:
        return _Part(1, 1, cost)
    least = int(one["least"])
    if one["to"] is None:
        return _Part(least, least, cost)
    return _Part(least, int(one["most"]) if one["most"] else None, cost)
