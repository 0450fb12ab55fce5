"""One seed's world, told whole and checked: what it came to, as plain values that travel between processes."""

import shutil
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.simulation.histories.judging import check
from tests.simulation.histories.scripts import planned
from tests.simulation.histories.world import HistoryWorld
from tests.simulation.world import Opener


@dataclass(slots=True)
class Report:
    """What one seed came to."""

    seed: int
    histories: int = 0
    lives: int = 0
    crashes: int = 0
    virtual_hours: float = 0.0
    sends: int = 0
    violations: list[str] = field(default_factory=list)
    #: (what befell, the state that it befell), how often.
    ledger: Counter[tuple[str, str]] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    #: (provider, end), how often.
    ends_of: Counter[tuple[str, str]] = field(default_factory=Counter)
    digest: str = ""
    #: Where it ended by an exception of the harness: its traceback. Where anything was found: what happened last.
    trace: str = ""
    tail: tuple[str, ...] = ()


def told(folder: Path, seed: int, *, opener: Opener | None = None) -> Report:
    """The world of `seed`, made in `folder` and taken away again.

    What the harness itself raises (a deadlock, a livelock, a failed assertion) is a violation like any other.
    """
    plan = planned(seed)
    world = HistoryWorld(folder / str(seed), plan, opener=opener)
    report = Report(seed, histories=len(plan.wishes))
    try:
        world.run(lambda world: report.violations.extend(check(world, at_the_end=False)))
        report.violations += check(world, at_the_end=True)
        report.digest = world.digest()
    except BaseException as fault:
        if isinstance(fault, KeyboardInterrupt | SystemExit):
            raise
        report.violations.append(f"{type(fault).__name__}: {fault}"[:500])
        report.trace = traceback.format_exc()
    finally:
        shutil.rmtree(folder / str(seed), ignore_errors=True)
    report.lives = len(world.lives)
    report.crashes = sum(not life.ended for life in world.lives)
    report.virtual_hours = world.time / 3600
    report.sends = len(world.sends)
    report.violations = list(dict.fromkeys(report.violations))
    report.tail = tuple(world.trace.tail) if report.violations else ()
    report.ledger = world.ledger
    report.ends = Counter(str(customer.told.body.get("state")) for customer in world.customers)
    report.ends_of = Counter((one.wish.provider, str(one.told.body.get("state"))) for one in world.customers)
    return report
