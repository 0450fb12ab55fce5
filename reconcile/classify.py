"""The one judge of status words (C2): those of webhooks, polls, look-ups and create answers all come here.

An adapter may make the word out of several fields of a body; what the word means is said by the contract alone.
"""

from reconcile.contract import Contract
from reconcile.model import Verdict, VerdictKind


def classify(contract: Contract, word: str | None) -> Verdict:
    """What a status word means. An undocumented one, or none at all, is pending and not known: never an end."""
    match contract.words.get(word) if word is not None else None:
        case None:
            return Verdict(VerdictKind.PENDING, word, known=False)
        case documented:
            return Verdict(documented.kind, word, known=True, may_hold_results=documented.may_hold_results)
