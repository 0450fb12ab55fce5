"""`[callbacks.NAME]`: what is taken, and each fault with its place, what was found and what was expected."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from daemon.config import Config, parse, warnings_of
from reconcile.callback import CallbackEvent
from reconcile.errors import ConfigError

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SIGNING = "whsk_MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDA="
PUBLIC = "whpk_MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDA="
ENVIRON = {
    "CI": SECRET,
    "CI_NEW": SIGNING,
    "PUBLIC": PUBLIC,
    "SHORT": "whsec_c2hvcnQ=",
    "BARE": "secret-without-a-prefix",
}
CI: dict[str, Any] = {"url": "https://ci.example.com/hooks/", "secrets": [{"env": "CI"}]}


def configured(**changes: Any) -> Config:
    table = {key: value for key, value in {**deepcopy(CI), **changes}.items() if value is not None}
    return parse({"callbacks": {"ci": table}}, ENVIRON, file="test.toml")


def fault(environ: Mapping[str, str] = ENVIRON, **changes: Any) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        configured(**changes)
    return refused.value


def test_each_value_lands_where_it_belongs() -> None:
    ci = configured(
        secrets=[{"env": "CI"}, {"env": "CI_NEW"}], events=["done"], unsafe=["private_addresses"]
    ).callbacks["ci"]
    assert (ci.name, str(ci.url), len(ci.keys), ci.allows_private) == ("ci", "https://ci.example.com/hooks/", 2, True)
    assert ci.events == {CallbackEvent.DONE}


def test_what_is_not_said_is_both_events_and_nothing_unsafe() -> None:
    ci = configured().callbacks["ci"]
    assert (ci.events, ci.allows_private) == (frozenset(CallbackEvent), False)
    assert parse({}, {}, file="test.toml").callbacks == {}


def test_its_secrets_are_known_to_whatever_strikes_them_out_and_shown_by_nothing() -> None:
    config = configured(secrets=[{"env": "CI"}, {"env": "CI_NEW"}])
    assert config.secrets == (SECRET, SIGNING)
    assert SECRET.removeprefix("whsec_") not in repr(config)
    assert "aLaSw" not in repr(config)


@pytest.mark.parametrize(
    ("changes", "path", "found", "expected"),
    [
        ({"url": None}, "url", "nothing", "a string"),
        ({"url": 7}, "url", "7", "a string"),
        ({"url": "ci.example.com"}, "url", "'ci.example.com'", "http or https URL"),
        ({"url": "ftp://ci.example.com/"}, "url", "ftp", "http or https URL"),
        ({"url": "https://u:pw@ci.example.com/"}, "url", "not shown", "without user"),
        ({"url": "https://ci.example.com/?a=b"}, "url", "not shown", "query"),
        ({"url": "https://ci.example.com/#a"}, "url", "not shown", "fragment"),
        ({"url": "https://ci.example.com/a/../b"}, "url", "two ways", "plain"),
        ({"url": "https://ci.example.com/%2e%2e/b"}, "url", "two ways", "plain"),
        ({"secrets": None}, "secrets", "nothing", "one secret at least"),
        ({"secrets": []}, "secrets", "an empty list", "one secret at least"),
        ({"secrets": {"env": "CI"}}, "secrets", "another shape", "a list of secrets"),
        ({"secrets": [SECRET]}, "secrets[0]", "another shape", "env"),
        ({"secrets": [{"env": "CI"}, {"env": "NOT_SET"}]}, "secrets[1]", "nothing", "NOT_SET"),
        ({"secrets": [{"env": "SHORT"}]}, "secrets[0]", "shorter than 24 bytes", "whsec_"),
        ({"secrets": [{"env": "BARE"}]}, "secrets[0]", "unknown prefix", "whsk_"),
        ({"secrets": [{"env": "PUBLIC"}]}, "secrets[0]", "cannot sign", "whsk_"),
        ({"events": "done"}, "events", "a string", "a list"),
        ({"events": []}, "events", "an empty list", "done, needs_attention"),
        ({"events": ["done", "dnoe"]}, "events[1]", "'dnoe'", "done, needs_attention"),
        ({"events": ["done", "done"]}, "events[1]", "second time", "once"),
        ({"unsafe": ["unsigned_webhooks"]}, "unsafe[0]", "'unsigned_webhooks'", "private_addresses"),
        ({"ulr": "x"}, "ulr", "an unknown key", "events, secrets, unsafe, url"),
    ],
)
def test_a_fault_is_told_with_its_place(changes: dict[str, Any], path: str, found: str, expected: str) -> None:
    told = fault(**changes)
    assert told.key_path == f"callbacks.ci.{path}"
    assert found in told.found
    assert expected in told.expected
    assert "pw" not in str(told)
    assert SECRET not in str(told)


@pytest.mark.parametrize(
    ("url", "is_told"),
    [
        ("http://ci.example.com/", True),
        ("http://10.0.0.1/", True),
        ("https://ci.example.com/", False),
        ("http://127.0.0.1:9/", False),
        ("http://[::1]:9/", False),
        ("http://localhost/", False),
    ],
)
def test_plain_http_that_leaves_the_machine_is_told(url: str, is_told: bool) -> None:
    told = [fields["callback"] for event, fields in warnings_of(configured(url=url)) if event == "plain_http"]
    assert told == (["ci"] if is_told else [])
