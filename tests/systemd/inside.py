"""The unit's life in a booted machine: installed as the README says, hung, killed, stopped, misconfigured, probed.

Runs in the container that `run.py` boots, as root, with Debian's own Python and nothing but its library. Each story
says what it saw; the last line says whether every one passed.
"""

import http.client
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

UNIT: Final = "reconciled"
API, HOOKS, PROVIDER = 8787, 8786, 8790
CONFIG: Final = Path("/etc/reconciled/reconciled.toml")
DROPINS: Final = Path("/etc/systemd/system/reconciled.service.d")
SECRETS: Final = {"openai-key": "sk-" + secrets.token_hex(16), "openai-webhook": "whsec_" + secrets.token_hex(16)}
PROVIDERS: Final = f"""
[providers.standin]
kind = "openai_batch"
base_url = "http://127.0.0.1:{PROVIDER}/v1"
api_key = {{ credential = "openai-key" }}
webhook_secrets = [ {{ credential = "openai-webhook" }} ]
[providers.standin.poll]
base = "1s"
cap = "2s"
sweep = "2s"
[providers.standin.limits]
requests_per_second = 500
concurrency = 8
"""
START: Final = {
    "provider": "standin",
    "request": {"endpoint": "/v1/responses"},
    "items": [{"custom_id": "a", "method": "POST", "url": "/v1/responses", "body": {"model": "m", "input": "i"}}],
}

NEVER_ENDS: Final = {"endpoint": "/v1/responses", "metadata": {"standin_scenario": "never-ends"}}


# ---- the machine -------------------------------------------------------------------------------------------------


def run(*command: str, check: bool = True) -> str:
    """What it says. Raises: AssertionError, where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def show(name: str) -> str:
    """One property of the unit, as systemd has it."""
    return run("systemctl", "show", "--property", name, "--value", UNIT).strip()


def main_pid() -> int:
    return int(show("MainPID"))


def until(what: str, claim: Callable[[], Any], seconds: float = 30) -> Any:
    """The first true answer. Raises: AssertionError."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answer := claim():
            return answer
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what}\n{journal()[-3000:]}")


def is_active() -> bool:
    return show("ActiveState") == "active" and show("SubState") == "running"


def journal() -> str:
    return run("journalctl", "--unit", UNIT, "--output=cat", "--no-pager")


def drop_in(name: str, text: str) -> None:
    """What `systemctl edit` writes."""
    DROPINS.mkdir(exist_ok=True)
    (DROPINS / f"{name}.conf").write_text(text, encoding="utf-8")
    run("systemctl", "daemon-reload")


def call(method: str, path: str, body: Any = None, *, port: int = API, key: str = "") -> tuple[int, Any]:
    """One request. Raises: OSError, http.client.HTTPException."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    token = Path("/var/lib/reconciled/api-token").read_text(encoding="ascii").strip()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    if key:
        headers["Idempotency-Key"] = key
    try:
        connection.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    return answer.status, json.loads(text) if text[:1] in (b"{", b"[") else text.decode()


class Load:
    """Starts operations as fast as it can, from several threads; a lost answer is asked for again by its key."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, str] = {}
        self.unanswered = 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._go, args=(n,)) for n in range(4)]

    def _go(self, thread: int) -> None:
        number = 0
        while not self._stop.is_set():
            key = f"{id(self)}-{thread}-{number}"
            try:
                status, body = call("POST", "/v1/operations", START, key=key)
            except (OSError, http.client.HTTPException):
                self.unanswered += 1
                time.sleep(0.02)
                continue
            if status in (200, 202):
                self.acknowledged[key] = body["operation_id"]
                number += 1

    @contextmanager
    def running(self) -> Any:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join()

    def check(self) -> str:
        """Whatever was acknowledged is there, once. Raises: AssertionError."""
        missing = [i for i in self.acknowledged.values() if call("GET", f"/v1/operations/{i}")[0] != 200]
        assert missing == [], f"{len(missing)} of {len(self.acknowledged)} are missing"
        assert len(set(self.acknowledged.values())) == len(self.acknowledged)
        return f"{len(self.acknowledged)} acknowledged and there, {self.unanswered} requests unanswered"


