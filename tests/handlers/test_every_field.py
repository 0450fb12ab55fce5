"""Each field of each body that a client may send, taken away, given in every wrong shape, and beside a stranger.

What each field takes is typed by hand below; whatever else comes is a problem document that points at the field, and
leaves neither a row nor a file. New fields of a body are added here with what they take.
"""

import copy
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest

from reconcile.given import START_FIELDS
from reconcile.notice import Notice
from tests.handlers.ground import NOON, Answer, Ground, running
from tests.handlers.test_operations_api import assert_problem

Path_ = tuple[str | int, ...]


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


#: Values by name; what a client may mistake for a field's value, or try.
VALUES: Final[Mapping[str, Any]] = {
    "null": None,
    "true": True,
    "false": False,
    "zero": 0,
    "number": 7,
    "negative": -1,
    "huge": 2**63 - 1,
    "float": 1.5,
    "empty": "",
    "text": "x y",
    "numeral": "7",
    "other digits": "٧s",
    "list": [],
    "lists": [[1], [2]],
    "texts": ["x", "y"],
    "object": {},
    "objects": {"a": {"b": 1}},
    "10 KiB": "x" * 10_240,
    "control": "a\x07b",
    "newline": "a\nb",
    "NUL": "a\x00b",
    "reorders": "a\u202eb",
    "separator": "a\u2028b",
    "deep": nested(50),
}
#: JSON that no field takes, whatever it is: refused before the field is looked at.
RAW: Final[Mapping[str, bytes]] = {
    "half a pair": b'"\\ud800"',
    "too deep": json.dumps(nested(100)).encode(),
    "NaN": b"NaN",
    "beyond 64 bits": b"18446744073709551616",
    "not UTF-8": b'"\xff"',
    "doubled key": b'{"a":1,"a":2}',
    "no JSON": b"{",
}
START: Final[dict[str, Any]] = {
    "provider": "openai",
    "request": {"endpoint": "/v1/responses", "completion_window": "24h", "metadata": {"k": "v"}},
    "items": [{"custom_id": "a", "method": "POST", "url": "/v1/responses", "body": {"model": "m"}}],
    "type": "batch",
    "caller": "ana",
    "approval": "T-1",
    "labels": {"team": "search"},
    "expect": {"items": 1, "content_type": "application/jsonl", "sha256": "0" * 64, "json_schema": {"type": "object"}},
    "create_within": "10m",
    "result_within": "26h",
    "cancel_within": "15m",
    "input_within": "1h",
    "callback_url": "https://ci.example.com/hooks/1",
}
#: Who may be called back.
CALLBACKS: Final[dict[str, Any]] = {"ci": {"url": "https://ci.example.com/hooks/", "secrets": [{"env": "HOOK_0"}]}}
ADOPTION: Final[dict[str, Any]] = {"provider": "openai", "remote_job_id": "batch_1"}
TEXTS: Final = frozenset({"text", "numeral", "other digits"})


@dataclass(frozen=True)
class Field:
    """One field: where it stands, the names of the values that it takes, and whether it may be left out."""

    at: Path_
    takes: frozenset[str] = field(default_factory=frozenset)
    may_be_absent: bool = True
    body: str = "start"
    #: Where else the pointer may lead: a value that is another promise contradicts the rest of the body.
    also: tuple[str, ...] = ()

    @property
    def pointer(self) -> str:
        return "".join(f"/{step}" for step in self.at)


NULL: Final = frozenset({"null"})
FIELDS: Final = [
    Field(("provider",), may_be_absent=False),
    Field(("request",), may_be_absent=False),
    Field(("request", "endpoint"), may_be_absent=False),
    Field(("request", "completion_window"), TEXTS),
    Field(("request", "metadata"), NULL | {"object"}),
    Field(("request", "metadata", "k"), TEXTS | {"empty", "control", "newline", "NUL", "reorders", "separator"}),
    Field(("items",), may_be_absent=False),
    Field(("items", 0)),
    Field(("items", 0, "custom_id"), TEXTS, may_be_absent=False),
    Field(("items", 0, "method")),
    Field(("items", 0, "url"), may_be_absent=False),
    Field(("items", 0, "body"), frozenset({"object", "objects"}), may_be_absent=False),
    Field(("type",), NULL | TEXTS),
    Field(("caller",), NULL | TEXTS),
    Field(("approval",), NULL | TEXTS),
    Field(("labels",), NULL | {"object"}),
    Field(("labels", "team"), TEXTS),
    Field(("expect",), NULL | {"object"}),
    Field(("expect", "items"), NULL),
    Field(("expect", "content_type"), NULL),
    Field(("expect", "sha256"), NULL),
    Field(("expect", "json_schema"), NULL | {"object", "objects"}),  # an unknown keyword says nothing
    Field(("create_within",), NULL),
    Field(("result_within",), NULL),
    Field(("cancel_within",), NULL),
    Field(("input_within",), NULL),
    Field(("callback_url",), NULL),
    Field(("remote_job_id",), TEXTS, body="adoption", may_be_absent=False, also=("/request",)),
    Field(("provider",), may_be_absent=False, body="adoption"),
]
#: Objects that take no field but the known ones.
CLOSED: Final[list[Path_]] = [(), ("request",), ("items", 0), ("expect",)]


