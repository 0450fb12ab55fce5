"""Every key of the configuration, whoever added it: what happens where it is missing, wrong, or beside an unknown one.

Nothing here names a key but a few promises that are typed by hand. The keys are those of `sample.toml`, the kinds of
wrong values follow from its values, and what is required or defaults to what follows from the README's table. A key
that the parser asks for and that does not stand in the sample fails `test_the_sample_names_every_key_that_is_known`.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import fields, is_dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final

import pytest

from daemon.cli import build_parser, exits, main
from daemon.config import Config, load, parse
from daemon.sections import Section
from reconcile.checkpoint import AuditKey
from reconcile.errors import ConfigError
from tests.daemon.certificates import make_pair
from tests.handlers.ground import API_KEY, OTHER_SECRET, SECRET

ROOT = Path(__file__).parents[2]
SAMPLE = Path(__file__).with_name("sample.toml").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
ENVIRON: Final = {
    "FIRST_TOKEN": "first-token-canary-0123",
    "AGENTS_TOKEN": "agents-token-canary-0123",
    "AUDIT_KEY": AuditKey.made(b"s" * 32).pem(),
    "API_KEY": API_KEY,
    "HOOK_SECRET": SECRET,
    "CALLBACK_SECRET": OTHER_SECRET,
    "MEDIA_TOKEN": "media-token-canary-0123",
    "MEDIA_HOOK": "media-hook-canary-0123456789",
    "RUNS_HOOK": "runs-hook-canary-0123456789",
    "PUBLIC_KEY": "d" * 64,
}
#: Keys of secrets, by which an inline table is one, and what may stand beside one of them.
SOURCES: Final = {"env", "credential", "file"}
BESIDE: Final = {"prefix"}
#: Lists that must hold something, where an empty one would mean what nobody means.
NEVER_EMPTY: Final = {
    "api.tokens.agents.may", "callbacks.ci.secrets", "callbacks.ci.events", "providers.media.status.state",
    "providers.media.status.pending", "providers.media.items.succeeded", "providers.runs.webhook.state",
    "providers.runs.status.pending", "providers.runs.status.succeeded", "providers.runs.items.succeeded",
    "providers.signed.status.pending", "providers.signed.status.succeeded",
}  # fmt: skip
#: Keys that stand in the README and in no sample: whatever they hold is refused so far.
REFUSED: Final = {"providers.*.jwks_url"}
#: Tables whose keys are the user's own, and what may stand beside the others there.
OPEN: Final = {"providers.media.headers": ("inline-canary",)}
#: Fields of a configuration that tell nothing of what it does: its name, and what stands in every contract.
UNCOMPARED: Final = {"file", "attention_within_ms"}
#: The number of a declaration, which changes with every letter of it.
NUMBER: Final = {"version"}
LONG: Final = "x" * 20_000
CONTROLS: Final = ("a\x00b", "a\nb", "\x1b[31mred", "a\u202eb")

#: What no value of this kind can be; for each, nothing that stands in the sample.
WRONG: Final[dict[str, list[Any]]] = {
    "string": [5, 1.5, True, False, [], ["x"], {}, {"a": 1}, date(2026, 1, 1), "", LONG, *CONTROLS],
    "number": ["5", "", True, False, [], [5], {}, date(2026, 1, 1), 0, -1, 10**30, float("nan"), float("inf"), LONG],
    "boolean": ["true", "", 0, 1, 1.5, [], [True], {}, date(2026, 1, 1), LONG, *CONTROLS],
    "list": [
        5, 1.5, True, "inline", "", {}, {"a": 1}, date(2026, 1, 1), LONG,
        [5], [True], [""], [[]], [["x"]], [{}], [{"wat": "canary"}], [LONG], *([each] for each in CONTROLS),
    ],
    "secrets": [
        5, 1.5, True, "inline-canary", "", {}, {"a": 1}, date(2026, 1, 1), LONG,
        [5], [True], [""], [[]], [["x"]], [{}], [{"wat": "canary"}], [LONG], ["inline-canary"],
        *([each] for each in CONTROLS),
    ],
    "secret": [
        5, 1.5, True, [], "inline-canary", "", LONG, ["canary"], date(2026, 1, 1), {}, {"wat": "canary"},
        {"env": ""}, {"env": 5}, {"env": ["x"]}, {"env": LONG}, {"env": "inline-canary="}, {"env": "NOT_SET"},
        {"file": ""}, {"file": LONG}, {"credential": LONG}, {"credential": "x" * 300},
        {"credential": "../elsewhere"}, {"credential": "not-there"},
        {"env": "API_KEY", "file": "x"}, *({source: each} for source in sorted(SOURCES) for each in CONTROLS),
    ],
    "table": [5, 1.5, True, False, "word", "", [], ["inline-canary"], date(2026, 1, 1), LONG],
}  # fmt: skip


#: What one string may be and another may not: taken, or told as any other wrong value is.
PERHAPS: Final = [
    "nonsense", "two words", "0s", "-1", "ä", "x" * 3_000, "a," * 1_000, "h" * 3_000 + "://h",
    "http://", "ftp://host/x", "https://[::1", "/" + "a" * 3_000,
    "$", "$.", "$..a", "$[?@.a == 'b']", "$['" + "a" * 1_500 + "', 'b']", "$." + "a" * 3_000, "$[" + "9" * 3_000 + "]",
    "$" + "[0]" * 1_000, "$[?" + "(" * 3_000, "GET", "GET /", "GET /a/{job_id}/{job_id}", "G" * 3_000 + " /a",
    "POST /" + "a" * 3_000, "GET /{" + "a" * 3_000 + "}", "GET /{job_id}?{job_id}=1", "GET /../{job_id}",
    "header:", "header:a b", "header:ä", "header:" + "a" * 3_000, "whsec_", "%", "{0}", "\\", "'", '"', "a" * 4_096,
]  # fmt: skip

#: The same of an address.
ADDRESSES: Final = ["https://user:canary@host/x", "https://host/x?token=canary", "https://host/" + "x" * 3_000]


# ---- the sample as keys ---------------------------------------------------------------------------------------------


def is_secret(value: Any) -> bool:
    return isinstance(value, Mapping) and len(value.keys() & SOURCES) == 1 and value.keys() <= SOURCES | BESIDE


def walked(table: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every key of a document and its value, tables too."""
    for name, value in table.items():
        yield (*path, name), value
        if isinstance(value, Mapping) and not is_secret(value):
            yield from walked(value, (*path, name))


