"""The suite itself: only its drivers know what lies under a store, so that another one needs no test of its own."""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
#: The place that opens stores, and this module, which has to spell what it looks for.
KNOWING = ("drivers.py", "test_alone.py")
MODULES = sorted(path for path in HERE.glob("*.py") if path.name not in KNOWING)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_no_module_names_a_database_or_a_file(module: Path) -> None:
    text = module.read_text(encoding="utf-8")
    found = re.findall(r"(?i)sqlite|\bSELECT\b|\bPRAGMA\b|tmp_path|pathlib|store\.ground\b|store\.aged", text)
    assert found == []