def body_of(name: str) -> dict[str, Any]:
    return copy.deepcopy(START if name == "start" else ADOPTION)


def put(body: Any, at: Path_, value: Any) -> Any:
    """The body with `value` there."""
    *way, last = at
    inner = body
    for step in way:
        inner = inner[step]
    inner[last] = value
    return body


def taken_out(body: Any, at: Path_) -> Any:
    *way, last = at
    inner = body
    for step in way:
        inner = inner[step]
    del inner[last]
    return body


def with_raw(body: Any, at: Path_, raw: bytes) -> bytes:
    """The JSON of the body with those bytes in place of a value."""
    return json.dumps(put(body, at, "<here>")).encode().replace(b'"<here>"', raw)


def as_form(body: dict[str, Any]) -> bytes:
    """The same start as a form."""
    items = body.pop("items")
    lines = b"".join(json.dumps(item).encode() + b"\n" for item in items)
    return (
        b'--xyz\r\nContent-Disposition: form-data; name="operation"\r\n\r\n'
        + json.dumps(body).encode()
        + b'\r\n--xyz\r\nContent-Disposition: form-data; name="input"\r\n\r\n'
        + lines
        + b"\r\n--xyz--\r\n"
    )


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with running(tmp_path / "state", sections={"callbacks": CALLBACKS}) as ground:
        yield ground


async def post(ground: Ground, data: bytes, *, to: str = "/v1/operations", kind: str = "application/json") -> Answer:
    return await ground.api("POST", to, data=data, headers={"Content-Type": kind})


def kept(ground: Ground) -> tuple[Any, set[str]]:
    """What a refused start must not add to."""
    folders = [ground.folder / "spool", ground.folder / "tmp"]
    return ground.rows("SELECT count(*) FROM operations"), {p.name for folder in folders for p in folder.iterdir()}


def assert_refused(answer: Answer, where: Field | str, *, named: str) -> None:
    """A 4xx problem document that points at the field or into it."""
    assert answer.status in (400, 413, 422), (named, answer)
    document = assert_problem(answer, answer.status)
    pointers, also = ((where.pointer,), where.also) if isinstance(where, Field) else ((where,), ())
    (error,) = document["errors"]
    is_there = any(error["pointer"] == p or error["pointer"].startswith(f"{p}/") for p in pointers)
    assert is_there or error["pointer"] in also, (named, error)
    assert error["message"], named
    assert len(error["message"]) < 2_000, named


def test_every_field_of_the_start_is_tried_here() -> None:
    tried = {each.at[0] for each in FIELDS}
    assert tried == START_FIELDS


@pytest.mark.parametrize("each", FIELDS, ids=lambda each: f"{each.body}{each.pointer}")
async def test_a_start_with_one_field_in_a_wrong_shape_is_told_where(ground: Ground, each: Field) -> None:
    """I4: never 500, nothing stored, nothing spooled."""
    started = 0
    for name, value in VALUES.items():
        before = kept(ground)
        answer = await post(ground, json.dumps(put(body_of(each.body), each.at, value)).encode())
        if name in each.takes:
            assert answer.status in (202, 409), (name, answer)
            started += 1
            continue
        assert_refused(answer, each, named=name)
        assert kept(ground) == before, name
    assert started == len(each.takes)
    for name, raw in RAW.items():
        before = kept(ground)
        document = assert_problem(await post(ground, with_raw(body_of(each.body), each.at, raw)), 400)
        assert "Nothing was stored" in document["detail"], name
        assert kept(ground) == before, name


@pytest.mark.parametrize("each", FIELDS, ids=lambda each: f"{each.body}{each.pointer}")
async def test_a_start_without_one_field_is_told_or_does_without(ground: Ground, each: Field) -> None:
    before = kept(ground)
    answer = await post(ground, json.dumps(taken_out(body_of(each.body), each.at)).encode())
    if each.may_be_absent and each.at[-1] != 0:
        assert answer.status == 202, answer
        return
    if each.at[-1] == 0:  # the only item: none is left
        assert_refused(answer, "/items", named="absent")
    else:
        assert_refused(answer, each, named="absent")
    assert kept(ground) == before


