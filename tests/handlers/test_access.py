"""Who may use the local API: its own Host, no foreign page, a holder of the token, looked at in this order."""

import hmac
import json
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from handlers.access import own_hosts
from reconcile.errors import ConfigError
from tests.handlers.ground import START, Answer, Ground, exchange, request_bytes, running

PATHS = ["/v1/operations", "/v1/operations/op_1", "/v1/status", "/readyz", "/nowhere", "/", "/metrics"]


async def ask(
    ground: Ground,
    *,
    host: str | None = None,
    headers: tuple[tuple[str, str], ...] = (),
    target: str = "/v1/status",
    method: str = "GET",
    token: bool = True,
    body: bytes = b"",
) -> Answer:
    """One request with exactly these headers."""
    own = f"127.0.0.1:{ground.local_port}"
    sent = list(headers)
    if token:
        sent.append(("Authorization", f"Bearer {ground.daemon.token}"))
    if body:
        sent.append(("Content-Length", str(len(body))))
    request = request_bytes(method, target, sent, body, host=own if host is None else host)
    return await exchange(ground.local_port, request)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer x",
        "bearer TOKEN",
        "Basic TOKEN",
        "TOKEN",
        "Bearer TOKENx",
        "Bearer  TOKEN",
        "Bearer tök",
    ],
)
async def test_without_the_token_nothing_is_told(ground: Ground, path: str, authorization: str | None) -> None:
    """S20."""
    given = None if authorization is None else authorization.replace("TOKEN", ground.daemon.token)
    headers = () if given is None else (("Authorization", given),)
    answer = await ask(ground, target=path, headers=headers, token=False)
    assert answer.status == 401
    assert answer.headers["Www-Authenticate"].startswith("Bearer")
    assert ground.daemon.token not in answer.raw.decode("latin-1")


async def test_every_401_is_the_same(ground: Ground) -> None:
    """S20: neither the path nor the kind of mistake can be told apart."""
    bodies = {(await ask(ground, target=path, token=False)).body for path in PATHS}
    bodies.add((await ask(ground, headers=(("Authorization", "Bearer nearly"),), token=False)).body)
    assert len(bodies) == 1


@pytest.mark.parametrize("name", ["token", "access_token", "authorization", "api_key"])
async def test_a_token_in_the_query_is_none(ground: Ground, name: str) -> None:
    """S20: it would stand in logs and in a browser's history."""
    answer = await ask(ground, target=f"/v1/status?{name}={ground.daemon.token}", token=False)
    assert answer.status == 401


async def test_two_authorization_headers_are_no_proof(ground: Ground) -> None:
    headers = (("Authorization", "Bearer wrong"), ("Authorization", f"Bearer {ground.daemon.token}"))
    assert (await ask(ground, headers=headers, token=False)).status in (400, 401)


