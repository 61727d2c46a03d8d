"""Settings files with descriptions, made from the keys themselves."""

import ast
import inspect
import json
import textwrap
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rltuned.settings.keys import Settings

_WIDTH = 96
_EXAMPLE_INTRO = """\
rltuned.toml: every key with its default. Made by `make docs`; a test keeps it true.
Copy what you change to /etc/rltuned/rltuned.toml (owner root, mode 0644) and leave out the rest.
Check with `rltuned config check FILE`; a running daemon takes it over on SIGHUP.
"""


@dataclass(frozen=True, slots=True)
class KeyLine:
    """A key of a settings file, "scope.sla_partitions". value: None = the default. active: False =
    the line is a comment. why: this cluster has it, after the key's own description.
    """

    key: str
    value: object = None
    active: bool = False
    why: str = ""

    @property
    def table(self) -> str:
        return self.key.partition(".")[0]


def tables() -> Iterator[tuple[str, str, type[BaseModel]]]:
    """Name, description and model of each table, in the order of the file."""
    for name, info in Settings.model_fields.items():
        model = get_args(info.annotation)[0] if is_repeated(name) else info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            yield name, model.__doc__ or "", model


def is_repeated(name: str) -> bool:
    """Whether a file may hold several tables of this name."""
    return get_origin(Settings.model_fields[name].annotation) is list


def header(name: str) -> str:
    """The line above a table's keys."""
    return f"[[{name}]]" if is_repeated(name) else f"[{name}]"


def example() -> str:
    """The text of deploy/rltuned.example.toml."""
    every = [
        KeyLine(f"{name}.{key}", active=field.default is not None and not is_repeated(name))
        for name, _, model in tables()
        for key, field in fields_of(model).items()
    ]
    return draft(_EXAMPLE_INTRO.splitlines(), every)


def draft(head: Sequence[str], lines: Sequence[KeyLine]) -> str:
    """A settings file: a head of comments, then the keys by table, in order. Raises KeyError."""
    known = {
        f"{name}.{key}": (about, field)
        for name, about, model in tables()
        for key, field in fields_of(model).items()
    }
    parts = [f"# {' '.join(line.splitlines())}".rstrip() for line in head]
    for name, group in groupby(lines, key=lambda line: line.table):
        members = list(group)
        hidden = is_repeated(name) and not any(line.active for line in members)
        parts += ["", f"# {known[members[0].key][0]}", f"{'# ' * hidden}{header(name)}"]
        for line in members:
            parts += _key(line, known[line.key][1])
    return "\n".join(parts) + "\n"


def _key(line: KeyLine, field: FieldInfo) -> Iterator[str]:
    for note in (f"{field.description} ({type_text(field)})", line.why):
        yield from (f"# {row}" for row in textwrap.wrap(note, _WIDTH, break_on_hyphens=False))
    value = field.default if line.value is None else line.value
    text = f"{line.key.partition('.')[2]} ="
    if value is not None:
        text += f" {toml(value)}"
    yield text if line.active else f"# {text}"


@cache
def fields_of(table: type[BaseModel]) -> dict[str, FieldInfo]:
    """The keys of a table with the text below each; without pydantic, which parses the sources."""
    (source,) = ast.parse(inspect.getsource(table)).body
    for key, below in pairwise(source.body if isinstance(source, ast.ClassDef) else ()):
        match key, below:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                table.model_fields[name].description = " ".join(text.split())
    return table.model_fields


def type_text(field: FieldInfo) -> str:
    """The type of a key as a person says it, with unit and bounds."""
    extra = field.json_schema_extra
    unit = str(extra.get("unit", "")) if isinstance(extra, dict) else ""
    bounds = _bounds(field)
    return f"{unit or _type_name(field.annotation)}{', ' if bounds else ''}{bounds}"


def toml(value: Any) -> str:
    """A default as TOML writes it."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case list():
            return "[" + ", ".join(toml(item) for item in value) + "]"
        case Path() | str():
            return json.dumps(str(value))
        case _:
            raise TypeError(f"no TOML for {value!r}")


def _type_name(kind: Any) -> str:
    names = {bool: "true or false", int: "whole number", float: "number", str: "text", Path: "path"}
    if kind in names:
        return names[kind]
    if get_origin(kind) is Literal:
        return " or ".join(f'"{option}"' for option in get_args(kind))
    if get_origin(kind) is list:
        item = get_args(kind)[0]
        if get_origin(item) is Literal:
            return "list of " + ", ".join(f'"{option}"' for option in get_args(item))
        item = get_args(item)[0] if get_args(item) else item
        return f"list of {'whole numbers' if item is int else 'texts'}"
    if get_origin(kind) in {Union, types.UnionType}:
        return _type_name(next(a for a in get_args(kind) if a is not type(None)))
    raise TypeError(f"no name for the type {kind!r}")


def _bounds(field: FieldInfo) -> str:
    found = {
        name: value
        for item in field.metadata
        for name in ("ge", "gt", "le", "lt")
        if (value := getattr(item, name, None)) is not None
    }
    low = f"{found['ge']:g}" if "ge" in found else ""
    high = f"to {found['le']:g}" if "le" in found else ""
    below = f"below {found['lt']:g}" if "lt" in found else ""
    if low and not (high or below):
        return f"at least {low}"
    return " ".join(part for part in (low, high, below) if part)
