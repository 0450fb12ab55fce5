"""Tries what a daemon that was taken over would try; run in the unit's own sandbox, with nothing but the library.

One line of JSON: each attempt, and what came of it. `inside.py` knows what must.
"""

import ctypes
import json
import mmap
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any


def tried(attempt: Callable[[], Any]) -> str:
    """The name of the error, or `allowed: ` and what was got."""
    try:
        return f"allowed: {attempt()}"
    except OSError as fault:
        return str(fault.strerror)


def others() -> list[str]:
    """Processes of other users that can be looked at."""
    mine = str(os.getuid())
    seen = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            status = (folder / "status").read_text(encoding="utf-8")
            if status.split("Uid:")[1].split()[0] != mine:
                seen.append(folder.name)
    if seen:
        return seen
    raise PermissionError(1, "Operation not permitted")


def become_root() -> None:
    """Set the user id, which needs a capability."""
    os.setuid(0)


def _make_setuid(path: Path) -> None:
    path.touch()
    path.chmod(0o4755)


def main() -> None:
    """Try everything."""
    inet, raw, netlink, packet = socket.AF_INET, socket.SOCK_RAW, socket.AF_NETLINK, socket.AF_PACKET
    state = Path(os.environ["STATE_DIRECTORY"])
    attempts: dict[str, Callable[[], Any]] = {
        "write /etc": lambda: Path("/etc/reconciled/planted").write_text("x", encoding="utf-8"),
        "write /usr": lambda: Path("/usr/bin/planted").write_text("x", encoding="utf-8"),
        "write its own code": lambda: Path("/opt/reconciled/planted").write_text("x", encoding="utf-8"),
        "read /root": lambda: list(Path("/root").iterdir()),
        "read the credentials' source": lambda: list(Path("/etc/reconciled/credentials").iterdir()),
        "see other processes": others,
        "see the kernel's": lambda: Path("/proc/kallsyms").read_text(encoding="utf-8")[:9],
        "raw socket": lambda: socket.socket(inet, raw, socket.IPPROTO_ICMP),
        "netlink socket": lambda: socket.socket(netlink, raw, 0),
        "packet socket": lambda: socket.socket(packet, raw, 0),
        "memory that is written and run": lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_WRITE | mmap.PROT_EXEC),
        "be root": become_root,
        "mount": lambda: _call("mount", b"none", b"/tmp", b"tmpfs", 0, None),
        "a namespace of its own": lambda: _call("unshare", 0x10000000),
        "a file that runs as another": lambda: _make_setuid(state / "probe"),
        "load a module": lambda: _call("syscall", 175, None, 0, b""),
        "set the clock": lambda: _call("clock_settime", 0, b"\0" * 16),
        "write where its state is": lambda: (state / "probe").write_text("x", encoding="utf-8"),
        "write where its socket goes": lambda: Path("/run/reconciled/probe").write_text("x", encoding="utf-8"),
        "call an address of the network": lambda: socket.socket(inet, socket.SOCK_STREAM).close(),
        "start a process": lambda: subprocess.run(["/bin/true"], check=False).returncode,
    }
    print(json.dumps({name: tried(attempt) for name, attempt in attempts.items()}), flush=True)


def _call(name: str, *arguments: Any) -> int:
    """A function of libc. Raises: OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    answer: int = getattr(libc, name)(*arguments)
    if answer != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer


if __name__ == "__main__":
    main()
