"""Whatever is done to a written history, the walk of its chain names the first row that is not as it was (N26)."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.chain import GENESIS, ChainedRow, row_hash
from tests.reconcile.chains import verify

Chain = list[tuple[ChainedRow, str]]

FIRST = ChainedRow(
    position=10,
    operation_id="op_a",
    seq=1,
    at=1_700_000_000_000,
    actor="client",
    kind="transition",
    from_state=None,
    to_state="create_pending",
    cause="started",
    remote_job_id=None,
    reason="",
    facts="{}",
)


def chained(rows: list[ChainedRow]) -> Chain:
    chain: Chain = []
    previous = GENESIS
    for row in rows:
        previous = row_hash(previous, row)
        chain.append((row, previous))
    return chain


def history(length: int = 4) -> Chain:
    return chained([replace(FIRST, seq=n, position=10 * n, reason=f"step {n}") for n in range(1, length + 1)])


def test_a_whole_chain_has_no_fault() -> None:
    chain = history()
    assert verify(chain, head=chain[-1][1], length=4) is None
    assert verify(chain, head=None, length=None) is None


def test_a_chain_without_rows_is_whole_unless_rows_were_recorded() -> None:
    assert verify([], head=None, length=None) is None
    assert verify([], head=GENESIS, length=0) is None
    assert "cut" in str(verify([], head=None, length=2))
    assert verify([], head=history()[-1][1], length=None) is not None


def test_the_hash_is_over_the_hash_before_and_a_json_array_of_all_fields() -> None:
    spelled = (
        '[10,"op_a",1,1700000000000,"client","transition",null,"create_pending","started",null,"\\"é\\u0000","{}"]'
    )
    row = replace(FIRST, reason='"é\x00')
    assert row_hash(GENESIS, row) == hashlib.sha256((GENESIS + spelled).encode()).hexdigest()


@pytest.mark.parametrize("name", [field.name for field in fields(ChainedRow)])
def test_every_field_is_under_the_hash(name: str) -> None:
    value: Any = getattr(FIRST, name)
    other: Any = value + 1 if isinstance(value, int) else f"{value}x"
    changed = replace(FIRST, **{name: other})
    assert row_hash(GENESIS, changed) != row_hash(GENESIS, FIRST)
    assert row_hash("1" * 64, FIRST) != row_hash(GENESIS, FIRST)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"cause": "ab", "remote_job_id": "c"}, {"cause": "a", "remote_job_id": "bc"}),
        ({"cause": 'a","b', "reason": "c"}, {"cause": "a", "reason": 'b","c'}),
        ({"remote_job_id": None}, {"remote_job_id": ""}),
        ({"remote_job_id": None}, {"remote_job_id": "null"}),
        ({"reason": "\ud83d\ude00"}, {"reason": "\U0001f600"}),
    ],
)
def test_text_cannot_move_between_fields_unseen(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert row_hash(GENESIS, replace(FIRST, **one)) != row_hash(GENESIS, replace(FIRST, **other))


def changed(chain: Chain) -> Chain:
    row, stored = chain[1]
    return [chain[0], (replace(row, reason="other"), stored), *chain[2:]]


def changed_with_its_hash(chain: Chain) -> Chain:
    row = replace(chain[1][0], reason="other")
    return [chain[0], (row, row_hash(chain[0][1], row)), *chain[2:]]


def hash_changed(chain: Chain) -> Chain:
    row, stored = chain[1]
    return [chain[0], (row, "f" + stored[1:] if stored[0] != "f" else "0" + stored[1:]), *chain[2:]]


def removed(chain: Chain) -> Chain:
    return [chain[0], *chain[2:]]


def first_removed(chain: Chain) -> Chain:
    return chain[1:]


def swapped(chain: Chain) -> Chain:
    return [chain[0], chain[2], chain[1], chain[3]]


def doubled(chain: Chain) -> Chain:
    return [*chain[:2], *chain[1:]]


def numbered_anew_after_a_removal(chain: Chain) -> Chain:
    return [chain[0], *((replace(row, seq=row.seq - 1), stored) for row, stored in chain[2:])]


def of_another_operation(chain: Chain) -> Chain:
    row = replace(chain[1][0], operation_id="op_b")
    return [chain[0], (row, row_hash(chain[0][1], row)), *chain[2:]]


def moved_in_the_whole(chain: Chain) -> Chain:
    return chained([row if row.seq != 3 else replace(row, position=20) for row, _ in chain])


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (changed, "row 2 of op_a (position 20): its hash"),
        (changed_with_its_hash, "row 3 of op_a (position 30): its hash"),
        (hash_changed, "row 2 of op_a (position 20): its hash"),
        (removed, "row 3 of op_a (position 30): out of order, row 2"),
        (first_removed, "row 2 of op_a (position 20): out of order, row 1"),
        (swapped, "row 3 of op_a (position 30): out of order, row 2"),
        (doubled, "row 2 of op_a (position 20): out of order, row 3"),
        (numbered_anew_after_a_removal, "row 2 of op_a (position 30): its hash"),
        (of_another_operation, "row 2 of op_b (position 20): belongs to another operation"),
        (moved_in_the_whole, "row 3 of op_a (position 20): its position"),
    ],
)
def test_the_first_bad_row_is_named(damage: Callable[[Chain], Chain], named: str) -> None:
    fault = verify(damage(history()), head=None, length=None)
    assert fault is not None
    assert fault.startswith(named)


def test_a_cut_tail_shows_against_a_length_or_a_head_kept_elsewhere() -> None:
    chain = history()
    head = chain[-1][1]
    assert "after 3 rows, 4 were recorded" in str(verify(chain[:3], head=None, length=4))
    assert "row 3 of op_a" in str(verify(chain[:3], head=head, length=None))
    assert verify(chain[:3], head=None, length=None) is None  # what a chain alone cannot know


def test_rows_that_nobody_recorded_show_as_well() -> None:
    chain = history()
    assert "only 3 were recorded" in str(verify(chain, head=None, length=3))
    assert verify(chain, head=chain[2][1], length=None) is not None


def test_a_chain_rewritten_whole_shows_against_its_old_head() -> None:
    chain = history()
    forged = chained([replace(row, reason="nice") for row, _ in chain])
    assert verify(forged, head=None, length=4) is None
    assert "another head" in str(verify(forged, head=chain[-1][1], length=4))


@given(st.integers(0, 3), st.text(alphabet=st.characters(exclude_categories=[])), st.integers(0, 63))
def test_any_text_written_into_any_row_is_found(index: int, reason: str, digit: int) -> None:
    chain = history()
    row, stored = chain[index]
    if reason != row.reason:
        damaged = [*chain[:index], (replace(row, reason=reason), stored), *chain[index + 1 :]]
        assert f"row {index + 1} of" in str(verify(damaged, head=None, length=None))
    flipped = stored[:digit] + ("0" if stored[digit] != "0" else "1") + stored[digit + 1 :]
    damaged = [*chain[:index], (row, flipped), *chain[index + 1 :]]
    assert f"row {index + 1} of" in str(verify(damaged, head=None, length=None))


def test_the_facts_are_hashed_as_text_and_not_as_json() -> None:
    spaced = replace(FIRST, facts=json.dumps({"a": 1}))
    tight = replace(FIRST, facts='{"a":1}')
    assert row_hash(GENESIS, spaced) != row_hash(GENESIS, tight)
