"""A start as a form: a large input goes to the spool as it comes, checked line by line, or leaves nothing.

The bytes of each form are written by hand: what a library would never send has to be told as well.
"""

import asyncio
import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from handlers.api import body as body_module
from handlers.api import start_form
from reconcile import input_file
from reconcile.files import Files
from tests.handlers.ground import START, Answer, Ground, exchange, request_bytes, running, until
from tests.handlers.test_operations_api import assert_problem, keyed, nothing_was_begun

OPERATION: dict[str, Any] = {name: value for name, value in START.items() if name != "items"}
FORM = "multipart/form-data; boundary=xyz"


def line(custom_id: str, **fields: Any) -> bytes:
    return json.dumps({"custom_id": custom_id, "url": "/v1/responses", "body": {"model": "m"}, **fields}).encode()


def lines(*ids: str) -> bytes:
    return b"".join(line(each) + b"\n" for each in ids)


def part(name: str | None, data: bytes, *headers: str) -> bytes:
    named = [f'Content-Disposition: form-data; name="{name}"'] if name is not None else []
    head = "".join(f"{each}\r\n" for each in [*named, *headers])
    return b"--xyz\r\n" + head.encode() + b"\r\n" + data + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--xyz--\r\n"


def operation(**fields: Any) -> bytes:
    given = {name: value for name, value in {**OPERATION, **fields}.items() if value is not ...}
    return part("operation", json.dumps(given).encode(), "Content-Type: application/json")


def input_of(data: bytes, *headers: str) -> bytes:
    return part("input", data, *(headers or ("Content-Type: application/jsonl",)))


async def post(ground: Ground, data: bytes, *, key: str | None = None, kind: str = FORM) -> Answer:
    more = keyed(key) if key is not None else {}
    return await ground.api("POST", "/v1/operations", data=data, headers={"Content-Type": kind, **more})


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with running(tmp_path / "state") as ground:
        yield ground


# ---- what is taken ---------------------------------------------------------------------------------------------


async def test_a_form_starts_what_the_same_json_starts(ground: Ground) -> None:
    ids = [f"row-{n}" for n in range(500)]
    items = [json.loads(line(each)) for each in ids]
    as_json = await ground.start(items=items)
    answer = await post(ground, form(operation(caller="c"), input_of(lines(*ids))))
    assert answer.status == 202, answer
    as_form = answer.json()["operation_id"]
    assert answer.headers["Location"] == f"/v1/operations/{as_form}"
    assert int(answer.headers["Retry-After"]) > 0
    spooled = [(ground.folder / "spool" / f"{each}.jsonl").read_bytes() for each in (as_json, as_form)]
    assert spooled[0] == spooled[1]
    one, other = await ground.row(as_json), await ground.row(as_form)
    assert one.fingerprint == other.fingerprint
    assert (other.input_items, other.caller) == (500, "c")
    sql = (
        "SELECT i.item_id, i.line, i.outcome, i.start, i.length FROM items i JOIN operations o"
        " ON o.key = i.operation_key WHERE o.operation_id = ? ORDER BY i.line"
    )
    assert ground.rows(sql, as_json) == ground.rows(sql, as_form)
    assert list((ground.folder / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    "data",
    [
        line("a") + b"\n" + line("b") + b"\n",
        line("a") + b"\n" + line("b"),
        line("a") + b"\r\n" + line("b") + b"\r\n",
        b"\n\n" + line("a") + b"\n \t \n" + line("b") + b"\n\n\n",
        b"\xef\xbb\xbf" + line("a") + b"\n" + line("b"),
        line("a", body={"x": "\u2028"}) + b"\n" + line("b"),
        line("a", body={"x": "--xyz"}) + b"\n" + line("b"),
        line("a", body={"x": "p" * 300_000}) + b"\n" + line("b"),
    ],
)
async def test_lines_end_at_a_newline_and_nowhere_else(ground: Ground, data: bytes) -> None:
    """S34."""
    answer = await post(ground, form(operation(), input_of(data)))
    assert answer.status == 202, answer
    page = await ground.get(f"/v1/operations/{answer.json()['operation_id']}/items")
    assert [one["item_id"] for one in page["items"]] == ["a", "b"]


@pytest.mark.parametrize("kind", ["", "application/octet-stream", "text/plain; charset=utf-8", "application/x-ndjson"])
async def test_what_senders_call_such_bytes_is_taken(ground: Ground, kind: str) -> None:
    headers = [f"Content-Type: {kind}"] if kind else ["X-Other: 1"]
    data = form(part("operation", json.dumps(OPERATION).encode()), input_of(lines("a"), *headers))
    assert (await post(ground, data)).status == 202


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "op_x.jsonl", "a\\..\\b", "\x01", "x" * 2_000, "C:%00"]
)
async def test_a_file_name_is_never_used(ground: Ground, name: str) -> None:
    """S35."""
    named = f'Content-Disposition: form-data; name="input"; filename="{name}"'
    answer = await post(ground, form(operation(), part(None, lines("a"), named)))
    if answer.status != 202:
        assert_problem(answer, 400)
        assert nothing_was_begun(ground)
        return
    assert [path.name for path in (ground.folder / "spool").iterdir()] == [f"{answer.json()['operation_id']}.jsonl"]


