"""Looking for the job of a lost create over a real connection: the list, and the peek into what a candidate left.

The account is a server of the test's own; what it shows are the shapes of the fixtures.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

import aiohttp
import pytest
import structlog
from aiohttp import web
from aiohttp.test_utils import TestServer

from daemon.meters import Counts
from reconcile.client import Client
from reconcile.contract import Lookup
from reconcile.evidence import Accepted, LookedAgain, LookupFound, ReadFailed
from reconcile.files import Files
from reconcile.lookup import MAX_PEEK, MAX_PEEKS, Looked, Looker, owes_second_look
from reconcile.model import Operation
from reconcile.peer import Peer
from reconcile.provider import Purpose
from reconcile.providers.anthropic_batches.adapter import AnthropicBatches
from reconcile.providers.anthropic_batches.contract import CONTRACT
from reconcile.redact import Redactor
from reconcile.states import State
from tests.reconcile.provider_cases import fixture_bytes, operation

KIND: Final = "anthropic_batches"
MARK: Final = "0123456789ab"
NOW: Final = 1_795_953_660_000
KEY: Final = "sk-canary-of-the-look-up"
ENDED: Final[dict[str, Any]] = json.loads(fixture_bytes("anthropic/batch_status_ended_all_succeeded.json"))
RUNNING: Final[dict[str, Any]] = json.loads(fixture_bytes("anthropic/batch_status_in_progress.json"))
OURS: Final = b'{"custom_id":"0123456789ab_q-1","result":{"type":"canceled"}}\n'
THEIRS: Final = b'{"custom_id":"q-1","result":{"type":"canceled"}}\n'
OP: Final = operation(KIND, state=State.CREATE_UNKNOWN, item_mark=MARK)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Account:
    """What the account shows, and what it was asked."""

    looker: Looker
    peer: Peer
    #: Pages of the list in turn, each a body or a status.
    pages: list[Any] = field(default_factory=list)
    #: Results by batch id: bytes, a status, or a handler.
    results: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    def ended(self, name: str, result: Any, **over: Any) -> dict[str, Any]:
        """A batch that has ended, and what its results are."""
        self.results[name] = result
        url = f"{self.peer.base_url}/messages/batches/{name}/results"
        return {**ENDED, "id": name, "results_url": url, **over}

    def running(self, name: str) -> dict[str, Any]:
        return {**RUNNING, "id": name}

    async def look(self, *batches: dict[str, Any], op: Operation = OP) -> Looked:
        """One look-up on an account with these batches."""
        self.pages = [{"data": list(batches), "has_more": False}]
        return await self.looker.look_up(self.peer, op)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.path, request.headers.get("x-api-key")))
        if request.path == "/v1/messages/batches":
            page = self.pages.pop(0)
            return web.Response(status=page) if isinstance(page, int) else web.json_response(page)
        result = self.results[request.path.split("/")[4]]
        if callable(result):
            return cast("web.StreamResponse", await result(request))
        return web.Response(status=result) if isinstance(result, int) else web.Response(body=result)


@pytest.fixture
async def account(tmp_path: Path) -> AsyncIterator[Account]:
    nobody = cast("Any", None)
    clock = cast("Any", type("Clock", (), {"now": staticmethod(lambda: NOW), "monotonic": staticmethod(lambda: 0.0)}))
    client = Client(
        connector=aiohttp.TCPConnector,
        clock=clock,
        dice=cast("Any", type("Dice", (), {"draw": staticmethod(lambda: 0.0)})),
        files=Files(tmp_path, nobody),
        redactor=Redactor((KEY,)),
        meters=Counts(),
        max_answer=1 << 20,
        log=structlog.get_logger(),
        sleep=lambda _: asyncio.sleep(0),
    )
    made = Account(Looker(client, clock), nobody)
    app = web.Application()
    app.router.add_get("/{anything:.*}", made.answer)
    limits = replace(CONTRACT.limits, requests_per_second=1e6, concurrency=1000)
    provider = AnthropicBatches(replace(CONTRACT, item_marks="on", limits=limits))
    async with TestServer(app) as server:
        made.peer = Peer("claude", provider, server.make_url("/v1"), {"x-api-key": KEY}, credential_name="KEY")
        try:
            yield made
        finally:
            await client.close()


async def test_a_candidate_that_bears_our_mark_is_surely_ours(account: Account) -> None:
    looked = await account.look(account.ended("b_theirs", THEIRS), account.ended("b_ours", OURS))
    assert isinstance(looked.evidence, Accepted)
    assert (looked.evidence.observation.remote_job_id, looked.evidence.by_lookup) == ("b_ours", True)


async def test_a_peek_is_recorded_as_a_read_that_looks_for_the_job(account: Account) -> None:
    looked = await account.look(account.ended("b_ours", OURS))
    assert [exchange.request.purpose for exchange in looked.exchanges] == [Purpose.LOOKUP, Purpose.LOOKUP]
    last = looked.exchanges[-1]
    assert last.response is not None
    assert last.response.body == OURS.strip()
    assert last.credential == "KEY"


async def test_a_candidate_whose_ids_bear_no_mark_of_ours_is_none_any_more(account: Account) -> None:
    other = b'{"custom_id":"ffffffffffff_q-1","result":{"type":"canceled"}}\n'
    looked = await account.look(account.ended("b_1", THEIRS), account.ended("b_2", other), account.running("b_3"))
    assert looked.evidence == LookupFound(("b_3",), is_sure=False, same_size=("b_3",), ruled_out=("b_1", "b_2"))


async def test_a_candidate_that_was_ruled_out_before_is_not_fetched_again(account: Account) -> None:
    op = replace(OP, ruled_out=("b_1",))
    looked = await account.look(account.ended("b_1", THEIRS), op=op)
    assert looked.evidence == LookupFound((), is_sure=False)
    assert [path for path, _ in account.asked] == ["/v1/messages/batches"]


async def test_two_jobs_with_our_mark_are_told_as_sure(account: Account) -> None:
    """After a re-send: the same bytes, so the same ids, in both."""
    looked = await account.look(account.ended("b_1", OURS), account.ended("b_2", OURS))
    assert looked.evidence == LookupFound(("b_1", "b_2"), is_sure=True)


async def hangs_up(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"custom_id":"q-1"')
    assert request.transport is not None
    request.transport.close()
    return response


async def troubled(_: web.Request) -> web.StreamResponse:
    return web.Response(status=500, body=THEIRS)


@pytest.mark.parametrize(
    "result",
    [
        troubled,
        404,
        500,
        b"",
        b"\n",
        b"<html>",
        b'{"custom_id":7}\n',
        b'{"custom_id":"' + b"q" * 2 * MAX_PEEK,
        hangs_up,
    ],
    ids=["a line under a 500", "404", "500", "empty", "a blank line", "no JSON", "no id", "an endless line", "cut"],
)
async def test_a_result_that_does_not_tell_leaves_its_batch_in_doubt(account: Account, result: Any) -> None:
    looked = await account.look(account.ended("b_1", result))
    assert looked.evidence == LookupFound(("b_1",), is_sure=False, same_size=("b_1",))
    assert len(looked.exchanges) == 2


async def test_a_mark_at_the_head_of_an_endless_line_is_proof_enough(account: Account) -> None:
    looked = await account.look(account.ended("b_1", OURS.strip() + b" " * 2 * MAX_PEEK))
    assert isinstance(looked.evidence, Accepted)


async def test_of_an_endless_result_only_its_head_is_read(account: Account) -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while sent < 1 << 28:
            try:
                await response.write(b"x" * MAX_PEEK)
            except ConnectionError:
                break
            sent += MAX_PEEK
        return response

    looked = await account.look(account.ended("b_1", endless))
    assert looked.evidence == LookupFound(("b_1",), is_sure=False, same_size=("b_1",))
    assert sent < 1 << 26


async def test_the_key_goes_to_no_other_host_for_a_peek(account: Account) -> None:
    """F6: whatever URL a candidate names."""
    stranger = account.ended("b_1", OURS, results_url="http://127.0.0.1:9/stolen")
    looked = await account.look(stranger)
    assert looked.evidence == LookupFound(("b_1",), is_sure=False, same_size=("b_1",))
    assert looked.exchanges[-1].error_class == "foreign_host:127.0.0.1:9"
    assert account.asked == [("/v1/messages/batches", KEY)]


async def test_a_secret_that_a_result_quotes_is_struck_out_of_the_record(account: Account) -> None:
    line = b'{"custom_id":"q-1","result":{"type":"canceled","echo":"' + KEY.encode() + b'"}}\n'
    looked = await account.look(account.ended("b_1", line))
    answer = looked.exchanges[-1].response
    assert answer is not None
    assert KEY.encode() not in answer.body


async def test_one_look_up_peeks_into_so_many_and_leaves_the_others_in_doubt(account: Account) -> None:
    batches = [account.ended(f"b_{n}", THEIRS) for n in range(MAX_PEEKS + 2)]
    looked = await account.look(*batches)
    assert isinstance(looked.evidence, LookupFound)
    assert looked.evidence.job_ids == (f"b_{MAX_PEEKS}", f"b_{MAX_PEEKS + 1}")
    assert len(looked.evidence.ruled_out) == MAX_PEEKS


async def test_an_operation_without_a_mark_is_peeked_for_by_nobody(account: Account) -> None:
    """The mark is the operation's own, fixed at its start, whatever the configuration says by now."""
    looked = await account.look(account.ended("b_1", OURS), op=replace(OP, item_mark=None))
    assert looked.evidence == LookupFound(("b_1",), is_sure=False, same_size=("b_1",))
    assert len(account.asked) == 1


