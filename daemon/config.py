"""TOML to a frozen configuration, each fault told with file, full key path, what was found and what was expected."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from daemon.addresses import Listener, SocketPath, address, listener
from daemon.api_config import api_place, first_token, named_tokens
from daemon.callback_config import callback_config
from daemon.document import read_document, state_dir_of
from daemon.provider_config import ProviderConfig, provider_config
from daemon.sections import Section, Sources
from daemon.tls import Tls, tls
from handlers.access import Token
from reconcile.addresses import is_loopback
from reconcile.callback import Callback
from reconcile.checkpoint import AuditKey
from reconcile.errors import SecretInvalid
from reconcile.given import spelled

#: How long ended operations are kept, ms. 90 d: interface's default.
FINISHED_MS: Final = 90 * 86_400_000
#: And at least so long, ms. A day, arbitrary: who writes "90m" for "90d" would lose months at the next start.
MIN_FINISHED_MS: Final = 86_400_000


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
    #: What the webhook listener shows of itself; None: it speaks plain HTTP, and TLS stands in front.
    tls: Tls | None
    public_url: str | None
    max_body: int
    api: Listener | SocketPath
    #: Keys that stand there and change nothing.
    idle_keys: tuple[str, ...]
    api_token: str | None = field(repr=False)
    #: Further tokens, by name.
    api_tokens: tuple[Token, ...]
    caps: CapsConfig
    #: What waits for a person ends by itself after this, ms; None: what the contract says.
    attention_within_ms: int | None
    providers: Mapping[str, ProviderConfig]
    callbacks: Mapping[str, Callback]
    #: How long ended operations are kept, ms.
    finished_ms: int
    #: What signs checkpoints; None: a key of the daemon's own, in the state directory.
    audit_key: AuditKey | None = field(repr=False)
    #: Every secret that was read, so that none reaches a log or the database.
    secrets: tuple[str, ...] = field(repr=False)


def load(file: Path, environ: Mapping[str, str]) -> Config:
    """Read and check a configuration file. Raises: ConfigError."""
    return parse(read_document(file), environ, file=str(file))


def warnings_of(config: Config) -> Iterator[tuple[str, dict[str, str]]]:
    """What may be meant and is worth a line at the start: a log event and its fields."""
    if isinstance(config.api, Listener) and not is_loopback(config.api.host):
        hint = "the token and all that is asked and answered cross the network unencrypted: put TLS in front"
        yield "any_interface", {"listen": str(config.api), "hint": hint}
    for key in config.idle_keys:
        yield "setting_without_effect", {"key": key, "hint": f"{config.api} is on this machine"}
    if not config.providers:
        yield "no_providers", {"file": config.file, "hint": "no operation can be started before one is configured"}
    for name, provider in sorted(config.providers.items()):
        if provider.base_url.scheme == "http" and not is_loopback(provider.base_url.host or ""):
            yield "plain_http", {"provider": name, "hint": "the API key and every answer cross the network unencrypted"}
        for key in provider.short_secrets:
            yield "short_secret", {"provider": name, "key": key, "hint": "it could be guessed: ask for a longer one"}
        if provider.provider.contract.webhook is not None and not provider.webhook_keys:
            yield "unsigned_webhooks", {"provider": name, "hint": "anybody who reaches the listener can ring"}
        for key in provider.idle_keys:
            hint = f"{provider.provider.contract.kind} finds its lost creates without it"
            yield "setting_without_effect", {"provider": name, "key": key, "hint": hint}
    for name, callback in sorted(config.callbacks.items()):
        if callback.url.scheme == "http" and not is_loopback(callback.url.host or ""):
            yield "plain_http", {"callback": name, "hint": "what an operation came to crosses the network unencrypted"}


def _public_url(webhooks: Section) -> str | None:
    text = webhooks.text_or_none("public_url")
    return None if text is None else str(address(webhooks, "public_url", text)).rstrip("/")


def parse(document: Mapping[str, Any], environ: Mapping[str, str], *, file: str) -> Config:
    """The typed configuration. Raises: ConfigError, for the first fault found."""
    sources = Sources(file, environ)
    top = Section(document, "", sources)
    state_dir = state_dir_of(top, environ)
    webhooks = top.section("webhooks")
    api = top.section("api")
    (place, idle_keys), token = api_place(api), first_token(api, state_dir)
    caps = top.section("caps")
    attention_ms = top.section("attention").duration_ms("within", None)
    config = Config(
        file=file,
        state_dir=state_dir,
        webhooks=listener(webhooks, "127.0.0.1:8786"),
        tls=tls(webhooks),
        public_url=_public_url(webhooks),
        max_body=webhooks.size("max_body", "1MiB"),
        api=place,
        idle_keys=idle_keys,
        api_token=token,
        api_tokens=named_tokens(api, state_dir, token),
        caps=CapsConfig(
            start_body=caps.size("start_body", "10MiB"),
            input=caps.size("input", "1GiB"),
            answer=caps.size("answer", "16MiB"),
            result=caps.size("result", "16GiB"),
            line=caps.size("line", "64MiB"),
        ),
        attention_within_ms=attention_ms,
        providers={name: provider_config(name, section, attention_ms) for name, section in top.sections("providers")},
        callbacks={name: callback_config(name, section) for name, section in top.sections("callbacks")},
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
