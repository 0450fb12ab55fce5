"""`reconciled check`: every fault with its place, what could not be looked at, what to register; one question each."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from daemon import given_file, probe
from daemon.cli import exits, main
from daemon.config import parse
from daemon.config_findings import MAX_FAULTS, look_at
from reconcile.errors import ConfigError, CredentialAbsent
from reconcile.registry import provider_for
from tests.daemon.certificates import make_pair
from tests.handlers.ground import API_KEY, SECRET

ROOT = Path(__file__).parents[2]
SHIPPED = (ROOT / "systemd" / "reconciled.toml").read_text(encoding="utf-8")
#: The shipped sample with all that it shows as comments.
SAMPLE = re.sub(r"^#(?=\[|[a-z_]+ = )", "", SHIPPED, flags=re.MULTILINE)


class Check:
    """Runs `check` on a file and keeps what it wrote."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.file = folder / "reconciled.toml"
        self._capsys = capsys
        self.out = self.err = ""

    def of(self, text: str, *arguments: str) -> int:
        self.file.write_text(text)
        status = main(["check", "--config", str(self.file), *arguments])
        self.out, self.err = self._capsys.readouterr()
        assert "Traceback" not in self.out + self.err
        return status

    async def asking(self, text: str) -> int:
        return await asyncio.to_thread(self.of, text, "--online")


