"""The commands by which a person asks or decides: cancel, input, adopt, inbox, decide; and `show` with what is open."""

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from daemon import plain, words
from daemon.cli import exits, main
from daemon.next_steps import as_commands
from reconcile.evidence import CreateNotAccepted, JobRead
from reconcile.model import Absence, Observation
from reconcile.notice import Notice
from reconcile.states import REASON_OF
from tests.daemon.test_cli import Shell
from tests.handlers.asking_provider import Account, Stage, asking_stage
from tests.handlers.ground import NOON, Ground, HandClock, running, strict_json, until
from tests.handlers.test_input import in_state
from tests.handlers.test_wishes import JOB, OPEN, OTHER, asking, history


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with running(tmp_path / "state") as g:
        yield g


@pytest.fixture
def shell(ground: Ground, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(ground, capsys)


@pytest.fixture
async def blocked(tmp_path: Path) -> AsyncIterator[tuple[Stage, str]]:
    """A job that waits for input."""
    async with asking_stage(tmp_path / "asking", Account(), worker=False, clock=HandClock()) as on:
        yield on, await in_state(on, "blocked")


# ---- what to do next -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "command"),
    [
        (
            "Call GET /v1/operations/op_1?wait=60 after 5 seconds; it",
            "Call `reconciled wait op_1 --max 60s` after 5 seconds; it",
        ),
        ("POST /v1/operations/op_1/input gives it.", "`reconciled input op_1 FILE` gives it."),
        ("Send POST /v1/operations/op_1/cancel.", "Send `reconciled cancel op_1 --reason R`."),
        ("GET /v1/operations/op_1.", "`reconciled show op_1`."),
        ("GET /v1/operations/op_1/history, then", "`reconciled history op_1`, then"),
        (
            "see GET /v1/operations?open=true, and GET /v1/completions",
            "see `reconciled list --open`, and `reconciled list`",
        ),
        ("GET /v1/operations lists them", "`reconciled list` lists them"),
        ("GET /v1/operations/op_1/observations", "GET /v1/operations/op_1/observations"),
        ("GET /v1/operationsandmore", "GET /v1/operationsandmore"),
    ],
)
def test_a_call_of_the_api_is_told_as_the_command_that_makes_it(call: str, command: str) -> None:
    assert as_commands(call) == command


