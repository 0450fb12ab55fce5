"""What must come in time, what must not come too soon, and what each word that people were given comes to."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from reconcile.states import CANCELLING, DEADLINE_OF, STOPPED, TERMINAL, WATCHING, State
from tests.simulation.histories.configuration import POLL, host_of
from tests.simulation.histories.rules.seen import Seen, is_calm, shows
from tests.simulation.histories.scripts import BY_NAME
from tests.simulation.histories.world import Send
from tests.simulation.view import facts, moves
from tests.simulation.world import DOWN_SECONDS, EPOCH_MS

_SWEEP_MS, _CAP_MS, _BASE_MS = 30_000, 20_000, 2_000
#: What a request and its commit may take where nothing is broken, ms: an answer to a create is 3 s late at most.
_TAKES_MS: Final = 6_000
#: Where nothing is broken, the longest time in each state without a request or a move, ms.
_AT_MOST_MS: Final[Mapping[str, int]] = {
    "create_pending": _TAKES_MS,
    "create_unknown": _CAP_MS + _TAKES_MS,
    "accepted": _SWEEP_MS + _TAKES_MS,
    "observing": _SWEEP_MS + _TAKES_MS,
    "blocked": _SWEEP_MS + _TAKES_MS,
    "input_given": _CAP_MS + _TAKES_MS,
    "cancel_requested": _CAP_MS + _TAKES_MS,
    "cancelling": _CAP_MS + _TAKES_MS,
    "cancellation_unconfirmed": _SWEEP_MS + _TAKES_MS,
    "result_collecting": _CAP_MS + _TAKES_MS,
}
#: Between two attempts of one callback, ms: the product's shortest wait, typed by hand.
_CALLED_AGAIN_MS: Final = 5_000
#: A whole run of answers that do not know a job. Typed by hand.
_GONE_READS: Final = 5
_SETTLE_MS: Final = 10_000
#: What the rows of one decision name: itself, or the cancel that had waited for it.
_OF_A_DECISION: Final = ("decision:", "cancel:")
#: Where a GET reads the job.
_READ: Final = frozenset({state.value for state in WATCHING | CANCELLING | STOPPED})


def _is_calm(seen: Seen) -> bool:
    """Nor did anything befall a request of its own."""
    return is_calm(seen) and not any(send.fault for send in seen.world.sends)


def _is_one_life(seen: Seen, since: int, until: int) -> bool:
    return not any(since < life.began_ms <= until for life in seen.world.lives)


# ---- in time ---------------------------------------------------------------------------------------------------------


def what_is_due_is_done(seen: Seen) -> Iterator[str]:
    """Where nothing is broken, no state that acts is left without a request for longer than its longest wait."""
    if not _is_calm(seen):
        return
    lists: defaultdict[str, list[int]] = defaultdict(list)  # a list is a read of each job on it
    for send in seen.world.sends:
        if send.row is None:
            lists[send.host].append(send.at_ms)
    for op in seen.view.operations:
        walk = [(row["at"], 0, row["to_state"]) for row in moves(seen.view, op)]
        asked = [(send.at_ms, 1, "") for send in seen.sends.get(op["trace_id"], ())]
        asked += [(at, 1, "") for at in lists[host_of(op["provider"])]]
        state, creed = "", BY_NAME.get(op["provider"])
        has_road = creed is None or bool(creed.token) or creed.looks_up
        # Of one moment, moves in their own order and before what was asked.
        for one, two in itertools.pairwise(sorted([*walk, *asked], key=lambda each: each[:2])):
            state = one[2] or state
            most = _AT_MOST_MS.get(state) if state != "create_unknown" or has_road else None
            if most is not None and two[0] - one[0] > most and _is_one_life(seen, one[0], two[0]):
                yield f"{op['operation_id']} stood in {state} for {two[0] - one[0]} ms, and nothing was done"


def an_end_is_found(seen: Seen) -> Iterator[str]:
    """Where nothing is broken, a watched job's end is known within a sweep, whatever tells of it (C4, C6)."""
    if not _is_calm(seen):
        return
    for op in seen.view.operations:
        job, script = seen.by_id.get((op["provider"], op["remote_job_id"])), seen.wish(op).script
        if job is None or job.ended_ms is None or script.flaps or script.forgotten_after_ms is not None:
            continue
        walk = moves(seen.view, op)
        stood = next((row["to_state"] for row in reversed(walk) if row["at"] <= job.ended_ms), None)
        until = job.ended_ms + _SWEEP_MS + _TAKES_MS + script.shown_after_ms
        if stood is None or State(stood) not in WATCHING | CANCELLING or not _is_one_life(seen, job.ended_ms, until):
            continue
        left = next((row for row in walk if row["at"] > job.ended_ms and _is_no_wait(row["to_state"])), None)
        if until < seen.world.now_ms and (left is None or left["at"] > until):
            yield f"{op['operation_id']}: its job ended at {job.ended_ms}, which showed only at {left and left['at']}"


