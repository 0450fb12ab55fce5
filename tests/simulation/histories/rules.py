"""What must hold in any random world, one function a rule, run after each crash and at the end.

Truth is what the providers' accounts and the logs of networks and people say; the daemon's file is what is judged. The
rules on a record by itself (N7, N8, N26, N27) are those of the told stories (tests/simulation/invariants.py).
"""

import hashlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from reconcile.states import TERMINAL, State
from tests.simulation import invariants
from tests.simulation.histories.accounts import DeclaredAccount
from tests.simulation.histories.faces import Arrival
from tests.simulation.histories.people import Customer
from tests.simulation.histories.scripts import BY_NAME, Wish
from tests.simulation.histories.truth import TrueJob, jobs_by_trace
from tests.simulation.histories.world import ATTENTION, POLL, HistoryWorld, Send, StandIn, host_of
from tests.simulation.view import Row, View, facts, load, moves
from tests.simulation.world import LEASE_MS

#: Answers to a create that made no job: the same create may follow (B1). With a page instead of the provider's own
#: error, 404 and its like are the account's or the path's.
_SURELY_NO_JOB: Final = frozenset({401, 402, 403, 404, 405, 429})
_GIVEN_UP: Final = frozenset({"timed_out", "abandoned"})
_ATTENTION_MS: Final = int(ATTENTION.removesuffix("m")) * 60_000
#: The longest of each deadline that a plan gives, ms: create, result, cancel, input.
_LONGEST_MS: Final = 120_000 + 160_000 + 45_000 + 60_000
_CAP_MS, _SWEEP_MS, _BASE_MS = 20_000, 30_000, 2_000
#: The longest that a send may wait, once its claim has checked the row, for the rate and for the disk, ms.
_ON_ITS_WAY_MS: Final = 60_000


@dataclass
class Seen:
    """A world, its file, and who is who in both."""

    world: HistoryWorld
    view: View
    at_the_end: bool

    @cached_property
    def jobs(self) -> Mapping[str, list[TrueJob]]:
        """Every true job by the trace of its create."""
        return jobs_by_trace(self.world)

    @cached_property
    def by_id(self) -> dict[tuple[str, str], TrueJob]:
        """Every true job by provider and id."""
        return {(job.provider, job.id): job for jobs in self.jobs.values() for job in jobs}

    @cached_property
    def customers(self) -> dict[str, Customer]:
        """Who started each operation, by its id."""
        keys = {row["operation_key"]: row["client_key"] for row in self.view.client_keys}
        by_key = {f"key-{customer.wish.number}": customer for customer in self.world.customers}
        people = {op["operation_id"]: by_key[keys[op["key"]]] for op in self.view.operations if op["key"] in keys}
        nobody = Customer(self.world.plan.wishes[0], "", 0)  # N28 tells of an operation that nobody asked for
        return {op["operation_id"]: people.get(op["operation_id"], nobody) for op in self.view.operations}

    @cached_property
    def sends(self) -> dict[str, list[Send]]:
        """What left the daemon, by trace."""
        return _by_trace(self.world.sends)

    @cached_property
    def arrivals(self) -> dict[str, list[Arrival]]:
        """What came to a provider, by trace."""
        return _by_trace([a for watch in self.world.watches.values() for a in watch.arrivals])

    def wish(self, op: Row) -> Wish:
        """What was wanted of it."""
        return self.customers[op["operation_id"]].wish

    def asked(self, op: Row, *words: str) -> int:
        """How often people asked for one of these decisions, answered or not."""
        return sum(self.customers[op["operation_id"]].told.asked.count(word) for word in words)


def _by_trace(log: list[Any]) -> dict[str, list[Any]]:
    found: defaultdict[str, list[Any]] = defaultdict(list)
    for each in log:
        found[each.trace_id].append(each)
    return found


def check(world: HistoryWorld, *, at_the_end: bool) -> list[str]:
    """All rules on the world as it stands; `at_the_end`: every life is over."""
    acks = [ack for account in world.accounts.values() for ack in account.acks]
    started = [op for customer in world.customers for op in customer.told.started]
    if not world.database.exists():
        told = [*acks, *started, *world.sends]
        return [f"N18: {told[:3]} was acknowledged or sent, and there is no file"] if told else []
    seen = Seen(world, load(world), at_the_end)
    found = [f"{name}: {words}" for name, rule in RULES.items() for words in rule(seen)]
    if at_the_end:
        found += [f"{name}: {words}" for name, rule in ENDINGS.items() for words in rule(seen)]
    return found


# ---- what left the daemon --------------------------------------------------------------------------------------------


def n1_a_row_before_each_send(seen: Seen) -> Iterator[str]:
    """All that leaves has a committed row; what has an effect leaves under a mark, in the state that sends it."""
    for send in seen.world.sends:
        if send.trace_id and send.row is None:
            yield f"{send.method} {send.path} left for the trace {send.trace_id}, which no committed row bears"
        if send.row is None or not send.has_effect:
            continue
        states = _states_for(send)
        is_marked = send.row["mark_at"] is not None or send.row["state"] == "create_unknown"  # sent again, by its token
        if send.row["state"] not in states or not is_marked:
            yield f"{send.method} {send.path} left while {send.row['operation_id']} stood in {_stood(send)}"


def _stood(send: Send) -> str:
    assert send.row is not None
    return f"{send.row['state']}{'' if send.row['mark_at'] is None else ', marked'}"


