"""The worker on the whole daemon: an owner that lost its lease, faults of our own, a row that is rung while it is held.

The provider is a small one of the test's own whose answers can be held back; time stands still where it decides.
"""

import asyncio
import io
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TextIO

import pytest
from aiohttp import web

from daemon.logs import make_log
from reconcile.errors import StoreBusy
from reconcile.evidence import CancelAnswer, CancelAnswered, CancelAsked, DeadlinePassed, JobGone, JobRead, ReadFailed
from reconcile.files import FileWriter, Written
from reconcile.leases import LEASE_MS, RENEW_MS
from reconcile.limits import Pause
from reconcile.model import ResultRef
from reconcile.provider import INLINE, HttpResponse, Item, Step
from reconcile.providers.openai_batch.adapter import OpenAIBatch
from reconcile.redact import Redactor
from reconcile.states import State
from reconcile.store.claims import Claim, ClaimWish
from tests.handlers.ground import Ground, HandClock, event, provider, running, signed, until
from tests.handlers.test_collect import Peer, batch, line, refusal, serving, stage

HOUR: Final = 3_600_000
PATIENCE: Final = 10
CLAUDE: Final[dict[str, Any]] = {
    "provider": "claude",
    "request": {},
    "items": [{"custom_id": "a", "params": {"model": "m", "max_tokens": 1, "messages": []}}],
}


class Held:
    """A handler of a provider whose first answers are held back until the test lets them go."""

    def __init__(self, answer: Any, *, held: int = 1) -> None:
        self._answer = answer
        self._held = held
        self._gates: list[asyncio.Event] = []
        self._arrived = asyncio.Condition()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        gate = asyncio.Event()
        async with self._arrived:
            self._gates.append(gate)
            self._arrived.notify_all()
        if len(self._gates) <= self._held:
            await gate.wait()
        answer = await self._answer(request) if callable(self._answer) else self._answer
        return answer if isinstance(answer, web.StreamResponse) else web.json_response(answer)

    @property
    def count(self) -> int:
        """Requests that have come."""
        return len(self._gates)

    async def arrived(self, count: int = 1) -> None:
        """Wait until so many requests have come."""
        async with asyncio.timeout(PATIENCE), self._arrived:
            await self._arrived.wait_for(lambda: len(self._gates) >= count)

    def let_go(self, number: int = 0) -> None:
        """Answer one of them."""
        self._gates[number].set()


@dataclass
class Bench:
    """A daemon whose worker does only what the test hands it."""

    ground: Ground
    peer: Peer
    owners: list[str] = field(default_factory=list)

    async def claim(self) -> Claim:
        """Lease the one due row for another owner than before."""
        self.owners.append(f"boot_{len(self.owners)}")
        room = dict.fromkeys(self.ground.config.providers, 8)
        wish = ClaimWish(self.owners[-1], self.ground.clock.now(), LEASE_MS, room)
        (claim,) = (await self.ground.daemon.store.claim(wish)).claims
        return claim

    def run_out(self) -> None:
        """The lease that stands runs out."""
        self.ground.clock.advance(LEASE_MS)

    def act(self, claim: Claim) -> None:
        """Do what the claimed row names, beside whatever is under way."""
        self.ground.daemon.worker._start(claim)

    async def done(self, left: int = 0) -> None:
        """Wait until no more than so many actions are under way."""

        async def is_done() -> bool:
            return len(self.ground.daemon.worker._tasks) <= left

        await until(is_done, seconds=PATIENCE)

    async def act_now(self) -> None:
        """Claim, act, and wait for the end of it."""
        self.act(await self.claim())
        await self.done()

    def told(self, word: str) -> list[Any]:
        """The log's entries of one event."""
        return [entry for entry in self.ground.logged if entry["event"] == word]

    def lease(self, operation: str) -> tuple[Any, ...]:
        """(owner, due, deadline, errors) as the row stands."""
        (row,) = self.ground.rows(
            "SELECT s.lease_owner, s.due_at, s.deadline_at, s.errors FROM schedule s JOIN operations o"
            " ON o.key = s.key WHERE o.operation_id = ?",
            operation,
        )
        return row

    def history(self) -> int:
        """Rows of all histories."""
        return int(self.ground.rows("SELECT count(*) FROM history")[0][0])


