"""The command line: what a person reads, what a script holds on to, and what neither must ever see: a traceback.

The commands run as they are, in a thread, against a daemon on the test's own loop.
"""

import argparse
import asyncio
import errno
import io
import json
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from daemon import words
from daemon.cli import build_parser, exits, main
from daemon.document import configuration_file
from daemon.local_api import LocalApi
from daemon.shapes import clean
from daemon.standin.scenarios import SCENARIOS
from reconcile.evidence import JobRead
from tests.handlers.ground import NOON, Ground, collected, done, running, strict_json, until

JOB = "batch_1"


class Shell:
    """Runs commands against one daemon and keeps what they wrote."""

    def __init__(self, ground: Ground, capsys: pytest.CaptureFixture[str]) -> None:
        self._place = [
            "--url",
            f"http://127.0.0.1:{ground.local_port}",
            "--token-file",
            str(ground.folder / "api-token"),
        ]
        self._capsys = capsys
        self.out = ""
        self.err = ""

    async def run(self, *arguments: str) -> int:
        status = await asyncio.to_thread(main, [*arguments, *self._place])
        self.out, self.err = self._capsys.readouterr()
        assert "Traceback" not in self.err
        return status


@pytest.fixture
def shell(ground: Ground, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(ground, capsys)


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with running(tmp_path / "state") as g:
        yield g


def inputs(folder: Path, *, request: Any = None, lines: list[Any] | None = None) -> tuple[str, str]:
    """A request file and an input file."""
    (folder / "request.json").write_text(json.dumps(request or {"endpoint": "/v1/responses"}))
    items = [{"custom_id": "a", "url": "/v1/responses", "body": {}}] if lines is None else lines
    (folder / "input.jsonl").write_text("\n".join(json.dumps(line) for line in items))
    return str(folder / "request.json"), str(folder / "input.jsonl")


# ---- exit statuses ---------------------------------------------------------------------------------------------

#: The promise: 0 succeeded, 1 failed and its like, 3 not ended yet, 4 needs a person, 5 completed with errors.
EXITS = {
    "create_pending": 3,
    "create_unknown": 3,
    "observing": 3,
    "result_collecting": 3,
    "result_validation_failed": 4,
    "succeeded": 0,
    "completed_with_errors": 5,
    "failed": 1,
}


@pytest.mark.parametrize(("state", "status"), sorted(EXITS.items()))
async def test_show_exits_by_the_state(ground: Ground, shell: Shell, state: str, status: int) -> None:
    operation = await ground.operation(state, JOB)
    assert await shell.run("show", operation) == status
    assert operation in shell.out
    assert state in shell.out
    assert shell.err == ""
    assert ("NOT complete" in shell.out or "NOT known" in shell.out) == (status in (3, 4))


@pytest.mark.parametrize(("state", "status"), sorted(EXITS.items()))
async def test_show_json_is_the_apis_own_body(ground: Ground, shell: Shell, state: str, status: int) -> None:
    operation = await ground.operation(state, JOB)
    assert await shell.run("show", operation, "--json") == status
    assert strict_json(shell.out.encode()) == await ground.get(f"/v1/operations/{operation}")


@pytest.mark.parametrize("outcome", ["cancelled", "timed_out", "abandoned", "failed"])
def test_every_end_that_is_no_success_is_a_one(outcome: str) -> None:
    assert exits.of_operation({"done": True, "outcome": outcome, "attention": None}) == 1


async def test_history_tells_the_story_in_order(ground: Ground, shell: Shell) -> None:
    operation = await ground.operation("succeeded", JOB)
    assert await shell.run("history", operation) == 0
    lines = shell.out.splitlines()
    rows = await ground.daemon.store.history(operation)
    assert len(lines) == len(rows)
    assert "create_pending" in lines[0]
    assert "succeeded" in lines[-1]
    assert await shell.run("history", operation, "--json") == 0
    assert [row["seq"] for row in strict_json(shell.out.encode())["history"]] == [row.seq for row in rows]


async def test_history_walks_every_page(ground: Ground, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    operation = await ground.operation("succeeded", JOB)
    whole = len(await ground.daemon.store.history(operation))
    original = LocalApi.call

    async def in_small_pages(self: Any, method: str, path: str, **more: Any) -> Any:
        return await original(self, method, path.replace("limit=500", "limit=2"), **more)

    monkeypatch.setattr(LocalApi, "call", in_small_pages)
    assert await shell.run("history", operation) == 0
    assert len(shell.out.splitlines()) == whole


async def test_status_tells_how_the_daemon_fares(ground: Ground, shell: Shell) -> None:
    await ground.operation("observing", JOB)
    assert await shell.run("status") == 0
    assert "1 observing" in shell.out
    assert "openai (openai_batch)" in shell.out
    assert await shell.run("status", "--json") == 0
    assert strict_json(shell.out.encode())["operations"] == {"observing": 1}


# ---- submit ----------------------------------------------------------------------------------------------------


async def test_submit_starts_and_says_that_it_is_not_done(ground: Ground, shell: Shell, tmp_path: Path) -> None:
    request, items = inputs(tmp_path)
    assert await shell.run("submit", "--provider", "openai", "--request", request, "--input", items) == 0
    (operation,) = ground.rows("SELECT operation_id FROM operations")[0]
    assert operation in shell.out
    assert "NOT complete" in shell.out


async def test_submit_reads_its_request_from_the_pipe(
    ground: Ground, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, items = inputs(tmp_path)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"endpoint": "/v1/responses"}')))
    assert await shell.run("submit", "--provider", "openai", "--input", items, "--json") == 0
    assert strict_json(shell.out.encode())["state"] == "create_pending"


async def test_submit_with_a_key_gives_the_same_operation(ground: Ground, shell: Shell, tmp_path: Path) -> None:
    request, items = inputs(tmp_path)
    command = ["submit", "--provider", "openai", "--request", request, "--input", items, "--idempotency-key", "k1"]
    assert await shell.run(*command, "--json") == 0
    first = strict_json(shell.out.encode())["operation_id"]
    assert await shell.run(*command, "--json") == 0
    assert strict_json(shell.out.encode())["operation_id"] == first


@pytest.mark.parametrize(("state", "status"), [("succeeded", 0), ("failed", 1), ("completed_with_errors", 5)])
async def test_submit_wait_tells_the_story_and_exits_by_the_end(
    ground: Ground, shell: Shell, tmp_path: Path, state: str, status: int
) -> None:
    await waited(ground, shell, tmp_path, state, status)
    assert "→ observing" in shell.err
    assert f"→ {state}" in shell.err
    assert shell.out.count("operation ") == 1


async def test_submit_wait_ends_when_a_person_is_needed(ground: Ground, shell: Shell, tmp_path: Path) -> None:
    """At once: nobody should sit out a wait for what waits for them."""
    async with asyncio.timeout(10):
        await waited(ground, shell, tmp_path, "result_validation_failed", 4)
    assert "waits for" in shell.out


async def test_submit_wait_json_is_quiet_and_prints_the_last_body(ground: Ground, shell: Shell, tmp_path: Path) -> None:
    await waited(ground, shell, tmp_path, "succeeded", 0, "--json")
    assert shell.err == ""
    assert strict_json(shell.out.encode())["outcome"] == "succeeded"


async def waited(ground: Ground, shell: Shell, folder: Path, state: str, status: int, *more: str) -> None:
    """`submit --wait`, while the job goes to `state`."""
    request, items = inputs(folder)
    command = ["submit", "--provider", "openai", "--request", request, "--input", items, "--wait", *more]
    running_command = asyncio.create_task(shell.run(*command))

    async def is_started() -> bool:
        return bool(ground.rows("SELECT 1 FROM operations")) or running_command.done()

    await until(is_started)
    (operation,) = ground.rows("SELECT operation_id FROM operations")[0]
    await ground.accept(operation, JOB)
    await ground.until_waiting()
    await ground.apply(operation, JobRead(done(JOB)))
    await ground.apply(operation, collected(state))
    assert await running_command == status


# ---- what goes wrong -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"request": "nothing.json"},
        {"request": "broken.json"},
        {"request": "list.json"},
        {"input": "nothing.jsonl"},
        {"input": "broken.jsonl"},
        {"input": "empty.jsonl"},
        {"provider": "nobody"},
        {"request": "unknown.json"},
        {"input": "folder"},
    ],
)
async def test_a_wrong_submit_is_wrong_usage_and_says_where(
    ground: Ground, shell: Shell, tmp_path: Path, given: dict[str, str]
) -> None:
    inputs(tmp_path)
    (tmp_path / "broken.json").write_text('{"a": NaN}')
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "unknown.json").write_text('{"endpoint": "/v1/responses", "wat": 1}')
    (tmp_path / "broken.jsonl").write_text('{"custom_id": "a"}\n{"custom_id": \n')
    (tmp_path / "empty.jsonl").write_text("\n\n")
    (tmp_path / "folder").mkdir()
    used = {"request": "request.json", "input": "input.jsonl", "provider": "openai", **given}
    status = await shell.run(
        *("submit", "--provider", used["provider"]),
        *("--request", str(tmp_path / used["request"]), "--input", str(tmp_path / used["input"])),
    )
    assert status == 2
    assert shell.err.startswith("reconciled: ")
    assert shell.err.count("\n") == 1
    (name,) = given.values()
    named = {"list.json": "/request", "empty.jsonl": "/items", "unknown.json": "/request/wat", "nobody": "/provider"}
    assert named.get(name, name) in shell.err
    assert ground.rows("SELECT count(*) FROM operations") == [(0,)]


