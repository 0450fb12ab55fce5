"""Errors as RFC 9457 problem documents: one shape for every refusal, and nothing of our inside in any."""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from reconcile.errors import JobHeld, KeyReused, NotOpen, RequestInvalid, StoreBroken, StoreError, Unreadable
from reconcile.seams import Dice

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
#: Seconds after which a refused write may be tried again. 5: arbitrary; disks and locks clear in seconds or not at all.
RETRY_SECONDS: Final = 5
_READS: Final = ("GET", "HEAD")


def problem(
    status: int, title: str, detail: str, *, errors: list[dict[str, str]] | None = None, **more: Any
) -> web.Response:
    """A problem document as an answer."""
    document: dict[str, Any] = {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}
    if errors:
        document["errors"] = errors
    headers = {"Retry-After": str(RETRY_SECONDS)} if status == 503 else None
    body = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")
    return web.Response(status=status, body=body, content_type="application/problem+json", headers=headers)


def middleware(log: Any, dice: Dice) -> Any:
    """Turns whatever a handler raises into a problem document; an error of ours is logged with its traceback."""

    @web.middleware
    async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as refusal:
            if refusal.status < 400:
                raise
            return _with_headers(problem(refusal.status, refusal.reason, refusal.text or refusal.reason), refusal)
        except (RequestInvalid, Unreadable, KeyReused, NotOpen, JobHeld) as fault:
            return _of_the_client(fault)
        except web.RequestPayloadError:
            return problem(400, "The body cannot be read", "Its transfer or content encoding is broken.")
        except StoreBroken as fault:
            log.error("request_outcome_unknown", path=request.path, error=str(fault))
            return problem(503, "Not known", "It is not known whether this was stored; ask again, with the same key.")
        except (StoreError, OSError) as fault:
            if isinstance(fault, FileNotFoundError) and request.method in _READS:
                log.warning("file_missing", path=request.path, error=str(fault))
                return problem(410, "A file is gone", "A row names a file that is not in the state directory any more.")
            log.warning("request_not_stored", path=request.path, error=str(fault))
            return _not_now(request)
        except Exception:  # the rim: a fault of ours must not show its inside
            trace_id = dice.trace_id()
            log.exception("request_failed", path=request.path, trace_id=trace_id)
            return problem(500, "Internal error", "The fault was logged under this trace id.", trace_id=trace_id)

    return problems


def _not_now(request: web.Request) -> web.Response:
    """What was not done: a read leaves nothing in doubt, a write is surely not kept."""
    if request.method in _READS:
        return problem(503, "Not readable", "The store cannot be read just now; try again later.")
    return problem(503, "Not stored", "Nothing was stored; try again later.")


def _of_the_client(fault: RequestInvalid | Unreadable | KeyReused | NotOpen | JobHeld) -> web.Response:
    match fault:
        case RequestInvalid():
            errors = [{"pointer": fault.pointer, "message": fault.message}]
            return problem(fault.status, "The request cannot be used", str(fault), errors=errors)
        case Unreadable():
            return problem(400, "The body is not the JSON we accept", fault.reason)
        case KeyReused():
            return problem(422, "The idempotency key is taken", str(fault), operation_id=fault.operation_id)
        case NotOpen():
            return problem(409, "Not open", f"{fault}. Nothing was changed.")
        case JobHeld():
            return problem(409, "The job is held", str(fault), operation_id=fault.operation_id)


def _with_headers(answer: web.Response, refusal: web.HTTPException) -> web.Response:
    if "Allow" in refusal.headers:
        answer.headers["Allow"] = refusal.headers["Allow"]
    return answer