def _is_no_wait(state: str) -> bool:
    return State(state) not in WATCHING | CANCELLING


def who_waits_is_told(seen: Seen) -> Iterator[str]:
    """Somebody who waits for an end hears of it when it is committed, not when the time for waiting is up."""
    if seen.world.jumped:
        return
    ends = {op["operation_id"]: op["completed_at"] for op in seen.view.operations if op["completed_at"] is not None}
    for customer in seen.world.customers:
        for operation_id, asked, answered in customer.told.waits:
            end = (ends[operation_id] - EPOCH_MS) / 1000 if operation_id in ends else None
            is_calm = asked >= seen.world.plan.bad_until
            if end is not None and is_calm and asked < end < answered - 1:
                yield f"the end of {operation_id} came {answered - end:.1f} s before it was told to who waited for it"


# ---- not too soon ----------------------------------------------------------------------------------------------------


def no_deadline_is_early(seen: Seen) -> Iterator[str]:
    """What a deadline moves, it moves once its time is over, by the wall clock (B3, N22)."""
    for op in seen.view.operations:
        standing: dict[str, int | None] = {}
        for row in facts(seen.view, op):
            name = row["cause"].removeprefix("deadline:")
            due = standing.get(name) if row["kind"] == "move" and name != row["cause"] else None
            if due is not None and row["at"] < due:
                yield f"{op['operation_id']} became {row['to_state']} {due - row['at']} ms before its {name} deadline"
            standing = dict(row["facts"].get("deadlines", standing))


def a_deadline_is_set_once(seen: Seen) -> Iterator[str]:
    """Create and result deadline stand from when they are first set; only a person moves them (B3)."""
    for op in seen.view.operations:
        standing: dict[str, int] = {}
        for row in facts(seen.view, op):
            told = row["facts"].get("deadlines", {})
            for name in ("create", "result"):
                was, now = standing.get(name), told.get(name, standing.get(name))
                is_by_person = any(
                    other["cause"].startswith("decision:") and other["at"] == row["at"]
                    for other in seen.view.history[op["key"]]
                )
                if was is not None and now != was and not is_by_person:
                    yield f"{op['operation_id']} seq {row['seq']}: its {name} deadline moved by {now - was} ms"
            standing |= told


def a_decision_gives_time(seen: Seen) -> Iterator[str]:
    """Where a person lets something be tried again, the deadline of that lies ahead (G8)."""
    for op in seen.view.operations:
        rows = facts(seen.view, op)
        standing: dict[str, int] = {}
        for row, after in itertools.zip_longest(rows, rows[1:]):
            standing = dict(row["facts"].get("deadlines", standing))
            goes_on = after is not None and after["at"] == row["at"] and after["cause"].startswith(_OF_A_DECISION)
            if goes_on or row["kind"] != "move" or not row["cause"].startswith("decision:"):
                continue
            name = DEADLINE_OF[State(row["to_state"])]
            if name is not None and name != "collect" and standing.get(name, 0) <= row["at"]:
                yield f"{op['operation_id']} became {row['to_state']} by a decision, and its {name} deadline is over"


def a_job_is_gone_after_a_whole_run(seen: Seen) -> Iterator[str]:
    """That a provider does not know a job any more is believed after a run of such answers, none good among them."""
    if seen.world.jumped:
        return
    for op in seen.view.operations:
        if op["provider"] not in BY_NAME:
            continue  # a list is a read too
        arrivals = [a for a in seen.arrivals.get(op["trace_id"], ()) if a.method == "GET" and "/job_" in a.path]
        spoiled = {send.at_ms for send in seen.sends.get(op["trace_id"], ()) if send.fault}
        for row in moves(seen.view, op):
            if "the provider does not know the job" not in row["reason"] and "knows no job" not in row["reason"]:
                continue
            run = [a for a in arrivals if a.at_ms <= row["at"] and not a.path.endswith("/result")][-_GONE_READS:]
            if any(shows(a) and a.at_ms not in spoiled for a in run) or len(run) < _GONE_READS:
                yield f"{op['operation_id']}: {row['reason']}, and it was read well in between"