async def test_a_pointer_is_printed_once(ground: Ground, shell: Shell, tmp_path: Path) -> None:
    request, items = inputs(tmp_path, request={"endpoint": "/v1/responses", "wat": 1})
    assert await shell.run("submit", "--provider", "openai", "--request", request, "--input", items) == 2
    assert shell.err.count("/request/wat") == 1


async def test_a_broken_line_is_told_with_its_number(ground: Ground, shell: Shell, tmp_path: Path) -> None:
    request, items = inputs(tmp_path)
    (tmp_path / "input.jsonl").write_text('{"custom_id": "a", "url": "/v1/responses", "body": {}}\n\n{"custom_id": \n')
    assert await shell.run("submit", "--provider", "openai", "--request", request, "--input", items) == 2
    assert "line 3" in shell.err


@pytest.mark.parametrize("name", ["op_nobody", "x", "../status", "a b", "a/b", "?wait=1", "%2e%2e/status", "#", "\x1b"])
@pytest.mark.parametrize("command", ["show", "history"])
async def test_an_operation_that_does_not_exist_is_told(ground: Ground, shell: Shell, command: str, name: str) -> None:
    """Whatever is given for an id is an id, and no other path of the API."""
    await ground.start()
    assert await shell.run(command, name) == 2
    assert shell.out == ""
    assert "no operation" in shell.err
    assert shell.err.count("\n") == 1


