"""What must always hold, one function a rule: each gives the words of its violations, in order.

They compare the file as it stands between two lives with what happened outside the process: the provider's own jobs,
uploads and log of requests, what the client was told, what the webhook's sender was told. The file is never believed
by itself. Rules on roads that are not walked here (inbox decisions) have no function.
"""

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from reconcile.chain import ChainedRow
from reconcile.errors import RecordDamaged
from reconcile.states import REASON_OF, TERMINAL, TRANSITIONS, State
from reconcile.store.audit import verify as audit
from reconcile.store.looking import look_at
from tests.reconcile.chains import verify
from tests.simulation.client import CREATE_WITHIN_MS, ITEM_IDS, NAME, REQUEST
from tests.simulation.provider import OPERATION_KEY, Arrival
from tests.simulation.view import Row, View, facts, load, moves
from tests.simulation.world import LEASE_MS, PATIENCE_SECONDS, SimWorld

#: How long the provider may need for a job and for the last of its webhooks, ms: both bounds of the scenarios here.
PROVIDER_MS: Final = 120_000
_JOB_PATH: Final = re.compile(r"/v1/batches/([^/]+)(?:/cancel)?")
_FILE_PATH: Final = re.compile(r"/v1/files/([^/]+)/content")
#: Answers to a create that made no job; the same create may follow (B1).
_SURELY_NO_JOB: Final = frozenset({401, 429})
_MANY_JOBS_ARE_TOLD: Final = frozenset({"contract_violation", "create_unresolved"})


def check(world: SimWorld, *, at_the_end: bool) -> list[str]:
    """All rules on the world as it stands; `at_the_end`: the story is over and nothing was left broken."""
    if not world.database.exists():
        told = [*world.client.started, *world.provider.log.acks, *world.provider.log.creates]
        return [f"N18: {told} was acknowledged or sent, and there is no file"] if told else []
    view = load(world)
    found = [f"{name}: {words}" for name, rule in RULES.items() for words in rule(view)]
    if at_the_end:
        found += [f"N23: {words}" for words in n23_it_ends(view)]
        found += [f"N29: {words}" for words in n29_all_are_told(view)]
        found += [f"life {life.number}: {words}" for life in world.lives if life.ended for words in life.troubles]
    return found


# ---- creates and jobs ------------------------------------------------------------------------------------------------


def n1_a_create_has_its_row(view: View) -> Iterator[str]:
    """At its arrival a committed row with its mark, its uploaded file, a token and the right fingerprint existed."""
    for create in view.world.provider.log.creates:
        row = create.row
        if row is None:
            yield f"a create arrived for {create.body.get('metadata')}, which no committed row knows"
            continue
        metadata = {k: v for k, v in create.body["metadata"].items() if k != OPERATION_KEY}
        asked = {k: v for k, v in create.body.items() if k != "input_file_id"} | {"metadata": metadata}
        whole = {
            "provider": NAME,
            "kind": "openai_batch",
            "request": asked,
            "input": hashlib.sha256(create.input).hexdigest(),
        }
        spelled = json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        if row["fingerprint"] != hashlib.sha256(spelled.encode()).hexdigest():
            yield f"the create of {row['operation_id']} is not the one that its row's fingerprint stands for"
        if asked != {**REQUEST, "completion_window": "24h"}:
            yield f"the create of {row['operation_id']} is not what the client asked for: {asked}"
        if [json.loads(line)["custom_id"] for line in create.input.splitlines()] != list(ITEM_IDS):
            yield f"the input of {row['operation_id']} does not hold the client's items"
        if json.loads(row["living"]).get("steps") != {"upload": create.body["input_file_id"]}:
            yield f"the row of {row['operation_id']} does not name the file that its create names"
        if not row["token"] or row["mark_at"] is None or row["state"] != "create_pending":
            yield f"the create of {row['operation_id']} left without a committed send mark ({row['state']})"


def n2_creates_are_equal(view: View) -> Iterator[str]:
    """All creates of one operation are the same bytes; tokens are unique."""
    bodies: defaultdict[str, set[bytes]] = defaultdict(set)
    for arrival in _creates(view):
        bodies[str(json.loads(arrival.body)["metadata"][OPERATION_KEY])].add(arrival.body)
    yield from (
        f"{op} was created with {len(found)} different bodies" for op, found in bodies.items() if len(found) > 1
    )
    tokens = Counter(op["token"] for op in view.operations)
    yield from (f"{n} operations bear the token {token}" for token, n in tokens.items() if n > 1)


