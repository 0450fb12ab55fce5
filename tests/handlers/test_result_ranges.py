"""A result by ranges of its bytes: a download that was cut off is resumed, and never made of two results."""

import hashlib

import aiohttp
import pytest

from handlers.api.results import PIECE
from reconcile.evidence import Collected
from reconcile.model import ResultInfo, Summary
from tests.handlers.ground import Ground

JOB = "batch_ranges"
FILES = (b"0123456789", b"", b"abcdefghij")
WHOLE = b"".join(FILES)
TAG = f'"{hashlib.sha256(WHOLE).hexdigest()}"'


async def ended(ground: Ground, files: tuple[bytes, ...] = FILES, *, missing: int = 0) -> str:
    """An operation that ended with these files, or asks about what is missing; the path of its result."""
    operation = await ground.operation("result_collecting", JOB)
    names = tuple(f"results/{operation}/1/{n}.jsonl" for n in range(len(files)))
    for name, data in zip(names, files, strict=True):
        (ground.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (ground.folder / name).write_bytes(data)
    whole = b"".join(files)
    info = ResultInfo(1, len(whole), hashlib.sha256(whole).hexdigest(), None, 1, names)
    await ground.apply(operation, Collected(info, Summary(total=1, succeeded=1 - missing, missing=missing)))
    return f"/v1/operations/{operation}/result"


@pytest.fixture
async def path(ground: Ground) -> str:
    return await ended(ground)


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [
        ("bytes=0-0", 0, 0),
        ("bytes=3-6", 3, 6),
        ("bytes=8-12", 8, 12),  # over the border of two files, and of an empty one
        ("bytes=10-", 10, 19),
        ("bytes=12-17", 12, 17),
        ("bytes=5-999", 5, 19),
        ("bytes=-4", 16, 19),
        ("bytes=-15", 5, 19),
        ("bytes=-999", 0, 19),
        ("Bytes=19-19", 19, 19),
    ],
)
async def test_one_range_is_answered_over_all_files(
    ground: Ground, path: str, asked: str, first: int, last: int
) -> None:
    answer = await ground.api("GET", path, headers={"Range": asked})
    assert (answer.status, answer.body) == (206, WHOLE[first : last + 1])
    assert answer.headers["Content-Range"] == f"bytes {first}-{last}/20"
    assert answer.headers["Content-Length"] == str(last - first + 1)
    assert (answer.headers["Etag"], answer.headers["Accept-Ranges"]) == (TAG, "bytes")


@pytest.mark.parametrize(
    "asked",
    [
        "",
        "bytes",
        "bytes=",
        "bytes=-",
        "bytes=6-3",
        "bytes=a-b",
        "bytes=1-2,4-5",
        "lines=0-1",
        "bytes=1",
        f"bytes={10**30}-",
        "bytes=+1-2",
        "bytes=1.5-2",
    ],
)
async def test_what_is_no_single_range_of_bytes_is_answered_with_all_of_them(
    ground: Ground, path: str, asked: str
) -> None:
    """RFC 9110, section 14.2."""
    answer = await ground.api("GET", path, headers={"Range": asked})
    assert (answer.status, answer.body) == (200, WHOLE)
    assert "Content-Range" not in answer.headers


@pytest.mark.parametrize("asked", ["bytes=20-", "bytes=20-30", "bytes=-0"])
async def test_a_range_beyond_the_result_says_how_long_that_is(ground: Ground, path: str, asked: str) -> None:
    answer = await ground.api("GET", path, headers={"Range": asked})
    assert (answer.status, answer.headers["Content-Range"]) == (416, "bytes */20")
    assert answer.json()["status"] == 416
    assert "20 bytes" in answer.json()["detail"]


async def test_of_a_result_without_bytes_there_is_no_range(ground: Ground) -> None:
    path = await ended(ground, ())
    assert (await ground.api("GET", path, headers={"Range": "bytes=0-"})).status == 416
    answer = await ground.api("GET", path, headers={"Range": "bytes=-5"})
    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize("if_range", ['"other"', f"W/{TAG}", TAG.strip('"'), "Sun, 29 Nov 2026 12:00:00 GMT"])
async def test_a_range_of_another_result_is_answered_with_all_of_this_one(
    ground: Ground, path: str, if_range: str
) -> None:
    answer = await ground.api("GET", path, headers={"Range": "bytes=3-", "If-Range": if_range})
    assert (answer.status, answer.body) == (200, WHOLE)


async def test_a_download_that_was_cut_off_is_resumed(ground: Ground) -> None:
    """As `curl -C -` with the tag that it was given."""
    files = (b"x" * (2 * PIECE + 7), b"y" * (3 * PIECE + 1))
    whole, path = b"".join(files), await ended(ground, files)
    url = f"http://127.0.0.1:{ground.local_port}{path}"
    sent = {"Authorization": f"Bearer {ground.daemon.token}"}
    async with ground.session.get(url, headers=sent) as answer:
        tag, had = answer.headers["ETag"], await answer.content.readexactly(PIECE + 3)
        answer.close()
    rest = await ground.api("GET", path, headers={"Range": f"bytes={len(had)}-", "If-Range": tag})
    assert (rest.status, rest.headers["Content-Range"]) == (206, f"bytes {len(had)}-{len(whole) - 1}/{len(whole)}")
    assert had + rest.body == whole
    assert not ground.supervisor.failures


async def test_a_head_tells_of_the_whole_and_sends_nothing(ground: Ground, path: str) -> None:
    answer = await ground.api("HEAD", path, headers={"Range": "bytes=3-6"})
    assert (answer.status, answer.headers["Content-Length"], answer.body) == (200, "20", b"")
    assert (answer.headers["Etag"], answer.headers["Accept-Ranges"]) == (TAG, "bytes")


async def test_a_file_that_has_become_shorter_is_no_whole_answer(ground: Ground, path: str) -> None:
    next((ground.folder / "results").rglob("2.jsonl")).write_bytes(b"abc")
    url = f"http://127.0.0.1:{ground.local_port}{path}"
    sent = {"Authorization": f"Bearer {ground.daemon.token}"}
    async with ground.session.get(url, headers=sent) as answer:
        with pytest.raises(aiohttp.ClientError):
            await answer.read()


async def test_a_file_that_is_gone_is_told_whatever_the_range(ground: Ground, path: str) -> None:
    next((ground.folder / "results").rglob("2.jsonl")).unlink()
    assert (await ground.api("GET", path, headers={"Range": "bytes=0-1"})).status == 410