@pytest.mark.parametrize("at", CLOSED, ids=str)
@pytest.mark.parametrize("name", ["wat", "Provider", "provider ", "", "a/b~c", "\u202e", "x" * 10_240, "__proto__"])
async def test_a_start_with_a_field_that_nobody_knows_is_told_its_name(ground: Ground, at: Path_, name: str) -> None:
    before = kept(ground)
    answer = await post(ground, json.dumps(put(body_of("start"), (*at, name), 1)).encode())
    escaped = name.replace("~", "~0").replace("/", "~1")
    document = assert_problem(answer, 422)
    assert [error["pointer"] for error in document["errors"]] == ["".join(f"/{step}" for step in at) + f"/{escaped}"]
    assert kept(ground) == before


FORM_FIELDS: Final = [each for each in FIELDS if each.body == "start" and each.at != ("items",)]


@pytest.mark.parametrize("each", FORM_FIELDS, ids=lambda each: each.pointer)
async def test_a_form_is_told_what_the_same_json_is_told(ground: Ground, each: Field) -> None:
    for name, value in VALUES.items():
        body = put(body_of("start"), each.at, value)
        told = await post(ground, json.dumps(body).encode())
        before = kept(ground)
        answer = await post(ground, as_form(body), kind="multipart/form-data; boundary=xyz")
        assert answer.status == told.status, (name, answer, told)
        if answer.status != 202:
            assert answer.json() == told.json(), name
            assert kept(ground) == before, name


# ---- what is asked of an operation -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """One call on an operation, or on a notice that tells of it: a body that is taken as a body, and its fields."""

    path: str
    body: dict[str, Any]
    fields: tuple[Field, ...]
    state: str = "observing"
    #: The reason of the notice that is decided on; None: the operation itself is called on.
    notice: str | None = None

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.path, self.body.get("decision"), self.notice)))

    async def stand(self, ground: Ground) -> str:
        """Bring about what it is asked of; its path."""
        operation = await ground.operation(self.state, "batch_1")
        if self.notice is None:
            return f"/v1/operations/{operation}/{self.path}"
        await ground.daemon.store.tell([Notice(self.notice, NOON, "it happened", operation_id=operation)])
        return f"/v1/inbox/{self.notice}.{operation}/{self.path}"


_DECIDED: Final = (
    Field(("decision",), may_be_absent=False),
    Field(("by",), TEXTS, may_be_absent=False),
    Field(("reason",), TEXTS, may_be_absent=False),
)
CALLS: Final = [
    Call(
        "cancel",
        {"by": "ana", "reason": "too slow", "effect": "stop it"},
        tuple(Field((name,), TEXTS, may_be_absent=False) for name in ("by", "reason", "effect")),
    ),
    Call(
        "decisions",
        {"decision": "resume", "by": "ana", "reason": "it runs", "within": "2h"},
        (
            Field(("decision",), may_be_absent=False),
            Field(("by",), TEXTS, may_be_absent=False),
            Field(("reason",), TEXTS, may_be_absent=False),
            Field(("within",), NULL),
            Field(("remote_job_id",), NULL),
        ),
    ),
    Call(
        "decisions",
        {"decision": "choose_job", "by": "ana", "reason": "it is this", "remote_job_id": "batch_2"},
        (Field(("remote_job_id",), TEXTS, may_be_absent=False), Field(("within",), NULL)),
    ),
    Call("claim", {"consumer": "billing"}, (Field(("consumer",), TEXTS, may_be_absent=False),), state="succeeded"),
    Call(
        "decisions",
        {"decision": "acknowledge", "by": "ana", "reason": "seen"},
        _DECIDED,
        notice="contradiction",
    ),
    Call(
        "decisions",
        {"decision": "redeliver", "by": "ana", "reason": "the target is back"},
        _DECIDED,
        state="succeeded",
        notice="callback_exhausted",
    ),
]
#: One call for each kind of body.
KINDS: Final = [call for call in CALLS if call.body.get("decision") not in ("choose_job", "redeliver")]


def of_calls() -> Iterator[Any]:
    for call in CALLS:
        for each in call.fields:
            yield pytest.param(call, each, id=f"{call.name}{each.pointer}")


@pytest.mark.parametrize(("call", "each"), list(of_calls()))
async def test_what_is_asked_of_an_operation_in_a_wrong_shape_changes_nothing(
    ground: Ground, call: Call, each: Field
) -> None:
    to = await call.stand(ground)
    before = ground.everything()
    bodies = {name: {**call.body, each.at[0]: value} for name, value in VALUES.items() if name not in each.takes}
    if not each.may_be_absent:
        bodies["absent"] = {name: value for name, value in call.body.items() if name != each.at[0]}
    for name, body in bodies.items():
        assert_refused(await post(ground, json.dumps(body).encode(), to=to), each, named=name)
        assert ground.everything() == before, name
    for name, raw in RAW.items():
        assert_problem(await post(ground, with_raw(dict(call.body), each.at, raw), to=to), 400)
        assert ground.everything() == before, name
    for name in each.takes:
        answer = await post(ground, json.dumps({**call.body, each.at[0]: VALUES[name]}).encode(), to=to)
        assert answer.status in (200, 202, 409), (name, answer)