@asynccontextmanager
async def bench(folder: Path, peer: Peer, **more: Any) -> AsyncIterator[Bench]:
    """The daemon with time that stands still and no worker of its own."""
    app = peer.app()
    for path, handler in more.pop("routes", {}).items():
        app.router.add_post(path, handler.answer)
    async with serving(app) as url:
        providers = {
            "openai": provider(f"{url}/v1"),
            "claude": provider(f"{url}/v1", kind="anthropic_batches", webhook_secrets=[]),
        }
        async with running(folder, providers=providers, **more) as ground:
            yield Bench(ground, peer)


def no_keepalive(answer: Any) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.json_response(answer)

    return handler


def creates(peer: Peer) -> int:
    return sum(asked in (("POST", "/v1/batches"), ("POST", "/v1/messages/batches")) for asked in peer.asked)


# ---- two owners ------------------------------------------------------------------------------------------------


async def test_an_upload_that_ends_after_the_lease_was_lost_is_followed_by_no_create(tmp_path: Path) -> None:
    """A late StepDone: the other owner's create is under way, and stays the only one."""
    upload, create = Held({"id": "file-in", "object": "file"}), Held(batch("validating", output=None))
    async with bench(tmp_path / "state", Peer(upload=upload.answer, create=create.answer)) as on:
        operation = await on.ground.start()
        on.act(await on.claim())
        await upload.arrived()
        on.run_out()
        on.act(await on.claim())
        await create.arrived()
        upload.let_go()
        await on.done(left=1)
        assert [entry["operation_id"] for entry in on.told("lease_lost")] == [operation]
        assert creates(on.peer) == 1
        create.let_go()
        await on.done()
        row = await on.ground.row(operation)
        assert (row.state, row.remote_job_id) == ("observing", batch()["id"])
        assert creates(on.peer) == 1
        assert on.history() <= 5
        assert not on.ground.daemon.worker._running


@pytest.mark.parametrize("sent", [False, True], ids=["before the other owner acts", "while its create is under way"])
async def test_a_send_mark_that_comes_after_the_lease_was_lost_lets_nothing_out(tmp_path: Path, sent: bool) -> None:
    """A late AboutToSend: it neither sends under the other owner's mark nor asks for one again and again."""
    answer = json.loads((Path(__file__).parents[1] / "fixtures/anthropic/batch_create_response.json").read_bytes())
    create = Held(answer)
    async with bench(tmp_path / "state", Peer(), routes={"/v1/messages/batches": create}) as on:
        response = await on.ground.api("POST", "/v1/operations", body=CLAUDE)
        assert response.status == 202, response
        operation = str(response.json()["operation_id"])
        late = await on.claim()
        on.run_out()
        other = await on.claim()
        if sent:
            on.act(other)
            await create.arrived()
        before = on.history()
        on.act(late)
        async with asyncio.timeout(PATIENCE):
            await on.done(left=int(sent))
        assert [entry["operation_id"] for entry in on.told("lease_lost")] == [operation]
        assert creates(on.peer) == int(sent)
        assert on.history() <= before + 1
        if not sent:
            on.act(other)
            await create.arrived()
        create.let_go()
        await on.done()
        row = await on.ground.row(operation)
        assert (row.state, row.remote_job_id) == ("observing", answer["id"])
        assert creates(on.peer) == 1


async def test_a_create_that_is_answered_after_the_lease_was_lost_still_gives_its_job_id(tmp_path: Path) -> None:
    """N24: the other owner found an open send and looks for the job; the late answer names it."""
    create = Held(batch("validating", output=None))
    async with bench(tmp_path / "state", Peer(create=create.answer)) as on:
        operation = await on.ground.start()
        on.act(await on.claim())
        await create.arrived()
        on.run_out()
        on.act(await on.claim())
        await on.done(left=1)
        assert (await on.ground.row(operation)).state == "create_unknown"
        create.let_go()
        await on.done()
        row = await on.ground.row(operation)
        assert (row.state, row.remote_job_id) == ("observing", batch()["id"])
        assert creates(on.peer) == 1
        assert [entry["operation_id"] for entry in on.told("lease_lost")] == [operation]


