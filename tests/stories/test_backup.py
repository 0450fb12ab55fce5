"""`db backup` as a process beside a real daemon: under load, killed, stopped, on a full disk; and the copy started."""

import asyncio
import hashlib
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from reconcile.store.schema import prepare_writer
from tests.stories.ledger import faults_in_file
from tests.stories.stage import ROOT, Client, Home, acting, client_of, serving, settle, simulating

#: Bytes of the file that is copied slowly enough to be hit. 48 MiB: a dozen steps.
LARGE: Final = 48 << 20
#: Seconds for one process.
PATIENCE: Final = 60


def made(path: Path, size: int = LARGE) -> Path:
    """A database of ours that holds so many bytes of deliveries, as a stopped daemon leaves it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        prepare_writer(connection)
        connection.execute("BEGIN")
        columns = "provider, event_id, body_sha256, received_at, disposition, body"
        body, count = b"x" * 65_536, size // 65_536
        rows = (("standin", f"evt_{n}", "", 1, "unmatched", body) for n in range(count))
        connection.executemany(f"INSERT INTO events ({columns}) VALUES (?, ?, ?, ?, ?, ?)", rows)  # noqa: S608 - our names
        connection.execute("COMMIT")
    return path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def whole(path: Path) -> bool:
    """Whether it opens and is a marked backup in which nothing is wrong."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        sound = connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        keys = connection.execute("PRAGMA foreign_key_check").fetchall()
        return sound and not keys and connection.execute("SELECT count(*) FROM backup").fetchone() == (1,)


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "daemon", "db", "backup", *map(str, arguments)]


def ran(arguments: list[str], folder: Path, **how: Any) -> "subprocess.CompletedProcess[str]":
    environ = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        arguments, cwd=folder, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False, **how
    )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---- killed and stopped ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("source") / "reconciled.db")


@pytest.mark.parametrize(
    ("step", "time"),
    [("copy", 1), ("copy", 2), ("copy", 6), ("copy", 12), ("mark", 1), ("check", 1), ("name", 1), ("never", 1)],
)
def test_a_killed_backup_leaves_its_source_and_no_file_that_is_not_whole(
    source: Path, tmp_path: Path, step: str, time: int
) -> None:
    target, before = tmp_path / "copy.db", digest(source)
    victim = [sys.executable, "-m", "tests.stories.killed_backup", str(source), str(target)]
    ended = ran([*victim, "--step", step, "--time", str(time)], tmp_path)
    assert ended.returncode == (0 if step == "never" else -signal.SIGKILL), ended.stderr
    assert digest(source) == before
    assert target.exists() == (step == "never")
    assert not target.exists() or whole(target)
    left = [name for name in names(tmp_path) if name != "copy.db"]
    assert all(".part" in name for name in left)
    # What it left is in nobody's way.
    if step != "never":
        assert ran(command(target, "--db", source), tmp_path).returncode == 0
        assert whole(target)
        assert names(tmp_path) == sorted([*left, "copy.db"])


def killed_after(process: "subprocess.Popen[bytes]", folder: Path, bytes_written: int, by: signal.Signals) -> int:
    """Send a signal once the copy under way has grown so far, and wait for the end."""
    while process.poll() is None:
        if sum(path.stat().st_size for path in parts(folder)) >= bytes_written:
            process.send_signal(by)
            break
    return process.wait(PATIENCE)


def parts(folder: Path) -> Iterator[Path]:
    return folder.glob("*.part")


