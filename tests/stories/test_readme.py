"""The README's shell blocks, run as they are written: none may be a lie.

The blocks run in one shell instead of two terminals, on ports of the test's own, and those of the unit in folders of
the test's own; nothing else is changed.
"""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.stories.stage import ROOT, free_port

README = (ROOT / "README.md").read_text(encoding="utf-8")
#: Seconds for the blocks of one test. They take about forty, and more than twice as long on a busy machine.
PATIENCE = 600
#: A block that fails ends the script, and all that it started, at once.
ENDING = "set -e\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"
#: Between two blocks a newcomer changes terminals, and the daemon is ready long before; the shell waits for that.
READY = """\
if [ -f daemon.pid ]; then
  for _ in $(seq 100); do curl -sf http://127.0.0.1:8787/healthz >/dev/null && break; sleep 0.1; done
  for _ in $(seq 100); do curl -s http://127.0.0.1:8790/ >/dev/null && break; sleep 0.1; done
fi
"""


#: The parts of the README that hold shell blocks, and the test that runs all blocks of each.
TOLD = {
    "path": "test_the_readmes_loop_and_its_other_calls_go_as_they_say",
    "try": "test_what_the_readme_has_one_try_by_hand_goes_as_it_says",
    "loop": "test_the_readmes_loop_and_its_other_calls_go_as_they_say",
    "form": "test_the_readmes_loop_and_its_other_calls_go_as_they_say",
    "events": "test_the_readmes_loop_and_its_other_calls_go_as_they_say",
    "check": "test_the_readmes_loop_and_its_other_calls_go_as_they_say",
    "restore": "test_the_readmes_loop_and_its_other_calls_go_as_they_say",
    "drill": "test_the_readmes_restore_drill_goes_as_it_says",
    "simulate": "test_the_readmes_stand_in_listens_as_it_says",
}
#: The blocks that no test here runs, by their first line, and why.
NOT_RUN = {
    "python3 -m venv /opt/reconciled": "needs root and systemd: tests/systemd runs it in a booted machine",
    'sudo install -Dm600 -o "$USER" /var/lib/reconciled/api-token ~/.reconciled-token': "needs sudo and the unit",
    "make test         # ruff, format, import contracts, mypy --strict, then every test; under 20 minutes": (
        "would run this test in itself"
    ),
}


