"""Logs: an event a line, a stranger's text on that line, and no secret in any of it."""

import base64
import io
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from daemon.logs import make_log
from reconcile.redact import REDACTED, Redactor

SECRET = "sk-canary+/0123456789=&abc"
STRANGE = ["a\nb", "a\r\nb", "\x1b[31mred\x1b[0m", "a\u2028b", "a\u202eb", "\x00", "a\x85b", "\x9b31m", "\u2066x"]


def spoken(*, as_json: bool = True, secrets: tuple[str, ...] = (SECRET,)) -> tuple[Any, io.StringIO]:
    stream = io.StringIO()
    return make_log(Redactor(secrets), stream=stream, as_json=as_json), stream


def test_an_event_is_one_line_of_json_with_its_fields() -> None:
    log, stream = spoken()
    log.info("state_changed", operation_id="op_1", from_state="accepted", n=3)
    (line,) = stream.getvalue().splitlines()
    entry = json.loads(line)
    assert {k: entry[k] for k in ("event", "level", "operation_id", "from_state", "n")} == {
        "event": "state_changed",
        "level": "info",
        "operation_id": "op_1",
        "from_state": "accepted",
        "n": 3,
    }
    assert entry["timestamp"].endswith("Z")


def test_debug_is_not_written() -> None:
    log, stream = spoken()
    log.debug("noise")
    assert stream.getvalue() == ""


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("text", STRANGE)
def test_a_strangers_text_stays_on_its_line(text: str, as_json: bool) -> None:
    """S37: escaped, so that it neither forges a line nor speaks to the terminal."""
    log, stream = spoken(as_json=as_json)
    log.warning("webhook_refused", reason=text, again=text + " with spaces", **{"in a list": [text]})
    written = stream.getvalue()
    assert written.count("\n") == 1
    assert written.endswith("\n")
    plain = written[:-1]
    if not as_json:  # the renderer's own colours
        for code in ("\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[33m", "\x1b[36m", "\x1b[35m", "\x1b[31m", "\x1b[32m"):
            plain = plain.replace(code, "")
        assert text != "\x1b[31mred\x1b[0m" or "\\x1b[31mred" in plain
    assert not [c for c in plain if c in "\x00\n\r\x1b\x85\x9b\u2028\u202e\u2066"]


def hidden(value: str) -> Iterator[Any]:
    """The places in which a value can stand."""
    yield value
    yield f"before {value} after"
    yield [value]
    yield {"deep": {"deeper": [value]}}
    yield (value,)
    yield value.encode()
    yield ValueError(f"not {value}")


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("place", range(7))
def test_no_secret_is_written_wherever_it_stands(place: int, as_json: bool) -> None:
    """S38."""
    log, stream = spoken(as_json=as_json)
    log.error("failed", given=list(hidden(SECRET))[place])
    assert SECRET not in stream.getvalue()
    assert json.dumps(SECRET)[1:-1] not in stream.getvalue()


@pytest.mark.parametrize(
    "spelled",
    [
        SECRET,
        base64.b64encode(SECRET.encode()).decode(),
        quote(SECRET, safe=""),
        "Basic " + base64.b64encode(f"user:{SECRET}".encode()).decode(),
    ],
)
def test_no_spelling_of_a_secret_is_written(spelled: str) -> None:
    """S38."""
    log, stream = spoken()
    log.info("sent", header=spelled)
    assert spelled not in stream.getvalue()
    assert REDACTED in stream.getvalue()


@pytest.mark.parametrize("as_json", [True, False])
def test_no_secret_is_written_with_a_traceback(as_json: bool) -> None:
    """S38, and without a warning of the library's own."""
    log, stream = spoken(as_json=as_json)
    try:
        raise RuntimeError(f"refused: {SECRET}")
    except RuntimeError:
        log.exception("request_failed", path="/x")
    written = stream.getvalue()
    assert SECRET not in written
    assert "RuntimeError" in written
    if as_json:
        assert written.count("\n") == 1


def test_the_event_itself_is_struck_out_too() -> None:
    log, stream = spoken()
    event = f"calling {SECRET}"
    log.info(event)
    assert SECRET not in stream.getvalue()


def test_two_logs_know_nothing_of_each_other() -> None:
    """Several daemons live in one process."""
    one, first = spoken(secrets=("one-secret",))
    two, second = spoken(secrets=("two-secret",))
    one.info("x", a="one-secret", b="two-secret")
    two.info("x", a="one-secret", b="two-secret")
    assert ("one-secret" in first.getvalue(), "two-secret" in first.getvalue()) == (False, True)
    assert ("one-secret" in second.getvalue(), "two-secret" in second.getvalue()) == (True, False)