async def test_what_was_started_as_a_form_runs_to_its_row_only_after_its_file(ground: Ground) -> None:
    """A1: the row names a file that is there, durable under its own name."""
    answer = await post(ground, form(operation(), input_of(lines("a", "b"))))
    op = await ground.row(answer.json()["operation_id"])
    assert op.input_ref is not None
    data = (ground.folder / op.input_ref).read_bytes()
    assert [json.loads(each)["custom_id"] for each in data.splitlines()] == ["a", "b"]


# ---- the key ---------------------------------------------------------------------------------------------------


async def test_a_key_compares_the_operation_by_its_canonical_form_and_the_input_by_its_bytes(ground: Ground) -> None:
    first = await post(ground, form(operation(), input_of(lines("a", "b"))), key="k")
    assert first.status == 202, first
    operation_id = first.json()["operation_id"]
    turned = json.dumps(dict(reversed(OPERATION.items())), indent=2).encode()
    other_kind = form(part("operation", turned), part("input", lines("a", "b"), 'X-Any: "1"'))
    again = await post(ground, other_kind, key="k")
    assert (again.status, again.json()["operation_id"]) == (202, operation_id)
    for data in (
        form(operation(), input_of(lines("b", "a"))),
        form(operation(), input_of(lines("a", "b") + b"\n")),
        form(operation(caller="x"), input_of(lines("a", "b"))),
    ):
        document = assert_problem(await post(ground, data, key="k"), 422)
        assert document["operation_id"] == operation_id
    as_json = {**OPERATION, "items": [json.loads(line(each)) for each in ("a", "b")]}
    assert_problem(await ground.api("POST", "/v1/operations", body=as_json, headers=keyed("k")), 422)
    assert ground.rows("SELECT count(*) FROM operations") == [(1,)]
    assert [path.name for path in (ground.folder / "spool").iterdir()] == [f"{operation_id}.jsonl"]


async def test_a_key_holds_for_forms_over_marks_that_differ(tmp_path: Path) -> None:
    """Each try makes another operation id, and with it another mark: what was given is compared, not what is sent."""
    marked = {
        "claude": {
            "kind": "anthropic_batches",
            "base_url": "http://127.0.0.1:9/v1",
            "api_key": {"env": "API_KEY"},
            "mark_items": True,
        }
    }
    async with running(tmp_path / "state", providers=marked) as ground:
        data = form(operation(provider="claude", request={}), input_of(b'{"custom_id":"a","params":{"model":"m"}}\n'))
        answers = [await post(ground, data, key="k") for _ in range(2)]
        assert [answer.status for answer in answers] == [202, 202]
        assert len({answer.json()["operation_id"] for answer in answers}) == 1