async def test_a_refusal_in_json_is_the_problem_document(ground: Ground, shell: Shell) -> None:
    assert await shell.run("show", "op_nobody", "--json") == 2
    assert strict_json(shell.out.encode())["status"] == 404


async def test_a_wrong_token_is_no_wrong_usage(
    ground: Ground, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """2 is always wrong usage; that the daemon refuses to be asked is something else."""
    (tmp_path / "wrong").write_text("wrong")
    url = f"http://127.0.0.1:{ground.local_port}"
    status = await asyncio.to_thread(main, ["status", "--url", url, "--token-file", str(tmp_path / "wrong")])
    _, err = capsys.readouterr()
    assert status == exits.NOT_ALLOWED == 77
    assert "token" in err


async def test_a_store_that_takes_nothing_is_no_wrong_usage(ground: Ground, shell: Shell, tmp_path: Path) -> None:
    ground.daemon.store.stop()
    request, items = inputs(tmp_path)
    status = await shell.run("submit", "--provider", "openai", "--request", request, "--input", items)
    assert status == exits.UNAVAILABLE
    assert "try again" in shell.err.lower()


async def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = await asyncio.to_thread(main, list(arguments))
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return status, out, err


async def test_a_daemon_that_does_not_run_is_told_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text("t")
    for command in (["status"], ["show", "op_1"], ["history", "op_1"]):
        status, out, err = await told(
            capsys, *command, "--url", "http://127.0.0.1:1", "--token-file", str(tmp_path / "token")
        )
        assert status == exits.UNAVAILABLE == 69
        assert out == ""
        assert "is the daemon running?" in err
        assert err.count("\n") == 1


@pytest.mark.parametrize("url", ["127.0.0.1:1", "ftp://x", "http://", "http://[::1", "http://x:99999", ""])
async def test_an_address_that_is_none_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], url: str) -> None:
    (tmp_path / "token").write_text("t")
    status, _, err = await told(capsys, "status", "--url", url, "--token-file", str(tmp_path / "token"))
    assert status in (exits.UNAVAILABLE, exits.USAGE)
    assert err.startswith("reconciled: ")
    assert "\x1b" not in err