def _states_for(send: Send) -> set[str]:
    if send.path.endswith("/input"):
        return {"input_given"}
    if send.method == "DELETE" or send.path.endswith("/cancel"):
        return {"cancel_requested"}
    return {"create_pending", "create_unknown"}


def n2_creates_are_equal(seen: Seen) -> Iterator[str]:
    """All creates of one operation bear the same bytes and token; tokens are unique."""
    for trace_id, arrivals in seen.arrivals.items():
        made = {(a.body, a.token) for a in arrivals if a.is_create}
        if len(made) > 1:
            yield f"the operation of the trace {trace_id} was created with {len(made)} different requests"
    tokens = Counter(op["token"] for op in seen.view.operations)
    yield from (f"{n} operations bear the token {token}" for token, n in tokens.items() if n > 1)


def n3_one_job(seen: Seen) -> Iterator[str]:
    """At most one job; without an honoured token at most one create that may have arrived, and one a permission."""
    known = {op["trace_id"]: op for op in seen.view.operations}
    for trace_id, jobs in seen.jobs.items():
        if trace_id not in known:
            yield f"the jobs {[job.id for job in jobs]} are nobody's: their trace is {trace_id!r}"
    for op in seen.view.operations:
        creed = BY_NAME.get(op["provider"])
        jobs = seen.jobs.get(op["trace_id"], [])
        leave = seen.asked(op, "resend") + (creed is not None and creed.on_absent == "resend")
        if creed is not None and creed.lies:
            if len(jobs) > 1 and seen.at_the_end and not leave and not _was_told_of(seen, op, jobs):
                yield f"{op['operation_id']} has the jobs {[job.id for job in jobs]}, and nobody was told"
            continue
        if len(jobs) > 1 + leave:
            yield f"{op['operation_id']} has {len(jobs)} jobs, {leave} re-sends were allowed"
        if creed is None or not creed.token:
            sent = _may_have_arrived(seen, op, lambda a: a.is_create, _SURELY_NO_JOB)
            if sent > 1 + leave:
                yield f"{sent} creates of {op['operation_id']} may have made a job, {leave} re-sends were allowed"


def n3_two_jobs_are_told(seen: Seen) -> Iterator[str]:
    """Where two jobs of one operation were surely heard of, both stand in its record and somebody is told (B4)."""
    if seen.world.jumped:
        return
    for op in seen.view.operations:
        jobs = seen.jobs.get(op["trace_id"], [])
        heard = _heard_of(seen, op, jobs) if len(jobs) > 1 else set()
        if len(heard) < 2:
            continue
        rows = facts(seen.view, op)
        record = [op["remote_job_id"], *op["living"].get("candidates", ()), *(f"{row['facts']}" for row in rows)]
        unnamed = [job for job in sorted(heard) if not any(job in words for words in record if words)]
        is_told = any(row["kind"] == "contradiction" or row["to_state"] in _MANY_JOBS_ARE_TOLD for row in rows)
        if unnamed or not is_told:
            yield f"{op['operation_id']} has the jobs {sorted(heard)}, which were answered; unnamed: {unnamed}"


#: Where a person is asked which of several jobs it is.
_MANY_JOBS_ARE_TOLD: Final = frozenset({"contract_violation", "create_unresolved"})
#: How long an answer may take and be kept, ms: longer than any that is not late by its network.
_KEPT_MS: Final = 5_000


def _heard_of(seen: Seen, op: Row, jobs: list[TrueJob]) -> set[str]:
    """The jobs that a create or a look-up was surely answered with, in a life that went on long enough to keep it."""
    late_ms = seen.wish(op).script.shown_after_ms
    births = [life.began_ms for life in seen.world.lives]
    births += [] if seen.at_the_end else [seen.world.now_ms]
    heard: set[str] = set()
    for at, method, path in _surely_answered(seen, op["trace_id"]):
        if path != "/v1/jobs" or any(at < birth <= at + _KEPT_MS for birth in births):
            continue
        if method == "POST":
            heard |= {job.id for job in jobs if job.created_ms == at}
        else:
            heard |= {job.id for job in jobs if job.created_ms + late_ms <= at}
    return heard


def _surely_answered(seen: Seen, trace_id: str) -> set[tuple[int, str, str]]:
    """(when, method, path) of requests whose good answer came whole; of two in one moment neither is sure."""
    sends = seen.sends.get(trace_id, ())
    arrivals = seen.arrivals.get(trace_id, ())
    left, came = (Counter((each.at_ms, each.method, each.path) for each in log) for log in (sends, arrivals))
    spoiled = {(s.at_ms, s.method, s.path) for s in sends if s.fault}
    good = {(a.at_ms, a.method, a.path) for a in arrivals if _shows(a, 0)}
    return {request for request in good - spoiled if left[request] == came[request] == 1}


def _was_told_of(seen: Seen, op: Row, jobs: list[TrueJob]) -> bool:
    """A liar's second job is told once both ids were surely heard of. What nobody heard is not known."""
    heard = [row for row in moves(seen.view, op) if row["to_state"] in ("contract_violation", "create_unresolved")]
    clean = sum(a.is_create and a.status == 200 and not a.mischief for a in seen.arrivals[op["trace_id"]])
    lost = sum(bool(s.fault) and s.has_effect for s in seen.sends[op["trace_id"]])
    return bool(heard) or clean - lost <= 1 or op["state"] in _GIVEN_UP or len(seen.world.lives) > 1 or not jobs


