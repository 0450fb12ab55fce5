"""Known secrets struck out of what is logged or kept (S38): as they stand and as base64, URL or JSON would carry them.

Only secrets that we were told can be found; a stranger's own are not guessed at.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote, quote_plus, urlsplit, urlunsplit

REDACTED: Final = "[redacted]"
#: Characters from which on a secret is struck out. 6: arbitrary; shorter ones would tear holes into ordinary words.
MIN_SECRET_LENGTH: Final = 6
#: An http(s) URL in a text of any kind, also with slashes and marks escaped as JSON may have them: scheme, userinfo,
#: host and path, and what follows them. A quote ends it with the backslash before it, so that JSON stays JSON.
_URL: Final = re.compile(
    rb"""(?i)(https?:(?:\\?/){2})"""
    rb"""(?:[^\s"<>\\/?\#@]*@)?"""
    rb"""((?:[^\s"<>\\?\#]|\\(?!\\{0,7}u00(?:3f|23))[^"])*)"""
    rb"""((?:[?\#]|\\{1,8}u00(?:3f|23))(?:[^\s"<>\\]|\\[^"])+)?"""
)
#: Bytes of which most texts lack some, rare ones first: rare letters of English as capitals, then as small ones.
_RARE: Final = b"+%QZXJKVWYGFBHPULMDCRNSTIOAE9876543210qzjkvwygfbhpulmdcx"


class Redactor:
    """Strikes a fixed set of secrets out of text and bytes. Secrets shorter than `MIN_SECRET_LENGTH` are left alone."""

    __slots__ = ("_forms", "_marks")

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if len(secret) >= MIN_SECRET_LENGTH for form in _forms(secret)}
        # Longest first: what a shorter form leaves over of a longer one would still tell something.
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        self._forms: Final = tuple((form, form.encode("utf-8", "surrogatepass")) for form in ordered)
        # What holds no form that is part of others holds none of those either: fewer looks at what has no secret in it.
        self._marks: Final = tuple(
            (*_rarest(data), data)
            for form, data in self._forms
            if not any(one != form and one in form for one in forms)
        )

    def text(self, s: str) -> str:
        """`s` without the secrets."""
        for form, _ in self._forms:
            if form in s:
                s = s.replace(form, REDACTED)
        return s

    def data(self, b: bytes) -> bytes:
        """`b` without the secrets, whatever else is in it."""
        for rare, next_rare, mark in self._marks:
            if rare in b and next_rare in b and mark in b:
                break
        else:
            return b
        for _, form in self._forms:
            if form in b:
                b = b.replace(form, REDACTED.encode())
        return b


def redact_url(url: str) -> str:
    """`url` down to scheme, host, port and path; userinfo is dropped, query and fragment only shown to have been there.

    Never raises: what cannot be taken apart is struck out whole.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return REDACTED
    if not parts.netloc and "@" in parts.path:
        return REDACTED  # `user:password@host` without its slashes: userinfo hides in what parses as a path
    bare = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    return f"{bare}?{REDACTED}" if parts.query or parts.fragment else bare


def redact_urls_in(data: bytes) -> bytes:
    """`data` with each http(s) URL in it as `redact_url` shows it, the rest as it is: a signed one is a key (N37)."""

    def shown(found: re.Match[bytes]) -> bytes:
        return found[1] + found[2] + (f"?{REDACTED}".encode() if found[3] else b"")

    return _URL.sub(shown, data)


def _rarest(form: bytes) -> tuple[int, int]:
    """The two rarest bytes of a form: to look for one byte costs a tenth of looking for a word (measured)."""
    first, *others = sorted(set(form), key=lambda byte: _RARE.index(byte) if byte in _RARE else len(_RARE))
    return first, (others or [first])[0]


def _forms(secret: str) -> Iterator[str]:
    """Each spelling under which `secret` may be met."""
    raw = secret.encode("utf-8", "surrogatepass")
    yield secret
    yield from _base64_forms(raw)
    for quoted in (quote(raw, safe=""), quote(raw, safe="/"), quote_plus(raw)):
        yield quoted
        yield _lower_escapes(quoted)
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]


def _base64_forms(raw: bytes) -> Iterator[str]:
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        padded = encode(raw).decode("ascii")
        yield padded
        yield padded.rstrip("=")
        for before in (0, 1, 2):
            core = _base64_core(encode(bytes(before) + raw).decode("ascii"), before, len(raw))
            if len(core) >= MIN_SECRET_LENGTH:
                yield core


def _base64_core(encoded: str, before: int, length: int) -> str:
    """The characters that depend on the secret alone when it starts `before` bytes into a group of three.

    So a secret is also found within something longer that was encoded as a whole, as in `Authorization: Basic`.
    """
    first = -(-before * 8 // 6)
    last = (before + length) * 8 // 6
    return encoded[first:last]


def _lower_escapes(quoted: str) -> str:
    """`%2F` as `%2f`: both are in use."""
    head, *rest = quoted.split("%")
    return "%".join([head, *(part[:2].lower() + part[2:] for part in rest)])