@pytest.fixture
def check(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Check:
    for name in ("CREDENTIALS_DIRECTORY", "STATE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KEY", API_KEY)
    monkeypatch.setenv("HOOK", SECRET)
    monkeypatch.setenv("TOKEN", "a-token-of-its-own-0123")
    return Check(tmp_path, capsys)


def config(folder: Path, more: str = "") -> str:
    return f'state_dir = "{folder / "state"}"\n{more}'


def provider(
    name: str = "openai", kind: str = "openai_batch", url: str = "https://api.openai.com/v1", more: str = ""
) -> str:
    return f'[providers.{name}]\nkind = "{kind}"\nbase_url = "{url}"\napi_key = {{ env = "KEY" }}\n{more}\n'


# ---- what is wrong -------------------------------------------------------------------------------------------------


def test_every_fault_is_told_with_its_place_and_not_only_the_first(check: Check) -> None:
    status = check.of(
        """
wat = 1
[webhooks]
listen = "8786"
max_body = 5
[api]
listen = "0.0.0.0:8787"
[api.tokens.agents]
token = { env = "TOKEN" }
may = ["raed"]
[caps]
input = "many"
inputs = "1GiB"
[providers.x]
kind = "openai_batch"
base_url = "https://api.openai.com/v1"
api_key = "inline-canary"
[providers.x.poll]
base = "1 s"
capp = "5s"
"""
    )
    assert status == exits.BAD_CONFIGURATION
    assert check.out == ""
    told = [line.removeprefix(f"reconciled: {check.file}: ").partition(": ")[0] for line in check.err.splitlines()]
    assert sorted(told) == sorted(
        [
            "wat", "webhooks.listen", "webhooks.max_body", "api.listen", "api.tokens.agents.may[0]", "caps.input",
            "caps.inputs", "providers.x.api_key", "providers.x.poll.base", "providers.x.poll.capp",
        ]
    )  # fmt: skip
    assert all("; expected " in line for line in check.err.splitlines())
    assert "canary" not in check.err


def test_a_table_that_was_passed_over_is_named(check: Check) -> None:
    """What is missing takes its table with it, and more may be wrong in there."""
    assert check.of('[providers.x]\nbase_url = "https://h"\nwat = 1\n[providers.y]\nkind = "nope"\n') == 78
    assert "providers.x.kind: found nothing" in check.err
    assert "providers.y.kind: found 'nope'" in check.err
    assert check.err.count("providers.y.kind: found") == 1
    assert f"not checked: {check.file}: providers.x: the rest of this table\n" in check.err
    assert f"not checked: {check.file}: providers.y: the rest of this table\n" in check.err


def test_what_follows_from_what_could_not_be_looked_at_is_no_fault(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that needs a secret of the service is passed over, and nothing of it is called wrong."""
    tokens = '[api.tokens.agents]\ntoken = { credential = "agents" }\n[api.tokens.ci]\ntoken = { env = "TOKEN" }\n'
    assert check.of(config(tmp_path, tokens)) == 0
    assert "token ci may: everything" in check.out
    assert f"not checked: {check.file}: api.tokens.agents.token: found no such credential" in check.out
    assert f"not checked: {check.file}: api.tokens.agents: the rest of this table\n" in check.out

    def needs_one(document: Any, environ: Any, *, file: str) -> Any:
        """As a parser does that wants one secret at least of a list."""
        if "list" not in document.get("table", {"list": ()}):
            raise ConfigError(file, "table.list", "none", "one at least")
        if "table" in document:
            raise CredentialAbsent(file, "table.list[0]", "no such credential", "one")
        return parse(document, environ, file=file)

    monkeypatch.setattr("daemon.config_findings.parse", needs_one)
    found = look_at({"table": {"list": [1]}}, {}, file="x.toml")
    assert (found.faults, [fault.key_path for fault in found.unchecked]) == ([], ["table.list[0]"])
    assert found.config is not None


@pytest.mark.parametrize(
    "content", ["a = ", "a = 1\na = 2", "a=" + "[" * 50_000, "a=" + "1" * 50_000, "state_dir=0x" + "f" * 50_000]
)
def test_what_is_no_toml_is_one_sentence(check: Check, content: str) -> None:
    assert check.of(content) == exits.BAD_CONFIGURATION
    assert check.err.startswith(f"reconciled: {check.file}")
    assert len(check.err.splitlines()) == 1
    assert len(check.err) < 500


def test_a_file_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (tmp_path / "nothing.toml", tmp_path):
        assert main(["check", "--config", str(path)]) == exits.BAD_CONFIGURATION
        assert str(path) in capsys.readouterr().err


def test_nothing_is_written_and_nothing_is_started(check: Check, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert check.of(config(tmp_path, f'[api]\nlisten = "127.0.0.1:{port}"\n{provider()}')) == 0
    assert sorted(tmp_path.rglob("*")) == sorted([*before, check.file])
    assert "is not there yet; the first start makes it" in check.out


def test_secrets_of_the_state_directory_are_looked_at_too(check: Check, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / "api-token").write_text("short\n")
    (state / "audit.key").write_text("no key\n")
    for name in ("api-token", "audit.key"):
        (state / name).chmod(0o600)
    assert check.of(config(tmp_path)) == 78
    assert f"{state / 'api-token'}: found a token of 5 characters" in check.err
    assert f"{state / 'audit.key'}: found" in check.err
    (state / "api-token").write_text("a-token-of-its-own-0123\n")
    (state / "audit.key").unlink()
    tokens = '[api.tokens.agents]\ntoken = { env = "TOKEN" }\n'
    assert check.of(config(tmp_path, tokens)) == 78
    assert "api.tokens.agents.token: found the value of the first token" in check.err
    (state / "api-token").chmod(0o644)
    assert check.of(config(tmp_path)) == 78
    assert "mode 0600" in check.err


def test_a_state_directory_that_is_none_is_told(check: Check, tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    assert check.of(config(tmp_path)) == 78
    assert "state_dir: found" in check.err
    (tmp_path / "state").unlink()
    (tmp_path / "state").mkdir(mode=0o755)
    assert check.of(config(tmp_path)) == 0
    assert "should be of mode 0700" in check.out


def test_a_place_for_the_socket_is_looked_at(check: Check, tmp_path: Path) -> None:
    api = f'[api]\nlisten = "unix:{tmp_path}/run/api.sock"\n'
    assert check.of(config(tmp_path, api)) == 0
    assert "RuntimeDirectory" in check.out
    (tmp_path / "run").mkdir(mode=0o750)
    assert check.of(config(tmp_path, api)) == 0
    assert "RuntimeDirectory" not in check.out
    (tmp_path / "run" / "api.sock").touch()
    assert check.of(config(tmp_path, api)) == 78
    assert "api.listen: found" in check.err


# ---- what could not be looked at -----------------------------------------------------------------------------------


def test_what_only_the_service_has_is_told_apart_from_what_is_wrong(check: Check) -> None:
    assert check.of(SAMPLE) == 0
    assert "as far as could be looked" in check.out
    assert "not checked: " in check.out
    assert "providers.openai.api_key" in check.out
    assert "LoadCredential=openai-key:FILE" in check.out
    assert f"CREDENTIALS_DIRECTORY=/etc/reconciled/credentials reconciled check --config {check.file}" in check.out


def test_the_command_that_is_told_looks_at_them(check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S40."""
    folder = tmp_path / "credentials"
    folder.mkdir()
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(folder))
    text = SAMPLE.replace("/var/lib/reconciled", str(tmp_path / "state"))
    assert check.of(text) == 78
    assert "providers.openai.api_key: found no such credential" in check.err
    assert "providers.openai.webhook_secrets[0]: found no such credential" in check.err
    for name, value in (("openai-key", API_KEY), ("openai-webhook", SECRET)):
        (folder / name).write_text(value)
        (folder / name).chmod(0o400)
    assert check.of(text) == 0
    assert "not checked" not in check.out
    assert API_KEY not in check.out + check.err


def test_a_fault_is_one_also_where_not_all_could_be_looked_at(check: Check) -> None:
    assert check.of(SAMPLE + '\n[api.tokens.x]\ntoken = { credential = "x" }\nmay = ["all"]\n') == 78
    assert "api.tokens.x.may[0]: found 'all'" in check.err
    assert "not checked: " in check.err


@pytest.mark.parametrize("command", ["check", "serve"])
@pytest.mark.parametrize(
    "what", ["a pipe", "a device", "a large file", "a long key", "a very long key", "a deep table", "deep lists"]
)
def test_what_is_no_configuration_ends_at_once_with_one_sentence(tmp_path: Path, command: str, what: str) -> None:
    file = tmp_path / "reconciled.toml"
    match what:
        case "a pipe":
            os.mkfifo(file)
        case "a device":
            file = Path("/dev/zero")
        case "a large file":
            file.write_text("# " + "x" * given_file.MAX_CONFIGURATION)
        case "a long key":
            file.write_text("a" + ".a" * 100 + " = 1")
        case "a very long key":
            file.write_text("a" + " . 'a'" * 100_000 + " = 1")
        case "a deep table":
            file.write_text("[providers" + ".a" * 5_000 + "]\nb = 1")
        case _:
            file.write_text("a = " + "[" * 200 + "]" * 200)
    asked = [sys.executable, "-m", "daemon", command, "--config", str(file)]
    told = subprocess.run(asked, capture_output=True, timeout=30, check=False, cwd=ROOT, text=True)
    assert told.returncode == 78
    assert told.stdout == ""
    assert told.stderr.startswith(f"reconciled: {file}: ")
    assert len(told.stderr.splitlines()) == 1


def test_dots_in_texts_and_comments_are_no_levels(check: Check, tmp_path: Path) -> None:
    dots = "a" + ".a" * 100
    text = f'# {dots}\n[callbacks.a]\nurl = \'https://example.org/{dots}\'\nevents = ["""{dots}"""]\n'
    assert check.of(config(tmp_path, text)) == 78
    assert "callbacks.a.secrets" in check.err
    assert "levels" not in check.err


def test_of_very_many_faults_a_hundred_are_told(check: Check, tmp_path: Path) -> None:
    keys = "\n".join(f"k{i} = 1" for i in range(80_000))
    began = time.monotonic()
    assert check.of(config(tmp_path, f"{keys}\n")) == 78
    assert check.err.count("reconciled: ") == MAX_FAULTS
    assert "There may be more: no more than 100 are looked for at once." in check.err
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("key", ["\\u009b31m", "\\u001b[31m", "a\\u202e.b", "x" * 5000])
def test_no_key_reaches_the_terminal_as_it_is(check: Check, tmp_path: Path, key: str) -> None:
    """S37."""
    assert check.of(config(tmp_path, f'wat = 1\n"{key}" = 1\n[webhooks]\n"{key}" = 1\n')) == 78
    assert check.err.count("an unknown key") == 3
    assert [line for line in check.err.splitlines() if not line.isprintable() or len(line) > 2000] == []


@pytest.mark.parametrize("what", ["a pipe", "a symlink as its lock"])
def test_a_state_directory_that_cannot_be_taken_is_named(tmp_path: Path, what: str) -> None:
    state = tmp_path / "state"
    if what == "a pipe":
        os.mkfifo(state)
    else:
        state.mkdir()
        (state / "lock").symlink_to(tmp_path / "elsewhere")
    file = tmp_path / "reconciled.toml"
    file.write_text(config(tmp_path))
    asked = [sys.executable, "-m", "daemon", "serve", "--config", str(file)]
    told = subprocess.run(asked, capture_output=True, timeout=30, check=False, cwd=ROOT, text=True)
    assert told.returncode == exits.UNAVAILABLE
    named = f"{state}: Not a directory" if what == "a pipe" else f"{state}/lock: a symbolic link, and none is followed"
    assert told.stderr.splitlines()[-1] == f"reconciled: {named}"


def test_a_file_that_this_user_may_not_read_is_no_fault(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "key"
    secret.write_text(API_KEY)
    secret.chmod(0o600)
    original = given_file.read

    def refusing(path: Path, most: int) -> bytes:
        if path == secret:
            raise PermissionError(13, "Permission denied", str(path))
        return original(path, most)

    monkeypatch.setattr(given_file, "read", refusing)
    text = config(tmp_path, provider().replace('{ env = "KEY" }', f'{{ file = "{secret}" }}'))
    assert check.of(text) == 0
    assert "not checked: " in check.out
    assert "Ask again as a user who may read these files." in check.out


def test_an_environment_variable_that_is_not_set_is_a_fault(check: Check) -> None:
    """`serve`, started from here, would end with 78."""
    assert check.of(provider().replace('"KEY"', '"NOT_THERE"')) == 78
    assert "the environment variable NOT_THERE" in check.err


# ---- what a person wants to know -----------------------------------------------------------------------------------


def test_each_provider_is_told_with_its_kind_and_where_its_webhooks_go(check: Check, tmp_path: Path) -> None:
    text = config(
        tmp_path,
        '[webhooks]\npublic_url = "https://hooks.example.com/in/"\n'
        + provider(more='webhook_secrets = [ { env = "HOOK" } ]')
        + provider("bare")
        + provider("claude", "anthropic_batches", "https://api.anthropic.com/v1"),
    )
    assert check.of(text) == 0
    lines = [line.strip() for line in check.out.splitlines()]
    assert "provider     openai: openai_batch at https://api.openai.com/v1, key: env:KEY" in lines
    assert "register its webhooks for https://hooks.example.com/in/webhooks/openai" in lines
    assert "no webhooks: nothing is configured that would prove them; its jobs are polled" in lines
    assert "no webhooks: anthropic_batches has none; its jobs are polled" in lines
    assert check.err == ""


DECLARED = """
[providers.media]
kind = "http"
base_url = "{url}"
headers = {{ Authorization = {{ env = "KEY", prefix = "Bearer " }} }}
{proof}
[providers.media.create]
request = "POST /v1/jobs"
idempotency = "none"
job_id = "$.id"
[providers.media.status]
request = "GET /v1/jobs/{{job_id}}"
state = "$.status"
pending = ["queued"]
succeeded = ["done"]
{more}
"""
WEBHOOK = """
[providers.media.webhook]
scheme = "shared-header"
signature = "header:X-Hook"
job_id = "$.id"
"""


REGISTER = "register its webhooks for https://hooks.example.com/webhooks/media"


def declared(url: str = "https://media.example.com", *, proof: str = "", more: str = "") -> str:
    return DECLARED.format(url=url, proof=proof, more=more)


@pytest.mark.parametrize(
    ("proof", "more", "told"),
    [
        ("", "", "no webhooks: no table `webhook` declares them; its jobs are polled"),
        ("", WEBHOOK, "no webhooks: nothing is configured that would prove them; its jobs are polled"),
        (
            'webhook_token = { env = "HOOK" }',
            WEBHOOK,
            REGISTER,
        ),
        (
            'webhook_token = { credential = "hook" }',
            WEBHOOK,
            f"{REGISTER}, once what proves them is right: see below",
        ),
        (
            'unsafe = ["unsigned_webhooks"]',
            WEBHOOK,
            REGISTER,
        ),
    ],
)
def test_a_declared_provider_is_told_where_its_webhooks_go_or_what_is_missing(
    check: Check, tmp_path: Path, proof: str, more: str, told: str
) -> None:
    hooks = '[webhooks]\npublic_url = "https://hooks.example.com"\n'
    assert check.of(config(tmp_path, hooks + declared(proof=proof, more=more))) == 0
    lines = [line.strip() for line in check.out.splitlines()]
    assert "provider     media: http at https://media.example.com, key: env:KEY" in lines
    assert told in lines
    assert API_KEY not in check.out + check.err


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('idempotency = "none"', "", ["create.idempotency"]),
        ('idempotency = "none"', "idempotency = { header = 5 }", ["create.idempotency.header"]),
        ("GET /jobs/{job_id}", "GET /jobs/{id}", ["status.request"]),
        ('"header:X-Signature"', '"X-Signature"', ["webhook.signature"]),
        ('scheme = "hmac-sha256"', 'scheme = "hmac"', ["webhook.scheme"]),
        ('succeeded = ["done"]', "succeeded = 7", ["status.succeeded"]),
        ('url = "$.lines"', 'url = "lines"', ["items.url"]),
        ('base = "1s"', 'base = "1 s"', ["poll.base"]),
        # What is wrong in itself is told beside it all the same.
        ('base = "1s"', 'base = "1 s"\nerror_budget = 0', ["poll.base", "poll.error_budget"]),
        ('webhook_secrets = [ { env = "HOOK" } ]', 'webhook_token = { env = "HOOK" }', ["webhook_token"]),
        ('cap = "2s"', 'cap = "1ms"', ["poll.cap"]),
    ],
)
def test_what_only_follows_from_another_fault_is_not_told_as_one(
    check: Check, tmp_path: Path, old: str, new: str, told: list[str]
) -> None:
    right = """
[providers.media]
kind = "http"
base_url = "https://media.example.com"
webhook_secrets = [ { env = "HOOK" } ]
create = { request = "POST /jobs", job_id = "$.id", idempotency = "none" }
[providers.media.status]
request = "GET /jobs/{job_id}"
state = "$.state"
pending = ["busy"]
succeeded = ["done"]
outcome_in_items = ["over"]
[providers.media.items]
url = "$.lines"
hosts = ["files.example.com"]
id = "$.id"
state = "$.state"
succeeded = ["ok"]
[providers.media.webhook]
scheme = "hmac-sha256"
signature = "header:X-Signature"
job_id = "$.id"
[providers.media.poll]
base = "1s"
cap = "2s"
sweep = "3s"
"""
    text = config(tmp_path, right)
    assert (check.of(text), check.err) == (0, "")
    assert old in text
    if old.startswith("idempotency"):
        old, new = (f", {old}", f", {new}" if new else "")
    assert check.of(text.replace(old, new)) == exits.BAD_CONFIGURATION
    places = re.findall(r"^reconciled: \S+: (\S+): found", check.err, re.MULTILINE)
    assert places == [f"providers.media.{place}" for place in told], check.err


