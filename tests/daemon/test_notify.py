"""Words to systemd: datagrams to the socket that it names, silence where it names none."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from daemon.notify import Notifier


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """systemd's end."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(path)
        sock.settimeout(2)
        yield sock, path


def test_each_word_is_one_datagram(listener: tuple[socket.socket, str]) -> None:
    sock, path = listener
    notifier = Notifier({"NOTIFY_SOCKET": path})
    for words in ("READY=1", "STOPPING=1"):
        notifier.send(words)
    assert [sock.recv(100), sock.recv(100)] == [b"READY=1", b"STOPPING=1"]


def test_an_abstract_socket_is_known_by_its_at_sign() -> None:
    name = "reconciled-test-notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0{name}")
        sock.settimeout(2)
        Notifier({"NOTIFY_SOCKET": f"@{name}"}).send("READY=1")
        assert sock.recv(100) == b"READY=1"


def test_the_environment_is_the_process_own_unless_given(
    listener: tuple[socket.socket, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sock, path = listener
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    Notifier().send("READY=1")
    assert sock.recv(100) == b"READY=1"


def test_a_word_that_is_said_once_waits_for_a_place_and_one_that_is_said_again_does_not(
    listener: tuple[socket.socket, str],
) -> None:
    """The kernel keeps ten datagrams for a manager that is busy."""
    sock, path = listener
    notifier = Notifier({"NOTIFY_SOCKET": path})
    for _ in range(30):
        notifier.send("WATCHDOG=1")
    assert notifier.is_heard
    reading = threading.Timer(0.2, sock.recv, (100,))
    reading.start()
    notifier.send("STOPPING=1", waits=True)
    reading.join()
    sock.setblocking(False)
    said = []
    with suppress(BlockingIOError):
        while True:
            said.append(sock.recv(100))
    assert said[-1] == b"STOPPING=1"
    assert len(said) < 30


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}])
def test_where_nobody_listens_nothing_is_said(environ: dict[str, str]) -> None:
    Notifier(environ).send("READY=1")


@pytest.mark.parametrize("path", ["/nowhere/at/all", "relative", "@nobody-listens-here", "/" + "x" * 200])
def test_a_socket_that_is_gone_is_no_error_of_ours(path: str) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": path})
    notifier.send("READY=1")
    notifier.send("STOPPING=1")
