"""The configuration: each fault told with the file, the key's full path, what was found and what was expected.

The table at the head is typed by hand, a line a key that the daemon reads.
"""

import base64
import json
import os
import tomllib
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from daemon import given_file
from daemon.addresses import Listener
from daemon.config import Config, load, parse, warnings_of
from reconcile.checkpoint import AuditKey
from reconcile.errors import ConfigError
from reconcile.registry import KINDS, provider_for
from reconcile.signatures import KeyType, verify_standard
from tests.daemon.certificates import make_pair
from tests.handlers.ground import SECRET, signed

FILE = "/etc/reconciled/reconciled.toml"
PEM = AuditKey.made(b"s" * 32).pem()
API_KEY = "sk-canary-0123456789abcdef"
TOKEN = "a-token-that-is-a-canary-987654"
ENVIRON = {"OPENAI_API_KEY": API_KEY, "HOOK": SECRET, "TOKEN": TOKEN, "AUDIT_KEY": PEM}

WHOLE = """
state_dir = "/var/lib/reconciled"
[webhooks]
listen = "127.0.0.1:8786"
public_url = "https://hooks.example.com"
max_body = "2MiB"
[api]
listen = "127.0.0.1:8787"
token = { env = "TOKEN" }
[caps]
start_body = "11MiB"
input = "2GiB"
answer = "17MiB"
result = "18GiB"
line = "65MiB"
[attention]
within = "3d"
[retention]
finished = "30d"
[audit]
key = { env = "AUDIT_KEY" }
[providers.openai]
kind = "openai_batch"
base_url = "https://api.openai.com/v1"
moved_from = ["https://eu.api.openai.com/v1", "https://old.example"]
api_key = { env = "OPENAI_API_KEY" }
webhook_secrets = [ { env = "HOOK" } ]
mark_items = false
[providers.openai.poll]
base = "31s"
cap = "11m"
sweep = "16m"
deadline = "27h"
error_budget = 21
[providers.openai.limits]
requests_per_second = 6.5
concurrency = 3
[providers.openai.create]
on_absent = "resend"
adopt = "ask"
settle = "6m"
within = "20m"
"""

#: A key of another curve.
P256 = (
    ec.generate_private_key(ec.SECP256R1())
    .private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    .decode()
)

P = "providers.openai"
#: Key path, what kind of value it takes.
KEYS = {
    "state_dir": "text",
    "webhooks.listen": "listener",
    "webhooks.public_url": "text",
    "webhooks.max_body": "size",
    "api.listen": "listener",
    "api.token": "secret",
    "caps.start_body": "size",
    "caps.input": "size",
    "caps.answer": "size",
    "caps.result": "size",
    "caps.line": "size",
    "attention.within": "duration",
    "retention.finished": "duration",
    "audit.key": "secret",
    f"{P}.kind": "kind",
    f"{P}.base_url": "url",
    f"{P}.moved_from": "urls",
    f"{P}.api_key": "secret",
    f"{P}.webhook_secrets": "secrets",
    f"{P}.mark_items": "flag",
    f"{P}.create.on_absent": "on_absent",
    f"{P}.create.adopt": "adopt",
    f"{P}.create.settle": "duration",
    f"{P}.create.within": "duration",
    f"{P}.poll.base": "duration",
    f"{P}.poll.cap": "duration",
    f"{P}.poll.sweep": "duration",
    f"{P}.poll.deadline": "duration",
    f"{P}.poll.error_budget": "whole",
    f"{P}.limits.requests_per_second": "number",
    f"{P}.limits.concurrency": "whole",
}
REQUIRED = {f"{P}.kind", f"{P}.base_url"}
TABLES = [
    "webhooks",
    "api",
    "caps",
    "attention",
    "retention",
    "audit",
    "providers",
    P,
    f"{P}.poll",
    f"{P}.limits",
    f"{P}.create",
]
#: For each kind of value, what it must not be. A table is wrong everywhere but for a secret.
WRONG: dict[str, list[Any]] = {
    "text": [5, True, [], {}, ""],
    "listener": [5, True, [], "", "8786", ":8786", "127.0.0.1", "h:", "h:x", "127.0.0.1:70000", "h:-1", "h:٨"],
    "size": [5, True, [], {}, "", "5", "1 MiB", "1MB", "-1MiB", "0MiB", "1.5MiB", "1mib", "x", "9" * 20 + "GiB"],
    "duration": [5, True, [], {}, "", "5", "1 s", "-1s", "0s", "1.5h", "1w", "x", "9" * 20 + "s"],
    "whole": ["5", True, [], {}, 0, -1, 1.5, float("nan")],
    "number": ["5", True, [], {}, 0, -1, float("nan"), float("inf"), 1e12],
    "flag": [5, "true", [], {}, "", 1, 0],
    "on_absent": [5, True, [], {}, "", "never", "RESEND", ["resend"]],
    "adopt": [5, True, [], {}, "", "by-count", "always"],
    "kind": [5, True, [], {}, "", "openai", "OPENAI_BATCH", "nothing"],
    "url": [
        5,
        True,
        [],
        "",
        "api.openai.com",
        "ftp://api.openai.com",
        "file:///etc/passwd",
        "https://",
        "https:///v1",
        "https://h/v1?x=1",
        "https://h/v1#f",
        "https://user@h/v1",
        "https://user:pass@h/v1",
        "https://:pass@h/v1",
        "https://h:99999/v1",
        "https://h:x/v1",
        "http://[::1",
        "https://h h/v1",
    ],
    "urls": [
        5,
        True,
        "https://me:inline-canary@h/v1",
        {},
        [5],
        [""],
        [["https://h"]],
        ["https://h", "h"],
        ["https://user:pass@h/v1"],
        ["https://h/v1?x=inline-canary"],
        ["ftp://h"],
    ],
    "secret": [5, True, [], "inline-canary", {}, {"env": ""}, {"env": 5}, {"wat": "X"}, {"env": "A", "file": "B"}],
    "secrets": [5, True, "inline-canary", {"env": "HOOK"}, ["inline-canary"], [5], [{}], [{"wat": "X"}], [[]]],
}  # fmt: skip