def test_what_needs_another_setting_that_is_wrong_is_not_told_of_the_api_and_of_tls(check: Check) -> None:
    assert check.of('[api]\nlisten = "0.0.0.0:8787"\nunsafe = "any_interface"\n') == 78
    assert check.err.count("found") == 1
    assert check.of('[webhooks]\ntls_cert = "/absent"\ntls_key = "/absent"\n') == 78
    assert check.err.count("; expected") == 2, "each of the two, and neither for lack of the other"


def test_a_key_that_is_spelled_wrong_is_told_with_the_one_that_was_meant(check: Check) -> None:
    assert check.of('[caps]\ninputs = "1GiB"\n') == 78
    assert "caps.inputs: found an unknown key (did you mean input?); expected" in check.err
    assert check.of("[caps]\nzzz = 1\n") == 78
    assert "caps.zzz: found an unknown key; expected" in check.err
    assert check.of('[providers.x]\nkind = "openai_batch"\nbase_ulr = "https://h/v1"\n') == 78
    assert "providers.x.base_url: found nothing (or was base_ulr meant to be it?); expected" in check.err


def test_tokens_are_told_with_their_rights_and_without_their_values(check: Check, tmp_path: Path) -> None:
    tokens = '[api.tokens.agents]\ntoken = { env = "TOKEN" }\nmay = ["start", "read"]\n'
    assert check.of(config(tmp_path, tokens)) == 0
    assert "the first token may: everything" in check.out
    assert "token agents may: read, start" in check.out
    assert "a-token-of-its-own" not in check.out


