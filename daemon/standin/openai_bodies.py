"""The provider's JSON shapes: batch, file, list page, webhook event, error. Pure; written from its published types.

Every field of a batch is always there, null where nothing is known yet, as the provider sends it.
"""

import json
from typing import Final

from daemon.standin.items import ENDPOINTS, TOKENS_IN, TOKENS_OUT, Fault
from daemon.standin.jobs import Batch
from daemon.standin.scenarios import SCENARIO_KEY
from reconcile.errors import ReconciledError

Body = dict[str, object]

#: Metadata limits, from the provider's reference.
MAX_PAIRS, MAX_KEY, MAX_VALUE = 16, 64, 512
#: How long a result file may be kept, seconds, from the provider's reference; and where nothing is asked for, 30 days:
#: seen on uploaded batch files in public reports, not documented for results.
MIN_KEPT_SECONDS, MAX_KEPT_SECONDS = 3600, 2_592_000
DEFAULT_KEPT_SECONDS: Final = 2_592_000
_CREATE_KEYS: Final = ("input_file_id", "endpoint", "completion_window", "metadata", "output_expires_after")


class ApiError(ReconciledError):
    """A refusal in the provider's own shape."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        self.status, self.message, self.kind, self.param, self.code = status, message, kind, param, code
        super().__init__(f"{status}: {message}")

    def body(self) -> Body:
        """What the provider answers."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


def no_batch(job_id: str) -> ApiError:
    """There is no such batch (any more)."""
    return ApiError(404, f"No batch found with id '{job_id}'.")


def no_file(file_id: str) -> ApiError:
    """There is no such file (any more)."""
    return ApiError(404, f"No such File object: {file_id}", param="id")


def unauthorized() -> ApiError:
    """The key is missing or wrong."""
    return ApiError(401, "Incorrect API key provided.", code="invalid_api_key")


def fault_answer(status: int) -> ApiError:
    """The trouble with `status` that a scenario asks for."""
    if status == 429:
        return ApiError(429, "Rate limit reached.", kind="requests", code="rate_limit_exceeded")
    if status == 503:
        return ApiError(503, "The engine is currently overloaded, please try again later.", kind="server_error")
    return ApiError(status, "The server had an error.", kind="server_error")


def check_create(body: object) -> tuple[str, str, dict[str, str] | None, int]:
    """A create body's input file id, endpoint, metadata and how many seconds results are kept.

    Raises:
        ApiError: 400 that names the first parameter at fault.
    """
    if not isinstance(body, dict):
        raise ApiError(400, "The request body is not a JSON object.")
    for key in body:
        if key not in _CREATE_KEYS:
            raise ApiError(400, f"Unknown parameter: '{key}'.", param=str(key), code="unknown_parameter")
    for key in _CREATE_KEYS[:3]:
        if key not in body:
            raise _invalid(key, f"Missing required parameter: '{key}'.", "missing_required_parameter")
        if not isinstance(body[key], str):
            raise _invalid(key, f"Invalid type for '{key}': expected a string.", "invalid_type")
    if body["endpoint"] not in ENDPOINTS:
        raise _invalid("endpoint", f"Invalid value for 'endpoint': this server answers {', '.join(ENDPOINTS)}.")
    if body["completion_window"] != "24h":
        raise _invalid("completion_window", "Invalid value for 'completion_window': supported is '24h'.")
    return body["input_file_id"], body["endpoint"], _metadata(body.get("metadata")), _kept(body)


def _invalid(param: str, message: str, code: str = "invalid_value") -> ApiError:
    return ApiError(400, message, param=param, code=code)


def _metadata(found: object) -> dict[str, str] | None:
    if found is None:
        return None
    if not isinstance(found, dict) or len(found) > MAX_PAIRS:
        raise _invalid("metadata", f"Invalid 'metadata': an object of at most {MAX_PAIRS} pairs is expected.")
    for key, value in found.items():
        if not isinstance(value, str) or len(key) > MAX_KEY or len(value) > MAX_VALUE:
            raise _invalid(f"metadata.{key}"[:80], f"Invalid 'metadata': at most {MAX_KEY} and {MAX_VALUE} characters.")
    return found


