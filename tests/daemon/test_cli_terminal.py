"""What one sees on a terminal: columns that fit, colours there and nowhere else, a display that tidies up behind it."""

import asyncio
import io
import json
import signal
import subprocess
import sys
import unicodedata
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from daemon import shapes, words
from daemon.cli import live
from daemon.cli import terminal as drawing
from reconcile.evidence import JobRead
from reconcile.model import Observation, Progress
from tests.daemon.terminal import ESCAPES, HIDE, LOOKS, ROOT, SHOW, Terminal, environ, place, seen
from tests.daemon.test_cli import JOB
from tests.handlers.ground import Ground, collected, done, running

WIDTHS = (40, 80, 200)


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with running(tmp_path / "state") as g:
        yield g


# ---- layout ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("command", ["list", "show", "history", "items", "status", "inbox"])
async def test_nothing_is_wider_than_the_terminal_and_no_id_is_cut(ground: Ground, command: str, width: int) -> None:
    operation = await ground.operation("result_validation_failed", "batch_" + "7" * 32)
    about = [operation] if command in ("show", "history", "items") else []

    _, terminal = await seen(command, *about, *place(ground), width=width)

    assert max(map(cell_len, terminal.lines)) <= width
    assert not any(line.endswith(" ") for line in terminal.lines)
    if command in ("list", "show", "inbox"):
        assert operation in terminal.text
    if command == "show":
        assert "".join(terminal.text.split()).count("batch_" + "7" * 32) == 1


async def test_a_wide_terminal_gets_headings_and_a_narrow_one_a_block_a_row(ground: Ground) -> None:
    operation = await ground.operation("observing", JOB)

    _, wide = await seen("list", *place(ground), width=200)
    assert wide.lines[0].split() == ["operation", "provider", "status", "state", "progress", "created", "job"]
    assert wide.lines[1].split()[:4] == [operation, "openai", "working", "observing"]

    _, usual = await seen("list", *place(ground), width=80)
    assert usual.lines[0].split()[:5] == ["operation", "provider", "status", "state", "progress"]
    assert "created" not in usual.lines[0]

    _, narrow = await seen("list", *place(ground), width=40)
    assert narrow.lines[0] == operation
    assert "  status    working" in narrow.lines
    assert "  state     observing" in narrow.lines


async def test_colours_are_for_terminals_that_want_them(ground: Ground) -> None:
    operation = await ground.operation("succeeded", JOB)
    status, plain_terminal = await seen("list", *place(ground))
    assert status == 0
    assert LOOKS.search(plain_terminal.written)
    assert "\x1b[32msucceeded" in plain_terminal.written
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": "dumb", "FORCE_COLOR": "1"}):
        _, terminal = await seen("show", operation, *place(ground), env=env)
        assert "\x1b" not in terminal.written
        assert operation in terminal.text


@pytest.mark.parametrize("env", [{}, {"FORCE_COLOR": "1"}, {"TTY_COMPATIBLE": "1", "COLORTERM": "truecolor"}])
async def test_a_pipe_gets_no_escapes_whatever_is_forced(ground: Ground, env: dict[str, str]) -> None:
    """And the first column of `list` stays the id, in lines of one operation each."""
    operation = await ground.operation("succeeded", JOB)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "daemon", "list", *place(ground)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env=environ(**env),
    )
    out, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert b"\x1b" not in out
    assert out.decode().split(" ")[0] == operation
    assert out.count(b"\n") == 1


