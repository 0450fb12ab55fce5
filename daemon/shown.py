"""A value of a configuration as it may stand in an error: short, and nothing of what may be a secret."""

from collections.abc import Mapping
from typing import Any, Final

#: What TOML calls its values.
_KINDS: Final = {
    bool: "true or false",
    str: "a string",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "a table",
}


def cut(text: str, most: int) -> str:
    """At most so many characters of it."""
    return text if len(text) <= most else f"{text[:most]}…"


def kind(value: Any) -> str:
    """What TOML calls a value of this kind."""
    return _KINDS.get(type(value), "a time")


def shown(value: Any) -> str:
    """A value as it may stand in an error: its text where that is short, else its type and beginning.

    Of a table or a list its kind alone: there may be a secret in it that was written where none belongs.
    """
    if isinstance(value, Mapping | list):
        return kind(value)
    try:
        text = repr(value)
    except ValueError:  # a number of so many digits that Python does not write it
        return f"{type(value).__name__} of very many digits"
    return text if len(text) <= 60 else f"{type(value).__name__} {text[:40]}…"
