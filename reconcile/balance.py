"""The balance of one try at a result: submitted ids, what was found, and what that says of the contract (J3)."""

from reconcile.model import Operation, Problems, Summary
from reconcile.store.items import Tally


def add_up(tally: Tally, absent: str, op: Operation, unreadable: tuple[int, ...]) -> tuple[Summary, Problems]:
    """The balance of one attempt (J3), and how it breaks the contract.

    A job whose ids nobody knows is held to a count: the one that the client promised, else the provider's.
    """
    counts = dict(tally.by_outcome)
    expected = found = None
    total_items: int | None = op.expect.get("items", op.total_items)
    if op.input_items is None and total_items is not None:
        short = total_items - tally.found
        counts[absent] = counts.get(absent, 0) + max(0, short)
        if short < 0 or (short > 0 and absent == "missing"):
            expected, found = total_items, tally.found
    total = sum(counts.values())
    words = ("succeeded", "failed", "cancelled", "expired", "missing")
    summary = Summary(total=total, **{word: counts.get(word, 0) for word in words})
    problems = Problems(
        duplicate=tally.duplicate,
        unknown=tally.unknown,
        missing=tally.missing,
        unreadable_lines=unreadable,
        expected=expected,
        found=found,
    )
    return summary, problems


def other_count(op: Operation, problems: Problems) -> tuple[str, ...]:
    """The same for the number of items, where it was the start that named one."""
    if "items" not in op.expect or problems.expected is None or problems.expected == problems.found:
        return ()
    return (f"expected {problems.expected} items, got {problems.found}",)
