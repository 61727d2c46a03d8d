"""`report`: figures from a journal, and honest silence where there is too little."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rltuned.cli import app
from rltuned.core.canary import Canary
from rltuned.core.decide import Knobs
from rltuned.core.select import Rules
from rltuned.daemon.diary import Sight
from rltuned.daemon.journal import Journal
from rltuned.daemon.recipe import Recipe
from rltuned.errors import JournalError
from rltuned.recording import FILE_NAME
from tests.builders import NOW, job, snapshot
from tests.sim.test_past import one_after_the_other

NOTHING: dict[str, Any] = {"actions": [], "reasons": {}, "notes": []}
SINCE = ("--since", "2000-01-01")


def run(*args: str) -> Result:
    result = CliRunner().invoke(app, ("report", *args))
    if isinstance(result.exception, JournalError):
        raise result.exception
    return result


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A journal of a canary, and settings beside it."""
    path = tmp_path / "rltuned.toml"
    path.write_text(f'[daemon]\nstate_dir = "{tmp_path}"\n[policy]\nname = "sjf"\n')
    path.chmod(0o600)
    recipe = Recipe("sjf", Knobs(rules=Rules(canary=Canary(0.5, "salt"))))
    with closing(Journal(tmp_path)) as journal:
        for number, look in enumerate(one_after_the_other(), start=1):
            journal.keep(Sight(number, look.taken_at, "live", look, recipe, dict(NOTHING)))
    return tmp_path


def test_both_answers_come_with_what_they_rest_on(folder: Path) -> None:
    done = run("--config", str(folder / "rltuned.toml"), "--json", *SINCE)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    canary, replayed = found["canary"], found["replayed"]
    assert canary["treated"] + canary["control"] > 30
    assert canary["difference_s"] is None
    assert "30 of each are needed" in canary["verdict"]
    assert (replayed["policy"], replayed["assumed"]) == ("sjf", 0)
    # all jobs are alike, so no order is better than another
    assert replayed["policy_s"] == pytest.approx(replayed["multifactor_s"], rel=0.05)
    assert "multifactor" in found["assumed"]


def test_one_page_without_any_other_file(folder: Path) -> None:
    out = folder / "report.html"
    done = run("--config", str(folder / "rltuned.toml"), "--out", str(out), *SINCE)
    assert done.exit_code == 0, done.output
    assert "played again" in done.stdout
    page = out.read_text()
    assert page.count("<svg") == 2
    assert "src=" not in page
    assert "http://" not in page
    assert "prefers-color-scheme:dark" in page


def test_a_short_record_says_so(tmp_path: Path, folder: Path) -> None:
    config = str(folder / "rltuned.toml")
    few = tmp_path / "few"
    few.mkdir()
    with closing(Journal(few)) as journal:
        journal.keep(Sight(1, NOW, "live", snapshot(job(1)), Recipe("sjf", Knobs()), dict(NOTHING)))
    done = run("--config", config, "--journal", str(few / FILE_NAME), *SINCE)
    assert done.exit_code == 0
    assert "no canary in this time" in done.stdout
    assert "too little to say" in done.stdout
    later = run("--config", config, "--since", "1h")
    assert "no cycle since" in later.stdout
    with pytest.raises(JournalError, match=r"nothing\.sqlite"):
        run("--config", config, "--journal", str(tmp_path / "nothing.sqlite"))
    assert run("--config", config, "--since", "yesterday").exit_code == 2
