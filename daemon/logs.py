"""Structured logs: one line an event, JSON for machines, columns for a terminal, secrets struck out."""

import json
import re
import sys
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final, TextIO, cast

import structlog

from reconcile.redact import Redactor

#: Levels of lists and tables that are looked into; what lies deeper is written as text. 8: arbitrary, no event has 4.
MAX_DEPTH: Final = 8
#: What must not reach a terminal raw (S37): controls, half surrogate pairs, separators, marks that reorder text.
_NOT_ON_A_TERMINAL: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
#: Made once; what comes to it is plain by then.
_ENCODER: Final = json.JSONEncoder()
_SIMPLE: Final = (str, int, float, bool, type(None))
#: The one field of many lines: on a terminal, a traceback is for reading.
_TRACEBACK: Final = "exception"


def make_log(redactor: Redactor, *, stream: TextIO | None = None, as_json: bool | None = None) -> Any:
    """A bound logger that writes to `stream` (stderr by default); columns where that is a terminal.

    Nothing global is configured, so that several daemons can live in one process.
    """
    out = stream or sys.stderr
    wants_json = not out.isatty() if as_json is None else as_json
    last: tuple[Any, ...] = (
        (structlog.processors.JSONRenderer(serializer=_as_json),)  # escapes by itself whatever is not ASCII
        if wants_json
        else (_escape, structlog.dev.ConsoleRenderer(colors=True))
    )
    return structlog.wrap_logger(
        structlog.WriteLogger(cast("TextIO", _Sink(out))),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _redaction(redactor),
            *last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(20),
        cache_logger_on_first_use=True,
    )


def _as_json(event: Mapping[str, Any], **_: Any) -> str:
    return _ENCODER.encode(event)


class _Sink:
    """Where log lines go. A log that nobody reads any more, or a full disk behind it, must not end the daemon."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        """Write a line, and at once, if it can be written."""
        with suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()

    def flush(self) -> None:
        """That was done with the line."""


def _redaction(redactor: Redactor) -> Any:
    def redact(_: Any, __: str, event: MutableMapping[str, Any]) -> dict[str, Any]:
        # Most lines are plain and hold no secret, which one look at all their texts together tells.
        together = "\n".join([value for value in event.values() if isinstance(value, str)])
        if redactor.text(together) is together and all(isinstance(value, _SIMPLE) for value in event.values()):
            return dict(event)
        return {name: _plain(value, redactor) for name, value in event.items()}

    return redact


def _plain(value: Any, redactor: Redactor, depth: int = 0) -> Any:
    """`value` as the renderers will write it and no further: each text in it made here, and the secrets out of it."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return redactor.text(value)
    if isinstance(value, bytes | bytearray):
        return repr(redactor.data(bytes(value)))
    if isinstance(value, Mapping) and depth < MAX_DEPTH:
        return {redactor.text(str(name)): _plain(inner, redactor, depth + 1) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset) and depth < MAX_DEPTH:
        return [_plain(inner, redactor, depth + 1) for inner in value]
    if isinstance(value, BaseException):  # not its repr: that would spell a secret with quotes in it another way
        return redactor.text(f"{type(value).__name__}: {value}")
    return redactor.text(repr(value))


def _escape(_: Any, __: str, event: MutableMapping[str, Any]) -> dict[str, Any]:
    return {
        _escaped(name): _traceback(value) if name == _TRACEBACK else _each_text(value, _escaped)
        for name, value in event.items()
    }


def _each_text(value: Any, change: Callable[[str], str]) -> Any:
    """The same, of what `_plain` left, with every text in it changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(name): _each_text(inner, change) for name, inner in value.items()}
    return [_each_text(inner, change) for inner in value] if isinstance(value, list) else value


def _traceback(text: str) -> str:
    return "\n".join(map(_escaped, text.split("\n")))


def _escaped(text: str) -> str:
    return _NOT_ON_A_TERMINAL.sub(lambda match: ascii(match[0])[1:-1], text)
