"""Structured logs: one line an event, JSON for machines, columns for a terminal, secrets struck out."""

import sys
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog

from reconcile.redact import Redactor


def make_log(redactor: Redactor, *, stream: TextIO | None = None, as_json: bool | None = None) -> Any:
    """A bound logger that writes to `stream` (stderr by default); columns where that is a terminal.

    Nothing global is configured, so that several daemons can live in one process.
    """
    out = stream or sys.stderr
    wants_json = not out.isatty() if as_json is None else as_json

    def redact(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        for name, value in event.items():
            if isinstance(value, str):
                event[name] = redactor.text(value)
        return event

    last: Any = structlog.processors.JSONRenderer() if wants_json else structlog.dev.ConsoleRenderer(colors=True)
    return structlog.wrap_logger(
        structlog.PrintLogger(out),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            redact,
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(20),
        cache_logger_on_first_use=True,
    )
