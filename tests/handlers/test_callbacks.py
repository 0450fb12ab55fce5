"""Callbacks: whoever asked for one is told of each question and of the end, at least once, under one id (G6, N29)."""

import asyncio
import json
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import standardwebhooks
from aiohttp import web

from reconcile.errors import StoreError
from reconcile.evidence import DeadlinePassed, JobRead, ReadFailed
from reconcile.notice import Notice
from reconcile.store.writer import Hooks
from tests.handlers.ground import PATIENCE, Answer, Ground, HandClock, collected, done, running, until
from tests.handlers.receiver import DROP, HANG, Got, receiving
from tests.handlers.test_operations_api import assert_problem

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NEW_SECRET = "whsec_bmV3LXNlY3JldC1vZi10aGUtcmVjZWl2ZXItMDAwMQ=="
SECRETS = {"CI": SECRET, "CI_NEW": NEW_SECRET}
JOB = "batch_1"
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
#: The schedule of the design with all its jitter, typed by hand, ms.
WAITS = [wait * 1.2 for wait in (5_000, 300_000, 1_800_000, 7_200_000, 18_000_000, 36_000_000, 36_000_000)]


def callbacks(url: str, *, secrets: Sequence[str] = ("CI",), **more: Any) -> dict[str, Any]:
    """The sections of a configuration with one callback."""
    return {"callbacks": {"ci": {"url": url, "secrets": [{"env": name} for name in secrets], **more}}}


def on(folder: Path, sections: dict[str, Any], **more: Any) -> Any:
    """The daemon with its outbox at work."""
    return running(folder, sections=sections, environ=SECRETS, **{"outbox": True, **more})


async def end(ground: Ground, url: str, state: str = "succeeded") -> str:
    """An operation that wants to be called back, brought to its end."""
    return await ground.operation(state, JOB, callback_url=url)


async def recorded(ground: Ground, **fate: Any) -> tuple[Any, ...]:
    """The one delivery, once it stands as it is said."""
    sql = f"SELECT {', '.join(fate)}, due_at, last_at FROM deliveries"  # noqa: S608 - names of columns
    async with asyncio.timeout(PATIENCE):
        while True:
            found = [row for row in ground.rows(sql) if row[: len(fate)] == tuple(fate.values())]
            if found:
                return found[0]
            await asyncio.sleep(0.005)


async def later(ground: Ground, ms: float) -> None:
    """Time passes, and the outbox looks again."""
    ground.clock.advance(round(ms))
    ground.daemon.outbox.wake()


async def inbox(ground: Ground) -> list[dict[str, Any]]:
    return list((await ground.get("/v1/inbox"))["inbox"])


async def decide(ground: Ground, notice: str, decision: str) -> Answer:
    body = {"decision": decision, "by": "ana", "reason": "the target is back"}
    return await ground.api("POST", f"/v1/inbox/{notice}/decisions", body=body)


class Verifier(standardwebhooks.Webhook):
    """Somebody else's check, whose one clock is the machine's: that the time is right is looked at here."""

    def _Webhook__verify_timestamp(self, stamp: str) -> datetime:  # noqa: N802 - the name that it calls
        return datetime.fromtimestamp(int(stamp), UTC)


