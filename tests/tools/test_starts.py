"""What is documented starts: every target of the Makefile and every command of the documents.

Each does its least: a program of the project prints its help, after it has read the options that
the Makefile or the page gives it; a script of the shell is parsed.
"""

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.named_commands import command_of, typed_lines
from tests.pages import PAGES, ROOT, blocks, name_of
from tests.programs import executable, ran
from tests.programs import rltuned as in_process

MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = sorted(set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE)))
NOT_STARTED = {"clean": "removes .venv", "site": "installs mkdocs from the network"}
PRESENT = [page for page in PAGES if page.name != "CHANGELOG.md"]
WITHOUT_OPTIONS = {"scripts.tools.docs", "scripts.tools.pictures", "scripts.tools.prose"}
PYTHON = """#!{python}
import os, sys
words = sys.argv[1:]
assert words[0] == "-m", words
if words[1] == "pytest":
    lost = [w for w in words[2:] if w.startswith("tests/") and not os.path.exists(w)]
    sys.exit(f"no such file: {{lost}}" if lost else 0)
if words[1] in {without}:
    words = ["-c", f"import {{words[1]}}"]
else:
    words.insert(words.index("--") if "--" in words else len(words), "--help")
os.execv({python!r}, [{python!r}, *words])
"""
OTHER = '#!/bin/sh\nexec "{real}" --help\n'
SHELL = '#!/bin/sh\nexec /bin/sh -n "$1"\n'


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs that the recipes find in place of those of .venv, and of `sh SCRIPT`."""
    folder = tmp_path_factory.mktemp("bin")
    text = PYTHON.format(python=sys.executable, without=WITHOUT_OPTIONS)
    executable(folder / "python", text)
    executable(folder / "sh", SHELL)
    for name in ("ruff", "mypy", "lint-imports"):
        executable(folder / name, OTHER.format(real=Path(sys.executable).parent / name))
    return folder


@pytest.mark.parametrize("target", [name for name in TARGETS if name not in NOT_STARTED])
def test_every_target_of_the_makefile_starts(target: str, stand_ins: Path) -> None:
    fresh = ("-o", ".venv/.ready", "-o", ".venv/.base", "-o", "test-packages")
    path = f"{stand_ins}:{os.environ['PATH']}"
    ran("make", *fresh, f"BIN={stand_ins}", target, cwd=ROOT, env=os.environ | {"PATH": path})


@pytest.mark.parametrize("page", PRESENT, ids=name_of)
def test_every_command_of_a_page_starts(page: Path) -> None:
    for line in sorted(set(typed_lines(page.read_text()))):
        command, words = command_of(line)
        if command is not None and not command.children:
            options = [word for word in words if re.match(r"--[a-z][a-z-]*$", word)]
            in_process(*command.path.split()[1:], "--help", code=0)
            assert options == [one for one in options if one in known(command.path)], line


def known(path: str) -> str:
    return in_process(*path.split()[1:], "--help").stdout


def scripts_of(text: str) -> set[str]:
    """What a page calls of scripts/, as typed."""
    rows = [row for block in blocks(text, "sh", "console") for row in block.splitlines()]
    rows += [row.replace("\n", " ") for row in re.findall(r"`([^`]+)`", text)]
    found = (re.search(r"python -m (scripts\.[^|>;&#]*)", row) for row in rows)
    return {match[1].strip() for match in found if match}


@pytest.mark.parametrize(
    "line", sorted({line for page in PRESENT for line in scripts_of(page.read_text())})
)
def test_every_study_of_a_page_starts(line: str, stand_ins: Path) -> None:
    ran(stand_ins / "python", "-m", *shlex.split(line), cwd=ROOT)


def test_every_target_that_a_page_names_exists() -> None:
    lost = []
    for page in PRESENT:
        text = page.read_text()
        rows = [row for block in blocks(text, "sh", "console") for row in block.splitlines()]
        rows += re.findall(r"`(make [^`]+)`", text)
        for row in rows:
            match = re.match(r"(?:[$#] )?make ([a-z-]+(?: [a-z-]+)*)", row)
            named = match[1].split() if match else []
            lost += [f"{name_of(page)}: {name}" for name in named if name not in TARGETS]
    assert lost == []