async def test_of_the_candidates_those_of_known_size_are_told_apart(account: Account) -> None:
    """One without readable counts may be ours, and is shown; its size proves nothing."""
    counts = {**RUNNING["request_counts"], "processing": 4}
    for op in (replace(OP, item_mark=None), OP):
        bare = {**account.running("b_1"), "request_counts": None}
        looked = await account.look(bare, {**account.running("b_2"), "request_counts": counts}, op=op)
        assert looked.evidence == LookupFound(("b_1", "b_2"), is_sure=False, same_size=("b_2",))


async def test_a_list_that_goes_on_beyond_what_is_read_shows_no_absence(account: Account) -> None:
    account.peer.provider = AnthropicBatches(replace(CONTRACT, lookup=Lookup(is_sure=False, max_pages=2)))
    far = {**RUNNING, "id": "b_1", "request_counts": {**RUNNING["request_counts"], "processing": 9}}
    account.pages = [{"data": [far], "has_more": True, "last_id": "b_1"}] * 3
    looked = await account.looker.look_up(account.peer, replace(OP, item_mark=None))
    assert looked.evidence == LookupFound((), is_sure=False, is_whole=False)
    assert len(account.asked) == 2


async def test_a_page_that_cannot_be_read_is_no_answer(account: Account) -> None:
    account.pages = [500]
    looked = await account.looker.look_up(account.peer, OP)
    assert looked.evidence == ReadFailed("http_500")
    assert len(looked.exchanges) == 1