def verified(got: Got, ground: Ground, secret: str = SECRET) -> Any:
    """The body, once somebody else's code has found its signature good."""
    headers = {name.lower(): value for name, value in got.headers.items()}
    assert headers["webhook-timestamp"] == str(ground.clock.now() // 1000)
    return Verifier(secret).verify(got.body, headers)


# ---- what is told ----------------------------------------------------------------------------------------------------


async def test_the_end_is_told_once_with_the_body_that_a_reader_gets(tmp_path: Path) -> None:
    async with receiving() as receiver, on(tmp_path / "s", callbacks(receiver.url)) as ground:
        operation = await end(ground, f"{receiver.url}build/7?by=ana")
        (got,) = await receiver.until(1)
        told = verified(got, ground)
        body = await ground.get(f"/v1/operations/{operation}")
        assert told == {"type": "operation.done", "timestamp": body["completed_at"], "data": body}
        assert (got.path, got.headers["Content-Type"]) == ("/hooks/build/7?by=ana", "application/json")
        await recorded(ground, state="delivered", attempts=1, last_status=200)
        assert (await ground.get("/v1/status"))["callbacks"] == {
            "ci": {"missing": False, "waiting": 0, "delivered": 1, "exhausted": 0}
        }
        await later(ground, 20 * HOUR)
        assert len(receiver.got) == 1


async def test_each_question_and_the_end_are_told_under_ids_of_their_own(tmp_path: Path) -> None:
    async with receiving() as receiver, on(tmp_path / "s", callbacks(receiver.url)) as ground:
        operation = await ground.operation("observing", JOB, callback_url=receiver.url)
        for _ in range(20):
            await ground.apply(operation, ReadFailed("http_500"))
        assert (await ground.row(operation)).state == "observation_failed"
        await receiver.until(1)
        asked = await ground.get(f"/v1/operations/{operation}")
        await ground.apply(operation, JobRead(done(JOB)))
        await ground.apply(operation, collected("succeeded"))
        first, second = await receiver.until(2)
        assert verified(first, ground) == {
            "type": "operation.needs_attention",
            "timestamp": asked["attention"]["since"],
            "data": asked,
        }
        assert verified(second, ground)["type"] == "operation.done"
        assert first.event_id != second.event_id


async def test_a_lost_create_is_told_as_a_question_and_given_up_as_the_end(tmp_path: Path) -> None:
    async with receiving() as receiver, on(tmp_path / "s", callbacks(receiver.url)) as ground:
        operation = await ground.operation("create_unknown", None, callback_url=receiver.url)
        ground.clock.advance(16 * MINUTE)
        await ground.apply(operation, DeadlinePassed("create", last_read=True))
        (got,) = await receiver.until(1)
        assert json.loads(got.body)["data"]["state"] == "create_unresolved"
        body = {"decision": "give_up", "by": "ana", "reason": "nobody needs it"}
        assert (await ground.api("POST", f"/v1/operations/{operation}/decisions", body=body)).status == 200
        _, last = await receiver.until(2)
        assert json.loads(last.body)["data"]["state"] == "abandoned"


@pytest.mark.parametrize("event", ["done", "needs_attention"])
async def test_only_what_the_callback_wants_is_told(tmp_path: Path, event: str) -> None:
    async with receiving() as receiver, on(tmp_path / "s", callbacks(receiver.url, events=[event])) as ground:
        operation = await ground.operation("observing", JOB, callback_url=receiver.url)
        for _ in range(20):
            await ground.apply(operation, ReadFailed("http_500"))
        await ground.apply(operation, JobRead(done(JOB)))
        await ground.apply(operation, collected("succeeded"))
        await receiver.until(1)
        assert [kind for (kind,) in ground.rows("SELECT type FROM deliveries")] == [f"operation.{event}"]


async def test_who_did_not_ask_is_not_called(tmp_path: Path) -> None:
    async with receiving() as receiver, on(tmp_path / "s", callbacks(receiver.url)) as ground:
        await ground.operation("succeeded", JOB)
        assert ground.rows("SELECT * FROM deliveries") == []


async def test_every_secret_signs_so_that_a_receiver_may_rotate(tmp_path: Path) -> None:
    async with receiving() as receiver, on(tmp_path / "s", callbacks(receiver.url, secrets=("CI", "CI_NEW"))) as ground:
        await end(ground, receiver.url)
        (got,) = await receiver.until(1)
        assert verified(got, ground, SECRET) == verified(got, ground, NEW_SECRET)


async def test_a_move_that_is_not_committed_puts_nothing_into_the_outbox(tmp_path: Path) -> None:
    """N28: the row and its delivery stand together or not at all."""

    def refuse(connection: Any) -> None:
        if connection.execute("SELECT count(*) FROM deliveries").fetchone()[0]:
            raise OSError("the disk is gone")

    async with receiving() as receiver:
        ground_of = on(tmp_path / "s", callbacks(receiver.url), hooks=Hooks(before_commit=refuse))
        with pytest.raises((StoreError, AssertionError)):
            async with ground_of as ground:
                await end(ground, receiver.url)
        assert receiver.got == []


# ---- the start -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/hooks/", "https://evil.example/", "x", 7, ["a"]])
@pytest.mark.parametrize("adopts", [False, True])
async def test_a_url_that_no_callback_covers_is_refused_with_what_is_allowed(
    tmp_path: Path, url: Any, adopts: bool
) -> None:
    async with on(tmp_path / "s", callbacks("http://127.0.0.1:9/hooks/")) as ground:
        made = {"remote_job_id": JOB} if adopts else {"request": {"endpoint": "/v1/responses"}, "items": []}
        body = {"provider": "openai", "callback_url": url, **made}
        refusal = assert_problem(await ground.api("POST", "/v1/operations", body=body), 422)
        assert [error["pointer"] for error in refusal["errors"]] == ["/callback_url"]
        if isinstance(url, str) and url.startswith("http"):
            assert "http://127.0.0.1:9/hooks/" in refusal["errors"][0]["message"]
        assert ground.rows("SELECT * FROM operations") == []


async def test_an_adopted_job_is_told_of_too(tmp_path: Path) -> None:
    async with receiving() as receiver, on(tmp_path / "s", callbacks(receiver.url)) as ground:
        body = {"provider": "openai", "remote_job_id": JOB, "callback_url": receiver.url}
        answer = await ground.api("POST", "/v1/operations", body=body)
        assert answer.status == 202
        operation = answer.json()["operation_id"]
        await ground.apply(operation, JobRead(done(JOB)))
        await ground.apply(operation, collected("failed"))
        (got,) = await receiver.until(1)
        assert json.loads(got.body)["data"]["outcome"] == "failed"


async def test_another_url_under_the_same_client_key_is_another_start(tmp_path: Path) -> None:
    async with receiving() as receiver, on(tmp_path / "s", callbacks(receiver.url)) as ground:
        body = {"provider": "openai", "remote_job_id": JOB, "callback_url": f"{receiver.url}a"}
        headers = {"Idempotency-Key": "k"}
        first = await ground.api("POST", "/v1/operations", body=body, headers=headers)
        again = await ground.api("POST", "/v1/operations", body=body, headers=headers)
        assert first.json()["operation_id"] == again.json()["operation_id"]
        body["callback_url"] = f"{receiver.url}b"
        assert_problem(await ground.api("POST", "/v1/operations", body=body, headers=headers), 422)


# ---- attempts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "status", "error"),
    [
        (500, 500, "http_500"),
        (404, 404, "http_404"),
        (429, 429, "http_429"),
        (DROP, None, "reset"),
        (web.Response(status=307, headers={"Location": "/hooks/elsewhere"}), 307, "redirect_not_followed"),
    ],
)
async def test_what_fails_is_sent_again_with_the_same_id_and_bytes_and_a_signature_of_its_own(
    tmp_path: Path, reply: Any, status: int | None, error: str
) -> None:
    async with receiving(reply, 204) as receiver, on(tmp_path / "s", callbacks(receiver.url)) as ground:
        await end(ground, receiver.url)
        first = (await receiver.until(1))[0]
        verified(first, ground)
        *_, due_at, _ = await recorded(ground, state="waiting", attempts=1, last_status=status, last_error=error)
        assert 5 * SECOND <= due_at - ground.clock.now() <= WAITS[0]
        await later(ground, WAITS[0])
        second = (await receiver.until(2))[1]
        assert verified(second, ground) == json.loads(first.body)
        assert (second.event_id, second.body, second.path) == (first.event_id, first.body, "/hooks/")
        assert second.headers["webhook-signature"] != first.headers["webhook-signature"]
        await recorded(ground, state="delivered", attempts=2, last_status=204)
        assert await inbox(ground) == []


