"""The README keeps its promises: the diagram is the table's, and every key, route and command stands in it."""

import re
import tomllib
from pathlib import Path

import pytest

from daemon.cli import build_parser
from handlers.api import start_body
from handlers.api.metrics import FAMILIES
from reconcile.registry import KINDS, provider_for
from reconcile.states import STATUS_OF, TERMINAL, TRANSITIONS, State, Status
from reconcile.store.items import OUTCOMES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def diagram() -> str:
    """The state diagram as mermaid, made from the table; `contract_violation` is told in words."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> create_pending"]
    for state in State:
        targets = [to for to in State if to in TRANSITIONS[state] and to is not State.CONTRACT_VIOLATION]
        lines += [f"    {state} --> {to}" for to in targets if state is not State.CONTRACT_VIOLATION]
        if state in TERMINAL:
            lines.append(f"    {state} --> [*]")
    return "\n".join([*lines, "```"])


def test_the_state_diagram_is_the_one_that_the_table_makes() -> None:
    found = re.search(r"<!-- diagram:begin[^\n]*-->\n(.*?)\n<!-- diagram:end -->", README, re.DOTALL)
    assert found is not None
    assert found[1] == diagram()


def test_every_state_has_a_status_word() -> None:
    assert set(STATUS_OF) == set(State)


@pytest.mark.parametrize("status", list(Status))
def test_the_table_of_status_words_is_the_states_own(status: Status) -> None:
    row = re.search(rf"^\| `{status}` \| ([^|]*) \|", README, re.MULTILINE)
    assert row is not None
    assert set(re.findall(r"`([a-z_]+)`", row[1])) == {state for state in State if STATUS_OF[state] is status}


def spelled(ms: int) -> str:
    """A duration as the configuration spells it."""
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        if ms % size == 0:
            return f"{ms // size}{unit}"
    return f"{ms}ms"


@pytest.mark.parametrize("kind", KINDS)
def test_the_numbers_of_a_kind_are_its_contracts(kind: str) -> None:
    contract = provider_for(kind).contract
    spans = (contract.poll.base_ms, contract.poll.cap_ms, contract.poll.sweep_ms, contract.result_within_ms)
    cells = [*map(spelled, spans), f"{contract.limits.requests_per_second:g}", str(contract.limits.concurrency)]
    assert f"| `{kind}` | {' | '.join(cells)} |" in README


def test_every_field_of_a_start_and_every_outcome_of_an_item_stands_in_the_readme() -> None:
    section = README[README.index("### What a start says") : README.index("### The command line")]
    assert {word for word in start_body._FIELDS | OUTCOMES if f"`{word}`" not in section} == set()


def test_every_warning_that_the_daemon_logs_stands_in_the_readme() -> None:
    """And nothing else: an event that is told there is one that the source still has."""
    sources = [
        path.read_text(encoding="utf-8")
        for house in ("daemon", "handlers", "reconcile")
        for path in (ROOT / house).rglob("*.py")
        if "standin" not in path.parts
    ]
    logged = re.compile(r'log\.(?:warning|error|critical|exception)\(\s*"([a-z_]+)"')
    events = {event for source in sources for event in logged.findall(source)}
    table = README[README.index("### What the log tells") : README.index("## Adding a provider")]
    told = {name for row in re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert {event for event in events if f"`{event}`" not in table} == set()
    assert {event for event in told if not any(f'"{event}"' in source for source in sources)} == set()


def test_the_unit_and_the_sample_configuration_name_the_same_credentials() -> None:
    unit = (ROOT / "systemd" / "reconciled.service").read_text(encoding="utf-8")
    sample = (ROOT / "systemd" / "reconciled.toml").read_text(encoding="utf-8")
    handed = dict(re.findall(r"^#?LoadCredential=([\w-]+):(\S+)$", unit, re.MULTILINE))
    assert set(handed) == set(re.findall(r'credential = "([\w-]+)"', sample))
    assert all(path == f"/etc/reconciled/credentials/{name}" for name, path in handed.items())
    assert all(name in README for name in handed)
    assert tomllib.loads(sample)["state_dir"] == "/var/lib/reconciled"


def test_the_configuration_is_installed_so_that_the_units_own_user_can_read_it() -> None:
    unit = (ROOT / "systemd" / "reconciled.service").read_text(encoding="utf-8")
    assert "DynamicUser=yes" in unit
    assert "install -Dm644 systemd/reconciled.toml /etc/reconciled/reconciled.toml" in README


def test_every_metric_stands_in_the_readme_as_the_scrape_tells_it_and_no_other() -> None:
    table = README[README.index("| metric | labels | tells |") : README.index("</details>\n\nWhat to alert on")]
    rows = [
        f"| `{f.name}` | {', '.join(f'`{name}`' for name in f.labels) or '-'} | {f.kind}: {f.help} |" for f in FAMILIES
    ]
    assert table.strip().splitlines()[2:] == rows


def test_every_alert_is_on_a_metric_that_there_is() -> None:
    table = README[README.index("| alert on | because |") : README.index("### What is kept")]
    named = set(re.findall(r"(?:reconciled|process)_[a-z_]+", table))
    assert len(named) > 10
    assert {name.removesuffix("_bucket") for name in named} - {family.name for family in FAMILIES} == set()


def test_a_unit_is_running_after_five_commands() -> None:
    """tests/systemd runs them; here only that they are five, and that the wheel carries what the last one names."""
    block = re.search(r"<!-- unit: [^\n]*-->\n```sh\n(.*?)```", README, re.DOTALL)
    assert block is not None
    assert len(block[1].splitlines()) == 5
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (carried,) = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"].items()
    assert carried == ("systemd", "share/reconciled/systemd")
    assert "/opt/reconciled/share/reconciled/systemd/reconciled.service" in block[1]


def rows_of(heading: str) -> list[list[str]]:
    """The cells of every table under a heading, without those of the headings below it; heads and rulers left out."""
    section = README[README.index(f"\n{heading}\n") + 1 :].partition("\n#")[0]
    rows = re.findall(r"^\| .*", section, re.MULTILINE)
    return [re.split(r" \| ", row.strip("| ")) for row in rows if row.startswith("| `")]


def test_every_route_stands_in_the_readme_and_no_other() -> None:
    """As `METHOD PATH`, one cell each or several of one method between commas; `…` stands for `/v1/operations`."""
    source = (ROOT / "handlers" / "api" / "app.py").read_text(encoding="utf-8")
    one = "/v1/operations/{id}"
    found = re.findall(r'web\.(get|post)\((one|f?"[^"]*")', source)
    routes = {
        (method.upper(), path.strip('f"').replace("{one}", one).replace("{{", "{").replace("}}", "}"))
        for method, path in ((method, "{one}" if path == "one" else path) for method, path in found)
    }
    assert len(routes) > 15
    assert ("GET", one) in routes
    told: set[tuple[str, str]] = set()
    for calls, *_ in rows_of("### The API"):
        method = "GET"
        for call in re.findall(r"`([^`]+)`", calls):
            head, _, path = call.rpartition(" ")
            method = head or method
            told.add((method, path.partition("?")[0].replace("…", "/v1/operations")))
    assert told == routes


def test_every_command_has_a_row_in_the_readme() -> None:
    """In the table of commands, of audits, or, for those that run by themselves, in a shell block or as `make demo`."""
    actions = build_parser()._subparsers
    assert actions is not None
    commands = next(a for a in actions._group_actions if a.choices).choices
    assert commands is not None
    rows = rows_of("### The command line") + rows_of("### Audit")
    told = {name for row in rows for name in re.findall(r"`([a-z]+)(?= [^`]*`|`)", row[0])}
    blocks = "".join(re.findall(r"```(?:sh|console)\n(.*?)```", README, re.DOTALL))
    told |= {name for name in ("serve", "check", "simulate") if f"\nreconciled {name} " in blocks}
    told |= {"demo"} if "$ make demo\n" in blocks else set()
    assert set(commands) - told == set()


def test_every_link_within_the_readme_leads_to_a_heading() -> None:
    """And every heading of the first two ranks is linked in the table at the top."""
    prose = re.sub(r"^ *```.*?^ *```", "", README, flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^##+ (.*)$", prose, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    linked = re.findall(r"\]\(#([^)]*)\)", README)
    assert set(linked) - anchors == set()
    ranked = re.findall(r"^## (.*)$", prose, re.MULTILINE)
    assert {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in ranked} - set(linked) == set()
