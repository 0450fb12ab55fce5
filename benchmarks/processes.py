"""Processes that are measured: started on a core of their own, watched by the kernel's own count, ended by their id."""

import os
import re
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: The core of what is measured, and the core of whatever loads it or stands in for a provider: the two never share one.
MEASURED: Final = 0
BESIDE: Final = 1 % (os.cpu_count() or 1)
_TICKS: Final = os.sysconf("SC_CLK_TCK")
#: Seconds that a process gets to listen, and to end.
PATIENCE: Final = 60


@dataclass(frozen=True, slots=True)
class Running:
    """A process that was started here."""

    process: subprocess.Popen[bytes]
    port: int

    @property
    def pid(self) -> int:
        """Its process id; no shell stands before it."""
        return self.process.pid

    def cpu(self) -> float:
        """Seconds that all its threads have been on a core, user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def written(self) -> int:
        """Bytes that it has written to files so far (proc(5), wchar; what goes to a socket by send(2) is not in it)."""
        told = Path(f"/proc/{self.pid}/io").read_text(encoding="ascii")
        found = re.search(r"^wchar: (\d+)", told, re.MULTILINE)
        return int(found[1]) if found else 0

    def memory(self, of: str = "VmRSS") -> float:
        """Resident memory in MiB; `VmHWM`: its peak so far."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        found = re.search(rf"^{of}:\s+(\d+)", status, re.MULTILINE)
        return int(found[1]) / 1024 if found else 0.0

    def forget_peak(self) -> None:
        """Let the peak begin anew (proc(5), clear_refs)."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5", encoding="ascii")


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


@contextmanager
def running(
    argv: Sequence[str], *, port: int, log: Path, core: int = MEASURED, env: Mapping[str, str] | None = None
) -> Iterator[Running]:
    """A process that listens on `port`, until the block ends. What it prints goes to `log`."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            ["taskset", "-c", str(core), *argv],
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            process_group=0,  # Ctrl-C is for the bench alone, which then ends them in order
        )
    one = Running(process, port)
    try:
        until(lambda: _listens(one, argv, log), what=f"{argv[0]} to listen on {port}")
        yield one
    finally:
        stop(process)


def _listens(one: Running, argv: Sequence[str], log: Path) -> bool:
    if one.process.poll() is not None:
        last = log.read_text(encoding="utf-8", errors="replace")[-800:]
        raise SystemExit(f"{shlex.join(argv)}: ended with {one.process.returncode}\n{last}")
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", one.port)) == 0


def stop(process: "subprocess.Popen[bytes]") -> None:
    """End a process that was started here, in peace if it will."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def until(is_so: Callable[[], bool], *, what: str, seconds: float = PATIENCE, every: float = 0.05) -> float:
    """Ask until it is so; the seconds it took. Raises: SystemExit, once the time is over."""
    began = time.monotonic()
    while not is_so():
        if time.monotonic() - began > seconds:
            raise SystemExit(f"gave up after {seconds} s: {what}")
        time.sleep(every)
    return time.monotonic() - began
