"""What an action asked stands in the record whole, whatever its last answer alone comes to."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from reconcile.client import Exchange
from reconcile.evidence import Accepted
from reconcile.model import Observation
from reconcile.provider import HttpRequest, HttpResponse, Purpose
from reconcile.store.claims import ClaimWish
from tests.handlers.ground import NOON, Ground, running


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with running(tmp_path / "state") as ground:
        yield ground


async def test_each_request_of_a_look_up_is_kept(ground: Ground) -> None:
    """A look-up reads pages and peeks into results: A7 asks for all of them."""
    operation_id = await ground.operation("create_unknown", None)
    (claim,) = (await ground.daemon.store.claim(ClaimWish("A", NOON, 60_000, {"openai": 1}))).claims
    exchanges = [
        Exchange(HttpRequest("GET", path, Purpose.LOOKUP), NOON, NOON + 5, HttpResponse(status, {}, b""))
        for path, status in (("batches", 200), ("batches?after=b", 201), ("files/f/content", 206))
    ]
    evidence = Accepted(Observation("in_progress", remote_job_id="batch_1"), by_lookup=True)
    await ground.daemon.ingest.answer(claim.operation, evidence, *exchanges, actor="worker:A", fence=claim.fence)
    assert ground.rows("SELECT status FROM requests ORDER BY status") == [(200,), (201,), (206,)]
    assert (await ground.row(operation_id)).state == "observing"
