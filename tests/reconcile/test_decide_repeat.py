"""A create whose token is honoured: sent again while that is surely a retry, and a person is asked once it is not."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from reconcile.contract import Contract, Lookup
from reconcile.decide import decide
from reconcile.decisions import Decision, open_to
from reconcile.evidence import (
    AboutToSend,
    Accepted,
    CreateNotAccepted,
    CreateRejected,
    CreateUnknown,
    DeadlinePassed,
    Evidence,
    FoundAtStart,
    JobRead,
    LookupFound,
    PersonDecided,
)
from reconcile.model import Change, Observation, Operation, RemoteError
from reconcile.schedule import rfc3339
from reconcile.states import State
from tests.reconcile.rows import HOUR, MINUTE, NOW, REPLAYS, in_state

KEEPS = replace(REPLAYS, lookup=None, token_kept_ms=10 * HOUR)


def unknown(contract: Contract = KEEPS, *, since: int = NOW - MINUTE, **over: Any) -> Operation:
    stood = {"unknown_since": since, "token_since": since, "contract_version": contract.version, **over}
    op = in_state(State.CREATE_UNKNOWN, **stood)
    return replace(op, deadlines=replace(op.deadlines, create=NOW + 10 * MINUTE))


def step(op: Operation, evidence: Evidence, *, now: int = NOW, contract: Contract = KEEPS) -> Change:
    return decide(op, contract, evidence, now=now, draw=0.0, cause="request:1")


@pytest.mark.parametrize(
    ("contract", "over", "now", "may"),
    [
        (KEEPS, {}, NOW, True),
        (KEEPS, {"since": NOW - 9 * HOUR + 1}, NOW, True),
        (KEEPS, {"since": NOW - 9 * HOUR}, NOW, False),  # nine tenths of ten hours
        (replace(KEEPS, idempotency="none"), {}, NOW, False),
        (replace(KEEPS, token_kept_ms=None), {}, NOW, False),
        (KEEPS, {"restored": True}, NOW, False),
        (KEEPS, {"token_since": NOW - 9 * HOUR}, NOW, False),  # whatever was sent since
        (KEEPS, {"token_since": None}, NOW, True),  # of a file from before this was kept
        (KEEPS, {"token_since": None, "since": NOW - 9 * HOUR}, NOW, False),
        (KEEPS, {"token_since": None, "resends": 1, "created_at": NOW - 9 * HOUR}, NOW, False),
        (replace(KEEPS, version=KEEPS.version + 1), {}, NOW, False),
    ],
)
def test_a_create_is_repeated_only_while_that_is_surely_a_retry(
    contract: Contract, over: dict[str, Any], now: int, may: bool
) -> None:
    """N6: a token that may be forgotten, other bytes, or a time of which nothing is known, would make a second job."""
    op = unknown(KEEPS, **over)
    assert contract.may_repeat(op, now) is may


def test_an_answer_to_the_repeat_is_the_answer_to_the_first() -> None:
    taken = step(unknown(), Accepted(Observation("running", remote_job_id="job_1"))).operation
    assert (taken.state, taken.remote_job_id) == (State.OBSERVING, "job_1")
    refused = step(unknown(), CreateRejected(RemoteError("http_400", "no"))).operation
    assert refused.state is State.FAILED


@pytest.mark.parametrize("evidence", [CreateUnknown("http_503"), CreateNotAccepted("http_429", 60_000)])
def test_a_repeat_without_a_clear_answer_is_tried_again_until_the_deadline(evidence: Evidence) -> None:
    again = step(unknown(), evidence)
    assert again.operation.state is State.CREATE_UNKNOWN
    assert again.operation.schedule.errors == 1
    assert again.operation.schedule.due_at > NOW
    assert "no job was made" not in " ".join(entry.reason for entry in again.entries)
    late = step(unknown(), evidence, now=NOW + 10 * MINUTE)
    assert late.operation.state is State.CREATE_UNRESOLVED
    assert "sending it again brought no clear answer" in late.operation.attention.message  # type: ignore[union-attr]


def test_a_cut_off_create_has_counted_since_it_left() -> None:
    """A daemon that was down for longer than the token lives must not take its restart for the beginning."""
    op = replace(
        in_state(State.CREATE_PENDING, mark_at=NOW - 20 * HOUR, contract_version=KEEPS.version),
    )
    found = step(op, FoundAtStart()).operation
    assert (found.state, found.token_since) == (State.CREATE_UNKNOWN, NOW - 20 * HOUR)
    assert not KEEPS.may_repeat(found, NOW)


def _resent_by_a_person(contract: Contract) -> Operation:
    """Sent again 8 h after the first time, and again without an answer."""
    first = in_state(State.CREATE_PENDING, mark_at=NOW, contract_version=contract.version)
    lost = step(first, CreateUnknown("timeout"), now=NOW + MINUTE, contract=contract).operation
    asked = step(lost, DeadlinePassed("create"), now=NOW + 8 * HOUR - MINUTE, contract=contract).operation
    said = PersonDecided("dec_1", Decision.RESEND, "kim", "the list is late")
    pending = step(asked, said, now=NOW + 8 * HOUR - MINUTE, contract=contract).operation
    assert pending.state is State.CREATE_PENDING
    sent = step(pending, AboutToSend(), now=NOW + 8 * HOUR, contract=contract).operation
    return step(sent, CreateUnknown("timeout"), now=NOW + 8 * HOUR + MINUTE, contract=contract).operation


def _resent_by_the_configuration(contract: Contract) -> Operation:
    contract = replace(contract, on_absent="resend", lookup=Lookup(is_sure=True))
    first = in_state(State.CREATE_PENDING, mark_at=NOW, contract_version=contract.version)
    lost = step(first, CreateUnknown("timeout"), now=NOW + MINUTE, contract=contract).operation
    lost = replace(lost, deadlines=replace(lost.deadlines, create=NOW + 20 * HOUR))
    pending = step(lost, LookupFound((), is_whole=True), now=NOW + 8 * HOUR, contract=contract).operation
    assert (pending.state, pending.resends) == (State.CREATE_PENDING, 1)
    return step(pending, CreateUnknown("timeout"), now=NOW + 8 * HOUR + MINUTE, contract=contract).operation


@pytest.mark.parametrize("resent", [_resent_by_a_person, _resent_by_the_configuration])
def test_a_token_has_one_life_however_often_it_is_sent(resent: Callable[[Contract], Operation]) -> None:
    """N6: by the second send's time, a third would go out when the first has been forgotten."""
    op = resent(KEEPS)
    assert (op.state, op.token_since, op.unknown_since) == (State.CREATE_UNKNOWN, NOW, NOW + 8 * HOUR + MINUTE)
    assert KEEPS.may_repeat(op, NOW + 9 * HOUR - 1)
    assert not KEEPS.may_repeat(op, NOW + 9 * HOUR)


