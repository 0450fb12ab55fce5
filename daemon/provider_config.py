"""One `[providers.NAME]` of the configuration: its contract with the operator's own numbers, its place, its proofs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from yarl import URL

from daemon import declared_config, secret_headers, webhook_proof
from daemon.addresses import address
from daemon.sections import Section
from reconcile.contract import Contract
from reconcile.given import spelled
from reconcile.provider import Provider
from reconcile.registry import DECLARED, KINDS, provider_for
from reconcile.signatures import Key

#: Looks at a job within the time for which its provider keeps the results. 4: arbitrary; one of them may fail.
LOOKS_WHILE_KEPT: Final = 4


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """One `[providers.NAME]`: its adapter with the operator's own numbers, its place, its proofs."""

    name: str
    provider: Provider
    base_url: URL
    credentials: Mapping[str, str] = field(repr=False)
    credential_name: str | None
    webhook_keys: tuple[Key, ...] = field(repr=False)
    #: Whether its kind, or what is declared of it, has webhooks: proven, so that they are taken, or not.
    has_webhooks: bool = False
    #: Keys that the kind takes and has no use for.
    idle_keys: tuple[str, ...] = ()
    #: Keys whose secrets are so short that they could be guessed.
    short_secrets: tuple[str, ...] = ()
    #: Earlier addresses of the same account: operations that were started there are asked about at `base_url`.
    moved_from: tuple[URL, ...] = ()


def provider_config(name: str, section: Section, attention_ms: int | None) -> ProviderConfig:
    """The typed table. Raises: ConfigError, for the first fault found."""
    kind = section.text("kind")
    if kind not in KINDS:
        raise section.fault("kind", repr(kind), f"one of {', '.join(KINDS)}")
    create = section.section("create")
    said = declared_config.declaration(section, create) if kind == DECLARED else None
    contract = provider_for(kind, declaration=said).contract
    credentials, credential_name = secret_headers.read(section, contract)
    proof = webhook_proof.read(section, contract)
    adopt, marks_items = create.choice("adopt", "ask", "by_count"), section.flag("mark_items")
    tuned = _creating(_tuned(contract, section, attention_ms), create, adopt=adopt, marks_items=marks_items)
    return ProviderConfig(
        name=name,
        # Nothing can be proven without a key, so no delivery is taken, and an end without one was not missed.
        provider=provider_for(kind, replace(tuned, webhook=proof.terms), said),
        base_url=address(section, "base_url", section.text("base_url")),
        moved_from=tuple(address(section, path, text) for path, text in section.texts("moved_from")),
        credentials=credentials,
        credential_name=credential_name,
        webhook_keys=proof.keys,
        has_webhooks=contract.webhook is not None,
        short_secrets=proof.short,
        idle_keys=_idle_keys(contract, adopt=adopt, marks_items=marks_items),
    )


def _tuned(contract: Contract, section: Section, attention_ms: int | None) -> Contract:
    """The contract with the operator's numbers in place of its sourced defaults."""
    poll, limits = section.section("poll"), section.section("limits")
    base = poll.duration_ms("base", contract.poll.base_ms)
    cap = poll.duration_ms("cap", max(contract.poll.cap_ms, base or 0))
    sweep = poll.duration_ms("sweep", max(contract.poll.sweep_ms, cap or 0))
    error_budget = poll.whole("error_budget", contract.poll.error_budget)
    deadline = poll.duration_ms("deadline", contract.result_within_ms)
    poll.refuse_unknown()  # first: a misspelt `base` must not be told as a cap below the default base
    if not (base and cap and sweep) or not base <= cap <= sweep:
        found = f"base {spelled(base)}, cap {spelled(cap)}, sweep {spelled(sweep)}"
        raise poll.at_odds("cap", found, "base <= cap <= sweep", "base", "cap", "sweep")
    kept = contract.results_kept_ms
    if kept is not None and sweep > kept // LOOKS_WHILE_KEPT:
        # J7: an end must be seen while its results can still be fetched.
        most = spelled(kept // LOOKS_WHILE_KEPT)
        expected = f"{most} at most: a quarter of the {spelled(kept)} for which results are kept"
        raise poll.at_odds("sweep", spelled(sweep), expected, "base", "cap", "sweep", poll.beside("result"))
    rate = limits.number("requests_per_second", contract.limits.requests_per_second)
    concurrency = limits.whole("concurrency", contract.limits.concurrency)
    return replace(
        contract,
        poll=replace(
            contract.poll,
            base_ms=base,
            cap_ms=cap,
            sweep_ms=sweep,
            error_budget=error_budget,
        ),
        result_within_ms=deadline,
        limits=replace(contract.limits, requests_per_second=rate, concurrency=concurrency),
        attention_within_ms=attention_ms or contract.attention_within_ms,
    )


def _creating(contract: Contract, create: Section, *, adopt: str, marks_items: bool) -> Contract:
    """The contract with what the operator allows for a lost create (B2)."""
    settle_ms = create.duration_ms("settle", contract.settle_ms)
    return replace(
        contract,
        on_absent="resend" if create.choice("on_absent", "ask", "resend") == "resend" else "ask",
        adopt="by_count" if adopt == "by_count" else "ask",
        create_within_ms=create.duration_ms("within", contract.create_within_ms),
        lookup=None if contract.lookup is None else replace(contract.lookup, lag_ms=settle_ms),
        item_marks="on" if marks_items and contract.item_marks != "needless" else contract.item_marks,
    )


def _idle_keys(contract: Contract, *, adopt: str, marks_items: bool) -> tuple[str, ...]:
    """What is meant for kinds whose jobs nothing marks, and set for one whose are."""
    is_sure = contract.lookup is not None and contract.lookup.is_sure
    keys = ["create.adopt"] if adopt == "by_count" and is_sure else []
    return (*keys, *(["mark_items"] if marks_items and contract.item_marks == "needless" else []))
