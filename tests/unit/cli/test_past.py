"""`history`: a job's changes, from the journal alone; `export`: what a site installs itself."""

import json
import os
import sys
import tomllib
from contextlib import closing
from pathlib import Path

import pytest

from rltuned.core.ladder import Ladder, Rung
from rltuned.daemon.restore import restore
from rltuned.domain.jobs import ArrayInfo
from rltuned.domain.plan import NICE, Action, target_of
from rltuned.domain.units import JobId
from rltuned.errors import JournalError, SettingsError
from rltuned.journal.cycles import pack_plan, recorded, unpack_plan
from rltuned.journal.journal import Journal
from rltuned.journal.store import FILE_NAME
from tests.builders import NOW, job, noted, set_priority, set_site_factor, sure
from tests.configs import settings_file
from tests.fakes import FakeClock
from tests.unit.cli.journalled import FIRST, live, world
from tests.unit.cli.runner import run

MODELS = Path(__file__).resolve().parents[3] / "models"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return settings_file(
        tmp_path, f'[daemon]\nstate_dir = "{tmp_path}"\n[policy]\nmodels_dir = "{MODELS}"\n'
    )


def test_history_tells_every_change_with_its_reason(tmp_path: Path, config: Path) -> None:
    backend = live(tmp_path)
    journal = Journal(tmp_path)
    restore(backend, journal, FakeClock())
    journal.close()
    result = run("history", "3", "--config", str(config))
    assert result.exit_code == 0
    head, first, second = result.stdout.splitlines()
    assert head.startswith("job 3 of test, submitted 20")
    assert f"priority 100 -> {FIRST}: applied; cycle 1 by sjf: moves up 2 places: short (" in first
    assert first.endswith("place 3 -> 1")
    assert f"priority {FIRST} -> released: applied; by restore" in second
    document = json.loads(run("history", "3", "--json", "--config", str(config)).stdout)
    change = document["changes"][0]
    assert (change["old"], change["new"], change["result"]) == (100, FIRST, "applied")
    assert change["reason"]["rank_after"] == 1
    assert change["snapshot"] is not None


def test_history_tells_a_nice_that_was_given_back(tmp_path: Path, config: Path) -> None:
    held = job(5, nice=0)
    with closing(Journal(tmp_path)) as journal:
        noted(journal, Action(NICE, target_of(held), 0, 7))
    assert "nice 0 -> 7: applied" in run("history", "5", "--config", str(config)).stdout
    (change,) = json.loads(run("history", "5", "--json", "--config", str(config)).stdout)["changes"]
    assert (change["field"], change["old"], change["new"]) == ("nice", 0, 7)


@pytest.mark.parametrize(
    ("name", "values"),
    [("12_2", [300, 50]), ("20", [300, 50]), ("12_1", [300]), ("12", [300, 50]), ("21", [])],
)
def test_a_task_with_a_number_of_its_own_is_found_by_both(
    tmp_path: Path, config: Path, name: str, values: list[int]
) -> None:
    head = job(12, address="12_[0-3]", array=ArrayInfo(JobId(12), 4, listed="0-3"))
    task = job(20, priority=300, address="12_2", array=ArrayInfo(JobId(12), 1, listed="2"))
    with closing(Journal(tmp_path)) as journal:
        for cycle, (seen, new) in enumerate(((head, 300), (task, 50)), start=1):
            change = set_priority(seen, new)
            noted(journal, change, by=None, cycle=cycle, at=NOW + 60 * cycle)
    result = run("history", name, "--json", "--config", str(config))
    assert [c["new"] for c in json.loads(result.stdout)["changes"]] == values
    assert result.exit_code == (0 if values else 1)


def test_a_job_without_changes_is_reported_so(tmp_path: Path, config: Path) -> None:
    live(tmp_path)
    result = run("history", "4", "--config", str(config))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "knows of no change to job 4" in result.stderr
    assert run("history", "x4", "--config", str(config)).exit_code == 2
    with pytest.raises(JournalError, match="cannot be opened"):
        run("history", "4", "--journal", str(tmp_path / "absent"))