async def test_an_answer_that_asks_for_time_gets_it(tmp_path: Path) -> None:
    busy = web.Response(status=503, headers={"Retry-After": "7200"})
    async with receiving(busy, 200) as receiver, on(tmp_path / "s", callbacks(receiver.url)) as ground:
        await end(ground, receiver.url)
        *_, due_at, at = await recorded(ground, state="waiting", attempts=1)
        assert due_at - at == 2 * HOUR


async def test_after_the_last_attempt_a_person_is_told_and_can_let_it_be_sent_again(tmp_path: Path) -> None:
    async with receiving(500) as receiver, on(tmp_path / "s", callbacks(receiver.url)) as ground:
        operation = await end(ground, receiver.url)
        for attempts, wait in enumerate(WAITS, start=1):
            await recorded(ground, state="waiting", attempts=attempts, is_taken=0)
            assert await inbox(ground) == []
            await later(ground, wait + 1)
        await recorded(ground, state="exhausted", attempts=8)
        assert len(receiver.got) == 8
        (notice,) = await inbox(ground)
        assert (notice["id"], notice["kind"], notice["reason"]) == (
            f"callback_exhausted.{operation}",
            "notice",
            "callback_exhausted",
        )
        assert "tried 8 times, the last came to http_500" in notice["message"]
        assert [one["decision"] for one in notice["decisions"]] == ["redeliver", "acknowledge"]
        assert notice["evidence"]["deliveries"] == [
            {
                "delivery_id": receiver.got[0].event_id,
                "callback": "ci",
                "type": "operation.done",
                "attempts": 8,
                "last_status": 500,
                "last_error": "http_500",
            }
        ]
        assert (await ground.get("/v1/status"))["callbacks"]["ci"]["exhausted"] == 1
        await later(ground, 100 * HOUR)
        receiver.replies[:] = [200]
        answer = await decide(ground, notice["id"], "redeliver")
        assert (answer.status, answer.json()["decision"], answer.json()["by"]) == (200, "redeliver", "ana")
        await receiver.until(9)
        assert {(got.event_id, got.body) for got in receiver.got} == {(receiver.got[0].event_id, receiver.got[0].body)}
        await recorded(ground, state="delivered", attempts=1)
        assert await inbox(ground) == []
        assert_problem(await decide(ground, notice["id"], "redeliver"), 409)


