"""Planted defects: each a small patch of the product, put into a copy of it, that some rule has to name.

`python -m tests.simulation.planted` tells for each the seeds that catch it, or finds new ones (`--find NAME`). The
product knows nothing of them. A patch is found by its text and not by its lines, so that it outlives what happens
around it; one whose text is not there once, and once only, fails the run.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile, copytree, ignore_patterns
from typing import Final

from tests.simulation.run import in_memory

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
PATCHES: Final = HERE / "defects"
#: What a world needs of this tree.
COPIED: Final = ("reconcile", "handlers", "daemon", "tests")
#: Seconds for one defect's worlds; a defect may spin.
PATIENCE: Final = 180


class PatchFails(Exception):
    """The product does not say any more what the patch changes."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """One place: what stands there, and what shall."""

    file: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Defect:
    """One patch, and what has to see it."""

    name: str
    what: str
    #: Rules of which one at least has to be named.
    rules: tuple[str, ...]
    seeds: tuple[int, ...]
    #: A told story that sees it, where no random world can: two owners, say.
    story: str
    hunks: tuple[Hunk, ...]

    def __str__(self) -> str:
        return self.name


def defects() -> list[Defect]:
    """All of them, by name."""
    return [read(path) for path in sorted(PATCHES.glob("*.patch"))]


def read(path: Path) -> Defect:
    """One patch: words on it, `caught by:` and `seeds:`, then hunks as in a unified diff, without line numbers."""
    head, _, body = path.read_text(encoding="utf-8").partition("\n--- ")
    fields = {"caught by": "", "seeds": "", "story": ""}
    what: list[str] = []
    for line in head.splitlines():
        name, colon, value = line.partition(":")
        if colon and name in fields:
            fields[name] = value.strip()
        else:
            what.append(line)
    hunks: list[Hunk] = []
    file = ""
    for line in f"--- {body}".splitlines():
        if line.startswith("--- "):
            file = line.removeprefix("--- ").strip()
        elif line.startswith("@@"):
            hunks.append(Hunk(file, "", ""))
        elif hunks and not line.startswith("+++ "):
            last = hunks[-1]
            text = line[1:] + "\n"
            before = last.before + (text if line[:1] in (" ", "-", "") else "")
            after = last.after + (text if line[:1] in (" ", "+", "") else "")
            hunks[-1] = Hunk(last.file, before, after)
    return Defect(
        path.stem,
        " ".join(what).strip(),
        tuple(fields["caught by"].split()),
        tuple(int(seed) for seed in fields["seeds"].split()),
        fields["story"],
        tuple(hunks),
    )


def planted(defect: Defect, folder: Path) -> None:
    """A copy of the product and of the simulation in `folder`, the defect in it. Raises: PatchFails."""
    for name in COPIED:
        copytree(ROOT / name, folder / name, ignore=ignore_patterns("fixtures", "real_peers"))
    if not defect.hunks:
        raise PatchFails(f"{defect}: there is no hunk in it")
    for hunk in defect.hunks:
        path = folder / hunk.file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if text.count(hunk.before) != 1:
            found = f"its text stands {text.count(hunk.before)} times in {hunk.file}"
            raise PatchFails(f"{defect}: {found}:\n{hunk.before}")
        path.write_text(text.replace(hunk.before, hunk.after), encoding="utf-8")


def names_of(defect: Defect, seeds: Sequence[int]) -> dict[int, set[str]]:
    """The rules that each of these seeds' worlds names, told in a process of its own. Raises: PatchFails."""
    with in_memory() as folder:
        planted(defect, folder)
        script = (
            "import pathlib, sys, reconcile\n"
            "assert pathlib.Path(reconcile.__file__).is_relative_to(pathlib.Path.cwd()), reconcile.__file__\n"
            "from tests.simulation.histories.told import told\n"
            "for seed in map(int, sys.argv[1:]):\n"
            "    print(seed, flush=True)\n"
            "    for words in told(pathlib.Path('worlds'), seed).violations:\n"
            "        print(seed, words.partition(':')[0].partition(' ')[0], flush=True)\n"
        )
        (folder / "worlds").mkdir()
        argv = [sys.executable, "-c", script, *map(str, seeds)]
        try:
            done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
            printed, fault = done.stdout, done.stderr if done.returncode else ""
        except subprocess.TimeoutExpired as late:
            printed = late.stdout.decode() if isinstance(late.stdout, bytes) else (late.stdout or "")
            fault = ""
    if fault and not printed:
        raise PatchFails(f"{defect}: what it makes does not run:\n{fault[-2000:]}")
    found: dict[int, set[str]] = {}
    for line in printed.splitlines():
        seed, _, name = line.partition(" ")
        found.setdefault(int(seed), set()).update({name} if name else ())
    return found


def story_fails(defect: Defect) -> bool:
    """Whether a test of its told story fails with the defect in it. Raises: PatchFails, also where none is run."""
    with in_memory() as folder:
        planted(defect, folder)
        for name in ("pyproject.toml",):
            copyfile(ROOT / name, folder / name)
        argv = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *defect.story.split()]
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode not in (0, 1):
        raise PatchFails(f"{defect}: its story does not run:\n{done.stdout[-2000:]}")
    return done.returncode == 1


def is_caught(defect: Defect, names: set[str]) -> bool:
    """Whether one of the rules was named that have to see it."""
    return bool(names & set(defect.rules)) or ("any" in defect.rules and bool(names))


def first_caught(defect: Defect, seeds: int) -> dict[int, set[str]]:
    """The rules named by the first few seeds among which one catches it."""
    found: dict[int, set[str]] = {}
    for first in range(0, seeds, 4):
        found = names_of(defect, range(first, min(first + 4, seeds)))
        if any(is_caught(defect, names) for names in found.values()):
            break
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Hold each defect against its seeds, or find seeds for some."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.planted", description=__doc__.partition("\n")[0])
    parser.add_argument("--find", action="append", default=[], help="try seeds for this defect; `all` for each")
    parser.add_argument("--seeds", type=int, default=40, help="how many are tried")
    given = parser.parse_args(argv)
    survived = 0
    for defect in defects():
        finds = "all" in given.find or defect.name in given.find
        if given.find and not finds:
            continue
        try:
            if defect.story:
                is_seen = story_fails(defect)
                survived += not is_seen
                print(f"{defect.name:<40} {f'caught by {defect.story}' if is_seen else 'SURVIVED'}", flush=True)
                continue
            found = first_caught(defect, given.seeds) if finds else names_of(defect, defect.seeds)
        except PatchFails as fault:
            print(f"{fault}")
            survived += 1
            continue
        caught = {seed: sorted(names) for seed, names in found.items() if is_caught(defect, names)}
        others = sorted(set().union(*found.values()) - set(defect.rules)) if found else []
        survived += not caught
        print(f"{defect.name:<40} {f'caught by {caught}' if caught else 'SURVIVED'} (also named: {others})", flush=True)
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
