"""A small result stands in the body of its operation, where that one is asked for and nowhere else."""

import json
from typing import Any

import pytest

from handlers.api.inline import MAX_INLINE
from tests.event_stream import listening
from tests.handlers.ground import Ground
from tests.handlers.test_result_ranges import ended


async def shown(ground: Ground, *files: bytes) -> Any:
    path = await ended(ground, files)
    body = await ground.get(path.removesuffix("/result"))
    assert body["result_url"] == path
    return body["result"]["inline"]


def sized(count: int) -> bytes:
    return json.dumps("x" * (count - 2)).encode()


@pytest.mark.parametrize(
    ("files", "value"),
    [
        ((b'{"url": "https://cdn.example/1", "n": [1, null]}',), {"url": "https://cdn.example/1", "n": [1, None]}),
        ((b'{\n  "a": 1\n}\n',), {"a": 1}),
        ((b'{"id": 1}\n',), {"id": 1}),
        ((b'{"id": 1}\n\n{"id": 2}',), [{"id": 1}, {"id": 2}]),
        ((b'{"id": 1}', b"", b'{"id": 2}\n'), [{"id": 1}, {"id": 2}]),
        ((b'"\xc3\xa9"',), "é"),
        ((sized(MAX_INLINE),), "x" * (MAX_INLINE - 2)),
        ((sized(MAX_INLINE + 1),), None),
        ((sized(MAX_INLINE), b"1"), None),
        ((b"RIFF\x00\xff",), None),
        ((b'{"id": 1}\nnot JSON',), None),
        ((b"[" * 100 + b"]" * 100,), None),
        ((b"\n",), None),
        ((), None),
    ],
)
async def test_a_small_result_of_json_is_shown_as_its_value(
    ground: Ground, files: tuple[bytes, ...], value: Any
) -> None:
    assert await shown(ground, *files) == value


async def test_a_result_that_cannot_be_read_is_no_fault(ground: Ground) -> None:
    path = await ended(ground, (b"[1]", b"[2]"))
    operation = path.removesuffix("/result")
    file = next((ground.folder / "results").rglob("1.jsonl"))
    file.write_bytes(b"[2, 3]")
    assert (await ground.get(operation))["result"]["inline"] is None
    file.unlink()
    assert (await ground.get(operation))["result"]["inline"] is None


async def test_a_result_is_read_only_where_its_operation_is_asked_for(ground: Ground) -> None:
    """A list of five hundred, or a stream of all, must not cost as many files."""
    operation = (await ended(ground, (b"[1]",))).removesuffix("/result")
    name = operation.rsplit("/", 1)[-1]
    assert (await ground.get(f"{operation}?wait=1"))["result"]["inline"] == [1]
    bodies = (await ground.get("/v1/operations"))["operations"]
    bodies += (await ground.get(f"/v1/wait?id={name}"))["operations"]
    bodies += [one["operation"] for one in (await ground.get("/v1/completions"))["completions"]]
    url = f"http://127.0.0.1:{ground.local_port}{operation}/events"
    async with listening(ground.session, url, ground.daemon.token) as opened:
        bodies += [event.data for event in await opened.rest() if event.name == "operation"]
    assert [body["result"]["inline"] for body in bodies] == [None] * 4


async def test_a_result_that_a_person_is_asked_about_is_not_shown_as_one(ground: Ground) -> None:
    operation = (await ended(ground, (b"[1]",), missing=1)).removesuffix("/result")
    body = await ground.get(operation)
    assert (body["state"], body["result"]["inline"]) == ("result_validation_failed", None)
