"""Answers of a provider's server that are spoiled on purpose.

What arrived and what was truly answered is noted before anything is spoiled. Mischief keeps to what a real provider
may do to itself: a create is only refused (4xx) where nothing was made of it.
"""

from collections.abc import Callable
from typing import Final

from aiohttp import web

from tests.simulation.histories.scripts import Draws
from tests.simulation.watch import Arrival, Handler, Watch

HTML: Final = "<html><body><h1>502 Bad Gateway</h1></body></html>"


class SpoilingWatch(Watch):
    """Notes what came to one provider's server, and spoils some of its answers."""

    def __init__(self, authorization: tuple[str, str], dice: Draws) -> None:
        super().__init__(authorization)
        #: How often, of 1, an answer is spoiled just now.
        self.badness: Callable[[], float] = lambda: 0.0
        #: All of it is down just now.
        self.is_down: Callable[[], bool] = lambda: False
        #: Told of each thing that was done, for the ledger.
        self.on_mischief: Callable[[str, str], None] = lambda _name, _trace: None
        self._dice = dice

    async def answered(self, request: web.Request, handler: Handler, arrival: Arrival) -> web.StreamResponse:
        """As the server answers, or something in its place."""
        if self.is_down():
            return self._instead(arrival, "down", web.Response(status=503, text="down for maintenance"))
        is_bad = self._dice.chance(self.badness())
        if is_bad and self._dice.chance(0.5):
            name = self._dice.pick(BEFORE_CREATE if arrival.is_create else BEFORE)
            return self._instead(arrival, name, _before(name, self._dice))
        response = await super().answered(request, handler, arrival)
        if is_bad and not response.prepared:
            name = self._dice.pick(AFTER)
            return self._instead(arrival, name, _after(name, response))
        return response

    def _instead(self, arrival: Arrival, name: str, response: web.StreamResponse) -> web.StreamResponse:
        arrival.mischief = name
        if name.endswith("_wait"):
            arrival.wait_seconds = int(response.headers["Retry-After"])
        if arrival.status is None:
            arrival.status = response.status
        self.on_mischief(name, arrival.trace_id)
        return response


#: What is answered without anything being done.
BEFORE_CREATE: Final = ("500", "503", "503_wait", "429", "429_wait", "429_date", "429_absurd", "401", "404_page", "302")
BEFORE: Final = (*BEFORE_CREATE, "404_own", "408", "403")
#: What is answered once all was done.
AFTER: Final = (
    "500_after", "502_page", "200_page", "200_empty", "cut_json", "a_list", "nulls", "wrong_types", "deep",
    "not_a_number",
)  # fmt: skip


def _before(name: str, dice: Draws) -> web.Response:
    status, _, how = name.partition("_")
    headers = {}
    match how:
        case "wait":
            headers["Retry-After"] = str(dice.whole(2, 20))
        case "date":
            headers["Retry-After"] = "Wed, 21 Oct 2015 07:28:00 GMT"
        case "absurd":
            headers["Retry-After"] = dice.pick(("-5", "soon", "1e3", "12.5.1", ""))
        case "page":
            return web.Response(status=int(status), text=HTML, content_type="text/html")
        case "own":
            return web.json_response({"error": {"code": "not_found", "message": "No such job."}}, status=int(status))
    if status == "302":
        headers["Location"] = "https://elsewhere.test/login"
    return web.json_response({"error": {"code": f"e_{status}"}}, status=int(status), headers=headers)


def _after(name: str, response: web.StreamResponse) -> web.Response:
    body = response.body if isinstance(response, web.Response) and isinstance(response.body, bytes) else b"{}"
    match name:
        case "500_after":
            return web.json_response({"error": {"code": "e_500"}}, status=500)
        case "502_page":
            return web.Response(status=502, text=HTML, content_type="text/html")
        case "200_page":
            return web.Response(text=HTML, content_type="text/html")
        case "200_empty":
            return web.Response(content_type="application/json")
        case "cut_json":
            return _json(body[: len(body) // 2])
        case "a_list":
            return _json(b"[" + body + b"]")
        case "nulls":
            return _json(b'{"id": null, "state": null, "status": null, "data": null, "processing_status": null}')
        case "wrong_types":
            return _json(b'{"id": 7.5, "state": ["done"], "status": {"x": 1}, "data": 1, "processing_status": true}')
        case "deep":
            return _json(b'{"id": ' + b"[" * 400 + b"]" * 400 + b"}")
        case _:
            return _json(b'{"id": NaN, "state": 1e999}')


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")
