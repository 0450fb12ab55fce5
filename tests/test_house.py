"""The house plan, checked instead of remembered: who may start tasks, what a package's door says, how large a room is.

import-linter holds the arrows and ruff the banned calls; what neither can see is looked for here, in the syntax trees.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOUSES = ("daemon", "handlers", "reconcile")
MODULES = sorted(path for house in HOUSES for path in (ROOT / house).rglob("*.py"))
#: The one room with real tasks and threads.
RUNTIME = ROOT / "daemon" / "runtime.py"
#: Methods that start a task or a thread behind the supervisor's back; ruff sees functions, not methods.
STARTERS = {"create_task", "run_in_executor", "ensure_future", "call_soon_threadsafe", "start_new_thread"}
#: Rooms past 400 lines, each with its reason. An entry that is no longer needed fails the test.
#: Rooms that hold one subject although they are large, each with its reason.
LARGE: dict[str, str] = {}
MAX_LINES = 400


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def calls(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Each call of a method, as (line, method)."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.lineno, node.func.attr


@pytest.mark.parametrize("path", [path for path in MODULES if path != RUNTIME], ids=named)
def test_nobody_but_the_supervisor_starts_tasks_and_threads(path: Path) -> None:
    """Work that hides from the supervisor hides from the simulation, and its errors from the log."""
    module = tree(path)
    assert [(line, name) for line, name in calls(module) if name in STARTERS] == []
    imported = {alias.name for node in ast.walk(module) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(module) if isinstance(node, ast.ImportFrom)}
    assert imported & {"threading", "concurrent.futures", "multiprocessing", "_thread"} == set()
    groups = [node for node in ast.walk(module) if isinstance(node, ast.Attribute) and node.attr == "TaskGroup"]
    assert groups == []


def test_the_net_catches_what_it_is_for() -> None:
    source = "async def f(loop, tg):\n    loop.create_task(x())\n    tg.create_task(y())\n    loop.run_in_executor(z)\n"
    assert [name for _, name in calls(ast.parse(source)) if name in STARTERS] == [
        "create_task",
        "create_task",
        "run_in_executor",
    ]


@pytest.mark.parametrize("path", [path for path in MODULES if path.name == "__init__.py"], ids=named)
def test_a_packages_door_says_what_belongs_behind_it_and_nothing_else(path: Path) -> None:
    module = tree(path)
    assert ast.get_docstring(module)
    if named(path) != "daemon/cli/__init__.py":  # the console script's entry
        assert len(module.body) == 1


@pytest.mark.parametrize("house", HOUSES)
def test_every_folder_with_modules_is_a_package(house: str) -> None:
    folders = {path.parent for path in MODULES if path.is_relative_to(ROOT / house)}
    assert {named(folder) for folder in folders if not (folder / "__init__.py").exists()} == set()


def test_every_folder_of_tests_is_a_package() -> None:
    """Without the top one `import reconcile` may find `tests/reconcile`."""
    folders = {path.parent for path in (ROOT / "tests").rglob("*.py")}
    assert {named(folder) for folder in folders if not (folder / "__init__.py").exists()} == set()


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_every_module_says_what_lives_in_it(path: Path) -> None:
    assert ast.get_docstring(tree(path))


def test_no_room_is_a_lumber_room() -> None:
    names = {path.stem for path in MODULES} | {path.parent.name for path in MODULES}
    assert names & {"utils", "util", "common", "helpers", "helper", "misc", "lib", "core", "base", "shared"} == set()


def test_no_room_is_too_large() -> None:
    sizes = {named(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    too_large = {name: size for name, size in sizes.items() if size > MAX_LINES}
    assert {name: size for name, size in too_large.items() if name not in LARGE} == {}
    assert set(LARGE) <= set(too_large), "an entry of the list has become small"


def test_nine_functions_in_ten_are_under_forty_lines() -> None:
    lengths = [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for path in MODULES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert sum(length < 40 for length in lengths) / len(lengths) > 0.9
    assert max(lengths) < 120


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_a_broad_except_says_why_on_its_line(path: Path) -> None:
    """Only the rims catch everything, and each says so."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"{named(path)}:{node.lineno} catches everything without a name"
            if isinstance(node.type, ast.Name) and node.type.id == "Exception":
                assert "#" in lines[node.lineno - 1], f"{named(path)}:{node.lineno}"


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_no_comment_is_a_promise_to_come_back(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not [word for word in ("TODO", "FIXME", "XXX", "HACK") if word in text]


def test_the_arrows_run_down_only() -> None:
    ended = subprocess.run(
        [Path(sys.executable).parent / "lint-imports"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
