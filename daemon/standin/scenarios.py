"""The scenarios as data: each is one row that says how a job goes, and nothing here does anything.

A scenario is chosen for the whole server, and for one job in the words of its own provider (openai_bodies.py: a key in
the batch's metadata; anthropic_bodies.py: the `user_id` of a request's metadata), so that one server can show several
at once. Adding one = one entry in `SCENARIOS`. Nothing is left to chance: what befalls a call depends on the time and
on how many such calls came before it.
"""

import dataclasses
from collections.abc import Mapping
from typing import Final, Literal

from reconcile.errors import RequestInvalid

#: The key by which a job names its scenario.
SCENARIO_KEY: Final = "standin_scenario"

#: What befalls a create: an HTTP status, or the connection is closed without an answer: "lost" after the job was made,
#: "never-made" before.
CreateFault = int | Literal["lost", "never-made"]


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
    #: Characters by which the answer to each item is longer, for results of a certain size.
    longer_answers: int = 0
    #: The status word while items run; another one plays a provider that has learned a new word.
    working_word: str = "in_progress"
    webhooks: Literal["sent", "lost", "twice"] = "sent"
    #: From the end to its webhook; negative: the webhook runs ahead of the status.
    webhook_after_ms: int = 0
    #: From a cancel to the end that it brings, and which one: a cancel can come too late to matter.
    cancel_ms: int = 1_000
    cancel_ends: Literal["cancelled", "completed"] = "cancelled"
    #: The create call's answer is held back so long.
    create_answer_after_ms: int = 0
    #: What befalls the first creates of one job in turn; later ones are answered well. A create that is repeated with
    #: the same content is one of the same job. After a 4xx there is no job; after a 5xx and after "lost" there is one,
    #: because neither says that there is none; after "never-made" there is none, and the caller cannot tell.
    create_faults: tuple[CreateFault, ...] = ()
    #: HTTP statuses that answer the first reads of the job in turn; later ones are answered well.
    read_faults: tuple[int, ...] = ()
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


# All spans and shares below are arbitrary: each long enough to be seen, short enough to be waited for.
_ALL: Final = (
    Scenario("normal", "Every item succeeds and one webhook announces the end."),
    Scenario("slow", "As normal, but it takes two minutes.", duration_ms=120_000),
    Scenario("lost-webhook", "Every item succeeds, but the webhook never comes.", webhooks="lost"),
    Scenario("duplicate-webhook", "Every item succeeds and the same webhook comes twice.", webhooks="twice"),
    Scenario(
        "early-webhook",
        "The job is done and its webhook sent before the create call is answered, two seconds later.",
        duration_ms=1_000,
        create_answer_after_ms=3_000,
    ),
    Scenario(
        "lost-create-response",
        "The job is made and runs well, but its first create is never answered: the connection is closed.",
        create_faults=("lost",),
    ),
    Scenario(
        "lost-create-request",
        "The first create is never answered, and no job was made: who dares to send it again has one.",
        create_faults=("never-made",),
    ),
    Scenario(
        "unknown-status",
        "For most of its 20 seconds the job has a status that no document names; then it ends well.",
        duration_ms=20_000,
        working_word="awaiting_capacity",
    ),
    Scenario("partial-failure", "The job completes, but about a quarter of its items failed.", failing_share=0.25),
    Scenario("all-failed", "The job completes, but every one of its items failed.", failing_share=1.0),
    Scenario(
        "late-failure",
        "The job runs for a minute, then fails as a whole; a Message Batch ends with every request errored.",
        duration_ms=60_000,
        ends="failed",
        run_share=0.9,
    ),
    Scenario(
        "never-ends",
        "Half of the items run, then nothing moves any more; only a cancel ends it.",
        ends=None,
        run_share=0.5,
    ),
    Scenario(
        "cancel-race",
        "A cancel is accepted, and a second later the job completes all the same; without one it takes a minute.",
        duration_ms=60_000,
        cancel_ends="completed",
    ),
    Scenario(
        "flaky",
        "The first create is refused (429), the second answered 503 though the job is made; the first three reads"
        " are answered 500, 429 and 503; then all is well.",
        create_faults=(429, 503),
        read_faults=(500, 429, 503),
    ),
    Scenario(
        "expired-with-partial-results",
        "The job expires with three fifths of its items done; those have results.",
        ends="expired",
        run_share=0.6,
    ),
    Scenario(
        "forgets-the-job",
        "The job is there for 20 seconds, then every read of it is answered 404 for good, and no webhook comes.",
        duration_ms=60_000,
        webhooks="lost",
        forgotten_after_ms=20_000,
    ),
    Scenario(
        "slow-list",
        "As normal, but list pages show the job only 20 seconds after its creation.",
        listed_after_ms=20_000,
    ),
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