@pytest.mark.parametrize("token", [b"t\xc3\xb6k", b"a\nb", b"\xff\xfe", b"", b"a\x00b"])
async def test_a_token_file_that_holds_no_token_is_told(
    ground: Ground, tmp_path: Path, capsys: pytest.CaptureFixture[str], token: bytes
) -> None:
    (tmp_path / "token").write_bytes(token)
    url = f"http://127.0.0.1:{ground.local_port}"
    status, _, err = await told(capsys, "status", "--url", url, "--token-file", str(tmp_path / "token"))
    assert status == (exits.NOT_ALLOWED if token == "tök".encode() else exits.UNAVAILABLE)
    assert err.startswith("reconciled: ")


async def test_a_token_file_that_may_not_be_read_is_no_missing_daemon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: Any) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("daemon.given_file.read", forbidden)  # whoever runs the tests may read everything
    status, _, err = await told(capsys, "status", "--url", "http://127.0.0.1:1", "--token-file", str(tmp_path / "t"))
    assert status == exits.NOT_ALLOWED
    assert "Permission denied; is the daemon's token there, and are you allowed?" in err


@pytest.mark.parametrize(
    "content", [None, "x", "[api", 'api = 5\nstate_dir = "y"', "[api]\nlisten = 5", "state_dir = 5", "[api]\ntoken = 5"]
)
async def test_a_configuration_that_tells_nothing_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    monkeypatch.delenv("RECONCILED_URL", raising=False)
    monkeypatch.delenv("RECONCILED_TOKEN_FILE", raising=False)
    path = tmp_path / "reconciled.toml"
    if content is not None:
        path.write_text(content)
    status, _, err = await told(capsys, "status", "--config", str(path))
    assert status in (exits.UNAVAILABLE, exits.BAD_CONFIGURATION)
    assert err.startswith("reconciled: ")
    assert err.count("\n") == 1