@pytest.mark.parametrize(
    ("sent_at", "state"), [(NOW - 9 * HOUR + 1, State.FAILED), (NOW - 9 * HOUR, State.CREATE_UNKNOWN)]
)
def test_a_refusal_speaks_of_the_first_create_only_while_the_token_is_known(sent_at: int, state: State) -> None:
    op = in_state(State.CREATE_PENDING, mark_at=NOW, resends=1, token_since=sent_at)
    assert step(op, CreateRejected(RemoteError("http_400", "no"))).operation.state is state


@pytest.mark.parametrize(
    ("kept", "over", "told"),
    [
        (10 * HOUR, {"token_since": NOW}, f"until {rfc3339(NOW + 9 * HOUR)}; from then on the token may be forgotten"),
        (None, {"token_since": NOW}, "is not known here"),
        (10 * HOUR, {"token_since": NOW, "restored": True}, "is not known here"),
    ],
)
def test_sending_again_says_until_when_the_token_protects(kept: int | None, over: dict[str, Any], told: str) -> None:
    op = in_state(State.CREATE_UNRESOLVED, **over)
    offers = open_to(op, replace(KEEPS, token_kept_ms=kept))
    effect = next(offer.effect for offer in offers if offer.decision is Decision.RESEND)
    assert told in effect
    assert effect.endswith("runs twice if the first did arrive.")


@pytest.mark.parametrize(("kept", "told"), [(10 * HOUR, "sent again with the same token"), (None, "looked up")])
def test_what_follows_is_told(kept: int | None, told: str) -> None:
    contract = replace(KEEPS, token_kept_ms=kept)
    pending = in_state(State.CREATE_PENDING, mark_at=NOW - 5_000, contract_version=contract.version)
    for evidence in (CreateUnknown("timeout"), FoundAtStart()):
        assert told in step(pending, evidence, contract=contract).entries[0].reason


def test_looking_again_says_that_the_create_is_sent_again() -> None:
    """G8: "nothing is created by that" would be no promise here."""
    op = in_state(State.CREATE_UNRESOLVED)
    told = _look_again(op, KEEPS)
    assert "the same create is sent again" in told
    assert "nothing is created" not in told
    assert "nothing is created" in _look_again(op, replace(KEEPS, idempotency="none"))


def _look_again(op: Operation, contract: Contract) -> str:
    return next(offer.effect for offer in open_to(op, contract) if offer.decision is Decision.LOOK_AGAIN)


def test_a_read_asks_to_wait_by_its_header_and_by_its_body() -> None:
    """The longer counts; a hint of the body up to the cap, a header up to an hour."""
    op = in_state(State.OBSERVING, remote_status="running")
    seen = Observation("running", remote_job_id=op.remote_job_id)
    cap = KEEPS.poll.cap_ms
    for hint, header, wait in (
        (60_000, None, 60_000),
        (60_000, 90_000, 90_000),
        (2 * HOUR, None, cap),
        (None, 2 * HOUR, HOUR),
    ):
        after = step(op, JobRead(seen, hint_ms=hint, retry_after_ms=header)).operation
        assert after.schedule.due_at == NOW + wait


def test_the_answer_to_a_create_says_when_to_read_first() -> None:
    accepted = Accepted(Observation("running", remote_job_id="job_1"), retry_after_ms=HOUR)
    assert step(in_state(State.CREATE_PENDING), accepted).operation.schedule.due_at == NOW + HOUR