async def test_a_delivery_that_is_given_up_anew_is_told_anew(tmp_path: Path) -> None:
    async with receiving(410) as receiver, on(tmp_path / "s", callbacks(receiver.url)) as ground:
        operation = await end(ground, receiver.url)
        notice = f"callback_exhausted.{operation}"
        for count in (1, 2):
            await receiver.until(count)
            await recorded(ground, state="exhausted", attempts=1, last_status=410)
            (entry,) = await inbox(ground)
            assert "tried 1 time, the last came to http_410" in entry["message"]
            assert (await decide(ground, notice, "redeliver")).status == 200
        await receiver.until(3)
        await recorded(ground, state="exhausted", attempts=1)
        assert (await decide(ground, notice, "acknowledge")).status == 200
        assert await inbox(ground) == []
        assert_problem(await decide(ground, notice, "redeliver"), 409)
        assert len(receiver.got) == 3


async def test_other_notices_have_nothing_to_send_again(ground: Ground) -> None:
    await ground.daemon.store.tell([Notice("clock_stepped", ground.clock.now(), "the clock was set")])
    assert_problem(await decide(ground, "clock_stepped", "redeliver"), 409)
    assert [entry["id"] for entry in await inbox(ground)] == ["clock_stepped"]
    refusal = assert_problem(await decide(ground, "clock_stepped", "resend"), 422)
    assert "redeliver" in str(refusal)


async def test_a_target_that_hangs_holds_up_nobody_else(tmp_path: Path) -> None:
    async with receiving(HANG) as dead, receiving() as alive:
        table = {
            name: {"url": receiver.url, "secrets": [{"env": "CI"}]}
            for name, receiver in (("dead", dead), ("alive", alive))
        }
        async with on(tmp_path / "s", {"callbacks": table}) as ground:
            for number in range(12):
                await ground.operation("failed", f"batch_{number}", callback_url=dead.url)
            await dead.until(1)
            await ground.operation("failed", "batch_x", callback_url=alive.url)
            await alive.until(1)
            assert len(dead.got) <= 4
            await recorded(ground, callback="alive", state="delivered")
            assert (await ground.get("/v1/status"))["callbacks"]["dead"]["waiting"] == 12
            dead._leave.set()