async def test_a_row_that_is_leased_again_while_its_first_action_still_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one process: renewals fail, the lease runs out, and two actions are under way on one row. Both end."""
    clock = HandClock()
    peer = Peer(create=no_keepalive(batch("validating", output=None)))
    reads = Held(batch("in_progress", output=None), held=2)
    peer.reads = [reads.answer]
    async with serving(peer.app()) as url:
        providers = {"openai": provider(f"{url}/v1")}
        async with running(tmp_path / "state", providers=providers, clock=clock, worker=True) as ground:
            on, worker = Bench(ground, peer), ground.daemon.worker
            operation = await ground.start()

            async def is_observed() -> bool:
                return (await ground.row(operation)).state == "observing"

            await until(is_observed)
            clock.set(ground.due_at(operation))
            worker.wake(0)
            await reads.arrived()
            with monkeypatch.context() as broken:

                async def fails(_: object) -> list[bool]:
                    raise StoreBusy("no room")

                broken.setattr(ground.daemon.store, "renew", fails)
                clock.advance(LEASE_MS)
                worker.wake(0)
                await reads.arrived(2)
            assert len(on.told("leases_not_renewed")) == 1
            (first, _), (second, _) = sorted((claim.fence, key) for key, claim in worker._running.items())
            assert second == first + 1
            clock.advance(RENEW_MS)
            worker.wake(0)

            async def is_told() -> bool:
                return bool(on.told("lease_lost"))

            await until(is_told)
            assert [entry.get("fence") for entry in on.told("lease_lost")] == [first]
            reads.let_go(0)
            await on.done(left=1)
            assert list(worker._running) == [(operation, second)]
            assert len(on.told("lease_lost")) == 2
            reads.let_go(1)
            await on.done(left=0)
            assert worker._running == {}
            assert (await ground.row(operation)).state == "observing"


@pytest.mark.parametrize("has_heard", [True, False], ids=["and the action is over", "and the action has yet to hear"])
async def test_a_lease_that_its_own_answer_ended_while_it_was_renewed_is_not_told_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_heard: bool
) -> None:
    """With thousands of jobs polled, some answer stands in the same batch as each renewal: nobody is needed for it."""
    clock, renewed = HandClock(), asyncio.Event()
    peer = Peer(create=no_keepalive(batch("in_progress", output=None)))
    reads = Held(batch("in_progress", output=None))
    peer.reads = [reads.answer]
    async with serving(peer.app()) as url:
        providers = {"openai": provider(f"{url}/v1")}
        async with running(tmp_path / "state", providers=providers, clock=clock, worker=True) as ground:
            on, worker, store = Bench(ground, peer), ground.daemon.worker, ground.daemon.store
            operation = await ground.start()
            keep, repeat = store.renew, store.repeat

            async def is_answered() -> bool:
                return on.lease(operation)[0] is None and not (has_heard and worker._running)

            async def renews_late(renewals: Any) -> list[bool]:
                reads.let_go()
                await until(is_answered)
                told = await keep(renewals)
                renewed.set()
                return told

            async def tells_late(read: Any) -> bool:
                told = await repeat(read)
                await renewed.wait()
                return told

            async def is_observed() -> bool:
                return (await ground.row(operation)).state == "observing" and not worker._running

            await until(is_observed)
            clock.set(ground.due_at(operation))
            worker.wake(0)
            await reads.arrived()
            monkeypatch.setattr(store, "renew", renews_late)
            if not has_heard:
                monkeypatch.setattr(store, "repeat", tells_late)
            clock.advance(RENEW_MS)
            worker.wake(0)
            async with asyncio.timeout(PATIENCE):
                await renewed.wait()
            await on.done()
            assert on.told("lease_lost") == []
            assert (worker._running, worker._answering) == ({}, set())


# ---- faults of our own -----------------------------------------------------------------------------------------


class Broken(OpenAIBatch):
    """An adapter with a fault of ours in one of its readers; it shows on what names "bad" only."""

    def read_submit(self, op: Any, step: Step, response: HttpResponse) -> Any:
        _stumble(self.where == "read_submit" and step.has_effect, response.body)
        return super().read_submit(op, step, response)

    def read_status(self, response: HttpResponse) -> JobRead | JobGone | ReadFailed:
        _stumble(self.where == "read_status", response.body)
        return super().read_status(response)

    def read_item(self, line: bytes, ref: ResultRef) -> Item:
        _stumble(self.where == "read_item", line)
        return super().read_item(line, ref)

    where: str = ""


def _stumble(is_here: bool, data: bytes) -> None:
    if is_here and b"bad" in data:
        raise TypeError("unsupported operand")


def break_adapter(ground: Ground, where: str) -> None:
    peer = ground.daemon.worker._peers["openai"]
    broken = Broken(peer.provider.contract)
    object.__setattr__(broken, "where", where)
    peer.provider = broken


def two_jobs() -> Peer:
    """A provider with a job for each input: one whose everything bears "bad", and its neighbour."""

    async def upload(request: web.Request) -> web.StreamResponse:
        word = "bad" if b'"bad"' in await request.read() else "good"
        return web.json_response({"id": f"file-{word}", "object": "file"})

    async def create(request: web.Request) -> web.StreamResponse:
        word = (await request.json())["input_file_id"].removeprefix("file-")
        return web.json_response({**batch("validating", output=None), "id": f"batch_{word}"})

    async def read(request: web.Request) -> web.StreamResponse:
        word = request.match_info["job"].removeprefix("batch_")
        return web.json_response({**batch(output=f"file-out-{word}"), "id": f"batch_{word}"})

    files = {f"file-out-{word}": line(word) for word in ("bad", "good")}
    return Peer(upload=upload, create=create, reads=[read], files=files)


@pytest.mark.parametrize(
    ("where", "end"),
    [
        ("read_status", "observation_failed"),
        ("read_submit", "create_unresolved"),
        ("read_item", "result_unavailable"),
    ],
)
async def test_a_fault_of_ours_in_an_adapter_costs_its_own_row_its_budget_and_nobody_else(
    tmp_path: Path, where: str, end: str
) -> None:
    """Logged with its traceback, counted as a failed try; budget or deadline leads on to a person."""
    peer = two_jobs()
    async with stage(tmp_path / "state", peer, poll={"error_budget": 3}) as on:
        break_adapter(on.ground, where)
        bad = await on.submit("bad", create_within="1s")
        good = await on.submit("good")
        assert (await on.end(good))["state"] == "succeeded"

        async def is_told() -> bool:
            return (await on.ground.row(bad)).state == end

        await until(is_told)
        row = await on.ground.row(bad)
        assert row.attention is not None
        failed = [entry for entry in on.ground.logged if entry["event"] == "action_failed"]
        assert {entry["operation_id"] for entry in failed} == {bad}
        assert all(entry["exc_info"] for entry in failed)
        assert len(failed) == {"read_status": 3, "read_submit": 1, "read_item": 8}[where]
        assert creates(peer) == 2
        if where == "read_submit":
            assert "create_unknown" in await on.states(bad)
        assert list((on.ground.folder / "tmp").iterdir()) == []


async def test_a_fault_of_ours_does_not_outlive_the_deadline(tmp_path: Path) -> None:
    """A job that cannot be read because of us still comes before a person when its time is over."""
    peer = Peer(reads=[batch("in_progress", output=None, metadata={"bad": "1"})])
    async with bench(tmp_path / "state", peer) as on:
        operation = await on.ground.operation("observing", "batch_1", result_within="2h")
        break_adapter(on.ground, "read_status")
        on.ground.clock.advance(2 * HOUR)
        await on.act_now()
        assert (await on.ground.row(operation)).state == "result_timed_out"


async def test_a_fault_of_ours_after_an_unclear_cancel_waits_before_the_next_read(tmp_path: Path) -> None:
    """The read that follows the cancel is a read: it backs off, and the cancel's deadline ends it."""
    peer = Peer(reads=[batch("in_progress", output=None, metadata={"bad": "1"})])
    async with bench(tmp_path / "state", peer) as on:
        operation = await on.ground.operation("observing", "batch_1")
        break_adapter(on.ground, "read_status")
        await on.ground.apply(operation, CancelAsked("cancel_1", "client:ci", "too dear", "stops the job"))
        await on.ground.act(CancelAnswered(CancelAnswer.UNKNOWN, "timeout"))
        await on.act_now()
        owner, due_at, deadline_at, errors = on.lease(operation)
        assert owner is None
        assert errors == 1
        assert due_at > on.ground.clock.now()
        on.ground.clock.set(deadline_at)
        await on.act_now()
        assert (await on.ground.row(operation)).state == "cancellation_unconfirmed"


