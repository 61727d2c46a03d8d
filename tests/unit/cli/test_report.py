"""`report`: figures from a journal, and honest silence where there is too little."""

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rltuned.cli import app
from rltuned.cli.reckoned import natural_order
from rltuned.core.canary import Canary
from rltuned.core.decide import Knobs
from rltuned.core.select import Rules
from rltuned.daemon.diary import Sight
from rltuned.daemon.journal import Journal
from rltuned.daemon.recipe import Recipe
from rltuned.daemon.reckoning import FILE_NAME as REPORT
from rltuned.daemon.reckoning import read
from rltuned.errors import JournalError
from rltuned.recording import FILE_NAME
from rltuned.settings import load
from rltuned.sim.natural import Natural
from rltuned.slurm.site import parse_config
from tests.builders import NOW, job, snapshot
from tests.sim.test_past import one_after_the_other

DATA = Path(__file__).resolve().parents[2] / "data" / "slurm" / "22.05"
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
    path.write_text(
        f'[daemon]\nstate_dir = "{tmp_path}"\n[policy]\nname = "sjf"\n'
        f'[slurm]\nbin_dir = "{tmp_path}/nothing"\n'
    )
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
    assert replayed["ours_s"] == pytest.approx(replayed["slurm_s"], rel=0.05)
    assert replayed["difference_s"] == pytest.approx(replayed["ours_s"] - replayed["slurm_s"])
    assert replayed["low_s"] is None, "35 jobs are too few for an interval"
    assert "simulator's own weights" in replayed["order"]
    assert "is not installed in" in replayed["order"]
    assert "no fair share" in found["assumed"]


def test_one_page_without_any_other_file(folder: Path) -> None:
    out = folder / "report.html"
    done = run("--config", str(folder / "rltuned.toml"), "--out", str(out), *SINCE)
    assert done.exit_code == 0, done.output
    assert "played again" in done.stdout
    page = out.read_text()
    assert page.count("<svg") == 3
    assert "src=" not in page
    assert "http://" not in page
    assert "prefers-color-scheme:dark" in page


def test_the_sites_own_weights_are_played_where_slurm_can_be_asked(folder: Path) -> None:
    bin_dir = folder / "bin"
    bin_dir.mkdir()
    scontrol = bin_dir / "scontrol"
    answer = (DATA / "config.txt").read_text()
    answer = answer.replace("PriorityWeightFairShare = 0", "PriorityWeightFairShare = 7000")
    name = parse_config(answer)["ClusterName"]
    config = folder / "rltuned.toml"
    config.write_text(config.read_text().replace(f"{folder}/nothing", str(bin_dir)))

    def played(text: str) -> tuple[Natural, str]:
        (folder / "answer").write_text(text)
        scontrol.write_text(f"#!/bin/sh\ntest \"$*\" = 'show config' && cat {folder}/answer\n")
        scontrol.chmod(0o755)
        return natural_order(load(config).settings, "test")

    ours = answer.replace(f"= {name}\n", "= test\n")
    natural, told = played(ours)
    assert told == (
        "multifactor with this site's weights (age 10000 at 1 d, size 1000 by GPUs, "
        "partition 1000); not played: FairShare 7000"
    )
    assert (natural.kind, natural.age_weight, natural.max_age_s) == ("multifactor", 10_000, 86_400)
    natural, told = played(answer)
    assert f"Slurm here is cluster '{name}', the record is of 'test'" in told
    assert natural == Natural(kind="multifactor")
    natural, told = played(ours.replace("priority/multifactor", "priority/basic"))
    assert (natural.kind, told) == (
        "fcfs", "priority/basic, as this site has it: first come, first served",
    )  # fmt: skip
    _, told = played(
        "".join(s for s in ours.splitlines(keepends=True) if "PriorityMaxAge" not in s)
    )
    assert "no PriorityMaxAge in the answer" in told


def test_it_is_kept_for_the_daemon(folder: Path) -> None:
    config = str(folder / "rltuned.toml")
    done = run("--config", config, "--keep", *SINCE)
    assert done.exit_code == 0, done.output
    assert f"kept as {folder / REPORT}" in done.stderr
    kept = read(folder / REPORT)
    assert (kept.cluster, kept.cycles) == ("test", len(one_after_the_other()))
    assert kept.trial is not None
    assert kept.trial.difference is None
    assert kept.replay is not None
    assert kept.replay.policy == "sjf"
    before = (folder / REPORT).read_bytes()
    later = run("--config", config, "--since", "1h", "--keep")
    assert "nothing is kept for the daemon" in later.stderr
    assert (folder / REPORT).read_bytes() == before


def test_the_journal_is_read_once(folder: Path) -> None:
    opened: list[str] = []
    watching = [True]

    def hear(event: str, told: tuple[Any, ...]) -> None:
        if watching and event == "sqlite3.connect":
            opened.append(str(told[0]))

    sys.addaudithook(hear)  # there is no way to take it out again
    try:
        assert run("--config", str(folder / "rltuned.toml"), *SINCE).exit_code == 0
    finally:
        watching.clear()
    assert [FILE_NAME in name for name in opened] == [True]


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
    kept = run("--config", config, "--journal", str(few / FILE_NAME), "--keep", *SINCE)
    assert kept.exit_code == 0
    assert "0 jobs came and ended" in read(folder / REPORT).not_replayed
    later = run("--config", config, "--since", "1h")
    assert "no cycle since" in later.stdout
    with pytest.raises(JournalError, match=r"nothing\.sqlite"):
        run("--config", config, "--journal", str(tmp_path / "nothing.sqlite"))
    assert run("--config", config, "--since", "yesterday").exit_code == 2
