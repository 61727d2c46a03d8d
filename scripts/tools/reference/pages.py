"""docs/cli.md: every command, argument and option."""

import re
from collections.abc import Iterator

from scripts.tools.reference.commands import Command, Parameter, commands

_INTRO = """\
# Commands

<!-- Made by `make docs`; a test fails when it is stale. -->

`rltuned COMMAND --help` prints the same, as does `man rltuned` on an installed machine.
[interfaces.md](interfaces.md) describes the [JSON documents](interfaces.md#json-for-programs)
and all [exit codes](interfaces.md#exit-codes).
"""


def cli() -> str:
    """The text of docs/cli.md."""
    found = commands()
    parts = [_INTRO, "\n| command | what it does |\n|---|---|\n"]
    parts += [f"| [{c.path}](#{c.path.replace(' ', '-')}) | {_cell(c.about[0])} |\n" for c in found]
    for top in found:
        for one in top.all():
            parts.extend(_section(one))
    return "".join(parts)


def _section(command: Command) -> Iterator[str]:
    depth = command.path.count(" ") + 1
    yield f"\n{'#' * depth} {command.path}\n\n"
    yield "\n\n".join(command.about) + "\n"
    if command.children:
        return
    yield f"\n```text\n{command.usage}\n```\n"
    rows = command.parameters
    if rows:
        yield "\n| | takes | default | |\n|---|---|---|---|\n"
        yield from (_row(row) for row in rows)


def _row(parameter: Parameter) -> str:
    names = ", ".join(f"`{name}`" for name in parameter.names)
    default = f"`{parameter.default}`" if parameter.default else ""
    if parameter.required:
        default = "required"
    kind = f"`{_cell(parameter.kind)}`" if parameter.kind else ""
    return f"| {names} | {kind} | {default} | {_cell(parameter.help)} |\n"


def _cell(text: str) -> str:
    return re.sub(r"\|", r"\\|", text)
