"""One harmless question to a provider: does it answer at this address, and does it take the key?

A page of the account's list where its contract has one; else a read of a job that cannot exist, to which "there is no
such job" is the answer of a provider that was reached. No question makes, changes or fetches anything.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from daemon import plain
from reconcile.client import Client, Exchange
from reconcile.errors import NotSent
from reconcile.evidence import ReadFailed
from reconcile.model import Operation, Schedule
from reconcile.peer import Peer
from reconcile.provider import HttpRequest
from reconcile.seams import Clock, Dice
from reconcile.states import State

#: The id of no job: whoever made one of this name has read it here.
NO_JOB: Final = "reconciled-check-no-such-job"
#: What a provider says to the id of no job: not found, gone, or not even an id.
_NO_SUCH_JOB: Final = frozenset({400, 404, 410, 422})
_REFUSES_THE_KEY: Final = frozenset({401, 403})
_ASKS_TO_WAIT: Final = 429
#: Error classes of a connection over which nothing came.
_SILENCE: Final = frozenset({"timeout", "reset"})


class Told(Enum):
    """What came of it."""

    ANSWERED = "answered"
    KEY_REFUSED = "key refused"
    NOT_REACHABLE = "not reachable"
    UNEXPECTED = "unexpected answer"
    NOT_ASKED = "not asked"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one provider's answer means, and why, in words."""

    told: Told
    why: str


async def ask(peer: Peer, client: Client, clock: Clock, dice: Dice) -> Finding:
    """Ask once, and nothing again. What goes wrong is in the finding."""
    contract = peer.provider.contract
    nobody = _no_operation(peer, clock.now(), dice)
    lists = contract.lookup is not None and contract.lookup.page_size is not None
    if not lists and not contract.has_read:
        return Finding(Told.NOT_ASKED, f"{contract.kind} has no call without effect")
    request = peer.provider.list_page(None) if lists else peer.provider.status(nobody)
    # Not noted: one question of a check says nothing about how the provider fares.
    return _meaning(peer, request, await client.send_unnoted(peer, nobody, request), lists=lists)


def _meaning(peer: Peer, request: HttpRequest, exchange: Exchange, *, lists: bool) -> Finding:
    asked = f"{request.method} {peer.base_url.raw_path.rstrip('/')}/{request.path.lstrip('/')}"
    answer = exchange.response
    if answer is None:
        is_silent = isinstance(exchange.error, NotSent) or exchange.error_class in _SILENCE
        why = f"{asked}: {plain.error(exchange.error_class or 'unreadable')}"
        return Finding(Told.NOT_REACHABLE if is_silent else Told.UNEXPECTED, why)
    where = f"{asked}: HTTP {answer.status}"
    if answer.status in _REFUSES_THE_KEY:
        why = "it refuses the key" if peer.credential_name else "it wants a key, and none is configured"
        return Finding(Told.KEY_REFUSED, f"{where}: {why}")
    if answer.status == _ASKS_TO_WAIT:
        return Finding(Told.ANSWERED, f"{where}: it asks for fewer requests")
    if not lists and answer.status in _NO_SUCH_JOB:
        return Finding(Told.ANSWERED, f"{where}: it knows no such job, as it should")
    if answer.status != 200:
        hint = "; is base_url the right address?" if answer.status < 500 else ""
        return Finding(Told.UNEXPECTED, f"{where}{hint}")
    read = peer.provider.read_list(answer) if lists else peer.provider.read_status(answer)
    if isinstance(read, ReadFailed):
        return Finding(Told.UNEXPECTED, f"{where}, {plain.error(read.error_class)}; is base_url the right address?")
    return Finding(Told.ANSWERED, where)


def _no_operation(peer: Peer, now: int, dice: Dice) -> Operation:
    """An operation that stands nowhere: what a request is made from, and bears the trace of."""
    return Operation(
        operation_id=dice.identifier("op_"),
        provider=peer.name,
        origin=peer.origin,
        type=peer.provider.contract.operation_type,
        state=State.OBSERVING,
        remote_job_id=NO_JOB,
        token="",
        trace_id=dice.trace_id(),
        fingerprint="",
        request={},
        created_at=now,
        schedule=Schedule(due_at=now),
    )