def kind_of(value: Any) -> str:
    if is_secret(value):
        return "secret"
    if isinstance(value, list) and all(map(is_secret, value)):
        return "secrets"
    kinds = {bool: "boolean", str: "string", int: "number", float: "number", list: "list", dict: "table"}
    return kinds[type(value)]


def told_as(path: tuple[str, ...]) -> str:
    return ".".join(path)


EVERY: Final = {told_as(path): (path, value) for path, value in walked(tomllib.loads(SAMPLE))}
KEYS: Final = [key for key, (_, value) in EVERY.items() if kind_of(value) != "table"]
TABLES: Final = [key for key, (_, value) in EVERY.items() if kind_of(value) == "table"]


#: Made once: `check` runs some thousand times here, and a command line of all commands takes longer than it does.
PARSER: Final = build_parser()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all that the sample names, and its secrets in the environment."""
    make_pair(tmp_path)
    monkeypatch.setattr("daemon.cli.build_parser", lambda: PARSER)
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NOT_SET", raising=False)
    (tmp_path / "credentials").mkdir(mode=0o700)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "credentials"))
    return tmp_path


def sample(here: Path) -> dict[str, Any]:
    return tomllib.loads(SAMPLE.replace("@HERE@", str(here)))


def put(document: dict[str, Any], path: tuple[str, ...], *value: Any) -> dict[str, Any]:
    """A copy with that value there, or without the key where none is given."""
    copy = deepcopy(document)
    at: Any = copy
    for name in path[:-1]:
        at = at[name]
    at.pop(path[-1], None)
    if value:
        (at[path[-1]],) = value
    return copy


def toml(value: Any) -> str:
    """A value as TOML spells it, tables inline."""
    match value:
        case bool():
            return "true" if value else "false"
        case date():
            return value.isoformat()
        case float() | int():
            return str(value)
        case Mapping():
            return "{" + ", ".join(f"{json.dumps(name)} = {toml(each)}" for name, each in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(toml, value)) + "]"
        case _:
            return json.dumps(value)


def written(here: Path, document: Mapping[str, Any]) -> Path:
    file = here / "reconciled.toml"
    lines = [f"{json.dumps(name)} = {toml(value)}\n" for name, value in document.items()]
    file.write_text("".join(lines), encoding="utf-8")
    assert repr(tomllib.loads(file.read_text(encoding="utf-8"))) == repr(dict(document))
    return file


def loaded(here: Path, document: Mapping[str, Any]) -> Config:
    return load(written(here, document), os.environ)


def refused(here: Path, document: Mapping[str, Any]) -> ConfigError | None:
    """Why it is refused; None where it is taken. What `load` would say, without a file: there are thousands."""
    try:
        parse(document, os.environ, file=str(here / "reconciled.toml"))
    except ConfigError as fault:
        return fault
    return None


def is_near(fault: ConfigError, key: str) -> bool:
    """Whether it is told at the key itself, or at one that needs it: of the same table, or of the same provider."""
    return fault.key_path.startswith((key, ".".join(key.split(".")[:2])))


def assert_promised(
    here: Path,
    document: Mapping[str, Any],
    key: str,
    capsys: pytest.CaptureFixture[str],
    fault: ConfigError | None = None,
    told: set[str] | None = None,
) -> str:
    """The parser and `check` name the file, the key, what was found and what was expected; and nothing else breaks.

    `fault`: what the parser said of it already. `told`: expectations that `check` has told; it is asked for new ones.
    """
    error = refused(here, document) if fault is None else fault
    assert error is not None, f"{key} is taken: {document}"[:2_000]
    words = str(error)
    assert re.fullmatch(re.escape(key) + r"(\[[0-9]+\]|\..+)?", error.key_path), (error.key_path, words[:500])
    assert words == f"{here / 'reconciled.toml'}: {error.key_path}: found {error.found}; expected {error.expected}"
    assert error.found
    assert error.expected
    assert words.isprintable()
    assert "canary" not in words, words
    assert len(words) < 1000
    if told is not None and error.expected in told:
        return words
    if told is not None:
        told.add(error.expected)
    assert main(["check", "--config", str(written(here, document))]) == exits.BAD_CONFIGURATION
    out, err = capsys.readouterr()
    assert out == ""
    assert f"reconciled: {words}" in err.splitlines()
    assert "Traceback" not in err
    return words


# ---- the sample and the parser know the same ------------------------------------------------------------------------


def alike(path: str) -> str:
    """A key's path without the names that are the user's own, so that one provider may show what another one lacks."""
    return re.sub(r"^(providers|callbacks|api\.tokens)\.[^.]+", r"\1.*", path)


def known_keys(document: Mapping[str, Any], here: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Every key that the parser asked for, as its tables remember them."""
    roots: list[Section] = []
    original = Section.refuse_unknown

    def kept(self: Section) -> None:
        roots.append(self)
        original(self)

    monkeypatch.setattr(Section, "refuse_unknown", kept)
    loaded(here, document)
    found, left = set(), list(roots)
    while left:
        section = left.pop()
        left += section._children
        found |= {alike(f"{section._path}.{name}" if section._path else name) for name in section._known}
    return found