async def test_the_daemon_is_found_by_its_configuration(
    ground: Ground, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "reconciled.toml"
    path.write_text(f'state_dir = "{ground.folder}"\n[api]\nlisten = "127.0.0.1:{ground.local_port}"\n')
    status, out, _ = await told(capsys, "status", "--config", str(path))
    assert status == 0
    assert "reconciled" in out


@asynccontextmanager
async def answering(answer: Callable[[], web.Response]) -> AsyncIterator[str]:
    """A server that is not the daemon."""

    async def anything(_: web.Request) -> web.Response:
        return answer()

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", anything)
    server = TestServer(app)
    await server.start_server()
    try:
        yield str(server.make_url("")).rstrip("/")
    finally:
        await server.close()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b""),
        (200, b"[1]"),
        (200, b"null"),
        (404, b""),
        (502, b""),
        (500, b"[]"),
        (401, b"null"),
        (302, b""),
    ],
)
@pytest.mark.parametrize("command", [["status"], ["show", "op_1"]])
async def test_a_server_that_is_not_the_daemon_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], status: int, body: bytes
) -> None:
    (tmp_path / "token").write_text("t")
    async with answering(lambda: web.Response(status=status, body=body)) as url:
        code, _, err = await told(capsys, *command, "--url", url, "--token-file", str(tmp_path / "token"))
    assert code in (exits.UNAVAILABLE, exits.USAGE)
    assert err.startswith("reconciled: ")


BODY = '{"done": false, "attention": null, "state": "observing"%s}'


@pytest.mark.parametrize(
    ("command", "kind", "body"),
    [
        (["show", "op_1"], "application/json", "[" * 100_000),
        (["show", "op_1"], "application/json", BODY % (', "n": ' + "9" * 5000)),
        (["show", "op_1"], "application/json; charset=hex", "7b7d"),
        (["show", "op_1"], "application/json", '{"done": true, "outcome": ["failed"], "attention": null}'),
        (["show", "op_1"], "application/json", '{"done": 1, "outcome": [], "attention": 5, "operation_id": {}}'),
        (["list"], "application/json", '{"operations": 5, "next_cursor": null}'),
        (["list"], "application/json", '{"operations": [null], "next_cursor": null}'),
        (["list"], "application/json", '{"operations": [{"status": 5}], "next_cursor": null}'),
        (["list"], "application/json", '{"operations": [], "next_cursor": 5}'),
        (["inbox"], "application/json", '{"inbox": [{"kind": null, "id": 5}], "next_cursor": null}'),
        (["status"], "application/json", '{"version": 5, "operations": 5, "providers": 5}'),
        (["wait", "op_1", "op_2"], "application/json", '{"operations": [null], "timed_out": false}'),
        (["wait", "op_1", "op_2"], "application/json", '{"operations": 5, "timed_out": false}'),
        (["watch"], "text/event-stream", "event: history\ndata: 5\n\n"),
        (["watch"], "text/event-stream", 'event: history\ndata: {"seq": []}\n\n'),
        (["watch"], "text/event-stream", "event: history\ndata: " + "[" * 100_000 + "\n\n"),
    ],
)
async def test_an_answer_of_another_shape_is_no_failure_of_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], kind: str, body: str
) -> None:
    (tmp_path / "token").write_text("t")
    answer = lambda: web.Response(body=body.encode(), headers={"Content-Type": kind})  # noqa: E731 - read in one line
    async with answering(answer) as url:
        code, _, err = await told(capsys, *command, "--url", url, "--token-file", str(tmp_path / "token"))
    assert code == exits.UNAVAILABLE
    said = [line for line in err.splitlines() if line.startswith("reconciled: ")]
    assert len(said) == 1
    assert "is it the daemon" in said[0]


async def test_what_breaks_before_any_answer_came_stays_a_bug_of_ours(
    ground: Ground, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: str) -> str:
        raise TypeError("ours")

    monkeypatch.setattr("daemon.cli.calls.path_of", broken)
    with pytest.raises(TypeError, match="ours"):
        await shell.run("show", "op_1")


async def test_a_page_where_the_daemon_should_be_is_told_in_plain_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text("t")
    page = lambda: web.Response(text="<html>hello</html>", content_type="text/html")  # noqa: E731 - read in one line
    async with answering(page) as url:
        for command in (["status"], ["list"]):
            code, _, err = await told(capsys, *command, "--url", url, "--token-file", str(tmp_path / "token"))
            assert code == exits.UNAVAILABLE
            assert err == (
                f"reconciled: {url}: answers with something that is not the daemon's JSON; is it the daemon?\n"
            )


