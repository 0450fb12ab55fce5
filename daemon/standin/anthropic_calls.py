"""What the Message Batches calls mean: create, read, list, cancel, results. Pure, the time handed to every call.

`origin` is the server's own address as its caller knows it: a batch says with it where its results are.
"""

import itertools
from collections.abc import Iterator
from typing import Final, Literal

from daemon.standin.account import Account, AnswerLost
from daemon.standin.anthropic_bodies import (
    Body,
    MessagesError,
    Requests,
    message_batch_body,
    no_message_batch,
    no_scenario,
    page_body,
    read_requests,
    trouble,
)
from daemon.standin.anthropic_jobs import MessageBatch
from daemon.standin.items import NumberedIds
from daemon.standin.scenarios import Scenario
from reconcile.errors import RequestInvalid

#: The provider's page size and its limit.
DEFAULT_PAGE: Final = 20
MAX_PAGE: Final = 1000
#: Where results are when nobody says otherwise: the provider's own address.
ORIGIN: Final = "https://api.anthropic.com"


class MessageBatches:
    """The Message Batches of one account."""

    def __init__(self, account: Account) -> None:
        self._account = account

    def create(self, body: object, now_ms: int, origin: str = ORIGIN) -> Body:
        """Make a batch of the requests in `body`.

        Raises:
            MessagesError: the body itself is at fault and no batch was made; or what the scenario has for this create.
            AnswerLost: the batch was made, unless the scenario says otherwise.
        """
        account = self._account
        now_ms = account.begin("creates", now_ms)
        requests = read_requests(body)
        try:
            scenario = account.pick_scenario(requests.scenario)
        except RequestInvalid as error:
            raise no_scenario(error.message) from error
        fault = account.fault_of_create(scenario, b"", body)
        if fault == "never-made":
            raise AnswerLost
        if isinstance(fault, int) and fault < 500:
            raise trouble(fault)
        batch = self._add(requests, scenario, now_ms)
        if fault == "lost":
            raise AnswerLost(batch.id)
        if fault is not None:
            raise trouble(fault)
        return message_batch_body(batch, now_ms, origin)

    def seed_job(self, *, items: int, now_ms: int, scenario: Scenario | None = None) -> str:
        """Put in a batch that nobody here created, for adoption and for size tests; its id.

        Its items are `item-00000000` and on; the provider's limit on them does not hold.
        """
        now_ms = self._account.advance(now_ms)
        requests = Requests(NumberedIds(items), ["example-model"] * items, {}, None)
        return self._add(requests, self._account.at_speed(scenario), now_ms).id

    def _add(self, requests: Requests, scenario: Scenario, now_ms: int) -> MessageBatch:
        batch = MessageBatch(
            id=self._account.ids("msgbatch_"),
            place=self._account.next_place(),
            scenario=scenario,
            custom_ids=requests.custom_ids,
            created_ms=now_ms,
            models=requests.models,
            invalid=requests.invalid,
        )
        self._account.add(batch)
        return batch

    def read(self, job_id: str, now_ms: int, origin: str = ORIGIN) -> Body:
        """A batch as it stands.

        Raises:
            MessagesError: 404, or whatever trouble the batch's scenario has for this read.
        """
        now_ms = self._account.begin("reads", now_ms)
        batch = self._batch(job_id)
        status = batch.take_read()
        if status is not None:
            raise trouble(status)
        return message_batch_body(batch, now_ms, origin)

    def list_page(
        self,
        limit: int,
        now_ms: int,
        *,
        after_id: str | None = None,
        before_id: str | None = None,
        origin: str = ORIGIN,
    ) -> Body:
        """A page of batches, newest first: the newest, those right after `after_id`, or those right before `before_id`.

        Raises:
            MessagesError: a limit out of range, both cursors at once, or a cursor that names no batch.
        """
        now_ms = self._account.begin("lists", now_ms)
        if not 1 <= limit <= MAX_PAGE:
            raise MessagesError(400, f"limit: Input should be from 1 to {MAX_PAGE}")
        if after_id is not None and before_id is not None:
            raise MessagesError(400, "Only one of after_id and before_id can be used.")
        step: Literal[-1, 1] = -1 if before_id is None else 1
        place = self._place(after_id if before_id is None else before_id)
        found = list(itertools.islice(self._account.listed(MessageBatch, place, step), limit + 1))
        page = [message_batch_body(batch, now_ms, origin) for batch in found[:limit][::-step]]
        return page_body(page, has_more=len(found) > limit)

    def _place(self, cursor: str | None) -> int:
        if cursor is None:
            return self._account.next_place()
        batch = self._account.find(MessageBatch, cursor)
        if batch is None:
            raise MessagesError(400, "The cursor names no message batch.")
        return batch.place

    def cancel(self, job_id: str, now_ms: int, origin: str = ORIGIN) -> Body:
        """Ask a batch to stop; asked again, the same answer.

        Raises:
            MessagesError: 404; 400 for one that has ended. The provider documents no answer for that; its types have
                no word for a conflict.
        """
        now_ms = self._account.begin("cancels", now_ms)
        batch = self._batch(job_id)
        batch.cancels += 1
        if batch.ended:
            raise MessagesError(400, "The message batch has ended and cannot be canceled.")
        self._account.cancel_job(batch, now_ms)
        return message_batch_body(batch, now_ms, origin)

    def results(self, job_id: str, now_ms: int) -> Iterator[bytes]:
        """The result lines of a batch, made as they are taken.

        Raises:
            MessagesError: 404, also for results that are archived; 400 for a batch that has not ended (undocumented).
        """
        now_ms = self._account.begin("downloads", now_ms)
        batch = self._batch(job_id)
        if not batch.ended:
            raise MessagesError(400, "The message batch is still processing: it has no results yet.")
        if batch.archived_ms(now_ms) is not None:
            raise MessagesError(404, "The results of this message batch are no longer available.")
        return batch.result_lines()

    def _batch(self, job_id: str) -> MessageBatch:
        batch = self._account.find(MessageBatch, job_id)
        if batch is None:
            raise no_message_batch()
        return batch
