"""Answers that never begin: the heads of 1xx answers before one are counted, and an endless row of them is cut off.

aiohttp skips them one by one without leaving the loop to anybody else; a time-out alone would let them hold it.
"""

from typing import Final

import aiohttp

#: Heads of 1xx answers before the answer itself. 16: arbitrary; an honest server sends one or two (RFC 9110, 15.2).
MAX_INFORMATIONAL: Final = 16


class CountedResponse(aiohttp.ClientResponse):
    """An answer that begins after few heads, or ends the request with aiohttp's ClientResponseError."""

    _informational = 0

    @property
    def _continue(self) -> None:  # type: ignore[override]
        """Who waits for a 100: nobody, as none is asked for. Raises: ClientResponseError.

        aiohttp has no place for a count. It looks here after each head of a 1xx answer and at no other time, so that an
        answer without any costs nothing more.
        """
        self._informational += 1
        if self._informational > MAX_INFORMATIONAL:
            raise aiohttp.ClientResponseError(self.request_info, self.history, message="1xx without end")
