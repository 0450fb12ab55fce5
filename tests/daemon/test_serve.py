"""The process put together: what it says to systemd and when, who may start it, how it treats those who dawdle.

`serve` runs in the test's own loop, with real sockets and a signal that the process sends to itself.
"""

import asyncio
import json
import os
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog
from structlog.testing import LogCapture

from daemon import service, watchdog
from daemon.assembly import Daemon, assemble
from daemon.config import parse
from daemon.meters import Counts
from daemon.rooms import Seams
from daemon.runtime import open_sqlite
from daemon.service import StateLock, serve
from handlers import webhooks
from reconcile.checkpoint import AuditKey, fault_of
from reconcile.errors import AlreadyRunning, ConfigError
from reconcile.store import checkpoints
from reconcile.store.schema import read_only_uri
from reconcile.store.writer import Hooks
from tests.handlers.ground import (
    API_KEY,
    PATIENCE,
    SECRET,
    START,
    HandClock,
    SeededDice,
    TaskStarter,
    event,
    exchange,
    provider,
    read_answer,
    request_bytes,
    signed,
    split,
    until,
)


@dataclass
class Served:
    """A daemon that listens."""

    api: str
    hooks: str
    folder: Path
    clock: HandClock
    capture: LogCapture
    task: asyncio.Task[None]

    @property
    def public_port(self) -> int:
        return int(self.hooks.rpartition(":")[2])

    @property
    def local_port(self) -> int:
        return int(self.api.rpartition(":")[2])

    @property
    def token(self) -> str:
        return (self.folder / "api-token").read_text(encoding="ascii").strip()

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, self.api + path, json=body, headers=headers) as response,
        ):
            return response.status, await response.json(content_type=None)


def seams(capture: LogCapture, clock: HandClock) -> Seams:
    log = structlog.wrap_logger(
        structlog.PrintLogger(), processors=[capture], wrapper_class=structlog.make_filtering_bound_logger(0)
    )
    return Seams(
        clock=clock,
        dice=SeededDice(),
        supervisor=TaskStarter(),
        meters=Counts(),
        opener=open_sqlite,
        connector=lambda: aiohttp.TCPConnector(keepalive_timeout=4, limit=0),
        log=log,
    )


def document(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "state_dir": str(folder),
        "webhooks": {"listen": "127.0.0.1:0"},
        "api": {"listen": "127.0.0.1:0"},
        "providers": {"openai": provider()},
        **more,
    }


ENVIRON = {"API_KEY": API_KEY, "HOOK_0": SECRET}


@asynccontextmanager
async def serving(folder: Path, other: Mapping[str, Any] | None = None, **more: Any) -> AsyncIterator[Served]:
    """`serve` (`other` seams, `more` configuration) until the body is done; then SIGTERM, an end without a fault."""
    config = parse(document(folder, **more), ENVIRON, file="test.toml")
    capture, clock = LogCapture(), HandClock()
    clock.run()
    ready: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    task = asyncio.create_task(
        serve(
            config,
            replace(seams(capture, clock), **(other or {})),
            on_ready=lambda api, hooks: ready.put_nowait((api, hooks)),
        )
    )
    first = asyncio.create_task(ready.get())
    await asyncio.wait({task, first}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        first.cancel()
        await task
    api, hooks = await first
    try:
        yield Served(api, hooks, folder, clock, capture, task)
    finally:
        if not task.done():
            os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(15):
            await task


@contextmanager
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **more: str) -> Iterator[Callable[[], list[str]]]:
    """systemd's end of the socket; what was said since the last look, line by line."""
    path = str(tmp_path / "notify")
    for name, value in {"NOTIFY_SOCKET": path, **more}.items():
        monkeypatch.setenv(name, value)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(path)
        sock.setblocking(False)

        def heard() -> list[str]:
            lines: list[str] = []
            with suppress(BlockingIOError):
                while True:
                    lines += sock.recv(1_000).decode().splitlines()
            return lines

        yield heard


# ---- systemd ---------------------------------------------------------------------------------------------------