def _may_have_arrived(
    seen: Seen, op: Row, is_it: Callable[[Any], bool], surely_not: frozenset[int], method: str = "POST"
) -> int:
    """Requests that left, less those that were surely not accepted."""
    trace_id = op["trace_id"]
    refused = sum(is_it(a) and a.status in surely_not for a in seen.arrivals.get(trace_id, ()))
    left = sum(s.has_effect and s.method == method and is_it(_as_arrival(s)) for s in seen.sends.get(trace_id, ()))
    return left - refused


def _as_arrival(send: Send) -> Arrival:
    return Arrival(send.host, send.at_ms, send.method, send.path, send.trace_id, is_authenticated=True)


def n4_names_differ(seen: Seen) -> Iterator[str]:
    """The four ids of an operation differ; each request bears the trace of the operation whose job it names."""
    for op in seen.view.operations:
        names = [op["operation_id"], op["token"], op["trace_id"], op["remote_job_id"]]
        if len(set(names)) < 4:
            yield f"two of these are one: {names}"
    for send in seen.world.sends:
        held = send.row["job"] if send.row is not None else None
        named = next((part for part in send.path.split("/") if part.startswith(("job_", "batch_", "msgbatch_"))), None)
        if named is not None and send.trace_id and held is not None and named.partition("_output")[0] != held:
            yield f"{send.method} {send.path} left for an operation that holds {held}"


def n5_a_job_id_is_written_once(seen: Seen) -> Iterator[str]:
    """An operation holds the job of its own create, or one that a person named; one id, and one holder."""
    held = Counter((op["provider"], op["remote_job_id"]) for op in seen.view.operations if op["state"] not in _GIVEN_UP)
    for op in seen.view.operations:
        rows = facts(seen.view, op)
        told = [row["facts"]["remote_job_id"] for row in rows if "remote_job_id" in row["facts"]]
        told = [job for job in dict.fromkeys(told) if job is not None]
        job_id = op["remote_job_id"]
        if (told[-1] if told else None) != job_id:
            yield f"{op['operation_id']} holds {job_id}, its history says {told}"
        if len(told) > 1 + seen.asked(op, "choose_job"):
            yield f"{op['operation_id']} held {told}"
        if job_id is None:
            continue
        job = seen.by_id.get((op["provider"], job_id))
        if job is None:
            yield f"{op['operation_id']} holds {job_id}, which never was"
        elif job.trace_id != op["trace_id"] and not seen.asked(op, "adopt_job", "choose_job"):
            yield f"{op['operation_id']} holds {job_id}, the job of another operation"
        if held[op["provider"], job_id] > 1:
            yield f"{job_id} is held by {held[op['provider'], job_id]} operations"


def n6_a_refusal_is_the_end(seen: Seen) -> Iterator[str]:
    """Nothing leaves for an operation that has ended; no create leaves after a refusal for good."""
    for send in seen.world.sends:
        if send.row is not None and State(send.row["state"]) in TERMINAL:
            yield f"{send.method} {send.path} left for {send.row['operation_id']}, which was {send.row['state']}"


def n31_a_violation_stops_everything(seen: Seen) -> Iterator[str]:
    """No request leaves while an operation stands in `contract_violation`, but for what was on its way."""
    since = _entered(seen, "contract_violation")
    for send in seen.world.sends:
        if send.row is None or send.row["state"] != "contract_violation" or seen.world.jumped:
            continue
        if send.at_ms > since.get(send.row["operation_id"], 0) + 1_000:
            yield f"{send.method} {send.path} left for {send.row['operation_id']} in contract_violation"


def _entered(seen: Seen, state: str) -> dict[str, int]:
    """When each operation entered a state last."""
    return {
        op["operation_id"]: row["at"]
        for op in seen.view.operations
        for row in moves(seen.view, op)
        if row["to_state"] == state
    }


def n38_credentials_stay_home(seen: Seen) -> Iterator[str]:
    """No host is asked that nobody configured; whatever comes to a provider bears its own key."""
    yield from (f"the daemon wanted to reach {host}" for host in dict.fromkeys(seen.world.strangers))
    for watch in seen.world.watches.values():
        bare = [a for a in watch.arrivals if not a.is_authenticated]
        yield from (f"{a.method} {a.path} came to {a.host} without its key" for a in bare[:1])


# ---- cancels and inputs ----------------------------------------------------------------------------------------------


def n15_a_cancel_is_a_wish(seen: Seen) -> Iterator[str]:
    """Sent once an intent, unless it was surely not taken; nothing is withdrawn after its create has left."""
    for op in seen.view.operations:
        told = seen.customers[op["operation_id"]].told
        creed = BY_NAME.get(op["provider"])
        wanted = min(told.cancels_asked, 1) + seen.asked(op, "cancel", "cancel_again")
        is_cancel = _is_cancel
        method = "DELETE" if creed is not None else "POST"
        sent = _may_have_arrived(seen, op, is_cancel, frozenset({401, 402, 403, 404, 405, 429}), method)
        leave = len(seen.world.lives) - 1 if creed is None or creed.cancel_is_repeatable else 0
        if sent > wanted + leave:
            yield f"{sent} cancels of {op['operation_id']} may have arrived, {wanted} were wanted"
        may_be_made = _may_have_arrived(seen, op, lambda a: a.is_create, _SURELY_NO_JOB) > 0
        if op["state"] == "cancelled" and op["remote_job_id"] is None and may_be_made:
            yield f"{op['operation_id']} was withdrawn after a create had left"
        if 202 in told.cancels and not _cancel_is_kept(seen, op):
            yield f"the cancel of {op['operation_id']} was acknowledged and is not there"