async def test_an_answer_however_large_is_dropped(tmp_path: Path) -> None:
    large = web.Response(status=200, body=b"x" * 5_000_000)
    async with receiving(large) as receiver, on(tmp_path / "s", callbacks(receiver.url)) as ground:
        await end(ground, receiver.url)
        await recorded(ground, state="delivered", attempts=1)


# ---- restarts and changed configurations -----------------------------------------------------------------------------


async def test_what_waits_when_the_daemon_stops_is_sent_by_the_next_one(tmp_path: Path) -> None:
    clock = HandClock()
    async with receiving() as receiver:
        async with on(tmp_path / "s", callbacks(receiver.url), outbox=False, clock=clock) as ground:
            await end(ground, receiver.url)
        async with on(tmp_path / "s", callbacks(receiver.url), clock=clock) as ground:
            await receiver.until(1)
            await recorded(ground, state="delivered")


async def test_a_callback_that_is_gone_waits_says_so_and_is_sent_when_it_is_back(tmp_path: Path) -> None:
    clock = HandClock()
    async with receiving() as receiver:
        async with on(tmp_path / "s", callbacks(receiver.url), clock=clock) as ground:
            operation = await ground.operation("observing", JOB, callback_url=receiver.url)
        async with on(tmp_path / "s", {}, clock=clock) as ground:
            await ground.apply(operation, JobRead(done(JOB)))
            await ground.apply(operation, collected("succeeded"))
            assert (await ground.get("/v1/status"))["callbacks"] == {
                "ci": {"missing": True, "waiting": 1, "delivered": 0, "exhausted": 0}
            }
        clock.advance(50 * HOUR)
        async with on(tmp_path / "s", {}, clock=clock) as ground:
            (told,) = [line for line in ground.logged if line["event"] == "callback_missing"]
            assert (told["callback"], told["deliveries"]) == ("ci", 1)
        assert receiver.got == []
        async with on(tmp_path / "s", callbacks(receiver.url, secrets=("CI_NEW",)), clock=clock) as ground:
            (got,) = await receiver.until(1)
            assert verified(got, ground, NEW_SECRET)["data"]["operation_id"] == operation


async def test_a_callback_whose_place_was_changed_is_not_sent_to_the_old_one(tmp_path: Path) -> None:
    clock = HandClock()
    async with receiving() as old, receiving() as new:
        async with on(tmp_path / "s", callbacks(old.url), outbox=False, clock=clock) as ground:
            await end(ground, old.url)
        async with on(tmp_path / "s", callbacks(new.url), clock=clock) as ground:
            await recorded(ground, state="waiting", attempts=1, last_error="callback_moved")
        assert old.got == new.got == []


# ---- where a name leads ----------------------------------------------------------------------------------------------


class Names:
    """A resolver that answers as it is told."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses
        self.asked: list[str] = []

    async def resolve(self, host: str, port: int = 0, family: Any = None) -> list[Any]:
        self.asked.append(host)
        return [
            {"hostname": host, "host": a, "port": port, "family": 0, "proto": 0, "flags": 0} for a in self.addresses
        ]

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "169.254.169.254", "10.0.0.1"])
async def test_a_name_that_leads_into_our_own_network_is_a_failed_attempt_that_says_so(
    tmp_path: Path, address: str
) -> None:
    names: Any = Names(address)
    async with receiving() as receiver:
        url = receiver.url.replace("127.0.0.1", "ci.example.com")
        async with on(tmp_path / "s", callbacks(url), resolver=lambda: names) as ground:
            await end(ground, url)
            await recorded(ground, state="waiting", attempts=1)
            ((error,),) = ground.rows("SELECT last_error FROM deliveries")
            assert error.startswith(f"address_refused: {address} (")
            await later(ground, WAITS[0])
            await recorded(ground, state="waiting", attempts=2)
            assert names.asked == ["ci.example.com"] * 2, "each attempt asks anew"
            assert receiver.got == []


@pytest.mark.parametrize("host", ["0x7f.1", "127.1", "2130706433"])
async def test_what_only_some_take_for_an_address_is_looked_up_and_judged(tmp_path: Path, host: str) -> None:
    """With the machine's own resolver, which takes each for 127.0.0.1."""
    async with receiving() as receiver:
        url = receiver.url.replace("127.0.0.1", host)
        async with on(tmp_path / "s", callbacks(url)) as ground:
            await end(ground, url)
            await recorded(ground, state="waiting", attempts=1)
            ((error,),) = ground.rows("SELECT last_error FROM deliveries")
            assert error == "dns" or error.startswith("address_refused")
            assert receiver.got == []


