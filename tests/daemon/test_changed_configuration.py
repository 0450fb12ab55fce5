"""What a changed configuration means for open operations: each row of the page's table, the daemon stopped and started.

Each life is the whole daemon on the same state directory, its worker included; time stands still in it until the test
moves it. The provider is a small one on a real socket that records what it was asked.
"""

import re
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from reconcile.decisions import Decision
from reconcile.errors import ConfigError
from reconcile.evidence import CancelAnswer, CancelAnswered, CancelAsked, DeadlinePassed, PersonDecided
from reconcile.limits import Pause
from reconcile.states import State
from tests.handlers.ground import (
    NOON,
    OTHER_SECRET,
    SECRET,
    START,
    Ground,
    HandClock,
    event,
    provider,
    running,
    signed,
    until,
)
from tests.handlers.test_collect import JOB, Peer, batch, line, refusal, serving
from tests.reconcile.test_worker import Held

MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
#: Somebody else is configured too, whom nothing concerns.
OTHER: Final = provider("http://127.0.0.1:9/v1", webhook_secrets=[])
STARTED_ANEW: Final = {"id": "batch_new", "object": "batch", "status": "validating", "input_file_id": "file-in"}


@asynccontextmanager
async def life(
    folder: Path, providers: dict[str, Any], *, at: int = NOON, worker: bool = True, **more: Any
) -> AsyncIterator[Ground]:
    """One life of the daemon, beginning at a time of its own."""
    every = {"other": OTHER, **providers}
    async with running(folder, providers=every, clock=HandClock(at), worker=worker, seed=at + worker, **more) as ground:
        yield ground


async def reaches(ground: Ground, operation: str, state: str) -> Any:
    """The operation's body, once it is in this state."""

    async def is_there() -> bool:
        return (await ground.row(operation)).state == state

    await until(is_there)
    return await ground.get(f"/v1/operations/{operation}")


async def quiet(ground: Ground) -> None:
    """Whole passes of the worker, each of which would do what is due, until nothing is."""

    async def is_quiet() -> bool:
        ground.daemon.worker.wake(0)
        sql = "SELECT count(*) FROM schedule WHERE lease_owner IS NOT NULL OR due_at <= ?"
        return ground.rows(sql, ground.clock.now()) == [(0,)]

    await until(is_quiet)


def told(ground: Ground, word: str) -> list[tuple[str, int]]:
    """The log's lines of one event about operations of a provider."""
    return [(e["provider"], e["operations"]) for e in ground.logged if e["event"] == word]


async def notices(ground: Ground) -> list[tuple[str, Any]]:
    """What people are told of the provider as it stands now."""
    await ground.daemon.watchman.look()
    return [(n.notice_id, n.evidence) for n in await ground.daemon.store.notices() if n.provider == "openai"]


async def moves(ground: Ground, operation: str) -> list[str]:
    history = (await ground.get(f"/v1/operations/{operation}/history?limit=500"))["history"]
    return [row["to"] for row in history if row["kind"] == "move"]


@contextmanager
def writing(folder: Path) -> Iterator[sqlite3.Connection]:
    """The file, while no daemon has it open."""
    connection = sqlite3.connect(folder / "reconciled.db")
    try:
        with connection:
            yield connection
    finally:
        connection.close()


@asynccontextmanager
async def watched(folder: Path, peer: Peer) -> AsyncIterator[tuple[str, str]]:
    """A provider at an address, and an operation of it that a first life brought as far as a running job."""
    async with serving(peer.app()) as url:
        async with life(folder, {"openai": provider(f"{url}/v1")}) as ground:
            operation = await ground.start()
            await reaches(ground, operation, "observing")
        peer.asked.clear()
        yield url, operation


# ---- the provider removed or renamed ---------------------------------------------------------------------------


async def test_what_a_removed_provider_ran_says_so_in_its_own_body_and_nobody_is_asked(tmp_path: Path) -> None:
    peer = Peer(reads=[batch("in_progress", output=None)])
    async with watched(tmp_path / "state", peer) as (_, operation):
        async with life(tmp_path / "state", {}, at=NOON + MINUTE) as ground:
            body = await reaches(ground, operation, "observation_failed")
            assert body["attention"]["reason"] == "provider_missing"
            assert "Put [providers.openai] back" in body["attention"]["message"]
            assert "Put [providers.openai] back" in body["message"]
            assert "NOT complete" in body["message"]
            assert body["status"] == "blocked"
            assert told(ground, "provider_missing") == [("openai", 1)]
            await quiet(ground)
        assert peer.asked == []