def n3_one_job(view: View) -> Iterator[str]:
    """At most one job, and without an honoured token at most one create that may have arrived, and one a permission."""
    known = {op["operation_id"]: op for op in view.operations}
    may_have_arrived = (arrival for arrival in _creates(view) if arrival.status not in _SURELY_NO_JOB)
    sent = Counter(str(json.loads(arrival.body)["metadata"][OPERATION_KEY]) for arrival in may_have_arrived)
    for job in view.world.provider.truth().jobs:
        if (job.metadata or {}).get(OPERATION_KEY) not in known:
            yield f"the job {job.id} is nobody's: {job.metadata}"
    for operation_id, op in known.items():
        jobs = view.jobs(op)
        if len(jobs) > 1 and op["state"] not in _MANY_JOBS_ARE_TOLD:
            yield f"{operation_id} has {len(jobs)} jobs and stands in {op['state']}"
        if sent[operation_id] > 1 + op["living"].get("resends", 0):
            yield f"{sent[operation_id]} creates of {operation_id} may have made a job"


def n4_names_differ(view: View) -> Iterator[str]:
    """The four ids of an operation differ, and each request bears the trace id of its operation and no other."""
    traces = {op["trace_id"]: op for op in view.operations}
    for op in view.operations:
        names = [op["operation_id"], op["token"], op["trace_id"], op["remote_job_id"]]
        if len(set(names)) < 4:
            yield f"two of these are one: {names}"
    for arrival in view.world.provider.log.arrivals:
        op_of_trace = traces.get(arrival.trace_id)
        if op_of_trace is None:
            yield f"{arrival.method} {arrival.path} bears the trace {arrival.trace_id!r}, which is no operation's"
        elif (owner := _owner(view, arrival)) not in (None, op_of_trace["operation_id"]):
            bearer = op_of_trace["operation_id"]
            yield f"{arrival.method} {arrival.path} belongs to {owner} and bears the trace of {bearer}"
        if not arrival.is_authenticated:
            yield f"{arrival.method} {arrival.path} came without the key"


def _owner(view: View, arrival: Arrival) -> str | None:
    if arrival.body:
        return str(json.loads(arrival.body)["metadata"][OPERATION_KEY])
    job_path, file_path = _JOB_PATH.fullmatch(arrival.path), _FILE_PATH.fullmatch(arrival.path)
    for job in view.world.provider.truth().jobs:
        is_job = job_path is not None and job_path[1] == job.id
        is_file = file_path is not None and file_path[1] in (job.output_file_id, job.error_file_id)
        if is_job or is_file:
            return (job.metadata or {}).get(OPERATION_KEY)
    return None


def _creates(view: View) -> list[Arrival]:
    return [arrival for arrival in view.world.provider.log.arrivals if arrival.body]


def n5_a_job_id_is_written_once(view: View) -> Iterator[str]:
    """The held job is the provider's own for this operation, named once in the history, and held by nobody else."""
    held = Counter(op["remote_job_id"] for op in view.operations if op["state"] not in ("timed_out", "abandoned"))
    for op in view.operations:
        told = [row["facts"]["remote_job_id"] for row in facts(view, op) if "remote_job_id" in row["facts"]]
        if list(dict.fromkeys(told)) != ([None, op["remote_job_id"]] if op["remote_job_id"] else [None]):
            yield f"{op['operation_id']} holds {op['remote_job_id']}, its history says {told}"
        if op["remote_job_id"] is not None:
            if op["remote_job_id"] not in [job.id for job in view.jobs(op)]:
                yield f"{op['operation_id']} holds {op['remote_job_id']}, which is not its job"
            if held[op["remote_job_id"]] > 1:
                yield f"{op['remote_job_id']} is held by {held[op['remote_job_id']]} operations"


# ---- history ---------------------------------------------------------------------------------------------------------


def n7_moves_are_legal(view: View) -> Iterator[str]:
    """Each move begins where the last one ended and is an arrow of the table."""
    for op in view.operations:
        standing: str | None = None
        for row in moves(view, op):
            if row["from_state"] != standing:
                yield f"{op['operation_id']} seq {row['seq']} starts in {row['from_state']}, not in {standing}"
            first = "accepted" if op["living"].get("adopted") else "create_pending"
            legal = {first} if standing is None else {s.value for s in TRANSITIONS[State(standing)]}
            if row["to_state"] not in legal:
                yield f"{op['operation_id']} seq {row['seq']}: no arrow from {standing} to {row['to_state']}"
            standing = row["to_state"]


