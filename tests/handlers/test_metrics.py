"""`/metrics`: every number as a scraper reads it, its labels bounded, and its cost that of an index."""

import asyncio
import shutil
import sqlite3
from asyncio.subprocess import PIPE, STDOUT
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from daemon.version import version
from handlers.api.metrics import FAMILIES
from reconcile.client import Exchange
from reconcile.errors import NotSent, OutcomeUnknown, ProviderError, StoreBusy
from reconcile.evidence import JobRead
from reconcile.limits import Pause
from reconcile.model import Observation
from reconcile.notice import Notice
from reconcile.provider import HttpRequest, HttpResponse, Purpose
from reconcile.states import State
from reconcile.store.reading import Reader
from tests.handlers.ground import NOON, Ground, event, provider, running, signed
from tests.prometheus import Read, read

PROMTOOL = shutil.which("promtool")


async def scraped(ground: Ground) -> dict[str, Read]:
    answer = await ground.api("GET", "/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return read(answer.body.decode())


async def test_every_family_is_told_by_a_daemon_that_has_done_nothing_yet(ground: Ground) -> None:
    families = await scraped(ground)
    assert list(families) == [family.name for family in FAMILIES]
    states = {dict(labels)["state"] for _, labels in families["reconciled_operations"].samples}
    assert states == set(State), "a state that nothing is in is 0, not absent: no alert may hang on a gap"
    assert families["reconciled_ready"].value("") == 1
    assert families["reconciled_build_info"].value("", version=version()) == 1


async def test_what_can_be_counted_is_0_before_it_happens(tmp_path: Path) -> None:
    """`increase(…) > 0` does not see a series that is born with 1."""
    called = {"ci": {"url": "https://ci.example.com/hook", "secrets": [{"env": "HOOK_0"}]}}
    configured = {"openai": provider(), "other": provider(keys=0)}
    async with running(tmp_path / "state", providers=configured, sections={"callbacks": called}) as ground:
        families = await scraped(ground)
        assert families["reconciled_commits_lost_total"].value("") == 0
        for name in configured:
            for counter in ("webhooks_late", "webhooks_unmatched", "ends_missed", "unknown_status"):
                assert families[f"reconciled_{counter}_total"].value("", provider=name) == 0
            contradictions = families["reconciled_evidence_contradictions_total"]
            assert contradictions.value("", provider=name, to="") == 0
            webhooks = families["reconciled_webhooks_total"]
            assert webhooks.value("", provider=name, answer="not_stored", reason="") == 0
            assert families["reconciled_state_changes_total"].value("", provider=name, to="failed") == 0
            assert families["reconciled_evidence_refused_total"].value("", provider=name, to="failed") == 0
        for result in ("delivered", "waiting", "exhausted"):
            assert families["reconciled_callbacks_total"].value("", callback="ci", result=result) == 0


async def test_a_series_that_began_at_0_is_the_one_that_is_counted(ground: Ground) -> None:
    before = {(name, labels) for name, labels, _ in ground.meters.read()}
    operation = await ground.operation("observing", "job_1")
    await ground.hook(event("job_1"), signed(event("job_1")))
    await ground.hook(event("job_9"), signed(event("job_9")))
    await ground.apply(operation, JobRead(Observation("unheard_of_word", remote_job_id="job_1")))
    await ground.apply(operation, JobRead(Observation("failed", remote_job_id="job_1")))
    await ground.apply(operation, JobRead(Observation("completed", remote_job_id="job_1")))
    counted = {(name, labels) for name, labels, n in ground.meters.read() if n and isinstance(n, int)}
    assert {name for name, _ in counted} >= {
        "evidence_contradiction",
        "state_changed",
        "unknown_status",
        "webhooks",
        "webhooks_unmatched",
    }
    assert counted <= before


async def test_without_the_token_nothing_is_told(ground: Ground) -> None:
    answer = await ground.api("GET", "/metrics", token=False)
    assert answer.status == 401
    assert b"reconciled_" not in answer.body


async def test_what_stands_in_the_rows_is_told_as_it_stands(tmp_path: Path) -> None:
    configured = {"openai": provider(), "other": provider(keys=0)}
    async with running(tmp_path / "state", providers=configured) as ground:
        await ground.operation("succeeded", "job_1")
        await ground.operation("result_validation_failed", "job_2")
        await ground.start()
        await ground.start(provider="other")
        ground.clock.advance(90_000)
        await ground.daemon.store.stand([Notice("disk_low", ground.clock.now(), "low")])
        await ground.hook(event("job_9"), signed(event("job_9"), at_ms=ground.clock.now()))
        await ground.daemon.upkeep._notary.sign()
        families = await scraped(ground)

    operations = families["reconciled_operations"]
    assert operations.value("", state="succeeded") == 1
    assert operations.value("", state="result_validation_failed") == 1
    assert operations.value("", state="create_pending") == 2
    assert sum(operations.samples.values()) == 4
    due, lag = families["reconciled_due_operations"], families["reconciled_due_lag_seconds"]
    assert (due.value("", provider="other"), lag.value("", provider="other")) == (1, 90)
    inbox = families["reconciled_inbox_entries"]
    assert (inbox.value("", kind="question"), inbox.value("", kind="notice")) == (1, 1)
    assert families["reconciled_notices"].value("", reason="disk_low") == 1
    assert families["reconciled_webhooks_unmatched_total"].value("", provider="openai") == 1
    assert families["reconciled_checkpoints_total"].value("") == 1
    assert families["reconciled_last_checkpoint_timestamp_seconds"].value("") == (NOON + 90_000) / 1000
    assert families["process_start_time_seconds"].value("") == NOON / 1000


async def test_deliveries_are_counted_by_provider_and_answer(ground: Ground) -> None:
    await ground.operation("observing", "job_1")
    body = event("job_1")
    for _ in range(3):
        assert (await ground.hook(body, signed(body))).status == 200
    assert (await ground.hook(body, {})).status == 401
    assert (await ground.hook(body, signed(body), provider="nobody")).status == 404
    webhooks = (await scraped(ground))["reconciled_webhooks_total"]
    assert webhooks.value("", provider="openai", answer="new", reason="") == 1
    assert webhooks.value("", provider="openai", answer="duplicate", reason="") == 2
    assert webhooks.value("", provider="-", answer="refused", reason="http_404") == 1
    (refused,) = (
        dict(labels)
        for _, labels in webhooks.samples
        if ("reason", "") not in labels and ("provider", "openai") in labels
    )
    assert refused["answer"] == "refused"


async def test_detection_delay_is_a_histogram_by_road_from_the_providers_end_to_our_commit(ground: Ground) -> None:
    """J5."""
    for n, (seconds, rung_by) in enumerate([(3, "event:evt_1"), (700, None), (200_000, None)]):
        operation = await ground.operation("observing", f"job_{n}")
        seen = Observation("failed", remote_job_id=f"job_{n}", provider_at=ground.clock.now() - 1000 * seconds)
        await ground.apply(operation, JobRead(seen, rung_by=rung_by))
    delays = (await scraped(ground))["reconciled_detection_delay_seconds"]
    rung, swept = {"provider": "openai", "road": "webhook"}, {"provider": "openai", "road": "sweep"}
    assert [delays.value("_bucket", le=le, **rung) for le in ("2.5", "5", "+Inf")] == [0, 1, 1]
    assert [delays.value("_bucket", le=le, **swept) for le in ("600", "900", "86400", "+Inf")] == [0, 1, 1, 2]
    assert (delays.value("_sum", **swept), delays.value("_count", **swept)) == (200_700, 2)


async def test_a_provider_that_is_paused_or_fails_shows(ground: Ground) -> None:
    peer = ground.daemon.peers["openai"]
    peer.recent.extend([True, True, False, False])
    peer.last_good_read_at = NOON - 5_000
    peer.pause = Pause(until_ms=NOON + 60_000, reason="http_429", failures=1, opened_at_ms=NOON)
    families = await scraped(ground)
    assert families["reconciled_provider_paused"].value("", provider="openai") == 1
    assert families["reconciled_provider_error_ratio"].value("", provider="openai") == 0.5
    told = families["reconciled_provider_last_good_read_timestamp_seconds"].value("", provider="openai")
    assert told == NOON / 1000 - 5


async def test_commits_are_timed_and_counted(ground: Ground) -> None:
    before = (await scraped(ground))["reconciled_commit_writes"].value("_count")
    await ground.start()
    families = await scraped(ground)
    assert families["reconciled_commit_writes"].value("_count") == before + 1
    assert families["reconciled_commit_duration_seconds"].value("_count") == before + 1
    assert families["reconciled_commit_duration_seconds"].value("_sum") > 0


async def test_no_label_holds_an_operation_a_job_or_a_strangers_word(ground: Ground) -> None:
    """Each would be a series of its own, kept by the scraper for ever."""
    operation = await ground.operation("observing", "job_strange")
    seen = Observation("unheard_of_word", remote_job_id="job_strange")
    await ground.apply(operation, JobRead(seen))
    for path in ("stranger-one", "stranger-two"):
        await ground.hook(b"{}", {"webhook-id": "stranger-id"}, provider=path)
    text = (await ground.api("GET", "/metrics")).body.decode()
    assert (await scraped(ground))["reconciled_unknown_status_total"].value("", provider="openai") == 1
    assert [word for word in (operation, "job_strange", "unheard_of", "stranger", "trace") if word in text] == []


async def test_a_daemon_that_stops_is_alive_and_not_ready_and_says_so_everywhere(ground: Ground) -> None:
    assert ((await ground.api("GET", "/readyz")).status, (await ground.api("GET", "/healthz")).status) == (200, 200)
    ground.daemon.stopping.set()
    answer = await ground.api("GET", "/readyz")
    assert (answer.status, answer.json()) == (503, {"status": "not ready"})
    assert (await ground.api("GET", "/healthz")).status == 200
    assert (await scraped(ground))["reconciled_ready"].value("") == 0


async def test_a_daemon_whose_writer_has_ended_is_not_ready(ground: Ground) -> None:
    ground.daemon.store.stop()
    assert (await ground.api("GET", "/readyz")).status == 503


async def test_requests_are_counted_by_purpose_and_by_a_class_of_answers_that_names_no_host(ground: Ground) -> None:
    client, peer = ground.daemon.client, ground.daemon.peers["openai"]
    request = HttpRequest("GET", "x", Purpose.STATUS)

    def came(response: HttpResponse | None, error: ProviderError | None = None) -> None:
        client.note(peer, Exchange(request, NOON, NOON + 700, response, error))

    for status in (200, 201, 302, 404, 429, 503):
        came(HttpResponse(status, {}, b""))
    came(None, OutcomeUnknown("timeout", "30 s"))
    came(None, NotSent("foreign_host:evil.example", "not ours"))
    families = await scraped(ground)
    told = {
        dict(labels)["answer"]: value
        for (_, labels), value in families["reconciled_requests_total"].samples.items()
        if ("purpose", "status") in labels
    }
    assert told == {"2xx": 2, "3xx": 1, "4xx": 1, "429": 1, "5xx": 1, "no_answer": 1, "not_sent": 1}
    took = families["reconciled_request_duration_seconds"]
    assert took.value("_bucket", provider="openai", purpose="status", le="0.5") == 0
    assert took.value("_bucket", provider="openai", purpose="status", le="1") == 8


async def test_a_scrape_while_the_file_cannot_be_read_is_told_so(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy() -> Any:
        raise StoreBusy("locked")

    monkeypatch.setattr(ground.daemon.store, "counts", busy)
    assert (await ground.api("GET", "/metrics")).status == 503


async def test_a_scrape_walks_no_table(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts by state come out of an index that holds all they need; of the open operations, the due rows are read."""
    asked: list[str] = []

    def listen(reader: Reader) -> None:
        fetch = reader.execute_fetchall

        async def listening(sql: str, parameters: Any = ()) -> Any:
            asked.append(sql)
            return await fetch(sql, parameters)

        monkeypatch.setattr(reader, "execute_fetchall", listening)

    listen(ground.daemon.store._reader)
    listen(ground.daemon.store._scanner)
    await scraped(ground)
    plans: dict[str, str] = {}
    with closing(sqlite3.connect(ground.folder / "reconciled.db")) as connection:
        for sql in (sql for sql in asked if "count(*)" in sql):
            plan = connection.execute("EXPLAIN QUERY PLAN " + sql, (NOON,) if "?" in sql else ()).fetchall()
            plans[sql.partition(" FROM ")[2].split()[0]] = "; ".join(str(row[3]) for row in plan)
    assert set(plans) == {"present", "schedule", "notices"}, "notices are few: one for each present cause"
    assert "COVERING INDEX operations_by_state" in plans["present"]
    assert "INDEX schedule_due" in plans["schedule"]


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")
async def test_promtool_finds_nothing_to_say(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as ground:
        await ground.operation("succeeded", "job_1")
        await ground.hook(event("job_1"), signed(event("job_1")))
        operation = await ground.operation("observing", "job_2")
        seen = Observation("failed", remote_job_id="job_2", provider_at=NOON - 3000)
        await ground.apply(operation, JobRead(seen))
        text = (await ground.api("GET", "/metrics")).body
    judge = await asyncio.create_subprocess_exec(
        str(PROMTOOL), "check", "metrics", stdin=PIPE, stdout=PIPE, stderr=STDOUT
    )
    said, _ = await judge.communicate(text)
    assert (judge.returncode, said) == (0, b"")