async def test_the_question_ends_when_the_configuration_says_whatever_kind_it_was(tmp_path: Path) -> None:
    sections, peer = {"attention": {"within": "3d"}}, Peer(reads=[batch("in_progress", output=None)])
    async with (
        watched(tmp_path / "state", peer) as (_, operation),
        life(tmp_path / "state", {}, at=NOON + MINUTE, sections=sections) as ground,
    ):
        await reaches(ground, operation, "observation_failed")
        assert (await ground.row(operation)).deadlines.attention == NOON + MINUTE + 3 * DAY
        ground.clock.set(NOON + MINUTE + 3 * DAY)
        ground.daemon.worker.wake(0)
        await reaches(ground, operation, "abandoned")


async def test_put_back_the_job_is_read_once_and_goes_on(tmp_path: Path) -> None:
    peer = Peer(reads=[batch("in_progress", output=None)])
    async with watched(tmp_path / "state", peer) as (url, operation):
        async with life(tmp_path / "state", {}, at=NOON + MINUTE) as ground:
            await reaches(ground, operation, "observation_failed")
        longer = provider(f"{url}/v1", poll={"deadline": "99h"})
        async with life(tmp_path / "state", {"openai": longer}, at=NOON + DAY) as ground:
            body = await reaches(ground, operation, "observing")
            assert body["attention"] is None
            assert (await ground.row(operation)).deadlines.result == NOON + 26 * HOUR
            assert told(ground, "provider_back") == [("openai", 1)]
            assert told(ground, "provider_missing") == []
            await quiet(ground)
            assert peer.asked == [("GET", f"/v1/batches/{JOB}")]
            rows = (await ground.get(f"/v1/operations/{operation}/history"))["history"]
            assert [row["reason"] for row in rows if row["kind"] == "move"][-1] == (
                "the job can be read again; the provider says in_progress"
            )
        async with life(tmp_path / "state", {"openai": provider(f"{url}/v1")}, at=NOON + DAY + 1) as ground:
            await quiet(ground)
            assert told(ground, "provider_back") == []
            assert len(peer.asked) == 1


async def test_put_back_after_its_end_the_result_is_collected(tmp_path: Path) -> None:
    peer = Peer(reads=[batch("in_progress", output=None)], files={"file-out": line("a")})
    async with watched(tmp_path / "state", peer) as (url, operation):
        async with life(tmp_path / "state", {}, at=NOON + MINUTE) as ground:
            await reaches(ground, operation, "observation_failed")
        peer.reads = [batch()]
        async with life(tmp_path / "state", {"openai": provider(f"{url}/v1")}, at=NOON + DAY) as ground:
            body = await reaches(ground, operation, "succeeded")
            assert body["summary"]["succeeded"] == 1


async def test_put_back_a_read_that_fails_is_made_again(tmp_path: Path) -> None:
    """The question must not stand on with a reason that is no longer true."""
    peer = Peer(reads=[batch("in_progress", output=None)])
    async with watched(tmp_path / "state", peer) as (url, operation):
        async with life(tmp_path / "state", {}, at=NOON + MINUTE) as ground:
            await reaches(ground, operation, "observation_failed")
        peer.reads = [refusal(500), batch("in_progress", output=None)]
        async with life(tmp_path / "state", {"openai": provider(f"{url}/v1")}, at=NOON + DAY) as ground:

            async def has_failed() -> bool:
                return (await ground.row(operation)).schedule.errors == 1

            await until(has_failed)
            assert (await ground.row(operation)).state is State.OBSERVING
            ground.clock.set(ground.due_at(operation))
            await quiet(ground)
            assert (await ground.row(operation)).schedule.errors == 0
            assert len(peer.asked) == 2


