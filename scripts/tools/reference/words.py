"""The words that a shell completes, for rltuned/cli/words.py."""

import json
from typing import Any

from scripts.tools.reference.commands import Command, commands


def words() -> str:
    """Every command with its options and its own commands, as JSON, a line for each."""
    rows = [f'"{c.path.split()[-1]}": {json.dumps(_entry(c))}' for c in commands()]
    return "{\n" + ",\n".join(rows) + "\n}\n"


def _entry(command: Command) -> dict[str, Any]:
    if command.children and not command.parameters:
        return {"commands": _below(command)}
    entry: dict[str, Any] = {
        "options": [
            {"names": p.names, "kind": p.kind, "help": p.help, "is_argument": p.is_argument}
            for p in command.parameters
        ]
    }
    return entry | {"commands": _below(command)} if command.children else entry


def _below(command: Command) -> dict[str, Any]:
    return {c.path.split()[-1]: _entry(c) for c in command.children}