def _kept(body: Body) -> int:
    found = body.get("output_expires_after")
    if found is None:
        return DEFAULT_KEPT_SECONDS
    if not isinstance(found, dict) or found.get("anchor") != "created_at":
        raise _invalid("output_expires_after.anchor", "Invalid value for 'anchor': supported is 'created_at'.")
    seconds = found.get("seconds")
    if type(seconds) is not int or not MIN_KEPT_SECONDS <= seconds <= MAX_KEPT_SECONDS:
        text = f"Invalid value for 'seconds': {MIN_KEPT_SECONDS} to {MAX_KEPT_SECONDS} are allowed."
        raise _invalid("output_expires_after.seconds", text)
    return seconds


def no_scenario(message: str) -> ApiError:
    """The job's metadata names a scenario that does not exist."""
    return _invalid(f"metadata.{SCENARIO_KEY}", message)


def batch_body(job: Batch, now_ms: int) -> Body:
    """A batch as read at `now_ms`."""
    began = dict(job.reached(now_ms))
    counts = job.counts(now_ms)

    def seconds(word: str) -> int | None:
        return began[word] // 1000 if word in began else None

    body: Body = {
        "id": job.id,
        "object": "batch",
        "endpoint": job.endpoint,
        "model": job.model if counts.total else None,
        "errors": _errors(job) if job.ended and job.ends == "failed" else None,
        "input_file_id": job.input_file_id,
        "completion_window": "24h",
        "status": job.status(now_ms),
        "output_file_id": job.output_file_id,
        "error_file_id": job.error_file_id,
        "created_at": job.created_ms // 1000,
        "in_progress_at": seconds(job.scenario.working_word),
        "expires_at": job.expires_ms() // 1000,
        "finalizing_at": seconds("finalizing"),
        "completed_at": seconds("completed"),
        "failed_at": seconds("failed"),
        "expired_at": seconds("expired"),
        "cancelling_at": seconds("cancelling"),
        "cancelled_at": seconds("cancelled"),
        "request_counts": {"total": counts.total, "completed": counts.completed, "failed": counts.failed},
        "metadata": job.metadata,
    }
    if job.ended:
        body["usage"] = {
            "input_tokens": counts.completed * TOKENS_IN,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": counts.completed * TOKENS_OUT,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": counts.completed * (TOKENS_IN + TOKENS_OUT),
        }
    return body


def _errors(job: Batch) -> Body:
    faults = job.faults or (Fault("server_error", "The batch failed while its requests were running."),)
    data = [{"code": f.code, "message": f.message, "param": f.param, "line": f.line} for f in faults]
    return {"object": "list", "data": data}


def list_body(batches: list[Body], *, has_more: bool) -> Body:
    """A page of batches."""
    first, last = (batches[0]["id"], batches[-1]["id"]) if batches else (None, None)
    return {"object": "list", "data": batches, "first_id": first, "last_id": last, "has_more": has_more}


def file_body(file_id: str, *, size: int, created_ms: int, expires_ms: int | None, filename: str, purpose: str) -> Body:
    """A file as listed; `status` is a leftover of the provider's that always says "processed"."""
    return {
        "id": file_id,
        "object": "file",
        "bytes": size,
        "created_at": created_ms // 1000,
        "expires_at": None if expires_ms is None else expires_ms // 1000,
        "filename": filename,
        "purpose": purpose,
        "status": "processed",
        "status_details": None,
    }


def event_bytes(event_id: str, kind: str, *, at_ms: int, job_id: str) -> bytes:
    """A webhook's body: the job's id and nothing else about it."""
    event = {"object": "event", "id": event_id, "type": kind, "created_at": at_ms // 1000, "data": {"id": job_id}}
    return json.dumps(event, separators=(",", ":")).encode()