def document() -> dict[str, Any]:
    return tomllib.loads(WHOLE)


def parsed(given: Mapping[str, Any], environ: Mapping[str, str] = ENVIRON) -> Config:
    return parse(given, environ, file=FILE)


def put(given: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with another value at a path."""
    copy = deepcopy(given)
    at: Any = copy
    *tables, key = path.split(".")
    for name in tables:
        at = at[name]
    at[key] = value
    return copy


def drop(given: dict[str, Any], path: str) -> dict[str, Any]:
    """A copy without the key."""
    copy = deepcopy(given)
    at: Any = copy
    *tables, key = path.split(".")
    for name in tables:
        at = at[name]
    del at[key]
    return copy


def leaves(table: Mapping[str, Any], path: str = "") -> list[str]:
    """Every key path of a document that holds a value."""
    found = []
    for name, value in table.items():
        here = f"{path}.{name}" if path else name
        is_table = isinstance(value, Mapping) and not {"env", "file", "credential"} & value.keys()
        found += leaves(value, here) if is_table else [here]
    return found


def fault(given: Mapping[str, Any], environ: Mapping[str, str] = ENVIRON) -> ConfigError:
    with pytest.raises(ConfigError) as told:
        parsed(given, environ)
    return told.value


def assert_told(error: ConfigError, path: str) -> None:
    """The four parts stand in the error and in its words."""
    assert error.file == FILE
    assert error.key_path == path
    assert error.found
    assert error.expected
    words = str(error)
    assert words.startswith(f"{FILE}: {path}: found ")
    assert "; expected " in words
    assert "\n" not in words


# ---- the whole ------------------------------------------------------------------------------------------------


def test_the_table_names_every_key_of_the_sample() -> None:
    assert set(leaves(document())) == KEYS.keys()


def test_each_value_lands_where_it_belongs() -> None:
    config = parsed(document())
    openai = config.providers["openai"]
    contract = openai.provider.contract
    assert config.state_dir == Path("/var/lib/reconciled")
    assert (config.webhooks.host, config.webhooks.port, config.public_url) == (
        "127.0.0.1",
        8786,
        "https://hooks.example.com",
    )
    assert (config.api, config.api_token, config.max_body) == (Listener("127.0.0.1", 8787), TOKEN, 2 << 20)
    caps = config.caps
    assert (caps.start_body, caps.input, caps.answer) == (11 << 20, 2 << 30, 17 << 20)
    assert (caps.result, caps.line) == (18 << 30, 65 << 20)
    assert contract.attention_within_ms == 3 * 86_400_000
    assert (contract.poll.base_ms, contract.poll.cap_ms, contract.poll.sweep_ms) == (31_000, 660_000, 960_000)
    assert (contract.poll.error_budget, contract.result_within_ms) == (21, 27 * 3_600_000)
    assert (contract.limits.requests_per_second, contract.limits.concurrency) == (6.5, 3)
    assert (contract.on_absent, contract.settle_ms, contract.create_within_ms) == ("resend", 360_000, 1_200_000)
    assert (contract.adopt, contract.item_marks, openai.idle_keys) == ("ask", "needless", ())
    assert str(openai.base_url) == "https://api.openai.com/v1"
    assert [str(url) for url in openai.moved_from] == ["https://eu.api.openai.com/v1", "https://old.example"]
    assert openai.credentials == {"Authorization": f"Bearer {API_KEY}"}
    assert openai.credential_name == "env:OPENAI_API_KEY"
    assert [key.type for key in openai.webhook_keys] == [KeyType.HMAC]
    assert config.finished_ms == 30 * 86_400_000
    assert config.audit_key is not None
    assert config.audit_key.pem() == PEM
    assert set(config.secrets) == {API_KEY, TOKEN, SECRET, PEM.splitlines()[1]}


def test_an_empty_configuration_has_the_defaults_of_the_page() -> None:
    config = parsed({}, {})
    assert config.state_dir == Path("reconciled-state")
    assert (config.webhooks.host, config.webhooks.port) == ("127.0.0.1", 8786)
    assert (config.api, config.api_token) == (Listener("127.0.0.1", 8787), None)
    caps = config.caps
    assert (config.max_body, caps.start_body, caps.answer) == (1 << 20, 10 << 20, 16 << 20)
    assert (caps.input, caps.result, caps.line) == (1 << 30, 16 << 30, 64 << 20)
    assert (config.finished_ms, config.audit_key) == (90 * 86_400_000, None)
    assert config.providers == {}
    assert config.secrets == ()


def test_the_state_directory_is_systemds_unless_told() -> None:
    assert parsed({}, {"STATE_DIRECTORY": "/var/lib/x"}).state_dir == Path("/var/lib/x")
    assert parsed({"state_dir": "y"}, {"STATE_DIRECTORY": "/var/lib/x"}).state_dir == Path("y")


@pytest.mark.parametrize("path", sorted(KEYS))
def test_a_key_that_is_left_out_has_a_default_or_is_told(path: str) -> None:
    given = drop(document(), path)
    if path in REQUIRED:
        assert_told(fault(given), path)
    else:
        parsed(given)


@pytest.mark.parametrize(("path", "value"), [(path, value) for path, kind in KEYS.items() for value in WRONG[kind]])
def test_a_wrong_value_is_told_with_its_place(path: str, value: Any) -> None:
    error = fault(put(document(), path, value))
    assert error.key_path.split("[")[0] == path
    assert error.file == FILE
    assert error.found
    assert error.expected
    assert "canary" not in str(error)
    assert "pass@" not in str(error)


@pytest.mark.parametrize("path", TABLES)
@pytest.mark.parametrize("value", [5, True, "x", [], 1.5])
def test_a_value_in_place_of_a_table_is_told(path: str, value: Any) -> None:
    assert_told(fault(put(document(), path, value)), path)


@pytest.mark.parametrize("table", ["", *(table for table in TABLES if table != "providers")])
@pytest.mark.parametrize("value", ["x", 1, {"a": 1}, [], "inline-canary"])
def test_an_unknown_neighbour_is_told_with_those_that_are_known(table: str, value: Any) -> None:
    path = f"{table}.wat" if table else "wat"
    error = fault(put(document(), path, value))
    assert_told(error, path)
    assert "unknown" in error.found
    for known in (key.rpartition(".")[2] for key in KEYS if key.rpartition(".")[0] == table):
        assert known in error.expected
    assert "canary" not in str(error)


@pytest.mark.parametrize(
    ("near", "meant"),
    [
        (f"{P}.poll.bas", f"{P}.poll.base"),
        (f"{P}.api_keys", f"{P}.api_key"),
        ("caps.results", "caps.result"),
        (f"{P}.poll.Base", f"{P}.poll.base"),
        (f"{P}.webhook_secret", f"{P}.webhook_secrets"),
    ],
)
def test_a_misspelt_key_is_told_by_its_own_name(near: str, meant: str) -> None:
    value = document()
    for name in meant.split("."):
        value = value[name]
    assert fault(put(drop(document(), meant), near, value)).key_path == near


@pytest.mark.parametrize("name", ["Open", "open ai", "a.b", "ä", "", "-x", "a/b", "x" * 65, "a\nb"])
def test_a_provider_name_that_cannot_stand_in_a_path_is_told(name: str) -> None:
    given = document()
    given["providers"] = {name: given["providers"]["openai"]}
    error = fault(given)
    assert error.key_path.startswith("providers")
    assert "lower-case" in error.expected


@pytest.mark.parametrize("name", ["openai", "openai-eu", "openai_2", "2", "a" * 64])
def test_a_provider_name_that_can_is_taken(name: str) -> None:
    given = document()
    given["providers"] = {name: given["providers"]["openai"]}
    assert list(parsed(given).providers) == [name]


# ---- numbers that must fit together ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "cap", "sweep"),
    [("10m", "5m", "20m"), ("1s", "10m", "5m"), ("30m", "20m", "10m"), ("1s", "1ms", "1h")],
)
def test_base_cap_and_sweep_must_rise(base: str, cap: str, sweep: str) -> None:
    given = put(document(), f"{P}.poll", {"base": base, "cap": cap, "sweep": sweep})
    error = fault(given)
    assert error.key_path.startswith(f"{P}.poll.")
    assert "base <= cap <= sweep" in error.expected


def test_spans_that_do_not_rise_are_told_as_they_are_written() -> None:
    error = fault(put(document(), f"{P}.poll", {"base": "1s", "cap": "500ms", "sweep": "90m"}))
    assert str(error).endswith("found base 1s, cap 500ms, sweep 90m; expected base <= cap <= sweep")


def test_a_sweep_that_results_would_not_outlast_four_times_is_refused() -> None:
    """J7: OpenAI keeps files for 30 days."""
    at_most = put(document(), f"{P}.poll", {"base": "1m", "cap": "1h", "sweep": "180h"})
    assert parsed(at_most).providers["openai"].provider.contract.poll.sweep_ms == 180 * 3_600_000
    error = fault(put(document(), f"{P}.poll", {"base": "1m", "cap": "1h", "sweep": "181h"}))
    assert error.key_path == f"{P}.poll.sweep"
    assert "180h at most: a quarter of the 30d for which results are kept" in error.expected
    assert "found 181h;" in str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_a_providers_own_sweep_looks_four_times_while_its_results_are_kept(kind: str) -> None:
    contract = provider_for(kind).contract
    assert contract.results_kept_ms is None or contract.poll.sweep_ms <= contract.results_kept_ms // 4


def test_a_provider_without_a_webhook_secret_sends_no_events() -> None:
    """An end that no event told of is then none that was missed."""
    assert parsed(document()).providers["openai"].provider.contract.webhook is not None
    bare = put(document(), f"{P}.webhook_secrets", [])
    assert parsed(bare).providers["openai"].provider.contract.webhook is None


@pytest.mark.parametrize("poll", [{"base": "1s", "cap": "1s", "sweep": "1s"}, {"base": "2h"}, {"cap": "3h"}, {}])
def test_what_is_not_said_gives_way_to_what_is(poll: dict[str, str]) -> None:
    plan = parsed(put(document(), f"{P}.poll", poll)).providers["openai"].provider.contract.poll
    assert plan.base_ms <= plan.cap_ms <= plan.sweep_ms


# ---- what is allowed for a lost create -------------------------------------------------------------------------


def claude(more: str) -> Config:
    """A provider of Message Batches with these lines."""
    head = '[providers.claude]\nkind = "anthropic_batches"\nbase_url = "https://api.anthropic.com/v1"\n'
    return parsed(tomllib.loads(head + more))


def test_nothing_is_allowed_unless_it_is_said() -> None:
    contract = claude("").providers["claude"].provider.contract
    assert (contract.on_absent, contract.adopt, contract.item_marks) == ("ask", "ask", "off")
    assert (contract.settle_ms, contract.create_within_ms) == (5 * 60_000, 15 * 60_000)


def test_what_an_operator_allows_for_a_lost_create_stands_in_the_contract() -> None:
    config = claude('mark_items = true\n[providers.claude.create]\nadopt = "by_count"\nwithin = "2h"')
    contract = config.providers["claude"].provider.contract
    assert (contract.adopt, contract.item_marks, contract.create_within_ms) == ("by_count", "on", 7_200_000)
    assert list(warnings_of(config)) == []


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (f"{P}.create.on_absent", "always", "one of ask, resend"),
        (f"{P}.create.adopt", "by_time", "one of ask, by_count"),
        (f"{P}.mark_items", "yes", "true or false"),
    ],
)
def test_a_word_that_nobody_promised_is_told_with_those_that_are(path: str, value: str, expected: str) -> None:
    error = fault(put(document(), path, value))
    assert_told(error, path)
    assert (error.found, error.expected) == (repr(value), expected)


@pytest.mark.parametrize(("key", "value"), [("create.adopt", "by_count"), ("mark_items", True)])
def test_what_a_kind_has_no_use_for_is_taken_and_told(key: str, value: Any) -> None:
    """Every kind takes it; an OpenAI batch is known by the file that was uploaded for it alone."""
    config = parsed(put(document(), f"{P}.{key}", value))
    told = [(event, fields["provider"], fields["key"]) for event, fields in warnings_of(config)]
    assert told == [("setting_without_effect", "openai", key)]
    assert config.providers["openai"].provider.contract.item_marks == "needless"


# ---- who may come in -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "listen",
    [
        "0.0.0.0:8787",
        "[::]:8787",
        "192.168.0.1:8787",
        "*:8787",
        "example.com:8787",
        "10.0.0.1:1",
        "localhost.evil:1",
        "api.localhost:1",
        "128.0.0.1:1",
        "[::ffff:10.0.0.1]:1",
    ],
)
def test_the_local_api_is_not_for_the_network(listen: str) -> None:
    """S24."""
    error = fault(put(document(), "api.listen", listen))
    assert_told(error, "api.listen")
    assert "loopback" in error.expected


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:8787", "[::1]:8787", "127.0.0.2:8787", "Localhost:1"])
def test_loopback_is(listen: str) -> None:
    assert str(parsed(put(document(), "api.listen", listen)).api) == listen


@pytest.mark.parametrize(
    ("listen", "host"),
    [("10.0.0.1:80", "10.0.0.1"), ("[::]:8786", "::"), ("[::1]:1", "::1"), ("hooks.example:1", "hooks.example")],
)
def test_the_webhook_listener_may_be_public(listen: str, host: str) -> None:
    assert parsed(put(document(), "webhooks.listen", listen)).webhooks.host == host


# ---- secrets (S39, S40) ----------------------------------------------------------------------------------------

SECRET_KEYS = ["api.token", "audit.key", f"{P}.api_key"]


def secret_file(folder: Path, content: str = API_KEY, mode: int = 0o600, name: str = "key") -> Path:
    path = folder / name
    path.write_text(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("path", SECRET_KEYS)
def test_an_environment_variable_that_is_not_set_is_named(path: str) -> None:
    error = fault(put(document(), path, {"env": "NOT_THERE"}))
    assert_told(error, path)
    assert "NOT_THERE" in error.expected


@pytest.mark.parametrize("path", [*SECRET_KEYS, f"{P}.webhook_secrets"])
@pytest.mark.parametrize("inline", ["inline-canary", "whsec_Y2FuYXJ5LWNhbmFyeS1jYW5hcnktY2FuYXJ5", ["inline-canary"]])
def test_an_inline_secret_is_refused_and_not_shown(path: str, inline: Any) -> None:
    """S39: an error is logged, mailed and pasted."""
    error = fault(put(document(), path, inline))
    assert error.key_path.split("[")[0] == path
    assert "canary" not in str(error)
    assert "Y2FuYXJ5" not in str(error)
    assert "env" in error.expected or "credential" in error.expected


@pytest.mark.parametrize("path", SECRET_KEYS)
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o602])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, path: str, mode: int) -> None:
    """S39."""
    error = fault(put(document(), path, {"file": str(secret_file(tmp_path, mode=mode))}))
    assert_told(error, path)
    assert str(tmp_path) in error.found
    assert "0600" in error.expected
    assert API_KEY not in str(error)


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_file_of_its_owner_alone_is_read(tmp_path: Path, mode: int) -> None:
    given = put(document(), f"{P}.api_key", {"file": str(secret_file(tmp_path, API_KEY + "\n", mode))})
    config = parsed(given)
    assert config.providers["openai"].credentials == {"Authorization": f"Bearer {API_KEY}"}
    assert API_KEY in config.secrets


@pytest.mark.parametrize("path", SECRET_KEYS)
def test_a_file_that_is_not_there_is_told(tmp_path: Path, path: str) -> None:
    error = fault(put(document(), path, {"file": str(tmp_path / "nothing")}))
    assert_told(error, path)
    assert "nothing" in error.found


def test_a_folder_or_bytes_that_are_no_text_are_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    assert_told(fault(put(document(), "api.token", {"file": str(tmp_path)})), "api.token")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    binary.chmod(0o600)
    assert_told(fault(put(document(), "api.token", {"file": str(binary)})), "api.token")


@pytest.mark.parametrize("path", [*SECRET_KEYS, "webhooks.tls_cert", "webhooks.tls_key"])
@pytest.mark.parametrize("what", ["a pipe", "a device", "a large file"])
def test_what_is_no_plain_file_of_a_secrets_size_is_told_at_once(tmp_path: Path, path: str, what: str) -> None:
    given = tmp_path / "given"
    match what:
        case "a pipe":
            os.mkfifo(given, 0o600)
        case "a device":
            given = Path("/dev/zero")
        case _:
            given.write_text("x" * (given_file.MAX_SECRET + 1))
            given.chmod(0o600)
    whole = document()
    for key, file in zip(("tls_cert", "tls_key"), make_pair(tmp_path), strict=True):
        whole = put(whole, f"webhooks.{key}", str(file))
    error = fault(put(whole, path, {"file": str(given)}))
    assert_told(error, path)
    if what != "a device":  # which others can read, too
        assert ("no regular file" if what == "a pipe" else "more than 65536 bytes") in error.found


@pytest.mark.parametrize("token", [" " + "a" * 20, "a" * 20 + " ", "a" * 20 + "ü", "\u3000" + "a" * 20])
@pytest.mark.parametrize("path", ["api.token", "api.tokens.agents.token"])
def test_a_token_that_no_header_carries_is_refused(path: str, token: str) -> None:
    given = put(document(), "api", {"token": {"env": "TOKEN"}, "tokens": {"agents": {"token": {"env": "TOKEN"}}}})
    error = fault(put(given, path, {"env": "GIVEN"}), {**ENVIRON, "GIVEN": token})
    assert_told(error, path)
    assert "a" * 20 not in str(error)


@pytest.mark.parametrize("key", [" sk-123456", "sk-123456 ", "sk-ü123456"])
@pytest.mark.parametrize("path", [f"{P}.api_key", f"{P}.headers.X-Key"])
def test_a_key_that_no_header_carries_is_refused(path: str, key: str) -> None:
    given = put(put(document(), f"{P}.headers", {}), path, {"env": "GIVEN"})
    assert_told(fault(given, {**ENVIRON, "GIVEN": key}), path)


def test_a_token_file_is_looked_for_in_the_state_directory(tmp_path: Path) -> None:
    secret_file(tmp_path, TOKEN, name="agents")
    given = {"state_dir": str(tmp_path), "api": {"token": {"file": "agents"}}}
    assert parsed(given).api_token == TOKEN


def test_a_credential_is_read_from_systemds_folder(tmp_path: Path) -> None:
    """S40."""
    secret_file(tmp_path, SECRET, 0o400, "openai-webhook")
    given = put(document(), f"{P}.webhook_secrets", [{"credential": "openai-webhook"}])
    config = parsed(given, {**ENVIRON, "CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert len(config.providers["openai"].webhook_keys) == 1
    assert SECRET in config.secrets


@pytest.mark.parametrize("name", ["openai-webhook", "../key", "/etc/passwd", "..", "."])
@pytest.mark.parametrize("has_folder", [True, False])
def test_a_credential_that_is_not_there_or_lies_elsewhere_is_told(tmp_path: Path, name: str, has_folder: bool) -> None:
    folder = tmp_path / "credentials"
    folder.mkdir(mode=0o700)
    secret_file(tmp_path)
    environ = {**ENVIRON, "CREDENTIALS_DIRECTORY": str(folder)} if has_folder else ENVIRON
    error = fault(put(document(), f"{P}.api_key", {"credential": name}), environ)
    assert_told(error, f"{P}.api_key")
    assert API_KEY not in str(error)


@pytest.mark.parametrize("value", ["", "\n", "a\x00b", "a\tb", "two\nlines", "\x1b[31m"])
def test_an_empty_or_unprintable_secret_is_told(value: str) -> None:
    error = fault(put(document(), f"{P}.api_key", {"env": "ODD"}), {**ENVIRON, "ODD": value})
    assert_told(error, f"{P}.api_key")
    assert "two" not in str(error)


def short(length: int) -> str:
    return "whsec_" + base64.b64encode(b"k" * length).decode()


@pytest.mark.parametrize(
    "secret",
    [
        f"v1,{SECRET}",
        f'"{SECRET}"',
        f"'{SECRET}'",
        f" {SECRET}",
        f"{SECRET} ",
        SECRET.removeprefix("whsec_"),
        SECRET.upper(),
        "whsec_",
        "whsec_not base64!",
        short(23),
        short(1),
        "whpk_AAAA",
        "sk-something-else",
    ],
)
def test_c17_a_secret_pasted_wrong_stops_the_start(secret: str) -> None:
    """S10, C17: told with the key and the shape, never with the secret."""
    error = fault(document(), {**ENVIRON, "HOOK": secret})
    assert_told(error, f"{P}.webhook_secrets[0]")
    assert "whsec_" in str(error) or "whpk_" in str(error)
    bare = secret.strip("\"' ").removeprefix("v1,").removeprefix("whsec_").removeprefix("whpk_")
    assert len(bare) < 4 or bare not in str(error)


@pytest.mark.parametrize("secret", ["whsec_not base64!", short(23), "whpk_AAAA", f"v1,{SECRET}", "sk-x"])
def test_what_is_expected_of_a_secret_is_said_as_an_expectation(secret: str) -> None:
    """ "found ...; expected ..." must read as a sentence."""
    error = fault(document(), {**ENVIRON, "HOOK": secret})
    assert " is not " not in error.expected
    assert " is shorter " not in error.expected
    assert "expected" not in error.expected


@pytest.mark.parametrize(
    "pem",
    [
        "inline-canary",
        PEM.replace("PRIVATE", "PUBLIC"),
        PEM.replace("PRIVATE", "ENCRYPTED PRIVATE"),
        "\n".join(PEM.splitlines()[1:2]),
        P256,
    ],
)
def test_an_audit_key_of_another_shape_stops_the_start_and_is_not_shown(pem: str) -> None:
    error = fault(document(), {**ENVIRON, "AUDIT_KEY": pem})
    assert_told(error, "audit.key")
    assert "Ed25519" in error.expected
    assert not any(line in str(error) for line in pem.splitlines() if line)


@pytest.mark.parametrize("span", ["90m", "1s", "23h"])
def test_a_retention_of_less_than_a_day_is_taken_for_a_slip(span: str) -> None:
    error = fault(put(document(), "retention.finished", span))
    assert_told(error, "retention.finished")
    assert error.expected.startswith("1d at least")
    assert parsed(put(document(), "retention.finished", "24h")).finished_ms == 86_400_000


def test_an_audit_key_whose_lines_somebody_joined_is_a_secret_all_the_same() -> None:
    config = parsed(document(), {**ENVIRON, "AUDIT_KEY": PEM.replace("\n", " ")})
    assert config.audit_key is not None
    assert PEM.splitlines()[1] in config.secrets


def test_an_audit_key_in_a_file_is_looked_for_in_the_state_directory(tmp_path: Path) -> None:
    secret_file(tmp_path, PEM, name="old.key")
    given = {"state_dir": str(tmp_path), "audit": {"key": {"file": "old.key"}}}
    key = parsed(given).audit_key
    assert key is not None
    assert key.pem() == PEM


def test_c17_a_final_newline_is_no_part_of_a_secret() -> None:
    """A file has one; a start that takes it takes deliveries as well."""
    (key,) = parsed(document(), {**ENVIRON, "HOOK": SECRET + "\n"}).providers["openai"].webhook_keys
    headers = {name: [value] for name, value in signed(b"x").items()}
    assert verify_standard(b"x", headers, [key], now_ms=1_795_953_600_000) == "msg_1"


def test_the_second_of_two_secrets_is_told_by_its_place() -> None:
    given = put(document(), f"{P}.webhook_secrets", [{"env": "HOOK"}, {"env": "BAD"}])
    assert fault(given, {**ENVIRON, "BAD": "x"}).key_path == f"{P}.webhook_secrets[1]"
    assert fault(given).key_path == f"{P}.webhook_secrets[1]"


def test_an_earlier_address_is_told_by_its_place() -> None:
    given = put(document(), f"{P}.moved_from", ["https://h", "https://h?x=1"])
    assert_told(fault(given), f"{P}.moved_from[1]")


def test_a_password_in_an_address_is_not_shown() -> None:
    """S39: refused, since the address is shown everywhere."""
    error = fault(put(document(), f"{P}.base_url", "https://me:inline-canary@api.example/v1"))
    assert error.key_path == f"{P}.base_url"
    assert "canary" not in str(error)


def test_no_repr_shows_a_secret(tmp_path: Path) -> None:
    """S38: a configuration ends up in tracebacks and logs."""
    config = parsed(document())
    shown = (
        repr(config) + str(config) + repr(config.providers["openai"]) + repr(config.providers["openai"].webhook_keys)
    )
    bare = SECRET.removeprefix("whsec_")
    for secret in (API_KEY, TOKEN, SECRET, PEM.splitlines()[1], bare, base64.b64decode(bare).decode()):
        assert secret not in shown


# ---- the file --------------------------------------------------------------------------------------------------


def test_a_file_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "reconciled.toml"
    path.write_text(WHOLE)
    assert load(path, ENVIRON).file == str(path)


@pytest.mark.parametrize(
    "content", [b"x", b"[webhooks", b"a = 1\na = 2", b"\xff\xfe", b"a = \x00", json.dumps({}).encode()]
)
def test_what_is_no_toml_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "reconciled.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as told:
        load(path, ENVIRON)
    assert told.value.file == str(path)
    assert "TOML" in told.value.expected


def test_a_configuration_that_is_not_there_is_told(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.toml", tmp_path):
        with pytest.raises(ConfigError) as told:
            load(path, ENVIRON)
        assert str(path) in str(told.value)
        assert "readable" in told.value.expected


# ---- what is worth a warning -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "warns"),
    [
        ("https://api.openai.com/v1", False),
        ("http://127.0.0.1:8790/v1", False),
        ("http://[::1]:8790/v1", False),
        ("http://localhost:8790/v1", False),
        ("http://10.0.0.1/v1", True),
        ("http://api.example.com/v1", True),
        ("http://localhost.example.com/v1", True),
    ],
)
def test_plain_http_is_told_where_it_leaves_the_machine(url: str, warns: bool) -> None:
    events = [event for event, _ in warnings_of(parsed(put(document(), f"{P}.base_url", url)))]
    assert events == (["plain_http"] if warns else [])


def test_a_configuration_without_a_provider_is_told() -> None:
    assert [event for event, _ in warnings_of(parsed({}))] == ["no_providers"]


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("wat", "wat"),
        ("two words", '"two words"'),
        ("a.b", '"a.b"'),
        ("\x1b[31m", '"\\u001b[31m"'),
        ("\x9b31m", '"\\u009b31m"'),
        ("a\u202eb", '"a\\u202eb"'),
        ("grün", '"grün"'),
        ("", '""'),
    ],
)
def test_a_key_is_named_as_toml_spells_it(key: str, shown: str) -> None:
    assert fault({**document(), key: 1}).key_path == shown


def test_a_credential_that_systemd_grants_by_an_acl_is_read(tmp_path: Path) -> None:
    """DynamicUser: on a file system with ACLs the file is root's, and its mask shows as 0440."""
    path = tmp_path / "openai-key"
    path.write_text("sk-1")
    path.chmod(0o440)
    environ = {**ENVIRON, "CREDENTIALS_DIRECTORY": str(tmp_path)}
    config = parsed(put(document(), f"{P}.api_key", {"credential": "openai-key"}), environ)
    assert config.providers["openai"].credentials == {"Authorization": "Bearer sk-1"}
