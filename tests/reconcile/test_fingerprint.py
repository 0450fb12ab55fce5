"""Two starts are the same start exactly when their fingerprints are equal."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.errors import Unreadable
from reconcile.fingerprint import canonical_json, fingerprint
from reconcile.read_json import JsonValue, read_json

BASE: dict[str, Any] = {"provider": "openai", "kind": "batch", "input_sha256": "ab"}


@pytest.mark.parametrize(
    ("value", "spelled"),
    [
        ({"b": 1, "a": [True, None, 1.5]}, b'{"a":[true,null,1.5],"b":1}'),
        ({"é": "€", "z": "\n"}, '{"z":"\\n","é":"€"}'.encode()),
        ([], b"[]"),
    ],
)
def test_the_canonical_form_is_sorted_tight_and_utf_8(value: JsonValue, spelled: bytes) -> None:
    assert canonical_json(value) == spelled


@given(st.dictionaries(st.text(), st.integers(-(2**63), 2**63 - 1) | st.text()))
def test_key_order_and_spaces_do_not_count(value: Any) -> None:
    backwards = json.dumps(dict(reversed(value.items())), indent=3).encode()
    assert canonical_json(read_json(backwards)) == canonical_json(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {"\udfff": 1}])
def test_what_json_cannot_state_is_unreadable(value: JsonValue) -> None:
    with pytest.raises(Unreadable):
        canonical_json(value)


def test_a_value_without_an_end_is_unreadable() -> None:
    endless: list[JsonValue] = []
    endless.append(endless)
    deep: list[JsonValue] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (endless, deep):
        with pytest.raises(Unreadable):
            canonical_json(value)


def test_the_fingerprint_is_the_sha_256_of_the_whole_request() -> None:
    whole = b'{"input":"ab","kind":"batch","provider":"openai","request":{"a":1}}'
    assert fingerprint({"a": 1}, **BASE) == hashlib.sha256(whole).hexdigest()


@pytest.mark.parametrize(
    "other",
    [
        fingerprint({"a": 2}, **BASE),
        fingerprint({"a": 1.0}, **BASE),
        fingerprint({"a": "1"}, **BASE),
        fingerprint({"a": 1, "b": None}, **BASE),
        fingerprint({"a": 1}, **{**BASE, "provider": "openai-2"}),
        fingerprint({"a": 1}, **{**BASE, "kind": "response"}),
        fingerprint({"a": 1}, **{**BASE, "input_sha256": "ac"}),
        fingerprint({"a": 1}, **{**BASE, "input_sha256": None}),
    ],
)
def test_whatever_differs_in_a_start_shows_in_its_fingerprint(other: str) -> None:
    assert other != fingerprint({"a": 1}, **BASE)
