"""Named tokens: what each may do, what the history says of whoever held it, and what it cannot be made to say."""

import asyncio
import hmac
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from daemon.config import parse
from handlers.access import Right
from reconcile.errors import ConfigError
from reconcile.notice import Notice
from reconcile.store.audit.verify import verify
from reconcile.store.looking import look_at
from tests.handlers.asking_provider import Account, asking_stage
from tests.handlers.ground import START, Answer, Ground, HandClock, exchange, request_bytes, running
from tests.handlers.test_input import in_state
from tests.handlers.test_wishes import asking

JOB = "batch_1"
VALUES = {
    "agents": "token-of-agents-0123456789",
    "reader": "token-of-reader-0123456789",
    "people": "token-of-people-0123456789",
    "all": "token-of-all-0123456789abc",
}
MAY = {"agents": ["read", "start"], "reader": ["read"], "people": ["decide"], "all": None}
TOKENS = {
    name: {"token": {"env": f"TOKEN_{name}"}, **({} if may is None else {"may": may})} for name, may in MAY.items()
}
ENVIRON = {f"TOKEN_{name}": value for name, value in VALUES.items()}

#: Typed by hand: what each call needs.
CALLS = {
    ("GET", "/v1/operations"): "read",
    ("HEAD", "/v1/operations"): "read",
    ("GET", "/v1/operations/op_1"): "read",
    ("GET", "/v1/operations/op_1/history"): "read",
    ("GET", "/v1/operations/op_1/decisions"): "read",
    ("GET", "/v1/inbox"): "read",
    ("GET", "/v1/status"): "read",
    ("GET", "/readyz"): "read",
    ("GET", "/nowhere"): "read",
    ("POST", "/v1/operations"): "start",
    ("POST", "/v1/operations/op_1/cancel"): "start",
    ("POST", "/v1/operations/op_1/input"): "start",
    ("POST", "/v1/operations/op_1/claim"): "start",
    ("POST", "/v1/operations/op_1/resubmit"): "start",
    ("POST", "/nowhere"): "start",
    ("DELETE", "/v1/operations/op_1"): "start",
    ("PUT", "/v1/operations/op_1"): "start",
    ("PATCH", "/nowhere"): "start",
    ("POST", "/v1/operations/op_1/decisions"): "decide",
    ("POST", "/v1/inbox/ntc_1/decisions"): "decide",
}


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with running(tmp_path / "state", sections={"api": {"tokens": TOKENS}}, environ=ENVIRON) as g:
        yield g


async def call(ground: Ground, name: str | None, method: str, path: str, body: Any = None) -> Answer:
    """One call with the token of that name; None: the first one."""
    headers = {} if name is None else {"Authorization": f"Bearer {VALUES[name]}"}
    return await ground.api(method, path, body=body, headers=headers)


async def actors(ground: Ground, operation: str) -> list[str]:
    rows = (await ground.get(f"/v1/operations/{operation}/history"))["history"]
    return [row["actor"] for row in rows if row["actor"].startswith(("client:", "person:"))]


async def started(ground: Ground, name: str | None, **fields: Any) -> str:
    answer = await call(ground, name, "POST", "/v1/operations", {**START, **fields})
    assert answer.status == 202, answer
    return str(answer.json()["operation_id"])


# ---- rights ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [None, *MAY])
async def test_a_token_may_what_its_rights_say_and_nothing_else(ground: Ground, name: str | None) -> None:
    may = {"read", "start", "decide"} if name is None or MAY[name] is None else set(MAY[name] or [])
    for (method, path), right in CALLS.items():
        answer = await call(ground, name, method, path)
        assert (answer.status != 403) == (right in may), (method, path, answer)
        if answer.status == 403 and method != "HEAD":
            told = answer.json()
            assert told["detail"].startswith(f'The token "{name}" lacks the right "{right}". Nothing was done.')
            assert answer.headers["Content-Type"].startswith("application/problem+json")


async def test_a_decision_spelled_another_way_is_one_all_the_same(ground: Ground) -> None:
    operation = await asking(ground, "observation_failed")
    said = json.dumps({"decision": "give_up", "by": "x", "reason": "r"}).encode()
    headers = [("Authorization", f"Bearer {VALUES['agents']}"), ("Content-Type", "application/json")]
    headers.append(("Content-Length", str(len(said))))
    for path in ("%64ecisions", "decision%73", "x/../decisions", "decisions?x=/cancel", "decisions#/cancel"):
        request = request_bytes(
            "POST", f"/v1/operations/{operation}/{path}", headers, said, host=f"127.0.0.1:{ground.local_port}"
        )
        assert (await exchange(ground.local_port, request)).status in (400, 403), path
    assert (await ground.row(operation)).state == "observation_failed"