async def test_a_renamed_provider_is_another_one(tmp_path: Path) -> None:
    """The new name starts operations of its own; the old ones wait for the old name."""
    peer = Peer(reads=[batch("in_progress", output=None)], create=STARTED_ANEW)
    async with watched(tmp_path / "state", peer) as (url, operation):
        renamed = {"openai2": provider(f"{url}/v1")}
        async with life(tmp_path / "state", renamed, at=NOON + MINUTE) as ground:
            body = await reaches(ground, operation, "observation_failed")
            assert body["attention"]["reason"] == "provider_missing"
            fresh = await ground.start(provider="openai2")
            await reaches(ground, fresh, "observing")
            await quiet(ground)
        assert not any(JOB in path for _, path in peer.asked)


async def test_who_resumes_while_it_is_missing_is_asked_the_same_again(tmp_path: Path) -> None:
    peer = Peer(reads=[batch("in_progress", output=None)])
    async with watched(tmp_path / "state", peer) as (_, operation):
        async with life(tmp_path / "state", {}, at=NOON + MINUTE) as ground:
            await reaches(ground, operation, "observation_failed")
            await ground.apply(operation, PersonDecided("decision_1", Decision.RESUME, "ann", "try"))
            assert (await ground.row(operation)).state is State.OBSERVING
            ground.clock.set(ground.due_at(operation))
            ground.daemon.worker.wake(0)
            body = await reaches(ground, operation, "observation_failed")
            assert body["attention"]["reason"] == "provider_missing"
        assert peer.asked == []


@pytest.mark.parametrize(
    ("state", "later", "end", "reason"),
    [
        ("create_pending", 16 * MINUTE, "failed", "never_sent"),
        ("create_unknown", 16 * MINUTE, "create_unresolved", "create_unresolved"),
        ("cancel_requested", 16 * MINUTE, "cancellation_unconfirmed", "cancellation_unconfirmed"),
        ("cancelling", 16 * MINUTE, "cancellation_unconfirmed", "cancellation_unconfirmed"),
        ("result_collecting", 25 * HOUR, "result_unavailable", "result_unavailable"),
    ],
)
@pytest.mark.parametrize("change", ["missing", "moved"])
async def test_what_else_is_open_waits_and_its_deadline_runs(
    tmp_path: Path, state: str, later: int, end: str, reason: str, change: str
) -> None:
    """Nothing is sent, and nothing is said of what was not sent but that."""
    old, new, folder = Peer(), Peer(), tmp_path / "state"
    async with serving(old.app()) as url, serving(new.app()) as other_url:
        async with life(folder, {"openai": provider(f"{url}/v1")}, worker=False) as ground:
            if state == "create_pending":
                operation = await ground.start()
            elif state in ("cancel_requested", "cancelling"):
                operation = await ground.operation("observing", JOB)
                await ground.apply(operation, CancelAsked("cancel_1", "ann", "no need", "stop"))
                if state == "cancelling":
                    await ground.apply(operation, CancelAnswered(CancelAnswer.ACCEPTED))
            else:
                operation = await ground.operation(state, JOB)
            assert (await ground.row(operation)).state == state
        changed = {} if change == "missing" else {"openai": provider(f"{other_url}/v1")}
        async with life(folder, changed, at=NOON + MINUTE) as ground:
            ground.clock.set(max(ground.due_at(operation), NOON + MINUTE))
            await quiet(ground)
            row = await ground.row(operation)
            assert (row.state, row.schedule.mark_at, row.schedule.errors) == (state, None, 0)
            assert ground.clock.now() < row.schedule.due_at <= ground.clock.now() + 15 * MINUTE
            ground.clock.set(NOON + later)
            ground.daemon.worker.wake(0)
            body = await reaches(ground, operation, end)
            assert (body["error"] or {"code": body["attention"] and body["attention"]["reason"]})["code"] == reason
        assert old.asked == new.asked == []


async def test_put_back_what_had_waited_goes_on_at_once(tmp_path: Path) -> None:
    """A notice that stood tells which: here a create that had never left."""
    peer, folder = Peer(reads=[batch("in_progress", output=None)]), tmp_path / "state"
    async with serving(peer.app()) as url:
        async with life(folder, {"openai": provider(f"{url}/v1")}, worker=False) as ground:
            operation = await ground.start(create_within="9h")
        async with life(folder, {}, at=NOON + MINUTE) as ground:
            await quiet(ground)
            waits = ground.due_at(operation)
            assert await notices(ground) == [("provider_missing.openai", {"operations": 1})]
        async with life(folder, {"openai": provider(f"{url}/v1")}, at=NOON + 2 * MINUTE) as ground:
            assert waits > ground.clock.now()
            await reaches(ground, operation, "observing")
            assert await notices(ground) == []