def test_warnings_are_told(check: Check, tmp_path: Path) -> None:
    text = config(tmp_path, '[api]\nlisten = "0.0.0.0:1"\nunsafe = ["any_interface"]\n')
    assert check.of(text + provider(url="http://api.example.com/v1", more="mark_items = true")) == 0
    for event in (
        "any_interface",
        "plain_http (provider openai)",
        "setting_without_effect (provider openai, key mark_items)",
    ):
        assert f"warning      {event}" in check.out
    assert check.of(config(tmp_path)) == 0
    assert "warning      no_providers" in check.out


def test_the_end_of_the_certificate_is_told(check: Check, tmp_path: Path) -> None:
    cert, key = make_pair(tmp_path, days=30)
    text = config(tmp_path, f'[webhooks]\ntls_cert = "{cert}"\ntls_key = "{key}"\n')
    assert check.of(text) == 0
    assert "https://127.0.0.1:8786" in check.out
    assert "its certificate ends at 2026-01-31 00:00 UTC, and is over" in check.out
    cert, key = make_pair(tmp_path)
    assert check.of(text) == 0
    assert "over" not in check.out


def test_check_runs_as_a_command_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("wat = 1")
    command = [sys.executable, "-m", "daemon", "check", "--config", str(tmp_path / "x.toml")]
    told = subprocess.run(command, capture_output=True, timeout=60, check=False, env={**os.environ})
    assert told.returncode == 78
    assert b"wat: found an unknown key" in told.stderr
    assert b"Traceback" not in told.stderr