async def test_without_the_right_nothing_tells_what_is_there_from_what_is_not(ground: Ground) -> None:
    operation = await ground.operation("observing", JOB)
    there = [f"/v1/operations/{operation}", f"/v1/operations/{operation}/result", "/v1/status", "/v1/inbox"]
    absent = ["/v1/operations/op_none", "/nowhere", "/"]
    told = {(await call(ground, "people", "GET", path)).body for path in (*there, *absent)}
    assert len(told) == 1
    posts = [f"/v1/operations/{operation}/cancel", "/v1/operations/op_none/cancel", "/v1/operations", "/nowhere"]
    assert len({(await call(ground, "reader", "POST", path)).body for path in posts}) == 1


async def test_what_is_refused_for_a_right_changes_nothing(ground: Ground) -> None:
    operation = await ground.operation("observing", JOB)
    before = ground.everything()
    wish = {"by": "x", "reason": "r", "effect": "e"}
    assert (await call(ground, "reader", "POST", "/v1/operations", START)).status == 403
    assert (await call(ground, "people", "POST", f"/v1/operations/{operation}/cancel", wish)).status == 403
    assert (await call(ground, "agents", "POST", f"/v1/operations/{operation}/decisions", wish)).status == 403
    assert ground.everything() == before


@pytest.mark.parametrize("change", [lambda v: v[:-1], lambda v: v + "x", lambda v: v.upper(), str.title])
async def test_what_is_nearly_a_named_token_is_none(ground: Ground, change: Any) -> None:
    headers = {"Authorization": f"Bearer {change(VALUES['agents'])}"}
    assert (await ground.api("GET", "/v1/status", headers=headers)).status == 401


async def test_every_token_is_compared_whichever_is_given(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """S20: the time tells neither whether nor which."""
    original, compared = hmac.compare_digest, 0

    def spy(left: Any, right: Any) -> bool:
        nonlocal compared
        compared += 1
        return original(left, right)

    monkeypatch.setattr("handlers.access.hmac.compare_digest", spy)
    for authorization in (f"Bearer {ground.daemon.token}", f"Bearer {VALUES['all']}", "Bearer nobody", ""):
        compared = 0
        await ground.api("GET", "/v1/status", headers={"Authorization": authorization})
        assert compared == 1 + len(VALUES)


async def test_whatever_decides_is_reached_by_a_path_that_says_so(ground: Ground) -> None:
    """The right goes by the path: a decision under another one would be open to whoever may start."""
    posts = [route for route in ground.daemon.local.router.routes() if route.method == "POST"]
    assert len(posts) > 4
    for route in posts:
        assert route.resource is not None
        assert route.resource.canonical.endswith("/decisions") == ("decide" in route.handler.__name__)


# ---- who stands in the history -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "said", "actor", "caller"),
    [
        (None, None, "client:anonymous", None),
        (None, "ci", "client:ci", "ci"),
        (None, "team/ci", "client:team/ci", "team/ci"),
        ("agents", None, "client:agents", "agents"),
        ("agents", "ci", "client:agents/ci", "ci"),
        ("agents", "agents", "client:agents/agents", "agents"),
        # What reads as somebody else stays under the token's own name.
        ("agents", "all", "client:agents/all", "all"),
        ("agents", "all/ci", "client:agents/all/ci", "all/ci"),
        ("agents", "/all", "client:agents//all", "/all"),
        ("agents", "anonymous", "client:agents/anonymous", "anonymous"),
        # The first token may everything; its own words are told apart from those of the named ones.
        (None, "agents", "client:/agents", "agents"),
        (None, "agents/x", "client:/agents/x", "agents/x"),
        (None, "agents2/x", "client:agents2/x", "agents2/x"),
        (None, "/agents/x", "client:/agents/x", "/agents/x"),
    ],
)
async def test_the_starter_is_named_with_the_token(
    ground: Ground, name: str | None, said: str | None, actor: str, caller: str | None
) -> None:
    operation = await started(ground, name, **({} if said is None else {"caller": said}))
    assert await actors(ground, operation) == [actor]
    assert (await ground.get(f"/v1/operations/{operation}"))["caller"] == caller


async def test_no_token_writes_what_another_one_writes(ground: Ground) -> None:
    """Whatever is said, two tokens never leave the same word."""
    said = [None, "x", "agents", "all", "reader", "agents/x", "all/x", "/agents", "/x", "anonymous", "agents/all/x"]
    left: dict[str, set[str | None]] = {}
    for name in (None, "agents", "all"):
        for word in said:
            operation = await started(ground, name, **({} if word is None else {"caller": word}))
            for actor in await actors(ground, operation):
                left.setdefault(actor, set()).add(name)
    assert {actor: names for actor, names in left.items() if len(names) > 1} == {}


