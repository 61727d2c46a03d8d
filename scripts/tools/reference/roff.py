"""Text for man(7): a page is a list of lines, and this knows how they are written."""

import textwrap
from collections.abc import Iterator, Sequence

_WIDTH = 78


def page(name: str, section: int, date: str, version: str, about: str) -> list[str]:
    """The head of a page: its title, and the line that `apropos` reads."""
    title = name.upper()
    return [
        '.\\" Made by `make docs`; a test fails when it is stale.',
        f'.TH {title} {section} "{date}" "rltuned {version}" "rltuned"',
        ".SH NAME",
        f"{escape(name)} \\- {escape(about)}",
    ]


def escape(text: str) -> str:
    """Plain text: nothing in it is taken for a command, and every hyphen can be copied."""
    return text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")


def lines(text: str) -> Iterator[str]:
    """A paragraph, broken so that no line is long and none begins like a request."""
    for row in textwrap.wrap(text, _WIDTH, break_on_hyphens=False, break_long_words=False):
        safe = escape(row)
        yield f"\\&{safe}" if safe.startswith(".") else safe


def bold(text: str) -> str:
    return f"\\fB{escape(text)}\\fR"


def italic(text: str) -> str:
    return f"\\fI{escape(text)}\\fR"


def section(title: str, *paragraphs: str) -> Iterator[str]:
    yield f".SH {escape(title)}"
    for number, text in enumerate(paragraphs):
        if number:
            yield ".PP"
        yield from lines(text)


def item(term: str, *paragraphs: str) -> Iterator[str]:
    """An entry of a list: a term that is roff already, and what it means."""
    yield ".TP"
    yield term
    for number, text in enumerate(paragraphs):
        if number:
            yield ".IP"
        yield from lines(text)


def example(rows: Sequence[str]) -> Iterator[str]:
    """Lines to be typed, as they are."""
    yield from (".PP", ".nf", ".RS 4")
    for row in rows:
        safe = escape(row)
        yield f"\\&{safe}" if safe.startswith((".", "\\(aq")) else safe
    yield from (".RE", ".fi")
