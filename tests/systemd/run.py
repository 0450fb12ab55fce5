"""Boots a minimal Debian in a container and puts the unit through its life there, under the real systemd.

    make systemd        (or: python -m tests.systemd.run [--root DIR])

It makes a root with `mmdebstrap`, copies this checkout (what git knows of it, as it stands) and the wheels of
`requirements.lock` into it, boots it with `systemd-nspawn`, and lets `tests/systemd/inside.py` run the README's five
commands and all that follows. Needs root, those two tools, and what they and pip download from. Exit 0 only if every
story passed; what cannot run is said, and counts as failed: a story that was not told proves nothing.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

CHECKOUT: Final = Path(__file__).parents[2]
SUITE: Final = "bookworm"
PACKAGES: Final = "systemd,systemd-sysv,dbus,python3,python3-venv"
#: Seconds that the stories may take in all; they took three minutes on two cores.
PATIENCE: Final = 900
#: What pip needs to build the package, beside the lock; its version is the build's own affair.
BUILD: Final = ("hatchling>=1.26",)
DRIVER: Final = """\
[Unit]
Description=the stories of the unit
After=multi-user.target dbus.service

[Service]
Type=oneshot
WorkingDirectory=/root/checkout
Environment=PIP_NO_INDEX=1 PIP_FIND_LINKS=/root/wheels PYTHONUNBUFFERED=1 HOME=/root
ExecStart=/usr/bin/python3 -m tests.systemd.inside
StandardOutput=file:/root/told
StandardError=file:/root/told
ExecStopPost=/usr/bin/systemctl poweroff --no-block

[Install]
WantedBy=multi-user.target
"""
#: What an earlier run in the same root left of the unit.
LEFT: Final = (
    "opt/reconciled",
    "etc/reconciled",
    "etc/systemd/system/reconciled.service.d",
    "var/lib/private/reconciled",
    "var/log/journal",
)
PASSED: Final = "every story passed"


def obstacle() -> str | None:
    """Why this machine cannot run it; None: it can."""
    if os.geteuid() != 0:
        return "it needs root, for mmdebstrap and systemd-nspawn"
    missing = [tool for tool in ("mmdebstrap", "systemd-nspawn", "git") if shutil.which(tool) is None]
    return f"not installed: {', '.join(missing)} (Debian: mmdebstrap, systemd-container, git)" if missing else None


def make(root: Path) -> None:
    """A root with the checkout, the wheels and the driver in it."""
    say("making the root")
    call(["mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(root)])
    refresh(root)
    say("fetching the wheels")
    wheels = root / "root" / "wheels"
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(wheels), "--only-binary=:all:"]
    # For the Python of the suite, whichever runs here.
    fetch += ["--python-version", "3.11"]
    call([*fetch, "--require-hashes", "-r", str(CHECKOUT / "requirements.lock")])
    call([*fetch, *BUILD])


def refresh(root: Path) -> None:
    """Put the checkout, as it stands, and the driver into the root."""
    checkout = root / "root" / "checkout"
    for left in ("root/checkout", *LEFT):
        shutil.rmtree(root / left, ignore_errors=True)
    for link in (root / "etc/systemd/system").rglob("reconciled.service"):
        link.unlink()
    listed = subprocess.run(
        ["git", "-C", str(CHECKOUT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        source, target = CHECKOUT / name, checkout / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    (root / "etc" / "systemd" / "system" / "driver.service").write_text(DRIVER, encoding="utf-8")
    wanted = root / "etc" / "systemd" / "system" / "multi-user.target.wants"
    wanted.mkdir(exist_ok=True)
    link = wanted / "driver.service"
    link.unlink(missing_ok=True)
    link.symlink_to("../driver.service")
    (root / "root" / "told").unlink(missing_ok=True)


def boot(root: Path) -> bool:
    """Boot it until its driver powers it off; whether every story passed."""
    say("booting")
    machine = subprocess.Popen(
        [
            *("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--console=pipe", "--private-network"),
            *("--machine", "reconciled-stories", "--directory", str(root), "--boot"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )
    try:
        machine.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        say(f"not over after {PATIENCE} s")
    finally:
        if machine.poll() is None:
            machine.terminate()
            machine.wait(60)
    told = root / "root" / "told"
    text = told.read_text(encoding="utf-8") if told.exists() else "it did not come to its first word\n"
    print(text, end="", flush=True)
    return text.endswith(PASSED + "\n")


def call(command: Sequence[str]) -> None:
    """Run it, and say what it said where it fails. Raises: SystemExit."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed:\n{done.stdout}{done.stderr}")


def say(words: str) -> None:
    """One line, at once."""
    print(f"# {words}", flush=True)


def main() -> int:
    """Build, boot, tell."""
    parser = argparse.ArgumentParser(description="The unit in a booted container.")
    parser.add_argument("--root", type=Path, help="where the root is made, or was made before; kept then")
    arguments = parser.parse_args()
    if (why := obstacle()) is not None:
        print(f"cannot run here: {why}", file=sys.stderr)
        return 1
    if arguments.root is not None:
        if (arguments.root / "root" / "wheels").exists():
            refresh(arguments.root)
        else:
            make(arguments.root)
        return 0 if boot(arguments.root) else 1
    folder = Path(tempfile.mkdtemp(prefix="reconciled-systemd-"))
    folder.chmod(0o755)  # the container's root directory: its own users must be able to enter it
    try:
        make(folder / "root")
        return 0 if boot(folder / "root") else 1
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
