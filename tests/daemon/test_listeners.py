"""Where the daemon listens: a Unix socket, the network when it was asked for, TLS for webhooks."""

import asyncio
import errno
import os
import pty
import socket
import ssl
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from daemon import listeners, local_api, unix_socket
from daemon.addresses import Listener
from daemon.cli import exits, main
from daemon.config import parse, warnings_of
from daemon.local_api import Place, connect
from handlers.access import SOCKET_HOSTS, own_hosts
from reconcile.errors import ConfigError
from tests.daemon.certificates import make_pair
from tests.daemon.test_serve import ENVIRON, document, serving
from tests.handlers.ground import event, signed


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory with a short name, as a socket's path must be."""
    with tempfile.TemporaryDirectory(prefix="rec-") as name:
        Path(name).chmod(0o750)
        yield Path(name)


async def over(
    path: Path, *, host: str = "localhost", method: str = "GET", target: str = "/v1/status", **headers: str
) -> int:
    """The status of one request that is written by hand onto a Unix socket."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    answer = await reader.read()
    writer.close()
    return int(answer.split()[1])


def listed(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def let_in(folder: Path, mode: int) -> None:
    folder.chmod(mode)


def api_at(path: Path) -> dict[str, Any]:
    return {"api": {"listen": f"unix:{path}"}}


# ---- a Unix socket -----------------------------------------------------------------------------------------------


async def test_s26_the_socket_is_its_owners_and_its_groups_and_goes_with_the_daemon(
    tmp_path: Path, folder: Path
) -> None:
    path = folder / "api.sock"
    async with serving(tmp_path / "state", **api_at(path)) as served:
        assert stat.S_ISSOCK(path.lstat().st_mode)
        assert stat.S_IMODE(path.lstat().st_mode) == 0o660
        assert served.api == f"unix:{path}"
        assert [e["api"] for e in served.capture.entries if e["event"] == "ready"] == [f"unix:{path}"]
        async with connect(Place("http://localhost", served.token, socket=path)) as api:
            assert (await api.call("GET", "/v1/status"))["version"]
    assert listed(folder) == [folder / "api.sock.lock"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a directory to another group")
async def test_s26_a_directory_with_the_setgid_bit_hands_its_group_on(tmp_path: Path, folder: Path) -> None:
    os.chown(folder, -1, 12345)
    let_in(folder, 0o2750)
    async with serving(tmp_path / "state", **api_at(folder / "api.sock")):
        assert (folder / "api.sock").lstat().st_gid == 12345


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST", 200),
        ("evil.example", 421),
        ("localhost:80", 421),
        ("127.0.0.1", 421),
        ("", 421),
    ],
)
async def test_s21_the_socket_answers_for_localhost_alone(tmp_path: Path, folder: Path, host: str, status: int) -> None:
    path = folder / "api.sock"
    async with serving(tmp_path / "state", **api_at(path)) as served:
        assert await over(path, host=host, Authorization=f"Bearer {served.token}") == status


async def test_s20_s22_the_socket_asks_for_the_token_and_lets_no_page_in(tmp_path: Path, folder: Path) -> None:
    path = folder / "api.sock"
    async with serving(tmp_path / "state", **api_at(path)) as served:
        held = {"Authorization": f"Bearer {served.token}"}
        assert await over(path) == 401
        assert await over(path, Authorization="Bearer wrong") == 401
        assert await over(path, target="/healthz") == 200
        # In the order of every listener: the Host, the page, the token.
        assert await over(path, host="evil.example", Origin="http://evil.example") == 421
        assert await over(path, Origin="http://evil.example") == 403
        assert await over(path, Origin="null", **held) == 403
        assert await over(path, Sec_Fetch_Site="cross-site", **held) == 403


async def test_the_socket_of_a_dead_daemon_is_replaced(tmp_path: Path, folder: Path) -> None:
    path = folder / "api.sock"
    with closing(socket.socket(socket.AF_UNIX)) as dead:
        dead.bind(str(path))
    assert path.is_socket()
    async with serving(tmp_path / "state", **api_at(path)) as served:
        assert await over(path, Authorization=f"Bearer {served.token}") == 200


@pytest.mark.parametrize("room", [1, 0])
async def test_a_socket_that_somebody_answers_at_is_left_alone(tmp_path: Path, folder: Path, room: int) -> None:
    """Also one whose queue is full: it is busy, not dead."""
    path = folder / "api.sock"
    with closing(socket.socket(socket.AF_UNIX)) as living, closing(socket.socket(socket.AF_UNIX)) as waiting:
        living.bind(str(path))
        living.listen(room)
        waiting.connect(str(path))
        before = path.lstat()
        with pytest.raises(OSError, match=f"cannot listen on unix:{path}: another daemon answers there") as told:
            async with serving(tmp_path / "state", **api_at(path)):
                pass
        assert told.value.errno == errno.EADDRINUSE
        assert os.path.samestat(path.lstat(), before)


def test_a_socket_answers_from_the_moment_it_is_there(folder: Path) -> None:
    """A daemon that is still recovering must not be taken for a dead one by the next."""
    path = folder / "api.sock"
    with unix_socket.taken(path):
        assert unix_socket.is_alive(path)
        with pytest.raises(OSError, match="another daemon"), unix_socket.taken(path):
            pass
        assert unix_socket.is_alive(path)
    assert not unix_socket.is_alive(path)


def test_of_two_that_find_a_dead_socket_one_alone_takes_its_place(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both look before either takes: the second must not remove what the first has put there."""
    path, original, seconds = folder / "api.sock", unix_socket.is_alive, list[str]()
    with closing(socket.socket(socket.AF_UNIX)) as dead:
        dead.bind(str(path))

    def looked_at_by_another(there: Path) -> bool:
        alive = original(there)
        monkeypatch.setattr(unix_socket, "is_alive", original)
        with pytest.raises(OSError, match="another daemon") as told, unix_socket.taken(path):
            pass
        seconds.append(str(told.value))
        return alive

    monkeypatch.setattr(unix_socket, "is_alive", looked_at_by_another)
    with unix_socket.taken(path):
        assert seconds
        assert unix_socket.is_alive(path)
    with unix_socket.taken(path):  # what the lock leaves behind keeps nobody out
        assert unix_socket.is_alive(path)


