"""Histories told by hand under the rules of random worlds: what seeds come upon too seldom.

A world of one declared provider and a plan written down here in place of a drawn one; its faults befall the requests
that are named. Each rule of `histories/judging.py` is run after each crash and at the end.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from tests.simulation.histories import scripts
from tests.simulation.histories.configuration import host_of
from tests.simulation.histories.judging import check
from tests.simulation.histories.scripts import Doom, Draws, Plan, Script, Wish
from tests.simulation.histories.world import HistoryWorld
from tests.simulation.transports import LOST_ANSWER, LOST_REQUEST, Fault
from tests.simulation.view import View, facts, load, moves
from tests.simulation.world import Process

Befalls = Callable[[str, bytes], Fault | None]
#: What may befall a request whose answer is not read, by name: only the second of them never arrives.
UNANSWERED: Final = {
    "lost": LOST_ANSWER,
    "never arrived": LOST_REQUEST,
    "cut": Fault(answer_bytes=30),
    "late": Fault(answer_delay=70),
}


def wish(provider: str, script: Script, *, number: int = 0, begins_at: float = 0.0, **more: Any) -> Wish:
    """Somebody who starts one operation; nobody answers a question of it where `thinks` is not given."""
    body = {
        "provider": provider,
        "caller": "simulation",
        "request": {"script": script.name},
        "expect": {"items": [f"w{number}-{n}" for n in range(script.items)]},
        "create_within": "120s",
        "result_within": "160s",
    }
    return Wish(number, provider, script, begins_at, body, **{"thinks": None, **more})


def nothing(_host: str, _head: bytes) -> Fault | None:
    """A good network."""
    return None


def told(
    folder: Path,
    one: Wish,
    *dooms: Doom,
    beside: Sequence[Wish] = (),
    befalls: Befalls = nothing,
    is_down: tuple[float, float] | None = None,
) -> tuple[HistoryWorld, View]:
    """The world of these wishes, told to its end; their one provider is down between these two seconds."""
    outages = [(one.provider, *is_down)] if is_down is not None else []
    world = HistoryWorld(folder, Plan(0, [one.provider], [one, *beside], dooms, outages=outages))
    world.told_fault = befalls
    found: list[str] = []
    world.run(lambda world: found.extend(check(world, at_the_end=False)))
    assert [*found, *check(world, at_the_end=True)] == []
    return world, load(world)


def first(provider: str, method: bytes, ends: bytes, *faults: Fault) -> Befalls:
    """What befalls the first requests to that provider whose line is such."""
    left = list(faults)

    def befalls(host: str, head: bytes) -> Fault | None:
        verb, _, rest = head.partition(b" ")
        is_it = host == host_of(provider) and verb == method and rest.partition(b" ")[0].endswith(ends)
        return left.pop() if left and is_it else None

    return befalls


CROWD: Final = 40


def crowd(provider: str, seed: int, *dooms: Doom) -> Plan:
    """As many jobs at one account as no drawn world has: from twenty on its list is read in place of each of them."""
    dice = Draws(f"crowd/{provider}/{seed}")
    wishes = []
    for number in range(CROWD):
        script = Script(
            f"s{number}",
            runs_ms=dice.pick((20_000, 60_000, 90_000)),
            ends=dice.pick(("done", "done", "done", "failed", "expired")),
            items=dice.whole(1, 3),
            shown_after_ms=dice.pick((0, 0, 5_000)),
            tells=dice.pick(("once", "lost", "late")),
        )
        one = Wish(number, provider, script, dice.span(0, 3), {}, thinks=None, consumers=0)
        begun = scripts.with_body(one, dice)
        wishes.append(replace(begun, body={**begun.body, "result_within": "160s"}))
    return Plan(seed, [provider], wishes, dooms)


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
@pytest.mark.parametrize("dooms", [(), (Doom(step=4_000),), (Doom(commit=(60, "after")), Doom(stop_after=50.0))])
def test_a_list_carries_the_jobs_of_a_crowd_to_their_ends(folder: Path, provider: str, dooms: tuple[Doom, ...]) -> None:
    """C6: each end is found in time, by pages and by what webhooks come; what no page shows is read by its id."""
    world = HistoryWorld(folder, crowd(provider, 1, *dooms))
    found: list[str] = []
    world.run(lambda world: found.extend(check(world, at_the_end=False)))
    assert [*found, *check(world, at_the_end=True)] == []
    told_of = [entry["event"] for life in world.lives for entry in life.log]
    assert told_of.count("list_swept") >= 3
    assert {customer.told.body["state"] for customer in world.customers} >= {"succeeded"}


def test_a_second_job_that_shows_late_stops_everything_and_both_are_told(folder: Path) -> None:
    """B4, N31: the first create was taken for absent and had arrived; late webhooks ring, and nothing is read."""
    script = Script("s0", runs_ms=30_000, shown_after_ms=20_000, tells="late")
    lost = first("resender", b"POST", b"/v1/jobs", LOST_ANSWER)
    world, view = told(folder, wish("resender", script), befalls=lost)
    (op,) = view.operations
    walk = [row["to_state"] for row in moves(view, op)]
    assert walk[-3:] == ["result_collecting", "contract_violation", "abandoned"]
    lost_job, held_job = world.accounts["resender"].jobs
    assert (op["remote_job_id"], op["living"]["candidates"]) == (held_job, [lost_job])
    entered = next(row["at"] for row in moves(view, op) if row["to_state"] == "contract_violation")
    assert [at for at, _ in world.rings if at > entered]
    assert not [send for send in world.sends if send.at_ms > entered + 1_000]


def test_two_jobs_that_one_look_up_shows_are_both_told_and_neither_is_taken(folder: Path) -> None:
    """B4, N3: both creates arrived and neither was answered; by the time that the account is read again both show."""
    script = Script("s0", runs_ms=30_000, shown_after_ms=20_000)
    lost = first("resender", b"POST", b"/v1/jobs", LOST_ANSWER, LOST_ANSWER)
    world, view = told(folder, wish("resender", script), befalls=lost, is_down=(14.0, 40.0))
    (op,) = view.operations
    assert [row["to_state"] for row in moves(view, op)][-2:] == ["contract_violation", "abandoned"]
    assert (op["remote_job_id"], sorted(op["living"]["candidates"])) == (None, sorted(world.accounts["resender"].jobs))


@pytest.mark.parametrize("fate", UNANSWERED)
def test_an_input_whose_answer_is_lost_is_not_sent_again(folder: Path, fate: str) -> None:
    """One read shows whether the job went on; where it did not, a person is asked, who may give it again."""
    lost = first("neither", b"POST", b"/input", UNANSWERED[fate])
    one = wish("neither", Script("s0", asks_after_ms=1_000), thinks=2.0)
    world, view = told(folder, one, befalls=lost)
    (op,) = view.operations
    assert op["state"] == "succeeded"
    walk = [row["to_state"] for row in moves(view, op)]
    assert walk.count("input_given") == (2 if fate == "never arrived" else 1)
    assert sum(world.accounts["neither"].inputs.values()) == 1


@pytest.mark.parametrize("edge", ["before", "after", "lost", "kept"])
def test_an_input_is_not_sent_twice_whatever_commit_the_process_dies_at(folder: Path, edge: str) -> None:
    one = wish("neither", Script("s0", asks_after_ms=1_000), thinks=2.0)
    undisturbed, _ = told(folder / "undisturbed", one)
    commits = undisturbed.lives[0].commits
    given = 0
    for n in range(1, commits + 1):
        world, _ = told(folder / str(n), one, Doom(commit=(n, edge)))
        assert len(world.lives) == 2
        given += sum(world.accounts["neither"].inputs.values())
    assert given > commits // 2  # else nothing was shown: where its create was cut off, no job ever asks


#: The second create's answer names the job that the first one made, which runs on for a while.
HELD: Final = wish("token", Script("s0", runs_ms=10_000))
NAMES_IT_AGAIN: Final = wish("token", Script("s1", names_job_of="s0"), number=1, begins_at=5.0)


def check_that_a_held_job_is_shown(world: HistoryWorld, view: View) -> None:
    """The holder keeps the job and ends as it does; the other stands still, and tells of the job and of its holder."""
    holder, other = view.operations
    (job_id,) = world.accounts["token"].jobs
    assert (holder["state"], holder["remote_job_id"]) == ("succeeded", job_id)
    assert (other["remote_job_id"], other["living"]["candidates"]) == (None, [job_id])
    entered, left = moves(view, other)[-2:]
    assert (entered["to_state"], left["to_state"]) == ("contract_violation", "abandoned")
    told = next(row["facts"] for row in facts(view, other) if row["to_state"] == "contract_violation")
    assert (told["named"], told["held_by"]) == (job_id, holder["operation_id"])
    later = [send for send in world.sends if send.trace_id == other["trace_id"] and send.at_ms > entered["at"]]
    assert later == []


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_job_that_another_operation_holds_is_not_taken_and_both_are_told(folder: Path, is_lost: bool) -> None:
    """B4, N5: whether the create's first answer names it, or that of the create that was sent again by its token."""
    creates = iter((None, LOST_ANSWER if is_lost else None))

    def second(host: str, head: bytes) -> Fault | None:
        return next(creates, None) if host == host_of("token") and head.startswith(b"POST ") else None

    world, view = told(folder, HELD, beside=[NAMES_IT_AGAIN], befalls=second)
    check_that_a_held_job_is_shown(world, view)
    creates_of_the_other = [send for send in world.sends if send.trace_id == view.operations[1]["trace_id"]]
    assert len(creates_of_the_other) == 1 + is_lost


