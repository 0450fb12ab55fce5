"""Reading one table of the configuration: typed getters that know where they stand, and a net for unknown keys."""

import json
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from daemon import given_file
from daemon.misspelt import missing, unknown
from daemon.shown import cut, kind, shown
from reconcile.errors import ConfigError, CredentialAbsent, SecretAbsent, SettingsAtOdds
from reconcile.given import SPAN_EXAMPLES, span_ms

F = TypeVar("F", bound=ConfigError)

_SIZE: Final = re.compile(r"([0-9]{1,12})(B|KiB|MiB|GiB)")
_UNITS_BYTES: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
#: A key that TOML takes without quotes, and an element of its list.
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+(?:\[[0-9]+\])?")
_MISSING: Final = object()
#: What a shell takes for a variable's name. Anything else is rather the secret itself, and is not shown.
_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: How a secret is given.
_GIVEN: Final = 'a secret as { env = "NAME" }, { credential = "NAME" } or { file = "PATH" }'
#: Bytes of a file's name (NAME_MAX).
_MAX_FILE_NAME: Final = 255
#: Characters from which on a word of a PEM text is none of its frame ("-----BEGIN", "PRIVATE"). 16: arbitrary between.
_PEM_WORD: Final = 16
#: Characters of a text. 4,096: the longest path that Linux takes; no address or name is longer.
MAX_TEXT: Final = 4096
#: Characters of an error's two halves, beyond which they are cut. 300 and 500, arbitrary: a usual path and the longest
#: list of known keys are told whole.
_MAX_FOUND: Final = 300
_MAX_EXPECTED: Final = 500
#: The largest number. 1e9: arbitrary, below what SQLite and every timer take.
MAX_NUMBER: Final = 1e9


@dataclass(slots=True)
class Sources:
    """Where values come from, and every secret that was read."""

    file: str
    environ: Mapping[str, str]
    secrets: list[str] = field(default_factory=list)


