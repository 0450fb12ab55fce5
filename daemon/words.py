"""How a person reads the API's bodies: plain lines, control characters struck out, colour only on a terminal."""

import re
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
        "status": f"{body['status']} ({body['state']})",
        "outcome": body["outcome"],
        "job": body["remote_job_id"],
        "the provider says": body["remote_status"],
        "progress": f"{progress['completed']} of {progress['total']}" if progress and progress["total"] else None,
        "items": ", ".join(f"{n} {word}" for word, n in summary.items() if n) if summary else None,
        "next": f"{body['next_action']} at {body['next_action_at']}" if body["next_action"] else None,
        "waits for": body["attention"] and f"{body['attention']['reason']}: {body['attention']['message']}",
        "error": body["error"] and f"{body['error']['code']}: {body['error']['message']}",
        "": body["message"],
    }
    return "\n".join(f"{name:18} {clean(value)}" for name, value in facts.items() if value)


def history_row(row: dict[str, Any]) -> str:
    """One history row on one line."""
    at = row["at"][11:23]
    move = f"{row['from'] or '·'} → {row['to']}" if row["kind"] == "move" else row["kind"]
    return clean(f"{at}  {row['actor']:<18} {move:<40} {row['reason']}")


def status(body: dict[str, Any]) -> str:
    """The daemon on a few lines."""
    lines = [
        f"reconciled {body['version']}, up {body['uptime_seconds']} s",
        "operations: " + (", ".join(f"{n} {state}" for state, n in sorted(body["operations"].items())) or "none"),
        f"due now: {body['due']['count']} (lag {body['due']['lag_seconds']} s), in the inbox: {body['inbox']}",
    ]
    for name, provider in body["providers"].items():
        hooks = provider["webhooks"]
        paused = (
            f", PAUSED until {provider['paused_until']}: {provider['pause_reason']}" if provider["paused_until"] else ""
        )
        lines.append(
            f"{name} ({provider['kind']}): webhooks {hooks['accepted']} accepted, {hooks['duplicate']} duplicate,"
            f" {hooks['unmatched']} unmatched{paused}"
        )
    return "\n".join(map(clean, lines))
