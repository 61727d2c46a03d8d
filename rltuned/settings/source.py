"""Read the settings file, and say where each value comes from and where each error is.

Order: defaults, then the file, then command-line flags. No environment variable changes a value.
What cannot be read or used is a SettingsError: file, line and key where they are known, and why.
"""

import difflib
import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rltuned.errors import SettingsError
from rltuned.settings.keys import Rescue, Settings
from rltuned.text import escaped
from rltuned.trusted import flaws_on, read_trusted

Tables = TypeVar("Tables", bound=BaseModel)

DEFAULT_PATH = Path("/etc/rltuned/rltuned.toml")
MAX_FILE_BYTES = 1024 * 1024
_SHOWN = 80
"""Characters of a wrong value that an error shows."""

_HEADER = re.compile(r"^\s*(?P<open>\[+)\s*(?P<name>[^\[\]]+?)\s*\]+\s*(#.*)?$")
_KEY = re.compile(r"^\s*(?P<name>(?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*[\w\"'-]+)*)\s*=")
_REASONS = {"model_type": "must be a table", "path_type": "must be a path, as text"}
"""In place of pydantic's words, where those name Python classes."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, and where each value was found.

    path: the file that was read; None = there was none, only defaults and flags. origins: dotted
    key -> "FILE:LINE" or "--flag"; a key that is missing has its default. generation: that
    `policy.name = "tuned"` stands for, "" = none was promoted; its values are in the settings. None
    = they name a policy. tables: of the file, also empty ones.
    """

    settings: Settings
    path: Path | None = None
    origins: Mapping[str, str] = field(default_factory=dict)
    generation: str | None = None
    tables: frozenset[str] = frozenset()

    def origin(self, key: str) -> str:
        return self.origins.get(key, "default")

    def error(self, key: str, reason: str) -> SettingsError:
        """The error for a value that turned out to be unusable later than here."""
        return SettingsError(f"{self.origin(key)}: {key}: {reason}")


@dataclass(frozen=True, slots=True)
class Flag:
    """A value given on the command line, which wins over the file."""

    key: str
    value: object
    name: str


def load(path: Path | None, flags: tuple[Flag, ...] = ()) -> Loaded:
    """Read and check everything. path: None = DEFAULT_PATH, where there is one."""
    text, path = _text_of(path)
    return _build(text, path, flags)


def from_flags(flags: tuple[Flag, ...]) -> Loaded:
    """Defaults and flags alone: no file is looked at, not even the usual one."""
    return _build("", None, flags)


def load_rescue(path: Path | None) -> Rescue:
    """The tables that `rltuned restore` needs; the others are not checked."""
    text, path = _text_of(path)
    return _checked(Rescue, _parse(text, path), _origins(text, path), path)


def _text_of(path: Path | None) -> tuple[str, Path | None]:
    if path is None and os.path.lexists(DEFAULT_PATH):
        path = DEFAULT_PATH
    return "" if path is None else _read(path), path


def _build(text: str, path: Path | None, flags: tuple[Flag, ...]) -> Loaded:
    tree, origins = _parse(text, path), _origins(text, path)
    tables = frozenset(tree)
    for flag in flags:
        table, _, key = flag.key.partition(".")
        tree[table] = {**_table(tree, table, path), key: flag.value}
        origins[flag.key] = flag.name
    settings = _checked(Settings, tree, origins, path)
    return Loaded(
        settings,
        path,
        {key: at for key, at in origins.items() if "." in key},
        tables=tables,
    )


def check_reload(before: Loaded, after: Loaded) -> None:
    """A reload takes no table away: a file that was cut, emptied or removed would put defaults in
    the place of scope, classes and stage. It leaves the journal where it is, with what restores.
    Raises SettingsError: names what is gone, or the folder.
    """
    lost = sorted(before.tables - after.tables)
    if lost:
        named = ", ".join(f"[[{t}]]" if t == "sla" else f"[{t}]" for t in lost)
        raise SettingsError(
            f"{after.path or before.path}: {named} of the settings in force is gone; to go back to "
            "defaults leave it there empty ([table], or sla = [] at the top), or restart"
        )
    folder = before.settings.daemon.state_dir
    if after.settings.daemon.state_dir != folder:
        why = f"the journal in use is in {folder}; restart to use another"
        raise after.error("daemon.state_dir", why)


def needs_restart(start: Settings, now: Settings) -> list[str]:
    """Keys that have changed since the start and are read only then."""
    found = [
        f"{table}.{name}"
        for table in ("http", "journal", "log", "ha")
        for name in type(getattr(start, table)).model_fields
        if getattr(getattr(start, table), name) != getattr(getattr(now, table), name)
    ]
    return found + ["predictor.enabled"] * (start.predictor.enabled != now.predictor.enabled)