@pytest.mark.parametrize(
    ("name", "actor"), [(None, "client:ana"), ("agents", "client:agents/ana"), ("all", "client:all/ana")]
)
async def test_a_cancel_is_named_with_the_token(ground: Ground, name: str | None, actor: str) -> None:
    operation = await ground.operation("observing", JOB)
    wish = {"by": "ana", "reason": "r", "effect": "e"}
    answer = await call(ground, name, "POST", f"/v1/operations/{operation}/cancel", wish)
    assert answer.status == 202
    assert answer.json()["cancel"]["by"] == "ana"
    assert (await actors(ground, operation))[-1] == actor


@pytest.mark.parametrize(
    ("name", "actor"), [(None, "person:ana"), ("people", "person:people/ana"), ("all", "person:all/ana")]
)
@pytest.mark.parametrize("place", ["operations", "inbox"])
async def test_a_decision_is_named_with_the_token(ground: Ground, name: str | None, actor: str, place: str) -> None:
    operation = await asking(ground, "observation_failed")
    said = {"decision": "resume", "by": "ana", "reason": "looked"}
    answer = await call(ground, name, "POST", f"/v1/{place}/{operation}/decisions", said)
    assert answer.status == 200, answer
    assert (await actors(ground, operation))[-1] == actor


@pytest.mark.parametrize(
    ("name", "query", "actor", "by"),
    [
        (None, "", "client:anonymous", "anonymous"),
        (None, "?by=ana", "client:ana", "ana"),
        ("agents", "", "client:agents", "agents"),
        ("agents", "?by=ana", "client:agents/ana", "ana"),
    ],
)
async def test_an_input_is_named_with_the_token(
    tmp_path: Path, name: str | None, query: str, actor: str, by: str
) -> None:
    more = {"sections": {"api": {"tokens": TOKENS}}, "environ": ENVIRON}
    async with asking_stage(tmp_path / "asking", Account(), worker=False, clock=HandClock(), **more) as on:
        operation = await in_state(on, "blocked")
        answer = await call(on.ground, name, "POST", f"/v1/operations/{operation}/input{query}", {"a": 1})
        assert answer.status == 202, answer
        assert (await actors(on.ground, operation))[-1] == actor
        given = (await on.ground.row(operation)).input
        assert given is not None
        assert given.by == by


@pytest.mark.parametrize(("name", "by"), [(None, "ana"), ("people", "people/ana")])
async def test_a_notice_says_with_which_token_it_was_taken_off(ground: Ground, name: str | None, by: str) -> None:
    await ground.daemon.store.tell([Notice("disk_low", ground.clock.now(), "The disk is nearly full.")])
    said = {"decision": "acknowledge", "by": "ana", "reason": "seen"}
    answer = await call(ground, name, "POST", "/v1/inbox/disk_low/decisions", said)
    assert answer.status == 200, answer
    assert answer.json()["by"] == by
    assert [e["by"] for e in ground.logged if e["event"] == "notice_acknowledged"] == [by]


async def test_a_key_stands_for_one_start_whichever_token_repeats_it(ground: Ground) -> None:
    """G5: a token says who asks, not what is asked."""
    key = {"Idempotency-Key": "k"}
    ids = set()
    for name in ("agents", "all"):
        headers = {**key, "Authorization": f"Bearer {VALUES[name]}"}
        answer = await ground.api("POST", "/v1/operations", body=START, headers=headers)
        ids.add(answer.json()["operation_id"])
    (operation,) = ids
    assert await actors(ground, operation) == ["client:agents"]


async def test_a_record_with_named_tokens_in_it_verifies(ground: Ground) -> None:
    """D3: the words are under the hash as any other is."""
    operation = await started(ground, "agents", caller="ci")
    await ground.accept(operation, "batch_2")
    wish = {"by": "ana", "reason": "r", "effect": "e"}
    assert (await call(ground, "all", "POST", f"/v1/operations/{operation}/cancel", wish)).status == 202
    other = await asking(ground, "result_validation_failed")
    said = {"decision": "give_up", "by": "ana", "reason": "r"}
    assert (await call(ground, "people", "POST", f"/v1/operations/{other}/decisions", said)).status == 200
    assert await actors(ground, operation) == ["client:agents/ci", "client:all/ana"]
    found = await asyncio.to_thread(look_at, ground.folder / "reconciled.db", verify)
    assert found.rows > 0


