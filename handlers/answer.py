"""A JSON answer of the local API."""

import json
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

_KIND: Final = {"Content-Type": "application/json; charset=utf-8"}
#: No document of ours holds itself, so that nothing is remembered of what was written already.
_ENCODER: Final = json.JSONEncoder(check_circular=False)


def answer(document: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """`document` as an answer."""
    body = _ENCODER.encode(document).encode()
    return web.Response(body=body, status=status, headers={**_KIND, **headers} if headers else _KIND)