def _is_cancel(each: Any) -> bool:
    return bool(each.method == "DELETE" or each.path.endswith("/cancel"))


def _cancel_is_kept(seen: Seen, op: Row) -> bool:
    is_asked = any("asked for a cancel" in row["reason"] for row in seen.view.history[op["key"]])
    return is_asked or any(row["cause"].startswith("cancel:") for row in seen.view.history[op["key"]])


def inputs_are_sent_once(seen: Seen) -> Iterator[str]:
    """As a cancel: at most once for each that a person gave."""
    for op in seen.view.operations:
        told = seen.customers[op["operation_id"]].told

        def is_input(each: Any) -> bool:
            return bool(each.path.endswith("/input"))

        sent = _may_have_arrived(seen, op, is_input, frozenset({401, 402, 403, 404, 405, 429}))
        given = told.inputs_asked - told.inputs_refused
        if sent > given:
            yield f"{sent} inputs of {op['operation_id']} may have arrived, {given} were given"


# ---- ends ------------------------------------------------------------------------------------------------------------


def n9_causes_exist(seen: Seen) -> Iterator[str]:
    """What a move names as its cause is there; what a person is said to have done was asked for by one."""
    for op in seen.view.operations:
        told = seen.customers[op["operation_id"]].told
        wishes = {"decision": bool(told.asked), "input": bool(told.inputs_asked), "cancel": bool(told.cancels_asked)}
        wishes["cancel"] = wishes["cancel"] or seen.asked(op, "cancel", "cancel_again") > 0
        for row in moves(seen.view, op):
            kind, _, name = row["cause"].partition(":")
            if not wishes.get(kind, name in seen.view.causes.get(kind, ())):
                yield f"{op['operation_id']} seq {row['seq']} was caused by {row['cause']}, which does not exist"


def n10_ends_fit_their_counts(seen: Seen) -> Iterator[str]:
    """Success has a whole, collected result; "with errors" some of each; the files are there and are the bytes."""
    for op in seen.view.operations:
        summary, result = op["living"].get("summary"), op["living"].get("result")
        if op["state"] not in ("succeeded", "completed_with_errors"):
            continue
        is_accepted = seen.asked(op, "accept") > 0
        if summary is None or result is None or (result.get("problems") and not is_accepted):
            yield f"{op['operation_id']} is {op['state']} without a valid result: {result}"
            continue
        parts = sum(summary.get(word, 0) for word in ("succeeded", "failed", "cancelled", "expired", "missing"))
        if parts != summary["total"] or not (summary["succeeded"] or is_accepted):
            yield f"{op['operation_id']} is {op['state']} with {summary}"
        is_whole, verdict = summary["succeeded"] == summary["total"], op["living"].get("verdict") or {}
        may_be_whole = is_accepted or verdict.get("kind") == "EXPIRED"
        if (op["state"] == "succeeded" and not is_whole) or (
            op["state"] != "succeeded" and is_whole and not may_be_whole
        ):
            yield f"{op['operation_id']} is {op['state']} with {summary}"
        data = b"".join(
            (seen.world.state_dir / name).read_bytes()
            for name in result["files"]
            if name not in result.get("indexes", ())
        )
        if (len(data), hashlib.sha256(data).hexdigest()) != (result["bytes"], result["sha256"]):
            yield f"{op['operation_id']} keeps other bytes than it recorded"


def n11_no_end_against_the_truth(seen: Seen) -> Iterator[str]:
    """An outcome is what really happened to the job; without a job, what really became of its create."""
    for op in seen.view.operations:
        if State(op["state"]) not in TERMINAL or op["state"] in _GIVEN_UP:
            continue
        allowed = _allowed(seen, op)
        if op["state"] not in allowed:
            yield f"{op['operation_id']} of {op['provider']} is {op['state']}; in truth: {sorted(allowed) or 'it runs'}"


def _allowed(seen: Seen, op: Row) -> set[str]:
    account = seen.world.accounts.get(op["provider"])
    job = seen.by_id.get((op["provider"], op["remote_job_id"]))
    allowed: set[str] = set()
    if job is not None:
        allowed = job.outcomes()
        if seen.asked(op, "accept"):
            allowed |= {"failed"} | ({"completed_with_errors"} if job.end in ("done", "expired") else set())
        return allowed
    jobs = seen.jobs.get(op["trace_id"], [])
    if not any(send.has_effect for send in seen.sends.get(op["trace_id"], ())):
        return {"failed", "cancelled"}
    if account is not None:
        if op["trace_id"] in account.finished_at_once:
            allowed |= {account.finished_at_once[op["trace_id"]]}
        if account.refusals[op["trace_id"]]:
            allowed |= {"failed"}
    if not jobs and _was_never_taken(seen, op):
        allowed |= {"failed", "cancelled"}
    return allowed


def _was_never_taken(seen: Seen, op: Row) -> bool:
    """Each create that left was surely not accepted: then its deadline ends it as never sent."""
    return _may_have_arrived(seen, op, lambda a: not _is_cancel(a), _SURELY_NO_JOB) <= 0