# ---- the stories -------------------------------------------------------------------------------------------------


def the_readmes_five_commands_end_in_a_running_unit() -> str:
    readme = Path("README.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- unit: [^\n]*-->\n```sh\n(.*?)```", readme, re.DOTALL)
    assert block is not None
    commands = block[1].splitlines()
    assert len(commands) == 5, commands
    for command in commands:
        run("sh", "-ec", command)
    assert is_active(), run("systemctl", "status", UNIT, check=False)
    for name, expected in {"Type": "notify", "NRestarts": "0", "WatchdogUSec": "30s"}.items():
        assert show(name) == expected, (name, show(name))
    told = run("systemctl", "status", "--no-pager", UNIT)
    assert 'Status: "Serving: the local API at http://127.0.0.1:8787' in told, told
    for event in ("ready", "no_providers"):
        assert f'"event": "{event}"' in journal(), journal()
    assert call("GET", "/readyz")[0] == 200
    status = run("/opt/reconciled/bin/reconciled", "status")
    return f"running; `reconciled status` says: {status.splitlines()[0]}"


def a_started_unit_answers_at_once_on_both_listeners() -> str:
    """Type=notify: `systemctl restart` comes back once READY=1 was said, and that is after both were up."""
    for _ in range(5):
        run("systemctl", "restart", UNIT)
        for port in (API, HOOKS):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
    return "five restarts"


def credentials_are_read_and_stand_in_no_environment_and_no_command_line() -> str:
    folder = CONFIG.parent / "credentials"
    folder.mkdir(mode=0o700, exist_ok=True)
    for name, secret in SECRETS.items():
        (folder / name).write_text(secret, encoding="utf-8")
        (folder / name).chmod(0o600)
    CONFIG.write_text(CONFIG.read_text(encoding="utf-8") + PROVIDERS, encoding="utf-8")
    lines = [f"LoadCredential={name}:{folder / name}" for name in SECRETS]
    drop_in("credentials", "\n".join(["[Service]", *lines, ""]))
    run("systemctl", "restart", UNIT)
    status, body = call("POST", "/v1/operations", START, key="first")
    assert status == 202, body
    first = f"/v1/operations/{body['operation_id']}?wait=20"
    body = until("the first operation ends", lambda: (b := call("GET", first)[1])["done"] and b)
    assert body["outcome"] == "succeeded", body
    for name in ("environ", "cmdline"):
        told = Path(f"/proc/{main_pid()}/{name}").read_bytes().decode()
        assert [secret for secret in SECRETS.values() if secret in told] == [], name
    assert [secret for secret in SECRETS.values() if secret in journal()] == []
    return "an operation went to its end with them"


def what_a_daemon_that_was_taken_over_would_try_is_refused() -> str:
    """S47: in the very sandbox, since the unit differs in nothing but its command."""
    source = Path("/opt/reconciled/share/reconciled/systemd/reconciled.service").read_text(encoding="utf-8")
    Path("/opt/probes.py").write_bytes(Path("tests/systemd/probes.py").read_bytes())
    probe = re.sub(r"(?m)^ExecStart=.*$", "ExecStart=/opt/reconciled/bin/python /opt/probes.py", source)
    probe = re.sub(r"(?m)^(Type=).*$", r"\1oneshot", probe).replace("WatchdogSec=30", "")
    probe = re.sub(r"(?m)^(Restart|RestartSec)=.*$", "", probe)
    Path("/etc/systemd/system/probe.service").write_text(probe, encoding="utf-8")
    run("systemctl", "daemon-reload")
    run("systemctl", "stop", UNIT)
    try:
        run("systemctl", "start", "probe")
        told = run("journalctl", "--unit", "probe", "--output=cat", "--no-pager")
    finally:
        run("systemctl", "start", UNIT)
    came = json.loads(next(line for line in told.splitlines() if line.startswith("{")))
    may = {
        "write where its state is",
        "write where its socket goes",
        "call an address of the network",
        "start a process",
    }
    wrong = {name: what for name, what in came.items() if what.startswith("allowed") != (name in may)}
    assert wrong == {}, wrong
    return "; ".join(f"{name}: {what}" for name, what in came.items() if name not in may)


