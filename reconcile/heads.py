"""Answers that never begin: the heads of 1xx answers before one are counted, and an endless row of them is cut off.

aiohttp skips them one by one without leaving the loop to anybody else; a time-out alone would let them hold it.
"""

from typing import Any, Final

import aiohttp
from aiohttp.connector import Connection

#: Heads of 1xx answers before the answer itself. 16: arbitrary; an honest server sends one or two (RFC 9110, 15.2).
MAX_INFORMATIONAL: Final = 16


class CountedResponse(aiohttp.ClientResponse):
    """An answer that begins after few heads, or ends the request with aiohttp's ClientResponseError."""

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        """As aiohttp's. Raises: ClientResponseError."""
        protocol: Any = connection.protocol
        read, seen = protocol.read, 0

        async def counted() -> Any:
            nonlocal seen
            head = await read()
            seen += head[0].code < 200
            if seen > MAX_INFORMATIONAL:
                raise aiohttp.ClientResponseError(self.request_info, self.history, message="1xx without end")
            return head

        # aiohttp has no place for a count: its own reading stands aside while this one answer begins.
        protocol.read = counted
        try:
            return await super().start(connection)
        finally:
            del protocol.read