async def test_a_pause_that_it_had_holds_up_nothing_and_is_kept(tmp_path: Path) -> None:
    peer, folder = Peer(reads=[batch("in_progress", output=None)]), tmp_path / "state"
    async with watched(folder, peer) as (url, operation):
        async with life(folder, {"openai": provider(f"{url}/v1")}, worker=False) as ground:
            pause = Pause(NOON + HOUR, "rate_limited", 1, NOON)
            await ground.daemon.store.keep_pauses({"openai": pause}, NOON)
        async with life(folder, {}, at=NOON + MINUTE) as ground:
            await reaches(ground, operation, "observation_failed")
        async with life(folder, {"openai": provider(f"{url}/v1")}, at=NOON + 2 * MINUTE) as ground:
            assert await ground.daemon.store.pauses() == {"openai": pause}
            ground.clock.set(NOON + HOUR)
            ground.daemon.worker.wake(0)
            await reaches(ground, operation, "observing")


# ---- its webhooks, its status, its starts ----------------------------------------------------------------------


async def test_webhooks_of_a_missing_provider_are_to_be_sent_again_as_long_as_somebody_waits(tmp_path: Path) -> None:
    """404 would end the provider's retries, and nothing can be proven without the key."""
    peer, folder = Peer(reads=[batch("in_progress", output=None)]), tmp_path / "state"
    async with watched(folder, peer) as (_, operation), life(folder, {}, at=NOON + MINUTE) as ground:
        await reaches(ground, operation, "observation_failed")
        answer = await ground.hook(event(JOB), signed(event(JOB), at_ms=ground.clock.now()))
        assert (answer.status, answer.headers.get("Retry-After"), answer.body) == (503, "5", b"")
        assert ground.rows("SELECT count(*) FROM events") == [(0,)]
        assert (await ground.hook(b"", {}, method="GET")).status == 405
        assert (await ground.hook(event(JOB), {}, provider="nobody")).status == 404
        await ground.apply(operation, PersonDecided("decision_1", Decision.GIVE_UP, "ann", "enough"))
        answer = await ground.hook(event(JOB), signed(event(JOB), at_ms=ground.clock.now()))
        assert answer.status == 404


async def test_the_status_page_shows_a_missing_provider_as_long_as_operations_of_it_are_open(tmp_path: Path) -> None:
    peer, folder = Peer(reads=[batch("in_progress", output=None)]), tmp_path / "state"
    async with watched(folder, peer) as (_, operation), life(folder, {}, at=NOON + MINUTE) as ground:
        await reaches(ground, operation, "observation_failed")
        shown = (await ground.get("/v1/status"))["providers"]
        assert {name: each["missing"] for name, each in shown.items()} == {"openai": True, "other": False}
        assert shown["openai"]["kind"] == "openai_batch"
        await ground.apply(operation, PersonDecided("decision_1", Decision.GIVE_UP, "ann", "enough"))
        assert list((await ground.get("/v1/status"))["providers"]) == ["other"]


async def test_nothing_is_started_at_a_missing_provider(tmp_path: Path) -> None:
    peer, folder = Peer(reads=[batch("in_progress", output=None)]), tmp_path / "state"
    async with watched(folder, peer), life(folder, {}, at=NOON + MINUTE) as ground:
        answer = await ground.api("POST", "/v1/operations", body=START)
        assert answer.status == 422
        (error,) = answer.json()["errors"]
        assert error == {
            "pointer": "/provider",
            "message": "no provider 'openai' is configured; configured: other",
        }


# ---- the address moved -----------------------------------------------------------------------------------------


