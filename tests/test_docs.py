"""The README keeps its promises: the diagram is the table's, and every key, route and command stands in it."""

import re
from pathlib import Path

from daemon.cli import build_parser
from reconcile.states import STATUS_OF, TERMINAL, TRANSITIONS, State

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


def test_every_configuration_key_stands_in_the_readme() -> None:
    source = (ROOT / "daemon" / "config.py").read_text(encoding="utf-8")
    keys = set(
        re.findall(r'\.(?:text|text_or_none|whole|number|duration_ms|size|secret_or_none|secrets)\("([a-z_]+)"', source)
    )
    table = README[README.index("## Configuration") : README.index("## Running it")]
    assert {key for key in keys if key not in table} == set()


def test_every_route_stands_in_the_readme() -> None:
    source = (ROOT / "handlers" / "api" / "app.py").read_text(encoding="utf-8")
    routes = re.findall(r'web\.(?:get|post)\(f?"(?:\{one\})?([^"]*)"', source)
    assert len(routes) > 8
    missing = [route for route in routes if route.replace("{{", "{").replace("}}", "}") not in README]
    assert missing == []


def test_every_command_stands_in_the_readme() -> None:
    actions = build_parser()._subparsers
    assert actions is not None
    commands = next(a for a in actions._group_actions if a.choices).choices
    assert commands is not None
    assert {name for name in commands if f"{name}" not in README} == set()