def n8_one_end(view: View) -> Iterator[str]:
    """A terminal state is entered once at most, and contradictions are counted."""
    for op in view.operations:
        ends = [row["to_state"] for row in moves(view, op) if State(row["to_state"]) in TERMINAL]
        if len(ends) > 1:
            yield f"{op['operation_id']} ended {len(ends)} times: {ends}"
        against = sum(row["kind"] == "contradiction" for row in view.history[op["key"]])
        if against != op["living"].get("contradictions", 0):
            yield f"{op['operation_id']} counts {op['living'].get('contradictions', 0)} contradictions of {against}"


def n9_causes_exist(view: View) -> Iterator[str]:
    """What a move names as its cause is there."""
    for op in view.operations:
        for row in moves(view, op):
            kind, _, name = row["cause"].partition(":")
            if name not in view.causes.get(kind, ()):
                yield f"{op['operation_id']} seq {row['seq']} was caused by {row['cause']}, which does not exist"


def n26_the_chain_holds(view: View) -> Iterator[str]:
    """Each chain verifies up to the head that its row keeps; positions have no gap; and `audit verify` agrees."""
    positions = sorted(row["position"] for rows in view.history.values() for row in rows)
    if positions != list(range(1, len(positions) + 1)):
        yield f"positions with a gap: {positions}"
    for op in view.operations:
        names = ("position", "seq", "at", "actor", "kind", "from_state", "to_state", "cause", "remote_job_id", "reason")
        chain = [
            (ChainedRow(operation_id=op["operation_id"], facts=row["facts"], **{n: row[n] for n in names}), row["hash"])
            for row in view.history[op["key"]]
        ]
        fault = verify(chain, head=op["head"], length=op["seq"])
        if fault is not None:
            yield fault
    try:
        if view.operations:
            look_at(view.world.database, audit.verify)
    except RecordDamaged as damage:
        yield f"the record does not verify: {damage}"


def n27_history_folds_to_the_row(view: View) -> Iterator[str]:
    """State, job, outcome and deadlines follow from the history alone."""
    for op in view.operations:
        folded: Row = {"remote_job_id": None, "outcome": None, "deadlines": {}, "state": None}
        for row in facts(view, op):
            folded |= {k: v for k, v in row["facts"].items() if k in ("remote_job_id", "outcome", "deadlines")}
            folded |= {"state": row["to_state"]} if row["kind"] == "move" else {}
        folded["deadlines"] = {name: at for name, at in folded["deadlines"].items() if at is not None}
        stands = {
            "remote_job_id": op["remote_job_id"],
            "outcome": op["state"] if State(op["state"]) in TERMINAL else None,
            "deadlines": op["living"].get("deadlines", {}),
            "state": op["state"],
        }
        if folded != stands:
            yield f"{op['operation_id']} stands as {stands}, its history folds to {folded}"


def n28_all_or_nothing(view: View) -> Iterator[str]:
    """What one decision writes stands together: row, history, schedule, items, client key."""
    for op in view.operations:
        if len(view.history[op["key"]]) != op["seq"]:
            yield f"{op['operation_id']} says {op['seq']} history rows, there are {len(view.history[op['key']])}"
        is_done = State(op["state"]) in TERMINAL
        if is_done == (op["key"] in view.schedule):
            yield f"{op['operation_id']} is {op['state']} and {'has a' if is_done else 'has no'} schedule row"
        submitted = [row["item_id"] for row in view.items[op["key"]] if row["attempt"] == 0]
        if sorted(submitted) != sorted(ITEM_IDS):
            yield f"{op['operation_id']} keeps the submitted ids {submitted}"
        if [row["operation_key"] for row in view.client_keys].count(op["key"]) != 1:
            yield f"{op['operation_id']} and its client key do not stand together"
    known = {op["key"] for op in view.operations}
    if not set(view.schedule) <= known:
        yield "a schedule row has no operation"


# ---- ends and truth --------------------------------------------------------------------------------------------------


