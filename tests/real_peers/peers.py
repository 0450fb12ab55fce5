"""Installs, starts, kills and stops the peers: `ogx`, a real server of batches, and the small model behind it.

Nothing here knows of `reconciled`. Each peer is a process of its own, listens on 127.0.0.1 only, keeps all it
writes in the directory it is given, and is ended by its process id.
"""

import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from tests.real_peers import chat_server

OGX: Final = "ogx==1.5.0"
#: All that ogx needs, by version and hash: what the run was made with, so that a later release of one changes nothing.
LOCK: Final = Path(__file__).with_name("ogx.lock")

#: How long a peer may take until it answers, seconds. ogx was seen to need 2 to 10 s; the rest is for a busy machine.
START_SECONDS: Final = 120.0
#: How long a process may take to end after SIGTERM before it is killed, seconds; arbitrary.
STOP_SECONDS: Final = 10.0
#: Installing is some 80 packages and 230 MB; seconds.
INSTALL_SECONDS: Final = 900.0


class PeerMissingError(Exception):
    """A peer cannot be had or does not start; the text says what is missing and what was tried."""


@dataclass
class Ogx:
    """An ogx that runs, and can be killed and started again on the same files and port."""

    base_url: str
    """As an OpenAI client takes it, with `/v1`."""
    model_url: str
    """The model behind it, with `/v1`."""
    model: str
    log: Path
    command: list[str]
    environment: Mapping[str, str]
    directory: Path
    process: "subprocess.Popen[bytes] | None" = None
    start_seconds: float = 0.0
    """How long its last start took: what a story may expect of the next one."""

    @property
    def patience(self) -> int:
        """Seconds between two reads, so that an outage that is some 10 s longer than a start costs fewer than five."""
        return max(5, 1 + math.ceil(self.start_seconds / 2))

    def start(self) -> None:
        """Starts it and returns once it answers. Raises: PeerMissingError."""
        began = time.monotonic()
        self.process = spawn(self.command, self.log, self.environment, self.directory)
        wait_until_answered(f"{self.base_url}/health", self.process, self.log)
        self.start_seconds = time.monotonic() - began

    def kill(self) -> None:
        """Ends it as a power cut would: nothing is told, nothing is put in order."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def calls(self, method: str, path: str) -> list[tuple[datetime, int]]:
        """Each such call that it logged, oldest first: when, and with which status it answered.

        The log is broken into lines of some width, within an entry too, so that white space tells nothing.
        """
        entries = re.split(r"^(?=[A-Z]+ +\d{4}-\d\d-\d\dT)", self.log.read_text(errors="replace"), flags=re.MULTILINE)
        call = re.compile(r"\w+ (\S+Z) .*\"" + re.escape(f"{method} {path} HTTP/") + r"\S+ (\d+)")
        found = [call.match(" ".join(entry.split())) for entry in entries]
        return [(datetime.fromisoformat(match[1]), int(match[2])) for match in found if match]


def find_python_3_12() -> Path:
    """The first Python 3.12 that really runs: a `python3.12` on PATH may be a shim that only says it is not installed.

    Raises: PeerMissingError, naming each candidate and what came of it.
    """
    tried: list[str] = []
    for candidate in _python_candidates():
        try:
            done = subprocess.run(
                [candidate, "-c", "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2], sys.executable)"],
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            tried.append(f"{candidate}: {error}")
            continue
        version, _, executable = done.stdout.strip().partition(" ")
        if done.returncode == 0 and version == "3.12" and executable:
            return Path(executable)
        tried.append(f"{candidate}: {_first_line(done.stderr) or done.stdout.strip() or f'exit {done.returncode}'}")
    raise PeerMissingError(
        f"{OGX} needs a Python 3.12 with venv and none was found. Name one in $REAL_PEERS_PYTHON. Tried:\n  "
        + ("\n  ".join(tried) or "nothing")
    )


def _python_candidates() -> Iterator[str]:
    named = os.environ.get("REAL_PEERS_PYTHON")
    if named:
        yield named
    if sys.version_info[:2] == (3, 12):
        yield sys.executable
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        found = Path(folder or ".") / "python3.12"
        if found.exists():
            yield str(found)
    roots = {Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser(), Path("~/.pyenv").expanduser()}
    for root in sorted(roots):
        for found in sorted(root.glob("versions/3.12*/bin/python"), reverse=True):
            yield str(found)


def ensure_ogx(directory: Path) -> Path:
    """The `ogx` command in a virtual environment at `directory`, installed there if it is not yet.

    Raises: PeerMissingError.
    """
    command = directory / "bin" / "ogx"
    finished = directory / "installed.lock"  # written last: an installation that was cut short is begun again
    if command.exists() and finished.exists() and finished.read_bytes() == LOCK.read_bytes():
        return command
    python = find_python_3_12()
    directory.parent.mkdir(parents=True, exist_ok=True)
    _install([str(python), "-m", "venv", "--clear", str(directory)])
    pip = [str(directory / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-input"]
    _install([*pip, "--require-hashes", "--requirement", str(LOCK)])
    finished.write_bytes(LOCK.read_bytes())
    return command


def _install(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise PeerMissingError(f"{' '.join(command)} did not end within {INSTALL_SECONDS:.0f} s") from error
    if done.returncode != 0:
        raise PeerMissingError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr.strip()[-2000:]}")


@contextmanager
def running_ogx(command: Path, directory: Path) -> Iterator[Ogx]:
    """The model and ogx before it, both ready to answer; whatever of them runs then is ended on the way out.

    All that they write lies in `directory`. Raises: PeerMissingError.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with _running_model(directory) as model_url:
        port = free_port()
        config = directory / "ogx.json"  # JSON is YAML too, and needs no library to write
        config.write_text(json.dumps(_ogx_config(model_url, directory, port), indent=1))
        environment = {
            **os.environ,
            "HOME": str(directory),
            "OGX_CONFIG_DIR": str(directory / "config"),
            "OTEL_SDK_DISABLED": "true",
        }
        arguments = [str(command), "run", str(config), "--port", str(port), "--insecure"]
        log = directory / "ogx.log"
        base_url = f"http://127.0.0.1:{port}/v1"
        ogx = Ogx(base_url, model_url, f"openai/{chat_server.MODEL}", log, arguments, environment, directory)
        try:
            ogx.start()
            yield ogx
        finally:
            if ogx.process is not None:
                stop(ogx.process)


