"""What a question to a person says, by its reason: what is so, and nothing that reads as an end."""

from collections.abc import Mapping
from typing import Final

from reconcile.model import Operation

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
    "result_validation_failed": "The result of {provider} breaks the contract and cannot be trusted.",
}
_INPUT_CALL: Final = "POST /v1/operations/{id}/input gives it, and the job is followed on to its end."
_NO_INPUT_CALL: Final = "It can only be given at {provider} itself: we have no call for it."


def told(op: Operation, *, takes_input: bool) -> str:
    """The question that stands, with what led to it; empty where nobody is asked."""
    if op.attention is None:
        return ""
    how_to_give = (_INPUT_CALL if takes_input else _NO_INPUT_CALL).format(id=op.operation_id, provider=op.provider)
    question = _QUESTIONS.get(op.attention.reason, "").format(provider=op.provider, how_to_give=how_to_give)
    led_to_it = op.attention.message.rstrip(".")
    return f"{question} What led to it: {led_to_it}." if question and led_to_it else question or led_to_it
