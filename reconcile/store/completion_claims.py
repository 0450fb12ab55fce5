"""Completions that consumers take: each once for each consumer, decided by the insert, in the one writer (G6)."""

import sqlite3
from dataclasses import dataclass
from typing import Final

from reconcile.errors import WriteRefused
from reconcile.model import UnixMs
from reconcile.store.writer import Done, Kind


@dataclass(frozen=True, slots=True)
class CompletionClaim:
    """A consumer wants the one effect of an operation that has ended. `key`: whoever comes by it again is the same."""

    operation_id: str
    consumer: str
    actor: str
    at: UnixMs
    key: str | None


@dataclass(frozen=True, slots=True)
class CompletionTaken:
    """Who has it, and since when: whoever asked, or somebody before."""

    is_yours: bool
    at: UnixMs


_ENDED: Final = "SELECT key FROM present WHERE operation_id = ? AND completed_at IS NOT NULL"
_TAKE: Final = (
    "INSERT INTO completion_claims (operation_key, consumer, claimed_at, actor, claim_key) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT DO NOTHING"
)
_TAKEN: Final = "SELECT claimed_at, claim_key FROM completion_claims WHERE operation_key = ? AND consumer = ?"


def _take(connection: sqlite3.Connection, claim: CompletionClaim) -> Done:
    ended = connection.execute(_ENDED, (claim.operation_id,)).fetchone()
    if ended is None:  # it is being pruned: an operation that had ended does not open again
        raise WriteRefused(f"{claim.operation_id} has not ended, or is not there any more")
    key: int = ended[0]
    if connection.execute(_TAKE, (key, claim.consumer, claim.at, claim.actor, claim.key)).rowcount == 1:
        return Done(CompletionTaken(is_yours=True, at=claim.at))
    at, by_key = connection.execute(_TAKEN, (key, claim.consumer)).fetchone()
    return Done(CompletionTaken(is_yours=claim.key is not None and claim.key == by_key, at=at))


TAKE: Final = Kind("completion_claim", lambda connection, payloads: [_take(connection, claim) for claim in payloads])