async def test_c46_ready_is_said_once_after_both_listeners_and_stopping_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with systemd(tmp_path, monkeypatch) as heard:
        async with serving(tmp_path / "state") as served:
            said = heard()
            assert [line for line in said if not line.startswith(("STATUS=", "EXTEND_TIMEOUT_USEC="))] == ["READY=1"]
            assert said[-1].startswith("STATUS=Serving")
            assert (await served.call("GET", "/readyz"))[0] == 200
            body = event("b1")
            lines = [*signed(body, at_ms=served.clock.now()).items(), ("Content-Length", str(len(body)))]
            answer = await exchange(served.public_port, request_bytes("POST", "/webhooks/openai", lines, body))
            assert answer.status == 200
        assert [line for line in heard() if not line.startswith("STATUS=")] == ["STOPPING=1"]


async def heard_of(heard: Callable[[], list[str]], word: str) -> list[str]:
    """All that is said until a word comes, and in the same breath."""
    said: list[str] = []

    async def is_said() -> bool:
        said.extend(heard())
        return word in said

    await until(is_said)
    return said


async def test_the_watchdog_is_told_that_all_is_well_from_ready_on_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C46 (1), that it is said at all; how often, and when not, is told in test_watchdog.py."""
    with systemd(tmp_path, monkeypatch, WATCHDOG_USEC="300000", WATCHDOG_PID=str(os.getpid())) as heard:
        async with serving(tmp_path / "state"):
            first = heard()
            assert first.index("WATCHDOG=1") <= first.index("READY=1") + 2
            await heard_of(heard, "WATCHDOG=1")
            await heard_of(heard, "WATCHDOG=1")


async def test_a_loop_that_hangs_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C46 (2): the word comes from the loop and from no thread beside it."""
    with systemd(tmp_path, monkeypatch, WATCHDOG_USEC="300000") as heard:
        async with serving(tmp_path / "state"):
            await heard_of(heard, "WATCHDOG=1")
            time.sleep(0.7)  # noqa: ASYNC251 - this is the hang
            assert heard() == []
            await heard_of(heard, "WATCHDOG=1")


async def test_a_writer_that_hangs_is_not_vouched_for_until_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F22: the loop turns all the while. Where slow ends and stuck begins is told in test_watchdog.py."""
    let_go, holds = threading.Event(), threading.Event()

    def hang(_: sqlite3.Connection) -> None:
        if holds.is_set():
            let_go.wait(PATIENCE)

    with systemd(tmp_path, monkeypatch, WATCHDOG_USEC="300000") as heard:
        async with serving(tmp_path / "state", {"hooks": Hooks(before_commit=hang)}) as served:
            try:
                holds.set()
                starting = asyncio.create_task(served.call("POST", "/v1/operations", START))

                async def is_silent() -> bool:
                    heard()
                    await asyncio.sleep(0.3)  # three words are due
                    return "WATCHDOG=1" not in heard()

                await until(is_silent)
                assert (await served.call("GET", "/healthz"))[0] == 200
            finally:
                holds.clear()
                let_go.set()
            assert (await starting)[0] == 202, "what hung was kept all the same"
            await heard_of(heard, "WATCHDOG=1")


async def test_a_long_start_asks_systemd_for_more_time_as_long_as_its_loop_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large upgrade is not ended in its middle by TimeoutStartSec; READY=1 still comes once, at its end."""
    monkeypatch.setattr(watchdog, "MORE_EVERY_SECONDS", 0.25)

    async def slow(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0.3)
        return await open_sqlite(*args, **kwargs)

    with systemd(tmp_path, monkeypatch) as heard:
        async with serving(tmp_path / "state", {"opener": slow}):
            said = heard()
            asked = [n for n, line in enumerate(said) if line == f"EXTEND_TIMEOUT_USEC={60_000_000}"]
            assert len(asked) >= 4
            assert max(asked) < said.index("READY=1")


async def test_without_systemd_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    async with serving(tmp_path / "state") as served:
        assert (await served.call("GET", "/readyz"))[0] == 200
    events = [entry["event"] for entry in served.capture.entries]
    assert events.index("ready") < events.index("stopping")
    assert [entry for entry in served.capture.entries if entry["log_level"] in ("error", "critical")] == []


# ---- starting and stopping -------------------------------------------------------------------------------------


async def test_the_state_directory_is_its_owners_alone(tmp_path: Path) -> None:
    """S25."""
    async with serving(tmp_path / "deep" / "state") as served:
        await served.call("POST", "/v1/operations", START)
        assert stat.S_IMODE((tmp_path / "deep" / "state").stat().st_mode) == 0o700
        for name in ("lock", "api-token", "audit.key"):
            assert stat.S_IMODE((served.folder / name).stat().st_mode) == 0o600