def test_a_socket_that_another_one_put_there_meanwhile_stays(folder: Path) -> None:
    path = folder / "api.sock"
    with closing(socket.socket(socket.AF_UNIX)) as other:
        with unix_socket.taken(path):
            path.unlink()
            other.bind(str(path))
        assert stat.S_ISSOCK(path.lstat().st_mode)


@pytest.mark.parametrize(
    "what", ["file", "folder", "symlink to a file", "symlink to a socket", "dangling symlink", "fifo"]
)
async def test_what_is_no_socket_is_never_removed(tmp_path: Path, folder: Path, what: str) -> None:
    path, target = folder / "api.sock", folder / "target"
    match what:
        case "file":
            path.write_text("precious")
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case _:
            path.symlink_to(target)
    if what == "symlink to a file":
        target.write_text("precious")
    if what == "symlink to a socket":
        with closing(socket.socket(socket.AF_UNIX)) as dead:
            dead.bind(str(target))
    before = (path.lstat(), listed(folder))
    with pytest.raises(ConfigError) as told:
        async with serving(tmp_path / "state", **api_at(path)):
            pass
    assert told.value.key_path == "api.listen"
    assert "no socket" in told.value.found
    assert (path.lstat(), listed(folder)) == before


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o1777])
async def test_a_directory_that_everybody_writes_to_is_refused(tmp_path: Path, folder: Path, mode: int) -> None:
    """S26: somebody else's socket there would be told every client's token."""
    let_in(folder, mode)
    with pytest.raises(ConfigError, match=r"api\.listen.*everybody can write"):
        async with serving(tmp_path / "state", **api_at(folder / "api.sock")):
            pass


async def test_a_directory_that_is_not_there_is_told(tmp_path: Path, folder: Path) -> None:
    (folder / "file").touch()
    for path in (folder / "nothing" / "api.sock", folder / "file" / "api.sock"):
        with pytest.raises(ConfigError, match=r"api\.listen.*a directory that is there"):
            async with serving(tmp_path / "state", **api_at(path)):
                pass