# ---- one question each ---------------------------------------------------------------------------------------------

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def answering(handler: Handler) -> AsyncIterator[tuple[str, list[web.Request]]]:
    """A provider that answers everything with `handler`; its address and what it was asked."""
    asked: list[web.Request] = []

    async def kept(request: web.Request) -> web.StreamResponse:
        asked.append(request)
        return await handler(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", kept)
    async with TestServer(app) as server:
        yield str(server.make_url("/v1")), asked


def saying(status: int, body: Any = None, **headers: str) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        text = body if isinstance(body, str) else json.dumps(body)
        return web.Response(status=status, text=text, content_type="application/json", headers=headers)

    return handler


LIST = {"object": "list", "data": [], "has_more": False}


@pytest.mark.parametrize(
    ("handler", "told", "status"),
    [
        (saying(200, LIST), "answered", 0),
        (saying(429, {}), "answered", 0),
        (saying(401, {"error": {"message": f"bad key {API_KEY}"}}), "key refused", 1),
        (saying(403, {}), "key refused", 1),
        (saying(404, {}), "unexpected answer", 1),
        (saying(500, {}), "unexpected answer", 1),
        (saying(302, {}, Location="http://127.0.0.1:1/"), "unexpected answer", 1),
        (saying(200, "<html>welcome</html>"), "unexpected answer", 1),
        (saying(200, {"hello": "world"}), "unexpected answer", 1),
    ],
)  # fmt: skip
async def test_a_provider_is_asked_one_page_of_its_list(
    check: Check, tmp_path: Path, handler: Handler, told: str, status: int
) -> None:
    async with answering(handler) as (url, asked):
        assert await check.asking(config(tmp_path, provider(url=url))) == status
    assert f"online       openai: {told} (GET /v1/batches" in check.out
    assert [(request.method, request.path) for request in asked] == [("GET", "/v1/batches")]
    assert asked[0].headers["Authorization"] == f"Bearer {API_KEY}"
    assert API_KEY not in check.out + check.err
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("handler", "told", "status"),
    [
        (saying(404, {"error": "no such job"}), "answered", 0),
        (saying(404, "<html>nothing here</html>"), "answered", 0),
        (saying(410, {}), "answered", 0),
        (saying(429, {}), "answered", 0),
        (saying(200, {"id": probe.NO_JOB, "status": "queued"}), "answered", 0),
        (saying(401, {"error": f"bad key {API_KEY}"}), "key refused", 1),
        (saying(403, {}), "key refused", 1),
        (saying(500, {}), "unexpected answer", 1),
        (saying(302, {}, Location="http://127.0.0.1:1/"), "unexpected answer", 1),
        (saying(200, "<html>welcome</html>"), "unexpected answer", 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "more", ["", '[providers.media.lookup]\nrequest = "GET /v1/jobs?ref={operation_id}"\njob_id = "$[*].id"\n']
)
async def test_a_declared_provider_is_asked_for_a_job_that_cannot_exist(
    check: Check, tmp_path: Path, handler: Handler, told: str, status: int, more: str
) -> None:
    """Also where it has a look-up: that finds one lost create, and is no list."""
    async with answering(handler) as (url, asked):
        assert await check.asking(config(tmp_path, declared(url.removesuffix("/v1"), more=more))) == status
    assert f"online       media: {told} (GET /v1/jobs/{probe.NO_JOB}" in check.out
    assert [(request.method, request.path) for request in asked] == [("GET", f"/v1/jobs/{probe.NO_JOB}")]
    assert asked[0].headers["Authorization"] == f"Bearer {API_KEY}"
    assert API_KEY not in check.out + check.err


async def test_a_declared_provider_that_nobody_answers_for_is_not_reachable(check: Check, tmp_path: Path) -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: whoever connects is refused
        assert await check.asking(config(tmp_path, declared(f"http://127.0.0.1:{taken.getsockname()[1]}"))) == 1
    assert "online       media: not reachable (" in check.out


async def test_each_kind_is_asked_with_its_own_key(check: Check, tmp_path: Path) -> None:
    async with answering(saying(200, {"data": [], "has_more": False})) as (url, asked):
        text = provider(url=url) + provider("claude", "anthropic_batches", url)
        assert await check.asking(config(tmp_path, text)) == 0
    assert "claude: answered" in check.out
    assert [request.path for request in asked] == ["/v1/messages/batches", "/v1/batches"]
    assert asked[0].headers["x-api-key"] == API_KEY


async def test_a_provider_that_is_not_there_is_told(check: Check, tmp_path: Path) -> None:
    with closing(socket.socket()) as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    assert await check.asking(config(tmp_path, provider(url=f"http://127.0.0.1:{port}/v1"))) == 1
    assert "openai: not reachable (GET /v1/batches: no connection)" in check.out


async def test_an_answer_without_end_is_capped(check: Check, tmp_path: Path) -> None:
    async with answering(saying(200, {"data": "x" * 100_000})) as (url, _):
        assert await check.asking(config(tmp_path, '[caps]\nanswer = "64KiB"\n' + provider(url=url))) == 1
    assert "unexpected answer (GET /v1/batches: the answer is too large)" in check.out


async def test_a_provider_whose_key_is_out_of_reach_is_not_asked(check: Check, tmp_path: Path) -> None:
    async with answering(saying(200, LIST)) as (url, asked):
        text = provider(url=url).replace('{ env = "KEY" }', '{ credential = "key" }')
        assert await check.asking(config(tmp_path, text)) == 0
    assert "openai: not asked" in check.out
    assert asked == []


async def test_nobody_is_asked_where_something_is_wrong(check: Check, tmp_path: Path) -> None:
    async with answering(saying(200, LIST)) as (url, asked):
        assert await check.asking(config(tmp_path, "wat = 1\n" + provider(url=url))) == 78
    assert asked == []


@pytest.mark.parametrize(
    ("handler", "told", "status"),
    [
        (saying(404, {}), "answered", 0),
        (saying(410, {}), "answered", 0),
        (saying(400, {}), "answered", 0),
        (saying(422, {}), "answered", 0),
        (saying(401, {}), "key refused", 1),
        (saying(405, {}), "unexpected answer", 1),
        (saying(503, {}), "unexpected answer", 1),
    ],
)  # fmt: skip
async def test_a_provider_without_a_list_is_asked_for_a_job_that_cannot_be(
    check: Check, tmp_path: Path, handler: Handler, told: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a declared provider may have none: not found means reached, and the key taken."""
    without_list(monkeypatch)
    async with answering(handler) as (url, asked):
        assert await check.asking(config(tmp_path, provider(url=url))) == status
    assert f"openai: {told} (GET /v1/batches/{probe.NO_JOB}" in check.out
    assert [request.path for request in asked] == [f"/v1/batches/{probe.NO_JOB}"]


def without_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """The contracts of this process say that no list shows every job."""
    original = probe.ask

    async def ask(peer: Any, *rest: Any) -> Any:
        lookup = replace(peer.provider.contract.lookup, page_size=None)
        peer.provider = provider_for("openai_batch", replace(peer.provider.contract, lookup=lookup))
        return await original(peer, *rest)

    monkeypatch.setattr(probe, "ask", ask)
