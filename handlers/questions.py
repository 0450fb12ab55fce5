"""What an operation asks a person, in the sentences of the table (words.py)."""

from collections.abc import Mapping
from typing import Final

from handlers import words
from handlers.quoted import quoted
from reconcile.contract import Contract
from reconcile.model import Absence, Operation
from reconcile.states import REASON_OF

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


def reason(op: Operation) -> str:
    """The word under which the question of an operation that asks is shown."""
    return _SHOWN.get(_kept(op), _kept(op))


def asked(op: Operation, contract: Contract | None) -> str:
    """What an operation that asks wants to know."""
    takes_input = contract is not None and contract.takes_input
    how_to_give = words.INPUT_CALL if takes_input else words.NO_INPUT_CALL
    question = words.ASKED[_kept(op)].format(
        provider=op.provider,
        how_to_give=how_to_give.format(operation_id=op.operation_id, provider=op.provider),
        broken=_broken(op),
    )
    return f"{question}{status_page(op, contract)}" if _kept(op) in _TIMED_OUT else question


def told(op: Operation, contract: Contract | None) -> str:
    """The same, with what led to it."""
    if not _led_to_it(op) or _kept(op) == "promise_broken":
        return asked(op, contract)
    # An absence is told in words of ours alone; anything else may hold words of the provider's.
    led_to_it = _led_to_it(op) if _is_absence(op) else quoted(_led_to_it(op))
    return f"{asked(op, contract)} {words.LED_TO_IT.format(led_to_it=led_to_it)}"


def unasked(op: Operation) -> str | None:
    """Where nothing may be asked about the job as the configuration stands: what puts that right."""
    return f"{_led_to_it(op)}." if _is_absence(op) else None


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


def _is_absence(op: Operation) -> bool:
    return op.attention is not None and op.attention.reason in set(Absence)
