"""`reconciled audit verify` and `audit export` as they are typed: statuses, words, JSON, and what they leave alone.

The commands run as processes of their own, on the file of a daemon that runs or has stopped.
"""

import asyncio
import contextlib
import io
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from daemon.cli import audit, calls, main, progress
from daemon.cli.progress import Progress
from daemon.shapes import size
from reconcile.checkpoint import AuditKey
from reconcile.evidence import JobRead
from reconcile.notary import Notary
from tests.daemon.terminal import ESCAPES, SHOW
from tests.handlers.ground import Ground, done, running

OTHER: Final = AuditKey.made(b"o" * 32)
#: None of the person's own configuration may be found.
ENVIRON: Final = {name: value for name, value in os.environ.items() if not name.startswith("RECONCILED_")}


class Ended:
    """What a command came to."""

    def __init__(self, ended: "subprocess.CompletedProcess[bytes]") -> None:
        self.status, self.raw = ended.returncode, ended.stdout
        self.out, self.err = ended.stdout.decode(), ended.stderr.decode()
        assert "Traceback" not in self.err, self.err


def run(*arguments: object, folder: Path | None = None, **environ: str) -> Ended:
    """The command as a process."""
    command = [sys.executable, "-m", "daemon", "audit", *map(str, arguments)]
    path = {"PYTHONPATH": str(Path(__file__).parents[2])}
    given = {**ENVIRON, **path, **environ}
    return Ended(subprocess.run(command, capture_output=True, timeout=60, check=False, cwd=folder, env=given))


async def signed(ground: Ground) -> str:
    """A checkpoint with the daemon's own key; its hash."""
    key = AuditKey.read((ground.folder / "audit.key").read_text())
    clock, log = ground.clock, ground.daemon.log
    made = await Notary(record=ground.daemon.store.record, key=key, clock=clock, log=log).sign()
    assert made is not None
    return made.hash


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with running(tmp_path / "state") as g:
        yield g


@pytest.fixture
def record(tmp_path: Path) -> "Record":
    """The state directory of a daemon that has stopped: two operations, two checkpoints, a row after them."""
    return asyncio.run(_recorded(tmp_path / "state"))