def a_hung_daemon_is_ended_by_the_watchdog_and_started_again() -> str:
    """Stopped by a signal, so that its loop does not turn; with 4 s instead of 30, to be told sooner."""
    drop_in("watchdog", "[Service]\nWatchdogSec=4\n")
    run("systemctl", "restart", UNIT)
    before, restarts = main_pid(), int(show("NRestarts"))
    time.sleep(9)
    assert (main_pid(), int(show("NRestarts"))) == (before, restarts), "two watchdog times passed and it was well"
    os.kill(before, signal.SIGSTOP)
    began = time.monotonic()
    until("another process serves", lambda: main_pid() not in (0, before) and is_active(), 60)
    took = time.monotonic() - began
    assert int(show("NRestarts")) == restarts + 1
    told = run("journalctl", "--unit", UNIT, "--no-pager")
    assert "Watchdog timeout" in told
    assert "Fatal Python error: Aborted" in told, "the journal tells where it hung"
    (DROPINS / "watchdog.conf").unlink()
    run("systemctl", "daemon-reload")
    run("systemctl", "restart", UNIT)
    return f"started again {took:.1f} s after it hung, of a watchdog of 4 s"


def killed_under_load_nothing_that_was_acknowledged_is_missing() -> str:
    load = Load()
    with load.running():
        for _ in range(8):
            enough = len(load.acknowledged) + 20
            until("some are acknowledged", lambda: len(load.acknowledged) >= enough)  # noqa: B023
            before = main_pid()
            os.kill(before, signal.SIGKILL)
            until("it is back", lambda: main_pid() not in (0, before) and is_active())  # noqa: B023
    return f"8 kills: {load.check()}"


def restarted_under_load_nothing_is_missing_and_every_stop_is_clean() -> str:
    load, failed = Load(), int(show("NRestarts"))
    with load.running():
        for _ in range(12):
            enough = len(load.acknowledged) + 10
            until("some are acknowledged", lambda: len(load.acknowledged) >= enough)  # noqa: B023
            run("systemctl", "restart", UNIT)
    assert int(show("NRestarts")) in (0, failed), "none of these was a failure"
    return f"12 restarts: {load.check()}"


def what_was_killed_and_restarted_has_made_no_job_twice() -> str:
    """The provider's own list against our record.

    A create whose mark was written and which a kill then stopped may never have been sent: it stays unknown, since not
    being found proves nothing, and has no job.
    """

    def settled() -> Any:
        states = call("GET", "/v1/status")[1]["operations"]
        jobs = _jobs_at_the_provider()
        is_over = "create_pending" not in states and len(jobs) == sum(states.values()) - states.get("create_unknown", 0)
        return is_over and (jobs, states)

    jobs, states = until("each job at the provider is an operation's", settled, 120)
    makers = [job["metadata"]["reconciled_operation"] for job in jobs]
    assert len(set(makers)) == len(makers), "two jobs were made for one operation"
    return f"{len(jobs)} jobs at the provider, each of an operation of its own: {states}"


def _jobs_at_the_provider() -> list[Any]:
    jobs: list[Any] = []
    while True:
        after = f"&after={jobs[-1]['id']}" if jobs else ""
        page = call("GET", f"/v1/batches?limit=100{after}", port=PROVIDER)[1]
        jobs += page["data"]
        if not page["has_more"]:
            return jobs