@pytest.mark.parametrize("call", KINDS, ids=lambda call: call.name)
@pytest.mark.parametrize("name", ["wat", "By", "", "a/b~c", "x" * 10_240])
async def test_what_is_asked_of_an_operation_with_a_field_that_nobody_knows_changes_nothing(
    ground: Ground, call: Call, name: str
) -> None:
    to = await call.stand(ground)
    before = ground.everything()
    answer = await post(ground, json.dumps({**call.body, name: 1}).encode(), to=to)
    escaped = name.replace("~", "~0").replace("/", "~1")
    assert [error["pointer"] for error in assert_problem(answer, 422)["errors"]] == [f"/{escaped}"]
    assert ground.everything() == before


@pytest.mark.parametrize("value", [*VALUES.values()], ids=[*VALUES])
@pytest.mark.parametrize("call", KINDS, ids=lambda call: call.name)
async def test_a_body_that_is_no_object_of_ours_changes_nothing(ground: Ground, call: Call, value: Any) -> None:
    to = await call.stand(ground)
    before = ground.everything()
    assert_problem(await post(ground, json.dumps(value).encode(), to=to), 422)
    assert ground.everything() == before


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
async def test_what_is_asked_in_the_right_shape_is_not_refused_for_it(ground: Ground, call: Call) -> None:
    """Else each refusal above would prove nothing. Nothing waits for a decision here."""
    answer = await post(ground, json.dumps(call.body).encode(), to=await call.stand(ground))
    is_decided = call.notice is None and call.path == "decisions"
    assert answer.status == (409 if is_decided else 202 if call.path == "cancel" else 200), answer


async def test_an_input_that_is_no_json_or_comes_unasked_leaves_no_file(ground: Ground) -> None:
    """Any JSON is an input, so the shape is the job's business; here none is waited for."""
    operation = await ground.operation("observing", "batch_1")
    to, before = f"/v1/operations/{operation}/input", ground.everything()
    files = kept(ground)
    for name, raw in RAW.items():
        assert assert_problem(await post(ground, raw, to=to), 400), name
    for name, value in VALUES.items():
        assert assert_problem(await post(ground, json.dumps(value).encode(), to=to), 409), name
    for by in ("", "x" * 600, "a&by=b", quote("a\x00b"), quote("a\nb"), quote("a\u202eb"), "%FF", "%ED%A0%80"):
        answer = await post(ground, b"{}", to=f"{to}?by={by}")
        assert answer.status in (400, 409, 422), (by, answer)
    assert ground.everything() == before
    assert kept(ground) == files


# ---- headers and parameters ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Prefer", "respond-async"),
        ("Prefer", "wait=10, return=minimal; x"),
        ("X-Request-Id", "\xe9" * 10),
        ("traceparent", "garbage"),
        ("If-Match", '"x"'),
        ("Range", "bytes=0-1"),
        ("Accept", "text/html"),
        ("Accept-Encoding", "br;q=x"),
        ("Cookie", "a=b; c"),
        ("Expect", "100-continue"),
    ],
)
async def test_a_header_that_asks_for_nothing_of_ours_is_ignored(ground: Ground, header: str, value: str) -> None:
    """G1: `Prefer: respond-async` is what happens anyway."""
    answer = await ground.api(
        "POST",
        "/v1/operations",
        data=json.dumps(START).encode(),
        headers={"Content-Type": "application/json", header: value},
    )
    assert answer.status == 202, answer


@pytest.mark.parametrize("call", [*KINDS, Call("input", {}, ())], ids=lambda call: call.name)
async def test_what_is_asked_of_an_operation_takes_no_parameter_that_it_does_not_know(
    ground: Ground, call: Call
) -> None:
    to = await call.stand(ground)
    before = ground.everything()
    document = assert_problem(await post(ground, json.dumps(call.body).encode(), to=f"{to}?wat=1"), 400)
    assert document["errors"][0]["pointer"] == "/wat"
    assert ground.everything() == before


@pytest.mark.parametrize("query", ["wat=1", "wait=10", "provider=openai", "=", "%FF=1"])
async def test_a_start_takes_no_parameters(ground: Ground, query: str) -> None:
    """Whoever gives one means something by it, and is told that nobody heard."""
    before = kept(ground)
    answer = await post(ground, json.dumps(START).encode(), to=f"/v1/operations?{query}")
    document = assert_problem(answer, 400)
    assert "unknown parameter" in document["detail"]
    assert kept(ground) == before
