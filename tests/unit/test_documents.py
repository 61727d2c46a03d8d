"""Documents point at what exists: files, and sub-commands of rltuned."""

import re
from pathlib import Path

import pytest

from rltuned.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_LINK = re.compile(r"\]\(([^()\s]+)\)")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    links = {link.partition("#")[0] for link in _LINK.findall(page.read_text())}
    relative = {link for link in links if link and "://" not in link}
    assert sorted(link for link in relative if not (page.parent / link).exists()) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_named_page_exists(page: Path) -> None:
    named = set(re.findall(r"\bdocs/[\w/-]+\.md\b", page.read_text()))
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_named_command_exists(page: Path) -> None:
    blocks = re.findall(r"```(?:sh|console)\n(.*?)```", page.read_text(), re.DOTALL)
    named = set(re.findall(r"`rltuned ([a-z]+)", page.read_text()))
    for block in blocks:
        named |= set(re.findall(r"^(?:[#$] )?(?:\S*/)?rltuned ([a-z]+)", block, re.MULTILINE))
    assert sorted(named - set(COMMANDS)) == []
