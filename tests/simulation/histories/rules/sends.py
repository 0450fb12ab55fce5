"""What left the daemon: under which row, with which names, and what it may still send."""

from collections.abc import Iterator
from typing import Final

from reconcile.states import TERMINAL, State
from tests.simulation.histories.configuration import host_of
from tests.simulation.histories.rules.seen import Seen
from tests.simulation.histories.world import Send
from tests.simulation.rules import record
from tests.simulation.view import moves

#: How long a request may take from its committed mark to the network, ms. 1 s: arbitrary; no rate here takes so long.
_ON_ITS_WAY_MS: Final = 1_000
_OVERTAKES: Final = ("input_given", "cancel_requested")


def n1_a_row_before_each_send(seen: Seen) -> Iterator[str]:
    """All that leaves has a committed row; what has an effect leaves under a mark, in the state that sends it."""
    for send in seen.world.sends:
        if send.trace_id and send.row is None and not send.is_list:  # a sweep has a trace of its own
            yield f"{send.method} {send.path} left for the trace {send.trace_id}, which no committed row bears"
        if send.row is None or not send.has_effect:
            continue
        states = _states_for(send)
        is_marked = send.row["mark_at"] is not None or send.row["state"] == "create_unknown"  # sent again, by its token
        if (send.row["state"] not in states or not is_marked) and not _was_overtaken(seen, send):
            stood = f"{send.row['state']}{'' if send.row['mark_at'] is None else ', marked'}"
            yield f"{send.method} {send.path} left while {send.row['operation_id']} stood in {stood}"


def _was_overtaken(seen: Seen, send: Send) -> bool:
    """An input was on its way, its mark committed, when somebody asked for a cancel: that follows it."""
    if not send.is_input or send.row is None or send.row["state"] != "cancel_requested":
        return False
    op = next(op for op in seen.view.operations if op["operation_id"] == send.row["operation_id"])
    asked = [row for row in moves(seen.view, op) if (row["from_state"], row["to_state"]) == _OVERTAKES]
    return any(seen.world.jumped or 0 <= send.at_ms - row["at"] <= _ON_ITS_WAY_MS for row in asked)


def _states_for(send: Send) -> set[str]:
    if send.is_input:
        return {"input_given"}
    return {"cancel_requested"} if send.is_cancel else {"create_pending", "create_unknown"}


def n2_creates_are_equal(seen: Seen) -> Iterator[str]:
    """All creates of one operation bear the same bytes and token; tokens are unique."""
    for trace_id, arrivals in seen.arrivals.items():
        # One that was never answered may have been cut off on its way, as its sender died.
        made = {(a.body, a.token) for a in arrivals if a.is_create and a.status is not None}
        if len(made) > 1:
            yield f"the operation of the trace {trace_id} was created with {len(made)} different requests"
    yield from record.n2_tokens_are_unique(seen.view)


def n4_names_differ(seen: Seen) -> Iterator[str]:
    """The four ids of an operation differ; each request bears the trace of the operation whose job it names."""
    yield from record.n4_four_names_differ(seen.view)
    for send in seen.world.sends:
        held = send.row["job"] if send.row is not None else None
        named = next((part for part in send.path.split("/") if part.startswith(("job_", "batch_", "msgbatch_"))), None)
        if named is not None and send.trace_id and held is not None and named.partition("_output")[0] != held:
            yield f"{send.method} {send.path} left for an operation that holds {held}"


def n6_a_refusal_is_the_end(seen: Seen) -> Iterator[str]:
    """Nothing leaves for an operation that has ended, but for an upload that was on its way as it was withdrawn."""
    ended = {op["operation_id"]: moves(seen.view, op)[-1]["at"] for op in seen.view.operations}
    for send in seen.world.sends:
        if send.row is None or State(send.row["state"]) not in TERMINAL:
            continue
        since = send.at_ms - ended.get(send.row["operation_id"], 0)
        if send.has_effect or send.method == "GET" or not 0 <= since <= _ON_ITS_WAY_MS:
            yield f"{send.method} {send.path} left for {send.row['operation_id']}, which was {send.row['state']}"


def n31_a_violation_stops_everything(seen: Seen) -> Iterator[str]:
    """No request leaves while an operation stands in `contract_violation`, but for what was on its way."""
    if seen.world.jumped:
        return
    since = {
        op["operation_id"]: row["at"]
        for op in seen.view.operations
        for row in moves(seen.view, op)
        if row["to_state"] == "contract_violation"
    }
    for send in seen.world.sends:
        if send.row is None or send.row["state"] != "contract_violation":
            continue
        if send.at_ms > since.get(send.row["operation_id"], 0) + _ON_ITS_WAY_MS:
            yield f"{send.method} {send.path} left for {send.row['operation_id']} in contract_violation"


def n38_credentials_stay_home(seen: Seen) -> Iterator[str]:
    """No host is asked that nobody configured; whatever comes to a provider bears its own key."""
    yield from (f"the daemon wanted to reach {host}" for host in dict.fromkeys(seen.world.strangers))
    for name, watch in seen.world.watches.items():
        bare = [a for a in watch.arrivals if not a.is_authenticated]
        yield from (f"{a.method} {a.path} came to {host_of(name)} without its key" for a in bare[:1])