async def test_whoever_starts_or_is_asked_for_input_is_told_the_command(
    ground: Ground, shell: Shell, blocked: tuple[Stage, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "request").write_text('{"endpoint": "/v1/responses"}')
    (tmp_path / "items").write_text('{"custom_id": "a", "url": "/v1/responses", "body": {}}')
    start = [
        "submit",
        "--provider",
        "openai",
        "--request",
        str(tmp_path / "request"),
        "--input",
        str(tmp_path / "items"),
    ]
    assert await shell.run(*start) == 0
    assert f"`reconciled wait {shell.out.split()[1]} --max 60s`" in shell.out

    on, operation = blocked
    asks = Shell(on.ground, capsys)
    for command in (["show", operation], ["inbox"]):
        await asks.run(*command)
        assert f"`reconciled input {operation} FILE` gives it" in asks.out
        assert "/v1/" not in asks.out


@pytest.mark.parametrize("state", [state.value for state in REASON_OF if state.value != "blocked"])
async def test_nothing_is_told_twice_of_what_asks(ground: Ground, shell: Shell, state: str) -> None:
    operation = await asking(ground, state)
    assert await shell.run("show", operation) == exits.NEEDS_A_PERSON
    shown = " ".join(shell.out.split())
    question = (await ground.get(f"/v1/operations/{operation}"))["attention"]["message"]
    for sentence in (question.partition(". ")[0], "do not report success", "The work is NOT complete"):
        assert shown.count(sentence) == 1
    assert shown.count("Items that were finished by then") <= 1
    assert "`reconciled decide ID DECISION --reason R`" in shown


async def test_what_may_remain_is_told_once_of_a_cancel_that_a_person_decided(ground: Ground, shell: Shell) -> None:
    operation = await asking(ground, "result_timed_out")
    assert await shell.run("decide", operation, "cancel", "--reason", "it hangs", "--by", "ana") == 0
    shown = " ".join(shell.out.split())
    assert "only the provider's own word ends it as cancelled." in shown
    assert shown.count("Items that were finished by then") == 1


async def test_a_decision_that_there_is_not_is_told_with_those_that_are_open(ground: Ground, shell: Shell) -> None:
    reason = ["--reason", "r", "--by", "ana"]
    operation = await asking(ground, "result_timed_out")
    assert await shell.run("decide", operation, "cancle", *reason) == exits.USAGE
    told = "there is no decision 'cancle': open there are resume, cancel, give_up; did you mean cancel?"
    assert shell.err == f"reconciled: {told}\n"
    calm = await ground.operation("observing", OTHER)
    assert await shell.run("decide", calm, "cancle", *reason) == exits.USAGE
    assert shell.err == "reconciled: there is no decision 'cancle': nothing waits for a person there\n"
    assert await shell.run("decide", "ntc_1", "cancle", *reason) == exits.USAGE
    assert "known are acknowledge" in shell.err


# ---- cancel ------------------------------------------------------------------------------------------------------


async def test_cancel_records_who_and_why_and_claims_nothing(ground: Ground, shell: Shell) -> None:
    operation = await ground.operation("observing", JOB)
    assert await shell.run("cancel", operation, "--reason", "wrong model", "--by", "ana") == 0
    assert "NOT cancelled" in shell.out
    assert "asked by ana" in shell.out
    assert "no answer yet" in shell.out
    assert "may remain         Items that were finished by then are done and billed." in shell.out
    intent = (await ground.row(operation)).cancel
    assert intent is not None
    assert (intent.by, intent.reason) == ("ana", "wrong model")
    assert intent.effect == "the job stops as soon as the provider can stop it"


async def test_cancel_is_the_login_names_unless_it_is_said(
    ground: Ground, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "carla")
    operation = await ground.operation("observing", JOB)
    assert await shell.run("cancel", operation, "--reason", "r", "--effect", "it stops", "--json") == 0
    body = strict_json(shell.out.encode())
    assert (body["cancel"]["by"], body["cancel"]["effect"]) == ("carla", "it stops")


async def test_a_cancel_that_is_refused_is_told_in_its_own_words(ground: Ground, shell: Shell) -> None:
    operation = await ground.operation("succeeded", JOB)
    assert await shell.run("cancel", operation, "--reason", "r", "--by", "ana") == exits.USAGE
    assert "the job has ended" in shell.err
    assert shell.out == ""
    assert await shell.run("cancel", "op_none", "--reason", "r", "--by", "ana") == exits.USAGE


# ---- adopt -------------------------------------------------------------------------------------------------------


async def test_adopt_follows_a_job(ground: Ground, shell: Shell) -> None:
    assert await shell.run("adopt", "--provider", "openai", "--remote-job-id", JOB) == 0
    assert f"job                {JOB}" in shell.out
    assert "NOT complete" in shell.out
    ((operation, state),) = ground.rows("SELECT operation_id, state FROM operations")
    assert state == "accepted"
    assert await shell.run("adopt", "--provider", "openai", "--remote-job-id", JOB) == exits.USAGE
    assert operation in shell.err


async def test_adopt_can_wait_and_then_ends_as_the_operation_does(ground: Ground, shell: Shell) -> None:
    waiting = asyncio.create_task(shell.run("adopt", "--provider", "openai", "--remote-job-id", JOB, "--wait"))

    async def is_adopted() -> bool:
        return ground.rows("SELECT count(*) FROM operations") == [(1,)]

    await until(is_adopted)
    ((operation,),) = ground.rows("SELECT operation_id FROM operations")
    await ground.apply(operation, JobRead(Observation("failed", remote_job_id=JOB)))
    assert await waiting == exits.FAILED
    assert f"adopted: follows {JOB}" in shell.err


async def test_an_adopted_job_names_the_operation_that_gave_it_up(ground: Ground, shell: Shell) -> None:
    gone = await asking(ground, "result_timed_out")
    assert await shell.run("decide", gone, "give_up", "--reason", "r", "--by", "ana") == 0
    assert await shell.run("adopt", "--provider", "openai", "--remote-job-id", JOB, "--json") == 0
    adopted = strict_json(shell.out.encode())
    assert adopted["parent"] == gone
    assert await shell.run("show", adopted["operation_id"]) == exits.NOT_ENDED
    assert f"parent             {gone}" in shell.out


# ---- input -------------------------------------------------------------------------------------------------------


async def test_input_gives_a_file(
    blocked: tuple[Stage, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on, operation = blocked
    shell = Shell(on.ground, capsys)
    (tmp_path / "answer.json").write_text('{"answer": "blue"}')
    assert await shell.run("input", operation, str(tmp_path / "answer.json"), "--by", "ana b") == 0
    assert "input is being sent" in shell.out
    (name,) = [path.name for path in (on.ground.folder / "spool").iterdir()]
    assert json.loads((on.ground.folder / "spool" / name).read_bytes()) == {"answer": "blue"}
    given = (await on.ground.row(operation)).input
    assert given is not None
    assert given.by == "ana b"


@pytest.mark.parametrize("data", ["null", '"yes"', "[1]"])
async def test_input_reads_stdin(
    blocked: tuple[Stage, str], data: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on, operation = blocked
    shell = Shell(on.ground, capsys)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data.encode())))
    assert await shell.run("input", operation, "-", "--by", "ana", "--json") == 0
    assert strict_json(shell.out.encode())["state"] == "input_given"


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("none.json", None, "there is no such file"),
        ("bad.json", "{", "not JSON"),
        ("empty.json", "", "not JSON"),
    ],
)
async def test_input_that_cannot_be_read_is_told_and_nothing_is_sent(
    blocked: tuple[Stage, str],
    tmp_path: Path,
    name: str,
    content: str | None,
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    on, operation = blocked
    shell = Shell(on.ground, capsys)
    if content is not None:
        (tmp_path / name).write_text(content)
    assert await shell.run("input", operation, str(tmp_path / name), "--by", "ana") == exits.USAGE
    assert told in shell.err
    assert (await on.ground.row(operation)).state == "blocked"


async def test_input_for_a_job_that_does_not_wait_is_told(ground: Ground, shell: Shell, tmp_path: Path) -> None:
    operation = await ground.operation("observing", JOB)
    (tmp_path / "x.json").write_text("1")
    assert await shell.run("input", operation, str(tmp_path / "x.json"), "--by", "ana") == exits.USAGE
    assert "takes no input" in shell.err


# ---- inbox and decide --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", OPEN)
async def test_inbox_and_show_name_every_open_decision_with_its_effect(
    ground: Ground, shell: Shell, state: str
) -> None:
    operation = await asking(ground, state)
    offers = (await ground.get(f"/v1/operations/{operation}"))["attention"]["decisions"]
    for command in (["inbox"], ["show", operation]):
        status = await shell.run(*command)
        assert status == (0 if command == ["inbox"] else exits.NEEDS_A_PERSON)
        assert operation in shell.out
        flowing = " ".join(shell.out.split())
        for offer in offers:
            assert f"you may decide     {offer['decision']}\n" in shell.out
            assert f"you may decide {offer['decision']} {offer['effect']}" in flowing


async def test_inbox_tells_the_evidence_and_the_notices_first(ground: Ground, shell: Shell) -> None:
    operation = await asking(ground, "contract_violation")
    await ground.daemon.store.stand([Notice("provider_paused", NOON, "openai answered 503", provider="openai")])
    assert await shell.run("inbox") == 0
    lines = shell.out.splitlines()
    assert lines[0].split() == ["notice", "provider_paused.openai"]
    assert lines[1].strip() == "openai answered 503"
    assert "reason             the provider is left alone, since 2026-11-29T12:00:00.000Z" in lines
    assert f"question           {operation}" in lines
    assert f"may be meant       {JOB} (held), {OTHER}" in lines
    assert "status page        https://status.openai.com" in lines
    assert any(line.startswith("trace ") for line in lines)
    assert await shell.run("inbox", "--json") == 0
    assert strict_json(shell.out.encode()) == await ground.get("/v1/inbox")


@pytest.mark.parametrize(
    ("ahead_ms", "told"),
    [
        (-1, "(passed)"),
        (59_000, "(in less than a minute)"),
        (60_000, "(in 1 minute)"),
        (7_200_000, "(in 2 hours)"),
        (7 * 86_400_000, "(in 7 days)"),
    ],
)
def test_a_deadline_says_how_far_off_it_is(ahead_ms: int, told: str) -> None:
    assert words.left("2026-11-29T12:00:00.000Z", NOON - ahead_ms) == f"2026-11-29T12:00:00.000Z {told}"


async def test_a_second_cancel_with_another_reason_is_told_that_the_first_one_stands(
    ground: Ground, shell: Shell
) -> None:
    operation = await ground.operation("observing", JOB)
    assert await shell.run("cancel", operation, "--reason", "wrong model", "--by", "ana") == 0
    assert shell.err == ""
    assert "expected of it     the job stops as soon as the provider can stop it" in shell.out
    assert await shell.run("cancel", operation, "--reason", "wrong model", "--by", "ana") == 0
    assert shell.err == ""
    assert await shell.run("cancel", operation, "--reason", "too slow", "--by", "bo") == 0
    assert shell.err == ("the cancel that ana asked for at 2026-11-29T12:00:00.000Z stands; this one adds nothing\n")
    assert "wrong model" in shell.out


async def test_a_start_that_was_withdrawn_shows_that_nothing_was_sent(ground: Ground, shell: Shell) -> None:
    operation = await ground.start()
    assert await shell.run("cancel", operation, "--reason", "r", "--by", "ana") == 0
    assert "(nothing was sent)" in shell.out
    assert "no answer yet" not in shell.out
    assert shell.out.lower().count("no job was made") == 1


async def test_show_tells_who_asked_by_whose_leave_and_the_labels(ground: Ground, shell: Shell) -> None:
    operation = await ground.start(caller="ana", approval="ticket 7", labels={"team": "research", "n": "1"})
    await shell.run("show", operation)
    for line in ("caller             ana", "approval           ticket 7", "labels             team=research, n=1"):
        assert line in shell.out.splitlines()


async def test_show_and_list_say_why_a_person_is_asked_in_plain_words(ground: Ground, shell: Shell) -> None:
    """Our own short words stay in `--json`."""
    operation = await ground.operation("result_validation_failed", JOB)
    await shell.run("list")
    assert "the result is not as it should be" in shell.out
    await shell.run("show", operation)
    assert "waits for          a person: " in shell.out


async def test_history_tells_error_classes_in_plain_words(ground: Ground, shell: Shell) -> None:
    operation = await ground.start()
    await ground.apply(operation, CreateNotAccepted("http_404"))
    await ground.apply(operation, CreateNotAccepted("connect"))
    await shell.run("history", operation)
    assert "(HTTP 404)" in shell.out
    assert "(no connection)" in shell.out
    await shell.run("show", operation)
    assert "tried 2 times, the last came to no connection." in shell.out
    await shell.run("history", operation, "--json")
    assert "(connect)" in shell.out


def test_every_error_class_of_ours_has_plain_words() -> None:
    """None is looked up in vain; a provider's own words stay as they are."""
    raised = re.compile(r'(?:NotSent|OutcomeUnknown|ReadFailed|CreateUnknown|CreateNotAccepted|CollectFailed)\("(\w+)"')
    root = Path(__file__).parents[2] / "reconcile"
    found = {word for path in root.rglob("*.py") for word in raised.findall(path.read_text(encoding="utf-8"))}
    assert len(found) > 10
    assert {word for word in found if plain.error(word) == word} == set()
    assert plain.error("batch_full") == "batch_full"


def test_every_reason_has_plain_words() -> None:
    reasons = {*REASON_OF.values(), *Absence, "gone", "refused", "input_unknown"}
    assert {word for word in reasons if plain.reason(word) == word} == set()


async def test_an_empty_inbox_says_so(shell: Shell) -> None:
    assert await shell.run("inbox") == 0
    assert shell.out == "nothing waits for a person\n"


DECIDES: list[tuple[str, list[str], str]] = [
    ("create_unresolved", ["adopt_job", "--remote-job-id", JOB], "accepted"),
    ("observation_failed", ["resume", "--within", "2h"], "observing"),
    ("result_validation_failed", ["accept"], "failed"),
]


@pytest.mark.parametrize(("state", "words", "then"), DECIDES)
async def test_decide_does_it_and_history_says_who_and_why(
    ground: Ground, shell: Shell, state: str, words: list[str], then: str
) -> None:
    operation = await asking(ground, state)
    assert await shell.run("decide", operation, *words, "--reason", "looked", "--by", "ana") == 0
    assert then in shell.out
    assert (await ground.row(operation)).state == then
    rows: list[Any] = await history(ground, operation)
    assert any(row["actor"] == "person:ana" and row["facts"].get("because") == "looked" for row in rows)


async def test_decide_acknowledges_a_notice(ground: Ground, shell: Shell) -> None:
    await ground.daemon.store.stand([Notice("provider_paused", NOON, "503", provider="a/b")])
    words = ("decide", "provider_paused.a/b", "acknowledge", "--reason", "known", "--by", "ana")
    assert await shell.run(*words) == 0
    assert shell.out == "provider_paused.a/b left the inbox: acknowledged by ana\n"
    assert await shell.run(*words) == exits.USAGE
    assert "waits in the inbox" in shell.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["retry"], "there is no decision 'retry': open there are resume, cancel, give_up"),
        (["keep"], "open are resume, cancel, give_up"),
        (["resume", "--within", "soon"], "/within: must be a duration"),
        (["give_up", "--remote-job-id", "x"], "/remote_job_id: give_up does not take this"),
    ],
)
async def test_a_decision_that_cannot_be_is_told_in_plain_words(
    ground: Ground, shell: Shell, words: list[str], told: str
) -> None:
    operation = await asking(ground, "observation_failed")
    assert await shell.run("decide", operation, *words, "--reason", "r", "--by", "ana") == exits.USAGE
    assert told in shell.err
    assert (await ground.row(operation)).state == "observation_failed"


@pytest.mark.parametrize("command", ["cancel", "decide"])
def test_a_wish_without_a_reason_is_wrong_usage(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "op_1", *(["resume"] if command == "decide" else [])])
    assert ended.value.code == exits.USAGE
    assert "--reason" in capsys.readouterr().err