@contextmanager
def _running_model(directory: Path) -> Iterator[str]:
    log = directory / "model.log"
    with running([sys.executable, chat_server.__file__], log, dict(os.environ), directory) as process:
        deadline = time.monotonic() + START_SECONDS
        while not (said := log.read_text()).startswith("port ") or not said.endswith("\n"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise PeerMissingError(f"the model server did not start:\n{tail(log)}")
            time.sleep(0.05)
        yield f"http://127.0.0.1:{int(said.split()[1])}/v1"


#: Lines of one batch that run at once, few enough that a slow one keeps the rest waiting; and batches, enough that none
#: of a story's waits for another.
_PACE: Final = {"max_concurrent_requests_per_batch": 2, "max_concurrent_batches": 16}


def _ogx_config(model_url: str, directory: Path, port: int) -> dict[str, Any]:
    """The least that serves `/v1/files`, `/v1/batches` and `/v1/messages/batches`."""
    return {
        "version": 2,
        "distro_name": "real-peers",
        "apis": ["batches", "files", "inference", "messages"],
        "providers": {
            "inference": [
                {
                    "provider_id": "openai",
                    "provider_type": "remote::openai",
                    "config": {"base_url": model_url, "api_key": "not-a-secret"},
                }
            ],
            "files": [
                {
                    "provider_id": "localfs",
                    "provider_type": "inline::localfs",
                    "config": {
                        "storage_dir": str(directory / "files"),
                        "metadata_store": {"backend": "sql_default", "table_name": "files_metadata"},
                    },
                }
            ],
            "batches": [
                {
                    "provider_id": "reference",
                    "provider_type": "inline::reference",
                    "config": {
                        "sqlstore": {"backend": "sql_default", "table_name": "batches"},
                        **_PACE,
                    },
                }
            ],
            "messages": [
                {
                    "provider_id": "builtin",
                    "provider_type": "inline::builtin",
                    "config": {"kvstore": {"backend": "kv_default", "namespace": "message_batches"}, **_PACE},
                }
            ],
        },
        "storage": {
            "backends": {
                "kv_default": {"type": "kv_sqlite", "db_path": str(directory / "kvstore.db")},
                "sql_default": {"type": "sql_sqlite", "db_path": str(directory / "sql_store.db")},
            },
            "stores": {
                "metadata": {"namespace": "registry", "backend": "kv_default"},
                "inference": {"table_name": "inference_store", "backend": "sql_default"},
                "conversations": {"table_name": "openai_conversations", "backend": "sql_default"},
                "prompts": {"table_name": "prompts", "backend": "sql_default"},
                "connectors": {"table_name": "connectors", "backend": "sql_default"},
            },
        },
        "server": {"host": "127.0.0.1", "port": port},
    }


@contextmanager
def running(
    command: list[str], log: Path, environment: Mapping[str, str], directory: Path
) -> Iterator["subprocess.Popen[bytes]"]:
    """A process with its output in `log`; on the way out it gets SIGTERM, then SIGKILL, with all it started.

    Raises: PeerMissingError where it cannot be started at all.
    """
    process = spawn(command, log, environment, directory)
    try:
        yield process
    finally:
        stop(process)


def spawn(command: list[str], log: Path, environment: Mapping[str, str], directory: Path) -> "subprocess.Popen[bytes]":
    """A process whose output is added to `log`; whoever calls this ends it. Raises: PeerMissingError."""
    with log.open("ab") as output:
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=directory,
                start_new_session=True,  # a group of its own: ending it ends what it started, and nothing else
            )
        except OSError as error:
            raise PeerMissingError(f"{command[0]} does not start: {error}") from error


def stop(process: "subprocess.Popen[bytes]") -> int:
    """Ends a process that `running` started and tells its exit code; negative: the signal."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def wait_until_answered(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Returns once `url` answers 200.

    Raises: PeerMissingError with the end of the log, where the process ends first or is too slow.
    """
    deadline = time.monotonic() + START_SECONDS
    last = "no answer yet"
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise PeerMissingError(
                f"{process.args!r} ended with {process.returncode} before {url} answered:\n{tail(log)}"
            )
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
                last = f"status {answer.status}"
        except OSError as error:
            last = str(error)
        time.sleep(0.1)
    raise PeerMissingError(f"{url} did not answer 200 within {START_SECONDS:.0f} s ({last}):\n{tail(log)}")


def free_port() -> int:
    """A port on 127.0.0.1 that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def tail(log: Path, lines: int = 30) -> str:
    """The end of a log, for an error message."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""