async def test_a_connection_that_is_lost_is_told_in_plain_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text("t")
    heads = [
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{",
        b"",
    ]

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(heads[0])
        writer.close()

    server = await asyncio.start_server(cut, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        while heads:
            code, _, err = await told(capsys, "status", "--url", url, "--token-file", str(tmp_path / "token"))
            assert code == exits.UNAVAILABLE
            lost = "the connection was lost before the answer was whole; is the daemon running?"
            assert err == f"reconciled: {url}: {lost}\n"
            heads.pop(0)


async def test_variables_that_are_set_to_nothing_count_as_not_set(
    ground: Ground, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "reconciled.toml"
    path.write_text(f'state_dir = "{ground.folder}"\n[api]\nlisten = "127.0.0.1:{ground.local_port}"\n')
    for name in ("RECONCILED_URL", "RECONCILED_TOKEN_FILE", "RECONCILED_CONFIG"):
        monkeypatch.setenv(name, "")
    assert configuration_file() == Path("/etc/reconciled/reconciled.toml")
    assert (await told(capsys, "status", "--config", str(path)))[0] == 0


# ---- help ------------------------------------------------------------------------------------------------------


def parsers() -> dict[str, argparse.ArgumentParser]:
    actions = build_parser()._subparsers
    assert actions is not None
    choices = next(action.choices for action in actions._group_actions if action.choices)
    return dict(choices)


@pytest.mark.parametrize("command", sorted(parsers()))
def test_the_help_of_each_command_says_what_it_does_and_what_it_takes(command: str) -> None:
    parser = parsers()[command]
    assert parser.description
    assert parser.description[0].isupper()
    assert parser.description.rstrip().endswith(".")
    for action in parser._actions:
        assert action.help or (action.dest == "id" and not action.option_strings), f"{command} {action.dest}"
    assert "usage:" in parser.format_help()


@pytest.mark.parametrize("command", sorted(parsers()))
def test_the_help_of_each_command_teaches_by_example_and_says_how_it_exits(command: str) -> None:
    text = parsers()[command].format_help()
    assert re.search(rf"^examples?:\n  (.*\| )?reconciled {command}\b", text, re.MULTILINE)
    assert "exit status:" in text or command in ("simulate", "audit", "db")  # those say it where it is decided


def test_commands_are_grouped_by_what_one_wants_each_on_one_line() -> None:
    """A new command is put into a group (`help.GROUPS`); one that is in none would stand under `more`."""
    text = build_parser().format_help()
    groups = [line for line in text.splitlines() if re.fullmatch(r"[a-z ]+:", line)]
    assert groups == [
        "options:",
        *("run it:", "start work:", "look:", "act:", "keep the record:"),
        *("examples:", "exit status:"),
    ]
    assert max(len(line) for line in text.splitlines()) <= 100


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["shwo"], "there is no command 'shwo'; did you mean show?"),
        (["xyzzy"], "there is no command 'xyzzy'\nTry: reconciled --help"),
        (["list", "--opne"], "reconciled list: unrecognized arguments: --opne\nTry: reconciled list --help"),
        (["list", "op_1"], "reconciled list: unrecognized arguments: op_1\nTry: reconciled list --help"),
        (["check", "x.toml"], "unrecognized arguments: x.toml; did you mean --config x.toml?\nTry: reconciled check"),
        (["serve", "x.toml"], "unrecognized arguments: x.toml; did you mean --config x.toml?\nTry: reconciled serve"),
        (
            ["audit", "verfy"],
            "reconciled audit: there is no command 'verfy'; did you mean verify?\nTry: reconciled audit",
        ),
        (
            ["audit", "verify", "op_1"],
            "reconciled audit verify: unrecognized arguments: op_1\nTry: reconciled audit ver",
        ),
        (["list", "--atten"], "unrecognized arguments: --atten"),
        (["show"], "usage: reconciled show "),
        (["wait"], "Try: reconciled wait --help"),
    ],
)
def test_wrong_usage_is_told_with_a_next_step(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == exits.USAGE
    assert told in capsys.readouterr().err


def test_the_first_help_names_every_command_and_where_to_begin(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    out, _ = capsys.readouterr()
    assert ended.value.code == 0
    for command in parsers():
        assert re.search(rf"^ +{command} +\S", out, re.MULTILINE), command
    assert "reconciled demo" in out


@pytest.mark.parametrize(
    "arguments", [[], ["wat"], ["show"], ["submit"], ["status", "--wat"], ["simulate", "--speed", "x"]]
)
def test_wrong_usage_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == exits.USAGE == 2
    assert "usage:" in capsys.readouterr().err


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert re.fullmatch(r"reconciled \d+\.\d+\.\d+\S*\n", capsys.readouterr().out)


def test_simulate_lists_its_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(SCENARIOS)
    assert all(len(line.split()) > 2 for line in lines)


@pytest.mark.parametrize("listen", ["x", "127.0.0.1", "127.0.0.1:x", ":1", "127.0.0.1:99999", "256.0.0.1:1"])
def test_simulate_on_no_address_is_wrong_usage(listen: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--listen", listen]) == 2
    err = capsys.readouterr().err
    assert err.startswith("reconciled: ")
    assert "Traceback" not in err


def test_serve_with_a_bad_configuration_is_78(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "reconciled.toml"
    path.write_text("wat = 1\n")
    assert main(["serve", "--config", str(path)]) == exits.BAD_CONFIGURATION == 78
    err = capsys.readouterr().err
    assert f"{path}: wat: found an unknown key; expected" in err
    assert main(["serve", "--config", str(tmp_path / "nothing.toml")]) == 78


# ---- words -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[31m",
        "a\nb",
        "a\rb",
        "\x00",
        "\x07",
        "\x7f",
        "\x9b31m",
        "\u2028",
        "\u2029",
        "\u061c",
        "\u200e",
        "\u200f",
        "\u202a",
        "\u202e",
        "\u2066",
        "\u2069",
        "\ud800",
    ],
)
def test_a_strangers_controls_never_reach_the_terminal(text: str) -> None:
    """S37: neither colours, nor bells, nor marks that turn text around."""
    cleaned = clean(f"a{text}b")
    assert not any(c in cleaned for c in text if c not in "[31mab")
    cleaned.encode("utf-8")
    body = {
        "operation_id": "op", "provider": text, "type": text, "status": text, "state": text, "outcome": text,
        "remote_job_id": text, "remote_status": text, "progress": None, "summary": None, "next_action": text,
        "next_action_at": text, "parent": text, "caller": text, "approval": text, "labels": {text: text}, "done": False,
        "attention": {"reason": text, "message": text, "deadline": text,
                      "candidates": [{"remote_job_id": text, "is_held": True}],
                      "decisions": [{"decision": text, "effect": text}]},
        "cancel": {"by": text, "reason": text, "effect": text, "requested_at": text, "answer": text,
                   "may_remain": text},
        "error": {"code": text, "message": text}, "message": text,
    }  # fmt: skip
    shown = str(words.operation(body))
    row = {"at": "2026-11-29T12:00:00.000Z", "actor": text, "kind": "move", "from": text, "to": text, "reason": text}
    shown += str(words.history_row(row))
    entry = {
        "id": text, "kind": "question", "provider": text, "reason": text, "since": text, "deadline": text,
        "message": text, "decisions": [{"decision": text, "effect": text}],
        "candidates": [{"remote_job_id": text, "is_held": False}],
        "evidence": {"remote_job_id": text, "trace_id": text, "status_page": text,
                     "requests": [{"purpose": text, "remote_request_id": text}]},
    }  # fmt: skip
    shown += str(words.inbox({"inbox": [entry]}, NOON)) + words.acknowledged({"id": text, "by": text, "decision": text})
    for c in set(text) - set("[31mab\n"):
        assert c not in shown
    assert str(words.history_row(row)).count("\n") == 0
