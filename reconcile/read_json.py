"""The one door for strangers' JSON and ids: what passes it can be kept, compared, logged and written out again.

`json.loads` alone lets through what breaks later: NaN, integers that no database takes, half a surrogate pair that no
encoder takes, two meanings for one key. Here they end in `Unreadable`, and so does whatever is costly to parse.
Nothing of the input stands in a reason, so reasons may be logged.
"""

import codecs
import json
import math
import re
from collections.abc import Mapping
from itertools import accumulate
from typing import Final, TypeAlias

from reconcile.errors import Unreadable

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

#: Levels of nesting. 64: arbitrary; provider bodies stay below ten, and Python's own parser gives up near a thousand.
MAX_DEPTH: Final = 64
#: Characters in one number. 32: a 64-bit integer has 20, the longest shortest-form double 24; arbitrary above that.
MAX_NUMBER_LENGTH: Final = 32
#: Characters in an id. 512: arbitrary; the longest documented ones (full resource names) have about 200.
MAX_ID_LENGTH: Final = 512
#: Values in one document. 10^6: a start of 50,000 items has fewer. Each costs up to 64 bytes once it is parsed, so
#: that sixty megabytes of `[],` would cost more than a gigabyte.
MAX_VALUES: Final = 1_000_000
#: Bytes up to which no document can hold so many values, and counting them would be wasted.
SMALL: Final = MAX_VALUES
#: What a signed 64-bit column holds (SQLite, PostgreSQL).
MIN_INTEGER: Final = -(2**63)
MAX_INTEGER: Final = 2**63 - 1
#: The largest count that is believed. 10^9: arbitrary, far beyond 100,000 items; sums of such counts fit any column.
MAX_COUNT: Final = 10**9

#: Where none is escaped. Possessive, and an open string runs to the end: nothing is searched twice.
_STRING: Final = re.compile(rb'"[^"]*+(?:"|\Z)')
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_NOT_STRUCTURE: Final = bytes(set(range(256)) - set(b'[]{}:,"'))
_STEP: Final = [1 if byte in b"[{" else -1 for byte in range(256)]
#: Fewer digits than these make no integer beyond 64 bits, nor one that is longer than `MAX_NUMBER_LENGTH`.
_MANY_DIGITS: Final = b"0" * 19
_ALL_DIGITS_0: Final = bytes.maketrans(b"123456789", b"000000000")
_SURROGATE_ESCAPE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
#: C0, DEL and C1 controls; surrogates; line and paragraph separator; marks that reorder what a person reads (S37).
_NOT_IN_IDS: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def read_json(data: bytes) -> JsonValue:
    """The value that `data` states, if it is JSON that we accept (RFC 8259, UTF-8, one BOM at the start allowed).

    Raises: Unreadable.
    """
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(f"not UTF-8 at byte {error.start}") from error
    if len(data) <= SMALL and data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        value = _parse(text)  # can be neither too large nor too deep: the usual case
    else:
        value = _parse_large(text, data)
    if b"\\" in data and _SURROGATE_ESCAPE.search(data):
        _refuse_half_pairs(value)
    return value


def read_value_at(text: str, at: int) -> tuple[JsonValue, int]:
    """The value that begins at a character of a document, as strictly as `read_json` takes one, and where it ends.

    Raises: Unreadable.
    """
    try:
        value, end = _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise Unreadable(f"not JSON at character {error.pos}") from error
    except RecursionError as error:
        raise Unreadable("nested too deep") from error
    part = text[at:end]
    if "\\" in part or part.count("[") + part.count("{") > MAX_DEPTH:
        return read_json(part.encode()), end
    return value, end


def read_object(data: bytes) -> dict[str, JsonValue]:
    """As `read_json`, where only an object will do.

    Raises: Unreadable.
    """
    value = read_json(data)
    if not isinstance(value, dict):
        raise Unreadable("not a JSON object")
    return value


def read_id(value: object, *, what: str) -> str:
    """`value` as an id that is safe in a set, a log line and SQLite's JSON; `what` names it in the reason.

    Raises: Unreadable.
    """
    return read_line(value, what=what, most=MAX_ID_LENGTH)


def read_line(value: object, *, what: str, most: int) -> str:
    """`value` as text of one to `most` characters on one line, safe where an id is safe.

    Raises: Unreadable.
    """
    if not isinstance(value, str):
        raise Unreadable(f"{what}: not a string")
    if not value:
        raise Unreadable(f"{what}: empty")
    if len(value) > most:
        raise Unreadable(f"{what}: longer than {most} characters")
    if _NOT_IN_IDS.search(value):
        raise Unreadable(f"{what}: holds a control character, half a surrogate pair or a mark that reorders text")
    return value


