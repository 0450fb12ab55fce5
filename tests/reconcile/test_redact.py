"""No form of a known secret outlives redaction, and everything else does."""

import base64
import json
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.redact import REDACTED, Redactor, redact_url, redact_urls_in

SECRET = 'sk-pröj/+"\\ 9?>~ÿ'
RAW = SECRET.encode()

FORMS = {
    "plain": SECRET,
    "base64": base64.b64encode(RAW).decode(),
    "base64 without padding": base64.b64encode(RAW).decode().rstrip("="),
    "base64url": base64.urlsafe_b64encode(RAW).decode(),
    "base64url without padding": base64.urlsafe_b64encode(RAW).decode().rstrip("="),
    "URL-encoded": quote(SECRET, safe=""),
    "URL-encoded path": quote(SECRET),
    "URL-encoded in lower case": quote(SECRET, safe="").replace("%2F", "%2f").replace("%C3%B6", "%c3%b6"),
    "form-encoded": quote_plus(SECRET),
    "in JSON": json.dumps(SECRET, ensure_ascii=False)[1:-1],
    "in ASCII JSON": json.dumps(SECRET)[1:-1],
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_each_form_of_a_secret_is_struck_out_whole(form: str) -> None:
    redactor = Redactor([SECRET])
    if form == FORMS["URL-encoded in lower case"]:  # mixed case: only what follows is promised
        form = "".join(f"%{byte:02x}" if f"%{byte:02X}" in quote(bytes([byte])) else chr(byte) for byte in RAW)
        form = form.replace("/", "%2f")
    assert redactor.text(f"a {form} b {form}") == f"a {REDACTED} b {REDACTED}"
    assert redactor.data(b"\xff" + form.encode() + b"\x00") == b"\xff" + REDACTED.encode() + b"\x00"


@given(st.text(min_size=6), st.binary(max_size=8), st.binary(max_size=8))
def test_a_secret_inside_something_longer_that_was_encoded_as_a_whole_is_found(
    s: str, before: bytes, after: bytes
) -> None:
    whole = base64.b64encode(before + s.encode() + after).decode()
    assert REDACTED in Redactor([s]).text(whole)


def test_basic_credentials_are_struck_out() -> None:
    header = "Basic " + base64.b64encode(b"user:canary-secret-value").decode()
    assert "Y2FuYXJ5" not in Redactor(["canary-secret-value"]).text(header)
    assert base64.b64encode(b"y-secret-val").decode()[2:-2] not in Redactor(["canary-secret-value"]).text(header)


def test_short_secrets_and_other_text_are_left_alone() -> None:
    redactor = Redactor(["", "abc", "12345", "long-secret"])
    assert redactor.text("abc 12345 long-secre long") == "abc 12345 long-secre long"
    assert redactor.data(b"abc \xff") == b"abc \xff"
    assert Redactor([]).text("anything") == "anything"


def test_a_secret_of_six_characters_is_struck_out() -> None:
    assert Redactor(["123456"]).text("x123456x") == f"x{REDACTED}x"


def test_of_two_secrets_the_longer_goes_first_and_leaves_no_rest() -> None:
    assert Redactor(["secret", "secret-and-more"]).text("secret-and-more, secret") == f"{REDACTED}, {REDACTED}"


@given(
    st.lists(st.text(alphabet=st.characters(exclude_categories=[]))),
    st.text(alphabet=st.characters(exclude_categories=[])),
)
def test_redaction_never_raises(secrets: list[str], s: str) -> None:
    redactor = Redactor(secrets)
    redactor.text(s)
    redactor.data(s.encode("utf-8", "surrogatepass"))


@given(
    st.lists(st.binary(min_size=6, max_size=40).map(lambda raw: raw.decode("latin-1")), min_size=1, max_size=3),
    st.lists(st.integers(0, 200) | st.binary(max_size=12), max_size=8),
)
def test_a_short_look_at_bytes_overlooks_no_form_of_a_secret(secrets: list[str], parts: list[int | bytes]) -> None:
    redactor = Redactor(secrets)
    forms = [data for _, data in redactor._forms]
    data = b"".join(part if isinstance(part, bytes) else forms[part % len(forms)] for part in parts)
    struck = data
    for form in forms:
        struck = struck.replace(form, REDACTED.encode())
    assert redactor.data(data) == struck


def test_a_redactor_does_not_show_its_secrets() -> None:
    assert "canary" not in repr(Redactor(["canary-secret"]))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://api.example.com/v1/jobs/1", "https://api.example.com/v1/jobs/1"),
        ("https://api.example.com:8443/v1?key=abc", "https://api.example.com:8443/v1?[redacted]"),
        ("https://host/p#token=abc", "https://host/p?[redacted]"),
        ("https://host/p?a=1#b", "https://host/p?[redacted]"),
        ("https://host/p?", "https://host/p"),
        ("https://user:pw@host/p", "https://host/p"),
        ("https://user:p@w@host/p", "https://host/p"),
        ("https://user:pw@[::1]:80/p", "https://[::1]:80/p"),
        ("//user:pw@host/p", "//host/p"),
        ("/v1/jobs?key=abc", "/v1/jobs?[redacted]"),
        ("user:pw@host/p", "[redacted]"),
        ("https:/user:pw@host/p", "[redacted]"),
        ("https://[bad/p?key=abc", "[redacted]"),
        ("", ""),
    ],
)
def test_a_url_is_shown_without_what_may_be_secret(url: str, shown: str) -> None:
    assert redact_url(url) == shown


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ('{"u": "https://s.example/f?X-Sig=canary", "n": 1}', '{"u": "https://s.example/f?[redacted]", "n": 1}'),
        (r'{"u": "https:\/\/s.example\/f\u003fa=canary\u0026b"}', r'{"u": "https:\/\/s.example\/f?[redacted]"}'),
        (r'{"in": "{\"u\": \"https://s/f\\u003fcanary\"}"}', r'{"in": "{\"u\": \"https://s/f?[redacted]\"}"}'),
        (r'{"in": "{\"u\": \"HTTP://s/f?canary\"}"}', r'{"in": "{\"u\": \"HTTP://s/f?[redacted]\"}"}'),
        ('["http://a/?canary","http://b/p","http://c#canary"]', '["http://a/?[redacted]","http://b/p","http://c?[redacted]"]'),
        ("<a>https://u:canary@h:8/é?b=canary</a> é?x", "<a>https://h:8/é?[redacted]</a> é?x"),
        ("see https://h/p? or /v1/x?y=1, https:", "see https://h/p? or /v1/x?y=1, https:"),
    ],
)  # fmt: skip
def test_urls_in_a_text_are_shown_without_what_may_be_secret(data: str, shown: str) -> None:
    assert redact_urls_in(data.encode()).decode() == shown


@given(st.recursive(st.text() | st.from_regex(r"https?://[^/]*/.*", fullmatch=True), st.lists), st.booleans())
def test_json_stays_json_whatever_its_urls_hold(document: Any, is_ascii: bool) -> None:
    json.loads(redact_urls_in(json.dumps(document, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")))


def test_a_text_of_nothing_but_beginnings_is_read_in_one_go() -> None:
    for part in (b"https://", b"https://a@", b"https://a?", b"https:\\/\\/", b"https://\\"):
        redact_urls_in(part * (65_536 // len(part)))
    for run in (b"\\", b"@", b"a", b"?"):
        redact_urls_in(b"https://" + run * 65_536)


@given(st.text(alphabet=st.characters(exclude_categories=[]) | st.sampled_from("[]@:/?#\\%")))
def test_any_text_can_be_taken_for_a_url(url: str) -> None:
    redact_url(url)
    assert "canary" not in redact_url(f"https://user:canary@host/{url.replace('@', '')}?canary#canary")
