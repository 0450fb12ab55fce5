"""Lists of the local API: narrowed by what is known, by nothing else, and refused where nothing can be read now."""

from typing import Any
from urllib.parse import quote

import pytest

from tests.handlers.ground import Ground
from tests.handlers.test_operations_api import assert_problem
from tests.reconcile.store.ground import beside

#: Keys that a JSON path, or SQL, would take for something else.
HARD_KEYS = ["team", "a.b", "a/b", 'say "x"', "back\\slash", "$", "%", "ü", "o'neil", "x]"]


async def listed(ground: Ground, **query: str) -> list[str]:
    asked = "&".join(
        f"{quote(name.replace('label_', 'label.'), safe='')}={quote(value)}" for name, value in query.items()
    )
    return [op["operation_id"] for op in (await ground.get(f"/v1/operations?{asked}"))["operations"]]


@pytest.mark.parametrize(
    "path", ["/v1/operations", "/v1/operations/op_1", "/v1/operations/op_1/history", "/v1/inbox", "/v1/status"]
)
async def test_what_cannot_be_read_is_to_be_asked_for_again(ground: Ground, path: str) -> None:
    """503 with Retry-After, and no word of something that was not stored: nothing was to be."""
    with beside(ground.folder / "reconciled.db", writes=True) as connection:
        connection.execute("PRAGMA legacy_alter_table = ON")
        connection.execute("ALTER TABLE operations RENAME TO gone")
    answer = await ground.api("GET", path)
    assert assert_problem(answer, 503)["title"] == "Not readable"
    assert int(answer.headers["Retry-After"]) > 0


async def test_the_list_is_narrowed_by_labels(ground: Ground) -> None:
    a = await ground.start(labels={"team": "a", "env": "prod"})
    b = await ground.start(labels={"team": "b", "env": "prod"})
    await ground.start()
    assert await listed(ground, label_team="b") == [b]
    assert await listed(ground, label_env="prod") == [b, a]
    assert await listed(ground, label_env="prod", label_team="a") == [a]
    assert await listed(ground, label_team="a", open="false") == []
    assert await listed(ground, label_team="a", open="true", provider="openai") == [a]
    assert await listed(ground, label_team="B") == []
    assert await listed(ground, label_team="") == []
    assert await listed(ground, label_nobody="b") == []


async def test_a_list_by_label_has_pages(ground: Ground) -> None:
    made = [await ground.start(labels={"team": team}) for team in "ababa"]
    page = await ground.get("/v1/operations?label.team=a&limit=2")
    assert [op["operation_id"] for op in page["operations"]] == [made[4], made[2]]
    rest = await ground.get(f"/v1/operations?label.team=a&limit=2&cursor={page['next_cursor']}")
    assert [op["operation_id"] for op in rest["operations"]] == [made[0]]
    assert rest["next_cursor"] is None


@pytest.mark.parametrize("key", HARD_KEYS)
async def test_whatever_key_a_label_has_it_can_be_asked_for(ground: Ground, key: str) -> None:
    labelled = await ground.start(labels={key: "v"})
    await ground.start(labels={"other": "v"})
    assert await listed(ground, **{f"label.{key}": "v"}) == [labelled]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/operations",
        "/v1/operations/op_1",
        "/v1/operations/op_1/history",
        "/v1/operations/op_1/observations",
        "/v1/operations/op_1/items",
        "/v1/inbox",
    ],
)
@pytest.mark.parametrize(("name", "pointer"), [("labels.team", "/labels.team"), ("stat", "/stat"), ("a/b", "/a~1b")])
async def test_a_parameter_that_nobody_knows_is_told(ground: Ground, path: str, name: str, pointer: str) -> None:
    """A misspelled filter must not answer with everything."""
    refusal = assert_problem(await ground.api("GET", f"{path}?{quote(name, safe='')}=b"), 400)
    assert refusal["errors"][0]["pointer"] == pointer
    assert "unknown parameter" in refusal["errors"][0]["message"]


async def test_every_call_refuses_a_parameter_that_it_does_not_know(ground: Ground) -> None:
    """But for the two that probes ask, whatever they put behind a question mark."""
    asked = set()
    for route in ground.daemon.local.router.routes():
        path = str(route.resource.canonical).format(operation_id="op_1", item_id="a", entry_id="op_1")  # type: ignore[union-attr]
        if route.method not in ("GET", "POST") or path in ("/healthz", "/readyz"):
            continue
        refusal = assert_problem(await ground.api(route.method, f"{path}?wat=1"), 400)
        assert refusal["errors"][0]["pointer"] == "/wat", path
        asked.add(path)
    assert {"/metrics", "/v1/status", "/v1/operations/op_1/result", "/v1/operations/op_1/items/a"} < asked


async def test_what_cannot_be_read_is_not_said_to_be_unstored(ground: Ground) -> None:
    with beside(ground.folder / "reconciled.db", writes=True) as connection:
        connection.execute("DROP TABLE notices")
    assert_problem(await ground.api("GET", "/v1/inbox"), 503)
    (told,) = [entry["event"] for entry in ground.logged if entry["log_level"] == "warning"]
    assert told == "request_not_read"


async def test_a_label_asked_for_twice_is_told(ground: Ground) -> None:
    refusal: Any = assert_problem(await ground.api("GET", "/v1/operations?label.a/b=1&label.a/b=2"), 400)
    assert refusal["errors"][0]["pointer"] == "/label.a~1b"
