"""The stand-in's account as a provider of a random world: its jobs go as the plan's scripts have it."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from daemon.standin.deliveries import Delivery
from daemon.standin.jobs import Job
from daemon.standin.scenarios import Scenario, find_scenario
from tests.simulation.histories.scripts import Script
from tests.simulation.provider import StandInAccount
from tests.simulation.watch import TRACE

_WEBHOOKS: Final[Mapping[str, Literal["sent", "lost", "twice"]]] = {"lost": "lost", "twice": "twice", "often": "twice"}


class StandIn(StandInAccount):
    """An account with the scripts of a plan in place of scenarios; it knows who made each job."""

    def __init__(self, scripts: Mapping[str, Script], ids: Callable[[str], str]) -> None:
        super().__init__(find_scenario("normal"), ids=ids)
        #: By job: the trace of the create that made it.
        self.trace_of: dict[str, str] = {}
        #: (job, when) of each webhook that was news.
        self.rung: list[tuple[str, int]] = []
        self._scenarios = {name: _scenario(script) for name, script in scripts.items()}

    def pick_scenario(self, named: str | None) -> Scenario:
        """The plan's."""
        return self._scenarios[str(named)]

    def add(self, job: Job) -> None:
        """Take it in, and remember the create that made it."""
        self.trace_of[job.id] = TRACE.get()
        super().add(job)

    def taken(self, delivery: Delivery, now_ms: int) -> None:
        """Keep that a webhook was acknowledged, and when it was news."""
        if (delivery.event_id, delivery.body) not in self.acks:  # a repeat rings nobody
            self.rung.append((delivery.job_id, now_ms))
        super().taken(delivery, now_ms)


def _scenario(script: Script) -> Scenario:
    faults: tuple[Any, ...] = ()
    if script.at_once:
        faults = {"result": ("lost",), "failure": (503,), "refused": ("never-made",)}[script.at_once]
    return dataclasses.replace(
        find_scenario("normal"),
        name=script.name,
        duration_ms=max(script.runs_ms, 0),
        ends={"done": "completed", "never": None}.get(script.ends, script.ends),
        failing_share=script.bad / script.items,
        run_share=script.ran / script.items,
        working_word="awaiting_capacity" if script.has_odd_word else "in_progress",
        webhooks=_WEBHOOKS.get(script.tells, "sent"),
        webhook_after_ms={"late": 60_000, "early": -1_500}.get(script.tells, 0),
        cancel_ms=script.cancel_ms,
        cancel_ends="completed" if script.cancels == "comes_late" else "cancelled",
        create_answer_after_ms=script.answers_after_ms,
        create_faults=faults,
        listed_after_ms=script.shown_after_ms,
        forgotten_after_ms=script.forgotten_after_ms,
    )
