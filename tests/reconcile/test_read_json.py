"""The door for strangers' JSON: what it lets through is safe to keep, and nothing gets another error out of it."""

import json
import re
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reconcile.errors import Unreadable
from reconcile.read_json import (
    MAX_DEPTH,
    MAX_VALUES,
    JsonValue,
    integer,
    listing,
    mapping,
    read_id,
    read_json,
    read_object,
    text,
)

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30)

#: Text of JSON with all that is refused, and what looks like it inside of strings.
STRING_PARTS = [*"aé[]{}:,", "NaN", "1e9", "9" * 20, r"\"", r"\\", r"\u0061", r"\ud83d\ude00", r"\ud83d", r"\n"]
STRINGS = st.lists(st.sampled_from(STRING_PARTS), max_size=3).map(lambda parts: '"' + "".join(parts) + '"')
LARGE = ["1" * 18, "1" * 19, "1" * 33, "0." + "1" * 31, str(2**63 - 1), str(2**63), str(-(2**63) - 1)]
NUMBERS = st.sampled_from(
    [*LARGE, "0", "-0", "1.0", "1e2", "1E400", "-1e999", "01", "NaN", "-Infinity", "true", "null"]
)
TEXTS = st.recursive(
    NUMBERS | STRINGS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda parts: "[" + ", ".join(parts) + "]")
        | st.lists(st.tuples(STRINGS, inner), max_size=3).map(
            lambda pairs: "{" + ",".join(f"{key} :{value}" for key, value in pairs) + "}"
        )
    ),
    max_leaves=8,
)

REFUSED = {
    "nothing": b"",
    "white space": b" \n",
    "not UTF-8": b'"\xff"',
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "a raw surrogate": b'"\xed\xa0\x80"',
    "two BOMs": b"\xef\xbb\xbf\xef\xbb\xbf1",
    "NaN": b'{"a":NaN}',
    "Infinity": b"[Infinity]",
    "-Infinity": b"[-Infinity]",
    "1e999": b'{"a":1e999}',
    "-1e999": b"-1e999",
    "2**63": b"9223372036854775808",
    "-2**63-1": b"-9223372036854775809",
    "a 5,000-digit number": b"1" * 5000,
    "a 5,000-digit fraction": b"0." + b"1" * 5000,
    "half a pair": rb'"\ud800"',
    "the other half": rb'["x\udfff"]',
    "a pair in the wrong order": rb'"\ude00\ud83d"',
    "half a pair in a key": rb'{"\uD800":1}',
    "half a pair deep inside": rb'[{"a":["\ud83d\ude00\ud83d"]}]',
    "a key twice": b'{"a":1,"a":1}',
    "a key twice, once escaped": rb'{"a":1,"\u0061":2}',
    "a key twice deep inside": b'[[{"b":{"a":1,"a":2}}]]',
    "trailing garbage": b"{} x",
    "two values": b"{}{}",
    "a raw control character": b'"a\x00b"',
    "a cut object": b'{"a":',
    "a cut string": b'"abc',
    "a cut escape": b'"abc\\',
    "single quotes": b"{'a':1}",
    "a leading zero": b"01",
    "one level too many": b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
    "one object level too many": b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1),
    "64 KiB of [": b"[" * 65536,
    "64 KiB of {": b'{"":' * 16384,
    "deep after a string that hides quotes": b'["\\"[",' + b"[" * 5000 + b"]" * 5001,
    "deep behind many shallow ones": b"[" + b"[]," * 5000 + b"[" * 5000 + b"]" * 5001,
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_kept_is_unreadable(data: bytes) -> None:
    with pytest.raises(Unreadable):
        read_json(data)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"null", None),
        (b" [1, -0, 1.5, 1e2, true] ", [1, 0, 1.5, 100.0, True]),
        (b'\xef\xbb\xbf{"a":1}', {"a": 1}),
        (b"9223372036854775807", 2**63 - 1),
        (b"-9223372036854775808", -(2**63)),
        (b"-1.7976931348623157e+308", -1.7976931348623157e308),
        (rb'"\ud83d\ude00"', "\U0001f600"),
        (rb'"a\u0000b"', "a\x00b"),
        (rb'"\\ud800"', "\\ud800"),
        (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, json.loads("[" * MAX_DEPTH + "]" * MAX_DEPTH)),
        (b'["' + b"[{" * 500 + b'"]', ["[{" * 500]),
        (rb'["\"' + b"[" * 500 + rb'\\"]', ['"' + "[" * 500 + "\\"]),
        (b"[" + b"[]," * 500 + b"{}]", [*([[]] * 500), {}]),
    ],
)
def test_json_within_the_limits_is_read_as_it_stands(data: bytes, value: JsonValue) -> None:
    assert read_json(data) == value


@given(VALUES, st.booleans())
def test_whatever_json_states_is_read_back(value: Any, ascii_only: bool) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert read_json(data) == value


