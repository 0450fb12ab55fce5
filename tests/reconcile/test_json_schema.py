"""Schemas of clients: which are taken, what a body must keep, and that none can cost more than its budget."""

import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconcile.errors import RequestInvalid
from reconcile.json_schema import Schema, check

AT = "/expect/json_schema"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
ADDRESS = "^[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\\.[A-Za-z]{2,}$"
#: JSON levels; an object schema and its `properties` are two.
DEEPEST = 32


def nested(levels: int) -> Any:
    """A schema of so many levels of brackets; it is odd, since each object brings two."""
    schema: Any = {"type": "string"}
    for _ in range((levels - 1) // 2):
        schema = {"properties": {"a": schema}}
    return schema


def chain(length: int, end: Any) -> Any:
    """A schema whose reference leads over `length` others to `end`."""
    defs = {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(length)}
    return {"$ref": "#/$defs/a0", "$defs": {**defs, f"a{length}": end}}


def doubling(times: int) -> Any:
    """A schema that holds one value to 2^times schemas."""
    defs: Any = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(times)}
    return {"$ref": "#/$defs/a0", "$defs": {**defs, f"a{times}": {}}}


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        (True, ""),
        ([], ""),
        ("x", ""),
        (7, ""),
        ({"type": "objekt"}, "/type"),
        ({"properties": {"a/b~c": {"minLength": -1}}}, "/properties/a~1b~0c/minLength"),
        ({"allOf": [{}, {"required": "a"}]}, "/allOf/1/required"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "/$schema"),
        ({"items": {"$schema": DIALECT}}, "/items/$schema"),
        ({"items": {"$id": "other"}}, "/items/$id"),
        ({"$ref": "https://schemas.invalid/x"}, "/$ref"),
        ({"$ref": "file:///etc/passwd"}, "/$ref"),
        ({"$ref": "other.json#/a"}, "/$ref"),
        ({"$ref": ""}, "/$ref"),
        ({"$id": "https://schemas.invalid/x", "$ref": "https://schemas.invalid/x"}, "/$ref"),
        ({"not": {"if": {"$ref": "http://169.254.169.254/"}}}, "/not/if/$ref"),
        ({"$defs": {"a b": {"items": {"$ref": "//x"}}}}, "/$defs/a b/items/$ref"),
        ({"$ref": "#/$defs/nowhere"}, "/$ref"),
        ({"$ref": "#/x-own", "x-own": {"$ref": "https://schemas.invalid/x"}}, "/$ref"),
        ({"$ref": "#name", "$defs": {"a": {"$anchor": "name"}}}, "/$ref"),
        ({"$defs": {"a": {"$anchor": "name"}}}, "/$defs/a/$anchor"),
        ({"$dynamicRef": "#a"}, "/$dynamicRef"),
        ({"$dynamicAnchor": "a"}, "/$dynamicAnchor"),
        ({"patternProperties": {"(a+)+$": {}}}, "/patternProperties"),
        ({"anyOf": [{"unevaluatedProperties": False}]}, "/anyOf/0/unevaluatedProperties"),
        ({"unevaluatedItems": False}, "/unevaluatedItems"),
        ({"$ref": "#"}, ""),
        ({"allOf": [{"$ref": "#"}, {"$ref": "#"}]}, ""),
        ({"dependentSchemas": {"a": {"not": {"$ref": "#"}}}}, ""),
        (chain(70, {}), ""),
        (doubling(12), ""),
        (nested(DEEPEST + 1), ""),
        ({"description": "x" * 40_000}, ""),
        ({"type": [*range(6_700), "x"]}, "/type"),
        ({"type": ["string", 1]}, "/type/1"),
        ({"items": {"required": [*range(6_700), "x"]}}, "/items/required/0"),
        ({"dependentRequired": {"a/b": ["x", *range(6_700)]}}, "/dependentRequired/a~1b/1"),
        ({"allOf": [{}] * 10_000}, ""),
        ({"$defs": {f"{n}": {} for n in range(1_000)}}, ""),
        ({"dependencies": {f"{n}": {} for n in range(3_000)}}, ""),
        ({"unevaluatedItems": {"patternProperties": {f"{n}": {} for n in range(2_000)}}}, ""),
    ],
)
def test_what_is_no_schema_or_could_cost_too_much_is_refused_where_it_stands(schema: Any, where: str) -> None:
    """The pointer leads to the fault; nothing is fetched to find that out."""
    with pytest.raises(RequestInvalid) as refused:
        check(schema, AT)
    assert refused.value.pointer == AT + where


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+$", "a|b", "(?=a)", "(a)\\1", "a**", "a+?", "[", "[]a]", "a{9,2}", "a{1000}", "[a--b]", "[[a]", "^^a", "a$b",
     "\\b", "x" * 300, "(" * 200],
)  # fmt: skip
def test_a_pattern_that_may_never_come_to_an_end_is_refused(pattern: str) -> None:
    with pytest.raises(RequestInvalid) as refused:
        check({"properties": {"a": {"pattern": pattern}}}, AT)
    assert refused.value.pointer == f"{AT}/properties/a/pattern"


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"$schema": DIALECT, "$id": "https://schemas.invalid/mine", "items": {"$ref": "#/$defs/a"}, "$defs": {"a": {}}},
        {"$defs": {"a b/c": {}}, "items": {"$ref": "#/$defs/a%20b~1c"}},
        {"definitions": {"a": {}}, "items": {"$ref": "#/definitions/a"}},
        {"properties": {"$ref": {"type": "string"}, "pattern": {"type": "string"}, "$id": {}}},
        {"default": {"$ref": "https://schemas.invalid/x"}, "examples": [{"pattern": "(a+)+"}]},
        {"format": "date-time", "x-own-word": 1},
        {"anyOf": [{"type": "null"}, {"items": {"$ref": "#"}}]},
        chain(60, {}),
        nested(DEEPEST - 1),
    ],
)
def test_what_an_ordinary_client_writes_is_taken(schema: Any) -> None:
    """Names of properties and plain data may look like keywords."""
    assert check(schema, AT) == schema
    assert Schema(schema).broken_by([]) is None


