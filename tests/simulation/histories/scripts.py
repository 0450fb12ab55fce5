"""How each job of a world goes and what each provider of it can do: drawn from the seed before anything runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tests.simulation.seams import SeededDice

Cancels = Literal["heeds", "comes_late", "never_ends", "refuses", "forgets"]
Tells = Literal["once", "lost", "twice", "often", "late", "early", "reversed", "other_content"]
#: What is done to the items of a result that is fetched.
Spoils = Literal["", "missing", "double", "strange"]
AtOnce = Literal["", "result", "failure", "refused"]
Flaps = Literal["", "runs_again", "other_end"]


@dataclass(frozen=True, slots=True)
class Script:
    """One job, from its creation to its end. Spans in ms."""

    name: str
    runs_ms: int = 4_000
    #: The provider's own word for the end; "never": there is none but by a cancel.
    ends: Literal["done", "failed", "expired", "never"] = "done"
    items: int = 3
    #: Items that come to nothing, from the first on.
    bad: int = 0
    #: So many items are done at the end of a job that does not complete.
    ran: int = 1
    #: After so long it waits for an input, and goes on once it has one.
    asks_after_ms: int | None = None
    has_odd_word: bool = False
    goes_back: bool = False
    flaps: Flaps = ""
    #: So long after its creation no read knows it any more.
    forgotten_after_ms: int | None = None
    cancels: Cancels = "heeds"
    cancel_ms: int = 1_000
    spoils: Spoils = ""
    #: The create itself is answered with the end; or refused for good.
    at_once: AtOnce = ""
    #: The create makes nothing: it is answered with the job of this other script.
    names_job_of: str = ""
    #: So long after its creation no look-up and no list shows it.
    shown_after_ms: int = 0
    answers_after_ms: int = 0
    #: A read shows the job as it stood so long before its answer leaves.
    reads_take_ms: int = 0
    tells: Tells = "once"


@dataclass(frozen=True, slots=True)
class Creed:
    """What one declared provider promises, and what it keeps."""

    name: str
    token: Literal["", "header", "field"] = ""
    looks_up: bool = False
    #: Promises to honour the token, and makes a job of each create.
    lies: bool = False
    webhooks: Literal["", "standard", "hmac-sha256"] = ""
    results: Literal["items", "fetched", "inline"] = "items"
    has_cancel: bool = True
    cancel_is_repeatable: bool = False
    takes_input: bool = False
    on_absent: Literal["ask", "resend"] = "ask"


#: The declared ones; `openai` and `anthropic` stand beside them: look-up by list with a sure mark, and a list alone.
CREEDS: Final = (
    Creed("token", token="header", webhooks="standard", takes_input=True, cancel_is_repeatable=True),
    Creed("lookup", looks_up=True, results="fetched"),
    Creed("both", token="field", looks_up=True, webhooks="hmac-sha256", results="inline"),
    Creed("neither", webhooks="standard", has_cancel=True, takes_input=True),
    Creed("bare", results="fetched", has_cancel=False),
    Creed("liar", token="header", lies=True),
    Creed("resender", looks_up=True, webhooks="standard", on_absent="resend"),
)
BY_NAME: Final = {creed.name: creed for creed in CREEDS}
STANDINS: Final = ("openai", "anthropic")
#: Providers in one world; each costs every pass of the worker a look.
PROVIDERS: Final = 4


@dataclass(frozen=True, slots=True)
class Wish:
    """What a client and the people around it do about one operation."""

    number: int
    provider: str
    script: Script
    begins_at: float
    body: dict[str, Any]
    #: Seconds after its start at which it asks for a cancel.
    cancels_after: float | None = None
    #: How many clients start it at once under one key, and whether one comes with another body.
    parallel: int = 1
    is_contested: bool = False
    gives_input: bool = True
    #: Seconds that a person thinks about a question; None: nobody answers it.
    thinks: float | None = 20.0
    #: Decisions that a person makes at most.
    decides: int = 2
    consumers: int = 1

    @property
    def item_ids(self) -> list[str]:
        """The ids of the items that are sent or expected."""
        return [f"w{self.number}-{n}" for n in range(self.script.items)]


@dataclass(frozen=True, slots=True)
class Jump:
    """The daemon's wall clock is set once in a life, so many seconds after its beginning."""

    after: float
    by_ms: int


