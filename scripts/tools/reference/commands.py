"""Every command of `rltuned` with its arguments and options, read from the functions themselves.

Not from typer's parameters: what these are called inside changes from release to release, and the
pages would change with them.
"""

import enum
import inspect
import re
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin

from typer import Context, Typer
from typer.models import ArgumentInfo, OptionInfo

from rltuned.cli import COMMANDS, app_of

_KINDS: Final = {Path: "path", str: "text", int: "integer", float: "number"}


@dataclass(frozen=True)
class Parameter:
    """An option or an argument.

    Attributes:
        names: "--config", "-c"; of an argument the one that the usage shows.
        kind: what it takes, "" = it is a switch.
        default: as a person reads it, "" = none worth a word.
    """

    names: tuple[str, ...]
    kind: str
    default: str
    help: str
    required: bool
    is_argument: bool


@dataclass(frozen=True)
class Command:
    """path: "rltuned train ppo". about: its paragraphs. children: its own commands."""

    path: str
    about: tuple[str, ...]
    parameters: tuple[Parameter, ...] = ()
    children: tuple["Command", ...] = ()

    @property
    def usage(self) -> str:
        parts = [self.path]
        if self.children:  # with options of its own it does something without one
            parts += ["[COMMAND]" if self.parameters else "COMMAND"]
        for one in self.parameters:
            if one.is_argument:
                parts.append(one.names[0] if one.required else f"[{one.names[0]}]")
        parts += ["[OPTIONS]"] if any(not p.is_argument for p in self.parameters) else []
        return " ".join(parts)

    def all(self) -> Iterator["Command"]:
        """Itself and everything below, in the order of the help."""
        yield self
        for child in self.children:
            yield from child.all()


@cache
def commands() -> tuple[Command, ...]:
    """The commands in the order of `rltuned --help`; imports every one of them."""
    return tuple(
        _group(app_of(name), f"rltuned {name}", summary) for name, summary in COMMANDS.items()
    )


def _group(app: Typer, path: str, summary: str) -> Command:
    alone = len(app.registered_commands) == 1 and not app.registered_groups
    if alone and app.registered_callback is None:
        return _command(app.registered_commands[0].callback, path)
    children = [
        _command(info.callback, f"{path} {info.name or _dashed(info.callback)}")
        for info in app.registered_commands
        if not info.hidden
    ]
    children += [
        _group(info.typer_instance, f"{path} {info.name}", "")
        for info in app.registered_groups
        if info.typer_instance is not None
    ]
    callback = app.registered_callback.callback if app.registered_callback else None
    own = inspect.signature(callback, eval_str=True).parameters.values() if callback else ()
    parameters = tuple(_parameter(p) for p in own if p.annotation is not Context)
    return Command(path, _paragraphs(callback) or (summary,), parameters, tuple(children))


def _dashed(function: Callable[..., Any] | None) -> str:
    return getattr(function, "__name__", "").replace("_", "-")


def _command(function: Callable[..., Any] | None, path: str) -> Command:
    if function is None or not inspect.getdoc(function):
        raise TypeError(f"{path} has no function with a docstring")
    signature = inspect.signature(function, eval_str=True)
    return Command(
        path, _paragraphs(function), tuple(_parameter(p) for p in signature.parameters.values())
    )


def _paragraphs(function: Callable[..., Any] | None) -> tuple[str, ...]:
    parts = re.split(r"\n\s*\n", (inspect.getdoc(function) if function else "") or "")
    return tuple(joined for part in parts if (joined := " ".join(part.split())))


def _parameter(parameter: inspect.Parameter) -> Parameter:
    kind, *notes = get_args(parameter.annotation) or (parameter.annotation,)
    info = next((n for n in notes if isinstance(n, OptionInfo | ArgumentInfo)), None)
    if info is None:
        kind = parameter.annotation
    required = parameter.default is inspect.Parameter.empty
    is_argument = isinstance(info, ArgumentInfo) or (info is None and required)
    return Parameter(
        _names(parameter.name, info, is_argument=is_argument, is_switch=_bare(kind) is bool),
        getattr(info, "metavar", None) or _kind(kind),
        "" if required else _text(parameter.default),
        _help(info),
        required,
        is_argument,
    )


def _names(
    name: str, info: OptionInfo | ArgumentInfo | None, *, is_argument: bool, is_switch: bool
) -> tuple[str, ...]:
    if is_argument:
        return ((info.metavar if info and info.metavar else None) or name.upper(),)
    # typer.Option("--config", "-c") has its first name where a default would be
    declared = (info.default, *(info.param_decls or ())) if info else ()
    texts = [text for text in declared if isinstance(text, str)]
    if texts:
        return tuple(one for text in texts for one in text.split("/"))
    dashed = name.replace("_", "-")
    return (f"--{dashed}", f"--no-{dashed}") if is_switch else (f"--{dashed}",)


def _help(info: OptionInfo | ArgumentInfo | None) -> str:
    text = " ".join((info.help or "").split()) if info else ""
    low, high = getattr(info, "min", None), getattr(info, "max", None)
    bounds = [f"from {low:g}"] if low is not None else []
    bounds += [f"to {high:g}"] if high is not None else []
    return f"{text} ({' '.join(bounds)})".strip() if bounds else text


def _bare(kind: Any) -> Any:
    """The type without "or None"."""
    if get_origin(kind) in {Union, types.UnionType}:
        return next(one for one in get_args(kind) if one is not type(None))
    return kind


def _kind(kind: Any) -> str:
    bare = _bare(kind)
    if bare is bool:
        return ""
    if get_origin(bare) is list:
        return f"{_kind(get_args(bare)[0])} ..."
    if get_origin(bare) is tuple:
        return " ".join(_kind(one) for one in get_args(bare))
    if isinstance(bare, type) and issubclass(bare, enum.Enum):
        return "|".join(str(member.value) for member in bare)
    if get_origin(bare) is Literal:
        return "|".join(map(str, get_args(bare)))
    return _KINDS[bare]


def _text(value: object) -> str:
    match value:
        case None | bool():
            return ""
        case enum.Enum():
            return str(value.value)
        case list() | tuple():
            return " ".join(_text(item) for item in value)
        case _:
            return str(value)