@pytest.mark.parametrize(
    ("schema", "body", "broken"),
    [
        ({"type": "object"}, {}, None),
        ({"type": "object"}, [], "/type"),
        ({"type": "integer"}, 1.0, None),
        ({"type": "integer"}, True, "/type"),
        ({"properties": {"a/b": {"type": "string"}}}, {"a/b": 1}, "/properties/a~1b/type"),
        ({"properties": {"a\nb": {"type": "string"}}}, {"a\nb": 1}, "/properties/a?b/type"),
        ({"items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"minimum": 3}}}, [3, 4, 2], "/items/minimum"),
        ({"required": ["a"]}, {"b": 1}, "/required"),
        ({"additionalProperties": False, "properties": {"a": {}}}, {"a": 1, "b": 2}, "/additionalProperties"),
        ({"oneOf": [{"type": "string"}, {"minLength": 1}]}, "a", "/oneOf"),
        ({"uniqueItems": True}, [1, True, "1", [1], {"a": 1}], None),
        ({"uniqueItems": True}, [{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}], "/uniqueItems"),
        ({"uniqueItems": False}, [1, 1], None),
        ({"format": "date-time"}, "yesterday", None),
        ({"$schema": DIALECT, "$id": "mine", "type": "string"}, 1, "/type"),
        ({"$id": "urn:mine", "items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"type": "null"}}}, [1], "/items/type"),
        ({"pattern": ADDRESS}, "someone@example.com", None),
        ({"pattern": ADDRESS}, "someone", "/pattern"),
        ({"pattern": "b+"}, "abc", None),
        ({"pattern": "^a$"}, "a\n", "/pattern"),
        ({"pattern": "a\\$"}, "a$b", None),
        ({"pattern": "^\\d{4}-\\d{2}$"}, "2026-11", None),
        ({"pattern": "^\\d$"}, "\u0663", "/pattern"),
        ({"pattern": "^[^0-9]?\\u00e9{1,2}$"}, "x\u00e9", None),
        ({"pattern": "^a"}, 7, None),
    ],
)
def test_a_body_keeps_its_schema_or_the_broken_place_is_named(schema: Any, body: Any, broken: str | None) -> None:
    """By the schema's own place: the body's words stand in no reason."""
    assert Schema(check(schema, AT)).broken_by(body) == broken


COSTLY = "too costly to check"
MANY_NAMES = {f"{n}": 0 for n in range(310_000)}
UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


@pytest.mark.parametrize(
    ("schema", "body"),
    [
        ({"pattern": "^a*a*a*a*$"}, "a" * 300 + "b"),
        ({"pattern": "a*a*b"}, "a" * 2_000),
        ({"items": {"type": "integer"}}, [1] * 300_000),
        ({"items": {"$ref": "#/$defs/a0"}, "$defs": doubling(7)["$defs"]}, [1] * 2_000),
        ({"pattern": "a{999}" * 42 + "b"}, "a" * 1_000_000),
        ({"pattern": "[^b]{999}" * 28 + "b"}, "a" * 30_000),
        ({"items": {"anyOf": [*({"pattern": f"a{{{n}}}b+"} for n in range(800)), {}]}}, ["z"] * 1_000),
        ({"items": {}}, [0] * 900_000),
        ({"contains": {}, "minContains": 10**9}, [0] * 900_000),
        ({"additionalProperties": {}}, MANY_NAMES),
        ({"propertyNames": {}}, MANY_NAMES),
        ({"items": {"prefixItems": [{}] * 900}}, [[0] * 900] * 500),
        ({"items": {"properties": {f"{n}": {} for n in range(900)}}}, [{f"{n}": 0 for n in range(900)}] * 500),
        ({"items": {"allOf": [{}] * 900}}, [0] * 500),
        ({"items": {"enum": [*range(1, 5_000), 0]}}, [0] * 2_000),
        ({"items": {"anyOf": [{"required": [f"{n}" for n in range(3_000)]}, {}]}}, [{}] * 300),
        ({"items": {"anyOf": [{"dependentRequired": {"a": list("bcdefghijk")}}, {}]}}, [{"a": 0}] * 25_000),
        ({"items": {"anyOf": [{"not": {"examples": ["x"] * 7_000}}, {}]}}, [0] * 1_000),
        ({"items": {"$ref": "#/$defs/" + "%61" * 3_000}, "$defs": {"a" * 3_000: {}}}, [0] * 1_000),
        ({"items": {"multipleOf": 5e-324}}, [1.7e308] * 70_000),
        ({"uniqueItems": True}, [list(range(1_000))] * 400),
        ({"$schema": DIALECT, "anyOf": [{"type": "null"}, {"items": {"$ref": "#"}}]}, [[0] * 30_000] * 5),
    ],
)
def test_no_body_costs_more_than_its_budget(schema: Any, body: Any) -> None:
    """What cannot be shown to be kept was not kept, and the next body has a budget of its own."""
    ready = Schema(check(schema, AT))
    began = time.monotonic()
    assert ready.broken_by(body) == COSTLY
    assert time.monotonic() - began < 10
    assert ready.broken_by(None) is None


@pytest.mark.parametrize(
    ("schema", "body"),
    [
        ({"items": {"type": "integer"}}, [1] * 100_000),
        ({"properties": {"n": {"items": {"type": "integer", "minimum": 0}}}}, {"n": [1] * 80_000}),
        ({"items": {"pattern": UUID}}, ["0f8fad5b-d9cb-469f-a165-70867728950e"] * 4_000),
        ({"type": "object", "required": ["t"], "properties": {"t": {"pattern": "^.+$"}}}, {"t": "a" * 1_000_000}),
        ({"items": {"enum": [f"{n}" for n in range(1_500)]}}, ["7"] * 1_000),
    ],
)
def test_what_people_really_ask_for_stays_within_the_budget(schema: Any, body: Any) -> None:
    assert Schema(check(schema, AT)).broken_by(body) is None


@pytest.mark.parametrize(
    ("wrong", "body"),
    [
        (False, "\U000e0001" * 1_000_000),
        ({"type": "null"}, [[list(range(300_000))]]),
        ({"additionalProperties": False}, {"\U000e0001" * 1_000_000: 0}),
    ],
)
def test_a_body_is_not_spelled_for_each_choice_that_it_does_not_fit(wrong: Any, body: Any) -> None:
    """The library writes it out whole for each; all of them together would take half a minute."""
    ready = Schema(check({"anyOf": [*[wrong] * 450, {}]}, AT))
    began = time.monotonic()
    assert ready.broken_by(body) is None
    assert time.monotonic() - began < 5


def test_many_different_things_are_told_apart_in_one_pass() -> None:
    """The library would compare each pair of them."""
    began = time.monotonic()
    assert Schema({"uniqueItems": True}).broken_by([{"a": n} for n in range(50_000)]) is None
    assert time.monotonic() - began < 5


def test_a_deep_body_under_a_schema_of_itself_is_judged() -> None:
    tree: Any = {"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#"}}]}
    body: Any = None
    for _ in range(62):
        body = [body]
    assert Schema(check(tree, AT)).broken_by(body) is None


WORDS = st.sampled_from(
    [
        "type",
        "properties",
        "items",
        "allOf",
        "not",
        "$ref",
        "$defs",
        "pattern",
        "enum",
        "const",
        "required",
        "if",
        "then",
        "multipleOf",
        "minimum",
        "maxLength",
        "contains",
        "minContains",
        "uniqueItems",
        "dependentSchemas",
        "format",
        "propertyNames",
        "prefixItems",
        "additionalProperties",
        "dependentRequired",
        "$id",
        "a",
    ]
)
PLAIN = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
) | st.sampled_from(["", "#", "#/$defs/a", "string", "object", "^a+$", "a?b*", "\u00e9"])
ANYTHING = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4), max_leaves=12
)


@given(ANYTHING, ANYTHING)
@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_is_sent_ends_in_a_refusal_or_in_an_answer(schema: Any, body: Any) -> None:
    try:
        taken = check(schema, AT)
    except RequestInvalid:
        return
    broken = Schema(taken).broken_by(body)
    assert broken is None or broken.isprintable()
