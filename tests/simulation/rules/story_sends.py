"""What left the daemon of a told story: creates, cancels, and the names that each request bears."""

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from tests.simulation.client import ITEM_IDS, NAME, REQUEST
from tests.simulation.provider import OPERATION_KEY
from tests.simulation.rules import record
from tests.simulation.view import View, facts
from tests.simulation.watch import Arrival

_JOB_PATH: Final = re.compile(r"/v1/batches/([^/]+)(?:/cancel)?")
_FILE_PATH: Final = re.compile(r"/v1/files/([^/]+)/content")
#: Answers to a create that made no job; the same create may follow (B1).
_SURELY_NO_JOB: Final = frozenset({401, 429})


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
    yield from record.n2_tokens_are_unique(view)


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
        if len(jobs) > 1 and op["state"] not in record.MANY_JOBS_ARE_TOLD:
            yield f"{operation_id} has {len(jobs)} jobs and stands in {op['state']}"
        if sent[operation_id] > 1 + op["living"].get("resends", 0):
            yield f"{sent[operation_id]} creates of {operation_id} may have made a job"


def n4_names_differ(view: View) -> Iterator[str]:
    """The four ids of an operation differ, and each request bears the trace id of its operation and no other."""
    yield from record.n4_four_names_differ(view)
    traces = {op["trace_id"]: op for op in view.operations}
    for arrival in view.world.provider.watch.arrivals:
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
    return [arrival for arrival in view.world.provider.watch.arrivals if arrival.body]


def n5_a_job_id_is_written_once(view: View) -> Iterator[str]:
    """The held job is the provider's own for this operation, named once in the history, and held by nobody else."""
    held = Counter(op["remote_job_id"] for op in view.operations if op["state"] not in record.GIVEN_UP)
    for op in view.operations:
        told = [row["facts"]["remote_job_id"] for row in facts(view, op) if "remote_job_id" in row["facts"]]
        if list(dict.fromkeys(told)) != ([None, op["remote_job_id"]] if op["remote_job_id"] else [None]):
            yield f"{op['operation_id']} holds {op['remote_job_id']}, its history says {told}"
        if op["remote_job_id"] is not None:
            if op["remote_job_id"] not in [job.id for job in view.jobs(op)]:
                yield f"{op['operation_id']} holds {op['remote_job_id']}, which is not its job"
            if held[op["remote_job_id"]] > 1:
                yield f"{op['remote_job_id']} is held by {held[op['remote_job_id']]} operations"


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
