"""The declared providers of a random world: an account each, pure, the time handed in. What it knows is the truth.

An end is latched when its time has come and nothing changes it afterwards, whatever a misbehaving face tells of it.
"""

import base64
import hashlib
import heapq
import hmac
import itertools
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.simulation.histories.scripts import Creed, Script
from tests.simulation.provider import Ack

#: Between two tries of one webhook, ms: doubled from the first on; and when its sender gives up.
FIRST_RETRY_MS, GIVE_UP_MS = 5_000, 600_000
WORDS: Final = {"done": "done", "failed": "failed", "expired": "expired", "cancelled": "cancelled"}


class Refused(Exception):
    """An answer that is not 2xx, in the provider's own shape."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.body = {"error": {"code": code, "message": f"It is {code}."}}


@dataclass(slots=True)
class Job:
    """One job and what happened to it. `trace_id`: of the create that made it."""

    id: str
    script: Script
    creed: Creed
    trace_id: str
    created_ms: int
    reference: str | None
    item_ids: list[str]
    end: str | None
    end_ms: int | None
    input_ms: int | None = None
    cancelled_ms: int | None = None
    #: (word, since when), once it has ended.
    ended: tuple[str, int] | None = None
    #: Ends that were told beside the true one, by a provider that contradicts itself.
    also_told: set[str] = field(default_factory=set)
    ran: int = 0

    def latch(self, now_ms: int) -> None:
        """Let its end come, if it is time."""
        if self.ended is None and self.end is not None and self.end_ms is not None and now_ms >= self.end_ms:
            self.ended = self.end, self.end_ms

    def word(self, now_ms: int) -> str:
        """Its state as it is told."""
        script = self.script
        self.latch(now_ms)
        if self.ended is not None:
            since = now_ms - self.ended[1]
            if script.flaps == "runs_again" and 3_000 <= since < 9_000:
                return "running"
            if script.flaps == "other_end" and since >= 5_000:
                other = "failed" if self.ended[0] == "done" else "done"
                self.also_told.add(other)
                return other
            return WORDS[self.ended[0]]
        if self.is_asking(now_ms):
            return "waiting"
        age = now_ms - self.created_ms
        if script.has_odd_word and age > 1_000:
            return "defragmenting"
        if age < 500 or (script.goes_back and 2_000 < age < 3_000):
            return "queued"
        return "running"

    def is_asking(self, now_ms: int) -> bool:
        """Whether it waits for its input."""
        after_ms = self.script.asks_after_ms
        return (
            after_ms is not None
            and self.input_ms is None
            and self.cancelled_ms is None
            and self.ended is None
            and now_ms >= self.created_ms + after_ms
        )

    def outcomes(self) -> dict[str, str]:
        """What its items came to, as far as the provider itself knows them."""
        if self.ended is None or self.creed.results != "items":
            return {}
        word, n_all = self.ended[0], len(self.item_ids)
        ran = n_all if word == "done" else min(self.ran, n_all)
        bad = min(self.script.bad, ran)
        if word == "failed":
            return {}
        return {i: "failed" if n < bad else "succeeded" for n, i in enumerate(self.item_ids[:ran])}

    def body(self, now_ms: int) -> dict[str, Any]:
        """As a read tells it."""
        word = self.word(now_ms)
        told: dict[str, Any] = {"id": self.id, "state": word, "percent": 100 if self.ended else 40}
        if word in WORDS.values() and self.ended is not None:
            if word == "failed":
                told["error"] = {"code": "e_broken", "message": "It broke."}
            elif self.creed.results == "items":
                told["result"] = {"items": self.lines()}
            elif self.creed.results == "inline":
                told["result"] = {"answer": self.id}
        return told

    def lines(self) -> list[dict[str, str]]:
        """The items of its result, spoiled as its script has it."""
        lines = [{"id": i, "state": "ok" if word == "succeeded" else "bad"} for i, word in self.outcomes().items()]
        match self.script.spoils:
            case "missing":
                return lines[1:]
            case "double":
                return lines + lines[:1]
            case "strange":
                return [*lines, {"id": "nobody-asked", "state": "ok"}]
            case _:
                return lines


@dataclass(slots=True)
class Event:
    """A webhook that is owed. `body` of each try; `taken`: how often a 2xx was read for it."""

    event_id: str
    body: bytes
    job_id: str
    first_ms: int
    attempts: int = 0
    taken: int = 0
    refused: int = 0

    @property
    def state(self) -> str:
        """What it says of the job, true or not."""
        return str(json.loads(self.body)["job"]["state"])


class DeclaredAccount:
    """One declared provider's jobs, tokens and webhooks."""

    def __init__(self, creed: Creed, scripts: Mapping[str, Script], ids: Callable[[str], str]) -> None:
        self.creed = creed
        self.jobs: dict[str, Job] = {}
        self.events: list[Event] = []
        self.acks: list[Ack] = []
        #: (job, when) of each that was new.
        self.rung: list[tuple[str, int]] = []
        #: Traces of creates that were refused for good.
        self.refusals: Counter[str] = Counter()
        self.finished_at_once: dict[str, str] = {}
        self.inputs: Counter[str] = Counter()
        self._scripts = scripts
        self._ids = ids
        self._by_token: dict[str, dict[str, Any]] = {}
        self._due: list[tuple[int, int, Event]] = []
        self._numbers = itertools.count()
        self._under_way: dict[int, Event] = {}
        self._announced: set[str] = set()

    # ---- calls ----

    def create(self, body: dict[str, Any], token: str | None, trace_id: str, now_ms: int) -> tuple[Job | None, Any]:
        """Make a job, or answer as the token was answered before. Raises: Refused."""
        script = self._scripts[str(body["script"])]
        honours = bool(self.creed.token) and not self.creed.lies
        if honours and token in self._by_token:
            return self.jobs.get(self._by_token[token].get("id", "")), self._by_token[token]
        if script.at_once == "refused":
            self.refusals[trace_id] += 1
            raise Refused(422, "no_such_codec")
        told: dict[str, Any]
        job: Job | None = None
        if script.names_job_of:
            (job,) = (job for job in self.jobs.values() if job.script.name == script.names_job_of)
            told = {"id": job.id, "state": job.word(now_ms)}
        elif script.at_once and self.creed.results != "fetched":
            told = self._finished(script, trace_id, now_ms)
        else:
            job = self._made(script, body, trace_id, now_ms)
            told = {"id": job.id, "state": "queued"}
        if honours and token is not None:
            self._by_token[token] = told
        return job, told

    def _finished(self, script: Script, trace_id: str, now_ms: int) -> dict[str, Any]:
        """A result, or a failure, in place of a job."""
        self.finished_at_once[trace_id] = "succeeded" if script.at_once == "result" else "failed"
        if script.at_once == "failure":
            return {"state": "failed", "error": {"code": "e_broken", "message": "It broke."}}
        items = [{"id": f"w{script.name[1:]}-{n}", "state": "ok"} for n in range(script.items)]
        return {"state": "done", "result": {"items": items} if self.creed.results == "items" else {"answer": "here"}}

    def _made(self, script: Script, body: Mapping[str, Any], trace_id: str, now_ms: int) -> Job:
        end_ms: int | None = None if script.ends == "never" else now_ms + script.runs_ms
        job = Job(
            id=self._ids("job_"),
            script=script,
            creed=self.creed,
            trace_id=trace_id,
            created_ms=now_ms,
            reference=body.get("ref"),
            item_ids=[f"w{script.name[1:]}-{n}" for n in range(script.items)],
            end=None if script.ends == "never" else script.ends,
            end_ms=None if script.asks_after_ms is not None else end_ms,
            ran=script.ran,
        )
        self.jobs[job.id] = job
        self._plan_events(job, now_ms)
        return job

    def read(self, job_id: str, now_ms: int) -> Job:
        """A job. Raises: Refused."""
        job = self.jobs.get(job_id)
        if job is None:
            raise Refused(404, "unknown_job")
        job.latch(now_ms)
        after_ms = job.script.forgotten_after_ms
        if after_ms is not None and now_ms - job.created_ms >= after_ms:
            raise Refused(404, "unknown_job")
        return job

    def found(self, reference: str, now_ms: int) -> list[Job]:
        """The jobs that a look-up shows."""
        return [
            job
            for job in self.jobs.values()
            if job.reference == reference and now_ms - job.created_ms >= job.script.shown_after_ms
        ]

    def cancel(self, job_id: str, now_ms: int) -> Job:
        """Take a cancel, or not. Raises: Refused."""
        job = self.read(job_id, now_ms)
        if job.ended is not None or job.script.cancels == "refuses":
            raise Refused(409, "too_late")
        if job.script.cancels == "forgets":
            raise Refused(404, "unknown_job")
        if job.cancelled_ms is None and job.script.cancels in ("heeds", "comes_late"):
            job.cancelled_ms = now_ms
            job.end = "cancelled" if job.script.cancels == "heeds" else "done"
            job.end_ms = now_ms + job.script.cancel_ms
            self._plan_events(job, now_ms)
        return job

    def give_input(self, job_id: str, now_ms: int) -> Job:
        """Let a waiting job go on. Raises: Refused."""
        job = self.read(job_id, now_ms)
        self.inputs[job.trace_id] += 1
        if not job.is_asking(now_ms):
            raise Refused(409, "not_waiting")
        job.input_ms = now_ms
        job.end_ms = None if job.end is None else now_ms + job.script.runs_ms
        self._plan_events(job, now_ms)
        return job

    def result(self, job_id: str, now_ms: int) -> dict[str, Any]:
        """What there is to fetch. Raises: Refused."""
        job = self.read(job_id, now_ms)
        if job.ended is None or job.ended[0] != "done":
            raise Refused(409, "not_ready")
        return {"answer": job.id}

    # ---- webhooks ----

    def _plan_events(self, job: Job, now_ms: int) -> None:
        """Plan the announcement of an end, once it is known when it comes."""
        tells = job.script.tells
        if not self.creed.webhooks or tells == "lost" or job.end_ms is None or job.end is None:
            return
        shift = {"late": 60_000, "early": -1_500}.get(tells, 0)
        at_ms = max(now_ms, job.end_ms + shift)
        key = f"{job.id}/{job.end}/{job.end_ms}"
        event_id = self._ids("evt_")
        self._push(Event(event_id, self._event_body(job, job.end, key, event_id), job.id, at_ms), at_ms)
        for n in range({"twice": 1, "often": 9}.get(tells, 0)):
            again = Event(event_id, self.events[-1].body, job.id, at_ms)
            self._push(again, at_ms + (500 if tells == "twice" else n // 4))
        if tells == "late" and job.end == "done" and job.created_ms == now_ms:
            early = self._ids("evt_")  # and long before it one that is not true
            self._push(Event(early, self._event_body(job, "failed", key, early), job.id, now_ms), now_ms + 700)
        if tells == "reversed":
            other = self._ids("evt_")
            self._push(Event(other, self._event_body(job, "running", key, other), job.id, at_ms), at_ms + 300)
        if tells == "other_content":
            body = self._event_body(job, "failed" if job.end == "done" else "done", key, event_id)
            self._push(Event(event_id, body, job.id, at_ms), at_ms + 1_000)

    def _event_body(self, job: Job, word: str, key: str, event_id: str) -> bytes:
        word = WORDS.get(word, word)
        return json.dumps({"event": event_id, "about": key, "job": {"id": job.id, "state": word}}).encode()

    def _push(self, event: Event, at_ms: int) -> None:
        self.events.append(event)
        heapq.heappush(self._due, (at_ms, next(self._numbers), event))

    def next_at(self) -> int | None:
        """When the next webhook is due."""
        return self._due[0][0] if self._due else None

    def due(self, now_ms: int) -> list[tuple[int, Event]]:
        """The webhooks to send now, each under a number that `settled` takes."""
        found = []
        while self._due and self._due[0][0] <= now_ms:
            _, number, event = heapq.heappop(self._due)
            job = self.jobs[event.job_id]
            is_of_old_plan = job.end_ms is None or f"/{job.end}/{job.end_ms}".encode() not in event.body
            if is_of_old_plan and event.attempts == 0:
                continue  # a cancel or an input came between
            event.attempts += 1
            self._under_way[number] = event
            found.append((number, event))
        return found

    def settled(self, number: int, *, is_taken: bool, now_ms: int) -> None:
        """How a try went."""
        event = self._under_way.pop(number)
        if is_taken:
            event.taken += 1
            if (event.event_id, event.body) not in self.acks:  # a repeat rings nobody
                self.rung.append((event.job_id, now_ms))
            self.acks.append(Ack(event.event_id, event.body))
            return
        event.refused += 1
        if now_ms - event.first_ms < GIVE_UP_MS:
            delay_ms = FIRST_RETRY_MS * 2 ** min(event.refused - 1, 6)
            heapq.heappush(self._due, (now_ms + delay_ms, next(self._numbers), event))

    def break_off(self, now_ms: int) -> None:
        """The receiver died: what was on its way to it was not taken."""
        for number in list(self._under_way):
            self.settled(number, is_taken=False, now_ms=now_ms)


def signed(creed: Creed, event: Event, secret: str, at_seconds: int) -> dict[str, str]:
    """The headers of one try, signed as the creed's scheme has it; written from the schemes' own words."""
    if creed.webhooks == "standard":
        key = base64.b64decode(secret.removeprefix("whsec_"))
        proof = hmac.digest(key, f"{event.event_id}.{at_seconds}.".encode() + event.body, hashlib.sha256)
        return {
            "webhook-id": event.event_id,
            "webhook-timestamp": str(at_seconds),
            "webhook-signature": "v1," + base64.b64encode(proof).decode(),
        }
    proof = hmac.digest(secret.encode(), f"{at_seconds}.".encode() + event.body, hashlib.sha256)
    return {"X-Signature": proof.hex(), "X-Timestamp": str(at_seconds)}
