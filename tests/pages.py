"""The documents as tests see them: their links, their headings, and the commands in their blocks.

A block marked `console` is a session: `# ` begins a line typed by root, `$ ` one by an ordinary
user, a backslash at its end goes on with the next line, and the lines below are what comes out,
`...` standing for anything. Sessions of docs/install.md are run (tests/booted/
test_quickstart.py); what README.md shows must be among them or among the Makefile's targets.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *(ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "models").rglob("*.md")),
    *sorted((ROOT / "scripts" / "studies" / "results").glob("*.md")),
]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^()\s]+)\)|<(?:img|a)\b[^>]*?(?:src|href)=\"([^\"]+)\"")


@dataclass(frozen=True)
class Typed:
    """A command of a session. shown: the lines below it, as the page has them."""

    line: int
    is_root: bool
    command: str
    shown: tuple[str, ...]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(text: str, *kinds: str) -> list[str]:
    """The insides of the fenced blocks of these kinds."""
    return [m[2] for m in _FENCE.finditer(text) if m[1] in kinds]


def prose(text: str) -> str:
    """The text without its fenced blocks."""
    return _FENCE.sub("", text)


def links(text: str) -> set[str]:
    return {first or second for first, second in _LINK.findall(prose(text))}


def anchors(text: str) -> set[str]:
    """What a link may name of a page: GitHub's names of its headings."""
    found: set[str] = set()
    for heading in _HEADING.findall(prose(text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        number, name = 0, slug
        while name in found:
            number += 1
            name = f"{slug}-{number}"
        found.add(name)
    return found


def session(text: str) -> Iterator[Typed]:
    """Every command of the page's sessions, in order.

    A line that begins with `# ` is output where it cannot be a command: right below a `cat`, whose
    page shows a file with comments.
    """
    for match in _FENCE.finditer(text):
        if match[1] != "console":
            continue
        first = text.count("\n", 0, match.start()) + 2
        yield from _typed(match[2].splitlines(), first)


def _typed(rows: list[str], first: int) -> Iterator[Typed]:
    at = 0
    while at < len(rows):
        start, command = at, rows[at]
        if command[:2] not in {"# ", "$ "}:
            raise ValueError(f"line {first + at}: a session begins with a command: {command!r}")
        while command.endswith("\\"):
            at += 1
            command = f"{command[:-1].rstrip()} {rows[at].strip()}"
        is_cat = command[2:].startswith("cat ")
        at += 1
        shown: list[str] = []
        while at < len(rows) and (is_cat or rows[at][:2] not in {"# ", "$ "}):
            shown.append(rows[at])
            at += 1
        yield Typed(first + start, command[0] == "#", command[2:], tuple(shown))


def differs(shown: tuple[str, ...], out: str) -> str:
    """What of the shown lines did not come out, in order; empty = everything did."""
    pattern = "\n".join(re.escape(row).replace(r"\.\.\.", ".*?") for row in shown)
    pattern = pattern.replace(r"\#", "#")
    if not shown or re.search(rf"\A{pattern}\s*\Z", out, re.DOTALL):
        return ""
    for count in range(1, len(shown) + 1):
        part = "\n".join(re.escape(row).replace(r"\.\.\.", ".*?") for row in shown[:count])
        if not re.match(rf"\A{part}", out, re.DOTALL):
            return shown[count - 1]
    return "there is more than what is shown"
