"""What a question to a person says, by its reason: what is so, and nothing that reads as an end."""

from collections.abc import Mapping
from typing import Final

from reconcile.contract import Contract
from reconcile.model import Operation
from reconcile.states import REASON_OF

_QUESTIONS: Final[Mapping[str, str]] = {
    "create_unresolved": (
        "It is not known whether {provider} made a job for this create. Look at the account there before you decide."
    ),
    "contract_violation": (
        "More than one job stands for this operation at {provider}. Nothing is sent until a person chooses."
    ),
    "errors": "The job at {provider} can no longer be read; it may still be running.",
    "gone": "{provider} says that it does not know the job any more; that tells nothing of how it ended.",
    "provider_missing": "The job at {provider} is not read as the configuration stands; it may still be running.",
    "provider_moved": "The job at {provider} is not read as the configuration stands; it may still be running.",
    "result_timed_out": "No end was seen in time; the job at {provider} may still be running.",
    "result": "No end was seen before the result deadline; the job at {provider} may still be running.",
    "input": "Nobody gave the input in time; the job at {provider} may still be waiting for it, or running.",
    "input_required": "The job at {provider} waits for input. {how_to_give}",
    "input_unknown": (
        "The input may or may not have reached {provider}: its answer was lost, and the job still says that it waits."
        " Given again, it may arrive twice. {how_to_give}"
    ),
    "cancellation_unconfirmed": "{provider} never confirmed the cancel; the job may still be running.",
    "refused": "{provider} did not take the cancel, and the job is still running there.",
    "result_unavailable": "The job at {provider} has ended, but its result cannot be fetched.",
    "promise_broken": "The job at {provider} has ended, and its result {led_to_it}.",
    "result_validation_failed": "The result of {provider} breaks the contract and cannot be trusted.",
}
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
_INPUT_CALL: Final = "POST /v1/operations/{id}/input gives it, and the job is followed on to its end."
_NO_INPUT_CALL: Final = "It can only be given at {provider} itself: we have no call for it."


def reason(op: Operation) -> str:
    """The word under which the question of an operation that asks is shown."""
    return _SHOWN.get(_kept(op), _kept(op))


def asked(op: Operation, contract: Contract | None) -> str:
    """What an operation that asks wants to know."""
    takes_input = contract is not None and contract.takes_input
    how_to_give = (_INPUT_CALL if takes_input else _NO_INPUT_CALL).format(id=op.operation_id, provider=op.provider)
    question = _QUESTIONS[_kept(op)].format(provider=op.provider, how_to_give=how_to_give, led_to_it=_led_to_it(op))
    return question + status_page(op, contract) if _kept(op) in _TIMED_OUT else question


def told(op: Operation, contract: Contract | None) -> str:
    """The same, with what led to it."""
    led_to_it = _led_to_it(op)
    if not led_to_it or _kept(op) == "promise_broken":
        return asked(op, contract)
    return f"{asked(op, contract)} What led to it: {led_to_it}."


def status_page(op: Operation, contract: Contract | None) -> str:
    """Where the provider says how it fares, as a sentence to be added; empty where no page is known."""
    page = contract.status_page if contract is not None else ""
    return f" See {page} for how {op.provider} fares." if page else ""


def _kept(op: Operation) -> str:
    return op.attention.reason if op.attention is not None else REASON_OF[op.state]


def _led_to_it(op: Operation) -> str:
    return op.attention.message.rstrip(".") if op.attention is not None else ""