def n10_ends_fit_their_counts(view: View) -> Iterator[str]:
    """Success has a whole, collected result; "with errors" has some of each; the files are there and are the bytes."""
    for op in view.operations:
        summary, result = op["living"].get("summary"), op["living"].get("result")
        if op["state"] not in ("succeeded", "completed_with_errors"):
            continue
        if summary is None or result is None or result.get("problems"):
            yield f"{op['operation_id']} is {op['state']} without a valid result: {result}"
            continue
        if summary["total"] != len(ITEM_IDS) or result["items"] != len(ITEM_IDS):
            yield f"{op['operation_id']} is {op['state']} with {summary['total']} of {len(ITEM_IDS)} items"
        if (op["state"] == "succeeded") != (summary["succeeded"] == summary["total"]) or not summary["succeeded"]:
            yield f"{op['operation_id']} is {op['state']} with {summary}"
        data = b"".join(
            (view.world.state_dir / name).read_bytes()
            for name in result["files"]
            if name not in result.get("indexes", ())
        )
        if (len(data), hashlib.sha256(data).hexdigest()) != (result["bytes"], result["sha256"]):
            yield f"{op['operation_id']} keeps other bytes than it recorded"


def n11_no_end_against_the_truth(view: View) -> Iterator[str]:
    """An outcome is what really happened to the job."""
    for op in view.operations:
        if State(op["state"]) not in TERMINAL or op["state"] in ("timed_out", "abandoned"):
            continue
        jobs = view.jobs(op)
        if not jobs and op["state"] in ("failed", "cancelled"):
            continue  # never sent, refused, or withdrawn (N15)
        ends = {_true_outcome(view, job) for job in jobs}
        if ends != {op["state"]}:
            yield f"{op['operation_id']} is {op['state']}; in truth its job came to {ends or 'nothing: there is none'}"


def _true_outcome(view: View, job: Any) -> str:
    words = set(view.world.provider.item_outcomes(job).values())
    match job.status:
        case "completed" if len(words) == 1:
            return str(*words)
        case "completed":
            return "completed_with_errors"
        case "expired":
            return "completed_with_errors" if "succeeded" in words else "failed"
        case status:
            return str(status)


def n12_items_add_up(view: View) -> Iterator[str]:
    """Each submitted id stands once in what is served, with the outcome that the provider gave it."""
    for op in view.operations:
        attempt = op["living"].get("collect_attempt", 0)
        served = [row for row in view.items[op["key"]] if row["attempt"] == attempt]
        if op["state"] not in ("succeeded", "completed_with_errors", "cancelled") or not attempt:
            continue
        found = [(row["item_id"], row["outcome"]) for row in served]
        true = sorted(view.world.provider.item_outcomes(view.jobs(op)[0]).items())
        if sorted(found) != true or {item_id for item_id, _ in found} != set(ITEM_IDS):
            yield f"{op['operation_id']} serves {found}, in truth {true}"
        counted = Counter(outcome for _, outcome in found)
        words = ("succeeded", "failed", "cancelled", "expired", "missing")
        if {word: op["living"]["summary"].get(word, 0) for word in words} != {word: counted[word] for word in words}:
            yield f"{op['operation_id']} sums up {op['living']['summary']}, its items are {dict(counted)}"


def n15_a_cancel_is_a_wish(view: View) -> Iterator[str]:
    """Recorded before it is sent, sent once, kept once acknowledged; withdrawn only where nothing was ever sent."""
    log = view.world.provider.log
    for row in log.cancels:
        if row is None or row["state"] != "cancel_requested" or row["mark_at"] is None:
            yield f"a cancel left without a committed intent and send mark: {row and (row['state'], row['mark_at'])}"
    if len(log.cancels) > 1:
        yield f"{len(log.cancels)} cancels reached the provider"
    for op in view.operations:
        if op["state"] == "cancelled" and op["remote_job_id"] is None and _creates(view):
            yield f"{op['operation_id']} was withdrawn after a create had left"
        if 202 in view.world.client.cancels and not op["living"].get("cancel"):
            yield f"the cancel of {op['operation_id']} was acknowledged and is not there"