# ---- what is refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "status", "pointer"),
    [
        (form(operation(items=[]), input_of(lines("a"))), 422, "/items"),
        (form(operation(items=[json.loads(line("a"))]), input_of(lines("a"))), 422, "/items"),
        (form(operation(remote_job_id="batch_1", request=...), input_of(lines("a"))), 422, "/input"),
        (form(operation(provider="nobody"), input_of(lines("a"))), 422, "/provider"),
        (form(operation(provider=...), input_of(lines("a"))), 422, "/provider"),
        (form(operation(request={}), input_of(lines("a"))), 422, "/request/endpoint"),
        (form(operation(wat=1), input_of(lines("a"))), 422, "/wat"),
        (
            form(operation(request={"endpoint": "/v1/x", "input_file_id": "file-1"}), input_of(lines("a"))),
            422,
            "/items",
        ),
        (form(operation(expect={"items": 3}), input_of(lines("a"))), 422, "/expect/items"),
        (form(operation(expect={"items": ["b"]}), input_of(lines("a"))), 422, "/expect/items/0"),
        (form(operation(), input_of(b"")), 422, "/items"),
        (form(operation(), input_of(b"\n \n")), 422, "/items"),
        (form(operation(), input_of(lines("a", "b", "a"))), 422, "/items/2"),
        (form(operation(), input_of(lines("a") + b"{")), 422, "/items/1"),
        (form(operation(), input_of(lines("a") + b"\n[]\n")), 422, "/items/1"),
        (form(operation(), input_of(lines("a") + b"null\n")), 422, "/items/1"),
        (form(operation(), input_of(lines("a") + b"\xff\n")), 422, "/items/1"),
        (form(operation(), input_of(lines("a") + b'{"custom_id":"b","x":NaN}\n')), 422, "/items/1"),
        (form(operation(), input_of(lines("a") + b'{"custom_id":"\\ud800"}\n')), 422, "/items/1"),
        (form(operation(), input_of(lines("a") + b"[" * 5_000 + b"\n")), 422, "/items/1"),
        (form(operation(), input_of(lines("a") + line("b").replace(b"{", b"\n{", 1)[1:-1])), 422, "/items/1"),
        (form(operation(), input_of(lines("a") + line("b\x00"))), 422, "/items/1/custom_id"),
        (form(operation(), input_of(line("", url="/v"))), 422, "/items/0/custom_id"),
        (form(operation(), input_of(line("a", wat=1))), 422, "/items/0/wat"),
        (form(operation()), 422, "/input"),
        (form(input_of(lines("a"))), 422, "/operation"),
        (form(input_of(lines("a")), operation()), 422, "/operation"),
        (form(operation(), operation()), 422, "/input"),
        (form(operation(), part("wat", b"1"), input_of(lines("a"))), 422, "/input"),
        (form(operation(), input_of(lines("a")), part("wat", b"1")), 422, ""),
        (form(operation(), input_of(lines("a")), input_of(lines("b"))), 422, ""),
        (form(operation(), part(None, lines("a"), "X-Any: 1")), 422, "/input"),
        (form(part(None, b"{}", "X-Any: 1")), 422, "/operation"),
        (form(), 422, "/operation"),
        (form(part("operation", b"[]"), input_of(lines("a"))), 422, ""),
    ],
)
async def test_a_wrong_form_is_told_where_it_is_wrong(ground: Ground, data: bytes, status: int, pointer: str) -> None:
    """I4: as in JSON, and nothing is begun."""
    document = assert_problem(await post(ground, data), status)
    assert [error["pointer"] for error in document["errors"]] == [pointer]
    assert document["errors"][0]["message"]
    assert nothing_was_begun(ground)


async def test_an_unreadable_line_is_told_by_its_number_in_the_file(ground: Ground) -> None:
    """Blank lines hold no item, so that the pointer alone would not lead to it."""
    document = assert_problem(await post(ground, form(operation(), input_of(lines("a") + b"\n\n{\n"))), 422)
    assert document["errors"] == [{"pointer": "/items/1", "message": "line 4 of the input: not JSON at character 1"}]


