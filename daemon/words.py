"""How a person reads the API's bodies: plain lines, control characters struck out, colour only on a terminal."""

import re
import textwrap
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from daemon import plain

#: As `reconcile.read_json` refuses in ids: controls, half surrogate pairs, separators, marks that reorder text.
_CONTROLS: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
#: How an open decision is introduced.
_DECIDE: Final = "you may decide"
#: Columns before a fact's text, and of a whole line where a text is wrapped. 100: arbitrary.
_INDENT: Final = 19
_WIDTH: Final = 100
#: The last spans of a deadline that are told, by their lengths in seconds.
_SPANS: Final = (("day", 86_400), ("hour", 3_600), ("minute", 60))


def clean(value: object) -> str:
    """A stranger's text on one line."""
    return _CONTROLS.sub("�", str(value))


def operation(body: dict[str, Any]) -> str:
    """One operation, a line a fact; absent facts have no line."""
    progress, summary, attention = body["progress"], body["summary"], body["attention"]
    facts = [
        ("operation", body["operation_id"]),
        ("provider", f"{body['provider']} ({body['type']})"),
        ("status", _status(body)),
        ("outcome", body["outcome"]),
        ("caller", body["caller"]),
        ("approval", body["approval"]),
        ("labels", ", ".join(f"{name}={value}" for name, value in body["labels"].items())),
        ("job", body["remote_job_id"]),
        ("parent", body["parent"]),
        ("the provider says", body["remote_status"]),
        ("progress", progress and progress["total"] and _finished(progress)),
        ("items", summary and ", ".join(f"{n} {word}" for word, n in summary.items() if n)),
        ("next", body["next_action"] and f"{body['next_action']} at {body['next_action_at']}"),
        *_cancel(body),
        ("waits for", attention and f"a person: {plain.sentence(attention['message'])}"),
        ("until", attention and attention["deadline"]),
        ("may be meant", attention and _jobs(attention["candidates"])),
        *_decisions((attention or {"decisions": ()})["decisions"]),
        ("error", body["error"] and f"{body['error']['code']}: {body['error']['message']}"),
        ("", plain.sentence(body["message"])),
    ]
    return _facts(facts)


def _cancel(body: dict[str, Any]) -> list[tuple[str, Any]]:
    """Who asked and what came of it; what may remain is told by the message of a cancelled one already."""
    cancel = body["cancel"]
    if cancel is None:
        return []
    nothing_left = body["done"] and body["remote_job_id"] is None
    answer = "nothing was sent" if nothing_left else cancel["answer"] or "no answer yet"
    told = f"asked by {cancel['by']} at {cancel['requested_at']}: {cancel['reason']} ({answer})"
    remains = None if body["outcome"] == "cancelled" else cancel["may_remain"]
    return [("cancel", told), ("expected of it", cancel["effect"]), ("may remain", remains)]


def another_cancel(cancel: dict[str, Any]) -> str:
    """What somebody is told whose cancel came after another one."""
    return clean(f"the cancel that {cancel['by']} asked for at {cancel['requested_at']} stands; this one adds nothing")


def _jobs(candidates: Sequence[dict[str, Any]]) -> str:
    return ", ".join(f"{job['remote_job_id']}{' (held)' if job['is_held'] else ''}" for job in candidates)


def _decisions(decisions: Sequence[dict[str, Any]]) -> list[tuple[str, Any]]:
    """Each decision by its name, its effect under it."""
    facts: list[tuple[str, Any]] = []
    for one in decisions:
        lines = textwrap.wrap(clean(one["effect"]), _WIDTH - _INDENT)
        facts += [(_DECIDE, one["decision"]), *((" ", line) for line in lines)]
    return facts


def left(until: str, now_ms: int) -> str:
    """A time point with how far off it is, such as `in 7 days`; what is no time point stays as it is."""
    try:
        seconds = datetime.fromisoformat(until).timestamp() - now_ms / 1000
    except ValueError:
        return until
    if seconds <= 0:
        return f"{until} (passed)"
    for noun, length in _SPANS:
        if seconds >= length:
            return f"{until} (in {count(round(seconds / length), noun)})"
    return f"{until} (in less than a minute)"


def inbox(body: dict[str, Any], now_ms: int) -> str:
    """What waits for a person, a block an entry: the id that `decide` takes, and at once what happened."""
    return "\n\n".join(_entry(entry, now_ms) for entry in body["inbox"]) or "nothing waits for a person"


def _entry(entry: dict[str, Any], now_ms: int) -> str:
    evidence = entry["evidence"]
    requests = [one for one in evidence.get("requests", ()) if one["remote_request_id"]]
    facts = [
        (entry["kind"], entry["id"]),
        ("", plain.sentence(entry["message"])),
        ("provider", entry["provider"]),
        ("reason", f"{plain.reason(entry['reason'])}, since {entry['since']}"),
        ("until", entry["deadline"] and left(entry["deadline"], now_ms)),
        ("job", evidence.get("remote_job_id")),
        ("may be meant", _jobs(entry["candidates"])),
        *_decisions(entry["decisions"]),
        ("status page", evidence.get("status_page")),
        ("trace", evidence.get("trace_id")),
        ("their request ids", ", ".join(f"{one['purpose']} {one['remote_request_id']}" for one in requests)),
    ]
    return _facts(facts)


def acknowledged(body: dict[str, Any]) -> str:
    """A notice that was taken from the inbox."""
    decided = {"redeliver": "sent again, as decided"}.get(body["decision"], "acknowledged")
    return clean(f"{body['id']} left the inbox: {decided} by {body['by']}")


def _facts(facts: Sequence[tuple[str, Any]]) -> str:
    return "\n".join(f"{name:18} {clean(value)}" for name, value in facts if value)


def history_row(row: dict[str, Any]) -> str:
    """One history row on one line; where it came from stands on the line before."""
    actor = row["actor"].partition(":")[0] if row["actor"].startswith("worker:") else row["actor"]
    move = f"→ {row['to']}" if row["kind"] == "move" else f"({row['kind']})"
    return clean(f"{row['at']}  {actor:<18}  {move:<26}  {plain.sentence(row['reason'])}")


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
    """Why a person is asked, else how many items succeeded, or are finished as far as the provider tells."""
    if body["attention"]:
        return plain.reason(body["attention"]["reason"])
    summary, progress = body["summary"], body["progress"]
    if summary:
        return f"{summary['succeeded']} of {count(summary['total'], 'item')}"
    return _finished(progress) if progress and progress["total"] else "-"


def _finished(progress: dict[str, Any]) -> str:
    return f"{progress['completed']} of {count(progress['total'], 'item')}"


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
    if body["checkpoint"] is not None:
        signed = body["checkpoint"]
        lines.append(f"checkpoint {signed['number']} of {signed['at']}: {signed['hash']}")
    for name, provider in body["providers"].items():
        hooks = provider["webhooks"]
        missing = ", MISSING in the configuration" if provider["missing"] else ""
        paused = (
            f", PAUSED until {provider['paused_until']}: {plain.error(provider['pause_reason'])}"
            if provider["paused_until"]
            else ""
        )
        lines.append(
            f"{name} ({provider['kind']}): webhooks {hooks['accepted']} accepted, {hooks['duplicate']} duplicate,"
            f" {hooks['refused']} refused, {hooks['missed']} missed, {hooks['unmatched']} unmatched{missing}{paused}"
        )
    return "\n".join(map(clean, lines))
