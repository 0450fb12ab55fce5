"""How a person reads the API's bodies, in plain words; how they are laid out says daemon.shapes."""

from collections.abc import Sequence
from datetime import datetime
from itertools import takewhile
from typing import Any, Final

from daemon import plain
from daemon.next_steps import as_commands
from daemon.shapes import UNDER, Column, Drawn, Fact, Facts, Grid, Sheets, Story, Told, clean, count

#: How an open decision is introduced.
_DECIDE: Final = "you may decide"
#: What becomes of deliveries to a callback.
_FATES: Final = ("waiting", "delivered", "exhausted")
#: The last spans of a deadline that are told, by their lengths in seconds.
_SPANS: Final = (("day", 86_400), ("hour", 3_600), ("minute", 60))


def operation(body: dict[str, Any]) -> Facts:
    """One operation; absent facts have no line."""
    progress, summary, attention = body["progress"], body["summary"], body["attention"]
    asked = None if attention is None else _told(attention["message"])
    decisions = _decisions((attention or {"decisions": ()})["decisions"])
    message = _told(body["message"])
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
        ("progress", progress_of(progress)),
        ("items", summary and ", ".join(f"{n} {word}" for word, n in summary.items() if n)),
        ("next", body["next_action"] and f"{body['next_action']} at {body['next_action_at']}"),
        *_cancel(body, [str(effect) for _, effect in decisions]),
        ("waits for", asked and f"a person: {asked}"),
        ("until", attention and attention["deadline"]),
        ("may be meant", attention and _jobs(attention["candidates"])),
        *decisions,
        ("error", body["error"] and f"{body['error']['code']}: {body['error']['message']}"),
        ("", message if asked is None else _added(message, asked)),
    ]
    return Facts(facts)


def _told(sentence: str) -> str:
    """A sentence of the API's for people: its short words in plain ones, its calls as commands."""
    return as_commands(plain.sentence(sentence))


def _added(message: str, asked: str) -> str:
    """What a message says beside the question that it begins with, as that is told already."""
    sentences, known = (f"{text} ".split(". ") for text in (message, asked))
    is_same = takewhile(lambda pair: pair[0] == pair[1], zip(sentences, known, strict=False))
    return ". ".join(sentences[len(list(is_same)) :]).strip()


def _cancel(body: dict[str, Any], effects: Sequence[str]) -> list[Fact]:
    """Who asked and what came of it; and what may remain, unless the message or a decision tells it too."""
    cancel = body["cancel"]
    if cancel is None:
        return []
    nothing_left = body["done"] and body["remote_job_id"] is None
    answer = "nothing was sent" if nothing_left else cancel["answer"] or "no answer yet"
    told = f"asked by {cancel['by']} at {cancel['requested_at']}: {cancel['reason']} ({answer})"
    remains, effect = cancel["may_remain"], cancel["effect"]
    if remains:
        # A person who decided for the cancel was told so with it.
        effect = effect and effect.replace(f" What may remain: {remains.rstrip('.')}.", "")
        if any(remains in text for text in (body["message"], *effects)):
            remains = None
    return [("cancel", told), ("expected of it", effect), ("may remain", remains)]


def another_cancel(cancel: dict[str, Any]) -> str:
    """What somebody is told whose cancel came after another one."""
    return clean(f"the cancel that {cancel['by']} asked for at {cancel['requested_at']} stands; this one adds nothing")


def _jobs(candidates: Sequence[dict[str, Any]]) -> str:
    return ", ".join(f"{job['remote_job_id']}{' (held)' if job['is_held'] else ''}" for job in candidates)


def _decisions(decisions: Sequence[dict[str, Any]]) -> list[Fact]:
    """Each decision by its name, its effect under it."""
    return [fact for one in decisions for fact in ((_DECIDE, one["decision"]), (UNDER, one["effect"]))]


def seconds_until(at: str | None, now_ms: int) -> float | None:
    """How far off a time point is; None where it is none."""
    try:
        return None if at is None else datetime.fromisoformat(at).timestamp() - now_ms / 1000
    except ValueError:
        return None


def left(until: str, now_ms: int) -> str:
    """A time point with how far off it is, such as `in 7 days`; what is no time point stays as it is."""
    seconds = seconds_until(until, now_ms)
    if seconds is None:
        return until
    if seconds <= 0:
        return f"{until} (passed)"
    for noun, length in _SPANS:
        if seconds >= length:
            return f"{until} (in {count(round(seconds / length), noun)})"
    return f"{until} (in less than a minute)"