@pytest.mark.parametrize("edge", ["before", "after"])
def test_a_job_that_another_operation_holds_is_not_taken_whatever_commit_the_process_dies_at(
    folder: Path, edge: str
) -> None:
    undisturbed, _ = told(folder / "undisturbed", HELD, beside=[NAMES_IT_AGAIN])
    for n in range(1, undisturbed.lives[0].commits + 1):
        world, view = told(folder / str(n), HELD, Doom(commit=(n, edge)), beside=[NAMES_IT_AGAIN])
        assert len(world.lives) == 2
        check_that_a_held_job_is_shown(world, view)


def test_a_question_about_a_result_that_cannot_be_fetched_outlives_a_crash(folder: Path) -> None:
    """No drawn world fails so long as to spend the budget of a collection."""
    world = HistoryWorld(folder, Plan(0, ["bare"], [wish("bare", Script("s0"))], (Doom(),)))
    world.told_fault = first("bare", b"GET", b"/result", *[LOST_ANSWER] * 40)

    def dies(process: Process) -> None:
        states = {row["state"] for row in load(world).operations}
        if states == {"result_unavailable"} and process.life.number == 1:
            process.loop.crash()

    world.on_commit = dies
    found: list[str] = []
    world.run(lambda world: found.extend(check(world, at_the_end=False)))
    assert [*found, *check(world, at_the_end=True)] == []
    (op,) = load(world).operations
    assert [row["to_state"] for row in moves(load(world), op)][-3:] == [
        "result_collecting", "result_unavailable", "abandoned",
    ]  # fmt: skip
    assert [life.ended for life in world.lives] == [False, True]