async def test_at_another_address_nothing_is_asked_about_what_was_started_before(tmp_path: Path) -> None:
    """The new account is not asked about a stranger's job; what is started now is followed as ever."""
    old, new = Peer(reads=[batch("in_progress", output=None)]), Peer(create=STARTED_ANEW)
    new.reads = [{**batch("in_progress", output=None), "id": "batch_new"}]
    folder = tmp_path / "state"
    async with watched(folder, old) as (url, operation), serving(new.app()) as other_url:
        async with life(folder, {"openai": provider(f"{other_url}/v1")}, at=NOON + MINUTE) as ground:
            body = await reaches(ground, operation, "observation_failed")
            assert body["attention"]["reason"] == "provider_moved"
            for part in (url, other_url, "moved_from of [providers.openai]"):
                assert part in body["message"]
            assert told(ground, "provider_moved") == [("openai", 1)]
            fresh = await ground.start()
            await reaches(ground, fresh, "observing")
            assert await notices(ground) == [("provider_moved.openai", {"operations": 1, "origins": [url]})]
            await ground.hook(event(JOB), signed(event(JOB), at_ms=ground.clock.now()))
            await quiet(ground)
            assert (await ground.row(operation)).state is State.OBSERVATION_FAILED
        assert old.asked == []
        assert new.asked
        assert not any(JOB in path for _, path in new.asked)


@pytest.mark.parametrize("way", ["named in moved_from", "set back"])
async def test_put_right_the_moved_job_is_read_once_and_goes_on(tmp_path: Path, way: str) -> None:
    old, new = (Peer(reads=[batch("in_progress", output=None)]) for _ in range(2))
    folder = tmp_path / "state"
    async with watched(folder, old) as (url, operation), serving(new.app()) as other_url:
        async with life(folder, {"openai": provider(f"{other_url}/v1")}, at=NOON + MINUTE) as ground:
            await reaches(ground, operation, "observation_failed")
        right = provider(f"{other_url}/v1", moved_from=[f"{url}/any/path"])
        if way == "set back":
            right = provider(f"{url}/v1")
        async with life(folder, {"openai": right}, at=NOON + HOUR) as ground:
            await reaches(ground, operation, "observing")
            await quiet(ground)
        asked = {"named in moved_from": new.asked, "set back": old.asked}
        assert asked.pop(way) == [("GET", f"/v1/batches/{JOB}")]
        assert list(asked.values()) == [[]]


async def test_a_move_that_is_named_at_once_interrupts_nothing(tmp_path: Path) -> None:
    old, new = (Peer(reads=[batch("in_progress", output=None)]) for _ in range(2))
    folder = tmp_path / "state"
    async with watched(folder, old) as (url, operation), serving(new.app()) as other_url:
        moved = provider(f"{other_url}/v1", moved_from=["https://elsewhere.example", url])
        async with life(folder, {"openai": moved}, at=NOON + MINUTE) as ground:
            ground.clock.set(max(ground.due_at(operation), NOON + MINUTE))
            await quiet(ground)
            assert await moves(ground, operation) == ["create_pending", "accepted", "observing"]
        assert new.asked == [("GET", f"/v1/batches/{JOB}")]


async def test_another_path_of_the_same_origin_is_no_move(tmp_path: Path) -> None:
    peer = Peer(reads=[batch("in_progress", output=None)])
    async with watched(tmp_path / "state", peer) as (url, operation):
        async with life(tmp_path / "state", {"openai": provider(f"{url}/v2")}, at=NOON + MINUTE) as ground:
            ground.clock.set(max(ground.due_at(operation), NOON + MINUTE))
            await quiet(ground)
            assert (await ground.row(operation)).state is State.OBSERVING
        assert peer.asked == [("GET", f"/v2/batches/{JOB}")]


async def test_removed_and_put_back_elsewhere_it_is_told_as_moved(tmp_path: Path) -> None:
    peer, folder = Peer(reads=[batch("in_progress", output=None)]), tmp_path / "state"
    async with watched(folder, peer) as (_, operation), serving(Peer().app()) as other_url:
        async with life(folder, {}, at=NOON + MINUTE) as ground:
            await reaches(ground, operation, "observation_failed")
        async with life(folder, {"openai": provider(f"{other_url}/v1")}, at=NOON + HOUR) as ground:

            async def is_renamed() -> bool:
                attention = (await ground.row(operation)).attention
                return attention is not None and attention.reason == "provider_moved"

            await until(is_renamed)
        assert peer.asked == []


