"""Errors as RFC 9457 problem documents: one shape for every refusal, and nothing of our inside in any."""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from handlers import refusals
from handlers.refusals import RETRY_SECONDS, Refusal
from reconcile.errors import JobHeld, KeyReused, NotOpen, RequestInvalid, StoreBroken, StoreError, Unreadable
from reconcile.seams import Dice

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
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
            return _of_aiohttp(request, refusal)
        except (RequestInvalid, Unreadable, KeyReused, NotOpen, JobHeld) as fault:
            return _of_the_client(request, fault)
        except web.RequestPayloadError:
            return _told(refusals.BROKEN_BODY)
        except StoreBroken as fault:
            log.error("request_outcome_unknown", path=request.path, error=str(fault))
            return _told(refusals.NOT_KNOWN)
        except (StoreError, OSError) as fault:
            if isinstance(fault, FileNotFoundError) and request.method in _READS:
                log.warning("file_missing", path=request.path, error=str(fault))
                return _told(refusals.FILE_GONE)
            log.warning("request_not_stored", path=request.path, error=str(fault))
            return _told(refusals.NOT_READABLE if request.method in _READS else refusals.NOT_STORED)
        except Exception:  # the rim: a fault of ours must not show its inside
            trace_id = dice.trace_id()
            log.exception("request_failed", path=request.path, trace_id=trace_id)
            return problem(refusals.FAULT.status, refusals.FAULT.title, refusals.FAULT.detail, trace_id=trace_id)

    return problems


def _told(refusal: Refusal, **words: str) -> web.Response:
    return problem(refusal.status, refusal.title, refusal.detail.format(**words))


def _of_the_client(
    request: web.Request, fault: RequestInvalid | Unreadable | KeyReused | NotOpen | JobHeld
) -> web.Response:
    match fault:
        case RequestInvalid():
            wrong = refusals.WRONG_READ if request.method in _READS else refusals.WRONG_WRITE
            errors = [{"pointer": fault.pointer, "message": fault.message}]
            return problem(fault.status, wrong.title, wrong.detail.format(fault=fault), errors=errors)
        case Unreadable():
            return _told(refusals.NO_JSON, reason=fault.reason)
        case KeyReused() | JobHeld():
            held = refusals.KEY_REUSED if isinstance(fault, KeyReused) else refusals.JOB_HELD
            detail = held.detail.format(operation_id=fault.operation_id)
            return problem(held.status, held.title, detail, operation_id=fault.operation_id)
        case NotOpen():
            return _told(refusals.NOT_OPEN, fault=str(fault))


def _of_aiohttp(request: web.Request, refusal: web.HTTPException) -> web.Response:
    """What a handler refused in words, and what the router refused without."""
    if isinstance(refusal, web.HTTPMethodNotAllowed):
        allow = refusal.headers["Allow"]
        answer = _told(refusals.NO_METHOD, method=request.method, allow=allow)
        answer.headers["Allow"] = allow
        return answer
    if isinstance(refusal, web.HTTPNotFound) and request.match_info.http_exception is not None:
        return _told(refusals.NO_PATH)
    return problem(refusal.status, refusal.reason, refusal.text or refusal.reason)