def test_the_sample_names_every_key_that_is_known(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = known_keys(sample(here), here, monkeypatch)
    assert len(known) > 30
    assert known - {alike(key) for key in EVERY} == set(), "these keys are read: put them into sample.toml"


def test_no_value_of_the_sample_is_a_default(here: Path) -> None:
    """Or a key that nobody reads would pass for one that is read."""
    document, needed = sample(here), required()
    whole = shape(loaded(here, document))
    for key in KEYS:
        if key in needed:
            continue
        try:
            without = parse(put(document, EVERY[key][0]), os.environ, file="")
        except ConfigError:
            continue  # needed beside the others
        assert shape(without) != whole, key


def test_every_key_stands_in_the_readme() -> None:
    """In a row of its tables of keys, by its whole path; and they hold no key that nobody reads."""
    keys = {alike(key) for key in KEYS if key.rpartition(".")[0] not in OPEN}
    assert keys - promised().keys() == set()
    assert promised().keys() - {alike(key) for key in EVERY} == REFUSED


# ---- missing --------------------------------------------------------------------------------------------------------


def promised() -> dict[str, str]:
    """The README's word for what holds where a key is missing, by its path; `NAME` is any name."""
    found: dict[str, str] = {}
    under: str | None = None
    for line in README.splitlines():
        if not line.startswith("|"):
            under = None
        if (head := re.match(r"\| key(?: of `([^`]+)`)? \|", line)) is not None:
            under = f"{head[1]}." if head[1] else ""
        if under is None or (row := re.match(r"\| (`[^|]*`) \| ([^|]*) \|", line)) is None:
            continue
        names: list[str] = []
        for name in re.findall(r"`([^`]+)`", row[1]):
            names.append(f"{names[-1].rpartition('.')[0]}{name}" if name.startswith(".") else name)
        default = row[2]
        values = re.findall(r"`([^`]+)`", default) if re.fullmatch(r"(`[^`]+`(, )?)+", default) else []
        for i, name in enumerate(names):
            told = values[i] if len(values) == len(names) else values[0] if len(values) == 1 else default
            found[f"{under}{name}".replace("NAME", "*")] = told
    return found


def required() -> set[str]:
    return {key for key in KEYS if promised().get(alike(key)) == "required"}


@pytest.mark.parametrize("key", KEYS)
def test_a_key_that_is_left_out_is_told_or_has_the_default_of_the_readme(
    here: Path, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, value = EVERY[key]
    without = put(sample(here), path)
    default = promised().get(alike(key))
    if default == "required":
        assert "found nothing" in assert_promised(here, without, key, capsys)
        return
    if (fault := refused(here, without)) is not None:  # needed beside what else stands in the sample
        assert is_near(fault, key), fault
        return
    assert main(["check", "--config", str(written(here, without))]) == 0
    if default is None or (said := meant(default, value)) is None:
        return
    left, right = loaded(here, without), loaded(here, put(sample(here), path, said))
    assert shape(left) == shape(right), f"the README says {default}"


def meant(default: str, value: Any) -> Any:
    """A default of the README as a value of the sample's kind; None where it is told in words."""
    if default.startswith("["):
        return json.loads(default)
    if default.startswith(("made ", "by kind", "-", "$", "everything", "else")) or "`" in default or " " in default:
        return None
    return default if isinstance(value, str) else json.loads(default)


def test_the_readmes_defaults_are_found() -> None:
    """The table is read as it is meant: these are typed by hand."""
    told = promised()
    assert told["webhooks.max_body"] == "1MiB"
    assert told["caps.result"] == "16GiB"
    assert told["providers.*.create.on_absent"] == "ask"
    assert told["callbacks.*.events"] == '["done", "needs_attention"]'
    assert told["providers.*.create.idempotency.kept"] == "24h"
    assert told["providers.*.items.hosts"] == told["providers.*.status.expired"] == "[]"
    assert {f"providers.media.{key}" for key in ("create.job_id", "status.state", "webhook.scheme")} <= required()
    assert {"providers.openai.kind", "providers.openai.base_url", "api.tokens.agents.token"} <= required()


@pytest.mark.parametrize("table", TABLES)
def test_a_table_that_is_left_out_parses_or_names_what_is_missing(
    here: Path, table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if promised().get(alike(table)) == "required":
        assert "found nothing" in assert_promised(here, put(sample(here), EVERY[table][0]), table, capsys)
        return
    if (fault := refused(here, put(sample(here), EVERY[table][0]))) is not None:
        assert is_near(fault, table), fault


# ---- wrong ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [*KEYS, *TABLES])
def test_a_wrong_value_is_told_with_its_place(here: Path, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    path, value = EVERY[key]
    document, told = sample(here), set[str]()
    for wrong in WRONG[kind_of(value)]:
        assert_promised(here, put(document, path, wrong), key, capsys, told=told)


@pytest.mark.parametrize("key", [key for key in KEYS if isinstance(EVERY[key][1], str | list)])
def test_a_value_of_the_right_type_is_taken_or_told_with_its_place(
    here: Path, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """However long, whatever is in it: the words stay short, on one line, and without a password."""
    (path, value), whole, told = EVERY[key], sample(here), set[str]()
    one = value[0] if isinstance(value, list) else value
    is_address = isinstance(one, str) and one.startswith("https://") and "status_page" not in key
    for perhaps in [*PERHAPS, *(ADDRESSES if is_address else [])]:
        document = put(whole, path, [perhaps] if isinstance(value, list) else perhaps)
        if (fault := refused(here, document)) is not None:
            at = fault.key_path if is_near(fault, key) else key
            assert_promised(here, document, at, capsys, fault, told)


@pytest.mark.parametrize("key", [key for key in KEYS if isinstance(EVERY[key][1], list)])
def test_an_empty_list_means_none_or_is_told(here: Path, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = put(sample(here), EVERY[key][0], [])
    if key in NEVER_EMPTY:
        assert_promised(here, document, key, capsys)
        return
    if (fault := refused(here, document)) is not None:  # none, where one is needed
        assert is_near(fault, key), fault


@pytest.mark.parametrize("table", ["", *TABLES])
def test_an_unknown_neighbour_is_told_with_its_place(
    here: Path, table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = EVERY[table][0] if table else ()
    values: list[Any] = ["inline-canary", 1, True, [], {"a": 1}, LONG]
    told = set[str]()
    for value in values:
        if value in OPEN.get(table, ()):
            assert refused(here, put(sample(here), (*path, "wat"), value)) is None
            continue
        assert_promised(here, put(sample(here), (*path, "wat"), value), told_as((*path, "wat")), capsys, told=told)


@pytest.mark.parametrize("name", ["two words", "a.b", "\x1b[31m", "", "ä", "a\nb", '"'])
@pytest.mark.parametrize("table", ["", *TABLES])
def test_an_unknown_neighbour_of_any_name_is_told_on_one_line(here: Path, table: str, name: str) -> None:
    path = EVERY[table][0] if table else ()
    with pytest.raises(ConfigError) as told:
        loaded(here, put(sample(here), (*path, name), 1))
    assert told.value.key_path.startswith(table)
    assert str(told.value).isprintable()


@pytest.mark.parametrize("provider", [each for each in TABLES if re.fullmatch(r"providers\.[a-z]+", each)])
def test_a_key_set_is_known_and_refused_with_what_stands_in_its_place(
    here: Path, provider: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Typed by hand: no provider can have it, so the sample cannot either."""
    path = (*EVERY[provider][0], "jwks_url")
    values: list[Any] = ["https://user:canary@host/keys", "", 5, [], {}, {"env": "API_KEY"}, LONG]
    for value in values:
        words = assert_promised(here, put(sample(here), path, value), told_as(path), capsys)
        assert re.search(r"expected webhook_(secrets|token): deliveries of .+ are proven by the scheme ", words)


# ---- secrets (S39, S40) ---------------------------------------------------------------------------------------------


def secret_places() -> list[tuple[str, tuple[str, ...], bool]]:
    """Each secret's key, its path, and whether it stands in a list."""
    found = [(key, EVERY[key][0], False) for key in KEYS if kind_of(EVERY[key][1]) == "secret"]
    lists = [key for key in KEYS if kind_of(EVERY[key][1]) == "secrets"]
    return [*found, *((key, EVERY[key][0], True) for key in lists)]


@pytest.mark.parametrize(("key", "path", "listed"), secret_places())
def test_a_secret_is_read_from_where_only_we_can_and_never_shown(
    here: Path, key: str, path: tuple[str, ...], listed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    value = EVERY[key][1]
    secret = ENVIRON[(value[0] if listed else value)["env"]]
    file = here / "a-secret"
    file.write_text(secret)
    (here / "credentials" / "given").write_text(secret)

    def asking(source: Mapping[str, str]) -> dict[str, Any]:
        return put(sample(here), path, [source] if listed else source)

    # S40: systemd's own modes; taken as the environment is.
    (here / "credentials" / "given").chmod(0o440)
    whole = loaded(here, sample(here))
    assert set(loaded(here, asking({"credential": "given"})).secrets) == set(whole.secrets)
    file.chmod(0o600)
    assert set(loaded(here, asking({"file": str(file)})).secrets) == set(whole.secrets)
    for mode in (0o644, 0o640, 0o604):
        file.chmod(mode)
        words = assert_promised(here, asking({"file": str(file)}), key, capsys)
        assert "0600" in words
        assert not any(part in words for part in secret.split())
    file.write_text("")
    file.chmod(0o600)
    assert_promised(here, asking({"file": str(file)}), key, capsys)
    file.write_bytes(b"\xff\xfe")
    assert_promised(here, asking({"file": str(file)}), key, capsys)


# ---- the daemon itself ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("state_dir", 5),
        ("api.tokens.agents.may", ["write"]),
        ("providers.openai.poll.base", "1 s"),
        ("webhooks.tls_key", "/dev/null"),
    ],
)
def test_a_start_with_it_ends_with_78_and_one_sentence(here: Path, key: str, value: Any) -> None:
    file = written(here, put(sample(here), EVERY[key][0], value))
    command = [sys.executable, "-m", "daemon", "serve", "--config", str(file)]
    told = subprocess.run(command, capture_output=True, timeout=60, check=False, cwd=ROOT, text=True)
    assert told.returncode == exits.BAD_CONFIGURATION
    assert told.stdout == ""
    assert told.stderr.startswith(f"reconciled: {file}: {key}")
    assert len(told.stderr.splitlines()) == 1
    assert not (here / "state").exists()


def shape(value: Any) -> Any:
    """What a configuration holds, so that two can be compared: adapters by what they go by, handles by their types."""
    if hasattr(value, "contract"):
        return shape(value.contract), shape(getattr(value, "declaration", None))
    if is_dataclass(value) and not isinstance(value, type):
        names = {each.name for each in fields(value)} - (UNCOMPARED if isinstance(value, Config) else NUMBER)
        return {name: shape(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {name: shape(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [shape(each) for each in value]
    if isinstance(value, str | int | float | bool | Path | frozenset | None):
        return value
    return repr(value) if "0x" not in repr(value) else type(value).__name__