def n12_items_add_up(seen: Seen) -> Iterator[str]:
    """Ids that were sent each stand once in what is served, with the outcome that the provider gave them (N12, N16)."""
    for op in seen.view.operations:
        job = seen.by_id.get((op["provider"], op["remote_job_id"]))
        is_judged = op["state"] in ("succeeded", "completed_with_errors", "cancelled")
        if job is None or not is_judged or not job.has_items or job.is_spoiled or job.also_told:
            continue
        if seen.asked(op, "accept", "adopt_job", "choose_job") or seen.wish(op).script.forgotten_after_ms is not None:
            continue
        ids = seen.wish(op).item_ids
        absent = {"expired": "expired", "cancelled": "cancelled"}.get(job.end or "", "missing")
        true = Counter(job.items.get(i, absent) for i in ids)
        words = ("succeeded", "failed", "cancelled", "expired", "missing")
        summary = op["living"].get("summary") or {}
        if {word: summary.get(word, 0) for word in words} != {word: true[word] for word in words}:
            yield f"{op['operation_id']} of {op['provider']} sums up {summary}, in truth {dict(true)}"


def n20_success_was_read(seen: Seen) -> Iterator[str]:
    """A good end was read with our key after it happened: of the job, its list or its result."""
    for op in seen.view.operations:
        job = seen.by_id.get((op["provider"], op["remote_job_id"]))
        if op["state"] not in ("succeeded", "completed_with_errors") or job is None or job.ended_ms is None:
            continue
        ended_ms = job.ended_ms
        reads = [a for a in seen.arrivals.get(op["trace_id"], ()) if _shows(a, ended_ms) and job.id in a.path]
        host = host_of(op["provider"])
        watch = seen.world.watches[op["provider"]]
        lists = [a for a in watch.arrivals if _shows(a, ended_ms) and a.path.rstrip("/").endswith("batches")]
        at_once = [a for a in watch.arrivals if a.is_create and ended_ms <= a.at_ms + 4_000]
        if not reads and not lists and not at_once:
            yield f"{op['operation_id']} is {op['state']}, and {host} was never asked after its end at {ended_ms}"


def _shows(arrival: Arrival, ended_ms: int) -> bool:
    is_good = arrival.status is not None and 200 <= arrival.status < 300 and not arrival.mischief
    return is_good and arrival.at_ms >= ended_ms


# ---- acknowledgements ------------------------------------------------------------------------------------------------


def n17_one_effect_an_event(seen: Seen) -> Iterator[str]:
    """An event stands once for each content, and moves an operation at most once."""
    stands = Counter((row["provider"], row["event_id"], row["body_sha256"]) for row in seen.view.events)
    yield from (f"{key} stands {n} times" for key, n in stands.items() if n > 1)
    for op in seen.view.operations:
        causes = Counter(row["cause"] for row in moves(seen.view, op) if row["cause"].startswith("event:"))
        yield from (f"{cause} moved {op['operation_id']} {n} times" for cause, n in causes.items() if n > 2)
    sent: Counter[tuple[str, bytes]] = Counter()
    for account in seen.world.accounts.values():
        for event in account.events:
            sent[account.creed.name, event.body] += event.attempts
    for row in seen.view.events:
        told, tries = 1 + row["duplicates"], sent.get((row["provider"], bytes(row["body"])))
        if tries is not None and told > tries:
            yield f"{row['event_id']} was counted {told} times and sent {tries} times"


def n18_acks_are_durable(seen: Seen) -> Iterator[str]:
    """What a client or a webhook's sender was told is in the file."""
    stored = {(row["provider"], bytes(row["body"])) for row in seen.view.events}
    senders: dict[str, DeclaredAccount | StandIn] = {**seen.world.accounts, **seen.world.standins}
    for name, account in senders.items():
        for event_id, delivered in account.acks:
            if (name, delivered) not in stored:
                yield f"the delivery {event_id} of {name} was acknowledged and is not there"
    known = {op["operation_id"]: op for op in seen.view.operations}
    for customer in seen.world.customers:
        told, started = customer.told, set(customer.told.started)
        yield from (f"the start of {one} was acknowledged and is not there" for one in started - set(known))
        if len(started) > 1:
            yield f"one key was answered with {sorted(started)}"
        body = told.body
        if body.get("done") and known[body["operation_id"]]["state"] != body["state"]:
            yield f"a client was told {body['state']}, the row says {known[body['operation_id']]['state']}"
        yield from (f"wish {customer.wish.number}: {words}" for words in told.surprises)


def n29_an_effect_once(seen: Seen) -> Iterator[str]:
    """Callbacks tell what was kept; a claim is given once to each consumer."""
    for customer in seen.world.customers:
        for consumer, statuses in customer.told.claims.items():
            if statuses.count(200) > 1:
                yield f"{consumer} claimed wish {customer.wish.number} {statuses.count(200)} times"
    receiver = seen.world.receiver
    assert receiver is not None
    bodies: dict[str, bytes] = {}
    for got in receiver.got:
        if got.row is None or got.row != (got.body, "waiting"):
            yield f"{got.event_id} was sent, and its committed row was {got.row and got.row[1]}"
        if bodies.setdefault(got.event_id, got.body) != got.body:
            yield f"{got.event_id} was sent with two bodies"
        if not got.is_signed and not seen.world.jumped:
            yield f"{got.event_id} was not signed by every secret, at the time of its attempt"
    for op in seen.view.operations:
        if "callback_url" in seen.wish(op).body:
            yield from invariants.told_of(seen.view, op)
    for row in seen.view.deliveries:
        if row["state"] == "delivered" and not receiver.effects.get(row["delivery_id"]):
            yield f"{row['delivery_id']} counts as delivered, and nobody took it"


