"""One job as a function of time, and what an OpenAI batch adds to it.

The one idea: a job has a plan (when it leaves each phase, and how it ends) and everything about it up to its end is
computed from the plan and the time asked about. A cancel makes a new plan. The end is latched when its time has
come, and from then on nothing changes it.
"""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

from daemon.standin.items import Fault, failed_of
from daemon.standin.scenarios import Scenario

#: Where in `duration_ms` validation ends and finalizing begins. Arbitrary; the last fifth stands at 100 % without being
#: done, for those who take the one for the other.
VALIDATED_AT, FINALIZING_AT = 0.1, 0.8
#: The only completion window there is, milliseconds.
WINDOW_MS = 24 * 3600 * 1000


@dataclasses.dataclass(frozen=True)
class Counts:
    """Items by how they stand; `total` is 0 until the input was validated."""

    total: int
    completed: int
    failed: int


@dataclasses.dataclass(slots=True, kw_only=True)
class Job:
    """A job and its plan, in words that suit both shapes. Only the account changes one."""

    #: Whether its provider announces ends at all.
    has_webhook: ClassVar[bool] = True

    id: str
    #: Place in the order of creation.
    place: int
    #: Already at the server's speed.
    scenario: Scenario
    custom_ids: Sequence[str]
    created_ms: int
    #: What validation finds; any: the job fails when it is over.
    faults: tuple[Fault, ...] = ()
    # The plan.
    validated_ms: int = 0
    finalizing_ms: int | None = None
    ends_ms: int | None = None
    ends: str = ""
    cancelling_ms: int | None = None
    #: Items that have run by the end.
    runs: int = 0
    #: The end has come; what follows no longer changes.
    ended: bool = False
    # What was asked of it.
    reads: int = 0
    cancels: int = 0

    def plan(self) -> None:
        """Fix the phases from the scenario; once, at creation."""
        scenario = self.scenario
        self.validated_ms = self.created_ms + int(scenario.duration_ms * VALIDATED_AT)
        self.runs = len(self.custom_ids)
        if scenario.ends != "completed":
            self.runs = int(self.runs * scenario.run_share)
        if self.faults:
            self.ends, self.ends_ms, self.runs = "failed", self.validated_ms, 0
        elif scenario.ends is not None:
            self.ends, self.ends_ms = scenario.ends, self.created_ms + scenario.duration_ms
            if scenario.ends != "failed":  # a failure comes out of the middle of the work
                self.finalizing_ms = self.created_ms + int(scenario.duration_ms * FINALIZING_AT)

    def plan_cancel(self, now_ms: int) -> None:
        """Take a cancel into the plan; only for a job that has not ended."""
        too_late = self.scenario.cancel_ends == "completed" and not self.faults
        self.runs = len(self.custom_ids) if too_late else self._run_at(now_ms)
        self.ends_ms, self.ends = now_ms + self.scenario.cancel_ms, "completed" if too_late else "cancelled"
        self.cancelling_ms = now_ms

    def take_read(self) -> int | None:
        """Count a read; the HTTP status of the trouble it runs into, None: none."""
        faults = self.scenario.read_faults
        status = faults[self.reads] if self.reads < len(faults) else None
        self.reads += 1
        return status

    def status(self, now_ms: int) -> str:
        """The status word at `now_ms`."""
        if self.ended:
            return self.ends
        if self.cancelling_ms is not None:
            return "cancelling"
        if now_ms < self.validated_ms:
            return "validating"
        if self.finalizing_ms is not None and now_ms >= self.finalizing_ms:
            return "finalizing"
        return self.scenario.working_word

    def counts(self, now_ms: int) -> Counts:
        """The counts shown at `now_ms`; items that never ran are in neither part."""
        if self.faults or (now_ms < self.validated_ms and not self.ended):
            return Counts(0, 0, 0)
        run = self._run_at(now_ms)
        failed = failed_of(run, self.scenario.failing_share)
        return Counts(len(self.custom_ids), run - failed, failed)

    def _run_at(self, now_ms: int) -> int:
        """How many items have run by `now_ms`."""
        if self.ended or (self.cancelling_ms is not None and self.ends == "cancelled" and now_ms >= self.cancelling_ms):
            return self.runs
        work_ends_ms = self.finalizing_ms or self.created_ms + self.scenario.duration_ms
        if now_ms < self.validated_ms:
            return 0
        if now_ms >= work_ends_ms:
            return self.runs
        return self.runs * (now_ms - self.validated_ms) // (work_ends_ms - self.validated_ms)

    def reached(self, now_ms: int) -> list[tuple[str, int]]:
        """The statuses it has been in by `now_ms`, each with the moment it began, in order."""
        moments: list[tuple[str, int | None]] = [
            ("validating", self.created_ms),
            (self.scenario.working_word, None if self.faults else self.validated_ms),
            ("finalizing", self.finalizing_ms),
        ]
        last_ms = self.ends_ms if self.ended and self.ends_ms is not None else now_ms
        if self.cancelling_ms is not None:
            moments = [(word, at) for word, at in moments if at is not None and at < self.cancelling_ms]
            moments.append(("cancelling", self.cancelling_ms))
        found = [(word, at) for word, at in moments if at is not None and at <= last_ms]
        if self.ended and self.ends_ms is not None:
            found.append((self.ends, self.ends_ms))
        return found

    def expires_ms(self) -> int:
        """When the completion window closes; a job that is to expire has a shorter one."""
        if self.scenario.ends == "expired" and self.finalizing_ms is not None:
            return self.finalizing_ms
        return self.created_ms + WINDOW_MS


@dataclasses.dataclass(slots=True, kw_only=True)
class Batch(Job):
    """A job as the OpenAI calls make it: its input and its results are files."""

    endpoint: str
    input_file_id: str
    model: str | None
    metadata: dict[str, str] | None
    #: How long result files are kept, seconds.
    kept_seconds: int
    output_file_id: str | None = None
    error_file_id: str | None = None
