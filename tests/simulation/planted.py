"""Planted defects: each a small patch of the product, put into a copy of it, that some rule has to name.

`python -m tests.simulation.planted [NAME ...]` tells for each what catches it, and what that says; `--find` tries other
seeds, `--keep FOLDER` leaves a copy with the defect in it. The product knows nothing of them. A patch is found by its
text and not by its lines, so that it outlives what happens around it; one whose text is not there once, and once only,
fails the run.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile, copytree, ignore_patterns
from typing import Final

from tests.simulation.run import at_least, in_memory

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
PATCHES: Final = HERE / "defects"
#: What a world needs of this tree.
COPIED: Final = ("reconcile", "handlers", "daemon", "tests")
#: What a rule is called; a world may also end in an exception of its own.
_RULE: Final = re.compile(r"N[0-9]+")
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


def violations(defect: Defect, seeds: Sequence[int]) -> dict[int, list[str]]:
    """What the worlds of these seeds break, told in a process of its own. Raises: PatchFails, where nothing runs."""
    with in_memory() as folder:
        planted(defect, folder)
        script = (
            "import json, pathlib, sys, reconcile\n"
            "assert pathlib.Path(reconcile.__file__).is_relative_to(pathlib.Path.cwd()), reconcile.__file__\n"
            "from tests.simulation.histories.told import told\n"
            "for seed in map(int, sys.argv[1:]):\n"
            "    print(json.dumps([seed, told(pathlib.Path('worlds'), seed).violations]), flush=True)\n"
        )
        (folder / "worlds").mkdir()
        argv = [sys.executable, "-c", script, *map(str, seeds)]
        try:
            done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
            printed, fault = done.stdout, done.stderr if done.returncode else ""
        except subprocess.TimeoutExpired as late:  # a defect may spin; the worlds before that are told
            printed, fault = late.stdout.decode() if isinstance(late.stdout, bytes) else (late.stdout or ""), ""
    if fault:
        raise PatchFails(f"{defect}: what it makes does not run:\n{fault[-2000:]}")
    return dict(json.loads(line) for line in printed.splitlines() if line.endswith("]"))


def names_of(defect: Defect, seeds: Sequence[int]) -> dict[int, set[str]]:
    """The rules that each of these seeds' worlds names. Raises: PatchFails."""
    return {
        seed: {words.partition(":")[0].partition(" ")[0] for words in found}
        for seed, found in violations(defect, seeds).items()
    }


def story_fails(defect: Defect) -> bool:
    """Whether an assertion of its told story fails. Raises: PatchFails, also where none is run."""
    with in_memory() as folder:
        planted(defect, folder)
        copyfile(ROOT / "pyproject.toml", folder / "pyproject.toml")
        argv = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *defect.story.split()]
        try:
            done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired as late:
            raise PatchFails(f"{defect}: its story takes more than {PATIENCE} s") from late
    if done.returncode not in (0, 1):
        raise PatchFails(f"{defect}: its story does not run:\n{done.stdout[-2000:]}")
    if done.returncode == 1 and not re.search(r"^E +(AssertionError|assert )", done.stdout, re.MULTILINE):
        raise PatchFails(f"{defect}: its story fails by no assertion of its own:\n{done.stdout[-2000:]}")
    return done.returncode == 1


def is_caught(defect: Defect, names: set[str]) -> bool:
    """Whether one of the rules was named that have to see it; a patch that only breaks the harness is not caught."""
    return bool(names & set(defect.rules)) or ("any" in defect.rules and any(_RULE.fullmatch(name) for name in names))


def main(argv: Sequence[str] | None = None) -> int:
    """Hold each defect against what should catch it, or try other seeds."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.planted", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these (default: all)")
    parser.add_argument("--find", action="store_true", help="try seeds from 0 on in place of those that it names")
    parser.add_argument("--seeds", type=at_least(1), default=40, help="how many are tried (default: 40)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave a copy of the product with the defect there")
    given = parser.parse_args(argv)
    known = {defect.name: defect for defect in defects()}
    if unknown := [name for name in given.names if name not in known]:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(known)}")
    chosen = [known[name] for name in given.names or known]
    if given.keep is not None:
        if len(chosen) != 1 or given.keep.exists():
            parser.error("--keep takes one NAME, and a folder that is not there yet")
        planted(chosen[0], given.keep)
        seed = next(iter(chosen[0].seeds), 0)
        print(f"cd {given.keep} && {sys.executable} -m tests.simulation.run --seed {seed}")
        return 0
    return 1 if sum(not _told(defect, finds=given.find, seeds=given.seeds) for defect in chosen) else 0


def _told(defect: Defect, *, finds: bool, seeds: int) -> bool:
    """Print what becomes of it; whether it is caught."""
    try:
        if defect.story:
            is_seen = story_fails(defect)
            print(f"{defect.name:<40} {f'caught by {defect.story}' if is_seen else 'SURVIVED'}", flush=True)
            return is_seen
        batches = [range(n, min(n + 4, seeds)) for n in range(0, seeds, 4)] if finds else [defect.seeds]
        others: set[str] = set()
        for batch in batches:
            for seed, found in violations(defect, batch).items():
                for words in found:
                    name = words.partition(":")[0].partition(" ")[0]
                    if is_caught(defect, {name}):
                        print(f"{defect.name:<40} caught by seed {seed}: {words}", flush=True)
                        return True
                    others.add(name)
    except PatchFails as fault:
        print(f"{fault}", flush=True)
        return False
    print(f"{defect.name:<40} SURVIVED {seeds if finds else len(defect.seeds)} seeds (they name {sorted(others)})")
    return False


if __name__ == "__main__":
    sys.exit(main())