def n32_only_what_is_open_is_decided(seen: Seen) -> Iterator[str]:
    """As many decisions stand in the history as people made, at most; a 409 made none."""
    for op in seen.view.operations:
        told = seen.customers[op["operation_id"]].told
        refused = sum(status == 409 for _, status in told.decisions)
        causes = {row["cause"] for row in seen.view.history[op["key"]] if row["cause"].startswith("decision:")}
        kept = {row["cause"] for row in seen.view.history[op["key"]] if row["kind"] != "refused"} & causes
        if len(kept) > len(told.asked) - refused:
            yield f"{op['operation_id']} keeps {len(kept)} decisions, {len(told.asked)} were asked, {refused} refused"


# ---- time ------------------------------------------------------------------------------------------------------------


def n21_polls_keep_their_distance(seen: Seen) -> Iterator[str]:
    """Two reads of one job in a row lie `base` apart, unless something rang in between."""
    if seen.world.jumped:
        return
    asked = _asked_at(seen)
    for trace_id, sends in seen.sends.items():
        reads = [s for s in sends if s.method == "GET" and s.row is not None and s.row["state"] in _POLLED]
        for one, two in itertools.pairwise(reads):
            assert one.row is not None
            assert two.row is not None
            if one.life != two.life or two.at_ms - one.at_ms >= _BASE_MS or one.row["state"] != two.row["state"]:
                continue
            if one.fault:
                continue  # a read is no effect: aiohttp may send it once more where its connection broke
            if any(one.at_ms <= at <= two.at_ms for at in asked[trace_id]):
                continue  # a person's decision is followed by a read at once
            if any(s.has_effect and one.at_ms <= s.at_ms <= two.at_ms and s not in (one, two) for s in sends):
                continue  # what was done in between is looked after
            if one.path != two.path or _rang(seen, two.host, one.at_ms - 65_000, two.at_ms):
                continue
            if two.row["deadline_at"] is not None and two.at_ms + 1_000 >= two.row["deadline_at"]:
                continue
            gap, op = two.at_ms - one.at_ms, two.row
            yield f"{op['operation_id']}: {two.path} was read {gap} ms after it was, in {op['state']}"


_POLLED: Final = frozenset(
    {"accepted", "observing", "blocked", "cancelling", "cancellation_unconfirmed", "create_unknown"}
)


def _asked_at(seen: Seen) -> defaultdict[str, list[int]]:
    """When people, or a deadline, moved each operation, by its trace."""
    asked: defaultdict[str, list[int]] = defaultdict(list)
    for op in seen.view.operations:
        causes = ("decision:", "cancel:", "input:", "deadline:")
        asked[op["trace_id"]] = [row["at"] for row in moves(seen.view, op) if row["cause"].startswith(causes)]
    return asked


def _rang(seen: Seen, host: str, since: int, until: int) -> bool:
    return any(since <= at <= until and host_of(name) == host for at, name in seen.world.rings)


def n21_retry_after_is_kept(seen: Seen) -> Iterator[str]:
    """After a 429 or 503 with a wait that was surely heard, that provider is left alone so long."""
    if seen.world.jumped:
        return
    for name, watch in seen.world.watches.items():
        host = host_of(name)
        sends = [s for s in seen.world.sends if s.host == host]
        for arrival in watch.arrivals:
            if not arrival.mischief.endswith("_wait"):
                continue
            own = [s for s in sends if (s.at_ms, s.trace_id, s.path) == (arrival.at_ms, arrival.trace_id, arrival.path)]
            if len(own) != 1 or own[0].fault:
                continue
            until = arrival.at_ms + 1_000 * arrival.wait_seconds
            early = [s for s in sends if arrival.at_ms < s.at_ms < until and s.life == own[0].life]
            early = [s for s in early if _claimed_at(s) > arrival.at_ms]  # an action that had begun comes to its end
            yield from (
                f"{s.method} {s.path} left {until - s.at_ms} ms before {name} would be asked" for s in early[:1]
            )


def _claimed_at(send: Send) -> int:
    """When the action began that sent it; a list has no row, and is read a page at a time."""
    until = send.row["lease_until"] if send.row is not None else None
    return send.at_ms if until is None else until - LEASE_MS


def n22_a_deadline_is_a_wall_clock(seen: Seen) -> Iterator[str]:
    """Nothing is timed out before its time, nor without one last try to read it."""
    for op in seen.view.operations:
        deadlines: dict[str, int | None] = {}
        for row in facts(seen.view, op):
            if row["kind"] == "move" and row["to_state"] == "result_timed_out":
                name = row["cause"].partition(":")[2] if row["cause"].startswith("deadline:") else "result"
                due = deadlines.get(name)
                if due is not None and row["at"] < due:
                    yield f"{op['operation_id']} was timed out at {row['at']}, {due - row['at']} ms early"
            deadlines |= row["facts"].get("deadlines", {})


