"""A request as it is declared: `GET /v1/jobs/{job_id}?full=1`. What a placeholder stands for cannot leave its place.

Each value is percent-encoded, slashes, dots that would climb and control characters too, so that a job id of a
stranger's making is one path segment, or a part of one query value, whatever it holds (S35, S44).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, quote

from reconcile.errors import DeclarationInvalid

_REQUEST: Final = re.compile(r"([A-Z]+) (/[^\s?#]*)(?:\?([^\s#]*))?")
#: What a path is made of beside placeholders (RFC 3986, 3.3).
_PATH: Final = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/]|%[0-9A-Fa-f]{2})*")
_PLACEHOLDER: Final = re.compile(r"\{([a-z_]+)\}")
#: What is never encoded (RFC 3986, 2.3).
_UNRESERVED: Final = re.compile(r"[A-Za-z0-9\-._~]*")
_DOTS: Final = re.compile(r"(?:\.|%2[eE]){1,2}")


@dataclass(frozen=True, slots=True)
class Template:
    """A method, a path below the base URL and a query, with placeholders in the last two."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()

    @property
    def placeholders(self) -> frozenset[str]:
        """What it has to be filled with."""
        return frozenset(_PLACEHOLDER.findall(self.path)) | {
            name for _, value in self.query for name in _PLACEHOLDER.findall(value)
        }

    def path_for(self, values: Mapping[str, str]) -> str:
        """The path, each value one segment of it or a part of one, and nothing more."""
        return "/".join([_filled(segment, values) for segment in self.path.split("/")]).removeprefix("/")

    def query_for(self, values: Mapping[str, str]) -> dict[str, str]:
        """The query's values; whoever sends them encodes them."""
        return {name: _PLACEHOLDER.sub(lambda found: values[found[1]], value) for name, value in self.query}


def read_template(text: str, *, methods: tuple[str, ...], known: frozenset[str], needed: str | None = None) -> Template:
    """The template that `text` spells. `needed`: the placeholder without which it would ask about no job in particular.

    Raises: DeclarationInvalid, which says what is wrong with it.
    """
    match = _REQUEST.fullmatch(text)
    if match is None:
        raise DeclarationInvalid('not METHOD and a path, such as "GET /v1/jobs/{job_id}"')
    method, path, query = match[1], match[2], match[3]
    if method not in methods:
        raise DeclarationInvalid(f"the method {method}, where {' or '.join(methods)} is meant")
    bare = _PLACEHOLDER.sub("", path)
    if not _PATH.fullmatch(bare):
        raise DeclarationInvalid("a character that no path has; braces stand around placeholders only")
    if "//" in path or any(_DOTS.fullmatch(segment) for segment in path.split("/")):
        raise DeclarationInvalid("a path with an empty segment, or one of dots")
    template = Template(method, path, _query(query))
    for name in sorted(template.placeholders - known):
        raise DeclarationInvalid(f"the unknown placeholder {{{name}}}; known here: {_listed(known)}")
    if needed is not None and needed not in template.placeholders:
        raise DeclarationInvalid(f"no {{{needed}}} in it: every job would be asked about alike")
    return template


def _query(text: str | None) -> tuple[tuple[str, str], ...]:
    if text is None:
        return ()
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True, errors="strict")
    except ValueError as fault:
        raise DeclarationInvalid("a query that is not NAME=VALUE, joined by &") from fault
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise DeclarationInvalid("a query that names one thing twice")
    for name, value in pairs:
        if set("{}") & set(name + _PLACEHOLDER.sub("", value)):
            raise DeclarationInvalid("a brace that stands around no placeholder")
    return tuple(pairs)


def _listed(known: frozenset[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(known)) or "none"


def _filled(segment: str, values: Mapping[str, str]) -> str:
    """A segment with its values. None climbs, whatever it was filled with."""
    if "{" not in segment:
        return segment
    segment = _PLACEHOLDER.sub(lambda found: _quoted(values[found[1]]), segment)
    return segment.replace(".", "%2E") if segment in (".", "..") else segment


def _quoted(value: str) -> str:
    """Nearly all ids hold nothing to encode: to see that costs a fifth of encoding them (measured)."""
    return value if _UNRESERVED.fullmatch(value) else quote(value, safe="")
