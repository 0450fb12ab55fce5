"""How a person reads the API's bodies: plain lines, control characters struck out, colour only on a terminal."""

import re
from collections.abc import Sequence
from typing import Any, Final

#: As `reconcile.read_json` refuses in ids: controls, half surrogate pairs, separators, marks that reorder text.
_CONTROLS: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def clean(value: object) -> str:
    """A stranger's text on one line."""
    return _CONTROLS.sub("�", str(value))


def operation(body: dict[str, Any]) -> str:
    """One operation, a line a fact; absent facts have no line."""
    progress, summary = body["progress"], body["summary"]
    facts = {
        "operation": body["operation_id"],
        "provider": f"{body['provider']} ({body['type']})",
        "status": _status(body),
        "outcome": body["outcome"],
        "job": body["remote_job_id"],
        "the provider says": body["remote_status"],
        "progress": f"{progress['completed']} of {count(progress['total'], 'item')}"
        if progress and progress["total"]
        else None,
        "items": ", ".join(f"{n} {word}" for word, n in summary.items() if n) if summary else None,
        "next": f"{body['next_action']} at {body['next_action_at']}" if body["next_action"] else None,
        "waits for": body["attention"] and f"{body['attention']['reason']}: {body['attention']['message']}",
        "error": body["error"] and f"{body['error']['code']}: {body['error']['message']}",
        "": body["message"],
    }
    return "\n".join(f"{name:18} {clean(value)}" for name, value in facts.items() if value)


def history_row(row: dict[str, Any]) -> str:
    """One history row on one line; where it came from stands on the line before."""
    actor = row["actor"].partition(":")[0] if row["actor"].startswith("worker:") else row["actor"]
    move = f"→ {row['to']}" if row["kind"] == "move" else f"({row['kind']})"
    return clean(f"{row['at']}  {actor:<18}  {move:<26}  {row['reason']}")


def listed(body: dict[str, Any]) -> str:
    """A page of operations, a line each; the id comes first."""
    rows = [
        (op["operation_id"], op["provider"], _status(op), _counted(op), op["created_at"], op["remote_job_id"] or "")
        for op in body["operations"]
    ]
    return _table(rows) or "no operations"


def items(body: dict[str, Any]) -> str:
    """A page of items, a line each."""
    return _table([(item["item_id"], item["outcome"], item["reason"] or "") for item in body["items"]]) or "no items"


def text(lines: str) -> str:
    """A stranger's lines, each cleaned."""
    return "\n".join(map(clean, lines.split("\n")))


def count(number: int, noun: str) -> str:
    """`1 item`, `2 items`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _status(body: dict[str, Any]) -> str:
    status, state = body["status"], body["state"]
    return f"{status} ({state})" if status != state else str(status)


def _counted(body: dict[str, Any]) -> str:
    """How many items succeeded, or are finished as far as the provider tells."""
    summary, progress = body["summary"], body["progress"]
    if summary:
        return f"{summary['succeeded']} of {count(summary['total'], 'item')}"
    return f"{progress['completed']} of {count(progress['total'], 'item')}" if progress and progress["total"] else "-"


def _table(rows: Sequence[Sequence[Any]]) -> str:
    """Columns as wide as their widest cell; nothing overflows and nothing is cut."""
    cells = [[clean(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def status(body: dict[str, Any]) -> str:
    """The daemon on a few lines."""
    lines = [
        f"reconciled {body['version']}, up {body['uptime_seconds']} s",
        "operations: " + (", ".join(f"{n} {state}" for state, n in sorted(body["operations"].items())) or "none"),
        f"due now: {body['due']['count']} (lag {body['due']['lag_seconds']} s), in the inbox: {body['inbox']}",
    ]
    for name, provider in body["providers"].items():
        hooks = provider["webhooks"]
        missing = ", MISSING in the configuration" if provider["missing"] else ""
        paused = (
            f", PAUSED until {provider['paused_until']}: {provider['pause_reason']}" if provider["paused_until"] else ""
        )
        lines.append(
            f"{name} ({provider['kind']}): webhooks {hooks['accepted']} accepted, {hooks['duplicate']} duplicate,"
            f" {hooks['refused']} refused, {hooks['missed']} missed, {hooks['unmatched']} unmatched{missing}{paused}"
        )
    return "\n".join(map(clean, lines))