@dataclass(frozen=True, slots=True)
class Doom:
    """How a life ends before the world does."""

    step: int | None = None
    commit: tuple[int, str] | None = None
    file_step: int | None = None
    #: Stopped in order after so many seconds.
    stop_after: float | None = None

    @property
    def name(self) -> str:
        """In one word."""
        if self.commit is not None:
            return f"commit_{self.commit[1]}"
        return "step" if self.step is not None else "file" if self.file_step is not None else "in_order"


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a seed decides before its world begins."""

    seed: int
    #: Those that this world has.
    providers: Sequence[str]
    wishes: Sequence[Wish]
    dooms: Sequence[Doom]
    jumps: dict[int, Jump] = field(default_factory=dict)
    #: Until then, virtual seconds, networks and providers misbehave; and how often, of 1.
    bad_until: float = 0.0
    badness: float = 0.0
    #: Spans in which all of one provider is down: (name, from, to).
    outages: Sequence[tuple[str, float, float]] = ()


def planned(seed: int, *, operations: int | None = None) -> Plan:
    """The plan of a seed."""
    dice = Draws(f"plan/{seed}")
    count = operations or dice.whole(10, 40)
    others = [*BY_NAME, *STANDINS]
    providers = [others.pop(dice.whole(0, len(others) - 1)) for _ in range(PROVIDERS)]
    has_jump = dice.chance(0.12)
    dooms = [_doom(dice) for _ in range(dice.pick((0, 1, 1, 2, 2, 3)))]
    return Plan(
        seed=seed,
        providers=providers,
        wishes=[_wish(dice, number, providers) for number in range(count)],
        dooms=dooms,
        jumps={1: _jump(dice)} if has_jump else {},
        bad_until=dice.pick((0.0, 60.0, 120.0, 240.0)),
        badness=dice.pick((0.05, 0.15, 0.3)),
        outages=[_outage(dice, providers)] if dice.chance(0.2) else [],
    )


def _jump(dice: "Draws") -> Jump:
    """Forward by a day at most; back by less, since deadlines are wall time and a world has to end."""
    by_ms = dice.whole(10_000, 86_400_000) if dice.chance(0.5) else -dice.whole(10_000, 1_200_000)
    return Jump(dice.span(1, 60), by_ms)


class Draws:
    """Draws in plain words."""

    def __init__(self, seed: str) -> None:
        self._dice = SeededDice(seed)

    def chance(self, share: float) -> bool:
        """True that often."""
        return self._dice.draw() < share

    def whole(self, least: int, most: int) -> int:
        """Both bounds included."""
        return least + int(self._dice.draw() * (most - least + 1))

    def span(self, least: float, most: float) -> float:
        """Somewhere between, in whole ms."""
        return round(least + self._dice.draw() * (most - least), 3)

    def pick(self, among: Sequence[Any]) -> Any:
        """One of them."""
        return among[int(self._dice.draw() * len(among))]


def _doom(dice: Draws) -> Doom:
    match dice.pick(("step", "step", "commit", "commit", "file", "stop")):
        case "step":
            return Doom(step=int(60 + dice.span(0, 1) ** 2 * 9_000))
        case "commit":
            return Doom(commit=(dice.whole(1, 160), dice.pick(("before", "after", "after", "lost", "kept"))))
        case "file":
            return Doom(file_step=dice.whole(1, 90))
        case _:
            return Doom(stop_after=dice.span(0, 60))


def _outage(dice: Draws, providers: Sequence[str]) -> tuple[str, float, float]:
    begins = dice.span(0, 60)
    name = dice.pick(providers)
    return name, begins, begins + dice.span(5, 150)


def _wish(dice: Draws, number: int, providers: Sequence[str]) -> Wish:
    provider = dice.pick(providers)
    script = _script(dice, f"s{number}", provider)
    creed = BY_NAME.get(provider)
    can_cancel = creed is None or creed.has_cancel
    wish = Wish(
        number=number,
        provider=provider,
        script=script,
        begins_at=dice.span(0, 40),
        body={},
        cancels_after=dice.span(0, 12) if can_cancel and dice.chance(0.25) else None,
        parallel=3 if dice.chance(0.05) else 1,
        is_contested=dice.chance(0.05),
        gives_input=dice.chance(0.7),
        thinks=dice.span(1, 60) if dice.chance(0.7) else None,
        decides=dice.whole(1, 3),
        consumers=dice.pick((0, 0, 1, 2)),
    )
    return with_body(wish, dice)


def with_body(wish: Wish, dice: Draws) -> Wish:
    """The same with the body of its start, as its provider takes it."""
    body: dict[str, Any] = {
        "provider": wish.provider,
        "caller": "simulation",
        "create_within": dice.pick(("20s", "60s", "120s")),
        "result_within": dice.pick(("40s", "80s", "160s")),
        "cancel_within": dice.pick(("15s", "45s")),
        "input_within": dice.pick(("20s", "60s")),
    }
    creed = BY_NAME.get(wish.provider)
    ids = wish.item_ids
    if wish.provider == "openai":
        body["request"] = {"endpoint": "/v1/responses", "metadata": {"standin_scenario": wish.script.name}}
        body["items"] = [
            {"custom_id": i, "url": "/v1/responses", "body": {"model": "example-model", "input": f"say {i}"}}
            for i in ids
        ]
    elif wish.provider == "anthropic":
        params = {"model": "example-model", "max_tokens": 8, "messages": [{"role": "user", "content": "hi"}]}
        body["request"] = {}
        body["items"] = [
            {"custom_id": i, "params": {**params, "metadata": {"user_id": f"standin_scenario={wish.script.name}"}}}
            for i in ids
        ]
    else:
        body["request"] = {"script": wish.script.name}
        if creed is not None and creed.results == "items":
            body["expect"] = {"items": ids}
    if dice.chance(0.25):
        body["callback_url"] = "https://ci.test/hooks/"
    wish_fields = {name: getattr(wish, name) for name in wish.__dataclass_fields__}
    return Wish(**{**wish_fields, "body": body})


def _script(dice: Draws, name: str, provider: str) -> Script:
    creed = BY_NAME.get(provider)
    items = dice.whole(1, 4)
    can_ask = creed is not None and creed.takes_input
    at_once: AtOnce = dice.pick(("result", "failure", "refused")) if creed is not None and dice.chance(0.08) else ""
    return Script(
        name=name,
        runs_ms=dice.pick((0, 1_000, 4_000, 4_000, 10_000, 30_000)),
        ends=dice.pick(("done",) * 7 + ("failed", "expired", "never")),
        items=items,
        bad=dice.pick((0, 0, 0, 0, 1, items)),
        ran=dice.whole(0, items),
        asks_after_ms=dice.whole(0, 3_000) if can_ask and dice.chance(0.3) else None,
        has_odd_word=dice.chance(0.1),
        goes_back=dice.chance(0.05),
        flaps=dice.pick(("runs_again", "other_end")) if dice.chance(0.06) else "",
        forgotten_after_ms=dice.whole(500, 40_000) if dice.chance(0.05) else None,
        cancels=dice.pick(("heeds", "heeds", "heeds", "comes_late", "never_ends", "refuses", "forgets")),
        cancel_ms=dice.pick((0, 1_000, 5_000)),
        spoils=dice.pick(("missing", "double", "strange")) if creed is not None and dice.chance(0.06) else "",
        at_once=at_once,
        shown_after_ms=dice.pick((0, 0, 0, 5_000, 20_000)),
        answers_after_ms=dice.pick((0, 0, 0, 0, 3_000)),
        reads_take_ms=dice.pick((0, 0, 0, 400)),
        tells=dice.pick(
            ("once", "once", "once", "lost", "lost", "twice", "often", "late", "early", "reversed", "other_content")
        ),
    )