@pytest.mark.parametrize(
    "text",
    [
        "unix:",
        "unix:api.sock",
        "unix:./api.sock",
        "unix://host/x/",
        "unix:/a\x00b",
        "unix:/a\nb",
        "unix:/" + "x" * 107,
        "unix:/",
        "UNIX:/x",
    ],
)
def test_what_is_no_path_of_a_socket_is_told(text: str) -> None:
    with pytest.raises(ConfigError) as told:
        parse({"api": {"listen": text}}, {}, file="x.toml")
    assert told.value.key_path == "api.listen"


# ---- the commands on a socket --------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["--url", "environment", "configuration"])
async def test_the_commands_find_the_socket(
    tmp_path: Path, folder: Path, by: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "api.sock"
    async with serving(tmp_path / "state", **api_at(path)):
        token = str(tmp_path / "state" / "api-token")
        config = tmp_path / "reconciled.toml"
        config.write_text(f'state_dir = "{tmp_path / "state"}"\n[api]\nlisten = "unix:{path}"\n')
        arguments = {"--url": ["--url", f"unix:{path}", "--token-file", token], "environment": ["--token-file", token]}
        if by == "environment":
            monkeypatch.setenv("RECONCILED_URL", f"unix:{path}")
        assert await asyncio.to_thread(main, ["list", *arguments.get(by, ["--config", str(config)])]) == 0
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("is_dead", [True, False])
def test_a_socket_at_which_nobody_answers_is_told(
    folder: Path, is_dead: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    path, token = folder / "api.sock", folder / "token"
    token.write_text("a-token-0123456789")
    if is_dead:
        with closing(socket.socket(socket.AF_UNIX)) as dead:
            dead.bind(str(path))
    assert main(["status", "--url", f"unix:{path}", "--token-file", str(token)]) == exits.UNAVAILABLE
    assert f"nothing listens on unix:{path}; is the daemon running?" in capsys.readouterr().err


def test_a_url_that_is_no_socket_is_wrong_usage(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--url", "unix:api.sock", "--token-file", "x"]) == exits.USAGE
    assert "expected such as unix:/run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("127.0.0.1:1", "http://127.0.0.1:1"),
        ("[::1]:1", "http://[::1]:1"),
        ("0.0.0.0:1", "http://127.0.0.1:1"),
        ("[::]:1", "http://[::1]:1"),
        ("10.0.0.1:1", "http://10.0.0.1:1"),
    ],
)
def test_the_commands_dial_an_address_that_answers(listen: str, url: str) -> None:
    place = Listener.read(listen)
    assert place is not None
    assert local_api._dialled(place) == url


# ---- beyond loopback (S24) -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("listen", ["0.0.0.0:8787", "[::]:8787", "192.168.0.1:8787", "box.example:8787"])
def test_s24_the_network_is_served_only_when_it_was_asked_for(listen: str) -> None:
    api: dict[str, Any] = {"listen": listen}
    with pytest.raises(ConfigError) as told:
        parse({"api": api}, {}, file="x.toml")
    assert told.value.key_path == "api.listen"
    assert 'unsafe = ["any_interface"]' in told.value.expected
    assert str(parse({"api": {**api, "unsafe": ["any_interface"]}}, {}, file="x.toml").api) == listen


async def test_s24_a_daemon_on_every_interface_says_so_and_answers_by_address_alone(tmp_path: Path) -> None:
    api = {"listen": "0.0.0.0:0", "unsafe": ["any_interface"]}
    async with serving(tmp_path / "state", api=api) as served:
        assert [e["event"] for e in served.capture.entries if e["log_level"] == "warning"] == ["any_interface"]
        url = f"http://127.0.0.1:{served.local_port}/v1/status"
        statuses = {}
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {served.token}"}) as session:
            for name in (
                "127.0.0.1",
                "10.1.2.3",
                "[fe80::1]",
                "localhost",
                "evil.example",
                "127.1",
                "2130706433",
                "1.2.3.4.evil",
            ):
                async with session.get(url, headers={"Host": f"{name}:{served.local_port}"}) as answer:
                    statuses[name] = answer.status
            async with session.get(url, headers={"Origin": f"http://10.1.2.3:{served.local_port}"}) as answer:
                assert answer.status == 403, "a page from another address is foreign"
    assert statuses == {
        "127.0.0.1": 200, "10.1.2.3": 200, "[fe80::1]": 200, "localhost": 200,
        "evil.example": 421, "127.1": 421, "2130706433": 421, "1.2.3.4.evil": 421,
    }  # fmt: skip


EVERY, EVERY_6 = "0.0.0.0", "::"  # noqa: S104 - compared, not bound
#: Host and port of a listener, the Host values that it answers for, and some that it refuses.
HOSTS = [
    (EVERY, 8787, "1.2.3.4:8787 [::1]:8787 0.0.0.0:8787 localhost:8787", "1.2.3.4 1.2.3.4:80 ::1:8787 [1.2.3.4]:8787"),
    (EVERY, 8787, "127.0.0.1:8787", "box:8787 :8787 8787 1.2.3:8787 01.2.3.4:8787 1.2.3.4:08787 1.2.3.4:8787:8787"),
    (EVERY_6, 80, "1.2.3.4 [2001:db8::1] [2001:db8::1]:80 localhost", "1.2.3.4:8787 2001:db8::1 evil.example"),
    ("10.0.0.1", 8787, "10.0.0.1:8787 localhost:8787", "10.0.0.2:8787 evil.example:8787"),
    ("Box.Example", 8787, "box.example:8787", "10.0.0.2:8787 evil.box.example:8787"),
]


@pytest.mark.parametrize(("listen", "port", "taken", "refused"), HOSTS)
def test_the_hosts_that_a_listener_answers_for(listen: str, port: int, taken: str, refused: str) -> None:
    hosts = own_hosts(listen, port)
    assert [host for host in taken.split() if host not in hosts] == []
    assert [host for host in ["", *refused.split()] if host in hosts] == []
    assert set(SOCKET_HOSTS) == {"localhost"}


def test_unsafe_words_that_change_nothing_are_told() -> None:
    config = parse({"api": {"unsafe": ["any_interface"]}}, {}, file="x.toml")
    told = [(event, fields.get("key")) for event, fields in warnings_of(config)]
    assert ("setting_without_effect", "api.unsafe") in told
    assert "any_interface" not in [event for event, _ in told]


# ---- TLS of the webhook listener -----------------------------------------------------------------------------------


def tls(cert: Any, key: Any) -> dict[str, Any]:
    return {"webhooks": {"listen": "127.0.0.1:0", "tls_cert": str(cert), "tls_key": str(key)}}


async def test_webhooks_come_in_over_tls(tmp_path: Path) -> None:
    cert, key = make_pair(tmp_path)
    trusted = ssl.create_default_context(cafile=str(cert))
    async with serving(tmp_path / "state", **tls(cert, key)) as served:
        assert served.hooks.startswith("https://127.0.0.1:")
        assert [e["webhooks"] for e in served.capture.entries if e["event"] == "ready"] == [served.hooks]
        body = event("evt_1", "batch_1")
        async with aiohttp.ClientSession() as session:
            url = f"{served.hooks}/webhooks/openai"
            async with session.post(url, data=body, headers=signed(body), ssl=trusted) as answer:
                assert answer.status == 200
            with pytest.raises(aiohttp.ClientError):
                await session.post(url.replace("https", "http"), data=body, headers=signed(body))
        assert served.api.startswith("http://")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
async def test_tls_older_than_1_2_is_refused(tmp_path: Path) -> None:
    cert, key = make_pair(tmp_path)
    config = parse(document(tmp_path, **tls(cert, key)), ENVIRON, file="x.toml")
    assert config.tls is not None
    assert config.tls.context.minimum_version is ssl.TLSVersion.TLSv1_2
    old = ssl.create_default_context(cafile=str(cert))
    old.minimum_version = ssl.TLSVersion.TLSv1
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("DEFAULT@SECLEVEL=0")
    async with serving(tmp_path / "state", **tls(cert, key)) as served:
        with pytest.raises((ssl.SSLError, OSError)):
            await asyncio.open_connection("127.0.0.1", served.public_port, ssl=old)


async def test_s17_a_handshake_that_never_comes_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "HEADER_SECONDS", 0.2)
    cert, key = make_pair(tmp_path)
    async with serving(tmp_path / "state", **tls(cert, key)) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.public_port)
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()


