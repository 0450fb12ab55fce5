"""What is installed: three names that are nobody else's, a command that starts, and a wheel that is whole.

`daemon` is also the import name of another distribution; pip does not warn, the later install overwrites.
"""

import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NAMES = ("daemon", "handlers", "reconcile")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_no_other_distribution_owns_our_names(name: str) -> None:
    assert set(metadata.packages_distributions().get(name, [])) <= {"reconciled"}


def test_the_command_is_ours_and_starts() -> None:
    assert PROJECT["project"]["scripts"] == {"reconciled": "daemon.cli:main"}
    script = Path(sys.executable).parent / "reconciled"
    ended = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == f"reconciled {PROJECT['project']['version']}\n"


def test_the_module_starts_as_the_command_does() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "daemon", "--help"], capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
    )
    assert ended.returncode == 0
    assert ended.stdout.startswith("usage: reconciled ")


@pytest.mark.parametrize("name", NAMES)
def test_each_package_says_that_it_is_typed(name: str) -> None:
    assert (resources.files(name) / "py.typed").is_file()


def test_no_module_bears_a_name_of_the_other_daemon() -> None:
    """python-daemon's modules: either install would overwrite the other's."""
    taken = {"daemon.py", "pidfile.py", "runner.py", "_metadata.py"}
    assert {path.name for path in (ROOT / "daemon").iterdir()} & taken == set()


def test_the_floors_are_those_that_were_tried() -> None:
    """S48: aiohttp below 3.14.4 lacks what the security checklist relies on."""
    found = {line.partition(">=")[0]: line.partition(">=")[2] for line in PROJECT["project"]["dependencies"]}
    assert tuple(map(int, found["aiohttp"].split("."))) >= (3, 14, 4)
    assert all(found.values())


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_each_lock_has_hashes_and_names_no_index(lock: str) -> None:
    """S48."""
    text = (ROOT / lock).read_text(encoding="utf-8")
    assert "--index-url" not in text
    assert "--extra-index-url" not in text
    assert "--find-links" not in text
    joined = text.replace("\\\n", " ").splitlines()
    logical = [line for line in joined if line.strip() and not line.strip().startswith("#")]
    assert len(logical) > 5
    for line in logical:
        assert "==" in line, line
        assert "--hash=sha256:" in line, line


def test_the_lock_holds_every_dependency() -> None:
    def named(text: str) -> set[str]:
        return {line.partition("==")[0].strip().lower() for line in text.splitlines() if "==" in line}

    runtime = named((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    dev = named((ROOT / "requirements-dev.lock").read_text(encoding="utf-8"))
    needed = {line.partition(">=")[0].strip().lower() for line in PROJECT["project"]["dependencies"]}
    tools = {line.partition(">=")[0].strip().lower() for line in PROJECT["project"]["optional-dependencies"]["dev"]}
    assert needed <= runtime
    assert needed | tools <= dev
    assert runtime <= dev


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel as it would be published; built with what is installed, nothing is fetched."""
    pytest.importorskip("hatchling", reason="the build backend is not installed; nothing is fetched for a test")
    folder = tmp_path_factory.mktemp("wheel")
    ended = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
    )
    assert ended.returncode == 0, ended.stderr
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_the_migrations_the_types_and_the_unit(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    for source in (ROOT / "reconcile" / "store" / "migrations").glob("*.sql"):
        assert f"reconcile/store/migrations/{source.name}" in names
    for name in NAMES:
        assert f"{name}/py.typed" in names
    units = {name.rpartition("/")[2] for name in names if "share/reconciled/systemd/" in name}
    assert {path.name for path in (ROOT / "systemd").iterdir()} == units
    assert not [name for name in names if name.startswith("tests/") or name.endswith(".pyc")]


def test_the_wheel_holds_every_module(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    for package in NAMES:
        for path in (ROOT / package).rglob("*.py"):
            assert str(path.relative_to(ROOT)) in names
