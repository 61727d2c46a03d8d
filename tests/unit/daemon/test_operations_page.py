"""docs/operations.md names every log event, mode, fate and skip reason, and no other event."""

import re
from pathlib import Path

from rltuned.daemon.report import Mode, Skip
from rltuned.daemon.restore import Fate

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "operations.md").read_text()


def events_in_code() -> set[str]:
    """Words that a logger of daemon/ or cli/run.py is called with."""
    files = [*(ROOT / "rltuned" / "daemon").glob("*.py"), ROOT / "rltuned" / "cli" / "run.py"]
    call = re.compile(r"(?:log\.(?:info|warning|error)\)?|\bline)\(\s*\"([a-z_]+)\"")
    return {name for file in files for name in call.findall(file.read_text())}


def test_every_event_is_documented_and_every_documented_one_exists() -> None:
    section = PAGE.split("## Log lines")[1].split("\n## ")[0]
    documented = set(re.findall(r"^\| `([a-z_]+)`", section, re.MULTILINE))
    assert documented == events_in_code()


def test_words_are_explained() -> None:
    for word in (*Mode, *Skip):
        assert f"`{word.value}`" in PAGE
    table = PAGE.split("## Give everything back")[1].split("\n## ")[0]
    assert all(fate.value in table for fate in Fate)
