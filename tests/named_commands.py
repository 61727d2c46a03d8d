"""The commands of rltuned that a document names, and what they take."""

import re
import shlex
from functools import cache

from scripts.tools.reference.commands import Command, commands
from tests.pages import blocks


@cache
def every_command() -> dict[str, Command]:
    return {one.path: one for top in commands() for one in top.all()}


def typed_lines(text: str) -> list[str]:
    """Lines of blocks and inline code that call rltuned, from its name on."""
    joined = [re.sub(r"\\\n\s*", " ", block) for block in blocks(text, "sh", "console")]
    rows = [row for block in joined for row in block.splitlines()]
    rows += [row.replace("\n", " ") for row in re.findall(r"`(rltuned [^`]+)`", text)]
    found = []
    for row in rows:
        match = re.search(r"(?:^|[/ ])(rltuned [a-z].*)", row.partition("  #")[0])
        if match:
            found.append(re.split(r"\s[|>;&]", match[1])[0])
    return found


def command_of(line: str) -> tuple[Command | None, list[str]]:
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    for length in range(len(words), 1, -1):
        command = every_command().get(" ".join(words[:length]))
        if command:
            return command, words[length:]
    return None, words