def ten_kills_within_ten_seconds_and_it_comes_back() -> str:
    """S46b: systemd's own limit would have stopped at the fifth."""
    began, kills = time.monotonic(), 0
    while kills < 10:
        before = until("there is a process", main_pid)
        os.kill(before, signal.SIGKILL)
        kills += 1
        until("another one", lambda: main_pid() not in (0, before), 10)  # noqa: B023
    took = time.monotonic() - began
    assert took < 10, f"they took {took:.1f} s"
    until("it serves", lambda: is_active() and call("GET", "/readyz")[0] == 200)
    return f"ten kills in {took:.1f} s"


def a_stop_with_waits_held_exits_0_in_time() -> str:
    _, body = call("POST", "/v1/operations", {**START, "request": NEVER_ENDS})
    path = f"/v1/operations/{body['operation_id']}?wait=600"
    token = Path("/var/lib/reconciled/api-token").read_text(encoding="ascii").strip()
    asked = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{API}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    held = [socket.create_connection(("127.0.0.1", API)) for _ in range(300)]
    for connection in held:
        connection.sendall(asked)
    time.sleep(0.5)
    began = time.monotonic()
    run("systemctl", "stop", UNIT)
    took = time.monotonic() - began
    for connection in held:
        connection.close()
    assert (show("ExecMainStatus"), show("Result")) == ("0", "success"), (show("ExecMainStatus"), show("Result"))
    assert took < 15, took
    run("systemctl", "start", UNIT)
    return f"exit 0 after {took:.1f} s with 300 waits held"


def a_bad_configuration_ends_with_78_and_is_not_tried_again() -> str:
    good = CONFIG.read_text(encoding="utf-8")
    CONFIG.write_text(good + "\n[apy]\n", encoding="utf-8")
    run("systemctl", "restart", UNIT, check=False)
    restarts = show("NRestarts")
    time.sleep(3)
    assert (show("ActiveState"), show("ExecMainStatus"), show("NRestarts")) == ("failed", "78", restarts)
    assert "apy: found an unknown key" in journal()
    CONFIG.write_text(good, encoding="utf-8")
    run("systemctl", "start", UNIT)
    return "failed with one sentence, and stays so until it is put right"


STORIES: Final[tuple[Callable[[], str], ...]] = (
    the_readmes_five_commands_end_in_a_running_unit,
    a_started_unit_answers_at_once_on_both_listeners,
    credentials_are_read_and_stand_in_no_environment_and_no_command_line,
    what_a_daemon_that_was_taken_over_would_try_is_refused,
    a_hung_daemon_is_ended_by_the_watchdog_and_started_again,
    killed_under_load_nothing_that_was_acknowledged_is_missing,
    restarted_under_load_nothing_is_missing_and_every_stop_is_clean,
    what_was_killed_and_restarted_has_made_no_job_twice,
    ten_kills_within_ten_seconds_and_it_comes_back,
    a_stop_with_waits_held_exits_0_in_time,
    a_bad_configuration_ends_with_78_and_is_not_tried_again,
)


def main() -> int:
    """Tell all of them; one that fails keeps no other from being told."""
    provider: subprocess.Popen[bytes] | None = None
    passed = 0
    for story in STORIES:
        began = time.monotonic()
        try:
            came = story()
        except Exception:  # noqa: BLE001 - a story's fault, whatever it is, is told
            came = "FAILED\n" + traceback.format_exc()
        else:
            passed += 1
        print(f"{story.__name__.replace('_', ' ')} ({time.monotonic() - began:.1f} s): {came}", flush=True)
        if provider is None:
            provider = subprocess.Popen(
                ["/opt/reconciled/bin/reconciled", "simulate", "--listen", f"127.0.0.1:{PROVIDER}", "--speed", "10"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
    if provider is not None:
        provider.terminate()
    print("every story passed" if passed == len(STORIES) else f"{passed} of {len(STORIES)} stories passed", flush=True)
    return 0 if passed == len(STORIES) else 1


if __name__ == "__main__":
    sys.exit(main())