def n20_success_was_read(view: View) -> Iterator[str]:
    """An end was read with our key after it happened, and after the event that announced it was taken."""
    log = view.world.provider.log
    for op in view.operations:
        collecting = next((row for row in moves(view, op) if row["to_state"] == "result_collecting"), None)
        if collecting is None:
            if op["state"] in ("succeeded", "completed_with_errors"):
                yield f"{op['operation_id']} is {op['state']} and never collected"
            continue
        job = view.jobs(op)[0]
        ended_at = job.states[-1][1]
        reads = [a for a in log.arrivals if a.method == "GET" and a.status == 200 and ended_at <= a.at_ms]
        of_job = [a for a in reads if a.path in (f"/v1/batches/{job.id}", "/v1/batches")]
        if not any(a.at_ms <= collecting["at"] for a in of_job):
            yield f"{op['operation_id']} was collected at {collecting['at']}, before any read of its end ({ended_at})"
        fetched = {a.path for a in reads}
        files = [name for name in (job.output_file_id, job.error_file_id) if name]
        if op["state"] in ("succeeded", "completed_with_errors"):
            yield from (
                f"{op['operation_id']} ended without a fetch of {name}"
                for name in files
                if f"/v1/files/{name}/content" not in fetched
            )


# ---- acknowledgements ------------------------------------------------------------------------------------------------


def n17_one_effect_an_event(view: View) -> Iterator[str]:
    """An event stands once, counts its repeats, and moves an operation at most once."""
    attempts = {event.event_id: event.attempts for event in view.world.provider.truth().events}
    acks = Counter(ack.event_id for ack in view.world.provider.log.acks)
    for row in view.events:
        told = 1 + row["duplicates"]
        if not acks[row["event_id"]] <= told <= attempts.get(row["event_id"], 0):
            yield (
                f"{row['event_id']} was counted {told} times, sent {attempts.get(row['event_id'])} times and"
                f" taken {acks[row['event_id']]} times"
            )
    for event_id, n in Counter(row["event_id"] for row in view.events).items():
        if n > 1:
            yield f"{event_id} stands {n} times"
    causes = Counter(row["cause"] for op in view.operations for row in moves(view, op))
    yield from (f"{cause} moved {n} times" for cause, n in causes.items() if cause.startswith("event:") and n > 1)


def n18_acks_are_durable(view: View) -> Iterator[str]:
    """What a client or the webhook's sender was told is in the file."""
    stored = {(row["event_id"], bytes(row["body"])) for row in view.events}
    for ack in view.world.provider.log.acks:
        if (ack.event_id, ack.body) not in stored:
            yield f"the delivery {ack.event_id} was acknowledged and is not there"
    known = {op["operation_id"] for op in view.operations}
    for operation_id in view.world.client.started:
        if operation_id not in known:
            yield f"the start of {operation_id} was acknowledged and is not there"
    if len(set(view.world.client.started)) > 1 or len(known) > 1:
        yield f"one key stands for {known}, the client was told {view.world.client.started}"
    body = view.world.client.body
    stands = {op["operation_id"]: op["state"] for op in view.operations}
    if body.get("done") and stands.get(body["operation_id"]) != body["state"]:
        yield f"the client was told {body['state']}, the row says {stands.get(body['operation_id'])}"


# ---- callbacks -------------------------------------------------------------------------------------------------------


def n29_callbacks_tell_what_was_kept(view: View) -> Iterator[str]:
    """None before the commit of its move, the same id and bytes each time; taken, or waiting, or told to a person."""
    if view.world.receiver is None:
        return
    bodies: dict[str, bytes] = {}
    for got in view.world.receiver.got:
        if got.row is None:
            yield f"{got.event_id} was sent, and no committed row has told of it"
        elif got.row != (got.body, "waiting"):
            yield f"{got.event_id} was sent with other bytes than its row's, or stood as {got.row[1]}"
        if bodies.setdefault(got.event_id, got.body) != got.body:
            yield f"{got.event_id} was sent with two bodies"
        if not got.is_signed:
            yield f"{got.event_id} was not signed by every secret, at the time of its attempt"
    for op in view.operations:
        yield from told_of(view, op)
    for row in view.deliveries:
        if row["state"] == "delivered" and not view.world.receiver.effects.get(row["delivery_id"]):
            yield f"{row['delivery_id']} counts as delivered, and nobody took it"
        if row["state"] == "exhausted" and f"callback_exhausted.{owner_of(view, row)}" not in notices(view):
            yield f"{row['delivery_id']} was given up, and nobody is told"


