"""An event loop whose time is virtual, whose order is fixed, and which can be stopped dead at any step.

A *step* is one callback taken from the ready queue (one resumption of a task, one delivery, one timer): the finest
grain at which asyncio itself can be interrupted. Cancelled callbacks are not steps. Equal worlds take equal steps.
"""

import asyncio
import collections
import contextlib
import contextvars
import gc
import heapq
import itertools
import math
import sys
import threading
import warnings
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Crash(BaseException):
    """The process under test was killed: nothing of it runs any more."""


class Deadlock(BaseException):
    """Somebody waits, and nothing is ready or scheduled (a timer at infinity never rings)."""


class Livelock(BaseException):
    """Too many steps without time moving."""


class _Task(asyncio.Task[Any]):
    """Hashed by its number instead of its address, so that sets of tasks (TaskGroup, wait) have a fixed order."""

    def __init__(self, number: int, coro: Coroutine[Any, Any, Any], loop: "VirtualLoop", **rest: Any) -> None:
        self.number = number
        super().__init__(coro, loop=loop, name=f"task-{number}", **rest)

    def __hash__(self) -> int:
        return self.number


def _settle(future: "asyncio.Future[T]", result: T | None, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)  # type: ignore[arg-type]  # `result` is a T wherever `error` is None
    else:
        future.set_exception(error)


class VirtualLoop(asyncio.BaseEventLoop):
    """Single thread, no selector: when nothing is ready, time jumps to the next timer.

    `start` is the virtual time of the first step (the last life's time, after a crash). With `crash_at_step = k` the
    loop raises Crash once k steps were run. `owes` is for stores on a real thread: after each step the loop waits
    until it returns False, so that their answers come in the same order as an inline store's.
    `complaints` collects what asyncio would only have logged; a clean run has none.
    """

    _ready: collections.deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _stopping: bool
    _timer_cancelled_count: int

    def __init__(
        self,
        *,
        start: float = 0.0,
        crash_at_step: int | None = None,
        steps_without_time: int = 200_000,
        collect_every: int = 100_000,
    ) -> None:
        super().__init__()
        self.steps = 0
        self.crash_at_step = crash_at_step
        self.owes: Callable[[], bool] = lambda: False
        self.delivered = 0
        self.complaints: list[dict[str, Any]] = []
        self.last_rites: list[Callable[[], None]] = []
        self._time = start
        self._steps_without_time = steps_without_time
        self._collect_every = collect_every
        self._steps_at_jump = 0
        self._crash: Crash | None = None
        self._woken = threading.Event()
        numbers = itertools.count(1)
        self.set_task_factory(lambda _, coro, **rest: _Task(next(numbers), coro, self, **rest))
        self.set_exception_handler(lambda _, context: self.complaints.append(context))

    def time(self) -> float:
        """Virtual seconds."""
        return self._time

    def crash(self, error: Crash | None = None) -> NoReturn:
        """Stop the loop at once, from a hook on any thread: no further step is run."""
        self._crash = error or Crash(f"by a hook in step {self.steps}")
        raise self._crash

    def deliver(self, function: Callable[[], T]) -> "asyncio.Future[T]":
        """Run `function` here and now; its result (or exception) arrives in a later step, as from a thread."""
        future: asyncio.Future[T] = self.create_future()
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001  # as a worker thread would: all of it goes to the caller
            self.call_soon(_settle, future, None, error)
        else:
            self.call_soon(_settle, future, result, None)
        return future

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":  # type: ignore[override]
        """Run inline: there are no threads here."""
        return self.deliver(lambda: func(*args))

    async def sendfile(self, *args: Any, **kwargs: Any) -> NoReturn:
        """aiohttp falls back to reading and writing."""
        raise NotImplementedError

    async def getaddrinfo(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Nothing here may reach the real network."""
        raise OSError("no name is resolved under a virtual clock")

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Queue a callback from another thread, and count it: see `owes`."""
        handle = self.call_soon(callback, *args, context=context)
        self.delivered += 1
        self._woken.set()
        return handle

    def run_forever(self) -> None:
        """Run until stop() or a crash; garbage is collected at fixed steps only, since finalizers act."""
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            super().run_forever()
            self._look_for_crash()
        finally:
            if was_enabled:
                gc.enable()

    def _run_once(self) -> None:
        while self.owes():
            self._woken.wait(0.001)
            self._woken.clear()
        self._look_for_crash()
        self._ring_timers()
        if not self._ready and not self._stopping:
            self._jump()
        while self._ready:
            handle = self._ready.popleft()
            if not handle.cancelled():
                self._count_step()
                handle._run()
                return

    def _look_for_crash(self) -> None:
        if self._crash is None and self.steps == self.crash_at_step:
            self._crash = Crash(f"after step {self.steps}")
        if self._crash is not None:
            raise self._crash.with_traceback(None)

    def _count_step(self) -> None:
        self.steps += 1
        if self.steps - self._steps_at_jump > self._steps_without_time:
            raise Livelock(f"{self._steps_without_time} steps at {self._time}; last: {self._ready}")
        if self.steps % self._collect_every == 0:
            gc.collect()

    def _ring_timers(self) -> None:
        if self._timer_cancelled_count > 100 + len(self._scheduled) // 2:
            self._scheduled = [timer for timer in self._scheduled if not timer.cancelled()]
            heapq.heapify(self._scheduled)
            self._timer_cancelled_count = 0
        while self._scheduled and (self._scheduled[0].cancelled() or self._scheduled[0].when() <= self._time):
            timer = heapq.heappop(self._scheduled)
            timer._scheduled = False  # type: ignore[attr-defined]  # as BaseEventLoop does
            if timer.cancelled():
                self._timer_cancelled_count -= 1
            else:
                self._ready.append(timer)

    def _jump(self) -> None:
        if not self._scheduled or self._scheduled[0].when() == math.inf:
            waiting = sorted(task.get_name() for task in asyncio.all_tasks(self))
            raise Deadlock(f"at {self._time}, waiting: {waiting}")
        self._time = self._scheduled[0].when()
        self._steps_at_jump = self.steps
        self._ring_timers()


def dispose(loop: VirtualLoop) -> None:
    """Throw everything that lived on `loop` away in silence, as a killed process does.

    First its last rites (stores refuse, connectors count as closed), for a coroutine thrown away still runs its
    `finally`. Never task.cancel(): that would be a graceful stop. `gc.freeze()` before a long sweep makes this cheap.
    """
    hook = sys.unraisablehook
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sys.unraisablehook = lambda _: None
        try:
            for rite in loop.last_rites:
                rite()
            loop.set_exception_handler(lambda *_: None)
            loop.close()
            _close_coroutines(loop)
            gc.collect()
        finally:
            sys.unraisablehook = hook


def _close_coroutines(loop: VirtualLoop) -> None:
    for task in sorted(asyncio.all_tasks(loop), key=hash):
        coroutine = task.get_coro()
        if coroutine is not None:
            with contextlib.suppress(BaseException):
                coroutine.close()