def refused(folder: Path, cert: Any, key: Any) -> ConfigError:
    given = {"webhooks": {name: v for name, v in (("tls_cert", cert), ("tls_key", key)) if v is not None}}
    with pytest.raises(ConfigError) as told:
        parse(given, {"CREDENTIALS_DIRECTORY": str(folder)}, file="x.toml")
    return told.value


def test_a_pair_that_does_not_fit_is_told_with_its_key(tmp_path: Path) -> None:
    cert, key = make_pair(tmp_path)
    other_cert, other_key = make_pair(tmp_path, "other")
    _, locked = make_pair(tmp_path, "locked", password=b"secret")
    (tmp_path / "empty").touch()
    assert refused(tmp_path, str(cert), None).key_path == "webhooks.tls_key"
    assert refused(tmp_path, None, str(key)).key_path == "webhooks.tls_cert"
    assert refused(tmp_path, str(cert), str(other_key)).key_path == "webhooks.tls_key"
    assert refused(tmp_path, str(other_cert), str(key)).key_path == "webhooks.tls_key"
    assert refused(tmp_path, str(key), str(key)).key_path == "webhooks.tls_cert"
    assert refused(tmp_path, str(cert), str(cert)).key_path == "webhooks.tls_key"
    assert refused(tmp_path, str(tmp_path / "nothing"), str(key)).key_path == "webhooks.tls_cert"
    assert refused(tmp_path, str(cert), str(tmp_path / "empty")).key_path == "webhooks.tls_key"
    assert "without a password" in refused(tmp_path, str(cert), str(locked)).expected