def n22_after_one_last_read(seen: Seen) -> Iterator[str]:
    """Where nothing is broken, a job is read once its time is over, before that is said of it."""
    if not _is_calm(seen):
        return
    for op in seen.view.operations:
        due: int | None = None
        for row in facts(seen.view, op):
            if row["kind"] == "move" and row["cause"] == "deadline:result" and row["to_state"] == "result_timed_out":
                own = [s.at_ms for s in seen.sends.get(op["trace_id"], ()) if s.method == "GET"]
                lists = [s.at_ms for s in seen.world.sends if s.host == host_of(op["provider"]) and _is_list(s)]
                # A read that was under way when its time was over is the last one.
                if due is not None and not any(due - 1_000 <= at <= row["at"] for at in (*own, *lists)):
                    yield f"{op['operation_id']} was timed out at {row['at']} without a read since {due}"
            due = row["facts"].get("deadlines", {"result": due}).get("result")


def _is_list(send: Send) -> bool:
    return send.method == "GET" and send.path.endswith("batches")


def _is_calm(seen: Seen) -> bool:
    """Whether networks and providers did what they should, all the time, and the clock as well."""
    plan = seen.world.plan
    return not (plan.bad_until or plan.outages or seen.world.jumped)


def n21_a_good_read_resets_the_budget(seen: Seen) -> Iterator[str]:
    """Nobody is told that reads keep failing where one of the last `error_budget` was surely answered well."""
    for op in seen.view.operations:
        if op["provider"] in ("openai", "anthropic"):
            continue  # their lists are reads too
        good = _surely_answered(seen, op["trace_id"])
        for row in moves(seen.view, op):
            if row["to_state"] != "observation_failed" or "reads in a row failed" not in row["reason"]:
                continue
            reads = [s for s in seen.sends.get(op["trace_id"], ()) if s.method == "GET" and "/job_" in s.path]
            last = [s for s in reads if s.at_ms <= row["at"]][-POLL["error_budget"] :] if not seen.world.jumped else []
            answered = [s.at_ms for s in last if (s.at_ms, s.method, s.path) in good]
            if answered:
                yield f"{op['operation_id']}: {row['reason']}, and those at {answered} were answered well"


def n21_a_good_read_leaves_no_errors(seen: Seen) -> Iterator[str]:
    """After a read that was surely answered well the row counts no error, as its next request finds it."""
    if seen.world.jumped:
        return
    for trace_id, sends in seen.sends.items():
        good = _surely_answered(seen, trace_id)
        for one, two in itertools.pairwise(sends):
            if one.life != two.life or "/job_" not in one.path or (one.at_ms, one.method, one.path) not in good:
                continue
            if any(one.at_ms <= at <= two.at_ms and host == one.host for at, host in seen.world.refused):
                continue  # a read that never left is an error too
            stood = [send.row["state"] if send.row is not None else "" for send in (one, two)]
            if two.row is not None and one.method == "GET" and set(stood) <= _POLLED and two.row["errors"]:
                yield f"{two.row['operation_id']} was read well at {one.at_ms} and counted {two.row['errors']} errors"


def n19_an_event_finds_its_operation(seen: Seen) -> Iterator[str]:
    """What was told of a job stands with the operation that holds it, also where it came before the job was known."""
    holders = {(op["provider"], op["remote_job_id"]): op for op in seen.view.operations if op["state"] not in _GIVEN_UP}
    for row in seen.view.events:
        op = holders.get((row["provider"], row["remote_job_id"]))
        if op is not None and row["operation_key"] is None:
            yield f"the event {row['event_id']} of {row['remote_job_id']} never came to {op['operation_id']}"


def n19_a_ring_is_answered(seen: Seen) -> Iterator[str]:
    """Where nothing is broken, a ring is followed by a read that began after it, whatever was under way."""
    if not _is_calm(seen) or len(seen.world.lives) > 1:
        return
    senders: dict[str, DeclaredAccount | StandIn] = {**seen.world.accounts, **seen.world.standins}
    for name, account in senders.items():
        for job_id, at in account.rung:
            job = seen.by_id.get((name, job_id))
            ops = [op for op in seen.view.operations if (op["provider"], op["remote_job_id"]) == (name, job_id)]
            if job is None or len(ops) != 1:
                continue
            if not seen.at_the_end and at + _ANSWERED_MS > seen.world.now_ms:
                continue  # the process died before the read was due
            walk = moves(seen.view, ops[0])
            stood = next((row["to_state"] for row in reversed(walk) if row["at"] <= at), None)
            is_over = any(row["at"] <= at + _ANSWERED_MS and row["to_state"] not in _POLLED for row in walk[1:])
            reads = [s for s in seen.sends.get(ops[0]["trace_id"], ()) if at <= s.at_ms <= at + _ANSWERED_MS]
            if stood in _POLLED and not is_over and not reads:
                yield f"{name} told of {job_id} at {at}, and it was not read after that"


#: A ring is answered by a read within so long, ms: reads under way take less.
_ANSWERED_MS: Final = 2_000