async def test_what_the_configuration_allows_by_name_is_delivered(tmp_path: Path) -> None:
    async with receiving() as receiver:
        for number, host in enumerate(("localhost", "127.0.0.1")):
            url = receiver.url.replace("127.0.0.1", host)
            async with on(tmp_path / str(number), callbacks(url)) as ground:
                await end(ground, url)
                await recorded(ground, state="delivered")
        names: Any = Names("127.0.0.1")
        url = receiver.url.replace("127.0.0.1", "ci.internal")
        unsafe = callbacks(url, unsafe=["private_addresses"])
        async with on(tmp_path / "s", unsafe, resolver=lambda: names) as ground:
            await end(ground, url)
            await recorded(ground, state="delivered")
            assert receiver.got[-1].headers["Host"] == f"ci.internal:{receiver.port}"


# ---- the record ------------------------------------------------------------------------------------------------------


async def test_a_delivery_is_frozen_but_for_how_it_fares(tmp_path: Path) -> None:
    async with receiving(500) as receiver, on(tmp_path / "s", callbacks(receiver.url)) as ground:
        await end(ground, receiver.url)
        await recorded(ground, state="waiting", attempts=1)
    connection = sqlite3.connect(tmp_path / "s" / "reconciled.db")
    for column in ("delivery_id", "body", "url", "type", "callback", "created_at"):
        with pytest.raises(sqlite3.IntegrityError, match="never changed"):
            connection.execute(f"UPDATE deliveries SET {column} = {column}")  # noqa: S608 - the names stand above
    connection.close()


async def test_a_callback_that_fails_is_a_warning_once_until_it_takes_a_delivery(tmp_path: Path) -> None:
    async with receiving(500, 500, 200, 500) as receiver, on(tmp_path / "s", callbacks(receiver.url)) as ground:
        await end(ground, receiver.url)
        await recorded(ground, state="waiting", attempts=1)
        await later(ground, WAITS[0])
        await recorded(ground, state="waiting", attempts=2)
        await later(ground, WAITS[1])
        await recorded(ground, state="delivered")
        await ground.operation("succeeded", "batch_2", callback_url=receiver.url)
        await recorded(ground, state="waiting", attempts=1)

        def failures() -> list[str]:
            return [line["log_level"] for line in ground.logged if line["event"] == "callback_failed"]

        async def is_told() -> bool:
            return len(failures()) == 3

        await until(is_told)  # the log hears of it after the file
        assert failures() == ["warning", "info", "warning"]


async def test_no_body_and_no_secret_is_logged(tmp_path: Path) -> None:
    async with receiving(500, 200) as receiver, on(tmp_path / "s", callbacks(receiver.url)) as ground:
        await end(ground, f"{receiver.url}?token=of-the-client")
        await recorded(ground, state="waiting", attempts=1)
        await later(ground, WAITS[0])
        await recorded(ground, state="delivered")

        async def is_told() -> bool:
            return any(line["event"] == "callback_delivered" for line in ground.logged)

        await until(is_told)  # the log hears of it after the file
        told = json.dumps(ground.logged, default=str)
        for word in (SECRET.removeprefix("whsec_"), "of-the-client", "NOT complete", "elapsed_seconds"):
            assert word not in told
        events = [(line["event"], line["log_level"]) for line in ground.logged if line["event"].startswith("callback")]
        assert events == [("callback_failed", "warning"), ("callback_delivered", "info")]
        assert ground.meters.total("callbacks", callback="ci", result="delivered") == 1
