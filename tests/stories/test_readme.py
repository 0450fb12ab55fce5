"""The README's "Try it by hand", run as it is written: a newcomer's first ten minutes must not be a lie.

The blocks run in one shell instead of two terminals, on ports of the test's own; nothing else is changed.
"""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.stories.stage import ROOT, free_port

README = (ROOT / "README.md").read_text(encoding="utf-8")
#: Seconds for all blocks together. They take about fifteen.
PATIENCE = 60
#: Between two blocks a newcomer changes terminals, and the daemon is ready long before; the shell waits for that.
READY = """\
if [ -f daemon.pid ]; then
  for _ in $(seq 100); do curl -sf http://127.0.0.1:8787/healthz >/dev/null && break; sleep 0.1; done
  for _ in $(seq 100); do curl -s http://127.0.0.1:8790/ >/dev/null && break; sleep 0.1; done
fi
"""


def blocks() -> list[str]:
    """The shell blocks of the section, in order."""
    section = README[README.index("<!-- try: these blocks") : README.index("<!-- try: end -->")]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)


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
    steps = blocks()
    assert len(steps) == 7
    script = "set -e\n" + f"echo '=== end'\n{READY}".join(steps) + "wait\n"
    for written in ("8786", "8787", "8790"):
        script = script.replace(written, str(free_port()))

    status, out, err = ran(script, folder)

    assert status == 0, err
    _, _, first, killed, _, second, _ = out.split("=== end\n")
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
