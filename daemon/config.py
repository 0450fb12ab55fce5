"""TOML to a frozen configuration, each fault told with file, full key path, what was found and what was expected."""

import ipaddress
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from daemon.provider_config import ProviderConfig, provider_config
from daemon.sections import Section, Sources
from reconcile.checkpoint import AuditKey
from reconcile.errors import ConfigError, SecretInvalid
from reconcile.given import spelled

#: How long ended operations are kept, ms. 90 d: interface's default.
FINISHED_MS: Final = 90 * 86_400_000
#: And at least so long, ms. A day, arbitrary: who writes "90m" for "90d" would lose months at the next start.
MIN_FINISHED_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Listener:
    """A host and port to listen on; port 0 lets the system choose."""

    host: str
    port: int

    @classmethod
    def read(cls, text: str) -> "Listener | None":
        """`HOST:PORT` or `[HOST]:PORT`; None where it is neither."""
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isascii() or not port.isdigit() or len(port) > 5 or int(port) > 65535:
            return None
        return cls(host, int(port))


@dataclass(frozen=True, slots=True)
class CapsConfig:
    """Sizes in bytes beyond which bytes are not taken."""

    start_body: int
    input: int
    answer: int
    result: int
    line: int


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration, typed; nothing in it is read again later."""

    file: str
    state_dir: Path
    webhooks: Listener
    public_url: str | None
    max_body: int
    api: Listener
    api_token: str | None = field(repr=False)
    caps: CapsConfig
    #: What waits for a person ends by itself after this, ms; None: what the contract says.
    attention_within_ms: int | None
    providers: Mapping[str, ProviderConfig]
    #: How long ended operations are kept, ms.
    finished_ms: int
    #: What signs checkpoints; None: a key of the daemon's own, in the state directory.
    audit_key: AuditKey | None = field(repr=False)
    #: Every secret that was read, so that none reaches a log or the database.
    secrets: tuple[str, ...] = field(repr=False)


def load(file: Path, environ: Mapping[str, str]) -> Config:
    """Read and check a configuration file. Raises: ConfigError."""
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as fault:
        raise ConfigError(str(file), "", fault.strerror or str(fault), "a readable TOML file") from fault
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise ConfigError(str(file), "", str(fault), "valid TOML in UTF-8") from fault
    return parse(document, environ, file=str(file))


def warnings_of(config: Config) -> Iterator[tuple[str, dict[str, str]]]:
    """What may be meant and is worth a line at the start: a log event and its fields."""
    if not config.providers:
        yield "no_providers", {"file": config.file, "hint": "no operation can be started before one is configured"}
    for name, provider in sorted(config.providers.items()):
        if provider.base_url.scheme == "http" and not _is_loopback(provider.base_url.host or ""):
            yield "plain_http", {"provider": name, "hint": "the API key and every answer cross the network unencrypted"}
        for key in provider.idle_keys:
            hint = f"{provider.provider.contract.kind} finds its lost creates without it"
            yield "setting_without_effect", {"provider": name, "key": key, "hint": hint}


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def parse(document: Mapping[str, Any], environ: Mapping[str, str], *, file: str) -> Config:
    """The typed configuration. Raises: ConfigError, for the first fault found."""
    sources = Sources(file, environ)
    top = Section(document, "", sources)
    state_dir = Path(top.text("state_dir", environ.get("STATE_DIRECTORY") or "reconciled-state"))
    webhooks = top.section("webhooks")
    api = top.section("api")
    caps = top.section("caps")
    attention_ms = top.section("attention").duration_ms("within", None)
    config = Config(
        file=file,
        state_dir=state_dir,
        webhooks=_listener(webhooks, "127.0.0.1:8786"),
        public_url=webhooks.text_or_none("public_url"),
        max_body=webhooks.size("max_body", "1MiB"),
        api=_listener(api, "127.0.0.1:8787", must_be_local=True),
        api_token=api.secret_or_none("token", base=state_dir),
        caps=CapsConfig(
            start_body=caps.size("start_body", "10MiB"),
            input=caps.size("input", "1GiB"),
            answer=caps.size("answer", "16MiB"),
            result=caps.size("result", "16GiB"),
            line=caps.size("line", "64MiB"),
        ),
        attention_within_ms=attention_ms,
        providers={name: provider_config(name, section, attention_ms) for name, section in top.sections("providers")},
        finished_ms=_finished_ms(top.section("retention")),
        audit_key=audit_key(top.section("audit"), state_dir),
        secrets=(),
    )
    top.refuse_unknown()
    return replace(config, secrets=tuple(sources.secrets))


def _finished_ms(section: Section) -> int:
    span: int = section.duration_ms("finished", FINISHED_MS)
    if span < MIN_FINISHED_MS:
        raise section.fault("finished", spelled(span), f"{spelled(MIN_FINISHED_MS)} at least: what is let go is gone")
    return span


def audit_key(section: Section, state_dir: Path) -> AuditKey | None:
    """The configured key; None where there is none, and the daemon makes one of its own. Raises: ConfigError."""
    pem = section.pem_or_none("key", base=state_dir)
    try:
        return None if pem is None else AuditKey.read(pem)
    except SecretInvalid as fault:
        raise section.fault("key", str(fault), "an Ed25519 private key in PEM form") from fault


def _listener(section: Section, default: str, *, must_be_local: bool = False) -> Listener:
    value = section.text("listen", default)
    listener = Listener.read(value)
    if listener is None:
        raise section.fault("listen", repr(value), "HOST:PORT, such as 127.0.0.1:8787")
    if must_be_local and listener.host not in ("127.0.0.1", "::1", "localhost"):
        raise section.fault("listen", repr(value), "a loopback address: the local API is not for the network")
    return listener
