"""A start with an input: a form whose second part is read from its file while it is sent, however large it is."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import IO, Any, Final

from aiohttp import AsyncIterablePayload, JsonPayload, MultipartWriter
from aiohttp.abc import AbstractStreamWriter

from daemon.cli.inputs import Input
from daemon.cli.progress import Progress
from daemon.local_api import LocalApi, Unreachable
from daemon.shapes import size

#: Seconds in which a piece of the input must have been taken. 60: as long as the daemon itself waits for one.
PIECE_SECONDS: Final = 60
#: Seconds from the last piece to the answer. 300: arbitrary; a million items are some ten seconds of writing.
COMMIT_SECONDS: Final = 300


class _Items(AsyncIterablePayload):
    """The input on its way."""

    _transport: Any = None

    async def write(self, writer: AbstractStreamWriter) -> None:
        """As aiohttp asks for it."""
        self._transport = getattr(writer, "transport", None)
        await super().write(writer)

    def cut(self) -> None:
        """What is still on its way, nobody wants any more: a closed connection would wait until it is taken."""
        if self._transport is not None:
            self._transport.abort()


async def start(
    api: LocalApi, body: Mapping[str, Any], given: Input, *, headers: Mapping[str, str] | None, is_shown: bool
) -> dict[str, Any]:
    """Start an operation with the items of a file. Raises: WrongUsage, Refused, Unreachable."""
    with given.open() as file, Progress("bytes", spelled=size, is_shown=is_shown) as progress:
        try:
            async with asyncio.timeout(PIECE_SECONDS) as patience:
                items = _Items(_pieces(given, file, progress, patience), content_type="application/jsonl")
                form = MultipartWriter("form-data")
                _append(form, "operation", JsonPayload(body, dumps=json.dumps))
                _append(form, "input", items)
                try:
                    return await api.call("POST", "/v1/operations", data=form, headers=headers, seconds=None)
                except BaseException:
                    items.cut()
                    raise
        except TimeoutError as fault:
            raise Unreachable(
                "the daemon has not answered; whether it has started is not known, and the same command with"
                " --idempotency-key would tell"
            ) from fault


def _append(form: MultipartWriter, name: str, payload: JsonPayload | AsyncIterablePayload) -> None:
    payload.set_content_disposition("form-data", name=name)
    form.append_payload(payload)


async def _pieces(given: Input, file: IO[bytes], progress: Progress, patience: asyncio.Timeout) -> AsyncIterator[bytes]:
    """The input in pieces; each gives the daemon new time."""
    now = asyncio.get_running_loop().time
    sent, whole = 0, given.size()
    for piece in given.pieces(file):
        yield piece
        sent += len(piece)
        patience.reschedule(now() + PIECE_SECONDS)
        if whole is not None:
            progress.tell(sent, whole)
    patience.reschedule(now() + COMMIT_SECONDS)