async def test_a_fault_of_ours_in_the_one_read_that_an_event_asked_for_is_tried_again_with_a_wait(
    tmp_path: Path,
) -> None:
    """Where polling has stopped, a ring is owed one read that is answered: by backoff, not one a lease."""
    peer = Peer(reads=[batch("in_progress", output=None, metadata={"bad": "1"})])
    async with bench(tmp_path / "state", peer) as on:
        operation = await on.ground.operation("observing", "batch_1", result_within="2h")
        on.ground.clock.advance(2 * HOUR)
        await on.ground.apply(operation, DeadlinePassed("result", last_read=True))
        break_adapter(on.ground, "read_status")
        ring = event("batch_1")
        assert (await on.ground.hook(ring, signed(ring, at_ms=on.ground.clock.now()))).status == 200
        await on.act_now()
        assert len(on.told("action_failed")) == 1
        owner, due_at, _, _ = on.lease(operation)
        assert owner is None
        assert 30_000 <= due_at - on.ground.clock.now() <= 60_000  # OpenAI's base, doubled once


# ---- whose refusal it is ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("others", ["are read well", "are refused too"])
async def test_a_refusal_costs_a_job_its_budget_only_where_others_are_read_well_with_the_same_key(
    tmp_path: Path, others: str
) -> None:
    """C6: 403 speaks of the account, until another job shows that the key is good."""

    async def read(request: web.Request) -> web.StreamResponse:
        job = request.match_info["job"]
        if job == "batch_bad" or others == "are refused too":
            return web.json_response({"error": {"message": "no"}}, status=403)
        return web.json_response({**batch("in_progress", output=None), "id": job})

    async with bench(tmp_path / "state", Peer(reads=[read])) as on:
        bad = await on.ground.operation("observing", "batch_bad")
        good = await on.ground.operation("observing", "batch_good")
        for _ in range(3):
            on.ground.clock.advance(HOUR)
            room = {"openai": 8}
            claims = (await on.ground.daemon.store.claim(ClaimWish("A", on.ground.clock.now(), LEASE_MS, room))).claims
            for operation_id in (good, bad):
                (claim,) = (c for c in claims if c.operation.operation_id == operation_id)
                on.ground.clock.advance(1)
                on.act(claim)
                await on.done()
        # The first refusal is no word yet about the key: this job was never read before it.
        assert (await on.ground.row(bad)).schedule.errors == (2 if others == "are read well" else 0)


