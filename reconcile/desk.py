"""What people and clients ask of a standing operation, made into evidence: a cancel, an input, a decision.

Nothing is sent here, and nothing is judged: what is asked is committed as an intent, or refused, by `decide` on the row
as it stands; a worker does the rest.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from reconcile.decisions import Decision
from reconcile.errors import NotOpen, StoreBusy, WriteRefused
from reconcile.evidence import CancelAsked, Evidence, InputAsked, PersonDecided
from reconcile.files import Files
from reconcile.ingest import Ingest
from reconcile.model import Operation
from reconcile.peer import Peer
from reconcile.seams import Dice

#: The beginning of an input's id; its spool file bears it after the operation's own.
INPUT_PREFIX: Final = "inp_"


@dataclass(frozen=True, slots=True)
class Decided:
    """A person's decision as it was given, each field checked for its type."""

    decision: Decision
    by: str
    reason: str
    remote_job_id: str | None = None
    within_ms: int | None = None


class Desk:
    """Takes what is asked of an operation; gives the operation as it stands after the commit.

    `actor` is the history's word for who asks; `by` is what that one said of itself.
    """

    def __init__(self, *, ingest: Ingest, peers: Mapping[str, Peer], files: Files, dice: Dice) -> None:
        self._ingest = ingest
        self._peers = peers
        self._files = files
        self._dice = dice

    async def cancel(self, op: Operation, *, actor: str, by: str, reason: str, effect: str) -> Operation:
        """Record the intent, once; whoever asks again gets the first one. Raises: NotOpen, StoreError."""
        cancel_id = self._dice.identifier("can_")
        asked = CancelAsked(cancel_id, by, reason, effect)
        return await self._ask(op, asked, actor=actor, cause=f"cancel:{cancel_id}")

    async def give_input(self, op: Operation, *, actor: str, by: str, data: bytes) -> Operation:
        """Make the input durable, then record it; no file is left where surely no row names it.

        Raises: NotOpen, StoreError, OSError.
        """
        self._refuse_unknown(op)
        input_id = self._dice.identifier(INPUT_PREFIX)
        writer = self._files.create(f"spool/{op.operation_id}.{input_id}.json")
        try:
            writer.write(data)
            written = await writer.finish()
        finally:
            writer.discard()
        asked = InputAsked(input_id, by, written.ref, written.sha256)
        try:
            return await self._ask(op, asked, actor=actor, cause=f"input:{input_id}")
        except (NotOpen, StoreBusy, WriteRefused):
            self._files.remove(written.ref)
            raise

    async def decide(self, op: Operation, said: Decided, *, actor: str) -> Operation:
        """Do what the decision's offer promises. Raises: NotOpen, StoreError."""
        decision_id = self._dice.identifier("dec_")
        decided = PersonDecided(decision_id, said.decision, said.by, said.reason, said.remote_job_id, said.within_ms)
        return await self._ask(op, decided, actor=actor, cause=f"decision:{decision_id}")

    async def _ask(self, op: Operation, asked: Evidence, *, actor: str, cause: str) -> Operation:
        self._refuse_unknown(op)
        change = await self._ingest.fact(op, asked, actor=actor, cause=cause)
        if change.refusal is not None:
            raise NotOpen(change.refusal)
        return change.operation

    def _refuse_unknown(self, op: Operation) -> None:
        """A provider that is only missing has a contract all the same: the one of its kind."""
        if op.provider not in self._peers:
            raise NotOpen(unknown_provider(op.provider))


def unknown_provider(provider: str) -> str:
    """Why nothing can be asked of an operation whose provider is of no known kind."""
    return f"nobody knows the kind of the provider {provider}, so nothing can be asked of it"
