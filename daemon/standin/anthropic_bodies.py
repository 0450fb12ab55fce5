"""The JSON shapes of Message Batches: create body, batch, list page, error. Pure; written from the provider's types.

The texts of refusals are ours: the provider documents their types only.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from daemon.standin.anthropic_jobs import MessageBatch
from daemon.standin.scenarios import SCENARIO_KEY
from reconcile.errors import ReconciledError

Body = dict[str, object]

#: Requests in one batch: the provider's documented limit.
MAX_REQUESTS: Final = 100_000
#: What the provider is said to allow as a custom_id.
CUSTOM_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
#: A batch has no metadata of its own, but each request has a `user_id` there: `standin_scenario=NAME` in any of them
#: picks the batch's scenario.
SCENARIO_MARK: Final = f"{SCENARIO_KEY}="
#: The error type that goes with a status. 503 has none: this provider says 529 where others say 503.
_KINDS: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}


class MessagesError(ReconciledError):
    """A refusal in the provider's own shape."""

    def __init__(self, status: int, message: str) -> None:
        self.status, self.message = status, message
        super().__init__(f"{status}: {message}")

    def body(self, request_id: str) -> Body:
        """What the provider answers; the request's id stands in the body and in a header."""
        error = {"type": _KINDS.get(self.status, "api_error"), "message": self.message}
        return {"type": "error", "error": error, "request_id": request_id}


def no_message_batch() -> MessagesError:
    """There is no such batch (any more)."""
    return MessagesError(404, "Message batch not found.")


def trouble(status: int) -> MessagesError:
    """The trouble with `status` that a scenario asks for."""
    if status == 429:
        return MessagesError(429, "This request would exceed your rate limit.")
    if status == 503:
        return MessagesError(529, "Overloaded")
    return MessagesError(status, "Internal server error")


@dataclasses.dataclass(frozen=True)
class Requests:
    """A create body as read."""

    custom_ids: Sequence[str]
    models: Sequence[str]
    #: What is wrong with a request's params, by its index.
    invalid: Mapping[int, str]
    #: The scenario that the batch names for itself.
    scenario: str | None


def read_requests(body: object) -> Requests:
    """The requests of a create body. Faulty params are no fault of the body: each such request ends errored.

    Raises:
        MessagesError: 400 that names the first field at fault.
    """
    found = _object(body, "body", ("requests",))["requests"]
    if not isinstance(found, list):
        raise _invalid("requests", "Input should be a valid list")
    if not 1 <= len(found) <= MAX_REQUESTS:
        raise _invalid("requests", f"List should have 1 to {MAX_REQUESTS} items, not {len(found)}")
    custom_ids: dict[str, None] = {}
    models: list[str] = []
    invalid: dict[int, str] = {}
    scenario: str | None = None
    for index, each in enumerate(found):
        where = f"requests.{index}"
        request = _object(each, where, ("custom_id", "params"))
        custom_id, params = request["custom_id"], request["params"]
        if not isinstance(custom_id, str) or not CUSTOM_ID.fullmatch(custom_id):
            raise _invalid(f"{where}.custom_id", f"String should match pattern '^{CUSTOM_ID.pattern}$'")
        if custom_id in custom_ids:
            raise _invalid(f"{where}.custom_id", f"The custom_id '{custom_id}' was used before")
        if not isinstance(params, dict):
            raise _invalid(f"{where}.params", "Input should be an object")
        custom_ids[custom_id] = None
        models.append(_model(params))
        fault = _fault(params)
        if fault is not None:
            invalid[index] = fault
        scenario = scenario or _scenario(params)
    return Requests(tuple(custom_ids), models, invalid, scenario)


def _object(found: object, where: str, keys: tuple[str, ...]) -> dict[str, object]:
    """`found` as an object with exactly these keys."""
    if not isinstance(found, dict):
        raise _invalid(where, "Input should be an object")
    prefix = "" if where == "body" else f"{where}."
    for key in keys:
        if key not in found:
            raise _invalid(f"{prefix}{key}", "Field required")
    for key in found:
        if key not in keys:
            raise _invalid(f"{prefix}{key}", "Extra inputs are not permitted")
    return found


def _invalid(where: str, text: str) -> MessagesError:
    # What is quoted is a stranger's: an answer must be encodable whatever it holds.
    return MessagesError(400, f"{where[:100]}: {text}".encode("utf-8", "replace").decode())


def _model(params: dict[str, object]) -> str:
    model = params.get("model")
    return model.encode("utf-8", "replace").decode() if isinstance(model, str) else ""


def _fault(params: dict[str, object]) -> str | None:
    """What is wrong with a request's params, as far as a stand-in looks."""
    if not isinstance(params.get("model"), str) or not params["model"]:
        return "model: Field required"
    max_tokens = params.get("max_tokens")
    if type(max_tokens) is not int or max_tokens < 1:
        return "max_tokens: Input should be an integer of 1 or more"
    if not isinstance(params.get("messages"), list) or not params["messages"]:
        return "messages: at least one message is required"
    return None


def _scenario(params: dict[str, object]) -> str | None:
    metadata = params.get("metadata")
    user_id = metadata.get("user_id") if isinstance(metadata, dict) else None
    if not isinstance(user_id, str) or not user_id.startswith(SCENARIO_MARK):
        return None
    return user_id.removeprefix(SCENARIO_MARK)


def no_scenario(message: str) -> MessagesError:
    """A request's metadata names a scenario that does not exist."""
    return _invalid("requests.params.metadata.user_id", message)


def message_batch_body(batch: MessageBatch, now_ms: int, origin: str) -> Body:
    """A batch as read at `now_ms`; `origin` is where its results are to be fetched, such as `http://127.0.0.1:8790`."""
    archived_ms = batch.archived_ms(now_ms)
    has_results = batch.ended and archived_ms is None
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": batch.status(now_ms),
        "request_counts": batch.tallies(),
        "created_at": _written(batch.created_ms),
        "expires_at": _written(batch.expires_ms()),
        "ended_at": _written(batch.ends_ms) if batch.ended else None,
        "archived_at": _written(archived_ms),
        "cancel_initiated_at": _written(batch.cancelling_ms),
        "results_url": f"{origin}/v1/messages/batches/{batch.id}/results" if has_results else None,
    }


def _written(at_ms: int | None) -> str | None:
    """A moment in the provider's spelling: RFC 3339 with microseconds."""
    if at_ms is None:
        return None
    return f"{datetime.fromtimestamp(at_ms // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}000Z"


def page_body(batches: Sequence[Body], *, has_more: bool) -> Body:
    """A page of batches."""
    first, last = (batches[0]["id"], batches[-1]["id"]) if batches else (None, None)
    return {"data": list(batches), "has_more": has_more, "first_id": first, "last_id": last}
