"""A plugin for pytest that notes what `decide` is asked and answers, one call of each sort, while any tests run.

    .venv/bin/python -m pytest -p tests.upgrade.recorder --hypothesis-seed=0 --record=FILE [--beside=FILE ...] TESTS

Against an old checkout the same, once this file, make.py and test_make.py were copied there. So it stands on nothing
but `reconcile.decide` and the registry, and knows of values only that they are dataclasses. One JSON document comes
out, sorted; a field that has its default is left out, as in a row of the file.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from reconcile import decide as deciding
from reconcile.registry import KINDS, provider_for

Record = dict[str, Any]
_NEXT = ",\n"
#: What of evidence makes two calls differ in sort; ids, times and texts do not.
_FACETS = (
    "word", "answer", "error_class", "counts", "is_final", "name", "last_read", "decision", "is_sure", "is_whole",
    "is_ours", "is_other_content", "is_repeatable", "by_lookup", "absence",
)  # fmt: skip


def encode(value: Any) -> Any:
    """A value as JSON holds it; of a dataclass what is not its default."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: (field, getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {name: encode(held) for name, (field, held) in fields.items() if not _is_default(field, held)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(encode(key)): encode(held) for key, held in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(encode(held) for held in value)
    if isinstance(value, list | tuple):
        return [encode(held) for held in value]
    assert value is None or isinstance(value, str | int | float | bool), value
    return value


def _is_default(field: "dataclasses.Field[Any]", held: Any) -> bool:
    if field.default is not dataclasses.MISSING:
        return bool(held == field.default)
    return field.default_factory is not dataclasses.MISSING and bool(held == field.default_factory())


def _contract(contract: Any) -> Record:
    """Of a kind that the registry knows, what was set otherwise; of any other kind, everything."""
    if contract.kind not in KINDS:
        return {"kind": contract.kind, "whole": encode(contract)}
    given = provider_for(contract.kind).contract
    own = {name: getattr(contract, name) for name in (field.name for field in dataclasses.fields(contract))}
    return {"kind": contract.kind, "with": {n: encode(v) for n, v in own.items() if v != getattr(given, n)}}


def _sort_of(record: Record, contract: Record) -> str:
    """What two calls share that are one sort: state, evidence and what came of it; of a real kind some details too."""
    op, evidence = record["operation"], record["evidence"]
    moves = [move[:3] for move in record["entries"]]
    sort = [contract["kind"], record["type"], op["state"], moves, record["refused"]]
    if "whole" in contract:
        return json.dumps(sort)
    seen = evidence.get("observation") or {}
    told = {name: {**seen, **evidence}[name] for name in _FACETS if name in seen or name in evidence}
    cancel = op.get("cancel") and op["cancel"].get("answer", "open")
    return json.dumps([*sort, told, "mark_at" in op["schedule"], cancel], sort_keys=True)


class Recorder:
    """The first call of each sort."""

    def __init__(self) -> None:
        self.found: dict[str, Record] = {}

    def around(self, decide: Callable[..., Any]) -> Callable[..., Any]:
        """`decide`, and a note of it."""

        def noting(op: Any, contract: Any, evidence: Any, **given: Any) -> Any:
            change = decide(op, contract, evidence, **given)
            self._note(op, contract, evidence, given, change)
            return change

        return noting

    def _note(self, op: Any, contract: Any, evidence: Any, given: Mapping[str, Any], change: Any) -> None:
        judged_by = _contract(contract)
        record: Record = {
            "operation": encode(op),
            "contract": judged_by,
            "type": type(evidence).__name__,
            "evidence": encode(evidence),
            **{name: encode(value) for name, value in given.items()},
            "entries": [encode((e.kind, e.from_state, e.to_state, e.cause)) for e in change.entries],
            "refused": change.refusal is not None,
        }
        self.found.setdefault(_sort_of(record, judged_by), record)

    def leave_out(self, path: Path) -> None:
        """Forget the sorts of which an earlier set holds a call."""
        document = json.loads(path.read_text(encoding="utf-8"))
        for call in document["calls"]:
            record = {**call, **{name: document[f"{name}s"][call[name]] for name in ("contract", "operation")}}
            self.found.pop(_sort_of(record, record["contract"]), None)

    def write(self, path: Path) -> None:
        """One document: the contracts, the operations, and the calls that name them by number; a line each."""
        tables: dict[str, list[str]] = {"contract": [], "operation": []}
        calls = []
        for sort in sorted(self.found):
            call = dict(self.found[sort])
            for name, table in tables.items():
                spelled = _line(call[name])
                if spelled not in table:
                    table.append(spelled)
                call[name] = table.index(spelled)
            calls.append(_line(call))
        parts = [f'"{name}s":[\n{_NEXT.join(rows)}\n]' for name, rows in (*tables.items(), ("call", calls))]
        path.write_text("{" + _NEXT.join(parts) + "}\n", encoding="utf-8")


def _line(value: Record) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


RECORDER = Recorder()
#: Here, when the plugin is loaded: before any module takes `decide` by its name.
deciding.decide = RECORDER.around(deciding.decide)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where the record goes, and which sets it stands beside."""
    parser.addoption("--record", type=Path, required=True)
    parser.addoption("--beside", type=Path, action="append", default=[])


def pytest_unconfigure(config: pytest.Config) -> None:
    """All tests are over."""
    for path in config.getoption("--beside"):
        RECORDER.leave_out(path)
    RECORDER.write(config.getoption("--record"))