def shell_blocks(text: str) -> list[str]:
    """The shell blocks of a text, in order, however far they are indented."""
    return [textwrap.dedent(block) for block in re.findall(r"^ *```sh\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)]


def part(name: str) -> str:
    """A named part of the README: what stands between its two marks."""
    found = re.findall(rf"<!-- {name}: [^\n]* run by tests/.*?<!-- {name}: end -->", README, re.DOTALL)
    assert len(found) == 1, name
    return str(found[0])


def blocks(name: str) -> list[str]:
    return shell_blocks(part(name))


def on_own_ports(script: str) -> str:
    for written in ("8786", "8787", "8790"):
        script = script.replace(written, str(free_port()))
    return script


#: A token of the operator's own in the state directory: a restore without it would not start.
NAMED_TOKEN = """\
mkdir -m 700 state
(umask 077; echo a-token-of-the-agents > state/agents-token)
printf '[api.tokens.agents]\\ntoken = { file = "agents-token" }\\n' >> local.toml
"""


def joined(steps: list[str]) -> str:
    """One script that says where a step ends, on ports of the test's own."""
    return on_own_ports(ENDING + f"echo '=== end'\n{READY}".join(steps) + "wait\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkout as `make demo` leaves it: with the command in .venv/bin."""
    command = tmp_path / ".venv" / "bin" / "reconciled"
    command.parent.mkdir(parents=True)
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m daemon "$@"\n')
    command.chmod(0o755)
    return tmp_path


@contextmanager
def running(script: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """One bash in a process group of its own, which ends with the test whatever it started; the folder is its home."""
    (folder / "script.sh").write_text(script, encoding="utf-8")
    ours = {name: value for name, value in os.environ.items() if not name.startswith("RECONCILED_")}
    with subprocess.Popen(
        ["bash", "script.sh"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**ours, "HOME": str(folder)},
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def ran(script: str, folder: Path) -> tuple[int, str, str]:
    with running(script, folder) as process:
        out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def test_every_shell_block_of_the_readme_is_run_or_said_why_not() -> None:
    """A block is told by its part; what stands in no part is in the list, and nothing else is."""
    told = [block for name in TOLD for block in blocks(name)]
    left = [block.partition("\n")[0] for block in shell_blocks(README) if block not in told]
    assert left == list(NOT_RUN)
    assert len(told) + len(left) == len(shell_blocks(README)), "two blocks are the same: one of them may be untold"
    assert {name for name in TOLD.values() if name not in globals()} == set()
    marked = set(re.findall(r"<!-- (\w+): [^\n]* run by tests/stories", README))
    assert marked == set(TOLD)


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

    status, out, err = ran(joined([blocks("try")[0] + NAMED_TOKEN, *steps]), folder)

    assert status == 0, err
    _, _, backed_up, after, _, _, _, looked, adopted, _ = out.split("=== end\n")
    assert re.search(
        r"backup/reconciled\.db: .*; not in it: spool/, results/, audit\.key, api-token, agents-token \(", backed_up
    )
    assert "done (succeeded)" in after
    lost = re.findall(r"op_[0-9a-z]+", after)[0]
    assert err.count('"restored_backup"') == 1
    assert (folder / "try" / "state").stat().st_mode & 0o777 == 0o700
    assert (folder / "try" / "state" / "agents-token").stat().st_mode & 0o777 == 0o600
    # The job of the backup came to its end, and what the lost time left is there.
    assert "done (succeeded)" in looked
    assert "done (succeeded)" in adopted
    assert {f"{lost}.jsonl", lost} <= set(looked.split())
    assert lost not in adopted
    assert len(set(re.findall(r"\bop_[0-9a-z]+", adopted))) == 2


def documents(text: str) -> list[dict[str, Any]]:
    """JSON documents that stand one behind the other."""
    found: list[dict[str, Any]] = []
    while text := text.lstrip():
        one, end = json.JSONDecoder().raw_decode(text)
        found, text = [*found, one], text[end:]
    return found


#: systemd's part of the unit's restore, played: the daemon of this shell stops and starts.
SYSTEMCTL = """
systemctl() {
  case $1 in
    stop) kill $(cat @TRY@/daemon.pid); while kill -0 $(cat @TRY@/daemon.pid) 2>/dev/null; do sleep 0.1; done ;;
    start) reconciled serve & echo $! > @TRY@/daemon.pid ;;
  esac
}
"""


def test_the_readmes_loop_and_its_other_calls_go_as_they_say(folder: Path) -> None:
    """Against the daemon of "Try it by hand", whose provider is called `openai` here, as it is in these blocks."""
    place, root = folder / "try", folder / "root"
    root.mkdir()
    setting, serving, *_ = blocks("try")
    local = f"export RECONCILED_CONFIG={place}/local.toml\n"
    (check,) = (block.replace("/etc/reconciled/reconciled.toml", "$RECONCILED_CONFIG") for block in blocks("check"))
    (restore,) = blocks("restore")
    for written, own in (
        ("/var/lib/reconciled", place / "state"),
        ("/opt/reconciled", folder / ".venv"),
        ("/root", root),
    ):
        restore = restore.replace(written, str(own))
    steps = [
        blocks("path")[0] + setting.replace("standin]", "openai]").replace("standin.", "openai."),
        serving.replace("webhooks/standin", "webhooks/openai") + local,
        f"cp state/api-token {folder}/.reconciled-token\n" + blocks("loop")[0],
        blocks("loop")[1],
        *blocks("form"),
        *blocks("events"),
        check,
        SYSTEMCTL.replace("@TRY@", str(place)) + restore + f"cd {place}\n",
        "reconciled list\nreconciled items $(reconciled list --limit 1 | cut -d' ' -f1)\nkill $(jobs -p)\n",
    ]
    assert len(blocks("loop")) == 2

    script = joined(steps).replace('state_dir = "state"', f'state_dir = "{place}/state"')
    status, out, err = ran(script, folder)

    assert status == 0, err
    _, _, started, looped, form, events, checked, restored, listed = out.split("=== end\n")
    first = json.loads(started)
    assert (first["status"], first["done"]) == ("pending", False)
    assert "NOT complete" in first["message"]
    bodies = documents(looped)
    assert [body["operation_id"] for body in (bodies[0], bodies[-1])] == [first["operation_id"]] * 2
    assert (bodies[0]["state"], bodies[-1]["consumer"]) == ("succeeded", "mailer")
    assert [(item["item_id"], item["outcome"]) for item in bodies[1]["items"]] == [("q1", "succeeded")]
    assert bodies[2]["custom_id"] == "q1"
    second = json.loads(form)
    assert (second["status"], second["provider"]) == ("pending", "openai")
    assert re.findall(r"^event: (\w+)$", events, re.MULTILINE)[-1] == "operation"
    assert set(re.findall(r'"operation_id":"(\w+)"', events)) == {first["operation_id"]}
    assert checked.count("answered") == 1
    assert "is as it was written" in restored
    assert err.count('"restored_backup"') == 1
    assert {first["operation_id"], second["operation_id"]} == set(re.findall(r"\bop_[0-9a-z]+", listed))
    assert re.findall(r"^(q\d)  ", listed, re.MULTILINE) == ["q1", "q2"], "the form's items, from its file"


def test_the_readmes_stand_in_listens_as_it_says(folder: Path) -> None:
    (block,) = blocks("simulate")
    script = on_own_ports(f"{blocks('path')[0]}{block}")
    port = re.findall(r"127\.0\.0\.1:(\d+)", script)[0]
    asking = ["curl", "-s", "-o", "/dev/null", "--retry", "100", "--retry-connrefused", "--retry-delay", "1"]
    with running(script, folder) as process:
        subprocess.run([*asking, "--max-time", str(PATIENCE), f"http://127.0.0.1:{port}/"], check=True)
        os.killpg(process.pid, signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE)
    assert out.count("\n") >= 17
    assert "lost-webhook" in out