def drawn(shape: shapes.Shape, width: int) -> str:
    """The shape as a terminal with every colour gets it."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=True, color_system="truecolor", highlight=False)
    drawing.draw(console, shape)
    return stream.getvalue()


HOSTILE = "a\x1b[31mb\nc\rd\x00\x07\x7f\x9b31m\u2028\u202e\u2066\u200f\ud800[red]x[/red]:smile:"


@pytest.mark.parametrize("width", WIDTHS)
def test_a_strangers_controls_and_markup_reach_no_terminal(width: int) -> None:
    """S37: what is drawn is cleaned as what is piped, and never read as markup of ours."""
    grid = shapes.Grid([shapes.Column("x", is_whole=True), shapes.Column("y", is_state=True)], [[HOSTILE, HOSTILE]], "")
    facts = shapes.Facts([("status", HOSTILE), (shapes.UNDER, HOSTILE), ("", HOSTILE)])
    story = shapes.Story([shapes.Told(HOSTILE, HOSTILE, HOSTILE, HOSTILE)])
    for shape in (grid, facts, story, shapes.Sheets([grid, facts]), shapes.Drawn([], [grid]), HOSTILE):
        shown = ESCAPES.sub("", drawn(shape, width))
        assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") and c != "\n"]
        assert not set(shown) & set("\u202e\u2066\u200f\u2028\ud800")
        assert "[red]x[/red]:smile:" in "".join(line.strip() for line in shown.splitlines())


def test_columns_stand_under_one_another_whatever_the_script() -> None:
    """A wide character takes two columns, a combining one none."""
    rows = [["漢字", "1"], ["e\u0301te\u0301", "2"], ["ascii", "3"]]
    grid = shapes.Grid([shapes.Column("name"), shapes.Column("n")], rows, "")
    for text in (str(grid), ESCAPES.sub("", drawn(grid, 80))):
        lines = [line for line in text.splitlines() if line[-1:].isdigit()]
        assert [cell_len(line[:-1]) for line in lines] == [7, 7, 7]


def test_an_id_longer_than_any_terminal_is_folded_and_not_cut() -> None:
    grid = shapes.Grid([shapes.Column("x", is_whole=True), shapes.Column("y")], [["i" * 10_240, "z"]], "")
    assert drawn(grid, 40).count("i") == 10_240


@pytest.mark.parametrize(
    ("command", "what", "number", "status"),
    [
        (["submit", "--provider", "openai"], "the provider's create body", signal.SIGINT, 130),
        (["input", "op_1"], "the input", signal.SIGTERM, -signal.SIGTERM),
    ],
)
async def test_a_command_that_reads_from_the_terminal_says_so_and_can_be_ended(
    ground: Ground, command: list[str], what: str, number: signal.Signals, status: int
) -> None:
    terminal = await Terminal.start(*command, *place(ground))
    await terminal.shows(f"reading {what} from this terminal, as JSON; Ctrl-D ends it")
    terminal.signal(number)
    assert await terminal.end() == status


# ---- the live display ------------------------------------------------------------------------------------------


def is_restored(terminal: Terminal) -> bool:
    """The cursor is back, and so are the usual colours."""
    written = terminal.written
    looks = LOOKS.findall(written)
    return written.rfind(SHOW) > written.rfind(HIDE) >= 0 and (not looks or looks[-1] == "\x1b[0m")


def half() -> JobRead:
    progress = Progress(percent=45, completed=225, total=500)
    return JobRead(Observation("in_progress", remote_job_id=JOB, remote_status="in_progress", progress=progress))


@pytest.mark.parametrize("command", [["wait"], ["watch"], ["show", "--wait"]])
@pytest.mark.parametrize("width", [40, 100])
async def test_whoever_waits_sees_how_far_it_is_and_what_comes_next(
    ground: Ground, command: list[str], width: int
) -> None:
    operation = await ground.operation("observing", JOB)
    terminal = await Terminal.start(*command, operation, *place(ground), width=width)
    await terminal.shows("working (observing)")
    await ground.apply(operation, half())
    await terminal.shows("225 of 500")
    await terminal.shows("45 %")
    await terminal.shows("next: reads the job")
    await terminal.shows("Ctrl-C stops the watching")
    await ground.apply(operation, JobRead(done(JOB)))
    await ground.apply(operation, collected("succeeded"))
    assert await terminal.end() == 0
    assert is_restored(terminal)
    assert ("→ result_collecting" in terminal.text) == (command != ["wait"])
    assert " ".join(terminal.text.split()).endswith("1 of 1 item succeeded.")
    # Whatever was redrawn, nothing was wider than the terminal.
    redrawn = ESCAPES.sub("", terminal.written.replace("\r", "\n")).splitlines()
    assert max(map(cell_len, redrawn)) <= width


@pytest.mark.parametrize(
    ("sign", "status"), [(signal.SIGINT, 128 + signal.SIGINT), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
@pytest.mark.parametrize("command", [["wait"], ["watch"], ["show", "--wait"]])
async def test_who_stops_watching_is_left_a_clean_terminal_and_told_that_the_work_goes_on(
    ground: Ground, command: list[str], sign: signal.Signals, status: int
) -> None:
    operation = await ground.operation("observing", JOB)
    terminal = await Terminal.start(*command, operation, *place(ground))
    await terminal.shows("working (observing)")
    terminal.signal(sign)
    assert await terminal.end() == status
    assert is_restored(terminal)
    assert "Traceback" not in terminal.text
    told = f"{operation} goes on without you: reconciled show {operation}"
    assert told in terminal.text.rpartition("Ctrl-C stops")[2]
    assert (await ground.row(operation)).state == "observing"


async def test_watching_all_shows_what_is_open_and_ends_at_ctrl_c(ground: Ground) -> None:
    operation = await ground.operation("observing", JOB)
    terminal = await Terminal.start("watch", *place(ground), width=100)
    await terminal.shows("1 observing")
    second = await ground.start()
    await terminal.shows(second)
    await terminal.shows("1 create_pending, 1 observing")
    await ground.apply(operation, JobRead(done(JOB)))
    await ground.apply(operation, collected("succeeded"))
    await terminal.shows("→ succeeded")
    terminal.signal(signal.SIGINT)
    assert await terminal.end() == 130
    assert is_restored(terminal)
    assert "the work goes on without you" in terminal.text


@pytest.mark.parametrize("env", [{"TERM": "dumb"}])
async def test_a_terminal_that_cannot_be_drawn_over_gets_lines(ground: Ground, env: dict[str, str]) -> None:
    operation = await ground.operation("succeeded", JOB)
    status, terminal = await seen("show", operation, "--wait", *place(ground), env=env)
    assert status == 0
    assert "\x1b" not in terminal.written
    assert "→ succeeded" in terminal.text


async def test_no_color_takes_the_colours_and_leaves_the_display(ground: Ground) -> None:
    operation = await ground.operation("observing", JOB)
    terminal = await Terminal.start("wait", operation, "--max", "1s", *place(ground), env={"NO_COLOR": "1"})
    assert await terminal.end() == 3
    assert not LOOKS.search(terminal.written)
    assert is_restored(terminal)
    assert "not ended after 1s; it goes on" in terminal.text


def test_the_display_knows_every_deadline_and_tells_the_one_that_counts() -> None:
    body: dict[str, Any] = {
        "operation_id": "op_1", "status": "working", "state": "cancelling", "done": False, "provider": "openai\x1b[31m",
        "attention": None, "progress": None, "elapsed_seconds": 5, "next_action": "poll", "next_action_at": "soon",
        "deadlines": {"create": "2026-01-01T00:00:00Z", "result": "2026-01-02T00:00:00Z",
                      "cancel": "2026-01-03T00:00:00Z", "input": None},
    }  # fmt: skip
    display = live.One(sys.stderr, body=body)
    stream = io.StringIO()
    console = Console(file=stream, width=100, color_system=None)
    for line in display.lines(100):
        console.print(line)
    shown = stream.getvalue()
    assert "waits for the cancel's confirmation until 2026-01-03 00:00:00Z" in shown
    assert "01-01" not in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0, "0 s"), (59.4, "59 s"), (60, "1 min"), (3_700, "1 h 1 min"), (90_061, "1 d 1 h"), (-5, "0 s")],
)
def test_a_span_is_told_in_its_two_largest_units(seconds: float, told: str) -> None:
    assert words.span(seconds) == told


def test_the_status_tells_how_deliveries_to_callbacks_fare_where_there_are_any() -> None:
    body: dict[str, Any] = {
        "version": "1", "uptime_seconds": 5, "operations": {}, "due": {"count": 0, "lag_seconds": 0}, "inbox": 0,
        "checkpoint": None, "providers": {},
        "callbacks": {"ci": {"missing": False, "waiting": 1, "delivered": 20, "exhausted": 3},
                      "old": {"missing": True, "waiting": 0, "delivered": 0, "exhausted": 0}},
    }  # fmt: skip
    shape = words.status(body)
    assert str(shape).splitlines()[-2:] == [
        "callback ci: 1 waiting, 20 delivered, 3 exhausted",
        "callback old: 0 waiting, 0 delivered, 0 exhausted, MISSING in the configuration",
    ]
    lines = [line.split() for line in ESCAPES.sub("", drawn(shape, 100)).splitlines()]
    assert ["callback", "waiting", "delivered", "exhausted", "state"] in lines
    assert ["ci", "1", "20", "3", "ok"] in lines
    assert "callback" not in str(words.status({**body, "callbacks": {}}))


# ---- no terminal, no reader, no room ---------------------------------------------------------------------------


async def ran(ground: Ground, script: str, **env: str) -> tuple[int, str, str]:
    """A shell line in which `r COMMAND` runs a command; standard input is a closed pipe."""
    where = " ".join(place(ground))
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", f'set -o pipefail; r() {{ "{sys.executable}" -m daemon "$@" {where}; }}; {script}',
        stdin=subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        cwd=ROOT, env=environ(**env),
    )  # fmt: skip
    async with asyncio.timeout(30):
        out, err = await process.communicate()
    assert b"Traceback" not in err
    assert b"Exception ignored" not in err
    assert process.returncode is not None
    return process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that takes nothing")
@pytest.mark.parametrize("command", ["list", "list --json", "status", "show ID", "history ID", "items ID", "watch ID"])
async def test_output_that_cannot_be_written_is_told(ground: Ground, command: str) -> None:
    operation = await ground.operation("succeeded", JOB)
    status, _, err = await ran(ground, f"r {command.replace('ID', operation)} > /dev/full")
    assert status == 74
    assert err == "reconciled: the output cannot be written: No space left on device\n"


async def test_a_reader_that_goes_away_ends_it_quietly(ground: Ground) -> None:
    operation = await ground.operation("succeeded", JOB)
    status, _, err = await ran(ground, f"r history {operation} | true")
    assert status in (0, 141)
    assert err == ""


async def test_closed_streams_are_no_fault(ground: Ground) -> None:
    operation = await ground.operation("succeeded", JOB)
    assert await ran(ground, f"r show {operation} >&-") == (0, "", "")
    assert (await ran(ground, f"r show {operation} 2>&-"))[0] == 0
    status, _, err = await ran(ground, "r submit --provider openai <&-")
    assert status == 2
    assert "stdin is empty" in err


async def test_a_terminal_of_another_encoding_gets_what_it_can_show(ground: Ground) -> None:
    operation = await ground.operation("succeeded", JOB)
    status, out, _ = await ran(ground, f"r history {operation}", PYTHONIOENCODING="ascii")
    assert status == 0
    assert r"\u2192 succeeded" in out


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("show op_x", 404),
        ("wait op_x", 404),
        ("wait op_x op_y", 404),
        ("watch op_x", 404),
        ("claim op_x --consumer c", 404),
        ("list --state wat", 400),
        ("decide op_x keep --reason r", 422),
    ],
)
async def test_with_json_a_refusal_is_the_problem_document_and_nothing_else(
    ground: Ground, command: str, status: int
) -> None:
    ended, out, err = await ran(ground, f"r {command} --json")
    assert ended == 2
    assert json.loads(out)["status"] == status
    assert err.startswith("reconciled: ")


async def test_with_json_a_daemon_that_is_away_is_a_problem_document_too(ground: Ground) -> None:
    (ground.folder / "gone").write_text("t")
    where = f"--url http://127.0.0.1:1 --token-file {ground.folder / 'gone'}"
    ended, out, err = await ran(ground, f'"{sys.executable}" -m daemon list --json {where}')
    assert ended == 69
    assert set(json.loads(out)) == {"type", "title", "detail"}
    assert "is the daemon running?" in err


def test_what_a_broken_terminal_says_of_itself_is_survived() -> None:
    """No columns at all, or none that can be asked."""
    for columns in ("0", "x", "-1", "1"):
        ended = subprocess.run(
            [sys.executable, "-m", "daemon", "--help"],
            capture_output=True, text=True, cwd=ROOT, env=environ(COLUMNS=columns), check=False, timeout=60,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        assert "reconciled demo" in ended.stdout
