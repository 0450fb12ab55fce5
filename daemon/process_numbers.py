"""What is measured of the process itself: how its commits go, and what it takes of the machine."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from reconcile.errors import StoreError
from reconcile.seams import Clock, Meters
from reconcile.states import TRANSITIONS

_SELF: Final = Path("/proc/self")


def begin(meters: Meters, providers: Iterable[str], callbacks: Iterable[str]) -> None:
    """Tell every counter whose labels are known beforehand as 0: the first event is no increase of a series born by it.

    Left out are reasons of refusals and the answers to requests: many, most of them never seen, and watched as rates.
    """
    meters.count("commits_lost", 0)
    for name in callbacks:
        for result in ("delivered", "waiting", "exhausted"):
            meters.count("callbacks", 0, callback=name, result=result)
    for name in providers:
        for counter in ("webhooks_late", "webhooks_unmatched", "ends_missed", "unknown_status"):
            meters.count(counter, 0, provider=name)
        for answer in ("new", "duplicate", "not_stored"):
            meters.count("webhooks", 0, provider=name, answer=answer)
        meters.count("evidence_contradiction", 0, provider=name, to="")  # it leads nowhere
        meters.count("evidence_refused", 0, provider=name, to="")
        for to in sorted(frozenset().union(*TRANSITIONS.values())):
            meters.count("state_changed", 0, provider=name, to=to)
            meters.count("evidence_refused", 0, provider=name, to=to)


def measured_by(meters: Meters, clock: Clock) -> Callable[[int], AbstractContextManager[object]]:
    """Entered around each commit with the number of its writes: how long it took, or that it was lost whole."""

    @contextmanager
    def measured(writes: int) -> Iterator[None]:
        began = clock.monotonic()
        try:
            yield
        except StoreError:
            meters.count("commits_lost")
            raise
        meters.observe("commit_duration_seconds", clock.monotonic() - began)
        meters.observe("commit_writes", writes)

    return measured


def own_numbers() -> dict[str, float]:
    """CPU seconds, resident bytes, descriptors in use and at most; what the system does not tell is left out.

    A few reads of /proc/self, which the unit's sandbox leaves open: tens of microseconds, no disk.
    """
    spent = os.times()
    told: dict[str, float] = {"cpu": spent.user + spent.system}
    try:
        resident_pages = int((_SELF / "statm").read_text(encoding="ascii").split()[1])
        told["resident"] = resident_pages * os.sysconf("SC_PAGE_SIZE")
        told["open_fds"] = len(list((_SELF / "fd").iterdir())) - 1  # but the one that looks
        limits = (_SELF / "limits").read_text(encoding="ascii").splitlines()
        (most,) = (line.split()[3] for line in limits if line.startswith("Max open files"))
        told["max_fds"] = float(most)  # "unlimited" is no number
    except (OSError, ValueError, IndexError):
        pass
    return told