@pytest.mark.parametrize(
    "part_kind", ["image/png", "application/json", "multipart/mixed; boundary=abc", "application/jsonl; charset=utf-16"]
)
async def test_an_input_of_another_type_is_415(ground: Ground, part_kind: str) -> None:
    data = form(operation(), input_of(lines("a"), f"Content-Type: {part_kind}"))
    answer = await post(ground, data)
    assert answer.status in (415, 422), answer
    assert_problem(answer, answer.status)
    assert nothing_was_begun(ground)


@pytest.mark.parametrize(
    "header",
    [
        "Content-Encoding: gzip",
        "Content-Encoding: identity",
        "Content-Transfer-Encoding: base64",
        "Content-Transfer-Encoding: quoted-printable",
        "Content-Transfer-Encoding: wat",
    ],
)
async def test_an_encoded_part_is_415(ground: Ground, header: str) -> None:
    for data in (
        form(operation(), input_of(lines("a"), header)),
        form(part("operation", json.dumps(OPERATION).encode(), header), input_of(lines("a"))),
    ):
        assert_problem(await post(ground, data), 415)
    assert nothing_was_begun(ground)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "identity", "wat"])
async def test_an_encoded_form_is_refused(ground: Ground, encoding: str) -> None:
    """S16: never 500."""
    answer = await ground.api(
        "POST",
        "/v1/operations",
        data=form(operation(), input_of(lines("a"))),
        headers={"Content-Type": FORM, "Content-Encoding": encoding},
    )
    assert answer.status in (400, 415), answer
    assert nothing_was_begun(ground)


WHOLE = form(operation(), input_of(lines("a", "b")))
BROKEN = [
    (FORM, b""),
    (FORM, b"\r\n"),
    (FORM, b"x" * 200_000),
    (FORM, b"\r\n" * 100_000),
    (FORM, b"--xyz"),
    (FORM, b"--xyz\r\n"),
    (FORM, b"--xyz\r\n\r\n"),
    (FORM, b"--xyz\r\n" + b"A" * 100_000 + b": 1\r\n\r\n"),
    (FORM, b"--xyz\r\n" + b"A: 1\r\n" * 10_000 + b"\r\n"),
    (FORM, b"--xyz\r\nContent-Disposition\r\n\r\n{}\r\n--xyz--\r\n"),
    (FORM, b"--xyz\r\nContent-Disposition: form-data; name=\xff\xfe\r\n\r\n{}\r\n--xyz--\r\n"),
    (FORM, b'--xyz\r\nContent-Disposition: form-data; name="operation\r\n\r\n{}\r\n--xyz--\r\n'),
    (FORM, b"--xyz\r\nContent-Disposition: form-data; name*=utf-16''%ff\r\n\r\n{}\r\n--xyz--\r\n"),
    (FORM, b'--xyz\r\nContent-Disposition: form-data; name="_charset_"\r\n\r\n' + b"u" * 100 + b"\r\n" + WHOLE),
    (FORM, b'--xyz\r\nContent-Disposition: form-data; name="_charset_"\r\n\r\nutf-99\r\n' + WHOLE),
    (FORM, b"--xyz\r\nContent-Type: multipart/mixed\r\n\r\n{}\r\n--xyz--\r\n"),
    (FORM, b"--xyz\r\nContent-Type: multipart/mixed; boundary=" + b"b" * 80 + b"\r\n\r\n{}\r\n--xyz--\r\n"),
    (FORM, b"--xyz\r\nContent-Type: multipart/mixed; boundary=abc\r\n\r\n--abc\r\n\r\n{}\r\n--abc--\r\n--xyz--\r\n"),
    (FORM, WHOLE.removesuffix(b"--xyz--\r\n")),
    (FORM, WHOLE.removesuffix(b"--\r\n")),
    (FORM, WHOLE.replace(b"--xyz--", b"--xyz-x")),
    (FORM, WHOLE.replace(b"\r\n--xyz--", b"--xyz--")),
    (FORM, WHOLE.replace(b"\r\n", b"\n")),
    ("multipart/form-data", WHOLE),
    ("multipart/form-data; boundary=", WHOLE),
    ("multipart/form-data; boundary=" + "b" * 71, WHOLE),
    ("multipart/form-data; boundary=other", WHOLE),
    ('multipart/form-data; boundary="x\\"', WHOLE),
    ("multipart/form-data; boundary=\xe9", WHOLE),
]