# ---- deadlines and slots ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", ["turn over", "are all held"])
async def test_a_deadline_fires_unread_only_where_the_same_actions_hold_every_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slots: str
) -> None:
    """C5: one last read, as long as a slot comes free; N23: a slow transfer holds up no deadline for ever."""
    monkeypatch.setattr("reconcile.worker.STUCK_SECONDS", 600 if slots == "turn over" else 0.2)
    held = Held(batch("in_progress", output=None))
    async with serving(Peer(reads=[held.answer]).app()) as url:
        providers = {"openai": provider(f"{url}/v1", limits={"concurrency": 1})}
        async with running(tmp_path / "state", providers=providers) as ground:
            await ground.operation("observing", "batch_1", result_within="9h")
            late = await ground.operation("observing", "batch_2", result_within="2h")
            ground.clock.advance(HOUR)
            stop = asyncio.Event()
            worker = asyncio.create_task(ground.daemon.worker.run(stop))
            await held.arrived()
            ground.clock.advance(HOUR)
            ground.daemon.worker.wake(0)
            if slots == "turn over":
                held.let_go()

            async def is_timed_out() -> bool:
                return (await ground.row(late)).state is State.RESULT_TIMED_OUT

            await until(is_timed_out)
            assert held.count == (2 if slots == "turn over" else 1)
            held.let_go()
            stop.set()
            ground.daemon.worker.wake(0)
            await worker


