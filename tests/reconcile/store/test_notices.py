"""Notices: each present cause is told once, goes when it is over, and is out of the inbox once a person has seen it."""

import re
from pathlib import Path

import pytest

from reconcile.model import EntryKind
from reconcile.notice import CONDITIONS, HAPPENED, Notice
from reconcile.quoted import quoted
from reconcile.states import State
from tests.reconcile.rows import NOW
from tests.reconcile.store.ground import opened, operation, read

PAUSED = Notice("provider_paused", NOW, "openai is left alone", provider="openai", evidence={"until": 5})
DISK = Notice("disk_low", NOW + 1, "1 GiB is left")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "reconciled.db"


async def test_a_condition_is_told_once_however_often_it_is_seen_and_goes_when_it_is_over(path: Path) -> None:
    async with opened(path) as ground:
        assert await ground.store.stand([PAUSED, DISK]) == (["disk_low", "provider_paused.openai"], [])
        assert await ground.store.stand([PAUSED, DISK]) == ([], [])
        assert await ground.store.notices() == [PAUSED, DISK]
        assert await ground.store.stand([DISK]) == ([], ["provider_paused.openai"])
        assert await ground.store.notices() == [DISK]


async def test_a_condition_that_changes_is_told_with_what_is_known_now_and_since_when_it_began(path: Path) -> None:
    later = Notice("provider_paused", NOW + 9, "still", provider="openai", evidence={"until": 9})
    async with opened(path) as ground:
        await ground.store.stand([PAUSED])
        await ground.store.stand([later])
        (told,) = await ground.store.notices()
    assert (told.since, told.message, told.evidence) == (NOW, "still", {"until": 9})


async def test_an_acknowledged_condition_stays_out_of_the_inbox_until_it_comes_again(path: Path) -> None:
    async with opened(path) as ground:
        await ground.store.stand([PAUSED])
        assert await ground.store.acknowledge("provider_paused.openai", by="ann", because="known", at=NOW)
        assert not await ground.store.acknowledge("provider_paused.openai", by="bob", because="late", at=NOW)
        await ground.store.stand([PAUSED])
        assert await ground.store.notices() == []
        await ground.store.stand([])
        await ground.store.stand([PAUSED])
        assert await ground.store.notices() == [PAUSED]


async def test_what_happened_stays_until_it_is_acknowledged_and_is_told_anew_when_it_happens_again(path: Path) -> None:
    stepped = Notice("clock_stepped", NOW, "by 6 s")
    async with opened(path) as ground:
        await ground.store.tell([stepped])
        await ground.store.stand([])
        assert await ground.store.notices() == [stepped]
        await ground.store.acknowledge("clock_stepped", by="ann", because="ntp", at=NOW)
        assert await ground.store.notices() == []
        await ground.store.tell([Notice("clock_stepped", NOW + 5, "by 9 s")])
        assert await ground.store.notices() == [Notice("clock_stepped", NOW + 5, "by 9 s")]


async def test_a_contradiction_is_told_in_the_transaction_that_writes_it_into_history(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1, State.RESULT_COLLECTING))
        change = await ground.apply(1, read("running"))
        (notice,) = await ground.store.notices()
    (entry,) = [e for e in change.entries if e.kind is EntryKind.CONTRADICTION]
    operation_id = change.operation.operation_id
    assert notice.notice_id == f"contradiction.{operation_id}"
    assert quoted(entry.reason) in notice.message
    assert (notice.operation_id, notice.provider) == (operation_id, None)


async def test_notices_are_read_by_pages_and_counted(path: Path) -> None:
    """Two that began at the same moment stand in the order of their ids; what was seen is in no page and no count."""
    told = [Notice("webhooks_silent", NOW + n // 2, "silent", provider=f"p{n}") for n in range(5)]
    async with opened(path) as ground:
        assert await ground.store.notice_counts() == {}
        await ground.store.stand(told)
        assert await ground.store.notices(limit=2) == told[:2]
        assert await ground.store.notices(after=(NOW, "webhooks_silent.p0"), limit=2) == told[1:3]
        assert await ground.store.notices(after=(NOW + 2, "webhooks_silent.p4"), limit=2) == []
        assert await ground.store.notice_counts() == {"webhooks_silent": 5}
        await ground.store.acknowledge("webhooks_silent.p2", by="ann", because="known", at=NOW)
        assert await ground.store.notices(after=(NOW, "webhooks_silent.p0"), limit=2) == [told[1], told[3]]
        assert await ground.store.notice_counts() == {"webhooks_silent": 4}


async def test_every_reason_of_a_notice_either_lasts_or_happened(path: Path) -> None:
    """By hand from design.md's table, and as the file takes them."""
    lasts = {"credentials_refused", "provider_paused", "provider_missing", "provider_moved", "webhooks_silent"}
    assert lasts | {"result_expiring", "disk_low"} == CONDITIONS
    assert {"callback_exhausted", "contradiction", "clock_stepped"} == HAPPENED
    async with opened(path) as ground:
        table = ground.one("SELECT sql FROM sqlite_schema WHERE name = 'notices'")
    allowed = re.search(r"CHECK \(reason IN \((.*?)\)\)", table, re.DOTALL)
    assert allowed is not None
    assert set(re.findall(r"'(\w+)'", allowed[1])) == CONDITIONS | HAPPENED