@pytest.mark.parametrize(("kind", "data"), BROKEN)
async def test_what_is_no_form_is_the_senders_fault(ground: Ground, kind: str, data: bytes) -> None:
    headers = [
        ("Authorization", f"Bearer {ground.daemon.token}"),
        ("Content-Type", kind),
        ("Content-Length", str(len(data))),
    ]
    host = f"127.0.0.1:{ground.local_port}"
    answer = await exchange(ground.local_port, request_bytes("POST", "/v1/operations", headers, data, host=host))
    assert answer.status in (400, 415, 422), answer
    assert_problem(answer, answer.status)
    assert nothing_was_begun(ground)


@pytest.mark.parametrize("cut", range(0, len(WHOLE) - 4, 7))
async def test_a_form_that_ends_anywhere_before_its_end_starts_nothing(ground: Ground, cut: int) -> None:
    answer = await post(ground, WHOLE[:cut])
    assert answer.status in (400, 415, 422), answer
    assert nothing_was_begun(ground)


async def test_garbage_of_any_shape_is_never_a_fault_of_ours(ground: Ground) -> None:
    """Bytes of a good form, struck out, doubled and turned over at many places."""
    for n in range(0, len(WHOLE), 5):
        for data in (
            WHOLE[:n] + WHOLE[n + 1 :],
            WHOLE[:n] + WHOLE[n : n + 9] * 2 + WHOLE[n + 9 :],
            WHOLE[:n] + bytes([WHOLE[n] ^ 0x80]) + WHOLE[n + 1 :],
            WHOLE[:n] + b"\r\n--xyz\r\n" + WHOLE[n:],
        ):
            answer = await post(ground, data)
            assert answer.status in (202, 400, 415, 422), (data, answer)
    named = {f"{row[0]}.jsonl" for row in ground.rows("SELECT operation_id FROM operations")}
    assert {path.name for path in (ground.folder / "spool").iterdir()} == named


@pytest.mark.parametrize("fault", [ValueError, RuntimeError, LookupError, AssertionError])
async def test_a_fault_of_ours_is_not_told_as_the_senders(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, fault: type[Exception]
) -> None:
    """What aiohttp's reader raises is caught around that reader alone."""

    def broken(*_: Any) -> Any:
        raise fault("a fault of ours")

    monkeypatch.setattr(start_form, "_the", broken)
    assert_problem(await post(ground, WHOLE), 500)
    assert nothing_was_begun(ground)