async def test_what_was_answered_holds_no_slot_on_its_way_to_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot bounds what a provider is asked at once: another job is read before the first answer is committed."""
    reads = Held(batch("in_progress", output=None), held=0)
    async with serving(Peer(reads=[reads.answer]).app()) as url:
        providers = {"openai": provider(f"{url}/v1", limits={"concurrency": 1})}
        async with running(tmp_path / "state", providers=providers) as ground:
            jobs = [await ground.operation("observing", f"batch_{n}") for n in range(2)]
            ground.clock.set(max(ground.due_at(job) for job in jobs) + 1_000)
            gate, store = asyncio.Event(), ground.daemon.store

            def behind_the_gate(write: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
                async def wait_first(what: Any) -> Any:
                    await gate.wait()
                    return await write(what)

                return wait_first

            monkeypatch.setattr(store, "apply", behind_the_gate(store.apply))
            monkeypatch.setattr(store, "repeat", behind_the_gate(store.repeat))
            stop = asyncio.Event()
            worker = asyncio.create_task(ground.daemon.worker.run(stop))
            await reads.arrived()
            ground.clock.advance(1_000)  # the rate lets one leave in a second
            await reads.arrived(2)
            gate.set()
            stop.set()
            ground.daemon.worker.wake(0)
            await worker
            assert ground.rows("SELECT count(*) FROM schedule WHERE lease_owner IS NOT NULL OR reads = 0") == [(0,)]


class Inlined(OpenAIBatch):
    """An adapter whose jobs bear their results themselves."""

    def read_status(self, response: HttpResponse) -> JobRead | JobGone | ReadFailed:
        read = super().read_status(response)
        assert isinstance(read, JobRead)
        return replace(read, observation=replace(read.observation, results=(ResultRef(INLINE, "whole"),)))


async def test_a_body_that_is_on_its_way_to_a_file_of_its_own_holds_its_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be as large as an answer can be: on a slow disk no more of them are held than are asked for at once."""
    reads = Held(batch("in_progress", output=None), held=0)
    async with serving(Peer(reads=[reads.answer]).app()) as url:
        providers = {"openai": provider(f"{url}/v1", limits={"concurrency": 1})}
        async with running(tmp_path / "state", providers=providers) as ground:
            worker, gate, kept = ground.daemon.worker, asyncio.Event(), asyncio.Event()
            peer = worker._peers["openai"]
            peer.provider = Inlined(peer.provider.contract)
            finish = FileWriter.finish

            async def finish_late(writer: FileWriter) -> Written:
                kept.set()
                await gate.wait()
                return await finish(writer)

            jobs = [await ground.operation("observing", f"batch_{n}") for n in range(2)]
            monkeypatch.setattr(FileWriter, "finish", finish_late)
            ground.clock.set(max(ground.due_at(job) for job in jobs) + 1_000)
            stop = asyncio.Event()
            task = asyncio.create_task(worker.run(stop))
            async with asyncio.timeout(PATIENCE):
                await kept.wait()
            assert worker._room(peer, ground.clock.now()) == 0
            gate.set()
            ground.clock.advance(1_000)  # the rate lets one leave in a second
            await reads.arrived(2)
            stop.set()
            worker.wake(0)
            await task


async def test_a_cancel_leaves_while_results_drip_in_every_slot_that_they_may_take(tmp_path: Path) -> None:
    """The order within a provider is cancel, create, rung, collect: a slot is left for it."""
    cancelled: list[str] = []

    async def cancel(request: web.Request) -> web.StreamResponse:
        cancelled.append(request.match_info["job"])
        return web.json_response({**batch("cancelling", output=None), "id": request.match_info["job"]})

    held = Held(web.Response, held=9)
    peer = Peer(reads=[batch("in_progress", output=None)], files={"file-out": held.answer})
    app = peer.app()
    app.router.add_post("/v1/batches/{job}/cancel", cancel)
    async with serving(app) as url:
        providers = {"openai": provider(f"{url}/v1", limits={"concurrency": 2})}
        async with running(tmp_path / "state", providers=providers) as ground:
            running_job = await ground.operation("observing", "batch_9")
            for n in range(3):
                await ground.operation("result_collecting", f"batch_{n}")
            stop = asyncio.Event()
            worker = asyncio.create_task(ground.daemon.worker.run(stop))
            await held.arrived()
            wish = {"by": "ann", "reason": "r", "effect": "e"}
            assert (await ground.api("POST", f"/v1/operations/{running_job}/cancel", body=wish)).status == 202

            async def has_left() -> bool:
                return cancelled == ["batch_9"]

            await until(has_left)
            assert held.count == 1
            stop.set()
            ground.daemon.worker.wake(0)
            for n in range(held.count):
                held.let_go(n)
            await worker