# ---- another kind under the same name --------------------------------------------------------------------------


async def test_another_kind_under_the_same_name_stops_the_start_before_anything_is_written(tmp_path: Path) -> None:
    peer, folder = Peer(reads=[batch("in_progress", output=None)]), tmp_path / "state"
    async with watched(folder, peer) as (url, operation):
        changed = {"openai": provider(f"{url}/v1", kind="anthropic_batches", webhook_secrets=[])}
        async with life(folder, {"openai": provider(f"{url}/v1")}, worker=False) as ground:
            before = ground.everything()
        with pytest.raises(ConfigError) as refused:
            async with life(folder, changed, at=NOON + MINUTE):
                pass
        assert str(refused.value) == (
            "test.toml: providers.openai.kind: found 'anthropic_batches'; expected 'openai_batch' as long as there are"
            " open operations of it (1); a new kind takes a name of its own"
        )
        assert ground.everything() == before
        async with life(folder, {"openai": provider(f"{url}/v1")}, at=NOON + MINUTE, worker=False) as ground:
            await ground.apply(operation, CancelAsked("cancel_1", "ann", "enough", "stop"))
            ground.clock.advance(DAY)
            await ground.apply(operation, DeadlinePassed("cancel"))
            await ground.apply(operation, PersonDecided("decision_1", Decision.GIVE_UP, "ann", "enough"))
        async with life(folder, changed, at=NOON + 2 * DAY, worker=False) as ground:
            known = await ground.daemon.store.known_providers()
            assert {name: each.kind for name, each in known.items()} == {
                "openai": "anthropic_batches",
                "other": "openai_batch",
            }


async def test_a_missing_provider_whose_kind_nobody_knows_stops_the_start(tmp_path: Path) -> None:
    """A file that an older release wrote: put it back once, and the file knows it."""
    folder = tmp_path / "state"
    async with life(folder, {"openai": provider()}, worker=False) as ground:
        await ground.start()
    with writing(folder) as connection:
        connection.execute("DELETE FROM providers")
    with pytest.raises(ConfigError, match=re.escape("providers.openai: found nothing; expected this table: there are")):
        async with life(folder, {}, at=NOON + MINUTE, worker=False):
            pass
    async with life(folder, {"openai": provider()}, at=NOON + MINUTE, worker=False):
        pass
    async with life(folder, {}, at=NOON + 2 * MINUTE, worker=False) as ground:
        assert told(ground, "provider_missing") == [("openai", 1)]


# ---- key, webhook secrets --------------------------------------------------------------------------------------


async def test_a_new_key_is_used_from_the_next_request_and_lifts_the_pause_for_the_old_one(tmp_path: Path) -> None:
    peer, folder = Peer(reads=[batch("in_progress", output=None)]), tmp_path / "state"
    async with watched(folder, peer) as (url, operation):
        peer.reads = [refusal(401)]
        async with life(folder, {"openai": provider(f"{url}/v1")}, at=NOON + HOUR) as ground:

            async def is_paused() -> bool:
                return [p.reason for p in (await ground.daemon.store.pauses()).values()] == ["credentials_refused"]

            await until(is_paused)
        peer.asked.clear()
        peer.headers.clear()
        peer.reads = [batch("in_progress", output=None)]
        new_key = {"API_KEY": "sk-of-the-new-life-0123456789"}
        at = NOON + HOUR + 1
        async with life(folder, {"openai": provider(f"{url}/v1")}, at=at, environ=new_key) as ground:
            ground.clock.set(max(ground.due_at(operation), at))

            async def is_lifted() -> bool:
                return await ground.daemon.store.pauses() == {}

            await until(is_lifted)
            await quiet(ground)
            assert (await ground.row(operation)).schedule.errors == 0
        assert peer.asked == [("GET", f"/v1/batches/{JOB}")]
        assert peer.headers[0]["Authorization"] == "Bearer sk-of-the-new-life-0123456789"


