"""The README's "Try it by hand" and its restore drill, run as they are written: neither may be a lie.

The blocks run in one shell instead of two terminals, on ports of the test's own; nothing else is changed.
"""

import os
import re
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest

from tests.stories.stage import ROOT, free_port

README = (ROOT / "README.md").read_text(encoding="utf-8")
#: Seconds for all blocks together. They take about forty.
PATIENCE = 180
#: Between two blocks a newcomer changes terminals, and the daemon is ready long before; the shell waits for that.
READY = """\
if [ -f daemon.pid ]; then
  for _ in $(seq 100); do curl -sf http://127.0.0.1:8787/healthz >/dev/null && break; sleep 0.1; done
  for _ in $(seq 100); do curl -s http://127.0.0.1:8790/ >/dev/null && break; sleep 0.1; done
fi
"""


def blocks(name: str) -> list[str]:
    """The shell blocks of the section, in order, however far they are indented."""
    section = README[README.index(f"<!-- {name}: these blocks") : README.index(f"<!-- {name}: end -->")]
    return [textwrap.dedent(block) for block in re.findall(r"^ *```sh\n(.*?)^ *```", section, re.DOTALL | re.MULTILINE)]


def joined(steps: list[str]) -> str:
    """One script that says where a step ends, on ports of the test's own."""
    script = "set -e\n" + f"echo '=== end'\n{READY}".join(steps) + "wait\n"
    for written in ("8786", "8787", "8790"):
        script = script.replace(written, str(free_port()))
    return script


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkout as `make demo` leaves it: with the command in .venv/bin."""
    command = tmp_path / ".venv" / "bin" / "reconciled"
    command.parent.mkdir(parents=True)
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m daemon "$@"\n')
    command.chmod(0o755)
    return tmp_path


def ran(script: str, folder: Path) -> tuple[int, str, str]:
    """One bash in a process group of its own, which ends with the test whatever it started."""
    (folder / "script.sh").write_text(script, encoding="utf-8")
    ours = {name: value for name, value in os.environ.items() if not name.startswith("RECONCILED_")}
    with subprocess.Popen(
        ["bash", "script.sh"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=ours,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, out, err


def test_what_the_readme_has_one_try_by_hand_goes_as_it_says(folder: Path) -> None:
    steps = blocks("try")
    assert len(steps) == 11

    status, out, err = ran(joined(steps), folder)

    assert status == 0, err
    _, _, first, killed, _, second, lost, cancelled, decided, audited, _ = out.split("=== end\n")
    assert "done (succeeded)" in first
    assert re.search(r"^\S+Z  worker +→ accepted ", first, re.MULTILINE)
    assert re.search(r"^q1  succeeded$", first, re.MULTILINE)
    assert '"items": [{"item_id": "q1", "outcome": "succeeded"' in first
    assert (folder / "try" / "result.jsonl").read_bytes().count(b"\n") == 2
    assert "NOT complete" in killed
    assert "done (succeeded)" in second
    ids = set(re.findall(r"\bop_[0-9a-zA-Z]+", killed + second))
    assert len(ids) == 2, "the key gave a second operation, or the list is not of these two"
    assert re.search(r"^operations: 2 succeeded$", second, re.MULTILINE)
    assert "done (succeeded)" in lost
    assert "failed (cancelled)" in cancelled
    assert cancelled.endswith("exit status 1\n")
    assert re.findall(r"^exit status (\d)$", decided, re.MULTILINE) == ["4", "1"]
    assert "result_timed_out" in decided
    assert "failed (cancelled)" in decided
    assert "it hangs" in audited
    assert "is as it was written" in audited


def test_the_readmes_restore_drill_goes_as_it_says(folder: Path) -> None:
    steps = blocks("drill")
    assert len(steps) == 9

    status, out, err = ran(joined([blocks("try")[0], *steps]), folder)

    assert status == 0, err
    _, _, backed_up, after, _, _, _, looked, adopted, _ = out.split("=== end\n")
    assert re.search(r"backup/reconciled\.db: .*; not in it: spool/, results/, audit\.key, api-token \(", backed_up)
    assert "done (succeeded)" in after
    lost = re.findall(r"op_[0-9a-z]+", after)[0]
    assert err.count('"restored_backup"') == 1
    # The job of the backup came to its end, and what the lost time left is there.
    assert "done (succeeded)" in looked
    assert "done (succeeded)" in adopted
    assert {f"{lost}.jsonl", lost} <= set(looked.split())
    assert lost not in adopted
    assert len(set(re.findall(r"\bop_[0-9a-z]+", adopted))) == 2