class Section:
    """One table. Every key that a getter asked for is known; `refuse_unknown` refuses the rest."""

    def __init__(self, table: Any, path: str, sources: Sources) -> None:
        self._path = path
        self._sources = sources
        self._children: list[Section] = []
        self._known: set[str] = set()
        if not isinstance(table, Mapping):
            # Its kind alone: who forgets the table around a secret may have put the secret itself here.
            raise ConfigError(sources.file, path, kind(table), "a table")
        self._table = table

    def fault(self, key: str, found: str, expected: str) -> ConfigError:
        """An error that names this key in full, and is short enough to be read whatever stands there."""
        return self._fault(ConfigError, key, found, expected)

    def at_odds(self, key: str, found: str, expected: str, *others: str) -> SettingsAtOdds:
        """An error about this key that hangs on other keys of this table, or on a whole key path such as `beside`'s."""
        fault = self._fault(SettingsAtOdds, key, found, expected)
        fault.others = tuple(other if "." in other else self._at(other) for other in others)
        return fault

    def beside(self, key: str) -> str:
        """The path of a key in the table around this one."""
        return f"{self._path.rpartition('.')[0]}.{key}"

    def fault_here(self, found: str, expected: str) -> ConfigError:
        """An error that names this table in full."""
        return ConfigError(self._sources.file, self._path, found, expected)

    def shown(self, value: Any) -> str:
        """A value as it may stand in an error: its text where that is short, else its type and beginning."""
        return shown(value)

    def names(self) -> list[str]:
        """The keys that stand here, in the file's order."""
        return list(self._table)

    def has(self, key: str) -> bool:
        """Whether the key stands here; it is none the more known for that."""
        return key in self._table

    def given(self, key: str) -> Any:
        """What stands at the key as the file has it, whatever its type; None where it is absent. Not known by that."""
        return self._table.get(key)

    def know(self, key: str) -> None:
        """Take the key as known: its value was looked at by other means than a getter's."""
        self._known.add(key)

    # ---- typed values ----

    def text(self, key: str, default: str | None = None) -> str:
        """A string of one line that is not empty; required where there is no default."""
        value = self._get(key, default, "a string")
        if not isinstance(value, str) or not value:
            raise self.fault(key, shown(value), "a string that is not empty")
        if not _is_text(value):
            expected = f"a string of at most {MAX_TEXT} characters, none of them a control character"
            raise self.fault(key, shown(value), expected)
        return value

    def text_or_none(self, key: str) -> str | None:
        """A string, or None where the key is absent."""
        self._known.add(key)
        return self.text(key) if key in self._table else None

    def choice(self, key: str, default: str, *others: str) -> str:
        """One of a few words; the default where the key is absent."""
        value = self._get(key, default, "a word")
        words = (default, *others)
        if value not in words or not isinstance(value, str):
            raise self.fault(key, shown(value), f"one of {', '.join(words)}")
        return value

    def flag(self, key: str) -> bool:
        """True or false; false where the key is absent."""
        value = self._get(key, False, "true or false")
        if not isinstance(value, bool):
            raise self.fault(key, shown(value), "true or false")
        return value

    def texts(self, key: str) -> list[tuple[str, str]]:
        """A list of strings that are not empty, each with the key path it stands at; none where the key is absent."""
        self._known.add(key)
        values = self._table.get(key, [])
        if not isinstance(values, list) or not all(_is_text(value) for value in values):
            # Not shown: an address may have a password in it.
            raise self.fault(key, "a value of another shape", "a list of strings that are not empty")
        return [(f"{key}[{i}]", value) for i, value in enumerate(values)]

    def words(self, key: str, *known: str) -> frozenset[str] | None:
        """A list of some of a few words, each once; None where the key is absent."""
        self._known.add(key)
        if key not in self._table:
            return None
        values, expected = self._table[key], f"a list of some of {', '.join(known)}"
        if not isinstance(values, list):
            raise self.fault(key, kind(values), expected)
        for i, value in enumerate(values):
            if not isinstance(value, str) or value not in known:
                raise self.fault(f"{key}[{i}]", shown(value), f"one of {', '.join(known)}")
            if value in values[:i]:
                raise self.fault(f"{key}[{i}]", f"{value} a second time", "each word once")
        return frozenset(values)

    def whole(self, key: str, default: int) -> int:
        """A whole number above 0."""
        value = self._get(key, default, "a whole number above 0")
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < MAX_NUMBER:
            raise self.fault(key, shown(value), "a whole number above 0")
        return value

    def number(self, key: str, default: float) -> float:
        """A number above 0."""
        value = self._get(key, default, "a number above 0")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < MAX_NUMBER:
            raise self.fault(key, shown(value), "a number above 0")
        return float(value)

    def duration_ms(self, key: str, default_ms: int | None) -> Any:
        """A duration such as "30s", as ms; the default, already ms, where the key is absent."""
        self._known.add(key)
        if key not in self._table:
            return default_ms
        span = span_ms(self._table[key])
        if span is None:
            raise self.fault(key, shown(self._table[key]), f"a duration such as {SPAN_EXAMPLES}")
        return span

    def size(self, key: str, default: str) -> int:
        """A size such as "1MiB", as bytes."""
        value = self._get(key, default, "a size")
        match = _SIZE.fullmatch(value) if isinstance(value, str) else None
        if match is None or int(match[1]) == 0:
            raise self.fault(key, shown(value), 'a size such as "64KiB", "1MiB" or "16GiB"')
        return int(match[1]) * _UNITS_BYTES[match[2]]

    # ---- tables ----

    def section(self, key: str) -> "Section":
        """A table below; an absent one is empty."""
        self._known.add(key)
        child = Section(self._table.get(key, {}), self._at(key), self._sources)
        self._children.append(child)
        return child

    def section_or_none(self, key: str) -> "Section | None":
        """A table below, or None where the key is absent."""
        self._known.add(key)
        return self.section(key) if key in self._table else None

    def sections(self, key: str) -> Iterator[tuple[str, "Section"]]:
        """Tables below a table, each under a name of its own."""
        named = self.section(key)
        for name in named.names():
            if not _NAME.fullmatch(name):
                raise named.fault(name, repr(name), "a name of lower-case letters, digits, - and _")
            yield name, named.section(name)

    # ---- secrets ----

    def secret_or_none(self, key: str, *, base: Path | None = None) -> str | None:
        """A secret from the environment, a systemd credential or a file; never inline. None where the key is absent."""
        self._known.add(key)
        if key not in self._table:
            return None
        return self._secret(key, self._table[key], base)

    def secret(self, key: str, *, base: Path | None = None) -> str:
        """A secret that must be there."""
        secret = self.secret_or_none(key, base=base)
        if secret is None:
            raise self.fault(key, "nothing", _GIVEN)
        return secret

    def pem_or_none(self, key: str, *, base: Path | None = None) -> str | None:
        """A key in PEM form, from where secrets come from. None where the key is absent."""
        self._known.add(key)
        if key not in self._table:
            return None
        return self._secret(key, self._table[key], base, is_pem=True)

    def secret_name(self, key: str) -> str | None:
        """Where a secret comes from, in words that may be recorded."""
        value = self._table.get(key)
        named = [pair for pair in value.items() if pair[0] != "prefix"] if isinstance(value, Mapping) else []
        return ":".join(map(str, named[0])) if named else None

    def secrets(self, key: str) -> list[tuple[str, str]]:
        """A list of secrets, each with the key path it stands at."""
        self._known.add(key)
        values = self._table.get(key, [])
        if not isinstance(values, list):
            # Not shown: who forgets the brackets may have put the secret itself here.
            expected = 'a list of secrets, each as { env = "NAME" }, { credential = "NAME" } or { file = "PATH" }'
            raise self.fault(key, "a value of another shape", expected)
        return [(f"{key}[{i}]", self._secret(f"{key}[{i}]", value, None)) for i, value in enumerate(values)]

    def prefixed_secret(self, key: str, value: Any) -> tuple[str, str]:
        """A secret with what stands before it: `{ env = "NAME", prefix = "Bearer " }`."""
        self._known.add(key)
        bare, prefix = value, ""
        if isinstance(value, Mapping) and "prefix" in value:
            prefix = value["prefix"]
            bare = {name: each for name, each in value.items() if name != "prefix"}
        if not isinstance(prefix, str) or not prefix.isascii() or not (prefix.isprintable() or not prefix):
            raise self.fault(key, "a prefix that no header can hold", 'printable ASCII, such as prefix = "Bearer "')
        return prefix, self._secret(key, bare, None)

    def _secret(self, key: str, value: Any, base: Path | None, *, is_pem: bool = False) -> str:
        if not isinstance(value, Mapping) or len(value) != 1:
            raise self.fault(key, "a value of another shape", _GIVEN)
        source, name = next(iter(value.items()))
        is_name = _is_text(name) and (source != "env" or _ENV_NAME.fullmatch(name) is not None)
        if source not in ("env", "credential", "file") or not is_name:
            raise self.fault(key, "a value of another shape", _GIVEN)
        secret = self._read_secret(key, source, name, base).strip("\n")
        lines = secret.split("\n") if is_pem else [secret]
        if not secret or not all(line.isprintable() for line in lines):
            raise self.fault(key, "an empty or unprintable secret", f"a secret in {source} {name}")
        self._sources.secrets += _pem_words(secret) if is_pem else [secret]
        return secret

    def file_or_none(self, key: str, *, is_secret: bool) -> tuple[Path, str] | None:
        """A file that others read too, by its path or as a credential, and its text. None where the key is absent.

        A secret one may be its group's (as certificates' keys are handed on), and never everybody's.
        """
        self._known.add(key)
        if key not in self._table:
            return None
        value = self._table[key]
        source, name = ("file", value) if isinstance(value, str) else _only_item(value)
        if source not in ("file", "credential") or not _is_text(name):
            expected = '"PATH", { file = "PATH" } or { credential = "NAME" }'
            raise self.fault(key, "a value of another shape", expected)
        path = self._credential(key, name) if source == "credential" else Path(name)
        text = self._read_file(key, path, mask=0o007 if is_secret else 0)
        if is_secret:
            self._sources.secrets += _pem_words(text)
        return path, text

    def _read_secret(self, key: str, source: str, name: str, base: Path | None) -> str:
        environ = self._sources.environ
        if source == "env":
            if name not in environ:
                raise self._fault(SecretAbsent, key, "nothing", f"the environment variable {name} to be set")
            return environ[name]
        if source == "credential":
            # Its mode is systemd's: where it grants the daemon's user by an ACL, the mask shows as a group's read bit.
            return self._read_file(key, self._credential(key, name), mask=0o007)
        return self._read_file(key, (base or Path()) / name, mask=0o077)

    def _credential(self, key: str, name: str) -> Path:
        folder = self._sources.environ.get("CREDENTIALS_DIRECTORY")
        expected = f"LoadCredential={name}:FILE in the service"
        if "/" in name or len(name) > _MAX_FILE_NAME:
            raise self.fault(key, "no such credential", expected)
        if not folder:
            raise self._fault(CredentialAbsent, key, "no such credential", expected)
        if not (Path(folder) / name).exists():
            raise self._fault(SecretAbsent, key, "no such credential", expected)
        return Path(folder) / name

    def _read_file(self, key: str, path: Path, *, mask: int) -> str:
        try:
            if stat.S_IMODE(path.stat().st_mode) & mask:
                raise self.fault(key, f"{path}, which others can read", "a file of mode 0600")
            return given_file.read(path, given_file.MAX_SECRET).decode("utf-8")
        except (OSError, UnicodeDecodeError) as fault:
            raise self.fault(key, f"{path}: {fault}", "a readable file") from fault

    def _fault(self, kind: type[F], key: str, found: str, expected: str) -> F:
        if found == "nothing":
            found += missing(key, set(self._table) - self._known)
        return kind(self._sources.file, self._at(key), cut(found, _MAX_FOUND), cut(expected, _MAX_EXPECTED))

    def refuse_unknown(self) -> None:
        """Refuse a key that nobody asked for, here and in every table below. Raises: ConfigError."""
        for key in self._table:
            if key not in self._known:
                known = ", ".join(sorted(self._known)) or "none"
                meant = unknown(str(key), self._known - set(self._table))
                raise self.fault(str(key), f"an unknown key{meant}", f"one of {known}")
        for child in self._children:
            child.refuse_unknown()

    # ---- inside ----

    def _get(self, key: str, default: Any, expected: str) -> Any:
        self._known.add(key)
        value = self._table.get(key, _MISSING if default is None else default)
        if value is _MISSING:
            raise self.fault(key, "nothing", expected)
        return value

    def _at(self, key: str) -> str:
        quoted = key if _BARE.fullmatch(key) else _quoted(key)
        return f"{self._path}.{quoted}" if self._path else quoted


def _quoted(key: str) -> str:
    """A key as TOML quotes it, with all escaped that a terminal would obey (S37)."""
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in json.dumps(key, ensure_ascii=False))


def _only_item(value: Any) -> tuple[Any, Any]:
    return next(iter(value.items())) if isinstance(value, Mapping) and len(value) == 1 else (None, None)


def _pem_words(text: str) -> list[str]:
    """What is secret of a PEM text: its body, line by line, or word by word where somebody joined the lines."""
    return [word for word in text.split() if len(word) >= _PEM_WORD]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_TEXT and value.isprintable()
