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
    "result": "No end was seen before the result deadline; the job at {provider} may still be running.",
    "input": "Nobody gave the input in time; the job at {provider} may still be waiting for it, or running.",
    "input_required": (
        "The job at {provider} waits for input. POST {here}/input gives it, and the job is followed on to its end."
    ),
    "input_unknown": (
        "The input may or may not have reached {provider}: its answer was lost, and the job still says that it waits."
        " POST {here}/input gives it again; it then may arrive twice."
    ),
    "cancellation_unconfirmed": "{provider} never confirmed the cancel; the job may still be running.",
    "refused": "{provider} did not take the cancel, and the job is still running there.",
    "result_unavailable": "The job at {provider} has ended, but its result cannot be fetched.",
    "result_validation_failed": "The result of {provider} breaks the contract and cannot be trusted.",
}


def told(op: Operation) -> str:
    """The question that stands, with what led to it; empty where nobody is asked."""
    if op.attention is None:
        return ""
    question = _QUESTIONS.get(op.attention.reason, "")
    here = f"/v1/operations/{op.operation_id}"
    parts = [question.format(provider=op.provider, here=here), op.attention.message]
    return " ".join(part for part in parts if part)