def test_a_header_that_cannot_be_read_is_a_fault_and_no_line_on_stderr() -> None:
    """In a process of its own, since pytest has warnings raised anyway."""
    code = (
        "import warnings; from daemon.listeners import raise_what_aiohttp_warns_of\n"
        "assert 'BadContentDisposition' not in str(warnings.filters), 'an import changed the process'\n"
        "raise_what_aiohttp_warns_of()\n"
        "from aiohttp.multipart import parse_content_disposition as parse\n"
        "for wrong in ('form-data; nam', \"form-data; name*=utf-16''%ff\"):\n"
        "    try: parse(wrong)\n"
        "    except RuntimeWarning: print('raised')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("raised\nraised\n", "")


# ---- bounds ----------------------------------------------------------------------------------------------------


async def test_json_beyond_the_cap_is_told_to_come_as_a_form(tmp_path: Path) -> None:
    async with running(tmp_path / "state", sections={"caps": {"start_body": "2KiB"}}) as ground:
        items = [json.loads(line(str(n))) for n in range(100)]
        document = assert_problem(await ground.api("POST", "/v1/operations", body={**OPERATION, "items": items}), 413)
        assert "multipart/form-data" in document["detail"]
        assert "2048 bytes" in document["detail"]
        assert nothing_was_begun(ground)
        answer = await post(ground, form(operation(), input_of(lines(*(str(n) for n in range(100))))))
        assert answer.status == 202, answer


async def test_an_operation_part_beyond_the_cap_is_413(tmp_path: Path) -> None:
    async with running(tmp_path / "state", sections={"caps": {"start_body": "2KiB"}}) as ground:
        assert_problem(await post(ground, form(operation(caller="x" * 3_000), input_of(lines("a")))), 413)
        assert nothing_was_begun(ground)


async def test_an_input_beyond_the_cap_is_413_and_leaves_no_file(tmp_path: Path) -> None:
    async with running(tmp_path / "state", sections={"caps": {"input": "1KiB"}}) as ground:
        document = assert_problem(await post(ground, form(operation(), input_of(lines(*map(str, range(100)))))), 413)
        assert document["errors"][0]["pointer"].startswith("/items/")
        assert nothing_was_begun(ground)


async def test_a_line_beyond_the_cap_is_413_whether_it_ends_or_not(tmp_path: Path) -> None:
    async with running(tmp_path / "state", sections={"caps": {"line": "1KiB"}}) as ground:
        for data in (line("b", body={"x": "p" * 1_000}), b" " * 2_000, b"p" * 200_000):
            document = assert_problem(await post(ground, form(operation(), input_of(lines("a") + data))), 413)
            assert document["errors"][0]["pointer"] == "/items/1"
        assert nothing_was_begun(ground)


async def test_more_items_than_the_provider_takes_are_refused_while_they_come(ground: Ground) -> None:
    """The refusal does not wait for the rest."""
    document = assert_problem(await post(ground, form(operation(), input_of(lines(*map(str, range(50_100)))))), 422)
    assert document["errors"][0]["pointer"] == "/items"
    assert "50000" in document["errors"][0]["message"]
    assert nothing_was_begun(ground)


async def test_no_input_has_more_items_than_memory_is_kept_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_file, "MAX_ITEMS", 3)
    async with running(tmp_path / "state") as ground:
        document = assert_problem(await post(ground, form(operation(), input_of(lines("a", "b", "c", "d")))), 422)
        assert document["errors"][0]["pointer"] == "/items"
        assert nothing_was_begun(ground)


# ---- faults ----------------------------------------------------------------------------------------------------


async def open_form(ground: Ground, data: bytes, *, length: int) -> asyncio.StreamWriter:
    """A request that has begun: its head, and so much of its body."""
    headers = [
        ("Authorization", f"Bearer {ground.daemon.token}"),
        ("Content-Type", FORM),
        ("Content-Length", str(length)),
    ]
    _, writer = await asyncio.open_connection("127.0.0.1", ground.local_port)
    host = f"127.0.0.1:{ground.local_port}"
    writer.write(request_bytes("POST", "/v1/operations", headers, data, host=host))
    await writer.drain()
    return writer


@pytest.mark.parametrize("how", ["closed", "reset"])
async def test_a_client_that_goes_away_in_the_middle_leaves_nothing(ground: Ground, how: str) -> None:
    begun = operation() + input_of(lines(*map(str, range(2_000))))
    writer = await open_form(ground, begun, length=10_000_000)

    async def is_under_way() -> bool:
        return any(path.stat().st_size for path in (ground.folder / "tmp").iterdir())

    await until(is_under_way)
    if how == "reset":
        writer.transport.abort()
    else:
        writer.close()

    async def is_gone() -> bool:
        return nothing_was_begun(ground)

    await until(is_gone)
    assert [entry for entry in ground.logged if entry["log_level"] == "error"] == []