def told_of(view: View, op: Row) -> Iterator[str]:
    """One delivery for each question that was not only passed, and one for the end, with the body of that state."""
    asks_or_ends = {state.value for state in TERMINAL} | set(REASON_OF)
    walked = [row for row in facts(view, op) if row["kind"] == "move" and not row["facts"].get("passing")]
    moved = Counter((row["to_state"], row["at"]) for row in walked if row["to_state"] in asks_or_ends)
    # A question that the same decision left again was asked of nobody.
    left = Counter((one["to_state"], one["at"]) for one, two in pairwise(walked) if one["at"] == two["at"])
    told = []
    for row in view.deliveries:
        if row["operation_key"] == op["key"]:
            body = json.loads(row["body"])
            told.append((body["data"]["state"], row["created_at"]))
            is_end = State(body["data"]["state"]) in TERMINAL
            if row["type"] != ("operation.done" if is_end else "operation.needs_attention"):
                yield f"{row['delivery_id']} is a {row['type']} of {body['data']['state']}"
            if body["data"]["operation_id"] != op["operation_id"] or body["type"] != row["type"]:
                yield f"{row['delivery_id']} of {op['operation_id']} speaks of something else"
    if Counter(told) - moved or moved - left - Counter(told):
        yield f"{op['operation_id']} came to {sorted(moved)}, and callbacks are told {told}"


def owner_of(view: View, row: Row) -> str:
    return next(str(op["operation_id"]) for op in view.operations if op["key"] == row["operation_key"])


def notices(view: View) -> set[str]:
    return {row["notice_id"] for row in view.notices if row["acknowledged_at"] is None}


def n29_all_are_told(view: View) -> Iterator[str]:
    """At the end nothing waits, and whoever drops repeats had each effect once."""
    receiver = view.world.receiver
    for row in view.deliveries if receiver is not None else ():
        if row["state"] == "waiting":
            yield f"{row['delivery_id']} still waits"
        if row["state"] == "delivered" and receiver is not None and row["delivery_id"] not in receiver.answered:
            yield f"{row['delivery_id']} counts as delivered without an answer"


# ---- liveness --------------------------------------------------------------------------------------------------------


def n23_something_always_comes_next(view: View) -> Iterator[str]:
    """An open row has a next action with a time in reach, or a question with a deadline."""
    reach = view.world.now_ms + _longest_wait_ms(view) + LEASE_MS
    for op in view.operations:
        plan = view.schedule.get(op["key"])
        if State(op["state"]) in TERMINAL or plan is None:
            continue
        deadlines = op["living"].get("deadlines", {})
        if op["living"].get("attention"):
            if deadlines.get("attention") is None:
                yield f"{op['operation_id']} waits in {op['state']} for a person, for ever"
        elif plan["due_at"] > reach:
            yield f"{op['operation_id']} in {op['state']} is due only at {plan['due_at']}"


def _longest_wait_ms(view: View) -> int:
    poll = view.world.config.providers[NAME].provider.contract.poll
    return max(poll.cap_ms, poll.sweep_ms)


def n23_it_ends(view: View) -> Iterator[str]:
    """With nothing broken any more all is done, or in the inbox, within the bounds."""
    for life in view.world.lives:
        if life.stalled:
            yield f"life {life.number} waited {PATIENCE_SECONDS} s for its end in vain"
    begun = view.world.lives[-1].began_ms
    bound = max(CREATE_WITHIN_MS, PROVIDER_MS) + LEASE_MS + 2 * _longest_wait_ms(view)
    for op in view.operations:
        if State(op["state"]) not in TERMINAL and not op["living"].get("attention"):
            yield f"{op['operation_id']} still stands in {op['state']}"
        elif (late := moves(view, op)[-1]["at"] - max(op["created_at"], begun) - bound) > 0:
            yield f"{op['operation_id']} came to its end {late} ms later than it may"


RULES: Final[Mapping[str, Callable[[View], Iterator[str]]]] = {
    "N1": n1_a_create_has_its_row,
    "N2": n2_creates_are_equal,
    "N3": n3_one_job,
    "N4": n4_names_differ,
    "N5": n5_a_job_id_is_written_once,
    "N7": n7_moves_are_legal,
    "N8": n8_one_end,
    "N9": n9_causes_exist,
    "N10": n10_ends_fit_their_counts,
    "N11": n11_no_end_against_the_truth,
    "N12": n12_items_add_up,
    "N15": n15_a_cancel_is_a_wish,
    "N17": n17_one_effect_an_event,
    "N18": n18_acks_are_durable,
    "N20": n20_success_was_read,
    "N23": n23_something_always_comes_next,
    "N26": n26_the_chain_holds,
    "N27": n27_history_folds_to_the_row,
    "N28": n28_all_or_nothing,
    "N29": n29_callbacks_tell_what_was_kept,
}
