"""A client's JSON Schema (2020-12) for the bodies of items: which are taken, and whether a body keeps one. Pure.

A schema comes from a client and is applied to text that a model wrote, item after item. So nothing is fetched, every
reference stays inside, and each check has a budget of steps: what cannot be shown within it was not kept. Keywords
whose cost the library hides are refused at the start, and so are patterns that `re` might never finish with.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final
from urllib.parse import unquote

import referencing
from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend

from reconcile.errors import RequestInvalid, Unreadable
from reconcile.fingerprint import canonical_json
from reconcile.given import pointer
from reconcile.model import JsonObject
from reconcile.plain_pattern import PlainPattern
from reconcile.read_json import JsonValue
from reconcile.unspelled import unspelled

#: Bytes of a schema as canonical JSON. 32 KiB: arbitrary; looking through one took 0.1 s, and it holds up the loop.
MAX_SCHEMA_BYTES: Final = 32_768
#: Levels of nesting in a schema. 32: arbitrary; 40 were tried, the library takes about four frames for each.
MAX_SCHEMA_DEPTH: Final = 32
#: Schemas in a schema. 1,000: arbitrary; the metaschema takes up to 0.2 ms for each.
MAX_SCHEMAS: Final = 1_000
#: Words in a `type`: there are seven types.
MAX_TYPES: Final = 7
#: Steps for one body. 300,000: arbitrary; 0.5 to 1.2 s in ninety bad cases on a busy machine, and a list of 100,000
#: numbers that have a type. A step is one keyword, or one value or schema that a keyword turns to.
MAX_STEPS: Final = 300_000
#: Characters that `re` tries in the time of one step, measured.
TRIES_A_STEP: Final = 100
#: Values in a keyword that are gone through, compared or spelled in the time of one step, measured.
VALUES_A_STEP: Final = 8
#: Characters of a text that are spelled in the time of one value, measured.
CHARACTERS_A_VALUE: Final = 10
#: Steps for following a reference, and its characters that are decoded and followed in one more, measured.
REFERENCE_STEPS: Final = 4
REFERENCE_CHARACTERS_A_STEP: Final = 8
#: Characters of a pattern whose tries are counted in the time of one step, measured.
PATTERN_CHARACTERS_A_STEP: Final = 16
#: Steps for the remainder of a division of floats, which is done in fractions, measured.
FRACTION_STEPS: Final = 3
#: Schemas that one value may be held to on its own, references followed. 1,000: arbitrary; real ones stay below 20.
MAX_AT_ONCE: Final = 1_000
#: References and combinations in a row. 64: arbitrary; the library takes some eight frames for each.
MAX_CHAIN: Final = 64
#: Characters of a reason that are kept. 200: arbitrary.
MAX_REASON: Final = 200

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

#: Formats are annotations; references and patterns are looked at here.
_NO_FORMATS: Final = FormatChecker(formats=())

#: Where further schemas stand, for the metaschema too: as the value, in a list, in an object by name.
_AS_VALUE: Final = frozenset(
    {
        *("not", "if", "then", "else", "items", "contains", "additionalProperties", "propertyNames", "contentSchema"),
        *("unevaluatedItems", "unevaluatedProperties"),
    }
)
_IN_LIST: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_BY_NAME: Final = frozenset(
    {"properties", "$defs", "definitions", "dependentSchemas", "patternProperties", "dependencies"}
)
#: Those of them that look at the very value that the schema around them looks at.
_SAME_VALUE: Final = ("not", "if", "then", "else")
_SAME_VALUE_LISTS: Final = ("allOf", "anyOf", "oneOf")
_REFUSED: Final[Mapping[str, str]] = {
    "patternProperties": "is not taken: its cost cannot be bounded; name the properties, or use propertyNames",
    "unevaluatedProperties": "is not taken: its cost cannot be bounded; use additionalProperties",
    "unevaluatedItems": "is not taken: its cost cannot be bounded; use items",
    "$dynamicRef": "is not taken; use $ref",
    "$dynamicAnchor": "is not taken; use $defs and $ref",
    "$anchor": "is not taken; name the place by its pointer: #/$defs/…",
    "$vocabulary": "is not taken",
}


class TooCostly(Exception):
    """The budget of steps is spent."""


def check(schema: JsonValue, at: str) -> JsonObject:
    """The schema, if it is one that is taken. Raises: RequestInvalid, with the pointer below `at`."""
    if not isinstance(schema, dict):
        raise RequestInvalid(at, "must be an object: a JSON Schema, draft 2020-12")
    _check_size(schema, at)
    if schema.get("$schema", DIALECT) not in (DIALECT, f"{DIALECT}#"):
        raise RequestInvalid(f"{at}/$schema", f"must be {DIALECT}, or be left out")
    places = dict(islice(_places(schema, ""), MAX_SCHEMAS + 1))
    if len(places) > MAX_SCHEMAS:
        raise RequestInvalid(at, f"holds more than {MAX_SCHEMAS} schemas")
    for place, inner in places.items():
        if isinstance(inner, dict):
            _check_words(inner, f"{at}{place}")
    try:
        Draft202012Validator.check_schema(schema, format_checker=_NO_FORMATS)
    except SchemaError as error:
        place = _joined(at, error.absolute_path)
        raise RequestInvalid(
            place, f"is no valid JSON Schema: it breaks {error.validator!r} of the metaschema"
        ) from error
    except RecursionError as error:
        raise RequestInvalid(at, "is nested too deep") from error
    _check_places(places, at)
    return schema


def _check_size(schema: JsonObject, at: str) -> None:
    try:
        size = len(canonical_json(schema))
    except Unreadable as error:
        raise RequestInvalid(at, error.reason) from error
    if size > MAX_SCHEMA_BYTES:
        raise RequestInvalid(at, f"has {size} bytes; at most {MAX_SCHEMA_BYTES} are taken", status=413)
    if _depth(schema) > MAX_SCHEMA_DEPTH:
        raise RequestInvalid(at, f"is nested deeper than {MAX_SCHEMA_DEPTH} levels")


def _depth(value: JsonValue) -> int:
    level, depth = [value], 0
    while level := [inner for outer in level for inner in _inner(outer)]:
        depth += 1
    return depth


def _inner(value: JsonValue) -> list[JsonValue]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _check_words(schema: JsonObject, at: str) -> None:
    """Lists that must not hold a thing twice hold words only: the metaschema would compare each pair of others."""
    kind, demands = schema.get("type"), schema.get("dependentRequired")
    if isinstance(kind, list) and len(kind) > MAX_TYPES:
        raise RequestInvalid(f"{at}/type", f"has more than {MAX_TYPES} entries")
    lists = {f"{at}/type": kind, f"{at}/required": schema.get("required")}
    if isinstance(demands, dict):
        lists |= {pointer(f"{at}/dependentRequired", name): words for name, words in demands.items()}
    for place, words in lists.items():
        for number, word in enumerate(words if isinstance(words, list) else ()):
            if not isinstance(word, str):
                raise RequestInvalid(f"{place}/{number}", "must be a string")


def _check_places(places: Mapping[str, Any], at: str) -> None:
    """Every schema in the schema: no keyword that is refused, no reference that leaves or leads to no schema."""
    for place, inner in places.items():
        if not isinstance(inner, dict):
            continue
        for word, why in _REFUSED.items():
            if word in inner:
                raise RequestInvalid(f"{at}{place}/{word}", why)
        if place and ("$id" in inner or "$schema" in inner):
            word = "$id" if "$id" in inner else "$schema"
            raise RequestInvalid(f"{at}{place}/{word}", "may only stand at the root")
        if "pattern" in inner:
            _check_pattern(inner["pattern"], f"{at}{place}/pattern")
        if "$ref" in inner:
            _check_reference(inner["$ref"], places, f"{at}{place}/$ref")
    known: dict[str, int] = {}
    for place in places:
        if _at_once(place, places, known, MAX_CHAIN) > MAX_AT_ONCE:
            raise RequestInvalid(
                f"{at}{place}", f"holds one value to itself again, or to more than {MAX_AT_ONCE} schemas"
            )


def _at_once(place: str, places: Mapping[str, Any], known: dict[str, int], chain: int) -> int:
    """How many schemas one value is held to here; beyond counting where a chain has no end, or a long one."""
    if chain == 0:
        return MAX_AT_ONCE + 1
    if place not in known:
        weights = (_at_once(next_place, places, known, chain - 1) for next_place in _on_same_value(place, places))
        known[place] = min(1 + sum(weights), MAX_AT_ONCE + 1)
    return known[place]


def _on_same_value(place: str, places: Mapping[str, Any]) -> list[str]:
    schema = places[place]
    if not isinstance(schema, dict):
        return []
    found = [f"{place}/{word}" for word in _SAME_VALUE if word in schema]
    found += [f"{place}/{word}/{n}" for word in _SAME_VALUE_LISTS for n in range(len(schema.get(word, ())))]
    found += [pointer(f"{place}/dependentSchemas", name) for name in schema.get("dependentSchemas", ())]
    return [*found, unquote(schema["$ref"][1:])] if "$ref" in schema else found


def _places(schema: Any, place: str) -> Iterator[tuple[str, Any]]:
    yield place, schema
    for word, value in schema.items() if isinstance(schema, dict) else ():
        if word in _AS_VALUE:
            yield from _places(value, f"{place}/{word}")
        elif word in _IN_LIST and isinstance(value, list):
            for number, inner in enumerate(value):
                yield from _places(inner, f"{place}/{word}/{number}")
        elif word in _BY_NAME and isinstance(value, dict):
            for name, inner in value.items():
                yield from _places(inner, pointer(f"{place}/{word}", name))


def _check_reference(reference: str, places: Mapping[str, Any], at: str) -> None:
    if not reference.startswith("#"):
        raise RequestInvalid(at, "must stay inside the schema (#/$defs/…): nothing is fetched")
    if unquote(reference[1:]) not in places:
        raise RequestInvalid(at, "leads to no schema in this one")


def _check_pattern(pattern: str, at: str) -> None:
    try:
        PlainPattern(pattern)
    except Unreadable as error:
        raise RequestInvalid(at, error.reason) from error


def _joined(at: str, path: Any) -> str:
    for step in path:
        at = pointer(at, str(step))
    return at


class Schema:
    """A schema that passed `check`, made ready for many bodies. Not for two threads at once."""

    def __init__(self, schema: JsonObject) -> None:
        self._left = 0
        self._patterns: dict[str, PlainPattern] = {}
        self._weights: dict[int, int] = {}
        keywords = {word: self._metered(word, rule) for word, rule in Draft202012Validator.VALIDATORS.items()}
        keywords["pattern"] = self._metered("pattern", self._pattern)
        keywords["uniqueItems"] = self._metered("uniqueItems", self._unique)
        made = extend(Draft202012Validator, keywords)  # type: ignore[no-untyped-call] # its stubs leave a parameter out
        # Where a reference leads to a `$schema`, the library takes its own validator for that, which has no budget.
        plain = {word: value for word, value in schema.items() if word != "$schema"}
        # A registry of its own, empty and without a way to fetch: the library's own still would.
        self._validator: Validator = made(plain, registry=referencing.Registry())

    def broken_by(self, body: JsonValue) -> str | None:
        """None where the body keeps the schema, else why not: the schema's own place, never the body's words."""
        self._left = MAX_STEPS
        try:
            error = next(iter(self._validator.iter_errors(unspelled(body))), None)
        except (TooCostly, RecursionError):
            return "too costly to check"
        if error is None:
            return None
        place = _joined("", error.absolute_schema_path)
        return "".join(c if c.isprintable() else "?" for c in place[:MAX_REASON])

    def _spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise TooCostly

    def _metered(self, word: str, rule: Callable[..., Any]) -> Callable[..., Any]:
        turns = _TURNS.get(word)

        def metered(validator: Validator, value: Any, instance: Any, schema: Any) -> Any:
            weight = _weight(value, self._weights)
            self._spend(1 + weight // VALUES_A_STEP + (turns(value, instance) if turns else 0))
            return rule(validator, value, instance, schema)

        return metered

    def _pattern(self, _: Validator, text: str, instance: Any, __: Any) -> Iterator[ValidationError]:
        if not isinstance(instance, str):
            return
        if (pattern := self._patterns.get(text)) is None:
            pattern = self._patterns[text] = PlainPattern(text)
        self._spend(len(text) // PATTERN_CHARACTERS_A_STEP + pattern.tries(len(instance)) // TRIES_A_STEP)
        if not pattern.is_in(instance):
            yield ValidationError("does not match")

    def _unique(self, _: Validator, wanted: bool, instance: Any, __: Any) -> Iterator[ValidationError]:
        """In one pass; the library compares each pair."""
        if not wanted or not isinstance(instance, list):
            return
        self._spend(_weight(instance, {}))
        if len({canonical_json(_plain(one)) for one in instance}) < len(instance):
            yield ValidationError("holds the same value twice")


def _weight(value: Any, known: dict[int, int]) -> int:
    """How many values there are in one, itself too; long texts count for several. Known ones by what they are."""
    if isinstance(value, str):
        return 1 + len(value) // CHARACTERS_A_VALUE
    if not isinstance(value, list | dict):
        return 1
    if (weight := known.get(id(value))) is None:
        inner = value if isinstance(value, list) else (*value, *value.values())
        weight = known[id(value)] = 1 + sum(_weight(one, known) for one in inner)
    return weight


def _each(_: Any, instance: Any) -> int:
    return len(instance) if isinstance(instance, list | dict) else 0


def _those_named(value: Any, instance: Any) -> int:
    return min(len(value), _each(value, instance))


def _listed(value: Any, _: Any) -> int:
    return len(value)


def _absent(value: Any, instance: Any) -> int:
    return sum(name not in instance for name in value) if isinstance(instance, dict) else 0


def _demanded(value: Any, instance: Any) -> int:
    return (
        sum(_absent(names, instance) for name, names in value.items() if name in instance)
        if isinstance(instance, dict)
        else 0
    )


def _once(_: Any, __: Any) -> int:
    return 1


def _twice(_: Any, __: Any) -> int:
    return 2


def _followed(reference: str, _: Any) -> int:
    return REFERENCE_STEPS + len(reference) // REFERENCE_CHARACTERS_A_STEP


def _fraction(divisor: Any, instance: Any) -> int:
    return FRACTION_STEPS if isinstance(divisor, float) or isinstance(instance, float) else 0


#: How often a keyword turns to a value or schema, or finds it wrong, in steps: (the keyword's value, the instance).
_TURNS: Final[Mapping[str, Callable[[Any, Any], int]]] = {
    "items": _each,
    "contains": _each,
    "propertyNames": _each,
    "additionalProperties": _each,
    "prefixItems": _those_named,
    "properties": _those_named,
    "dependentSchemas": _those_named,
    "allOf": _listed,
    "anyOf": _listed,
    "oneOf": _listed,
    "required": _absent,
    "dependentRequired": _demanded,
    "not": _once,
    "if": _twice,
    "$ref": _followed,
    "multipleOf": _fraction,
}


def _plain(value: JsonValue) -> JsonValue:
    """1.0 as 1: for JSON Schema they are one value."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_plain(one) for one in value]
        case dict():
            return {name: _plain(one) for name, one in value.items()}
    return value
