"""Recorded calls of `decide`, read back as today's values: strictly, so that nothing recorded is lost in silence.

A field that today's class does not know, a value of another type and a field that is missing are errors. What was held
in another way when a set was recorded is put in today's words in `_in_todays_words`, one line a change.
"""

import dataclasses
import json
import types
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final, Literal, NewType, Union, get_args, get_origin, get_type_hints

from reconcile.contract import Contract
from reconcile.decide import decide
from reconcile.evidence import Evidence
from reconcile.model import Change, Operation
from reconcile.registry import KINDS, provider_for
from reconcile.schedule import Pace

FOLDER: Final = Path(__file__).parent.parent / "fixtures" / "histories"
Moves = list[tuple[str, str | None, str | None, str]]
Json = dict[str, Any]
#: What a recorded call may hold.
_CALL: Final = {"operation", "contract", "type", "evidence", "now", "draw", "cause", "pace", "entries", "refused"}
EVIDENCE: Final[Mapping[str, type[Any]]] = {kind.__name__: kind for kind in get_args(Evidence)}


class Unknown(Exception):
    """Something was recorded that today's classes have no place for."""


@dataclass(frozen=True, slots=True)
class Call:
    """One recorded call, and what came of it."""

    number: int
    operation: Operation
    contract: Contract
    evidence: Evidence
    given: Mapping[str, Any]
    moves: Moves
    is_refused: bool

    def again(self) -> Change:
        """The same call of today's `decide`."""
        return decide(self.operation, self.contract, self.evidence, **self.given)

    def __str__(self) -> str:
        return f"{self.operation.state} x {type(self.evidence).__name__} ({self.contract.kind}, call {self.number})"


def read(name: str) -> list[Call]:
    """A recorded set. Raises: Unknown."""
    document = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    contracts = [_contract(recorded) for recorded in document["contracts"]]
    operations = [decode(Operation, recorded) for recorded in document["operations"]]
    return [_call(number, recorded, contracts, operations) for number, recorded in enumerate(document["calls"])]


def moves_of(change: Change) -> Moves:
    """What a change does to the history, without its words."""
    return [(entry.kind, entry.from_state, entry.to_state, entry.cause) for entry in change.entries]


def _call(number: int, recorded: Json, contracts: list[Contract], operations: list[Operation]) -> Call:
    recorded = _in_todays_words(recorded)
    if strange := recorded.keys() - _CALL:
        raise Unknown(f"call {number}: {strange}")
    of = EVIDENCE.get(recorded["type"])
    if of is None:
        raise Unknown(f"call {number}: no evidence is called {recorded['type']} any more")
    given = {name: recorded[name] for name in ("now", "draw", "cause")}
    if "pace" in recorded:
        given["pace"] = Pace(recorded["pace"])
    return Call(
        number,
        operations[recorded["operation"]],
        contracts[recorded["contract"]],
        decode(of, recorded["evidence"]),
        given,
        [(kind, from_state, to_state, cause) for kind, from_state, to_state, cause in recorded["entries"]],
        recorded["refused"],
    )


def _in_todays_words(recorded: Json) -> Json:
    recorded = dict(recorded)
    if "sweeping" in recorded:  # schema 2: a flag; no list was ever swept
        recorded["pace"] = Pace.SWEPT if recorded.pop("sweeping") else Pace.POLLED
    announced = recorded["evidence"].get("announced")
    if isinstance(announced, dict):  # schema 2: the verdict; now the word, which is classified anew
        recorded["evidence"] = {**recorded["evidence"], "announced": announced["word"]}
    return recorded


def _contract(recorded: Json) -> Contract:
    """A known kind by today's contract, with what was set otherwise; any other as it was recorded."""
    if "whole" in recorded:
        whole: Contract = decode(Contract, recorded["whole"])
        return whole
    assert recorded["kind"] in KINDS, recorded["kind"]
    hints = _hints(Contract)
    return replace(
        provider_for(recorded["kind"]).contract,
        **{name: _value(hints[name], value, f"Contract.{name}") for name, value in recorded["with"].items()},
    )


# ---- JSON to values, by the classes' own type hints ----


_HINTS: Final[dict[type[Any], Mapping[str, Any]]] = {}


def _hints(kind: type[Any]) -> Mapping[str, Any]:
    if kind not in _HINTS:
        _HINTS[kind] = get_type_hints(kind)
    return _HINTS[kind]


def decode(kind: type[Any], document: Any) -> Any:
    """A dataclass of today from what was recorded of it. Raises: Unknown."""
    if not isinstance(document, dict):
        raise Unknown(f"{kind.__name__} of {document!r}")
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if strange := document.keys() - fields.keys():
        raise Unknown(f"{kind.__name__} has no {sorted(strange)}")
    needed = {
        name
        for name, field in fields.items()
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    if missing := needed - document.keys():
        raise Unknown(f"{kind.__name__} needs {sorted(missing)}")
    hints = _hints(kind)
    return kind(**{name: _value(hints[name], held, f"{kind.__name__}.{name}") for name, held in document.items()})


def _value(hint: Any, held: Any, place: str) -> Any:
    while isinstance(hint, NewType):
        hint = hint.__supertype__
    if hint is Any:
        return held
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return decode(hint, held)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(held)
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _one_of(inner, held, place)
    if origin is Literal and held in inner:
        return held
    if origin is tuple and isinstance(held, list):
        return tuple(_value(inner[0], each, place) for each in held)
    if origin is frozenset and isinstance(held, list):
        return frozenset(_value(inner[0], each, place) for each in held)
    if isinstance(held, dict) and (origin or hint) in (Mapping, dict):
        return {key: _value(inner[1] if inner else Any, each, place) for key, each in held.items()}
    if isinstance(hint, type) and (type(held) is hint or (hint is float and type(held) is int)):
        return held
    raise Unknown(f"{place} does not take {held!r}")


def _one_of(kinds: tuple[Any, ...], held: Any, place: str) -> Any:
    if held is None and types.NoneType in kinds:
        return None
    faults = []
    for kind in kinds:
        try:
            return _value(kind, held, place)
        except (Unknown, ValueError) as fault:
            faults.append(str(fault))
    raise Unknown(f"{place} does not take {held!r}: {faults}")
