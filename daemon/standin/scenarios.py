"""The scenarios as data: each is one row that says how a job goes, and nothing here does anything.

A scenario is chosen for the whole server, and for one job by the key `standin_scenario` in its metadata, so that
one server can show several at once. Adding one = one entry in `SCENARIOS`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Final, Literal

from reconcile.errors import RequestInvalid

#: The key in a job's own metadata that picks its scenario.
SCENARIO_KEY: Final = "standin_scenario"


@dataclasses.dataclass(frozen=True)
class Scenario:
    """How a job goes from its creation to its end, and what the provider tells about it.

    Spans are those of a server at speed 1; shares are parts of the items, from 0 to 1.
    """

    name: str
    summary: str
    #: From the creation to the end. 4 s: long enough to be seen running, short enough to be waited for.
    duration_ms: int = 4_000
    #: What the end is; None: there is none.
    ends: Literal["completed", "failed", "expired"] | None = "completed"
    #: Of the items that run, how many are answered with an error. A job with any share has at least one.
    failing_share: float = 0.0
    #: How many items run at all before the end, for a job that does not complete: expires, fails, hangs.
    run_share: float = 1.0
    #: The status word while items run; another one plays a provider that has learned a new word.
    working_word: str = "in_progress"
    webhooks: Literal["sent", "lost", "twice"] = "sent"
    #: From the end to its webhook; negative: the webhook runs ahead of the status.
    webhook_after_ms: int = 0
    #: From a cancel to the end that it brings, and which one: a cancel can come too late to matter.
    cancel_ms: int = 1_000
    cancel_ends: Literal["cancelled", "completed"] = "cancelled"
    #: The create call's answer: held back so long, or never given though the job was made.
    create_answer_after_ms: int = 0
    create_answer: Literal["sent", "lost"] = "sent"
    #: HTTP statuses with which reads of this job are answered in turn; 200 stands for the real answer.
    read_statuses: tuple[int, ...] = (200,)
    #: List pages show the job only so long after its creation.
    listed_after_ms: int = 0
    #: So long after its creation the provider knows nothing of the job any more.
    forgotten_after_ms: int | None = None

    def at_speed(self, speed: float) -> "Scenario":
        """The same with every span divided by `speed`."""

        def scaled(span_ms: int) -> int:
            return int(span_ms / speed)

        return dataclasses.replace(
            self,
            duration_ms=scaled(self.duration_ms),
            webhook_after_ms=scaled(self.webhook_after_ms),
            cancel_ms=scaled(self.cancel_ms),
            create_answer_after_ms=scaled(self.create_answer_after_ms),
            listed_after_ms=scaled(self.listed_after_ms),
            forgotten_after_ms=None if self.forgotten_after_ms is None else scaled(self.forgotten_after_ms),
        )


_ALL: Final = (
    Scenario("normal", "Every item succeeds and one webhook announces the end."),
    Scenario("lost-webhook", "Every item succeeds, but the webhook never comes.", webhooks="lost"),
    Scenario("duplicate-webhook", "Every item succeeds and the same webhook comes twice.", webhooks="twice"),
    Scenario("partial-failure", "The job completes, but about a quarter of its items failed.", failing_share=0.25),
)

SCENARIOS: Final[Mapping[str, Scenario]] = {scenario.name: scenario for scenario in _ALL}


def find_scenario(name: str, pointer: str = "") -> Scenario:
    """The scenario called `name`.

    Raises:
        RequestInvalid: there is none; the message names those that exist, `pointer` says where it was asked for.
    """
    try:
        return SCENARIOS[name]
    except KeyError:
        raise RequestInvalid(pointer, f"no scenario {name!r}; there are: {', '.join(SCENARIOS)}") from None
