"""Errors as RFC 9457 problem documents: one shape for every refusal, and nothing of our inside in any."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from aiohttp import web

from handlers import refusals
from handlers.refusals import RETRY_SECONDS, Refusal
from reconcile.errors import JobHeld, KeyReused, NotOpen, RequestInvalid, StoreBroken, StoreError, Unreadable
from reconcile.seams import Dice

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
#: Whom a request has to pass before it is handled. Raises: Refused.
Gate = Callable[[web.Request], None]
_READS: Final = ("GET", "HEAD")


class Refused(Exception):
    """A call that is refused by a row of the table: `words` fill its braces, `more` stands beside it as fields."""

    def __init__(
        self,
        refusal: Refusal,
        *,
        more: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        **words: Any,
    ) -> None:
        self.refusal, self.words = refusal, words
        self.more, self.headers = dict(more or {}), dict(headers or {})
        super().__init__(refusal.title)


def middleware(log: Any, dice: Dice, gate: Gate) -> Any:
    """Turns what the gate or a handler raises into a problem document; errors of ours are logged with tracebacks."""

    @web.middleware
    async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            gate(request)
            return await handler(request)
        except Refused as fault:
            return _told(fault.refusal, more=fault.more, headers=fault.headers, **fault.words)
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
            if request.method in _READS:
                log.warning("request_not_read", path=request.path, error=str(fault))
                return _told(refusals.NOT_READABLE)
            log.warning("request_not_stored", path=request.path, error=str(fault))
            return _told(refusals.NOT_STORED)
        except Exception:  # the rim: a fault of ours must not show its inside
            trace_id = dice.trace_id()
            log.exception("request_failed", path=request.path, trace_id=trace_id)
            return _told(refusals.FAULT, more={"trace_id": trace_id})

    return problems


def _told(
    refusal: Refusal,
    *,
    status: int | None = None,
    more: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    **words: Any,
) -> web.Response:
    """A row of the table as a problem document; `status` in place of its own."""
    status, detail = status or refusal.status, refusal.detail.format(**words)
    document = {"type": "about:blank", "title": refusal.title, "status": status, "detail": detail, **(more or {})}
    body = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")
    headers = {**({"Retry-After": str(RETRY_SECONDS)} if status == 503 else {}), **(headers or {})}
    return web.Response(status=status, body=body, content_type="application/problem+json", headers=headers)


def _of_the_client(
    request: web.Request, fault: RequestInvalid | Unreadable | KeyReused | NotOpen | JobHeld
) -> web.Response:
    match fault:
        case RequestInvalid():
            wrong = refusals.WRONG_READ if request.method in _READS else refusals.WRONG_WRITE
            errors = [{"pointer": fault.pointer, "message": fault.message}]
            return _told(wrong, status=fault.status, more={"errors": errors}, fault=fault)
        case Unreadable():
            return _told(refusals.NO_JSON, reason=fault.reason)
        case KeyReused() | JobHeld():
            held = refusals.KEY_REUSED if isinstance(fault, KeyReused) else refusals.JOB_HELD
            return _told(held, more={"operation_id": fault.operation_id}, operation_id=fault.operation_id)
        case NotOpen():
            return _told(refusals.NOT_OPEN, fault=str(fault))


def _of_aiohttp(request: web.Request, refusal: web.HTTPException) -> web.Response:
    """What aiohttp refuses by itself: its router, and its reader of a body that is too large."""
    if isinstance(refusal, web.HTTPMethodNotAllowed):
        allow = refusal.headers["Allow"]
        return _told(refusals.NO_METHOD, headers={"Allow": allow}, method=request.method, allow=allow)
    if isinstance(refusal, web.HTTPNotFound):
        return _told(refusals.NO_PATH)
    if isinstance(refusal, web.HTTPRequestEntityTooLarge):
        return _told(refusals.LARGE_BODY, most=request.client_max_size)
    return _told(refusals.OTHER, status=refusal.status, reason=refusal.reason)