def a_resend_waits(seen: Seen) -> Iterator[str]:
    """What the configuration allows to be sent anew has settled, and was looked for after that (B2)."""
    for op in seen.view.operations:
        unknown_since: int | None = None
        for row in facts(seen.view, op):
            if row["facts"].get("resend_allowed_by") == "create.on_absent":
                looks = [a for a in seen.arrivals.get(op["trace_id"], ()) if a.method == "GET" and shows(a)]
                due = (unknown_since or 0) + _SETTLE_MS
                if not seen.world.jumped and not any(due - 1_000 <= a.at_ms <= row["at"] for a in looks):
                    yield f"{op['operation_id']} was sent anew at {row['at']}, unknown since {unknown_since}"
            if row["to_state"] == "create_unknown" and row["from_state"] == "create_pending":
                unknown_since = row["at"]


def errors_keep_to_their_budget(seen: Seen) -> Iterator[str]:
    """No read of a watched job leaves whose row counts as many errors as make up the budget (C6)."""
    for send in seen.world.sends:
        if send.row is None or send.row["state"] not in ("accepted", "observing", "blocked"):
            continue
        if send.row["errors"] >= POLL["error_budget"]:
            yield f"{send.method} {send.path} left after {send.row['errors']} errors in a row"


def a_wait_outlives_the_process(seen: Seen) -> Iterator[str]:
    """A provider that asked to be left alone is left alone by the next life too."""
    if seen.world.jumped:
        return
    lives = seen.world.lives
    for name, watch in seen.world.watches.items():
        sends = [send for send in seen.world.sends if send.host == host_of(name)]
        for arrival in watch.arrivals:
            until = arrival.at_ms + 1_000 * arrival.wait_seconds
            own = [s for s in sends if (s.at_ms, s.trace_id, s.path) == (arrival.at_ms, arrival.trace_id, arrival.path)]
            if not arrival.mischief.endswith("_wait") or len(own) != 1 or own[0].fault:
                continue
            began = next((life.began_ms for life in lives if life.began_ms > arrival.at_ms), None)
            if began is None or began - 1_000 * DOWN_SECONDS < arrival.at_ms + 1_000:
                continue  # it died before it could keep that
            early = [s for s in sends if s.life != own[0].life and arrival.at_ms < s.at_ms < until]
            yield from (
                f"{s.method} {s.path} left {until - s.at_ms} ms before {name} would be asked, in another life"
                for s in early[:1]
            )


def tries_keep_their_distance(seen: Seen) -> Iterator[str]:
    """What failed is not tried again at once: creates, cancels, inputs, look-ups and results wait as reads do."""
    if seen.world.jumped:
        return
    for op in seen.view.operations:
        words = ("decision:", "cancel:", "input:", "deadline:", "event:")
        asked = [row["at"] for row in seen.view.history[op["key"]] if row["cause"].startswith(words)]
        asked += [at for at, name in seen.world.rings if name == op["provider"]]
        last: dict[tuple[str, str], Send] = {}
        for send in seen.sends.get(op["trace_id"], ()):
            one = last.get((send.method, send.path))
            if send.has_effect:  # what was done is looked after
                last = {name: at for name, at in last.items() if name[0] != "GET"}
            last[send.method, send.path] = send
            if one is None or one.life != send.life or send.at_ms - one.at_ms >= _BASE_MS:
                continue
            if one.row is None or send.row is None or one.row["state"] != send.row["state"]:
                continue
            if send.method == "GET" and (one.fault or send.row["state"] in _READ):
                continue  # aiohttp may send a read once more; reads of a job have a rule of their own
            if any(one.at_ms - _BASE_MS <= at <= send.at_ms for at in asked):
                continue
            if send.row["deadline_at"] is not None and send.at_ms + 1_000 >= send.row["deadline_at"]:
                continue
            gap, state = send.at_ms - one.at_ms, send.row["state"]
            yield f"{op['operation_id']}: {send.method} {send.path} left {gap} ms after it did, in {state}"


def callbacks_keep_their_distance(seen: Seen) -> Iterator[str]:
    """A delivery that was not taken is sent again after a wait; a new life may send it at once."""
    receiver = seen.world.receiver
    last: dict[str, int] = {}
    for got in receiver.got if receiver is not None else ():
        before = last.get(got.event_id)
        is_soon = before is not None and got.at_ms - before < _CALLED_AGAIN_MS
        if is_soon and not seen.world.jumped and _is_one_life(seen, before or 0, got.at_ms):
            yield f"{got.event_id} was sent again {got.at_ms - (before or 0)} ms after it was"
        last[got.event_id] = got.at_ms


# ---- what was given --------------------------------------------------------------------------------------------------


