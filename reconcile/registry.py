"""Every provider kind that a configuration may name: one explicit tuple, no discovery. One line adds a kind."""

from collections import Counter
from collections.abc import Callable
from typing import Final

from reconcile.contract import Contract
from reconcile.provider import Provider
from reconcile.providers.anthropic_batches.adapter import AnthropicBatches
from reconcile.providers.anthropic_batches.contract import CONTRACT as ANTHROPIC_BATCHES
from reconcile.providers.openai_batch.adapter import OpenAIBatch
from reconcile.providers.openai_batch.contract import CONTRACT as OPENAI_BATCH

#: Each kind as (its own contract, how an adapter is made of a contract).
_PROVIDERS: Final[tuple[tuple[Contract, Callable[[Contract], Provider]], ...]] = (
    (OPENAI_BATCH, OpenAIBatch),
    (ANTHROPIC_BATCHES, AnthropicBatches),
)

#: The kinds, in the order of the tuple.
KINDS: Final = tuple(contract.kind for contract, _ in _PROVIDERS)

_doubled = [kind for kind, times in Counter(KINDS).items() if times > 1]
if _doubled:
    raise RuntimeError(f"provider kinds registered twice: {', '.join(_doubled)}")


def provider_for(kind: str, contract: Contract | None = None) -> Provider:
    """The adapter of a kind, with its own contract or one that configuration made of it. Raises: KeyError."""
    for own, make in _PROVIDERS:
        if own.kind == kind:
            return make(own if contract is None else contract)
    raise KeyError(kind)