def inbox(body: dict[str, Any], now_ms: int) -> Sheets:
    """What waits for a person, a block an entry: the id that `decide` takes, and at once what happened."""
    return Sheets([_entry(entry, now_ms) for entry in body["inbox"]], "nothing waits for a person")


def _entry(entry: dict[str, Any], now_ms: int) -> Facts:
    evidence = entry["evidence"]
    requests = [one for one in evidence.get("requests", ()) if one["remote_request_id"]]
    facts = [
        (entry["kind"], entry["id"]),
        ("", _told(entry["message"])),
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
    return Facts(facts)


def acknowledged(body: dict[str, Any]) -> str:
    """A notice that was taken from the inbox."""
    decided = {"redeliver": "sent again, as decided"}.get(body["decision"], "acknowledged")
    return clean(f"{body['id']} left the inbox: {decided} by {body['by']}")


def history_row(row: dict[str, Any]) -> Told:
    """One history row; where it came from stands in the row before."""
    actor = row["actor"].partition(":")[0] if row["actor"].startswith("worker:") else row["actor"]
    move = f"→ {row['to']}" if row["kind"] == "move" else f"({row['kind']})"
    return Told(row["at"], actor, move, plain.sentence(row["reason"]))


def history(body: dict[str, Any]) -> Story:
    """Why an operation stands where it does."""
    return Story([history_row(row) for row in body["history"]])


def gap(told: dict[str, Any]) -> str:
    """What a stream can no longer tell."""
    return clean(as_commands(told.get("message") or "") or "some of the history is gone, and is not told here")


def listed(body: dict[str, Any]) -> Drawn:
    """A page of operations; the id comes first. A terminal has a column for each word that a filter takes."""
    ops = body["operations"]
    rest = [(counted(op), op["created_at"], op["remote_job_id"] or "") for op in ops]
    heads = [(op["operation_id"], op["provider"]) for op in ops]
    piped = [(*head, _status(op), *more) for head, op, more in zip(heads, ops, rest, strict=True)]
    rows = [(*head, op["status"], op["state"], *more) for head, op, more in zip(heads, ops, rest, strict=True)]
    columns = (
        Column("operation", is_whole=True),
        Column("provider"),
        Column("status", is_state=True, is_extra=True),
        Column("state", is_state=True),
        Column("progress"),
        Column("created", is_extra=True),
        Column("job", is_extra=True),
    )
    nothing = "no operations"
    lines = str(Grid((*columns[:2], *columns[3:]), piped, nothing)).split("\n")
    return Drawn(lines, [Grid(columns, rows, nothing)])


def items(body: dict[str, Any], nothing: str = "no items") -> Grid:
    """A page of items; where there is none, `nothing` is said."""
    columns = (Column("item", is_whole=True), Column("outcome", is_state=True), Column("why"))
    rows = [(item["item_id"], item["outcome"], item["reason"] or "") for item in body["items"]]
    return Grid(columns, rows, nothing)


def other_outcomes(body: dict[str, Any], outcome: str) -> str:
    """How many items of an operation had another outcome than this, and which command names them; empty: none had."""
    counts = {word: n for word, n in (body["summary"] or {}).items() if n and word not in ("total", outcome)}
    if not counts:
        return ""
    told = ", ".join(f"{n} {word}" for word, n in counts.items())
    unsuccessful = [word for word in counts if word != "succeeded"]
    if not unsuccessful:
        return told
    only = f" --outcome {unsuccessful[0]}" if len(unsuccessful) == 1 else ""
    return f"{told}: reconciled items {body['operation_id']}{only}"


def _status(body: dict[str, Any]) -> str:
    status, state = body["status"], body["state"]
    return f"{status} ({state})" if status != state else str(status)


def counted(body: dict[str, Any]) -> str:
    """Why a person is asked, else how many items succeeded, or are finished as far as the provider tells."""
    if body["attention"]:
        return plain.reason(body["attention"]["reason"])
    summary, progress = body["summary"], body["progress"]
    if summary:
        return f"{summary['succeeded']} of {count(summary['total'], 'item')}"
    return _finished(progress) if progress and progress["total"] else progress_of(progress) or "-"


def _finished(progress: dict[str, Any]) -> str:
    return f"{progress['completed'] or 0} of {count(progress['total'], 'item')}"


def progress_of(progress: dict[str, Any] | None) -> str:
    """What a provider says of how far its job is; empty where it says nothing."""
    if not progress:
        return ""
    parts = [_finished(progress)] if progress["total"] else []
    if progress.get("percent") is not None:
        parts.append(f"{progress['percent']:g} %")
    if progress.get("phase"):
        parts.append(str(progress["phase"]))
    return ", ".join(parts)


def claimed(operation_id: str, consumer: str) -> str:
    """That this consumer has it, and nobody else of that name."""
    return clean(f"{operation_id} is claimed: what follows of its end is {consumer}'s to do, once")


# ---- the daemon itself ----


def status(body: dict[str, Any]) -> Drawn:
    """The daemon on a few lines, and on a terminal with its providers in a table."""
    counts = ", ".join(f"{n} {state}" for state, n in sorted(body["operations"].items())) or "none"
    due, signed = body["due"], body["checkpoint"]
    lines = [
        f"reconciled {body['version']}, up {body['uptime_seconds']} s",
        f"operations: {counts}",
        f"due now: {due['count']} (lag {due['lag_seconds']} s), in the inbox: {body['inbox']}",
    ]
    facts: list[Fact] = [
        ("reconciled", f"{body['version']}, up {span(body['uptime_seconds'])}"),
        ("operations", counts),
        ("due now", f"{due['count']}, lag {span(due['lag_seconds'])}"),
        ("in the inbox", str(body["inbox"])),
    ]
    if signed is not None:
        lines.append(f"checkpoint {signed['number']} of {signed['at']}: {signed['hash']}")
        facts.append(("checkpoint", f"{signed['number']} of {signed['at']}: {signed['hash']}"))
    lines += [_provider_line(name, provider) for name, provider in body["providers"].items()]
    columns = (
        Column("provider", is_whole=True),
        Column("kind"),
        Column("webhooks"),
        Column("missed"),
        Column("last good read"),
        Column("errors"),
        Column("state", is_state=True),
    )
    rows = [_provider_row(name, provider) for name, provider in body["providers"].items()]
    parts: list[Facts | Grid] = [Facts(facts), Grid(columns, rows, "no providers")]
    if callbacks := body.get("callbacks"):
        lines += [_callback_line(name, callback) for name, callback in callbacks.items()]
        parts.append(_callbacks(callbacks))
    return Drawn(lines, parts)


def _callback_line(name: str, callback: dict[str, Any]) -> str:
    counted = ", ".join(f"{callback[word]} {word}" for word in _FATES)
    return f"callback {name}: {counted}{', MISSING in the configuration' if callback['missing'] else ''}"


def _callbacks(callbacks: dict[str, Any]) -> Grid:
    """How the deliveries to each callback fare."""
    columns = (Column("callback", is_whole=True), *map(Column, _FATES), Column("state", is_state=True))
    rows = [
        (name, *(one[word] for word in _FATES), "missing in the configuration" if one["missing"] else "ok")
        for name, one in callbacks.items()
    ]
    return Grid(columns, rows, "no callbacks")


def _provider_line(name: str, provider: dict[str, Any]) -> str:
    hooks = provider["webhooks"]
    missing = ", MISSING in the configuration" if provider["missing"] else ""
    paused = (
        f", PAUSED until {provider['paused_until']}: {plain.error(provider['pause_reason'])}"
        if provider["paused_until"]
        else ""
    )
    return (
        f"{name} ({provider['kind']}): webhooks {hooks['accepted']} accepted, {hooks['duplicate']} duplicate,"
        f" {hooks['refused']} refused, {hooks['missed']} missed, {hooks['unmatched']} unmatched{missing}{paused}"
    )


def _provider_row(name: str, provider: dict[str, Any]) -> tuple[object, ...]:
    hooks, rate = provider["webhooks"], provider["error_rate"]
    counted = [f"{hooks[word]} {word}" for word in ("accepted", "duplicate", "refused", "unmatched") if hooks[word]]
    if provider["missing"]:
        fares = "missing in the configuration"
    elif provider["paused_until"]:
        fares = f"paused until {provider['paused_until']}: {plain.error(provider['pause_reason'])}"
    else:
        fares = "ok"
    return (
        name,
        provider["kind"],
        ", ".join(counted) or "none",
        hooks["missed"],
        provider["last_good_poll"] or "-",
        "-" if rate is None else f"{rate:.1%}",
        fares,
    )


def span(seconds: float) -> str:
    """How long, in its two largest units: `1 h 4 min`, `23 s`."""
    left_over = max(0, round(seconds))
    parts: list[str] = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        whole, left_over = divmod(left_over, length)
        if whole or (unit == "s" and not parts):
            parts.append(f"{whole} {unit}")
    return " ".join(parts[:2])
