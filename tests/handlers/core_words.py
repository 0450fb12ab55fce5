"""What the core tells people and agents, made by its own functions: notices, effects of decisions, refused wishes."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from reconcile import absence, health, notices
from reconcile.absence import OpenAt, Served
from reconcile.contract import Contract
from reconcile.decide import decide
from reconcile.decisions import Decision, job_held_by, open_to
from reconcile.desk import unknown_provider
from reconcile.evidence import CancelAsked, Evidence, InputAsked, PersonDecided
from reconcile.intents import CancelIntent
from reconcile.limits import NOT_ACCEPTED, Pause
from reconcile.model import Attention, Operation, ResultInfo, Summary, Verdict, VerdictKind
from reconcile.notice import Notice
from reconcile.registry import provider_for
from reconcile.states import State
from tests.handlers.ground import NOON
from tests.handlers.test_operations_api import DONE, STATUS, in_state

_CONTRACT: Final[Contract] = provider_for("openai_batch").contract
_DAY: Final = 86_400_000
_SERVED: Final = Served({"a": frozenset({"https://api.example"})})
_RESULT: Final = ResultInfo(attempt=1, bytes=1, sha256="0" * 64, content_type="text/plain", items=1)
_CONTRACTS: Final = (
    _CONTRACT,
    replace(_CONTRACT, lookup=None, idempotency="none"),
    replace(_CONTRACT, idempotency="replays"),
    replace(_CONTRACT, cancel=None),
    replace(_CONTRACT, takes_input=True),
)


def all_notices(text: str) -> list[Notice]:
    """One of each; `text` wherever a provider may have the word."""
    kept: dict[str, Any] = {"results_kept_until": NOON + _DAY, "remote_job_id": text}
    collecting = in_state("result_collecting", **kept)
    delivery = {
        "delivery_id": "d", "callback": "ci", "type": "operation.done", "attempts": 8, "last_error": "http_500"
    }  # fmt: skip
    found = [
        *(
            notices.of_pause("openai", Pause(NOON + _DAY, reason, 3, NOON), NOON)
            for reason in ("credentials_refused", NOT_ACCEPTED, "rate_limited")
        ),
        notices.of_result(collecting, NOON),
        notices.of_result(collecting, NOON + _DAY),
        notices.of_silence("openai", health.MISSED * 5, NOON),
        notices.of_disk(0, NOON),
        notices.of_clock(6_000, NOON),
        notices.of_clock(-6_000, NOON),
        notices.of_contradiction("op_1", text, NOON),
        notices.of_given_up("op_1", [delivery], NOON),
        notices.of_given_up("op_1", [delivery, delivery], NOON),
        *absence.notices(_SERVED, [OpenAt("a", "https://old.example", 2), OpenAt("b", None, 1)], now=NOON),
    ]
    assert None not in found
    return [each for each in found if each is not None]


def all_effects() -> list[tuple[Decision, str]]:
    """What each decision promises, with whatever may be added to it, each text once."""
    told: dict[tuple[Decision, str], None] = {}
    for op, contract in itertools.product(_asking(), _CONTRACTS):
        told.update(dict.fromkeys((offer.decision, offer.effect) for offer in open_to(op, contract)))
    return sorted(told, key=lambda each: (list(Decision).index(each[0]), each[1]))


def forms_of_refusal() -> list[str]:
    """The same, each sentence once, whatever is decided, is open, or has ended how."""
    word, words = f"(?:{'|'.join(Decision)})", f"(?:{'|'.join(map(re.escape, DONE))})"
    forms: dict[str, None] = {}
    for told in all_refused("completed"):
        form = re.sub(f"^{word} ", "{decision} ", told)
        form = re.sub(f"open are {word}(?:, {word})*$", "open are {decisions}", form)
        forms[re.sub(f" as {words}\\b", " as {end}", form)] = None
    return list(forms)


def all_refused(text: str) -> list[str]:
    """Why a cancel, an input or a decision is not taken, each once; `text` where a provider has the word."""
    wishes: list[Evidence] = [
        CancelAsked("can_1", "ana", "r", "e"),
        InputAsked("inp_1", "ana"),
        *(PersonDecided("dec_1", each, "ana", "r", job) for each in Decision for job in (None, "batch_9")),
    ]
    told: dict[str, None] = {}
    for state, contract, wish in itertools.product(STATUS, _CONTRACTS, wishes):
        op = in_state(
            state, verdict=Verdict(VerdictKind.DONE_UNKNOWN_OUTCOME, text), remote_job_id=text, candidates=(text, "b")
        )
        change = decide(op, contract, wish, now=NOON, draw=0.0, cause="")
        told.update(dict.fromkeys([change.refusal] if change.refusal is not None else []))
    return [*told, job_held_by(text, "op_2"), unknown_provider("gone")]


def _asking() -> Iterator[Operation]:
    cancels = (
        None,
        CancelIntent("can_1", "ana", "r", "e", NOON),
        CancelIntent("can_1", "ana", "r", "e", NOON, "accepted"),
    )
    verdicts = (VerdictKind.DONE_UNKNOWN_OUTCOME, VerdictKind.CANCELLED, VerdictKind.FAILED)
    for state, cancel, kind in itertools.product(STATUS, cancels, verdicts):
        if STATUS[state] == "blocked":
            op = in_state(state, cancel=cancel, verdict=Verdict(kind, "w"), result=_RESULT)
            yield op
            yield replace(op, summary=Summary(total=3, succeeded=2, failed=1))
            if op.state is State.OBSERVATION_FAILED:
                yield replace(op, attention=Attention("provider_missing", NOON, "why"))
