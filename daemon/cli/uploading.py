"""A start with an input: a form whose second part is read from its file while it is sent, however large it is."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import IO, Any, Final

from aiohttp import AsyncIterablePayload, JsonPayload, MultipartWriter

from daemon.cli.inputs import Input
from daemon.cli.progress import Progress
from daemon.local_api import LocalApi, Unreachable
from daemon.shapes import size

#: Seconds in which a piece of the input must have been taken. 60: as long as the daemon itself waits for one.
PIECE_SECONDS: Final = 60
#: Seconds from the last piece to the answer. 300: arbitrary; a million items are some ten seconds of writing.
COMMIT_SECONDS: Final = 300


async def start(
    api: LocalApi, body: Mapping[str, Any], given: Input, *, headers: Mapping[str, str] | None, is_shown: bool
) -> dict[str, Any]:
    """Start an operation with the items of a file. Raises: WrongUsage, Refused, Unreachable."""
    with given.open() as file, Progress("bytes", spelled=size, is_shown=is_shown) as progress:
        whole = given.size()
        try:
            async with asyncio.timeout(PIECE_SECONDS) as patience:
                form = MultipartWriter("form-data")
                _append(form, "operation", JsonPayload(body, dumps=json.dumps))
                pieces = _pieces(given, file, progress, whole, patience)
                _append(form, "input", AsyncIterablePayload(pieces, content_type="application/jsonl"))
                return await api.call("POST", "/v1/operations", data=form, headers=headers, seconds=None)
        except TimeoutError as fault:
            raise Unreachable(
                "the daemon has not answered; whether it has started is not known, and the same command with"
                " --idempotency-key would tell"
            ) from fault


def _append(form: MultipartWriter, name: str, payload: JsonPayload | AsyncIterablePayload) -> None:
    payload.set_content_disposition("form-data", name=name)
    form.append_payload(payload)


async def _pieces(
    given: Input, file: IO[bytes], progress: Progress, whole: int | None, patience: asyncio.Timeout
) -> AsyncIterator[bytes]:
    """The input in pieces; each gives the daemon new time."""
    now = asyncio.get_running_loop().time
    sent = 0
    for piece in given.pieces(file):
        yield piece
        sent += len(piece)
        patience.reschedule(now() + PIECE_SECONDS)
        if whole is not None:
            progress.tell(sent, whole)
    patience.reschedule(now() + COMMIT_SECONDS)