# ---- a second look, after a re-send ----

HELD: Final = replace(OP, state=State.RESULT_COLLECTING, remote_job_id="b_2", resends=1)


@pytest.mark.parametrize(("first", "others"), [(OURS, ("b_1",)), (THEIRS, ())])
async def test_the_first_job_of_a_create_that_was_sent_again_is_told_beside_the_held_one(
    account: Account, first: bytes, others: tuple[str, ...]
) -> None:
    account.pages = [{"data": [account.ended("b_1", first), account.ended("b_2", OURS)], "has_more": False}]
    looked = await account.looker.look_again(account.peer, HELD)
    assert looked.evidence == LookedAgain(others)


@pytest.mark.parametrize("first", [OURS, THEIRS])
async def test_a_second_look_that_leaves_jobs_in_doubt_says_so(account: Account, first: bytes) -> None:
    """A job that still runs shows no ids, one whose results fail neither; beyond the cap nobody peeks."""
    held, ended = account.ended("b_2", OURS), account.ended("b_1", first)
    others = ("b_1",) if first == OURS else ()
    many = [account.ended(f"b_x{n}", THEIRS) for n in range(MAX_PEEKS)]
    for batches in ([account.running("b_3")], [account.ended("b_4", 500)], many):
        account.pages = [{"data": [ended, held, *batches], "has_more": False}]
        looked = await account.looker.look_again(account.peer, HELD)
        assert looked.evidence == LookedAgain(others, is_whole=False)


async def test_a_second_look_at_a_list_that_goes_on_beyond_what_is_read_says_so(account: Account) -> None:
    account.peer.provider = AnthropicBatches(replace(CONTRACT, lookup=Lookup(is_sure=False, max_pages=1)))
    account.pages = [{"data": [account.ended("b_2", OURS)], "has_more": True, "last_id": "b_2"}]
    looked = await account.looker.look_again(account.peer, HELD)
    assert looked.evidence == LookedAgain((), is_whole=False)


async def test_a_held_job_whose_own_ids_cannot_be_read_is_in_no_doubt(account: Account) -> None:
    account.pages = [{"data": [account.ended("b_2", 500)], "has_more": False}]
    assert (await account.looker.look_again(account.peer, HELD)).evidence == LookedAgain(())


async def test_a_second_look_that_fails_says_nothing_of_a_second_job(account: Account) -> None:
    account.pages = [500]
    assert (await account.looker.look_again(account.peer, HELD)).evidence == ReadFailed("http_500")


@pytest.mark.parametrize(
    ("op", "owes"),
    [
        (HELD, True),
        (replace(HELD, resend_checked=True), False),
        (replace(HELD, resends=0), False),
        (replace(HELD, item_mark=None), False),
        (replace(HELD, state=State.OBSERVING), False),
    ],
)
async def test_a_second_look_is_owed_once_and_only_where_something_can_tell(
    account: Account, op: Operation, owes: bool
) -> None:
    assert owes_second_look(account.peer, op) is owes