def read_path_id(value: object, *, what: str) -> str:
    """An id that will stand in a path. Raises: Unreadable, also for `.` and `..`, which no quoting holds in place."""
    name = read_id(value, what=what)
    if name in (".", ".."):
        raise Unreadable(f"{what}: a dot segment")
    return name


def text(obj: Mapping[str, JsonValue], key: str) -> str | None:
    """The string at `key`; None where it is absent, null or something else."""
    value = obj.get(key)
    return value if isinstance(value, str) else None


def integer(obj: Mapping[str, JsonValue], key: str) -> int | None:
    """The integer at `key`; None where it is absent, null or something else. true is no integer, nor is 1.0."""
    value = obj.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def count(obj: Mapping[str, JsonValue], key: str) -> int | None:
    """The integer at `key` where it can be a number of things: not below 0, not above `MAX_COUNT`."""
    number = integer(obj, key)
    return number if number is not None and 0 <= number <= MAX_COUNT else None


def mapping(obj: Mapping[str, JsonValue], key: str) -> dict[str, JsonValue] | None:
    """The object at `key`; None where it is absent, null or something else."""
    value = obj.get(key)
    return value if isinstance(value, dict) else None


def listing(obj: Mapping[str, JsonValue], key: str) -> list[JsonValue] | None:
    """The array at `key`; None where it is absent, null or something else."""
    value = obj.get(key)
    return value if isinstance(value, list) else None


def _structure(data: bytes) -> bytes:
    """Its brackets, colons and commas, strings left out; in text that is no JSON at least those that a parser comes to.

    A backslash stands in strings alone, or the parser comes no further; once the escaped ones are gone, each that is
    left before a quote escapes it. Most strings are `""` then, and no pattern is searched for.
    """
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    structure = data.translate(None, _NOT_STRUCTURE).replace(b'""', b"")
    return _STRING.sub(b"", structure) if b'"' in structure else structure


def _parse_large(text: str, data: bytes) -> JsonValue:
    """As `_parse`, of what may hold too much or go too deep; with the parser's own objects and integers.

    A key that came twice is one pair less than there are colons, and what has few digits fits into 64 bits.
    """
    structure = _structure(data)
    if structure.count(b",") + structure.count(b"[") + structure.count(b"{") > MAX_VALUES:
        raise Unreadable(f"more than {MAX_VALUES} values")
    if max(accumulate(map(_STEP.__getitem__, structure.translate(None, _NOT_BRACKETS))), default=0) > MAX_DEPTH:
        raise Unreadable(f"nested deeper than {MAX_DEPTH} levels")
    pairs = 0

    def count(parsed: dict[str, JsonValue]) -> dict[str, JsonValue]:
        nonlocal pairs
        pairs += len(parsed)
        return parsed

    decoder = json.JSONDecoder(
        object_hook=count,
        parse_int=_integer if _MANY_DIGITS in data.translate(_ALL_DIGITS_0) else None,
        parse_float=_float,
        parse_constant=_constant,
    )
    try:
        value: JsonValue = decoder.decode(text)
    except (Unreadable, json.JSONDecodeError, RecursionError):
        return _parse(text)  # which names what comes first
    return value if pairs == structure.count(b":") else _parse(text)


def _parse(text: str) -> JsonValue:
    try:
        value: JsonValue = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise Unreadable(f"not JSON at character {error.pos}") from error
    except RecursionError as error:  # a caller that is deep itself leaves less room than MAX_DEPTH promises
        raise Unreadable("nested too deep") from error
    return value


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise Unreadable("an object has the same key twice")
    return value


def _integer(literal: str) -> int:
    # The length comes first: int() of a long literal is quadratic, and beyond 4,300 digits a ValueError.
    if len(literal) > MAX_NUMBER_LENGTH:
        raise Unreadable(f"a number longer than {MAX_NUMBER_LENGTH} characters")
    value = int(literal)
    if not MIN_INTEGER <= value <= MAX_INTEGER:
        raise Unreadable("an integer beyond 64 bits")
    return value


def _float(literal: str) -> float:
    if len(literal) > MAX_NUMBER_LENGTH:
        raise Unreadable(f"a number longer than {MAX_NUMBER_LENGTH} characters")
    value = float(literal)
    if not math.isfinite(value):
        raise Unreadable("a number too large for a double")
    return value


def _constant(_literal: str) -> JsonValue:
    raise Unreadable("NaN or Infinity, which JSON does not have")


#: Made once: `json.loads` would make one for each document.
_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant
)


def _refuse_half_pairs(value: JsonValue) -> None:
    """Raw UTF-8 cannot hold half a pair, only an escape can, and only then this second pass is paid for."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise Unreadable("half a surrogate pair in a string") from error
