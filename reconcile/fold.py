"""What follows from a history alone: the state, the job, the outcome and the deadlines of its operation (N27)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconcile.model import Deadlines, Operation
from reconcile.read_json import read_object


def read_facts(text: str) -> Mapping[str, Any]:
    """The facts of a row, out of the text that is hashed. Raises: Unreadable."""
    return {} if text == "{}" else read_object(text.encode("utf-8", "surrogatepass"))


@dataclass(slots=True)
class Fold:
    """One operation's history, taken row by row, oldest first."""

    state: str | None = None
    remote_job_id: str | None = None
    outcome: str | None = None
    deadlines: Mapping[str, Any] | None = None

    def take(self, kind: str, to_state: str | None, facts: Mapping[str, Any]) -> None:
        """The next row. What a row's facts do not name stays as it was."""
        if kind == "move":
            self.state = to_state
        self.remote_job_id = facts.get("remote_job_id", self.remote_job_id)
        self.outcome = facts.get("outcome", self.outcome)
        self.deadlines = facts.get("deadlines", self.deadlines)

    def difference(self, op: Operation) -> str | None:
        """The first thing in which the row is not what its history tells, in words; None where it is."""
        deadlines = {name: op.deadline(name) for name in Deadlines.__slots__}
        return self.difference_from(op.state.value, op.remote_job_id, op.outcome, deadlines)

    def difference_from(
        self, state: object, remote_job_id: object, outcome: object, deadlines: Mapping[str, Any]
    ) -> str | None:
        """As `difference`, from a row's fields; a deadline that is not named does not run."""
        told = self.deadlines if isinstance(self.deadlines, Mapping) else {}
        pairs: list[tuple[str, Any, Any]] = [
            ("state", state, self.state),
            ("remote_job_id", remote_job_id, self.remote_job_id),
            ("outcome", outcome, self.outcome),
        ]
        pairs += [(f"{name} deadline", deadlines.get(name), told.get(name)) for name in Deadlines.__slots__]
        for name, stands, folded in pairs:
            if stands != folded:
                return f"its {name} is {stands}, and its history tells {folded}"
        return None
