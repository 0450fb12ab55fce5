"""A JSON value that nobody can write out: `jsonschema` spells whatever does not fit, whole, and once for each choice.

Its messages are never read here, so that only their cost would remain. Pure.
"""

from typing import Any, Final

from reconcile.read_json import JsonValue

_UNSPELLED: Final = "…"


class _Text(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return _UNSPELLED


class _List(list[Any]):
    __slots__ = ()

    def __repr__(self) -> str:
        return _UNSPELLED


class _Object(dict[str, Any]):
    __slots__ = ()

    def __repr__(self) -> str:
        return _UNSPELLED


def unspelled(value: JsonValue) -> JsonValue:
    """A copy that compares as the value does."""
    if isinstance(value, str):
        return _Text(value)
    if isinstance(value, list):
        return _List([unspelled(one) for one in value])
    if isinstance(value, dict):
        return _Object({_Text(name): unspelled(one) for name, one in value.items()})
    return value
