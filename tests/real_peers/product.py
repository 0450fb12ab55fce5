"""The `reconciled` process as its users have it: the installed command, a configuration file, HTTP from outside.

Imports nothing of the product: what is checked here is its outer face.
"""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.real_peers import peers

#: How long the daemon may take until `/readyz` answers 200, seconds; arbitrary, it takes about one.
READY_SECONDS: Final = 60.0

KEY_VARIABLE: Final = "REAL_PEERS_OGX_KEY"
SECRET_VARIABLE: Final = "REAL_PEERS_WEBHOOK_SECRET"

#: Accounts at the same peer, three of each shape: one is polled every second or two, one so rarely that only a ring or
#: a cancel brings the end in time, and one so that a restart of the peer costs it only a few reads.
POLLED: Final = "ogx"
RUNG: Final = "ogx_rung"
MESSAGES: Final = "ogx_messages"
MESSAGES_RARELY: Final = "ogx_messages_rarely"
RARE_BASE_SECONDS: Final = 600
PATIENT: Final = "ogx_patient"
MESSAGES_PATIENT: Final = "ogx_messages_patient"


@dataclass(frozen=True)
class Answer:
    """One HTTP answer; `body` is parsed where it is JSON."""

    status: int
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True)
class Product:
    """A running `reconciled serve`."""

    api: str
    hooks: str
    state_dir: Path
    log: Path
    process: "subprocess.Popen[bytes]"

    @property
    def token(self) -> str:
        """The token it made on its first start."""
        return (self.state_dir / "api-token").read_text().strip()

    def call(self, method: str, path: str, body: object = None, *, timeout: float = 30) -> Answer:
        """One call of the local API, with the token."""
        headers = {"authorization": f"Bearer {self.token}"}
        raw = None
        if body is not None:
            raw = json.dumps(body).encode()
            headers["content-type"] = "application/json"
        return send(method, self.api + path, raw, headers, timeout=timeout)

    def deliver(self, provider: str, body: str, headers: Mapping[str, str]) -> Answer:
        """One delivery at the webhook listener."""
        return send("POST", f"{self.hooks}/webhooks/{provider}", body.encode(), headers)


@contextmanager
def running_product(directory: Path, ogx_url: str, secret: str, *, patience: int) -> Iterator[Product]:
    """`reconciled serve` on a fresh state directory, ready; ended on the way out.

    `patience`: seconds between two polls of the patient accounts.

    Raises: peers.PeerMissingError where it is not installed beside this Python or does not get ready.
    """
    command = Path(sys.executable).with_name("reconciled")
    if not command.exists():
        raise peers.PeerMissingError(f"{command} is not there: install the project into the environment that runs this")
    directory.mkdir(parents=True, exist_ok=True)
    state_dir = directory / "state"
    api, hooks = f"127.0.0.1:{peers.free_port()}", f"127.0.0.1:{peers.free_port()}"
    config = directory / "reconciled.toml"
    config.write_text(configuration(state_dir, api, hooks, ogx_url, patience))
    log = directory / "reconciled.log"
    environment = {**os.environ, KEY_VARIABLE: "not-a-secret", SECRET_VARIABLE: secret}
    with peers.running([str(command), "serve", "--config", str(config)], log, environment, directory) as process:
        product = Product(f"http://{api}", f"http://{hooks}", state_dir, log, process)
        _wait_until_ready(product)
        yield product


def configuration(state_dir: Path, api: str, hooks: str, ogx_url: str, patience: int) -> str:
    """The whole configuration file."""
    often = 'base = "1s"\ncap = "2s"'
    rarely = f'base = "{RARE_BASE_SECONDS}s"\ncap = "{2 * RARE_BASE_SECONDS}s"\nsweep = "{2 * RARE_BASE_SECONDS}s"'
    patiently = f'base = "{patience}s"\ncap = "{patience + 1}s"'
    secrets = f'webhook_secrets = [ {{ env = "{SECRET_VARIABLE}" }} ]'
    accounts = (
        (POLLED, "openai_batch", often, secrets),
        (RUNG, "openai_batch", rarely, secrets),
        (MESSAGES, "anthropic_batches", often, ""),
        (MESSAGES_RARELY, "anthropic_batches", rarely, ""),
        (PATIENT, "openai_batch", patiently, secrets),
        (MESSAGES_PATIENT, "anthropic_batches", patiently, ""),
    )
    head = f"""\
state_dir = {json.dumps(str(state_dir))}

[webhooks]
listen = "{hooks}"

[api]
listen = "{api}"
"""
    return head + "".join(
        f"""
[providers.{name}]
kind = "{kind}"
base_url = {json.dumps(ogx_url)}
api_key = {{ env = "{KEY_VARIABLE}" }}
{proof}

[providers.{name}.poll]
{poll}

[providers.{name}.limits]
requests_per_second = 20
concurrency = 8
"""
        for name, kind, poll, proof in accounts
    )


def _wait_until_ready(product: Product) -> None:
    deadline = time.monotonic() + READY_SECONDS
    last = "no api-token yet"
    while time.monotonic() < deadline:
        if product.process.poll() is not None:
            raise peers.PeerMissingError(
                f"reconciled ended with {product.process.returncode} before it was ready:\n{peers.tail(product.log)}"
            )
        try:
            answer = product.call("GET", "/readyz", timeout=5)
            if answer.status == 200:
                return
            last = f"/readyz: {answer.status} {answer.body!r}"
        except OSError as error:  # no token file or no listener yet
            last = str(error)
        time.sleep(0.1)
    raise peers.PeerMissingError(
        f"reconciled was not ready within {READY_SECONDS:.0f} s ({last}):\n{peers.tail(product.log)}"
    )


def send(method: str, url: str, body: bytes | None, headers: Mapping[str, str], *, timeout: float = 30) -> Answer:
    """One HTTP request; every status is an answer, only a broken connection is an OSError."""
    request = urllib.request.Request(url, data=body, method=method, headers=dict(headers))
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return _answer(response.status, response.headers, response.read())
    except urllib.error.HTTPError as error:
        with error:
            return _answer(error.code, error.headers, error.read())


def _answer(status: int, headers: Any, raw: bytes) -> Answer:
    body: Any
    try:
        body = json.loads(raw)
    except ValueError:
        body = raw.decode(errors="replace")
    return Answer(status, {name.lower(): value for name, value in headers.items()}, body)