# ---- what stops the start ----------------------------------------------------------------------------------------


def fault(tokens: Any, *, first: Any = None, environ: dict[str, str] | None = None) -> ConfigError:
    api = {"tokens": tokens, **({} if first is None else {"token": first})}
    with pytest.raises(ConfigError) as told:
        parse({"api": api}, environ or ENVIRON, file="x.toml")
    assert not any(value in str(told.value) for value in (environ or ENVIRON).values())
    return told.value


def test_two_tokens_of_one_value_are_refused_with_the_later_ones_key() -> None:
    """The history could not tell whose it was."""
    error = fault(TOKENS, environ=_with(people=VALUES["agents"]))
    assert (error.key_path, error.found) == ("api.tokens.people.token", "the value of the token agents")
    error = fault(TOKENS, first={"env": "TOKEN_reader"})
    assert (error.key_path, error.found) == ("api.tokens.reader.token", "the value of the first token")


@pytest.mark.parametrize("length", [1, 15])
def test_a_token_that_could_be_guessed_is_refused(length: int) -> None:
    """64 bits at least, were it hexadecimal."""
    short = _with(reader="q7" * 8)
    short["TOKEN_reader"] = short["TOKEN_reader"][:length]
    error = fault({"reader": TOKENS["reader"]}, environ=short)
    assert (error.key_path, error.found) == ("api.tokens.reader.token", f"a token of {length} characters")
    assert "at least 16 characters" in error.expected
    assert fault({}, first={"env": "TOKEN_reader"}, environ=short).key_path == "api.token"


def test_a_token_of_sixteen_characters_is_taken() -> None:
    tokens = {"reader": TOKENS["reader"]}
    (token,) = parse({"api": {"tokens": tokens}}, _with(reader="q7" * 8), file="x.toml").api_tokens
    assert (token.name, set(token.may)) == ("reader", {Right.READ})


@pytest.mark.parametrize("name", ["a/b", "/", "agents/", "Agents", "a b", "", "ä", "x" * 65, "anonymous"])
def test_a_name_that_could_stand_for_another_is_refused(name: str) -> None:
    assert fault({name: TOKENS["agents"]}).key_path.startswith("api.tokens")


@pytest.mark.parametrize(
    ("may", "path"),
    [
        ([], "may"), ("read", "may"), (["write"], "may[0]"), (["read", "READ"], "may[1]"), (["read", "read"], "may[1]"),
        ([5], "may[0]"), ({}, "may"), (True, "may"),
    ],
)  # fmt: skip
def test_rights_that_nobody_knows_are_refused(may: Any, path: str) -> None:
    error = fault({"agents": {**TOKENS["agents"], "may": may}})
    assert error.key_path == f"api.tokens.agents.{path}"
    assert "read" in error.expected or "once" in error.expected


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_s39_a_token_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "agents-token"
    file.write_text(VALUES["agents"])
    file.chmod(mode)
    document = {"state_dir": str(tmp_path), "api": {"tokens": {"agents": {"token": {"file": "agents-token"}}}}}
    with pytest.raises(ConfigError) as told:
        parse(document, {}, file="x.toml")
    assert told.value.key_path == "api.tokens.agents.token"
    assert "0600" in told.value.expected
    file.chmod(0o600)
    assert [token.name for token in parse(document, {}, file="x.toml").api_tokens] == ["agents"]


async def test_a_named_token_with_the_value_of_the_first_is_refused_at_the_start(tmp_path: Path) -> None:
    """Also where the daemon made the first one itself; neither value is shown."""
    async with running(tmp_path / "state") as first:
        value = first.daemon.token
    with pytest.raises(ConfigError) as told:
        async with running(tmp_path / "state", sections={"api": {"tokens": TOKENS}}, environ=_with(agents=value)):
            pass
    assert told.value.key_path == "api.tokens.agents.token"
    assert "the first token" in told.value.found
    assert value not in str(told.value)


async def test_a_named_token_is_struck_out_of_what_is_logged(ground: Ground) -> None:
    """S38."""
    assert set(VALUES.values()) <= set(ground.config.secrets)
    assert not any(value in repr(ground.config) for value in VALUES.values())
    for name in VALUES:
        answer = await call(ground, name, "GET", "/v1/status")
        assert not any(value in answer.body.decode() for value in VALUES.values())
    assert not any(value in json.dumps(ground.logged, default=repr) for value in VALUES.values())


def _with(**values: str) -> dict[str, str]:
    return {**ENVIRON, **{f"TOKEN_{name}": value for name, value in values.items()}}