async def test_the_token_is_compared_in_constant_time(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """S20."""
    compared: list[Any] = []
    original = hmac.compare_digest

    def spy(left: Any, right: Any) -> bool:
        compared.append(left)
        return original(left, right)

    monkeypatch.setattr("handlers.access.hmac.compare_digest", spy)
    assert (await ask(ground)).status == 200
    assert len(compared) == 1


@pytest.mark.parametrize("target", ["/healthz", "/healthz?x=1"])
async def test_liveness_is_open_and_tells_nothing(ground: Ground, target: str) -> None:
    answer = await ask(ground, target=target, token=False)
    assert answer.status == 200
    assert answer.json().keys() == {"status"}


@pytest.mark.parametrize(
    "target", ["/healthz/", "//healthz", "/healthz/../v1/status", "/v1/status#/healthz", "/HEALTHZ"]
)
async def test_nothing_that_looks_like_liveness_is_open(ground: Ground, target: str) -> None:
    answer = await ask(ground, target=target, token=False)
    assert answer.status in (400, 401)


# ---- Host (S21) ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:PORT",
        "127.0.0.1.evil.example:PORT",
        "localhost.evil.example:PORT",
        "127.0.0.1",
        "127.0.0.1:1",
        "127.0.0.1:PORT0",
        "127.0.0.1:PORT:1",
        "0.0.0.0:PORT",
        "127.1:PORT",
        "2130706433:PORT",
        "[::]:PORT",
        "user@127.0.0.1:PORT",
        "127.0.0.1:PORT/x",
        "",
    ],
)
@pytest.mark.parametrize("target", ["/v1/status", "/healthz"])
async def test_a_foreign_host_is_refused_before_the_token_is_looked_at(
    ground: Ground, host: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S21: DNS rebinding."""

    def never(*_: Any) -> bool:
        raise AssertionError("the token was looked at")

    monkeypatch.setattr("handlers.access.hmac.compare_digest", never)
    answer = await ask(ground, host=host.replace("PORT", str(ground.local_port)), target=target)
    assert answer.status in (400, 403, 421)


@pytest.mark.parametrize("host", ["127.0.0.1:PORT", "localhost:PORT", "LOCALHOST:PORT", "[::1]:PORT"])
async def test_the_listener_answers_for_its_own_names(ground: Ground, host: str) -> None:
    assert (await ask(ground, host=host.replace("PORT", str(ground.local_port)))).status == 200


async def test_two_hosts_are_refused(ground: Ground) -> None:
    own = f"127.0.0.1:{ground.local_port}"
    assert (await ask(ground, headers=(("Host", own),))).status in (400, 421)
    assert (await ask(ground, host="evil.example", headers=(("Host", own),))).status in (400, 421)


async def test_an_absolute_target_does_not_replace_the_host(ground: Ground) -> None:
    answer = await ask(ground, host="evil.example", target=f"http://127.0.0.1:{ground.local_port}/v1/status")
    assert answer.status in (400, 403, 421)


def test_the_own_names_of_a_listener() -> None:
    assert own_hosts("127.0.0.1", 8787) == {"127.0.0.1:8787", "localhost:8787", "[::1]:8787"}
    assert "[::1]:1" in own_hosts("::1", 1)


# ---- foreign pages (S22) ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "https://evil.example",
        "http://evil.example:PORT",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        "http://127.0.0.1:PORT.evil.example",
        "http://127.0.0.1:PORT@evil.example",
        "file://",
        "chrome-extension://abc",
        "",
        "ftp://127.0.0.1:PORT",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
async def test_a_foreign_origin_is_refused(ground: Ground, origin: str, method: str) -> None:
    """S22: also with the token, which a page cannot have."""
    headers = (
        ("Origin", origin.replace("PORT", str(ground.local_port))),
        ("Content-Type", "application/json"),
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "authorization"),
    )
    body = json.dumps(START).encode() if method == "POST" else b""
    answer = await ask(ground, headers=headers, target="/v1/operations", method=method, body=body)
    assert answer.status == 403
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    assert ground.rows("SELECT count(*) FROM operations") == [(0,)]


@pytest.mark.parametrize("site", ["cross-site", "same-site", "wat"])
async def test_a_request_that_a_foreign_page_made_is_refused(ground: Ground, site: str) -> None:
    """S22."""
    assert (await ask(ground, headers=(("Sec-Fetch-Site", site),))).status == 403


async def test_one_foreign_word_among_several_is_enough(ground: Ground) -> None:
    own = f"http://127.0.0.1:{ground.local_port}"
    for headers in (
        (("Sec-Fetch-Site", "none"), ("Sec-Fetch-Site", "cross-site")),
        (("Origin", own), ("Origin", "https://evil.example")),
    ):
        assert (await ask(ground, headers=headers)).status in (400, 403), headers


@pytest.mark.parametrize("site", ["same-origin", "none"])
async def test_its_own_page_and_a_typed_address_are_let_in(ground: Ground, site: str) -> None:
    own = f"http://127.0.0.1:{ground.local_port}"
    assert (await ask(ground, headers=(("Origin", own), ("Sec-Fetch-Site", site)))).status == 200


async def test_no_answer_opens_the_api_to_other_pages(ground: Ground) -> None:
    """S22: no Access-Control header anywhere."""
    own = f"http://127.0.0.1:{ground.local_port}"
    for method in ("GET", "OPTIONS", "POST"):
        answer = await ask(ground, headers=(("Origin", own),), target="/v1/operations", method=method)
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]


# ---- the token's file (S25) ------------------------------------------------------------------------------------


async def test_the_token_is_made_on_the_first_start_for_its_owner_alone(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as ground:
        first, file = ground.daemon.token, tmp_path / "state" / "api-token"
        assert len(first) >= 32
        assert file.read_text(encoding="ascii").strip() == first
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        for name in ("spool", "results", "tmp"):
            assert stat.S_IMODE((tmp_path / "state" / name).stat().st_mode) == 0o700
    async with running(tmp_path / "state", seed=2) as ground:
        assert ground.daemon.token == first


async def test_what_the_daemon_writes_is_for_its_owner_alone(tmp_path: Path) -> None:
    """S25: the database and its journal hold what clients sent."""
    async with running(tmp_path / "state") as ground:
        await ground.start()
        for path in (tmp_path / "state").rglob("*"):
            assert stat.S_IMODE(path.stat().st_mode) & 0o007 == 0 or path.name.startswith("reconciled.db"), path


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o666])
async def test_a_token_file_that_others_can_read_stops_the_start(tmp_path: Path, mode: int) -> None:
    """S25: told with the file, and without the token."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    (folder / "api-token").write_text("a-token-that-somebody-may-have-read\n")
    (folder / "api-token").chmod(mode)
    with pytest.raises(ConfigError) as told:
        async with running(folder):
            pass
    assert "api-token" in str(told.value)
    assert "0600" in str(told.value)
    assert "somebody" not in str(told.value)


@pytest.mark.parametrize("name", ["api-token", "audit.key"])
async def test_a_secret_that_is_no_text_stops_the_start_and_stays_as_it_is(tmp_path: Path, name: str) -> None:
    """Told as a configuration that cannot be used, with the file, and without what stands in it."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    (folder / name).write_bytes(b"somebody\xff\x00\xfe")
    (folder / name).chmod(0o600)
    with pytest.raises(ConfigError, match=name) as told:
        async with running(folder):
            pass
    assert "somebody" not in repr(told.value.__cause__) + str(told.value)
    assert (folder / name).read_bytes() == b"somebody\xff\x00\xfe"


async def test_an_empty_token_file_stops_the_start_or_is_made_anew(tmp_path: Path) -> None:
    """What a crash between making the file and writing it leaves: nobody could come in, and nobody is told why."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    (folder / "api-token").touch(mode=0o600)
    with suppress(ConfigError):
        async with running(folder) as ground:
            assert len(ground.daemon.token) >= 32


async def test_a_configured_token_is_the_one_that_opens(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    (folder / "mine").write_text("a-configured-token-0123456789\n")
    (folder / "mine").chmod(0o600)
    async with running(folder, sections={"api": {"token": {"file": "mine"}}}) as ground:
        assert ground.daemon.token == "a-configured-token-0123456789"
        assert (await ask(ground)).status == 200
        assert not (folder / "api-token").exists()