async def test_what_was_claimed_as_a_stop_came_is_sent_before_the_stop(tmp_path: Path) -> None:
    """The claim has marked the cancel as about to be sent: dropped, it would read as one that may have arrived."""
    cancelled: list[str] = []

    async def cancel(request: web.Request) -> web.StreamResponse:
        cancelled.append(request.match_info["job"])
        return web.json_response({**batch("cancelling", output=None), "id": "batch_1"})

    app = Peer(reads=[batch("in_progress", output=None)]).app()
    app.router.add_post("/v1/batches/{job}/cancel", cancel)
    async with serving(app) as url, running(tmp_path / "state", providers={"openai": provider(f"{url}/v1")}) as ground:
        operation = await ground.operation("observing", "batch_1")
        asked = CancelAsked("can_1", "ann", "r", "e")
        await ground.apply(operation, asked)
        stop = asyncio.Event()
        stop.set()
        await ground.daemon.worker._pass(stop)
        await ground.daemon.worker._wind_down()
        assert cancelled == ["batch_1"]
        assert (await ground.row(operation)).state is State.CANCELLING


# ---- a log that nobody reads -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["pipe", "closed", "full"])
async def test_a_log_that_cannot_be_written_ends_nothing(tmp_path: Path, how: str) -> None:
    """Its reader went away, or the disk behind it is full: every line fails, and the job comes to its end."""
    with broken_stream(how) as stream:
        log = make_log(Redactor(()), stream=stream, as_json=True)
        peer = two_jobs()
        async with stage(tmp_path / "state", peer) as on:
            daemon = on.ground.daemon
            for room in (daemon.worker, daemon.client, daemon.ingest._reporter):
                room._log = log
            break_adapter(on.ground, "read_item")
            bad = await on.submit("bad")
            good = await on.submit("good")
            assert (await on.end(good))["state"] == "succeeded"
            assert (await on.end(bad))["state"] == "result_unavailable"
            assert daemon.store.is_writable


