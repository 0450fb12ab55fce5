"""What makes two starts the same start: the canonical form of a request and its SHA-256 (A4).

Key order and white space do not count; an input counts by its bytes, through their own digest.
"""

import hashlib
import json
from typing import Final

from reconcile.errors import Unreadable
from reconcile.read_json import JsonValue

#: Made once: `json.dumps` would make one for each value.
_spell: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def canonical_json(value: JsonValue) -> bytes:
    """The one spelling of `value`: keys sorted by code point, no spaces, UTF-8, numbers as Python writes them.

    1 and 1.0 stay apart, since a provider may tell them apart.

    Raises: Unreadable, for what `read_json` would not have let through (NaN, half a surrogate pair, endless nesting).
    """
    try:
        return _spell(value).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise Unreadable("a value that JSON cannot state") from error


def fingerprint(request: JsonValue, *, provider: str, kind: str, input_sha256: str | None) -> str:
    """SHA-256, hex, of all that decides what a start asks for.

    Raises: Unreadable, as `canonical_json`.
    """
    whole: JsonValue = {"provider": provider, "kind": kind, "request": request, "input": input_sha256}
    return hashlib.sha256(canonical_json(whole)).hexdigest()