def test_a_cycle_that_only_looked_is_kept(tmp_path: Path) -> None:
    live(tmp_path, ladder=Ladder(rung=Rung.OBSERVE))
    live(tmp_path)
    assert [r.snapshot for r in recorded(tmp_path / FILE_NAME)] == [world(), world()]


PLAN: dict[str, object] = {
    "actions": [{"action": "SetSiteFactor", "job_id": 7, "address": "7"}],
    "reasons": {},
    "notes": [],
}


@pytest.mark.parametrize(
    "body",
    [
        b"", b"x", pack_plan(PLAN)[:-3], pack_plan({}),
        pack_plan(PLAN | {"reasons": {"7": {"why": "short"}}}),
    ],
)  # fmt: skip
def test_a_damaged_plan_is_refused(body: bytes) -> None:
    assert unpack_plan(pack_plan(PLAN)) == PLAN
    with pytest.raises(JournalError, match="cannot be read"):
        unpack_plan(body)


def test_an_intent_whose_process_ended_is_said_to_be_unknown(tmp_path: Path, config: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        noted(journal, set_priority(job(3), FIRST), by=None)
        assert sure(journal._db).execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    reply = run("history", "3", "--config", str(config)).stdout
    assert f"-> {FIRST}: unknown (the process ended before it was seen)" in reply


def test_what_is_written_to_the_state_folder_is_private(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    before = os.umask(0)
    try:
        noted(journal, set_site_factor(job(1), 5), by=None)
    finally:
        os.umask(before)
    modes = {f.name: f.stat().st_mode & 0o777 for f in tmp_path.iterdir()}
    assert modes == dict.fromkeys((FILE_NAME, f"{FILE_NAME}-journal", "writer.lock"), 0o600)
    journal.close()


ROOT = Path(__file__).resolve().parents[3]
KINDS = {
    "units": "systemd",
    "dashboards": "deploy/grafana/dashboards",
    "alerts": "deploy/prometheus",
    "examples": "deploy",
}
"""What may be exported, and its folder in a checkout."""


def exported(kind: str, folder: Path, *options: str) -> dict[str, str]:
    done = run("export", kind, str(folder), *options)
    assert done.exit_code == 0, done.output
    files = [Path(line) for line in done.stdout.splitlines()]
    return {file.name: file.read_text() for file in files}


def test_units_run_this_installation(tmp_path: Path) -> None:
    found = exported("units", tmp_path / "new" / "folder")
    program = f"{sys.prefix}/bin/rltuned"
    assert f"ExecStart={program} run\n" in found["rltuned.service"]
    assert f"ExecStopPost={program} restore --all" in found["rltuned@.service"]
    assert "/opt/rltuned/bin/rltuned" not in "".join(found.values())
    assert found["rltuned.sysusers"] == (ROOT / "systemd/rltuned.sysusers").read_text()


def test_dashboards_and_alerts(tmp_path: Path) -> None:
    boards = exported("dashboards", tmp_path)
    assert {json.loads(text)["title"] for text in boards.values()} >= {"rltuned / Overview"}
    rules = exported("alerts", tmp_path, "--runbook-url", "https://wiki.example/rltuned")
    assert rules.keys() == {"alerts.yml", "recording.yml"}
    assert "runbook_url: https://wiki.example/rltuned#rltuneddown\n" in rules["alerts.yml"]
    assert "file:///" not in rules["alerts.yml"]


def test_nothing_is_replaced_without_being_asked_to(tmp_path: Path) -> None:
    exported("examples", tmp_path)
    settings = tmp_path / "rltuned.example.toml"
    settings.write_text("# my own\n")
    with pytest.raises(SettingsError, match=r"rltuned\.example\.toml: is there already; --force"):
        run("export", "examples", str(tmp_path))
    assert settings.read_text() == "# my own\n"
    assert "[daemon]" in exported("examples", tmp_path, "--force")[settings.name]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="file: cannot be written: "):
        run("export", "units", str(tmp_path / "file"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_wheel_brings_every_file(kind: str, tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["data-files"][f"share/rltuned/{KINDS[kind]}"]
    brought = {file.name for pattern in patterns for file in ROOT.glob(pattern)}
    assert exported(kind, tmp_path).keys() <= brought
