"""One account at a provider, whatever the shape of its calls: its jobs in the order of their creation, the webhooks it
owes, what befalls each call. Pure: the time is handed to every call.

Nothing here waits, draws or opens anything, so that a server on a real socket and a simulation under a virtual clock
tell the same story. Jobs move by being asked about (jobs.py); ends are latched in the order of their times, whoever
asks first, so that equal calls give equal ids.
"""

import abc
import hashlib
import heapq
import json
from collections.abc import Callable, Iterator
from typing import Literal, TypeVar

from daemon.standin.deliveries import Deliveries, Delivery
from daemon.standin.jobs import Job
from daemon.standin.scenarios import CreateFault, Scenario, find_scenario
from daemon.standin.truth import Truth, truth_of_event, truth_of_job
from reconcile.errors import ReconciledError

J = TypeVar("J", bound=Job)
Call = Literal["uploads", "creates", "reads", "lists", "cancels", "downloads"]


class AnswerLost(ReconciledError):
    """Its caller never hears of a call, done or not: whoever carries answers closes the connection."""

    def __init__(self, job_id: str | None = None) -> None:
        self.job_id = job_id
        super().__init__(f"the answer that made {job_id or 'no job'} is lost")


class Account(abc.ABC):
    """Jobs, time and webhooks of one account."""

    def __init__(self, scenario: Scenario, *, ids: Callable[[str], str], speed: float = 1.0) -> None:
        """`ids` makes a fresh id that begins with what it is given; `speed` 10 makes every span a tenth."""
        self.ids = ids
        self._speed, self._scenario = speed, scenario.at_speed(speed)
        self._at_speed: dict[str, Scenario] = {}
        self._jobs: dict[str, Job] = {}
        self._order: list[Job] = []
        self._now_ms = 0
        #: (when, tie-break, job); entries of a plan that a cancel replaced are passed over.
        self._ends: list[tuple[int, int, Job]] = []
        self._announcements: list[tuple[int, int, Job]] = []
        self._announced: set[str] = set()
        self._pushed = 0
        self._deliveries = Deliveries(speed)
        #: Creates so far of a job that was not yet answered well.
        self._tried: dict[bytes, int] = {}
        self._calls: dict[Call, int] = dict.fromkeys(
            ("uploads", "creates", "reads", "lists", "cancels", "downloads"), 0
        )

    # For the calls of each shape.

    def begin(self, call: Call, now_ms: int) -> int:
        """Count a call and let the time come; the account's own time, which never goes back."""
        now_ms = self.advance(now_ms)
        self._calls[call] += 1
        return now_ms

    def pick_scenario(self, named: str | None) -> Scenario:
        """The scenario that a job named for itself, else the server's.

        Raises:
            RequestInvalid: there is none of that name.
        """
        if named is None:
            return self._scenario
        if named not in self._at_speed:
            self._at_speed[named] = find_scenario(named).at_speed(self._speed)
        return self._at_speed[named]

    def at_speed(self, scenario: Scenario | None) -> Scenario:
        """A scenario that is handed in, at the server's speed; None: the server's own."""
        return self._scenario if scenario is None else scenario.at_speed(self._speed)

    def fault_of_create(self, scenario: Scenario, data: bytes, described: object = None) -> CreateFault | None:
        """What befalls a create with this content, bytes and JSON; None: nothing, and the next alike is another job."""
        if not scenario.create_faults:
            return None
        try:
            words = json.dumps([scenario.name, described], sort_keys=True)
        except RecursionError:  # deeper than a creator's JSON is: all such are taken for one
            words = scenario.name
        key = hashlib.sha256(data).digest() + hashlib.sha256(words.encode()).digest()
        tried = self._tried.pop(key, 0)
        if tried >= len(scenario.create_faults):
            return None
        self._tried[key] = tried + 1
        return scenario.create_faults[tried]

    def next_place(self) -> int:
        """The place of the next job in the order of creation."""
        return len(self._order)

    def add(self, job: Job) -> None:
        """Take in a new job and plan it."""
        job.plan()
        self._jobs[job.id] = job
        self._order.append(job)
        self._schedule(job)

    def find(self, kind: type[J], job_id: str) -> J | None:
        """The job with this id, if it is of this kind and not forgotten."""
        job = self._jobs.get(job_id)
        return job if isinstance(job, kind) and not self._is_forgotten(job) else None

    def listed(self, kind: type[J], place: int, step: Literal[-1, 1]) -> Iterator[J]:
        """The jobs of a kind that lists show now, beside `place` and on: to the older (-1) or the newer ones."""
        place += step
        while 0 <= place < len(self._order):
            job = self._order[place]
            lag_ms = self._now_ms - job.created_ms
            if isinstance(job, kind) and lag_ms >= job.scenario.listed_after_ms and not self._is_forgotten(job):
                yield job
            place += step

    def cancel_job(self, job: Job, now_ms: int) -> None:
        """Take a cancel in; only for a job that has not ended. Asked again, nothing changes."""
        if job.cancelling_ms is None:
            job.plan_cancel(now_ms)
            self._schedule(job)

    def scenario_of(self, job_id: str) -> Scenario:
        """The scenario that plays for a job, at the server's speed."""
        return self._jobs[job_id].scenario

    def _is_forgotten(self, job: Job) -> bool:
        after_ms = job.scenario.forgotten_after_ms
        return after_ms is not None and self._now_ms - job.created_ms >= after_ms

    # Time.

    def _schedule(self, job: Job) -> None:
        """Note when the job's plan ends it, and when its webhook is due."""
        if job.ends_ms is None:
            return
        self._pushed += 1
        heapq.heappush(self._ends, (job.ends_ms, self._pushed, job))
        if job.has_webhook and job.scenario.webhooks != "lost" and job.id not in self._announced:
            at_ms = max(job.created_ms, job.ends_ms + job.scenario.webhook_after_ms)
            heapq.heappush(self._announcements, (at_ms, self._pushed, job))

    def advance(self, now_ms: int) -> int:
        """Latch every end and make every webhook whose time has come; the account's own time."""
        self._now_ms = max(self._now_ms, now_ms)
        while True:
            end_ms = self._ends[0][0] if self._ends else None
            event_ms = self._next_announcement()
            # Strictly in the order of their times, an end before its webhook: so the ids are the same whoever asks.
            if end_ms is not None and end_ms <= self._now_ms and (event_ms is None or end_ms <= event_ms):
                _, _, job = heapq.heappop(self._ends)
                if not job.ended and end_ms == job.ends_ms:
                    job.ended = True
                    self._take_end(job, end_ms)
            elif event_ms is not None and event_ms <= self._now_ms:
                _, _, job = heapq.heappop(self._announcements)
                self._announce(job, event_ms)
            else:
                break
        return self._now_ms

    @abc.abstractmethod
    def _take_end(self, job: Job, at_ms: int) -> None:
        """What the provider makes of a job's end when it has come."""

    @abc.abstractmethod
    def _event(self, job: Job, at_ms: int) -> bytes:
        """The body of the webhook that announces a job's end."""

    def _announce(self, job: Job, at_ms: int) -> None:
        """The webhook of the job's end, from now on owed."""
        self._announced.add(job.id)
        body = self._event(job, at_ms)
        copies = 2 if job.scenario.webhooks == "twice" else 1
        self._deliveries.add(Delivery(self.ids("wh_"), body, at_ms, job.id), copies=copies)

    def _next_announcement(self) -> int | None:
        """When the next webhook comes to be due, entries of replaced plans dropped."""
        while self._announcements:
            at_ms, _, job = self._announcements[0]
            planned_ms = None if job.ends_ms is None else job.ends_ms + job.scenario.webhook_after_ms
            if job.id not in self._announced and planned_ms is not None and at_ms == max(job.created_ms, planned_ms):
                return at_ms
            heapq.heappop(self._announcements)
        return None

    # Webhooks.

    def next_event_at(self, now_ms: int) -> int | None:
        """When a webhook is next to be sent, as things stand; in the past: at once. None: nothing is owed."""
        self.advance(now_ms)
        times = [at for at in (self._deliveries.next_at(), self._next_announcement()) if at is not None]
        return min(times, default=None)

    def events_due(self, now_ms: int) -> list[Delivery]:
        """The webhooks to send now; each must be answered with `delivered`."""
        now_ms = self.advance(now_ms)
        return self._deliveries.due(now_ms)

    def delivered(self, event_id: str, ok: bool, now_ms: int) -> None:
        """Say how a delivery went; anything but a 2xx is tried again, later each time."""
        now_ms = self.advance(now_ms)
        self._deliveries.settled(event_id, ok, now_ms)

    # Truth.

    def truth(self) -> Truth:
        """What happened, up to the latest time that was handed in."""
        jobs = tuple(truth_of_job(job, self._now_ms) for job in self._order)
        events = tuple(truth_of_event(record) for record in self._deliveries.records.values())
        return Truth(jobs, events, **self._calls)
