"""Random worlds in bounded number, the same ones each time; `make simulate` tells fresh ones without end.

Ten thousand operation histories, every rule after each crash and at each end; each planted defect on seeds that catch
it; each listed pair of fault and state seen; the digest of a seed the same wherever it is told.
"""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.simulation import run
from tests.simulation.histories import judging
from tests.simulation.histories.scripts import BY_NAME, STANDINS, Doom, planned
from tests.simulation.histories.told import told
from tests.simulation.histories.world import HistoryWorld
from tests.simulation.inline_sqlite import InlineSqlite, ThreadedSqlite
from tests.simulation.planted import Defect, Hunk, PatchFails, defects, is_caught, names_of, planted, read, story_fails
from tests.simulation.world import Process, io_error

ROOT: Final = Path(__file__).parents[2]
#: About 25 operations each.
WORLDS: Final = 420
#: In one test, so that a failure shows soon.
AT_ONCE: Final = 20
#: A world with two lives, and one of one.
DIGESTS: Final = (11, 4)
TOTAL: Final = run.Total()


@pytest.mark.parametrize("first", range(0, WORLDS, AT_ONCE))
def test_no_rule_is_broken_in_any_world(folder: Path, first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        report = told(folder, seed)
        TOTAL.take(report)
        assert report.violations == [], f"again: {run.again(seed)}"


@pytest.mark.parametrize("seed", run.known_seeds())
def test_no_rule_is_broken_any_more_in_a_world_that_once_failed(folder: Path, seed: int) -> None:
    assert told(folder, seed).violations == []


def test_ten_thousand_histories_show_every_listed_pair_of_fault_and_state() -> None:
    """A fault that never meets a state proves nothing of it."""
    if TOTAL.worlds < WORLDS:
        pytest.skip("not all worlds were told in this run")
    assert TOTAL.histories >= 10_000
    assert TOTAL.unseen() == []
    print(f"{TOTAL.histories} histories, {TOTAL.crashes} crashes, {TOTAL.hours:.0f} virtual hours")


# ---- planted defects -------------------------------------------------------------------------------------------------


def test_there_are_enough_planted_defects() -> None:
    assert len(defects()) >= 20
    assert all(defect.what and defect.hunks for defect in defects())
    assert all(bool(defect.seeds) != bool(defect.story) for defect in defects())
    named = {name.partition(" ")[0] for name in (*judging.RULES, *judging.ENDINGS)}
    assert {name for defect in defects() if defect.seeds for name in defect.rules} <= named | {"any", "Livelock"}


@pytest.mark.parametrize("defect", defects(), ids=str)
def test_a_planted_defect_is_caught(defect: Defect) -> None:
    """In a copy of the product; where the product has moved on, `python -m tests.simulation.planted --find` helps."""
    if defect.story:
        assert story_fails(defect)
    else:
        assert any(is_caught(defect, names_of(defect, [seed]).get(seed, set())) for seed in defect.seeds)


def test_a_patch_that_does_not_fit_any_more_fails(tmp_path: Path) -> None:
    for text in ("what nobody wrote\n", "\n"):
        defect = Defect("stale", "", ("N1",), (1,), "", (Hunk("reconcile/classify.py", text, "pass\n"),))
        with pytest.raises(PatchFails):
            planted(defect, tmp_path / str(len(text)))


def test_a_patch_is_read_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "x.patch"
    head, body = "What it does.\ncaught by: N1 N2\nseeds: 3 4\n", " kept\n-old\n+new\n\n kept\n"
    path.write_text(f"{head}--- a.py\n+++ a.py\n@@\n{body}--- b.py\n+++ b.py\n@@\n-x\n")
    hunks = (Hunk("a.py", "kept\nold\n\nkept\n", "kept\nnew\n\nkept\n"), Hunk("b.py", "x\n", ""))
    assert read(path) == Defect("x", "What it does.", ("N1", "N2"), (3, 4), "", hunks)


def test_a_patch_that_only_breaks_the_harness_is_not_caught() -> None:
    """A name that is misspelled in a patch is no rule that sees it."""
    defect = Defect("any", "", ("N1", "any"), (1,), "", ())
    assert not is_caught(defect, {"NameError", "AssertionError"})
    assert is_caught(defect, {"NameError", "N21"})


def test_a_life_that_gives_up_by_itself_is_named(folder: Path) -> None:
    """Else a process that dies too easily would count as one that was killed, and its next life would hide it."""
    world = HistoryWorld(folder, replace(planned(4), dooms=(Doom(stop_after=3_600.0),)))

    def fails(process: Process) -> None:
        if process.life.commits == 30 and process.life.number == 1:
            raise io_error()

    world.on_commit = fails
    found: list[str] = []
    world.run(lambda world: found.extend(judging.check(world, at_the_end=False)))
    assert {words.partition(":")[0] for words in found} == {"N33 (lives)"}


def test_every_provider_of_the_worlds_is_seen_to_its_good_ends() -> None:
    """One whose results can never be fetched, say, would make every rule of results pass for it."""
    if TOTAL.worlds < WORLDS:
        pytest.skip("not all worlds were told in this run")
    for provider in (*BY_NAME, *STANDINS):
        assert TOTAL.ends_of[provider]["succeeded"] >= 20, provider
        assert TOTAL.ends_of[provider].total() >= 100, provider


# ---- the same again --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", DIGESTS)
def test_a_seed_tells_the_same_story_wherever_it_is_told(folder: Path, seed: int) -> None:
    """N39: twice, under two hash seeds, and with the store on a real thread."""
    first = told(folder, seed)
    assert first.violations == []
    assert first.crashes == sum(doom.name != "in_order" for doom in planned(seed).dooms[: first.lives - 1])
    assert told(folder, seed).digest == first.digest
    for opener in (InlineSqlite, ThreadedSqlite):
        assert told(folder, seed, opener=opener).digest == first.digest
    script = (
        "import pathlib, sys; from tests.simulation.histories.told import told; "
        "print(told(pathlib.Path(sys.argv[1]), int(sys.argv[2])).digest)"
    )
    for hash_seed in ("0", "4242"):
        printed = subprocess.run(
            [sys.executable, "-c", script, str(folder / hash_seed), str(seed)],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        )
        assert printed.stdout.strip() == first.digest
    assert told(folder, seed + 1).digest != first.digest


def test_a_run_that_finds_something_says_how_to_find_it_again_and_exits_with_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(judging.RULES, "N0", lambda seen: iter([f"{len(seen.view.operations)} operations"]))
    assert run.main(["--seed", "4", "--jobs", "1"]) == 1
    printed = capsys.readouterr().out
    assert "seed 4: N0: " in printed
    assert "tests.simulation.run --seed 4" in printed
    monkeypatch.undo()
    assert run.main(["--seed", "4", "--jobs", "1"]) == 0
    assert "violations                 0" in capsys.readouterr().out
