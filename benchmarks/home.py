"""The daemon that is measured: `reconciled serve` as a person starts it, with the configuration that a bench needs."""

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.processes import MEASURED, Running, free_port, running, until

TOKEN: Final = "the-token-of-the-benchmarks"
SECRET: Final = "whsec_b7xnJUexacqopxJKYD3e3rj9tavgs+nAat47lc7+BGM="
#: A provider as anyone may declare one: jobs that are read one by one, and deliveries that are signed.
DECLARED: Final = """\
[providers.acme]
kind = "http"
base_url = "http://127.0.0.1:{provider}"
webhook_secrets = [{{ env = "BENCH_SECRET" }}]
[providers.acme.create]
request = "POST /jobs"
idempotency = "none"
job_id = "$.id"
[providers.acme.status]
request = "GET /jobs/{{job_id}}"
state = "$.status"
pending = ["running"]
succeeded = ["succeeded"]
failed = ["failed"]
[providers.acme.webhook]
scheme = "standard"
job_id = "$.data.id"
state = "$.data.status"
"""
#: One whose list is read in place of its jobs.
LISTED: Final = """\
[providers.openai]
kind = "openai_batch"
base_url = "http://127.0.0.1:{provider}/v1"
api_key = {{ env = "BENCH_KEY" }}
webhook_secrets = [{{ env = "BENCH_SECRET" }}]
"""
_FRAME: Final = """\
state_dir = "{state_dir}"
[webhooks]
listen = "127.0.0.1:{hooks}"
[api]
listen = "127.0.0.1:{api}"
token = {{ env = "BENCH_TOKEN" }}
"""


@dataclass(frozen=True, slots=True)
class Home:
    """Where one daemon lives. `providers` is the rest of its configuration, with {provider} for the provider's port."""

    folder: Path
    providers: str
    provider_port: int
    hooks: int = field(default_factory=free_port)
    api: int = field(default_factory=free_port)

    @property
    def state_dir(self) -> Path:
        """The state directory."""
        return self.folder / "state"

    @property
    def database(self) -> Path:
        """The one file that everything stands in."""
        return self.state_dir / "reconciled.db"

    @property
    def wal(self) -> Path:
        """Its write-ahead log."""
        return self.state_dir / "reconciled.db-wal"

    @property
    def log(self) -> Path:
        """What the daemon prints."""
        return self.folder / "log"

    @property
    def api_url(self) -> str:
        """The local API."""
        return f"http://127.0.0.1:{self.api}"

    def configure(self) -> Path:
        """Write the configuration file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = (_FRAME + self.providers).format(
            state_dir=self.state_dir, hooks=self.hooks, api=self.api, provider=self.provider_port
        )
        path = self.folder / "reconciled.toml"
        path.write_text(text, encoding="utf-8")
        return path

    def get(self, path: str) -> Any:
        """What the local API answers."""
        return self._ask(urllib.request.Request(self.api_url + path))

    def post(self, path: str, body: Any) -> Any:
        """What the local API answers to a body."""
        return self._ask(urllib.request.Request(self.api_url + path, data=json.dumps(body).encode()))

    def _ask(self, request: urllib.request.Request) -> Any:
        request.add_header("Authorization", f"Bearer {TOKEN}")
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def is_ready(self) -> bool:
        """Whether it serves."""
        try:
            self.get("/readyz")
        except urllib.error.URLError:
            return False
        return True


@contextmanager
def daemon(
    home: Home,
    *,
    env: Mapping[str, str] | None = None,
    before: Sequence[str] = (),
    module: str = "daemon",
    seconds: float = 60,
) -> Iterator[Running]:
    """The daemon on its own core, ready to serve, until the block ends. `before`: a command that starts it."""
    argv = [*before, sys.executable, "-m", module, "serve", "--config", str(home.configure())]
    secrets = {"BENCH_TOKEN": TOKEN, "BENCH_SECRET": SECRET, "BENCH_KEY": "sk-of-the-benchmarks"}
    with running(argv, port=home.api, log=home.log, core=MEASURED, env={**secrets, **(env or {})}) as process:
        until(home.is_ready, what="the daemon to be ready", seconds=seconds)
        yield process