@given(st.binary() | st.text(alphabet='[]{}",:\\ud8019eE+-. nNaIt').map(str.encode))
def test_any_bytes_end_in_a_value_or_in_unreadable(data: bytes) -> None:
    try:
        value = read_json(data)
    except Unreadable:
        return
    # What was let through can be written out again, in the strictest way.
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")


@given(TEXTS, st.none() | st.tuples(st.integers(0, 60), st.integers(0, 2), st.sampled_from(['"', "\\", "]", "1", ":"])))
def test_a_document_of_many_brackets_is_read_and_refused_as_a_small_one(
    text: str, broken: tuple[int, int, str] | None
) -> None:
    if broken is not None:  # something in place of up to two characters
        at, cut, put = broken
        text = text[:at] + put + text[at + cut :]
    data = text.encode()
    assume(data.count(b"[") + data.count(b"{") < MAX_DEPTH)
    few, many = (said(b"[" + before + data + b"]") for before in (b"0,", b"[]," * (MAX_DEPTH + 1)))
    assert few == many


def said(data: bytes) -> str:
    """What stands in an array behind what does not matter, or why it is refused, wherever in the text that is."""
    try:
        value = read_json(data)
    except Unreadable as error:
        return re.sub(r"character \d+", "", error.reason)
    assert isinstance(value, list)
    return json.dumps([part for part in value[1:] if part != []], sort_keys=True)


@pytest.mark.parametrize("end", [b"", b"\\"])
def test_strings_that_never_close_are_refused_in_one_pass(end: bytes) -> None:
    """A scan that backtracks would be busy for hours with these."""
    with pytest.raises(Unreadable):
        read_json(b"[" * 100 + b'"' + b'\\"' * 1_000_000 + end)
    with pytest.raises(Unreadable):
        read_json(b"[" * 100 + b'"[' * 1_000_001 + end)


def test_a_reason_never_shows_the_input() -> None:
    for data in (b'{"password": hunter2}', b'{"hunter2":1,"hunter2":2}', b"hunter2"):
        with pytest.raises(Unreadable) as caught:
            read_json(data)
        assert "hunter2" not in caught.value.reason


@pytest.mark.parametrize("data", [b"[]", b"null", b'"{}"', b"1"])
def test_read_object_refuses_all_but_objects(data: bytes) -> None:
    with pytest.raises(Unreadable, match="not a JSON object"):
        read_object(data)


def test_read_object_reads_an_object() -> None:
    assert read_object(b'{"a":{}}') == {"a": {}}


@pytest.mark.parametrize("value", ["a", "batch_68", "projects/p/locations/l/jobs/1", "é", "a b", "x" * 512, "../../x"])
def test_an_ordinary_id_is_taken_as_it_is(value: str) -> None:
    assert read_id(value, what="job id") == value


@pytest.mark.parametrize(
    "value",
    [
        *(None, 1, True, b"a", ["a"], "", "x" * 513, "a\x00", "\n", "a\x1f", "\x7f", "\x80", "\x9f", "\ud800"),
        *("\udfff", "\u2028", "\u2029", "\u202e", "\u202a", "\u2066", "\u2069", "\u200e", "\u200f", "\u061c"),
    ],
)
def test_an_id_that_could_break_a_log_line_or_a_path_is_refused_by_name(value: object) -> None:
    with pytest.raises(Unreadable, match=r"^job id: "):
        read_id(value, what="job id")


def test_accessors_give_none_for_what_is_absent_null_or_of_another_type() -> None:
    obj: dict[str, JsonValue] = {"s": "x", "i": 7, "b": True, "f": 1.0, "m": {"k": 1}, "l": [1], "n": None}
    found: dict[str, dict[str, object]] = {
        name: {key: read(obj, key) for key in (*obj, "absent") if read(obj, key) is not None}
        for name, read in {"text": text, "integer": integer, "mapping": mapping, "listing": listing}.items()
    }
    assert found == {"text": {"s": "x"}, "integer": {"i": 7}, "mapping": {"m": {"k": 1}}, "listing": {"l": [1]}}


def test_a_document_of_too_many_values_is_refused_before_it_costs_memory() -> None:
    """Sixty megabytes of `[],` would become more than a gigabyte."""
    with pytest.raises(Unreadable, match="values"):
        read_json(b"[" + b"[]," * (MAX_VALUES + 1) + b"0]")


def test_commas_and_brackets_in_a_long_text_are_no_values() -> None:
    text = "[{," * (MAX_VALUES + 1)
    assert read_json(json.dumps([text]).encode()) == [text]


@pytest.mark.parametrize("before", ["", "\\", "\\\\", '"', '\\"', '"\\', "\n", "[\\"])
def test_where_a_string_ends_tells_brackets_in_it_from_depth(before: str) -> None:
    in_strings = [before, "[" * (MAX_DEPTH + 1), before]
    assert read_json(json.dumps(in_strings).encode()) == in_strings
    with pytest.raises(Unreadable, match="nested deeper"):
        read_json(f"[{json.dumps(before)},{'[' * MAX_DEPTH}{']' * MAX_DEPTH}]".encode())