async def test_webhook_secrets_hold_from_the_next_delivery(tmp_path: Path) -> None:
    """An old one that is still named is taken as well: rotation."""
    folder, at = tmp_path / "state", NOON + MINUTE
    lives = [([SECRET], [200, 401]), ([SECRET, OTHER_SECRET], [200, 200]), ([OTHER_SECRET], [401, 200])]
    for n, (secrets, answers) in enumerate(lives):
        configured = {"openai": provider(keys=len(secrets))}
        async with life(folder, configured, at=at + n, worker=False, secrets=secrets) as ground:
            for m, secret in enumerate((SECRET, OTHER_SECRET)):
                headers = signed(event(JOB), event_id=f"msg_{n}_{m}", at_ms=ground.clock.now(), secret=secret)
                assert (await ground.hook(event(JOB), headers)).status == answers[m]


# ---- poll, limits, public_url ----------------------------------------------------------------------------------


async def test_poll_numbers_hold_from_the_next_decision_and_deadlines_once_set_stay(tmp_path: Path) -> None:
    peer, folder = Peer(reads=[batch("in_progress", output=None)]), tmp_path / "state"
    async with watched(folder, peer) as (url, operation):
        slow = provider(f"{url}/v1", poll={"base": "2h", "cap": "2h", "sweep": "2h", "deadline": "99h"})
        async with life(folder, {"openai": slow}, at=NOON + 1) as ground:
            planned = ground.due_at(operation)
            assert NOON + 30_000 <= planned <= NOON + 60_000
            ground.clock.set(planned)
            await quiet(ground)
            assert ground.due_at(operation) == planned + 2 * HOUR
            assert (await ground.row(operation)).deadlines.result == NOON + 26 * HOUR
            fresh = await ground.start()
            await reaches(ground, fresh, "contract_violation")  # the same job again: the peer knows only one
        peer.create = STARTED_ANEW
        async with life(folder, {"openai": slow}, at=planned + 1) as ground:
            fresh = await ground.start()
            await reaches(ground, fresh, "observing")
            assert (await ground.row(fresh)).deadlines.result == planned + 1 + 99 * HOUR


async def test_an_error_budget_holds_from_the_next_decision(tmp_path: Path) -> None:
    peer, folder = Peer(reads=[batch("in_progress", output=None)]), tmp_path / "state"
    async with watched(folder, peer) as (url, operation):
        peer.reads = [refusal(500)]
        strict = provider(f"{url}/v1", poll={"error_budget": 1})
        async with life(folder, {"openai": strict}, at=NOON + HOUR) as ground:
            body = await reaches(ground, operation, "observation_failed")
            assert body["attention"]["reason"] == "errors"


async def test_limits_hold_from_the_next_request(tmp_path: Path) -> None:
    """Two requests under way, where the contract alone would let four go at once."""
    folder, upload = tmp_path / "state", Held({"id": "file-in", "object": "file"}, held=2)
    async with serving(Peer(upload=upload.answer, create=refusal(400)).app()) as url:
        async with life(folder, {"openai": provider(f"{url}/v1")}, worker=False) as ground:
            operations = [await ground.start() for _ in range(5)]
        narrow = provider(f"{url}/v1", limits={"concurrency": 2})
        async with life(folder, {"openai": narrow}, at=NOON + 1) as ground:
            await upload.arrived(2)
            ground.daemon.worker.wake(0)
            await ground.get("/v1/status")
            assert (upload.count, len(ground.daemon.worker._tasks)) == (2, 2)
            ground.clock.run()
            for n in range(2):
                upload.let_go(n)
            for operation in operations:
                await reaches(ground, operation, "failed")


async def test_another_public_url_changes_no_open_operation(tmp_path: Path) -> None:
    """Neither kind is told one: it counts for what is created after, and there is nothing to change in a row."""
    folder = tmp_path / "state"
    async with life(folder, {"openai": provider()}, worker=False) as ground:
        operation = await ground.operation("observing", JOB)
        before = ground.everything()
    sections = {"webhooks": {"public_url": "https://hooks.example"}}
    async with life(folder, {"openai": provider()}, at=NOON + 1, worker=False, sections=sections) as ground:
        assert ground.everything() == before
        headers = signed(event(JOB), at_ms=ground.clock.now())
        assert (await ground.hook(event(JOB), headers)).status == 200
        assert ground.due_at(operation) == NOON + 1
