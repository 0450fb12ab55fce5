"""The commands that look at operations and follow them: list, items, result, wait, `--wait`; and how they go wrong."""

import asyncio
import hashlib
import io
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from daemon import words
from daemon.cli import calls, exits, inputs, main, operations, patience
from daemon.local_api import LocalApi, Unreachable
from daemon.shapes import Grid, count
from reconcile.evidence import Collected, JobRead
from reconcile.model import Observation, RemoteError, ResultInfo, Summary
from tests.daemon.test_cli import EXITS, JOB, Shell
from tests.daemon.test_cli import inputs as files
from tests.handlers.ground import Ground, collected, done, running, strict_json

ROOT = Path(__file__).parents[2]


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def is_device(name: str) -> bool:
    return Path(name).is_char_device()


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with running(tmp_path / "state") as g:
        yield g


@pytest.fixture
def shell(ground: Ground, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(ground, capsys)


# ---- list ------------------------------------------------------------------------------------------------------


async def test_list_is_newest_first_and_the_id_comes_first(ground: Ground, shell: Shell) -> None:
    older = await ground.operation("succeeded", "batch_1")
    ground.clock.advance(1_000)
    newer = await ground.operation("failed", "batch_2")
    assert await shell.run("list") == 0
    lines = shell.out.splitlines()
    assert [line.split()[0] for line in lines] == [newer, older]
    assert "  failed  " in lines[0]
    assert "done (succeeded)" in lines[1]
    assert "1 of 1 item " in lines[1]
    assert await shell.run("list", "--json") == 0
    assert strict_json(shell.out.encode()) == await ground.get("/v1/operations")


async def test_list_open_leaves_out_what_has_ended(ground: Ground, shell: Shell) -> None:
    await ground.operation("succeeded", "batch_1")
    still_open = await ground.operation("observing", "batch_2")
    assert await shell.run("list", "--open") == 0
    assert [line.split()[0] for line in shell.out.splitlines()] == [still_open]


async def test_list_says_when_there_are_more(ground: Ground, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        await ground.start()
    assert await shell.run("list", "--limit", "2") == 0
    assert len(shell.out.splitlines()) == 2
    assert shell.err == ""  # a pipe that has said how many it wants knows that there may be more
    monkeypatch.setattr(operations, "_LIMIT", 2)
    assert await shell.run("list") == 0
    assert len(shell.out.splitlines()) == 2
    assert shell.err == "there are more; --limit N shows more than 2\n"
    assert await shell.run("list", "--limit", "3") == 0
    assert shell.err == ""


async def test_what_the_columns_show_is_what_the_filters_of_their_names_take(ground: Ground, shell: Shell) -> None:
    operation = await ground.operation("completed_with_errors", "batch_1")
    grid = words.listed(await ground.get("/v1/operations")).parts[0]
    assert isinstance(grid, Grid)
    shown = dict(zip((column.heading for column in grid.columns), grid.cells()[0], strict=True))
    for name in ("status", "state", "provider"):
        assert await shell.run("list", f"--{name}", shown[name]) == 0
        assert shell.out.startswith(operation)


async def test_a_state_that_is_asked_for_as_a_status_is_told_by_its_option(shell: Shell) -> None:
    assert await shell.run("list", "--status", "observing") == 2
    assert shell.err == "reconciled: --status: observing is a state; ask for it by --state observing\n"
    assert await shell.run("list", "--status", "wat") == 2
    assert shell.err.startswith("reconciled: --status: must be one of pending, ")


async def test_list_of_nothing_says_so(shell: Shell) -> None:
    assert await shell.run("list") == 0
    assert shell.out == "no operations\n"


# ---- items and result ------------------------------------------------------------------------------------------


async def with_items(ground: Ground) -> str:
    """An operation of three items that were submitted, failed as a whole."""
    items: list[Any] = [{"custom_id": name, "url": "/v1/responses", "body": {}} for name in ("a", "a-longer-id", "c")]
    operation = await ground.start(items=items)
    await ground.accept(operation, JOB)
    refused = Observation("failed", remote_job_id=JOB, error=RemoteError("invalid_json_line", "line 1"))
    await ground.apply(operation, JobRead(refused))
    return operation


async def test_items_are_told_a_line_each_in_columns(ground: Ground, shell: Shell) -> None:
    operation = await with_items(ground)
    assert await shell.run("items", operation) == 0
    lines = shell.out.splitlines()
    assert [line.split()[0] for line in lines] == ["a", "a-longer-id", "c"]
    assert len({line.index(line.split()[1], len("a-longer-id")) for line in lines}) == 1
    assert await shell.run("items", operation, "--json") == 0
    assert strict_json(shell.out.encode()) == await ground.get(f"/v1/operations/{operation}/items")


async def test_items_walks_every_page(ground: Ground, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    operation = await with_items(ground)
    original = LocalApi.call

    async def in_small_pages(self: Any, method: str, path: str, **more: Any) -> Any:
        return await original(self, method, path.replace("limit=500", "limit=1"), **more)

    monkeypatch.setattr(LocalApi, "call", in_small_pages)
    assert await shell.run("items", operation) == 0
    assert [line.split()[0] for line in shell.out.splitlines()] == ["a", "a-longer-id", "c"]


async def test_items_failed_asks_for_the_failed_ones(ground: Ground, shell: Shell) -> None:
    assert await shell.run("items", await ground.start(), "--failed") == 0
    assert shell.out == "no items\n"

    assert await shell.run("items", await with_items(ground), "--failed") == 0
    assert shell.out.splitlines()[0].split() == ["a", "failed", "absent"]


async def test_items_of_one_outcome_say_how_many_had_another(ground: Ground, shell: Shell) -> None:
    withdrawn = await ground.start()
    assert await shell.run("cancel", withdrawn, "--reason", "r", "--by", "ana") == 0
    assert await shell.run("items", withdrawn, "--failed") == 0
    told = f"none failed; 1 cancelled: reconciled items {withdrawn} --outcome cancelled\n"
    assert (shell.out, shell.err) == (told, "")
    assert await shell.run("items", withdrawn, "--outcome", "cancelled") == 0
    assert (shell.out.split()[1], shell.err) == ("cancelled", "")
    assert await shell.run("items", withdrawn, "--outcome", "wat") == 2
    assert shell.err.startswith("reconciled: --outcome: must be one of ")
    with pytest.raises(SystemExit, match="2"):
        await shell.run("items", withdrawn, "--outcome", "cancelled", "--failed")


def test_outcomes_that_are_not_asked_for_are_counted() -> None:
    def told(**counts: int) -> str:
        summary = {"total": sum(counts.values()), "succeeded": 0, "failed": 0, "cancelled": 0, **counts}
        return words.other_outcomes({"operation_id": "op_1", "summary": summary}, "failed")

    assert told(failed=2) == ""
    assert told(failed=1, succeeded=3) == "3 succeeded"
    assert told(cancelled=1, succeeded=3) == "3 succeeded, 1 cancelled: reconciled items op_1 --outcome cancelled"
    assert told(cancelled=1, missing=2) == "1 cancelled, 2 missing: reconciled items op_1"
    assert words.other_outcomes({"operation_id": "op_1", "summary": None}, "failed") == ""


async def with_result(ground: Ground, data: bytes) -> str:
    """An operation whose result was collected into a file of ours."""
    operation = await ground.start()
    await ground.accept(operation, JOB)
    await ground.apply(operation, JobRead(done(JOB)))
    name = "results/told-by-a-test"
    (ground.folder / name).write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    info = ResultInfo(attempt=1, bytes=len(data), sha256=digest, content_type=None, items=1, files=(name,))
    await ground.apply(operation, Collected(info, Summary(total=1, succeeded=1)))
    return operation


async def test_result_gives_the_bytes_as_they_are(
    ground: Ground, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    data = b'{"a": "\xc3\xbc \x1b"}\n\xff' * 50_000
    operation = await with_result(ground, data)
    place = ["--url", f"http://127.0.0.1:{ground.local_port}", "--token-file", str(ground.folder / "api-token")]
    assert await asyncio.to_thread(main, ["result", operation, *place]) == 0
    assert capsysbinary.readouterr().out == data
    assert await asyncio.to_thread(main, ["result", operation, "-o", str(tmp_path / "out"), *place]) == 0
    assert (tmp_path / "out").read_bytes() == data
    assert await asyncio.to_thread(main, ["result", operation, "-o", "/dev/null", *place]) == 0
    assert is_device("/dev/null")


async def test_a_result_that_is_not_there_leaves_no_file(ground: Ground, shell: Shell, tmp_path: Path) -> None:
    operation = await ground.operation("observing", JOB)
    assert await shell.run("result", operation, "-o", str(tmp_path / "out")) == 2
    assert f"so there is no result yet. Do not report success. `reconciled show {operation}` tells" in shell.err
    assert names_in(tmp_path) == ["state"]
    assert await shell.run("result", operation, "-o", str(tmp_path / "no" / "out")) == 2
    assert "cannot be written" in shell.err


# ---- following -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["wait"], ["show", "--wait"]])
@pytest.mark.parametrize(("state", "status"), [(s, n) for s, n in sorted(EXITS.items()) if n != 3])
async def test_waiting_ends_at_once_where_there_is_nothing_to_wait_for(
    ground: Ground, shell: Shell, command: list[str], state: str, status: int
) -> None:
    operation = await ground.operation(state, JOB)
    assert await shell.run(*command, operation) == status
    assert operation in shell.out
    assert (f"→ {state}" in shell.err) == (command[0] == "show")


async def test_wait_gives_up_after_its_span(ground: Ground, shell: Shell) -> None:
    operation = await ground.operation("observing", JOB)
    async with asyncio.timeout(10):
        assert await shell.run("wait", operation, "--max", "1s") == 3
    assert "NOT complete" in shell.out
    assert shell.err == "not ended after 1s; it goes on\n"


async def test_show_wait_follows_to_the_end(ground: Ground, shell: Shell) -> None:
    operation = await ground.operation("observing", JOB)
    following = asyncio.create_task(shell.run("show", operation, "--wait"))
    await ground.until_waiting()
    await ground.apply(operation, JobRead(done(JOB)))
    await ground.apply(operation, collected("succeeded"))
    assert await following == 0
    assert "→ create_pending" in shell.err
    assert "→ succeeded" in shell.err


async def test_a_daemon_that_restarts_meanwhile_is_asked_again(
    ground: Ground, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = await ground.operation("succeeded", JOB)
    original, calls = LocalApi.call, 0

    async def away_for_a_while(self: Any, method: str, path: str, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if 2 <= calls <= 3:
            raise Unreachable("nothing listens there; is the daemon running?")
        return await original(self, method, path, **more)

    monkeypatch.setattr(LocalApi, "call", away_for_a_while)
    monkeypatch.setattr(patience, "AGAIN_SECONDS", 0.01)
    assert await shell.run("wait", operation) == 0
    assert shell.err.count("Asking again") == 1
    assert "goes on without you" not in shell.err


async def test_a_daemon_that_stays_away_is_given_up_and_the_work_is_not(
    ground: Ground, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, items = files(tmp_path)
    original = LocalApi.call

    async def takes_and_leaves(self: Any, method: str, path: str, **more: Any) -> Any:
        if method == "GET":
            raise Unreachable("nothing listens there; is the daemon running?")
        return await original(self, method, path, **more)

    monkeypatch.setattr(LocalApi, "call", takes_and_leaves)
    monkeypatch.setattr(patience, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 0)
    command = ["submit", "--provider", "openai", "--request", request, "--input", items, "--wait"]
    assert await shell.run(*command) == exits.UNAVAILABLE
    (operation,) = ground.rows("SELECT operation_id FROM operations")[0]
    assert shell.err.startswith(f"operation {operation}\n")
    assert f"{operation} goes on without you: reconciled show {operation}\n" in shell.err


async def test_ctrl_c_says_that_the_work_goes_on(ground: Ground, tmp_path: Path) -> None:
    request, items = files(tmp_path)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "daemon", "submit", "--provider", "openai", "--request", request, "--input", items),
        *("--wait", "--url", f"http://127.0.0.1:{ground.local_port}"),
        *("--token-file", str(ground.folder / "api-token")),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stderr is not None
    async with asyncio.timeout(20):
        operation = (await process.stderr.readline()).decode().split()[1]
        await process.stderr.readline()  # the first row: it follows by now
        process.send_signal(signal.SIGINT)
        rest = (await process.stderr.read()).decode()
        assert await process.wait() == 130
    assert f"{operation} goes on without you: reconciled show {operation}\n" in rest
    assert "Traceback" not in rest
    assert (await ground.row(operation)).state == "create_pending"


# ---- what goes wrong -------------------------------------------------------------------------------------------


async def test_a_doubled_id_is_told_by_its_lines(ground: Ground, shell: Shell, tmp_path: Path) -> None:
    request, items = files(tmp_path)
    line = '{"custom_id": "a", "url": "/v1/responses", "body": {}}\n'
    (tmp_path / "input.jsonl").write_text("\n" + line + "\n" + line.replace('"a"', '"b"') + line)
    assert await shell.run("submit", "--provider", "openai", "--request", request, "--input", items) == 2
    assert f"{items}, line 5: the id 'a' stands on line 2 already" in shell.err
    (tmp_path / "input.jsonl").write_text("\n" + line.replace("{}", "7"))
    assert await shell.run("submit", "--provider", "openai", "--request", request, "--input", items) == 2
    assert f"{items}, line 2, /body: " in shell.err


def test_an_id_that_looks_like_a_pointer_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"\n \n1\n2")
    lines = inputs.Input(file)
    assert lines.told("/items/1: the id '/items/0: x' stands at /items/0 already") == (
        f"{file}, line 4: the id '/items/0: x' stands on line 3 already"
    )
    assert lines.told("/request: must be an object") == "/request: must be an object"
    assert lines.told("/items/1: line 4 of the input: not JSON at character 1") == (
        f"{file}, line 4: not JSON at character 1"
    )


async def test_an_empty_pipe_is_told_in_plain_words(
    ground: Ground, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, items = files(tmp_path)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b" \n")))
    assert await shell.run("submit", "--provider", "openai", "--input", items) == 2
    assert "stdin is empty" in shell.err


def test_a_pipe_that_gives_nothing_is_told_to_whoever_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()

    class Watched(io.StringIO):
        """A terminal at which somebody gives the request once it is asked for."""

        def isatty(self) -> bool:
            return True

        def flush(self) -> None:
            os.write(writer, b"{}")
            os.close(writer)

    with os.fdopen(reader) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr("sys.stderr", watched := Watched())
        monkeypatch.setattr(inputs, "SILENT_SECONDS", 0.01)
        assert inputs.read_request("-") == {}
    assert watched.getvalue().startswith("reconciled: waiting for the provider's create body on stdin: pipe ")


async def test_a_file_that_is_not_there_is_told_in_plain_words(shell: Shell, tmp_path: Path) -> None:
    assert await shell.run("submit", "--provider", "openai", "--input", str(tmp_path / "nothing")) == 2
    assert shell.err == f"reconciled: {tmp_path / 'nothing'}: there is no such file\n"


async def test_a_port_where_nothing_listens_is_named(shell: Shell, ground: Ground) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert await shell.run("status", "--url", f"http://127.0.0.1:{port}") == 0  # the shell's own --url comes last
    shell._place[1] = f"http://127.0.0.1:{port}"
    assert await shell.run("status") == exits.UNAVAILABLE
    assert shell.err == f"reconciled: nothing listens on 127.0.0.1:{port}; is the daemon running?\n"


@pytest.mark.parametrize("url", ["127.0.0.1:1", "ftp://x", "http://", "http://[::1", "http://x:99999", "", "wat"])
async def test_an_address_that_is_none_is_wrong_usage(shell: Shell, url: str) -> None:
    shell._place[1] = url
    assert await shell.run("status") == 2
    assert "--url" in shell.err


async def test_a_wrong_token_is_told_with_its_file(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "wrong").write_text("wrong")
    shell._place[3] = str(tmp_path / "wrong")
    for command in (["status"], ["result", "op_1"]):
        assert await shell.run(*command) == exits.NOT_ALLOWED
        assert f"the token in {tmp_path / 'wrong'}" in shell.err


@pytest.mark.parametrize(
    "command",
    [
        ["submit", "--provider", "openai", "--request"],
        ["cancel", "op_1", "--reason", "r"],
        ["input", "op_1"],
        ["claim", "op_1", "--consumer", "mailer"],
        ["decide", "op_1", "give_up", "--reason", "r"],
    ],
)
async def test_what_a_token_may_not_is_no_missing_daemon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    (tmp_path / "viewer").write_text("token-of-a-viewer-0123456789")
    (tmp_path / "given").write_text("{}")
    token = {"token": {"env": "VIEWER"}, "may": ["read"]}
    environ = {"VIEWER": (tmp_path / "viewer").read_text()}
    more = [str(tmp_path / "given")] if command[0] in ("submit", "input") else []
    async with running(tmp_path / "state", sections={"api": {"tokens": {"viewer": token}}}, environ=environ) as ground:
        shell = Shell(ground, capsys)
        shell._place[3] = str(tmp_path / "viewer")
        assert await shell.run(*command, *more) == exits.NOT_ALLOWED == 77
        assert shell.err.startswith('reconciled: The token "viewer" lacks the right ')


@pytest.mark.parametrize(
    ("status", "code"), [(400, 2), (401, 77), (403, 77), (404, 2), (409, 2), (410, 2), (413, 2), (421, 69), (503, 69)]
)
def test_only_what_may_go_another_time_is_told_to_be_tried_again(status: int, code: int) -> None:
    assert exits.of_refusal(status) == code


@pytest.mark.parametrize("span", ["10", "1.5m", "-1s", "s", "1w", "", "0s"])
def test_a_span_that_is_none_is_wrong_usage(span: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["wait", "op_1", f"--max={span}"])
    assert ended.value.code == 2
    assert "10m" in capsys.readouterr().err


@pytest.mark.parametrize(("span", "seconds"), [("200ms", 1), ("1500ms", 2), ("30s", 30), ("10m", 600), ("7d", 604_800)])
def test_a_span_is_spelled_in_a_command_as_in_a_file_and_in_a_body(span: str, seconds: int) -> None:
    """Whole seconds, rounded up: nothing else is waited for over the API."""
    assert calls.seconds(span) == seconds


# ---- simulate --------------------------------------------------------------------------------------------------


def test_simulate_on_a_taken_port_says_what_serve_says(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        listen = f"127.0.0.1:{server.getsockname()[1]}"
        assert main(["simulate", "--listen", listen]) == exits.UNAVAILABLE == 69
    assert capsys.readouterr().err == f"reconciled: cannot listen on {listen}: Address already in use\n"


def test_simulate_that_should_sign_needs_a_secret(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RECONCILED_WEBHOOK_SECRET", raising=False)
    assert main(["simulate", "--webhook-url", "http://127.0.0.1:1/webhooks/x"]) == 2
    assert "$RECONCILED_WEBHOOK_SECRET" in capsys.readouterr().err


async def test_simulate_without_a_receiver_says_that_no_webhooks_will_come() -> None:
    """Also where a secret stands in the environment, which by itself sends nothing."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "daemon", "simulate", "--listen", "127.0.0.1:0"),
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "RECONCILED_WEBHOOK_SECRET": "whsec_" + "a" * 44},
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(20):
            while b"stand-in provider" not in (line := await process.stderr.readline()):
                assert line, "it ended"
        assert b"no webhooks are sent" in line
    finally:
        process.terminate()
        await process.wait()


# ---- words -----------------------------------------------------------------------------------------------------


async def test_a_word_that_says_it_already_is_not_said_twice(ground: Ground, shell: Shell) -> None:
    await shell.run("show", await ground.operation("failed", JOB))
    assert "failed (failed)" not in shell.out


async def test_history_tells_date_and_zone_in_columns_that_hold(ground: Ground, shell: Shell) -> None:
    operation = await ground.operation("result_validation_failed", JOB)
    assert await shell.run("history", operation) == 0
    lines = shell.out.splitlines()
    assert all(line.startswith("2026-11-29T12:00:00.000Z  ") for line in lines)
    rows = (await ground.get(f"/v1/operations/{operation}/history"))["history"]
    assert len({line.index(row["reason"]) for line, row in zip(lines, rows, strict=True)}) == 1


async def test_status_tells_what_was_refused_and_what_was_missed(ground: Ground, shell: Shell) -> None:
    await ground.hook(b"{}", {})
    assert await shell.run("status") == 0
    assert "1 refused, 0 missed" in shell.out
    assert "checkpoint" not in shell.out


async def test_status_names_the_newest_checkpoint(ground: Ground, shell: Shell) -> None:
    await ground.start()
    await ground.daemon.upkeep.close()
    assert await shell.run("status") == 0
    ((digest,),) = ground.rows("SELECT hash FROM checkpoints")
    assert f"checkpoint 1 of 2026-11-29T12:00:00.000Z: {digest}" in shell.out


def test_one_of_a_thing_is_one_thing() -> None:
    assert [count(n, "item") for n in (0, 1, 2)] == ["0 items", "1 item", "2 items"]