def _origins(text: str, path: Path | None) -> dict[str, str]:
    return {key: f"{path}:{line}" for key, line in key_lines(text)}


def _checked(
    model: type[Tables], tree: dict[str, Any], origins: Mapping[str, str], path: Path | None
) -> Tables:
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        lines = [_explain(e, origins, path) for e in error.errors(include_url=False)]
        raise SettingsError("\n".join(dict.fromkeys(lines))) from None


def key_lines(text: str) -> Iterator[tuple[str, int]]:
    """Dotted name and line number of every table header and key in a TOML text, in order.

    Of an array of tables each has its number: "sla.0.qos". A key inside an inline table or a
    multi-line value has no line of its own; its table has.
    """
    table, numbers = "", Counter[str]()
    fence = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if fence:
            fence = "" if fence in line else fence
            continue
        if header := _HEADER.match(line):
            table = _plain(header["name"])
            if header["open"] == "[[":
                numbers[table] += 1
                table = f"{table}.{numbers[table] - 1}"
            yield table, number
        elif key := _KEY.match(line):
            name = _plain(key["name"])
            yield (f"{table}.{name}" if table else name), number
            fence = _opened_fence(line)


def _opened_fence(line: str) -> str:
    """The triple quote that a line opens and does not close; empty when it opens none."""
    for quote in ('"""', "'''"):
        if line.count(quote) == 1:
            return quote
    return ""


def _plain(name: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in name.split("."))


def _read(path: Path) -> str:
    try:
        raw, _ = read_trusted(path, MAX_FILE_BYTES, follow=True)
        # a group may share the folder, but not the file
        flaws = [flaw for flaw in flaws_on(path) if not flaw.by_group]
    except PermissionError as error:
        raise SettingsError(f"{path}: {error.strerror}") from None
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from None
    if flaws:
        raise SettingsError(str(flaws[0]))
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise SettingsError(f"{path}:{line}: is not UTF-8 text") from None


def _parse(text: str, path: Path | None) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        line = found[1] if found else len(text.splitlines())  # "at end of document"
        raise SettingsError(f"{path}:{line}: not valid TOML: {error}") from None
    # numbers of thousands of digits, deep nesting
    except (ValueError, RecursionError, MemoryError) as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from None


def _table(tree: dict[str, Any], name: str, path: Path | None) -> dict[str, Any]:
    table = tree.get(name, {})
    if not isinstance(table, dict):
        raise SettingsError(f"{path}: {name}: must be a table")
    return table


def _explain(error: ErrorDetails, origins: Mapping[str, str], path: Path | None) -> str:
    """One line for one error: where, which key, what is wrong, what was perhaps meant."""
    names = [part for part in error["loc"] if isinstance(part, str)]
    key = ".".join(name if name.isprintable() else ascii(name) for name in names)
    where = _where([str(part) for part in error["loc"]], origins, path)
    if error["type"] == "extra_forbidden":
        allowed = _allowed(names[:-1])
        close = difflib.get_close_matches(names[-1], allowed, n=1, cutoff=0.6)
        hint = f"did you mean {close[0]}?" if close else f"known here: {', '.join(sorted(allowed))}"
        what = "table" if isinstance(error["input"], dict) else "key"
        return f"{where}: {key}: unknown {what}; {hint}"
    reason = _REASONS.get(error["type"], error["msg"].removeprefix("Value error, "))
    given = error["input"]
    if error["type"] == "list_type" and isinstance(given, dict):
        reason = f"it is a list of tables: write [[{key}]]"
    is_shown = not isinstance(given, dict) and error["type"] != "missing"
    shown = f" (given: {_cut(repr(given))})" if is_shown else ""
    reason = escaped(reason)  # it may name a value
    return f"{where}: {key}: {reason[:1].lower()}{reason[1:]}{shown}"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _where(names: Sequence[str], origins: Mapping[str, str], path: Path | None) -> str:
    for length in range(len(names), 0, -1):
        found = origins.get(".".join(names[:length]))
        if found:
            return found
    return str(path) if path is not None else "settings"


def _allowed(names: list[str]) -> list[str]:
    """The keys that may stand in the table of this name; the tables, without a name."""
    if not names:
        return list(Settings.model_fields)
    table = Settings.model_fields.get(names[0])
    model = table.annotation if table is not None and len(names) == 1 else None
    model = next(iter(get_args(model)), model)  # of an array of tables
    return list(model.model_fields) if isinstance(model, type(BaseModel)) else []
