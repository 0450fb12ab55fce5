"""Operations that are asked for one by one, read together: what is asked for while a read runs goes into the next.

A hop to SQLite's thread and back costs several times what the row itself does, so that many who ask at once share one.
Nobody waits for company: a read starts at once where none is under way. There is no task either; whoever asks first
leads, and hands on to one of those who came meanwhile.
"""

import asyncio
import json
from typing import Any, Final

from reconcile.errors import StoreError
from reconcile.store import rows
from reconcile.store.reading import Reader

#: Rows that one read takes at most. 64: arbitrary; the first who asked waits for the last row.
MOST: Final = 64
_SELECT: Final = rows.SELECT_AS_ONE + "WHERE o.operation_id IN (SELECT value FROM json_each(?))"
_ID: Final = rows.COLUMNS.index("operation_id")


class _Lead:
    """Handed to whoever is to make the next read."""


_LEAD: Final = _Lead()
_Asked = tuple[str, "asyncio.Future[Any]"]


class SingleReads:
    """Rows of `rows.SELECT` by operation id."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._waiting: list[_Asked] = []
        #: Somebody leads, or was told to.
        self._is_led = False

    async def get(self, operation_id: str) -> Any:
        """The row as it stands now, or later; None where there is none. Raises: StoreError."""
        if self._is_led:
            found = await self._turn(operation_id)
            if found is not _LEAD:
                return found
        self._is_led = True
        batch, self._waiting = self._waiting[: MOST - 1], self._waiting[MOST - 1 :]
        try:
            ids = [operation_id, *(name for name, _ in batch)]
            [[told]] = await self._reader.execute_fetchall(_SELECT, (json.dumps(ids),))
            found = {row[_ID]: row for row in json.loads(told)}
        except StoreError as fault:
            for _, future in batch:
                if not future.done():
                    future.set_exception(fault)
            raise
        except BaseException:  # the one who leads went away; the others still want to know
            self._waiting = batch + self._waiting
            raise
        else:
            for name, future in batch:
                if not future.done():
                    future.set_result(found.get(name))
            return found.get(operation_id)
        finally:
            self._hand_on()

    async def _turn(self, operation_id: str) -> Any:
        """A row that somebody else has read, or `_LEAD`."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((operation_id, future))
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None and future.result() is _LEAD:
                self._hand_on()
            raise

    def _hand_on(self) -> None:
        """Let the first who still waits lead."""
        while self._waiting:
            _, future = self._waiting.pop(0)
            if not future.done():
                future.set_result(_LEAD)
                return
        self._is_led = False