class Record:
    """What a stopped daemon left."""

    def __init__(self, folder: Path, operation: str, hashes: list[str]) -> None:
        self.folder, self.operation, self.hashes = folder, operation, hashes
        self.file = folder / "reconciled.db"

    def do(self, *statements: str) -> None:
        """By somebody who owns the file, triggers or not."""
        with contextlib.closing(sqlite3.connect(self.file, isolation_level=None)) as connection:
            for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
                connection.execute(f"DROP TRIGGER {name}")
            for statement in statements:
                connection.execute(statement)

    def one(self, sql: str) -> Any:
        with contextlib.closing(sqlite3.connect(f"{self.file.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            return connection.execute(sql).fetchone()[0]


async def _recorded(folder: Path) -> Record:
    async with running(folder) as g:
        operation = await g.operation("succeeded", "batch_1")
        other = await g.operation("observing", "batch_2")
        hashes = [await signed(g)]
        await g.apply(other, JobRead(done("batch_2")))
        hashes.append(await signed(g))
        await g.operation("create_pending", None)
    return Record(folder, operation, hashes)


# ---- verify: what it says --------------------------------------------------------------------------------------


def test_a_whole_record_is_told_in_three_lines(record: Record) -> None:
    ended = run("verify", "--db", record.file)
    rows, position = record.one("SELECT count(*) FROM history"), record.one("SELECT max(position) FROM checkpoints")
    key = AuditKey.read((record.folder / "audit.key").read_text()).public_key
    assert (ended.status, ended.err) == (0, "")
    first, second, third, fourth = ended.out.splitlines()
    assert first == f"{record.file} is as it was written: {rows} history rows of 3 operations, 2 checkpoints."
    assert second.startswith("Checkpoint 2 of 20")
    assert second.endswith(f"signs it up to position {position}: {record.hashes[1]}.")
    assert third == f"It is signed with the key {key} ({record.folder / 'audit.key'})."
    assert fourth == f"{rows - position} rows came after that: chained, and not signed yet."


def test_the_same_as_json(record: Record) -> None:
    ended = run("verify", "--db", record.file, "--json")
    body = json.loads(ended.out)
    assert (ended.status, ended.err, body["ok"], body["fault"]) == (0, "", True, None)
    assert (body["operations"], body["checkpoints"], body["pruned"]) == (3, 2, 0)
    assert body["newest_checkpoint"]["hash"] == record.hashes[1]
    assert body["newest_checkpoint"]["public_key"] == body["trusted_key"]
    assert body["unsigned_rows"] == body["rows"] - body["newest_checkpoint"]["position"]


def test_a_damaged_record_exits_1_and_names_the_first_bad_row(record: Record) -> None:
    record.do("UPDATE history SET reason = 'so it was' WHERE position = 2")
    operation = record.one("SELECT operation_id FROM operations JOIN history ON operation_key = key WHERE position = 2")
    told = f"row 2 of {operation} (position 2): its hash does not fit"
    ended = run("verify", "--db", record.file)
    assert (ended.status, ended.out, ended.err) == (
        1,
        "",
        f"reconciled: {record.file} is NOT as it was written: {told}. There may be more; keep the file.\n",
    )
    ended = run("verify", "--db", record.file, "--json")
    assert (ended.status, json.loads(ended.out)) == (1, {"ok": False, "file": str(record.file), "fault": told})


def test_a_damaged_page_is_told_in_words(record: Record) -> None:
    data = bytearray(record.file.read_bytes())
    page = record.one("SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_history_1'")
    data[(page - 1) * 4096 : (page - 1) * 4096 + 8] = b"\xff" * 8
    record.file.write_bytes(data)
    ended = run("verify", "--db", record.file)
    assert (ended.status, ended.out) == (1, "")
    assert "NOT as it was written: the file is damaged: database disk image is malformed (near " in ended.err


def test_what_somebody_wrote_into_the_file_reaches_no_terminal_as_it_is(record: Record) -> None:
    record.do("UPDATE operations SET operation_id = 'op_' || char(27) || '[31m' || char(10) WHERE key = 3")
    ended = run("verify", "--db", record.file)
    assert ended.status == 1
    assert "\x1b" not in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_checkpoint_that_was_noted_must_be_there(record: Record) -> None:
    noted = [word for digest in record.hashes for word in ("--checkpoint", digest)]
    assert run("verify", "--db", record.file, *noted).status == 0
    record.do("DELETE FROM checkpoints WHERE number = 2", "DELETE FROM heads WHERE checkpoint = 2")
    assert run("verify", "--db", record.file).status == 0
    ended = run("verify", "--db", record.file, *noted)
    assert ended.status == 1
    assert f"no checkpoint has the hash {record.hashes[1]} (the newest is 1)" in ended.err


def test_a_record_without_checkpoints_is_no_answer_to_a_key_that_was_named(record: Record) -> None:
    record.do("DELETE FROM checkpoints", "DELETE FROM heads")
    key = AuditKey.read((record.folder / "audit.key").read_text()).public_key
    ended = run("verify", "--db", record.file, "--key", record.folder / "audit.key")
    assert (ended.status, ended.out) == (1, "")
    assert f"No checkpoint is in it, the chain alone holds it together: nothing in it is signed with the key {key}" in (
        ended.err
    )
    body = json.loads(run("verify", "--db", record.file, "--key", record.folder / "audit.key", "--json").out)
    assert (body["ok"], "nothing in it is signed" in body["fault"]) == (False, True)
    ended = run("verify", "--db", record.file)  # a key that only lies there asks nothing: a young record has none yet
    assert (ended.status, f"nothing in it is signed with the key {key}" in ended.out) == (0, True)
    assert json.loads(run("verify", "--db", record.file, "--json").out)["signed"] is False


def test_nor_is_an_export_without_checkpoints(record: Record, tmp_path: Path) -> None:
    record.do("DELETE FROM checkpoints", "DELETE FROM heads")
    path, key = tmp_path / "evidence.json", record.folder / "audit.key"
    assert run("export", record.operation, "--db", record.file, "-o", path).status == 0
    ended = run("verify", "--export", path, "--key", key)
    assert (ended.status, ended.out, "nothing in it is signed with the key" in ended.err) == (1, "", True)
    ended = run("verify", "--export", path, "--json")
    assert (ended.status, json.loads(ended.out)["signed"]) == (0, False)


async def _with_other_key(folder: Path) -> str:
    """The same operation under a checkpoint of either key; its id."""
    async with running(folder) as g:
        operation = await g.operation("observing", "batch_1")
        for key, job in ((OTHER, "batch_1"), (AuditKey.read((folder / "audit.key").read_text()), "batch_2")):
            signer = Notary(record=g.daemon.store.record, key=key, clock=g.clock, log=g.daemon.log)
            assert await signer.sign() is not None
            if job == "batch_1":
                await g.apply(operation, JobRead(done(job)))
    return operation


def test_checkpoints_of_other_keys_than_the_newest_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    operation = asyncio.run(_with_other_key(folder))
    file, key, path = folder / "reconciled.db", folder / "audit.key", tmp_path / "evidence.json"
    told = f"Checkpoint 1 was signed with the key {OTHER.public_key}."
    spans = [{"first": 1, "last": 1, "checkpoints": 1, "public_key": OTHER.public_key}]
    ended = run("verify", "--db", file, "--key", key)
    assert (ended.status, told in ended.out.splitlines()) == (0, True)
    body = json.loads(run("verify", "--db", file, "--json").out)
    assert (body["signed"], body["other_keys"]) == (True, spans)
    run("export", operation, "--db", file, "-o", path)
    ended = run("verify", "--export", path, "--key", key)
    assert (ended.status, ended.out.splitlines()[-2:]) == (
        0,
        [told, "For what 1 checkpoint of other keys tell, only those keys vouch."],
    )
    assert json.loads(run("verify", "--export", path, "--json").out)["other_keys"] == spans


# ---- verify: which file, which key -----------------------------------------------------------------------------


def configuration(folder: Path, *more: str) -> Path:
    path = folder.parent / "reconciled.toml"
    path.write_text("\n".join([f'state_dir = "{folder}"', *more]))
    return path


def test_the_file_is_that_of_the_configuration(record: Record) -> None:
    path = configuration(record.folder, "[providers.openai]", 'api_key = { env = "NOT_SET_HERE" }')
    assert run("verify", "--config", path).status == 0
    assert str(record.file) in run("verify", RECONCILED_CONFIG=str(path)).out


def test_a_public_key_from_a_second_place_is_enough(record: Record, tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text(OTHER.pem())
    ended = run("verify", "--db", record.file, "--key", tmp_path / "key.pem")
    assert ended.status == 1
    assert "checkpoint 2: it was signed with another key" in ended.err
    assert OTHER.public_key in ended.err
    own = record.folder / "audit.key"
    ended = run("verify", "--db", record.file, "--key", own)
    assert (ended.status, str(own) in ended.out) == (0, True)


def test_a_key_beside_the_file_of_somebody_else_is_told(record: Record) -> None:
    (record.folder / "audit.key").write_text(OTHER.pem())
    assert run("verify", "--db", record.file).status == 1


def test_the_configured_key_comes_before_the_one_beside_the_file(record: Record) -> None:
    path = configuration(record.folder, "[audit]", 'key = { env = "AUDIT_KEY" }')
    ended = run("verify", "--config", path, AUDIT_KEY=OTHER.pem())
    assert (ended.status, "it was signed with another key" in ended.err) == (1, True)
    own = (record.folder / "audit.key").read_text()
    ended = run("verify", "--config", path, AUDIT_KEY=own)
    assert (ended.status, "(the configured audit.key)" in ended.out) == (0, True)


def test_a_configured_key_that_is_not_at_hand_is_said_to_be_missing(record: Record) -> None:
    """The daemon's credential is nobody else's: what could not be asked is told, and the rest is verified."""
    path = configuration(record.folder, "[audit]", 'key = { credential = "audit-key" }')
    ended = run("verify", "--config", path)
    assert ended.status == 0
    assert "which only this file vouches for (the configured key cannot be read here: " in ended.out
    assert "give --key FILE" in ended.out


def test_a_configured_key_of_a_relative_file_is_that_of_the_daemon(record: Record, tmp_path: Path) -> None:
    """In the state directory, wherever the command is typed; nothing of that name where it is typed is asked."""
    (record.folder / "own.key").write_text((record.folder / "audit.key").read_text())
    (record.folder / "own.key").chmod(0o600)
    (record.folder / "audit.key").unlink()
    (tmp_path / "own.key").write_text(OTHER.pem())
    path = configuration(record.folder, "[audit]", 'key = { file = "own.key" }')
    ended = run("verify", "--config", path, folder=tmp_path)
    assert (ended.status, "(the configured audit.key)" in ended.out) == (0, True)


@pytest.mark.parametrize("fault", ["missing", "no key", "open to all"])
def test_a_configured_key_file_that_cannot_be_used_exits_78(record: Record, fault: str) -> None:
    path = configuration(record.folder, "[audit]", 'key = { file = "own.key" }')
    if fault != "missing":
        (record.folder / "own.key").write_text("no key" if fault == "no key" else OTHER.pem())
        (record.folder / "own.key").chmod(0o644 if fault == "open to all" else 0o600)
    ended = run("verify", "--config", path)
    assert (ended.status, ended.out) == (78, "")
    assert ended.err.startswith(f"reconciled: {path}: audit.key: found ")


@pytest.mark.parametrize("folder", [False, True])
def test_a_credential_that_was_not_handed_to_the_command_is_said_to_be_missing(record: Record, folder: bool) -> None:
    path = configuration(record.folder, "[audit]", 'key = { credential = "audit-key" }')
    given: dict[str, Any] = {"CREDENTIALS_DIRECTORY": str(record.folder)} if folder else {}
    ended = run("verify", "--config", path, **given)
    assert (ended.status, "which only this file vouches for" in ended.out) == (0, True)
    assert json.loads(run("verify", "--config", path, "--json", **given).out)["trusted_key"] is None


def test_a_variable_that_is_set_to_something_else_exits_78(record: Record) -> None:
    path = configuration(record.folder, "[audit]", 'key = { env = "AUDIT_KEY" }')
    assert run("verify", "--config", path).status == 0
    assert run("verify", "--config", path, AUDIT_KEY="no key").status == 78


def test_without_any_key_it_is_said_what_was_not_asked(record: Record, tmp_path: Path) -> None:
    shutil.copy(record.file, tmp_path / "copy.db")
    ended = run("verify", "--db", tmp_path / "copy.db")
    assert ended.status == 0
    assert "which only this file vouches for (no key is known here): give --key FILE from a second place." in ended.out
    body = json.loads(run("verify", "--db", tmp_path / "copy.db", "--json").out)
    assert (body["trusted_key"], body["trusted_key_source"]) == (None, "no key is known here")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--db", "missing.db"], "missing.db: there is no such file"),
        (["--db", "."], ".: Is a directory"),
        (["--db", "text.db"], "text.db: this is no database"),
        (["--db", "newer.db"], "newer.db: the file has schema 99"),
        (["--config", "missing.toml"], "no configuration at missing.toml; name the file by --db"),
        (["--db", "good.db", "--key", "missing.pem"], "--key missing.pem: No such file or directory"),
        (["--db", "good.db", "--key", "text.db"], "--key text.db: not a public key in PEM form"),
        (["--db", "good.db", "--key", "good.db"], "--key good.db: not a key in PEM form"),
        (["--db", "good.db", "--checkpoint", "abc"], "'abc' is not the hash of a checkpoint: 64 digits 0-9a-f"),
        (["--db", "good.db", "--export", "text.db"], "--export asks no database: leave out --db and --config"),
        (["--export", "missing.json"], "missing.json: cannot be read: No such file or directory"),
        (["--export", "text.db"], "text.db: no JSON"),
        (["--export", "other.json"], "other.json: no evidence that `audit export` wrote"),
    ],
)
def test_wrong_usage_exits_2_with_one_sentence(
    record: Record,
    arguments: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = record.folder.parent
    (folder / "text.db").write_text("only words\n" * 100)
    (folder / "other.json").write_text("{}")
    shutil.copy(record.file, folder / "good.db")
    shutil.copy(record.file, folder / "newer.db")
    with contextlib.closing(sqlite3.connect(folder / "newer.db")) as connection:
        connection.execute("PRAGMA user_version = 99")
    monkeypatch.chdir(folder)
    try:
        status = main(["audit", "verify", *arguments])
    except SystemExit as ended:  # argparse's own end
        status = int(str(ended.code))
    told = capsys.readouterr()
    assert (status, told.out) == (2, "")
    assert words in told.err


def test_a_configuration_that_cannot_be_read_exits_78(record: Record) -> None:
    path = configuration(record.folder, "[")
    ended = run("verify", "--config", path)
    assert (ended.status, ended.out) == (78, "")
    assert "expected valid TOML in UTF-8" in ended.err


def test_a_file_that_cannot_be_read_now_exits_69(
    record: Record, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY

    def locked(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(audit, "verify", locked)
    assert main(["audit", "verify", "--db", str(record.file)]) == 69
    assert capsys.readouterr().err == "reconciled: the file cannot be read now: database is locked\n"


# ---- verify: what it leaves alone ------------------------------------------------------------------------------


def test_nothing_is_written_and_nothing_is_left_behind(record: Record) -> None:
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in record.folder.rglob("*") if path.is_file()}
    assert run("verify", "--db", record.file).status == 0
    assert run("export", record.operation, "--db", record.file).status == 0
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in record.folder.rglob("*") if path.is_file()}
    assert after == before
    assert record.file.with_name("reconciled.db-wal") not in after


async def test_a_running_daemon_is_verified_and_not_disturbed(ground: Ground) -> None:
    """Over and over, while it writes and signs."""
    operation = await ground.operation("observing", "batch_1")
    going = asyncio.create_task(asyncio.to_thread(_verified_three_times, ground.folder / "reconciled.db"))
    n = 1
    while not going.done():
        n += 1
        await ground.operation("observing", f"batch_{n}")
        await signed(ground)
    rows = await going
    assert len(rows) == 3
    assert rows == sorted(rows)
    ended = await asyncio.to_thread(run, "export", operation, "--db", ground.folder / "reconciled.db")
    assert json.loads(ended.out)["operation"]["operation_id"] == operation
    await ground.operation("succeeded", "batch_last")


def _verified_three_times(path: Path) -> list[int]:
    rows = []
    for _ in range(3):
        ended = run("verify", "--db", path, "--json")
        assert ended.status == 0, ended.err
        rows.append(json.loads(ended.out)["rows"])
    return rows


# ---- the person who waits --------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """What a terminal was sent."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_how_far_it_is_and_nothing_of_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_AFTER_SECONDS", 0)
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    with Progress("rows", terminal) as line:
        line.tell(20_000, 80_000)
        shown = ESCAPES.sub("", terminal.getvalue())
        assert "25%" in shown
        assert "20,000 of 80,000 rows, " in shown
        line.tell(80_000, 80_000)
    # Its one line is rubbed out, and the cursor that was hidden is back.
    assert terminal.getvalue().count("\n") == 1
    assert terminal.getvalue().endswith(f"{SHOW}\r\x1b[1A\x1b[2K")


def test_a_command_that_is_terminated_leaves_the_terminal_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_AFTER_SECONDS", 0)
    monkeypatch.setenv("TERM", "xterm")
    terminal, before = Terminal(), signal.getsignal(signal.SIGTERM)

    def work() -> None:
        with Progress("rows", terminal) as line:
            line.tell(1, 2)
            signal.raise_signal(signal.SIGTERM)

    try:
        calls.leave_in_order()
        with pytest.raises(SystemExit) as ended:
            work()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 128 + signal.SIGTERM
    assert terminal.getvalue().endswith(f"{SHOW}\r\x1b[1A\x1b[2K")


def test_bytes_are_told_in_their_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is told to a terminal that cannot be drawn over, or where nobody asked for it."""
    monkeypatch.setattr(progress, "_AFTER_SECONDS", 0)
    monkeypatch.setenv("TERM", "xterm")
    terminal, unasked, dumb = Terminal(), Terminal(), Terminal()
    with Progress("bytes", terminal, spelled=size) as line:
        line.tell(1_572_864, 3_221_225_472)
    assert "1.5 MiB of 3.0 GiB, " in ESCAPES.sub("", terminal.getvalue())
    with Progress("bytes", unasked, spelled=size, is_shown=False) as line:
        line.tell(1, 2)
    monkeypatch.setenv("TERM", "dumb")
    with Progress("bytes", dumb) as line:
        line.tell(1, 2)
    assert unasked.getvalue() + dumb.getvalue() == ""


def test_who_is_no_terminal_sees_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_AFTER_SECONDS", 0)
    pipe = io.StringIO()
    with Progress("rows", pipe) as line:
        line.tell(20_000, 80_000)
    assert pipe.getvalue() == ""


def test_ctrl_c_ends_it_cleanly(
    record: Record, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(audit, "verify", interrupted)
    assert main(["audit", "verify", "--db", str(record.file)]) == 130
    assert capsys.readouterr() == ("", "")


# ---- export ----------------------------------------------------------------------------------------------------


def test_an_export_verifies_by_itself_anywhere(record: Record, tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.mkdir()
    public = away / "key.pem"
    public.write_text((record.folder / "audit.key").read_text())
    ended = run("export", record.operation, "--db", record.file, "-o", away / "evidence.json")
    assert (ended.status, ended.out, ended.err) == (0, "", "")
    shutil.rmtree(record.folder)
    ended = run("verify", "--export", "evidence.json", "--key", "key.pem", folder=away)
    assert (ended.status, ended.err) == (0, "")
    first, beside, second, third = ended.out.splitlines()
    assert beside == "Its requests, observations, events and items go with it: no hash is over them."
    assert first.startswith(f"The history in evidence.json holds: {record.operation} (succeeded), ")
    assert first.endswith(" history rows, 1 checkpoint.")
    assert record.hashes[0] in second
    assert third.endswith("(key.pem).")
    body = json.loads(run("verify", "--export", "evidence.json", "--json", folder=away).out)
    assert (body["ok"], body["operation_id"], body["unsigned_rows"]) == (True, record.operation, 0)
    assert body["trusted_key"] is None


def test_an_export_that_was_edited_exits_1_and_names_the_first_bad_row(record: Record, tmp_path: Path) -> None:
    document = json.loads(run("export", record.operation, "--db", record.file).raw)
    document["history"][1]["actor"] = "nobody"
    (tmp_path / "edited.json").write_text(json.dumps(document))
    ended = run("verify", "--export", tmp_path / "edited.json")
    assert (ended.status, ended.out) == (1, "")
    assert f"NOT as it was written: row 2 of {record.operation} (position " in ended.err


def test_an_export_is_the_same_on_stdout_and_in_a_file(record: Record, tmp_path: Path) -> None:
    printed = run("export", record.operation, "--config", configuration(record.folder))
    assert run("export", record.operation, "--db", record.file, "-o", tmp_path / "x.json").status == 0
    assert printed.raw == (tmp_path / "x.json").read_bytes()


def test_an_operation_that_is_not_there_exits_1(record: Record) -> None:
    ended = run("export", "op_none", "--db", record.file)
    assert (ended.status, ended.out, ended.err) == (1, "", "reconciled: there is no operation op_none\n")


def test_a_pruned_operation_is_told_with_its_time(record: Record) -> None:
    record.do(
        "INSERT INTO pruned (operation_id, seq, head, pruned_at, behind, operation_key)"
        " SELECT operation_id, seq, head, 1800000000000, 1, key FROM operations WHERE key = 1",
        "DELETE FROM history WHERE operation_key = 1",
        "DELETE FROM operations WHERE key = 1",
    )
    ended = run("export", record.operation, "--db", record.file)
    assert (ended.status, ended.out) == (1, "")
    assert f"{record.operation} was pruned at 2027-01-15T08:00:00.000Z" in ended.err
    ended = run("verify", "--db", record.file)
    assert (ended.status, "1 pruned operation." in ended.out) == (0, True)
    assert "1 pruning will be signed by the next checkpoint." in ended.out


def test_what_does_not_verify_is_not_exported(record: Record, tmp_path: Path) -> None:
    record.do("UPDATE history SET reason = 'x' WHERE operation_key = 1 AND seq = 2")
    ended = run("export", record.operation, "--db", record.file, "-o", tmp_path / "x.json")
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith("reconciled: nothing was written, for its evidence does not hold: row 2 of ")
    assert not (tmp_path / "x.json").exists()


def test_a_place_that_cannot_be_written_exits_2(record: Record) -> None:
    ended = run("export", record.operation, "--db", record.file, "-o", "/nowhere/x.json")
    assert (ended.status, ended.out) == (2, "")
    assert "/nowhere/x.json: cannot be written: No such file or directory" in ended.err


def test_a_reader_that_goes_away_makes_no_good_record_of_a_bad_one(record: Record) -> None:
    """`audit verify | true` under pipefail."""
    record.do("UPDATE history SET reason = 'so it was' WHERE position = 2")
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-u", "-m", "daemon", "audit", "verify", "--json", "--db", str(record.file)]
    with os.fdopen(writing, "wb") as gone:
        ended = subprocess.run(
            command, stdout=gone, stderr=gone, env=ENVIRON, cwd=Path(__file__).parents[2], check=False, timeout=60
        )
    assert ended.returncode != 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not read")
@pytest.mark.parametrize("command", [("verify",), ("export", "op_x")])
def test_a_record_that_one_may_not_read_is_no_damaged_one(record: Record, command: tuple[str, ...]) -> None:
    """Who forgets `sudo` must not be told of tampering."""
    record.folder.chmod(0o700)
    code = (
        "import os, sys; from daemon.cli import build_parser, main; build_parser();"
        " os.setgid(65534); os.setuid(65534); sys.exit(main(sys.argv[1:]))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, "audit", *command, "--db", str(record.file)],
        capture_output=True,
        text=True,
        env=ENVIRON,
        cwd=Path(__file__).parents[2],
        check=False,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout) == (69, ""), ended.stderr
    assert "Traceback" not in ended.stderr
    assert "cannot be read: Permission denied" in ended.stderr