async def test_a_second_daemon_on_one_directory_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path / "state"):
        with pytest.raises(AlreadyRunning, match="another daemon"):
            StateLock(tmp_path / "state")
    StateLock(tmp_path / "state").release()


async def test_a_taken_port_is_told_before_anything_is_opened(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        config = parse(document(tmp_path / "state", webhooks={"listen": listen}), ENVIRON, file="test.toml")
        with pytest.raises(OSError, match=listen):
            await serve(config, seams(LogCapture(), HandClock()))
        assert not (tmp_path / "state" / "reconciled.db").exists()


async def test_a_token_that_others_can_read_stops_the_start(tmp_path: Path) -> None:
    """S25."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    (folder / "api-token").write_text("t")
    (folder / "api-token").chmod(0o644)
    config = parse(document(folder), ENVIRON, file="test.toml")
    with pytest.raises(ConfigError):
        await serve(config, seams(LogCapture(), HandClock()))
    StateLock(folder).release()


async def test_the_secrets_that_a_first_start_makes_are_durable_before_anything_stands_under_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut that takes the key's name away leaves checkpoints that nobody's key has signed."""
    folder, synced = tmp_path / "state", list[int]()
    plain = os.fsync

    def sync(fd: int) -> None:
        synced.append(os.fstat(fd).st_ino)
        plain(fd)

    monkeypatch.setattr(os, "fsync", sync)
    async with serving(folder):
        made = [(folder / name).stat().st_ino for name in ("api-token", "audit.key")]
        root = folder.stat().st_ino
        assert synced[:4] == [made[0], root, made[1], root]


@pytest.mark.parametrize(("content", "mode"), [("no key", 0o600), (AuditKey.made(b"k" * 32).pem(), 0o640)])
async def test_an_audit_key_that_cannot_be_used_stops_the_start_and_stays_as_it_is(
    tmp_path: Path, content: str, mode: int
) -> None:
    """A new one in its place would sign what the old one is asked for."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    (folder / "audit.key").write_text(content)
    (folder / "audit.key").chmod(mode)
    config = parse(document(folder), ENVIRON, file="test.toml")
    with pytest.raises(ConfigError, match=r"audit\.key"):
        await serve(config, seams(LogCapture(), HandClock()))
    assert (folder / "audit.key").read_text() == content
    StateLock(folder).release()


async def test_what_was_written_until_the_stop_is_signed_and_the_next_process_goes_on_with_the_same_key(
    tmp_path: Path,
) -> None:
    keys, signed_at = [], []
    for _ in range(2):
        async with serving(tmp_path / "state") as served:
            await served.call("POST", "/v1/operations", START)
        (ready,) = (entry for entry in served.capture.entries if entry["event"] == "ready")
        keys.append(ready["audit_key"])
        position, written = read_only(
            served.folder, "SELECT (SELECT max(position) FROM checkpoints), (SELECT max(position) FROM history)"
        )[0]
        assert position == written
        signed_at.append(position)
    assert signed_at[0] < signed_at[1]
    assert keys[0] == keys[1]
    rows = read_only(tmp_path / "state", checkpoints.ALL)
    assert len(rows) >= 2
    before = None
    for each in map(checkpoints.load, rows):
        assert fault_of(each, before) is None
        assert each.public_key == keys[0]
        before = each


def read_only(folder: Path, sql: str) -> list[Any]:
    connection = sqlite3.connect(read_only_uri(str(folder / "reconciled.db")), uri=True)
    with closing(connection):
        return connection.execute(sql).fetchall()


async def test_a_thousand_waits_do_not_hold_up_a_stop(tmp_path: Path) -> None:
    """N42: they are told at once that nothing has ended, or cut off; nobody waits for their 600 seconds."""
    async with serving(tmp_path / "state") as served, AsyncExitStack() as stack:
        _, body = await served.call("POST", "/v1/operations", START)
        headers = [("Authorization", f"Bearer {served.token}")]
        asked = request_bytes("GET", f"{body['status_url']}?wait=600", headers, host=f"127.0.0.1:{served.local_port}")
        for _ in range(1_000):
            _, writer = await asyncio.open_connection("127.0.0.1", served.local_port)
            stack.callback(writer.close)
            writer.write(asked)

        async def are_waiting() -> bool:
            return sum("_handle_request" in repr(task.get_coro()) for task in asyncio.all_tasks()) >= 1_000

        await until(are_waiting)
        began = time.monotonic()
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(15):
            await asyncio.wait({served.task})
        assert time.monotonic() - began < 6


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_nothing_that_the_first_one_brings_to_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: signal.Signals
) -> None:
    """N42: until the very last, which is the lock; by default a signal would end the process there."""
    release = StateLock.release

    def as_the_last_thing(lock: StateLock) -> None:
        os.kill(os.getpid(), second)
        release(lock)

    monkeypatch.setattr(StateLock, "release", as_the_last_thing)
    async with serving(tmp_path / "state") as served:
        await served.call("POST", "/v1/operations", START)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0)
        os.kill(os.getpid(), second)
    assert [entry for entry in served.capture.entries if entry["log_level"] in ("error", "critical")] == []


async def test_from_the_first_moment_of_a_stop_it_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What /readyz then says is told in tests/handlers/test_metrics.py: here nobody new is let in any more."""
    made: list[Daemon] = []

    async def remembered(*args: Any, **kwargs: Any) -> Daemon:
        made.append(await assemble(*args, **kwargs))
        return made[0]

    monkeypatch.setattr(service, "assemble", remembered)
    async with serving(tmp_path / "state"):
        assert not made[0].stopping.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(1):
            await made[0].stopping.wait()
        assert made[0].store.is_writable, "what is under way is still written"


async def test_a_wait_does_not_hold_up_a_stop(tmp_path: Path) -> None:
    async with serving(tmp_path / "state") as served:
        _, body = await served.call("POST", "/v1/operations", START)
        waiting = asyncio.create_task(served.call("GET", f"{body['status_url']}?wait=600"))
        await asyncio.sleep(0.1)
    await asyncio.wait({waiting}, timeout=5)
    assert waiting.done()
    cut_off = waiting.exception()
    assert isinstance(cut_off, aiohttp.ClientError) or waiting.result()[1]["done"] is False


@pytest.mark.parametrize("fault", ["newer", "stranger", "token"])
def test_a_start_that_cannot_be_ends_by_itself_with_its_own_status(tmp_path: Path, fault: str) -> None:
    """78, one sentence, and no thread that keeps the process alive."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    if fault == "token":
        (folder / "api-token").write_text("t")
        (folder / "api-token").chmod(0o644)
    else:
        connection = sqlite3.connect(folder / "reconciled.db")
        connection.execute("PRAGMA user_version = 999" if fault == "newer" else "CREATE TABLE theirs (x)")
        connection.commit()
        connection.close()
    config = tmp_path / "reconciled.toml"
    config.write_text(
        f'state_dir = "{folder}"\n[webhooks]\nlisten = "127.0.0.1:0"\n[api]\nlisten = "127.0.0.1:0"\n',
        encoding="utf-8",
    )
    ended = subprocess.run(
        [sys.executable, "-m", "daemon", "serve", "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert ended.returncode == 78
    assert ended.stderr.startswith("reconciled: ")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_comes_while_a_failure_is_told_leaves_its_status(tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    (folder / "api-token").write_text("t")
    (folder / "api-token").chmod(0o644)
    config = tmp_path / "reconciled.toml"
    config.write_text(
        f'state_dir = "{folder}"\n[webhooks]\nlisten = "127.0.0.1:0"\n[api]\nlisten = "127.0.0.1:0"\n',
        encoding="utf-8",
    )
    program = f"""
import os, sys
from daemon.cli import main, processes
told = processes._fail
def interrupted(*words):
    os.kill(os.getpid(), {int(number)})
    return told(*words)
processes._fail = interrupted
sys.exit(main(["serve", "--config", {str(config)!r}]))
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert (ended.returncode, ended.stderr.count("\n")) == (78, 1)


def test_what_is_no_http_writes_no_traceback_beside_the_log(tmp_path: Path) -> None:
    """S37: whatever a stranger sends, the log stays one line of JSON an event; and SIGTERM ends it with 0."""
    config = tmp_path / "reconciled.toml"
    config.write_text(
        f'state_dir = "{tmp_path / "state"}"\n[webhooks]\nlisten = "127.0.0.1:0"\n[api]\nlisten = "127.0.0.1:0"\n',
        encoding="utf-8",
    )
    daemon = subprocess.Popen(
        [sys.executable, "-m", "daemon", "serve", "--config", str(config)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert daemon.stderr is not None
    with daemon:
        try:
            port = int(json.loads(daemon.stderr.readline())["webhooks"].rpartition(":")[2])
            for broken in (
                b"GET / HTTP/1.1\r\nHost: x\r\nX: a-strangers-words" + b"a" * 9_000 + b"\r\n\r\n",
                b"POST /webhooks/x HTTP/1.1\r\nHost: x\r\nContent-Encoding: br\r\nContent-Length: 1\r\n\r\na",
                b"POST /webhooks/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                bytes.fromhex("1603010200010001fc0303"),
            ):
                with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                    connection.sendall(broken)
                    connection.recv(1_000)
        finally:
            daemon.terminate()
        rest = daemon.stderr.read()
        assert daemon.wait(30) == 0
    assert [line for line in rest.splitlines() if not line.startswith("{")] == []
    assert "a-strangers-words" not in rest


# ---- those who dawdle (S17) ------------------------------------------------------------------------------------


async def test_a_connection_that_sends_half_a_request_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S17: half a header, half a body, or nothing at all; in 10 s at most, and the local API answers meanwhile."""
    monkeypatch.setattr(webhooks, "BODY_SECONDS", 0.2)
    starts = {
        "half a header": b"POST /webhooks/openai HTTP/1.1\r\nHost: x\r\nwebhook-id: ms",
        "half a body": request_bytes(
            "POST", "/webhooks/openai", [*signed(b"x" * 100).items(), ("Content-Length", "100")], b"x"
        ),
        "nothing": b"",
    }

    async def is_cut(sent: bytes) -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.public_port)
        try:
            writer.write(sent)
            async with asyncio.timeout(11):
                await reader.read()
            return True
        except TimeoutError:
            return False
        finally:
            writer.close()

    async with serving(tmp_path / "state") as served, asyncio.TaskGroup() as group:
        tasks = {name: group.create_task(is_cut(sent)) for name, sent in starts.items()}
        await asyncio.sleep(0.1)
        async with asyncio.timeout(1):
            assert (await served.call("GET", "/readyz"))[0] == 200
    assert [name for name, task in tasks.items() if not task.result()] == []


async def test_a_body_that_drips_loses_its_connection_with_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S17: after the 408 nobody goes on reading for it."""
    monkeypatch.setattr(webhooks, "BODY_SECONDS", 0.2)
    async with serving(tmp_path / "state") as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.public_port)
        lines = [*signed(b"x" * 100).items(), ("Content-Length", "100")]
        writer.write(request_bytes("POST", "/webhooks/openai", lines, b"x"))
        try:
            async with asyncio.timeout(5):
                assert split(await read_answer(reader)).status == 408
            async with asyncio.timeout(3):
                assert await reader.read() == b""
        except TimeoutError:
            pytest.fail("the connection outlives its answer")
        finally:
            writer.close()


async def test_a_client_that_leaves_its_wait_is_forgotten(tmp_path: Path) -> None:
    """N28: waits by the thousand cost memory as long as their clients are there, and no longer."""

    def waits() -> int:
        return sum("_handle_request" in repr(task.get_coro()) for task in asyncio.all_tasks())

    async with serving(tmp_path / "state") as served:
        _, body = await served.call("POST", "/v1/operations", START)
        before = waits()
        _, writer = await asyncio.open_connection("127.0.0.1", served.local_port)
        headers = [("Authorization", f"Bearer {served.token}")]
        host = f"127.0.0.1:{served.local_port}"
        writer.write(request_bytes("GET", f"{body['status_url']}?wait=600", headers, host=host))

        async def is_waiting() -> bool:
            return waits() > before

        await until(is_waiting)
        writer.close()
        await writer.wait_closed()

        async def is_forgotten() -> bool:
            return waits() == before

        try:
            await until(is_forgotten, seconds=5)
        except TimeoutError:
            pytest.fail("a waiter whose client has gone is kept until its time is up")


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "identity", "wat"])
async def test_any_content_encoding_is_415(tmp_path: Path, encoding: str) -> None:
    """S16: also those that the parser would unpack by itself."""
    async with serving(tmp_path / "state") as served:
        body = event("b1")
        lines = [*signed(body).items(), ("Content-Encoding", encoding), ("Content-Length", str(len(body)))]
        answer = await exchange(served.public_port, request_bytes("POST", "/webhooks/openai", lines, body))
        assert answer.status == 415