def a_cancel_that_was_taken_is_sent(seen: Seen) -> Iterator[str]:
    """No job is merely watched on once its cancel was taken, unless a person took that back (E1, E6)."""
    for op in seen.view.operations:
        if (
            seen.world.jumped
            or not op["living"].get("cancel")
            or seen.asked(op, "keep", "choose_job", "resume", "adopt_job")
        ):
            continue
        taken = next(
            (row["at"] for row in seen.view.history[op["key"]] if "asked for a cancel:" in row["reason"]), None
        )
        for send in seen.sends.get(op["trace_id"], ()):
            is_watched = send.row is not None and State(send.row["state"]) in WATCHING
            if taken is not None and is_watched and send.at_ms > taken + _TAKES_MS:
                yield f"{send.method} {send.path} left at {send.at_ms} for {op['operation_id']}, cancelled at {taken}"
                break


def a_claim_is_given(seen: Seen) -> Iterator[str]:
    """Of a consumer's claims that were all answered one was given."""
    for customer in seen.world.customers:
        for consumer, statuses in customer.told.claims.items():
            if len(statuses) == customer.told.claims_asked[consumer] and 200 not in statuses:
                yield f"{consumer} was never given wish {customer.wish.number}: {statuses}"


def each_item_is_what_it_was(seen: Seen) -> Iterator[str]:
    """What is served of each item is what the provider said of that very item."""
    for op in seen.view.operations:
        job = seen.by_id.get((op["provider"], op["remote_job_id"]))
        attempt = op["living"].get("collect_attempt", 0)
        if job is None or not attempt or not job.has_items or job.is_spoiled or job.also_told:
            continue
        if op["state"] not in ("succeeded", "completed_with_errors") or seen.asked(op, "adopt_job", "choose_job"):
            continue
        served = {row["item_id"]: row["outcome"] for row in seen.view.items[op["key"]] if row["attempt"] == attempt}
        wrong = {i: served.get(i) for i, outcome in job.items.items() if served.get(i) != outcome}
        if wrong:
            yield f"{op['operation_id']} serves {wrong}, in truth {dict(job.items)}"


def the_newest_result_is_served(seen: Seen) -> Iterator[str]:
    """The items that are served are those of the result that stands in the row."""
    for op in seen.view.operations:
        result, attempt = op["living"].get("result"), op["living"].get("collect_attempt", 0)
        if result is not None and result["attempt"] != attempt:
            yield f"{op['operation_id']} holds the result of try {result['attempt']} and serves items of {attempt}"


def a_contradiction_is_told(seen: Seen) -> Iterator[str]:
    """Each contradiction stands in the inbox."""
    told = Counter(row["operation_key"] for row in seen.view.notices if row["reason"] == "contradiction")
    for op in seen.view.operations:
        against = [row["reason"] for row in seen.view.history[op["key"]] if row["kind"] == "contradiction"]
        if against and not told[op["key"]]:
            yield f"{op['operation_id']}: {against[0]}, and nobody is told"


# ---- lives -----------------------------------------------------------------------------------------------------------


def lives_end_as_they_were_to(seen: Seen) -> Iterator[str]:
    """A process that gives up its file was made to; and none had troubles of its own before it was killed."""
    dooms = [*seen.world.plan.dooms]
    for life in seen.world.lives:
        doom = dooms[life.number - 1] if life.number <= len(dooms) else None
        is_io = doom is not None and doom.commit is not None and doom.commit[1] in ("lost", "kept")
        if life.broken and not is_io:
            yield f"life {life.number} gave up: {life.broken}"
        if not life.ended and not is_io:
            yield from (f"life {life.number}: {entry}" for entry in life.log if entry["log_level"] == "error")


def nothing_is_left_over(seen: Seen) -> Iterator[str]:
    """At the end no file of a result is left that no row names: the try that counts drops what earlier ones left.

    Where no try counted, or its life died at once, what lives that died had left waits for the hourly upkeep.
    """
    folder = seen.world.state_dir / "results"
    for op in seen.view.operations:
        result = op["living"].get("result") or {}
        files = (path for path in (folder / op["operation_id"]).rglob("*") if path.is_file())
        left = {str(path.relative_to(seen.world.state_dir)): path.parent.name for path in files}
        left = {name: attempt for name, attempt in left.items() if name not in result.get("files", ())}
        died_in = {
            str(send.row["fence"])
            for send in seen.its_sends(op)
            if send.row is not None and not seen.world.lives[send.life - 1].ended
        }
        if not result or str(result["attempt"]) in died_in:
            left = {name: attempt for name, attempt in left.items() if attempt not in died_in}
        if State(op["state"]) in TERMINAL and left:
            yield f"{op['operation_id']} is {op['state']}, and {sorted(left)} are left"