@pytest.mark.parametrize("grown", [0, LARGE // 4, LARGE // 2, LARGE - (4 << 20)])
def test_the_command_killed_from_outside_at_any_size_leaves_no_half_backup(
    source: Path, tmp_path: Path, grown: int
) -> None:
    target, before = tmp_path / "copy.db", digest(source)
    with subprocess.Popen(command(target, "--db", source), cwd=ROOT) as process:
        status = killed_after(process, tmp_path, grown, signal.SIGKILL)
    assert status in (0, -signal.SIGKILL)
    assert digest(source) == before
    assert target.exists() == (status == 0)
    assert status != 0 or whole(target)


@pytest.mark.parametrize(("by", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_command_stopped_from_outside_leaves_nothing(
    source: Path, tmp_path: Path, by: signal.Signals, status: int
) -> None:
    with subprocess.Popen(command(tmp_path / "copy.db", "--db", source), cwd=ROOT, stderr=subprocess.PIPE) as process:
        ended = killed_after(process, tmp_path, LARGE // 8, by)
        said = process.stderr.read() if process.stderr else b""
    assert (ended, said) == (status, b"")
    assert names(tmp_path) == []


def test_a_full_disk_is_told_in_words_and_leaves_nothing(source: Path, tmp_path: Path) -> None:
    """Here: a process that may write no file of more than 8 MiB."""
    ended = ran(
        command("copy.db", "--db", source),
        tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, 8 << 20)),
    )
    assert ended.returncode in (69, 74)
    assert ended.stderr.startswith("reconciled: copy.db cannot be written: ")
    assert ended.stderr.count("\n") == 1
    assert names(tmp_path) == []


def test_what_the_command_says(source: Path, tmp_path: Path) -> None:
    (tmp_path / "state" / "spool").mkdir(parents=True)
    shutil.copy(source, tmp_path / "state" / "reconciled.db")
    (tmp_path / "local.toml").write_text('state_dir = "state"\n[providers.x]\napi_key = {env = "NOT_SET"}\n')
    ended = ran(command("copy.db", "--config", "local.toml"), tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    said = r"copy\.db: 48\.\d MiB, up to history position 0; not in it: spool/ \(copy them now, after it\)\n"
    assert re.fullmatch(said, ended.stdout)
    for arguments, status, words in (
        (("copy.db", "--config", "local.toml"), 2, "copy.db is there already"),
        (("other.db", "--db", "absent.db"), 2, "absent.db: there is no such file"),
        (("other.db", "--config", "absent.toml"), 2, "no configuration at absent.toml"),
        (("absent/other.db", "--db", "copy.db"), 69, "absent/other.db cannot be written: No such file or directory"),
        (("other.db", "--db", "local.toml"), 2, "local.toml: this is no database"),
    ):
        ended = ran(command(*arguments), tmp_path)
        assert (ended.returncode, ended.stdout) == (status, ""), ended.stderr
        assert ended.stderr.startswith(f"reconciled: {words}")
    assert names(tmp_path) == ["copy.db", "local.toml", "state"]


def test_the_command_names_each_secret_that_the_configuration_places_beside_the_file(
    source: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    (state / "keys").mkdir(parents=True)
    shutil.copy(source, state / "reconciled.db")
    for name in ("agents-token", "first-token", "keys/signing.pem", "cert.pem", "a file of nobody", "elsewhere"):
        (state / name).touch()
    (tmp_path / "outside").touch()
    (tmp_path / "local.toml").write_text(
        f"""state_dir = "state"
        api.token = {{ file = "first-token" }}
        api.tokens.agents.token = {{ file = "agents-token" }}
        audit.key = {{ file = "{state / "keys" / "signing.pem"}" }}
        webhooks.tls_cert = "state/cert.pem"
        providers.x.webhook_secrets = [ {{ env = "NOT_SET" }}, {{ file = "outside" }}, {{ file = "{"x" * 5000}" }} ]
        """
    )
    ended = ran(command("copy.db", "--config", "local.toml"), tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.partition("; ")[2] == (
        "not in it: agents-token, cert.pem, first-token, keys/signing.pem (copy them now, after it)\n"
    )
    (state / "spool").mkdir()
    ended = ran(command("other.db", "--db", "state/reconciled.db"), tmp_path)
    assert ended.stdout.partition("; ")[2] == (
        "not in it: spool/, any other token or key that the configuration places there (copy them now, after it)\n"
    )


def test_a_damaged_file_is_told_as_that(source: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.db"
    shutil.copy(source, damaged)
    with damaged.open("r+b") as file:
        file.seek(2 * 4096)
        file.write(bytes(range(256)) * 16 * 40)
    ended = ran(command("copy.db", "--db", "damaged.db"), tmp_path)
    assert (ended.returncode, ended.stdout) == (74, "")
    assert ended.stderr.startswith("reconciled: damaged.db: the file is damaged")
    assert names(tmp_path) == ["damaged.db"]


# ---- beside a daemon that works ----------------------------------------------------------------------------------


async def test_backups_of_a_busy_daemon_are_whole_and_the_last_one_goes_on(tmp_path: Path) -> None:
    """Each holds one moment of a file that is written all the time; nothing that was acknowledged is refused by it."""
    # Given a daemon that takes starts and webhooks as fast as a client can send them,
    home = settle(tmp_path / "home")
    started: list[str] = []
    async with simulating(home, speed=50) as simulation:
        async with serving(home) as daemon, client_of(home) as client:
            await client.until_ready(daemon)
            await client.until_provider_answers(simulation)
            stop = asyncio.Event()
            load = [asyncio.create_task(_starts(client, stop, started)) for _ in range(3)]
            # when it is copied again and again meanwhile,
            copies = []
            for number in range(5):
                seen = len(started)
                copies.append(await _backed_up(home, tmp_path / f"copy-{number}.db"))
                await _grown(started, seen + 5)
            _copy_folders(home, tmp_path)
            stop.set()
            await asyncio.gather(*load)
            # then the daemon has not suffered,
            assert all([(await client.end_of(name))["outcome"] == "succeeded" for name in started])
            assert await daemon.stop() == 0
            assert "Traceback" not in daemon.said
        assert faults_in_file(home) == []

        # every copy is whole, each with more in it than the one before,
        held = [_operations(path) for path in copies]
        assert all(map(whole, copies))
        assert held == sorted(set(held))
        for path in copies:
            assert faults_in_file(_home_on(path, tmp_path / path.stem)) == []

        # and the last one, restored, finds every job of its own again and makes none.
        jobs = await _jobs(home)
        again = _restored(home, copies[-1], tmp_path)
        async with serving(again) as daemon, client_of(again) as client:
            await client.until_ready(daemon)
            for name in started[: held[-1]]:
                if (await client.call("GET", f"/v1/operations/{name}")).status == 200:
                    body = await client.end_of(name)
                    assert body["done"] or body["attention"]["reason"] == "create_unresolved", body
            assert await _jobs(again) == jobs
            assert await daemon.stop() == 0
        assert faults_in_file(again) == []
        assert daemon.said.count("restored_backup") == 1


async def _starts(client: Client, stop: asyncio.Event, started: list[str]) -> None:
    while not stop.is_set():
        started.append(await client.started())


async def _grown(started: list[str], size: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while len(started) < size:  # noqa: ASYNC110 - three clients append to a plain list
            await asyncio.sleep(0.02)


async def _backed_up(home: Home, target: Path) -> Path:
    async with acting(home, "daemon", "db", "backup", str(target), "--config", str(home.config)) as backup:
        assert await backup.end() == 0, backup.said
    return target


def _copy_folders(home: Home, to: Path) -> None:
    for name in ("spool", "results"):
        shutil.copytree(home.state_dir / name, to / name)


def _operations(path: Path) -> int:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        return int(connection.execute("SELECT count(*) FROM operations").fetchone()[0])


def _home_on(path: Path, folder: Path) -> Home:
    home = settle(folder)
    home.state_dir.mkdir()
    shutil.copy(path, home.database)
    return home


def _restored(home: Home, path: Path, folder: Path) -> Home:
    """The same home after the loss of its state directory."""
    home.state_dir.rename(home.folder / "lost")
    home.state_dir.mkdir(mode=0o700)
    shutil.copy(path, home.database)
    for name in ("spool", "results"):
        shutil.copytree(folder / name, home.state_dir / name)
    return home


async def _jobs(home: Home) -> int:
    """How many batches the account has."""
    async with client_of(home) as client:
        found, after = 0, ""
        while True:
            page = await client.of_provider(f"batches?limit=100{after}")
            found += len(page["data"])
            if not page["has_more"]:
                return found
            after = f"&after={page['last_id']}"