def n23_something_always_comes_next(seen: Seen) -> Iterator[str]:
    """An open row has a next action with a time in reach, or a question with a deadline."""
    if seen.world.jumped:
        return
    reach = seen.world.now_ms + 3_600_000 + LEASE_MS
    for op in seen.view.operations:
        plan = seen.view.schedule.get(op["key"])
        if State(op["state"]) in TERMINAL or plan is None:
            continue
        deadlines = op["living"].get("deadlines", {})
        if op["living"].get("attention") and deadlines.get("attention") is None and op["state"] != "blocked":
            yield f"{op['operation_id']} waits in {op['state']} for a person, for ever"
        elif min(plan["due_at"], plan["deadline_at"] or plan["due_at"]) > reach:
            yield f"{op['operation_id']} in {op['state']} is due only at {plan['due_at']}"


def n28_all_or_nothing(seen: Seen) -> Iterator[str]:
    """What one decision writes stands together: row, history, schedule, items, client key."""
    view = seen.view
    keys = Counter(row["operation_key"] for row in view.client_keys)
    for op in view.operations:
        if len(view.history[op["key"]]) != op["seq"]:
            yield f"{op['operation_id']} says {op['seq']} history rows, there are {len(view.history[op['key']])}"
        is_done = State(op["state"]) in TERMINAL
        if is_done == (op["key"] in view.schedule):
            yield f"{op['operation_id']} is {op['state']} and {'has a' if is_done else 'has no'} schedule row"
        if keys[op["key"]] != 1:
            yield f"{op['operation_id']} and its client key do not stand together"
            continue
        if op["provider"] in ("openai", "anthropic"):
            submitted = sorted(row["item_id"] for row in view.items[op["key"]] if row["attempt"] == 0)
            if submitted != sorted(seen.wish(op).item_ids):
                yield f"{op['operation_id']} keeps the submitted ids {submitted}"
    if not set(view.schedule) <= {op["key"] for op in view.operations}:
        yield "a schedule row has no operation"


# ---- the end ---------------------------------------------------------------------------------------------------------


def n23_it_ends(seen: Seen) -> Iterator[str]:
    """With nothing broken any more, all is done within the bounds of its deadlines and of what people added to them."""
    yield from (f"life {life.number} waited in vain for its end" for life in seen.world.lives if life.stalled)
    calm_ms = round(seen.world.calm_since * 1000) + 1_800_000_000_000
    for op in seen.view.operations:
        if State(op["state"]) not in TERMINAL:
            yield f"{op['operation_id']} still stands in {op['state']}"
        elif not seen.world.jumped:
            rounds = 2 + len(seen.customers[op["operation_id"]].told.asked)
            bound = rounds * (_LONGEST_MS + _ATTENTION_MS + LEASE_MS + _SWEEP_MS + _CAP_MS)
            late = op["completed_at"] - max(op["created_at"], calm_ms) - bound
            if late > 0:
                yield f"{op['operation_id']} came to its end {late} ms later than it may"


def everybody_was_told(seen: Seen) -> Iterator[str]:
    """Each wish was started and came to its end; nothing waits in the outbox; and no life had troubles of its own."""
    for customer in seen.world.customers:
        if not customer.told.started or not customer.told.body.get("done"):
            yield f"wish {customer.wish.number} was never told its end"
    for row in seen.view.deliveries:
        if row["state"] == "waiting":
            yield f"{row['delivery_id']} still waits"
    for life in seen.world.lives:
        yield from (f"life {life.number}: {words}" for words in life.troubles if life.ended)


def of_the_record(rule: Callable[[View], Iterator[str]]) -> Callable[[Seen], Iterator[str]]:
    """A rule that looks at the file alone."""
    return lambda seen: rule(seen.view)


RULES: Final[Mapping[str, Callable[[Seen], Iterator[str]]]] = {
    "N1": n1_a_row_before_each_send,
    "N2": n2_creates_are_equal,
    "N3": n3_one_job,
    "N3 (told)": n3_two_jobs_are_told,
    "N4": n4_names_differ,
    "N5": n5_a_job_id_is_written_once,
    "N6": n6_a_refusal_is_the_end,
    "N7": of_the_record(invariants.n7_moves_are_legal),
    "N8": of_the_record(invariants.n8_one_end),
    "N9": n9_causes_exist,
    "N10": n10_ends_fit_their_counts,
    "N11": n11_no_end_against_the_truth,
    "N12": n12_items_add_up,
    "N15": n15_a_cancel_is_a_wish,
    "N15 (inputs)": inputs_are_sent_once,
    "N17": n17_one_effect_an_event,
    "N18": n18_acks_are_durable,
    "N20": n20_success_was_read,
    "N21": n21_polls_keep_their_distance,
    "N21 (Retry-After)": n21_retry_after_is_kept,
    "N19": n19_an_event_finds_its_operation,
    "N19 (rings)": n19_a_ring_is_answered,
    "N21 (budget)": n21_a_good_read_resets_the_budget,
    "N21 (errors)": n21_a_good_read_leaves_no_errors,
    "N22": n22_a_deadline_is_a_wall_clock,
    "N22 (last read)": n22_after_one_last_read,
    "N23": n23_something_always_comes_next,
    "N26": of_the_record(invariants.n26_the_chain_holds),
    "N27": of_the_record(invariants.n27_history_folds_to_the_row),
    "N28": n28_all_or_nothing,
    "N29": n29_an_effect_once,
    "N31": n31_a_violation_stops_everything,
    "N32": n32_only_what_is_open_is_decided,
    "N38": n38_credentials_stay_home,
}
ENDINGS: Final[Mapping[str, Callable[[Seen], Iterator[str]]]] = {"N23": n23_it_ends, "N18": everybody_was_told}