@contextmanager
def broken_stream(how: str) -> Iterator[TextIO]:
    """A stream of which every line fails."""
    if how == "pipe":
        reader, writer = os.pipe()
        os.close(reader)
        stream = open(writer, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - by descriptor
    elif how == "full":
        stream = Path("/dev/full").open("w", encoding="utf-8")  # noqa: SIM115 - closed below, if it can be
    else:
        stream = io.TextIOWrapper(io.BytesIO())
        stream.close()
    yield stream
    with suppress(OSError):
        stream.close()


# ---- a file of ours that cannot be read ------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["ENOENT", "EMFILE"])
async def test_an_input_that_cannot_be_opened_leaves_no_doubt_about_the_create(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Nothing left: no mark stands, and the same bytes go out once the file can be read."""
    answer = json.loads((Path(__file__).parents[1] / "fixtures/anthropic/batch_create_response.json").read_bytes())
    create = Held(answer, held=0)
    async with bench(tmp_path / "state", Peer(), routes={"/v1/messages/batches": create}) as on:
        response = await on.ground.api("POST", "/v1/operations", body=CLAUDE)
        operation = str(response.json()["operation_id"])
        spooled = on.ground.folder / str((await on.ground.row(operation)).input_ref)
        away = spooled.with_suffix(".away")
        with monkeypatch.context() as broken:
            if fault == "ENOENT":
                spooled.rename(away)
            else:

                def no_more(_: object, ref: str) -> Any:
                    raise OSError(24, f"Too many open files: {ref}")

                broken.setattr("reconcile.files.Files.open", no_more)
            await on.act_now()
        if fault == "ENOENT":
            away.rename(spooled)
        row = await on.ground.row(operation)
        assert (row.state, row.schedule.mark_at, row.schedule.errors) == ("create_pending", None, 1)
        owner, due_at, _, _ = on.lease(operation)
        assert owner is None
        assert creates(on.peer) == 0
        assert on.ground.daemon.worker._peers["claude"].pause.failures == 0
        on.ground.clock.set(due_at)
        await on.act_now()
        row = await on.ground.row(operation)
        assert (row.state, row.remote_job_id) == ("observing", answer["id"])
        moves = [row.to_state for row in await on.ground.daemon.store.history(operation) if row.kind == "move"]
        assert "create_unknown" not in moves


# ---- a row that changes while it is held -----------------------------------------------------------------------


async def test_an_action_that_goes_on_and_finds_another_state_gives_its_lease_back_at_once(tmp_path: Path) -> None:
    """The read before another try to collect comes after the deadline and fails: a person is asked, nothing waits."""
    content = refusal(404)
    peer = Peer(reads=[batch(), refusal(500)], files={"file-out": content})
    async with bench(tmp_path / "state", peer) as on:
        operation = await on.ground.operation("result_collecting", "batch_1")
        await on.act_now()
        _, due_at, deadline_at, errors = on.lease(operation)
        assert errors == 1
        peer.reads = [refusal(500)]
        on.ground.clock.set(deadline_at)
        assert due_at < deadline_at
        await on.act_now()
        assert (await on.ground.row(operation)).state == "result_unavailable"
        assert on.lease(operation)[0] is None
        assert peer.fetched == ["file-out"]


@pytest.mark.parametrize(
    ("headers", "least_ms"), [(None, 1_000), ({"Retry-After": "900"}, 900_000)], ids=["backoff", "Retry-After"]
)
async def test_an_event_during_a_try_to_collect_does_not_bring_the_next_try_forward(
    tmp_path: Path, headers: Mapping[str, str] | None, least_ms: int
) -> None:
    """It says nothing that the collection does not know: the wait after a failed try stays as long as it is."""
    content = Held(refusal(404, headers))
    peer = Peer(reads=[batch()], files={"file-out": content.answer})
    async with bench(tmp_path / "state", peer) as on:
        operation = await on.ground.operation("result_collecting", "batch_1")
        on.act(await on.claim())
        await content.arrived()
        on.ground.clock.advance(1_000)
        ring = event("batch_1")
        assert (await on.ground.hook(ring, signed(ring, at_ms=on.ground.clock.now()))).status == 200
        content.let_go()
        await on.done()
        owner, due_at, _, errors = on.lease(operation)
        assert (owner, errors) == (None, 1)
        assert due_at >= on.ground.clock.now() + least_ms


async def test_an_event_during_a_read_is_followed_by_another_read(tmp_path: Path) -> None:
    """What the read saw may be older than the event: this is what the ring of a held row is for."""
    reads = Held(batch("in_progress", output=None))
    async with bench(tmp_path / "state", Peer(reads=[reads.answer])) as on:
        operation = await on.ground.operation("observing", "batch_1")
        on.ground.clock.set(on.ground.due_at(operation))
        on.act(await on.claim())
        await reads.arrived()
        on.ground.clock.advance(1_000)
        ring = event("batch_1")
        assert (await on.ground.hook(ring, signed(ring, at_ms=on.ground.clock.now()))).status == 200
        reads.let_go()
        await on.done()
        assert on.lease(operation)[1] <= on.ground.clock.now()
        assert (await on.claim()).ring == "event:msg_1"


# ---- what a create tells of the provider -------------------------------------------------------------------------


async def test_a_create_that_is_not_accepted_counts_once_and_does_not_end_a_pause_before_it(tmp_path: Path) -> None:
    """A proxy's 404 to the probe: one more failure of the same outage, which nothing has ended in between."""

    async def nowhere(_: web.Request) -> web.StreamResponse:
        return web.Response(status=404, text="<html>no such route</html>", content_type="text/html")

    async with bench(tmp_path / "state", Peer(), routes={"/v1/messages/batches": Held(nowhere, held=0)}) as on:
        await on.ground.start(**CLAUDE)
        account = on.ground.daemon.peers["claude"]
        now = on.ground.clock.now()
        account.pause = Pause(now - 1, "failures: connect", 5, now - HOUR)
        await on.act_now()
        assert (account.pause.failures, account.pause.opened_at_ms) == (6, now - HOUR)
        assert account.pause.reason == "create_not_accepted"
        assert list(account.recent) == [True]
        assert on.told("provider_resumed") == on.told("provider_paused") == []
