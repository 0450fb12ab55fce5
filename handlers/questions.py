"""What an operation asks a person, in the sentences of the table (words.py)."""

from collections.abc import Mapping
from typing import Final

from handlers import words
from reconcile.contract import Contract
from reconcile.model import Absence, Operation
from reconcile.quoted import quoted
from reconcile.states import REASON_OF, State

#: What asks because a time-out passed: there the provider's own status page may tell more (C1).
_TIMED_OUT: Final = frozenset(
    {"create_unresolved", "result_timed_out", "result", "input", "cancellation_unconfirmed", "result_unavailable"}
)
#: Words that only say which deadline passed, or whose promise broke; shown alone, each is taken for something else.
_SHOWN: Final[Mapping[str, str]] = {
    "result": "result_timed_out",
    "input": "result_timed_out",
    "promise_broken": "result_validation_failed",
}
#: Questions that say by themselves what led to them.
_TELLS_WHAT_LED_TO_IT: Final = frozenset({"promise_broken", *Absence})


def reason(op: Operation) -> str:
    """The word under which the question of an operation that asks is shown."""
    return _SHOWN.get(_kept(op), _kept(op))


def asked(op: Operation, contract: Contract | None) -> str:
    """What an operation that asks wants to know."""
    how_to_give = words.INPUT_CALL if takes_input(contract) else words.NO_INPUT_CALL
    question = words.ASKED[_kept(op)].format(
        provider=op.provider,
        how_to_give=how_to_give.format(operation_id=op.operation_id, provider=op.provider),
        broken=_broken(op),
        absence=_led_to_it(op),  # told in words of ours alone; anything else may hold words of the provider's
    )
    return f"{question}{status_page(op, contract)}" if _kept(op) in _TIMED_OUT else question


def told(op: Operation, contract: Contract | None) -> str:
    """The same, with what led to it."""
    if not _led_to_it(op) or _kept(op) in _TELLS_WHAT_LED_TO_IT:
        return asked(op, contract)
    return f"{asked(op, contract)} {words.LED_TO_IT.format(led_to_it=quoted(_led_to_it(op)))}"


def what_next(op: Operation, contract: Contract | None) -> str:
    """Who is to do something about an operation that asks."""
    if op.state is not State.BLOCKED:
        return words.DECIDE
    return words.GIVE if takes_input(contract) else words.GIVE_THERE


def takes_input(contract: Contract | None) -> bool:
    """Whether a job's input can be given by a call of ours."""
    return contract is not None and contract.takes_input


def status_page(op: Operation, contract: Contract | None) -> str:
    """Where the provider says how it fares, as a sentence to be added; empty where no page is known."""
    page = contract.status_page if contract is not None else ""
    return f" {words.STATUS_PAGE.format(page=page, provider=op.provider)}" if page else ""


def _broken(op: Operation) -> str:
    """`is not what the start expects`, and the rest, which may hold words of the provider's."""
    ours, _, rest = _led_to_it(op).partition(": ")
    return f"{ours}: {quoted(rest)}" if rest else quoted(ours)


def _kept(op: Operation) -> str:
    return op.attention.reason if op.attention is not None else REASON_OF[op.state]


def _led_to_it(op: Operation) -> str:
    return op.attention.message.rstrip(".") if op.attention is not None else ""