async def test_a_full_disk_is_503_and_leaves_nothing(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the disk fills up in the middle of the input."""
    write, left = os.write, [2]

    def full(fd: int, data: Any) -> int:
        if threading.current_thread() is not threading.main_thread() and len(data) > 60:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data)

    monkeypatch.setattr("reconcile.files.os.write", full)
    answer = await post(ground, form(operation(), input_of(lines(*map(str, range(5_000))))))
    monkeypatch.undo()
    assert left[0] < 0
    assert_problem(answer, 503)
    assert int(answer.headers["Retry-After"]) > 0
    assert nothing_was_begun(ground)
    assert (await post(ground, form(operation(), input_of(lines("a"))))).status == 202


async def test_a_form_that_cannot_be_stored_is_503_and_leaves_no_file(ground: Ground) -> None:
    ground.daemon.store.stop()
    assert_problem(await post(ground, WHOLE), 503)
    assert nothing_was_begun(ground)


@pytest.mark.parametrize("begun", [b"--xyz\r\n", operation()[:60], operation(), operation() + b"--xyz\r\n"])
async def test_a_form_that_drips_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(start_form, "BODY_SECONDS", 0.2)
    monkeypatch.setattr(start_form, "IDLE_SECONDS", 0.2)
    async with running(tmp_path / "state") as ground:
        await assert_times_out(ground, begun)


async def test_an_input_that_drips_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_form, "IDLE_SECONDS", 0.2)
    async with running(tmp_path / "state") as ground:
        await assert_times_out(ground, operation() + input_of(lines(*map(str, range(2_000))))[:-2])


async def test_an_input_that_never_ends_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However steadily it comes."""
    monkeypatch.setattr(start_form, "INPUT_SECONDS", 0.5)
    async with running(tmp_path / "state") as ground:
        writer = await open_form(ground, operation() + input_of(b"")[:-2], length=10_000_000)
        gone = asyncio.Event()

        async def drip() -> None:
            try:
                for n in range(1_000):
                    writer.write(line(str(n)) + b"\n")
                    await writer.drain()
                    await asyncio.sleep(0.02)
            except ConnectionError:
                gone.set()

        dripping = asyncio.create_task(drip())

        async def was_told() -> bool:
            return nothing_was_begun(ground) and ground.meters is not None

        await asyncio.sleep(0.8)
        await until(was_told)
        writer.transport.abort()
        dripping.cancel()
        await asyncio.wait({dripping})


async def test_a_json_start_that_drips_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_module, "BODY_SECONDS", 0.2)
    async with running(tmp_path / "state") as ground:
        await assert_times_out(ground, b'{"provider"', kind="application/json")


async def assert_times_out(ground: Ground, begun: bytes, *, kind: str = FORM) -> None:
    headers = [
        ("Authorization", f"Bearer {ground.daemon.token}"),
        ("Content-Type", kind),
        ("Content-Length", "1000000"),
    ]
    host = f"127.0.0.1:{ground.local_port}"
    answer = await exchange(ground.local_port, request_bytes("POST", "/v1/operations", headers, begun, host=host))
    assert_problem(answer, 408)
    assert nothing_was_begun(ground)


async def test_a_discarded_file_is_not_written_to_by_a_thread_that_comes_late(ground: Ground) -> None:
    """Its descriptor may be another file's by then."""
    writer = Files(ground.folder, ground.supervisor).create("spool/x")
    writer.discard()
    with pytest.raises(OSError, match="No such file"):
        writer.write_on_thread(b"late")


# ---- size ------------------------------------------------------------------------------------------------------


async def test_others_are_answered_while_a_large_input_comes(ground: Ground) -> None:
    """The usual answer takes a few ms meanwhile; 100 ms is what was promised of the middle one."""
    other = await ground.start()
    data = form(operation(), input_of(lines(*map(str, range(40_000)))))
    sending = asyncio.create_task(post(ground, data))
    took = []
    while not sending.done():
        began = time.monotonic()
        await ground.get(f"/v1/operations/{other}")
        took.append(time.monotonic() - began)
        await asyncio.sleep(0.005)
    assert sending.result().status == 202
    assert len(took) > 5
    assert sorted(took)[len(took) // 2] < 0.1
