"""What tests of the store put into it: operations, starts, evidence and deliveries, each numbered."""

from dataclasses import replace
from typing import Any, Final

from reconcile.evidence import Accepted, Evidence, JobRead
from reconcile.ingest import judge_by
from reconcile.model import Change, Observation, Operation
from reconcile.states import State
from reconcile.store.events import EventRecord
from reconcile.store.evidence import Arrival, Judge
from reconcile.store.kept import ObservationRecord, RequestRecord
from reconcile.store.starts import StartRecord
from tests.reconcile.rows import CONTRACT, NOW, in_state

#: A lease of the tests, ms.
LEASE: Final = 60_000
#: A text that is no Unicode: no database can hold it.
HALF: Final = "half \ud800"
#: States of an operation that has no job yet.
WITHOUT_JOB: Final = (State.CREATE_PENDING, State.CREATE_UNKNOWN, State.CREATE_UNRESOLVED)


def operation(n: int, state: State = State.OBSERVING, **over: Any) -> Operation:
    """The n-th operation, with ids of its own; job_n is its job where it has one."""
    own: dict[str, Any] = {"operation_id": f"op_{n}", "token": f"tok_{n}", "trace_id": f"{n:032x}"}
    if state not in WITHOUT_JOB:
        own["remote_job_id"] = f"job_{n}"
    return in_state(state, **{**own, **over})


def record(op: Operation, **over: Any) -> StartRecord:
    """A start of `op` as a client would cause it."""
    return replace(StartRecord(op, "client:ci", f"start:{op.operation_id}", "started"), **over)


def event(event_id: str, word: str | None = "running", job: str | None = "job_1", **over: Any) -> EventRecord:
    """A verified delivery that says `word` of `job`; its body differs with what it says."""
    body = f"{event_id} {word} {job}".encode("utf-8", "surrogatepass")
    given = EventRecord("test", event_id, body.hex(), body, NOW, 0.0, Observation(word, remote_job_id=job))
    return replace(given, **over)


def arrival(n: int, evidence: Evidence, **over: Any) -> Arrival:
    """Evidence for the n-th operation, gained without a lease unless `fence` is given."""
    given = Arrival(f"op_{n}", evidence, "worker", "observation:obs", NOW, 0.0)
    return replace(given, **over)


def exchange(name: str, observation: Observation | None = None) -> dict[str, Any]:
    """The records of one request and of what it showed, as `arrival` takes them."""
    return {
        "requests": (RequestRecord(f"req_{name}", "status", 1, NOW - 5, NOW, 200, None, None, "key"),),
        "observation": ObservationRecord(f"obs_{name}", "status", b'{"raw": true}', observation),
        "cause": f"observation:obs_{name}",
    }


def read(word: str | None, n: int = 1, **over: Any) -> JobRead:
    """A read of the n-th job that says `word`."""
    return JobRead(Observation(word, remote_job_id=f"job_{n}", **over))


def accepted(job: str, word: str | None = None) -> Accepted:
    """A create answer that names `job`."""
    return Accepted(Observation(word, remote_job_id=job))


def judge_that_fails_for(operation_id: str, fault: BaseException) -> Judge:
    """Decides as always, and raises `fault` where one operation is concerned."""
    judge = judge_by(lambda _: CONTRACT)

    def failing(op: Operation, given: Arrival) -> Change:
        if op.operation_id == operation_id:
            raise fault
        return judge(op, given)

    return failing
