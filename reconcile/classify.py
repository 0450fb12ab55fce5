"""The one reader of provider status words (C2). Webhooks, polls, list pages and create answers all pass here."""

from reconcile.contract import Contract
from reconcile.model import Verdict, VerdictKind


def classify(contract: Contract, word: str | None) -> Verdict:
    """What a status word means. An undocumented one, or none at all, is pending and not known: never an end."""
    match contract.words.get(word) if word is not None else None:
        case None:
            return Verdict(VerdictKind.PENDING, word, known=False)
        case documented:
            return Verdict(documented.kind, word, known=True, may_hold_results=documented.may_hold_results)
