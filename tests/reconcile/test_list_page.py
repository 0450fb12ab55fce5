"""A page is read the same, whether its entries are known, new, or spelled in a way that nobody foresaw."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile import list_page, read_json
from reconcile.errors import Unreadable
from reconcile.list_page import read_list_page
from reconcile.provider import unknown
from reconcile.read_json import SMALL, JsonValue

#: Texts in which an end of an entry, or of the page, seems to stand.
TRAPS = st.sampled_from(["},{", "}, {", "}]", "[", "[0]", '"', "\\", '\\"},{"id":"job_9"', "\u2028", "é"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TRAPS | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TRAPS | st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TRAPS | st.text(max_size=3), VALUES, max_size=3)
AROUND = st.dictionaries(st.sampled_from(["first_id", "has_more", "object", "a[", "z"]), VALUES, max_size=3)
#: As servers write JSON: close together, with spaces, and for people.
SPELLINGS: list[Mapping[str, Any]] = [{"separators": (",", ":")}, {}, {"indent": 2}, {"ensure_ascii": False}]

#: Entries of a page, beyond any here.
MOST = 1_000


def by_text(texts: list[bytes]) -> Callable[[bytes], int | None]:
    """Those texts are known, by their numbers."""
    return lambda text: texts.index(text) if text in texts else None


def page(*entries: Any, **around: Any) -> bytes:
    return json.dumps({"object": "list", "data": list(entries), "has_more": False, **around}).encode()


@given(st.lists(OBJECTS | VALUES, max_size=4), AROUND, AROUND, st.sampled_from(SPELLINGS), st.data())
def test_a_page_is_its_entries_and_what_stands_around_them(
    entries: list[Any], before: Any, after: Any, spelling: Any, data: st.DataObject
) -> None:
    body = {**before, "data": entries, **{key: value for key, value in after.items() if key not in before}}
    text = json.dumps(body, **spelling).encode()
    read = read_list_page(text, "data", unknown, most=MOST)
    assert [entry for entry, _ in read.entries] == entries
    assert [json.loads(text) for _, text in read.entries] == entries
    assert (read.count, read.last) == (len(entries), entries[-1] if entries else None)
    assert {key: value for key, value in read.around.items() if key != "data"} == {
        key: value for key, value in body.items() if key != "data"
    }
    known = data.draw(st.sets(st.integers(0, 3)))
    texts = [text for number, (_, text) in enumerate(read.entries) if number in known]
    again = read_list_page(text, "data", by_text(texts), most=MOST)
    assert [found for found in again.entries if found[1] not in texts] == again.entries
    assert again.entries == [found for found in read.entries if found[1] not in texts]
    assert again.known == [texts.index(text) for _, text in read.entries if text in texts]
    assert (again.count, again.last, again.around) == (read.count, read.last, read.around)


def test_an_entry_is_given_as_it_is_written() -> None:
    text = b'{"data": [ {"id" : "a"},\n {"id":"b", "x":[{},{}]} ] , "has_more":true}'
    read = read_list_page(text, "data", unknown, most=MOST)
    assert [text for _, text in read.entries] == [b'{"id" : "a"}', b'{"id":"b", "x":[{},{}]}']


@pytest.mark.parametrize("data", [[0], [False], ["all the entries"], ["\\u0061ll the entries"], []])
def test_a_list_that_stands_before_that_of_the_entries_is_none_of_them(data: list[Any]) -> None:
    text = json.dumps({"before": {"data": [{"id": "a"}]}, "data": data}).replace("\\\\", "\\").encode()
    read = read_list_page(text, "data", unknown, most=MOST)
    assert [entry for entry, _ in read.entries] == json.loads(text)["data"]


def test_a_long_entry_is_known_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_page, "LONGEST", 20)
    text = page({"id": "a"}, {"id": "b", "note": "longer than that"}, {"id": "c"})
    texts = [text for _, text in read_list_page(text, "data", unknown, most=MOST).entries]
    assert read_list_page(text, "data", by_text(texts), most=MOST).known == [0, 1, 2]


def test_what_is_known_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the first, which shows how they are set apart, and the last."""
    parsed: list[int] = []

    def read_value_at(text: str, at: int) -> tuple[JsonValue, int]:
        parsed.append(at)
        return read_json.read_value_at(text, at)

    monkeypatch.setattr(list_page, "read_value_at", read_value_at)
    text = page(*({"id": f"job_{number}", "counts": {"total": 1}} for number in range(100)))
    texts = [text for _, text in read_list_page(text, "data", unknown, most=MOST).entries]
    parsed.clear()
    read = read_list_page(text, "data", by_text(texts), most=MOST)
    assert (len(parsed), read.known, read.entries) == (2, list(range(100)), [])


@pytest.mark.parametrize(
    "text",
    [
        b'{"data":[{"id":"a","id":"b"},{"id":"c"}]}',
        b'{"data":[{"id":"a"},{"id":NaN}]}',
        b'{"data":[{"id":"a"},{"n":12345678901234567890}]}',
        b'{"data":[{"id":"\\ud800"},{"id":"b"}]}',
        b'{"data":[{"id":"a"},{"id":"b"}],"data":[]}',
        b'{"data":[{"id":"a"},{"id":"b"}',
        b'{"data":[{"id":"a"},{"id":"b"},]}',
        b'{"data":[{"id":"a"}{"id":"b"}]}',
        b'{"data":[{"id":"a"},{"id":"\xff"}]}',
        b'{"data":[{"id":' + b"[" * 70 + b"]" * 70 + b"}]}",
        b'{"data":{"id":"a"}}',
        b'[{"id":"a"}]',
        b"",
    ],
)
def test_what_is_no_json_that_we_accept_is_refused_whole(text: bytes) -> None:
    with pytest.raises(Unreadable):
        read_list_page(text, "data", unknown, most=MOST)


@pytest.mark.parametrize(
    "text",
    [
        b'{"other":[{"id":"x"}],"data":[{"id":"a"}]}',
        b'{"other":[{"id":"x"},{"id":"y"}],"data":[]}',
        b'{"other":{"data":[{"id":"x"}]},"data":[{"id":"a"},{"id":"b"}]}',
        b'{"note":"[{},{}]","data":[{"id":"a"}]}',
        b'{"other":[{"id":"x"}],"data":[0]}',
        b'{"other":[{"id":"x"}],"data":[false]}',
        b'{"other":{"data":[{"id":"x"}]},"data":[0.0]}',
    ],
)
def test_other_arrays_are_not_taken_for_the_list(text: bytes) -> None:
    read = read_list_page(text, "data", unknown, most=MOST)
    assert [entry for entry, _ in read.entries] == json.loads(text)["data"]
    assert read.count == len(json.loads(text)["data"])


@pytest.mark.parametrize("after", [b"]}", b",7]}", b'],"note":"' + b"x" * SMALL + b'"}'])
@pytest.mark.parametrize("entry", [b"{}", b'{"id":"a\\n"}'])
def test_entries_of_a_page_that_is_too_long_are_counted_alone(entry: bytes, after: bytes) -> None:
    """A megabyte of empty entries would stop the event loop for seconds, were each of them looked at."""
    asked: list[bytes] = []
    text = b'{"data":[' + b",".join([entry] * 20_000) + after
    read = read_list_page(text, "data", asked.append, most=100)
    assert (read.count, read.entries, read.known) == (20_001 if after == b",7]}" else 20_000, [], [])
    assert len(asked) <= 2 * 100
