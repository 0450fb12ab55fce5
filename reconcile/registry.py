"""Every provider kind that a configuration may name: one explicit tuple, no discovery. One line adds a kind.

All but one have a contract of their own. What a declared provider (`http`) is stands in the configuration alone:
without its declaration it has a contract that knows nothing.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from reconcile.contract import Contract
from reconcile.provider import Provider
from reconcile.providers.anthropic_batches.adapter import AnthropicBatches
from reconcile.providers.anthropic_batches.contract import CONTRACT as ANTHROPIC_BATCHES
from reconcile.providers.http.adapter import declared
from reconcile.providers.http.contract import KIND as DECLARED_KIND
from reconcile.providers.http.contract import UNDECLARED, contract_of
from reconcile.providers.http.declaration import Declaration
from reconcile.providers.openai_batch.adapter import OpenAIBatch
from reconcile.providers.openai_batch.contract import CONTRACT as OPENAI_BATCH

#: Each kind as (its own contract, how an adapter is made of a contract and what was declared).
_PROVIDERS: Final[tuple[tuple[Contract, Callable[[Contract, Declaration | None], Provider]], ...]] = (
    (OPENAI_BATCH, lambda contract, _: OpenAIBatch(contract)),
    (ANTHROPIC_BATCHES, lambda contract, _: AnthropicBatches(contract)),
    (UNDECLARED, declared),
)

#: The kind that is what its configuration declares.
DECLARED: Final = DECLARED_KIND
#: The kinds, in the order of the tuple.
KINDS: Final = tuple(contract.kind for contract, _ in _PROVIDERS)

_doubled = [kind for kind, times in Counter(KINDS).items() if times > 1]
if _doubled:
    raise RuntimeError(f"provider kinds registered twice: {', '.join(_doubled)}")


def provider_for(kind: str, contract: Contract | None = None, declaration: Declaration | None = None) -> Provider:
    """The adapter of a kind, with its own contract or one that configuration made of it. Raises: KeyError.

    `declaration`: what a declared provider is; its own contract follows from it.
    """
    for own, make in _PROVIDERS:
        if own.kind == kind:
            of_the_kind = own if declaration is None else contract_of(declaration)
            return make(of_the_kind if contract is None else contract, declaration)
    raise KeyError(kind)