def test_a_key_that_everybody_can_read_is_refused_and_none_is_shown(tmp_path: Path) -> None:
    """S39."""
    cert, key = make_pair(tmp_path)
    body = key.read_text().splitlines()[1]
    for mode in (0o644, 0o604):
        key.chmod(mode)
        error = refused(tmp_path, str(cert), str(key))
        assert error.key_path == "webhooks.tls_key"
        assert body not in str(error)
    error = refused(tmp_path, str(cert), key.read_text())
    assert error.key_path == "webhooks.tls_key"
    assert body not in str(error)
    key.chmod(0o640)
    config = parse({"webhooks": {"tls_cert": str(cert), "tls_key": str(key)}}, {}, file="x.toml")
    assert body in config.secrets


def test_s40_both_files_can_be_credentials(tmp_path: Path) -> None:
    cert, key = make_pair(tmp_path)
    given = {"webhooks": {"tls_cert": {"credential": cert.name}, "tls_key": {"credential": key.name}}}
    assert parse(given, {"CREDENTIALS_DIRECTORY": str(tmp_path)}, file="x.toml").tls is not None
    assert refused(tmp_path, {"credential": cert.name}, {"credential": "nothing"}).key_path == "webhooks.tls_key"


def test_a_key_with_a_password_asks_nobody_for_it(tmp_path: Path) -> None:
    """OpenSSL would ask on the terminal, and the start would hang there."""
    cert, key = make_pair(tmp_path, password=b"secret")
    config = tmp_path / "x.toml"
    config.write_text(f'[webhooks]\ntls_cert = "{cert}"\ntls_key = "{key}"\n')
    master, slave = pty.openpty()
    # A shell that leads a session and opens a terminal has it for its own, and so has what it becomes.
    command = 'exec <"$0"; exec "$@"'
    arguments = [os.ttyname(slave), sys.executable, "-m", "daemon", "serve", "--config", str(config)]
    try:
        told = subprocess.run(
            ["/bin/sh", "-c", command, *arguments], capture_output=True, timeout=30, check=False, start_new_session=True
        )
    finally:
        os.close(master)
        os.close(slave)
    assert told.returncode == exits.BAD_CONFIGURATION
    assert b"webhooks.tls_key" in told.stderr
    assert b"Traceback" not in told.stderr
