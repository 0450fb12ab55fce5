"""What `submit` and `adopt` take beside the request, and a daemon that does not listen yet."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from daemon.cli import exits, main, patience, starting
from daemon.local_api import LocalApi, NotListening
from reconcile.intents import CallbackWish
from tests.daemon.test_cli import JOB, Shell
from tests.daemon.test_cli import inputs as files
from tests.handlers.ground import Ground, running, strict_json


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with running(tmp_path / "state") as g:
        yield g


@pytest.fixture
def shell(ground: Ground, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(ground, capsys)


async def test_submit_takes_every_field_of_a_start(ground: Ground, shell: Shell, tmp_path: Path) -> None:
    request, items = files(tmp_path)
    (tmp_path / "expect.json").write_text(json.dumps({"items": 1, "content_type": "application/jsonl"}))
    status = await shell.run(
        *("submit", "--provider", "openai", "--request", request, "--input", items, "--json"),
        *("--expect", str(tmp_path / "expect.json"), "--label", "team=a=b", "--label", "job=nightly"),
        *("--caller", "ana", "--approval", "ticket 7", "--type", "report"),
        *("--create-within", "20m", "--result-within", "2h", "--cancel-within", "5m", "--input-within", "3d"),
    )
    assert status == 0
    body = strict_json(shell.out.encode())
    assert body["labels"] == {"team": "a=b", "job": "nightly"}
    assert (body["caller"], body["approval"], body["type"]) == ("ana", "ticket 7", "report")
    spans = (await ground.row(body["operation_id"])).spans
    assert (spans.create_ms, spans.result_ms, spans.cancel_ms, spans.input_ms) == (
        1_200_000,
        7_200_000,
        300_000,
        259_200_000,
    )
    ((kept,),) = ground.rows("SELECT expect FROM starts")
    assert strict_json(kept.encode()) == {"content_type": "application/jsonl", "items": 1}


async def test_submit_and_adopt_name_who_is_called_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sections = {"callbacks": {"ci": {"url": "http://127.0.0.1:9/hooks/", "secrets": [{"env": "HOOK_0"}]}}}
    async with running(tmp_path / "state", sections=sections) as ground:
        shell = Shell(ground, capsys)
        request, items = files(tmp_path)
        url = "http://127.0.0.1:9/hooks/build/7"
        submit = ("submit", "--provider", "openai", "--request", request, "--input", items)
        adopt = ("adopt", "--provider", "openai", "--remote-job-id", JOB)
        for command in (submit, adopt):
            assert await shell.run(*command, "--callback-url", url, "--json") == 0
            operation_id = strict_json(shell.out.encode())["operation_id"]
            assert (await ground.row(operation_id)).callback == CallbackWish("ci", url)
        assert await shell.run(*adopt, "--callback-url", "https://evil.example/") == 2
        assert "http://127.0.0.1:9/hooks/" in shell.err


@pytest.mark.parametrize("command", ["submit", "adopt"])
async def test_a_start_is_the_login_names_unless_it_is_said(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("LOGNAME", "carla")
    request, items = files(tmp_path)
    named = ["--request", request, "--input", items] if command == "submit" else ["--remote-job-id", JOB]
    assert await shell.run(command, "--provider", "openai", *named, "--json") == 0
    assert strict_json(shell.out.encode())["caller"] == "carla"


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--result-within", "soon", "/result_within: must be a duration"),
        ("--expect", "nothing.json", "there is no such file"),
        ("--type", "", "/type: "),
    ],
)
async def test_an_option_of_submit_that_cannot_be_used_is_wrong_usage(
    ground: Ground, shell: Shell, tmp_path: Path, option: str, value: str, told: str
) -> None:
    request, items = files(tmp_path)
    command = ["submit", "--provider", "openai", "--request", request, "--input", items, option, value]
    assert await shell.run(*command) == exits.USAGE
    assert told in shell.err
    assert ground.rows("SELECT count(*) FROM operations") == [(0,)]


@pytest.mark.parametrize("label", ["team", "=a", "team="])
def test_a_label_without_key_or_value_is_wrong_usage(label: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as fault:
        main(["submit", "--provider", "openai", "--label", label])
    assert fault.value.code == exits.USAGE
    assert "not KEY=VALUE" in capsys.readouterr().err


async def test_a_label_with_two_values_is_wrong_usage(ground: Ground, shell: Shell, tmp_path: Path) -> None:
    """Which of them was meant, nobody can know."""
    request, items = files(tmp_path)
    command = ["submit", "--provider", "openai", "--request", request, "--input", items]
    assert await shell.run(*command, "--label", "team=a", "--label", "team=b") == exits.USAGE
    assert "--label team: given twice" in shell.err
    assert ground.rows("SELECT count(*) FROM operations") == [(0,)]


@pytest.mark.parametrize("away", [2, 10**6])
async def test_a_start_is_asked_again_while_the_daemon_does_not_listen(
    ground: Ground, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: int
) -> None:
    """For a while, and only where it surely did not arrive."""
    request, items = files(tmp_path)
    original, calls = LocalApi.call, 0

    async def starts_slowly(self: Any, method: str, path: str, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls <= away:
            raise NotListening("nothing listens there; is the daemon running?")
        return await original(self, method, path, **more)

    monkeypatch.setattr(LocalApi, "call", starts_slowly)
    monkeypatch.setattr(patience, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(starting, "PATIENCE_SECONDS", 0.3)
    async with asyncio.timeout(10):
        status = await shell.run("submit", "--provider", "openai", "--request", request, "--input", items)
    assert status == (0 if away == 2 else exits.UNAVAILABLE)
    assert shell.err.count("Asking again for 0.3 s.") == 1
    assert len(ground.rows("SELECT 1 FROM operations")) == (1 if away == 2 else 0)


async def test_a_port_where_nothing_listens_is_asked_again(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "PATIENCE_SECONDS", 0)
    monkeypatch.setattr(patience, "AGAIN_SECONDS", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    shell._place[1] = f"http://127.0.0.1:{port}"
    request, items = files(tmp_path)
    assert await shell.run("submit", "--provider", "openai", "--request", request, "--input", items) == 69
    nothing = f"reconciled: nothing listens on 127.0.0.1:{port}; is the daemon running?"
    assert shell.err == f"{nothing} Asking again for 0 s.\n{nothing}\n"
