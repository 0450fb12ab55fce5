"""classify is total, and an unknown word is pending: unknown never means done (C2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.classify import classify
from reconcile.contract import Contract
from reconcile.model import ENDS, Verdict, VerdictKind
from tests.reconcile.rows import ALL_CONTRACTS, CONTRACT

K = VerdictKind
WORDS = {
    "queued": (K.PENDING, False),
    "running": (K.PENDING, False),
    "waiting": (K.BLOCKED, False),
    "done": (K.DONE, False),
    "ended": (K.DONE_UNKNOWN_OUTCOME, False),
    "failed": (K.FAILED, False),
    "failed+files": (K.FAILED, True),
    "cancelled": (K.CANCELLED, False),
    "cancelled+files": (K.CANCELLED, True),
    "window_closed": (K.EXPIRED, False),
    "window_closed+files": (K.EXPIRED, True),
    "forgotten": (K.GONE, False),
}


@pytest.mark.parametrize(("word", "meaning"), WORDS.items())
def test_a_documented_word_means_what_the_contract_says(word: str, meaning: tuple[K, bool]) -> None:
    kind, may_hold_results = meaning
    assert classify(CONTRACT, word) == Verdict(kind, word, known=True, may_hold_results=may_hold_results)


@pytest.mark.parametrize("word", [None, "", "DONE", "done ", " done", "done\x00", "succeeded", "cancelling", "déjà"])
def test_an_undocumented_word_is_pending_and_not_known(word: str | None) -> None:
    assert classify(CONTRACT, word) == Verdict(K.PENDING, word, known=False)


@given(word=st.text() | st.none() | st.sampled_from(list(WORDS)), contract=st.sampled_from(ALL_CONTRACTS))
def test_any_text_gives_a_verdict_and_only_a_documented_word_an_end(word: str | None, contract: Contract) -> None:
    """N14: total, pure, and blind to everything but the words."""
    verdict = classify(contract, word)
    assert verdict.word == word
    assert verdict == classify(CONTRACT, word)
    if word not in WORDS:
        assert (verdict.kind, verdict.known, verdict.may_hold_results, verdict.is_end) == (
            K.PENDING,
            False,
            False,
            False,
        )


def test_the_ends_are_these_five_and_gone_is_none() -> None:
    assert {k.value for k in ENDS} == {"DONE", "DONE_UNKNOWN_OUTCOME", "FAILED", "CANCELLED", "EXPIRED"}
    assert [k.value for k in K if not Verdict(k, "w").is_end] == ["PENDING", "BLOCKED", "GONE"]
