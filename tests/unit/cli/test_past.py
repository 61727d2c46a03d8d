"""`history`: a job's changes, from the journal alone."""

import json
import os
import signal
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from rltuned.core.ladder import Ladder, Rung
from rltuned.daemon.restore import Fate, restore
from rltuned.domain.jobs import ArrayInfo
from rltuned.domain.plan import NICE, Action, target_of
from rltuned.domain.units import JobId
from rltuned.errors import JournalError
from rltuned.journal.cycles import pack_plan, recorded, unpack_plan
from rltuned.journal.journal import Journal
from rltuned.journal.store import FILE_NAME, reading
from tests.builders import NOW, basic, job, noted, set_priority, set_site_factor
from tests.configs import settings_file
from tests.fakes import FakeBackend, FakeClock
from tests.programs import ran
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


KILLED = """
import os, signal, sqlite3, sys
from pathlib import Path
from rltuned.journal.journal import Journal
from rltuned.daemon.loop import Loop
from rltuned.daemon.systemd import SignalFlags
from tests.fakes import FakeBackend, FakeClock
from tests.unit.cli.journalled import rig_of, world
from tests.loops import Received

folder, stage = Path(sys.argv[1]), sys.argv[2]

class Killer(FakeBackend):
    def apply(self, plan):
        if stage == "after":
            super().apply(plan)
        db = sqlite3.connect(folder / "journal.sqlite")
        columns = "job_id, submitted_at, field, old, new, cycle, snapshot"
        rows = db.execute(f"SELECT {columns} FROM diary")
        print(rows.fetchall(), journal._db.execute("PRAGMA synchronous").fetchone(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

journal = Journal(folder)
rig = rig_of(Killer(world()), folder)
Loop(rig, FakeClock(), journal, Received(), orders=SignalFlags(), reload=lambda: rig).run(1)
"""


@pytest.mark.parametrize("stage", ["before", "after"])
def test_a_kill_at_the_write_leaves_the_intent(tmp_path: Path, config: Path, stage: str) -> None:
    done = ran(sys.executable, "-c", KILLED, tmp_path, stage, code=-signal.SIGKILL)
    with reading(tmp_path / FILE_NAME) as db:
        (digest,) = db.execute("SELECT digest FROM snapshots").fetchone()
        (skipped,) = db.execute("SELECT skipped FROM cycles").fetchone()
    then = NOW - 600.0
    rows = [
        (3, then, "priority", 100, FIRST, 1, digest),
        (2, then, "priority", 200, basic(1_800.0), 1, digest),
        (1, then, "priority", 300, basic(2_700.0), 1, digest),
    ]
    assert done.stdout == f"{rows} (2,)\n"  # seen by another connection; 2 = FULL
    assert skipped == "unfinished"
    reply = run("history", "3", "--config", str(config)).stdout
    assert f"priority 100 -> {FIRST}: unknown (the process ended before it was seen)" in reply
    seen = world()
    if stage == "after":
        new = {1: basic(2_700.0), 2: basic(1_800.0), 3: FIRST}
        jobs = tuple(replace(j, priority=new.get(j.job_id, j.priority)) for j in seen.pending)
        seen = replace(seen, pending=jobs)
    backend, journal = FakeBackend(seen), Journal(tmp_path)
    items = restore(backend, journal, FakeClock())
    assert {int(i.claim.target.job_id): i.fate for i in items} == dict.fromkeys(
        (1, 2, 3), Fate.RESTORED
    )
    assert journal.is_clean()
    journal.close()


BLOCKED = """
import sys
sys.modules["torch"] = sys.modules["numba"] = None
from rltuned.cli import main
sys.argv = ["rltuned", *sys.argv[1:]]
main()
"""


def test_it_needs_neither_torch_nor_slurm(tmp_path: Path, config: Path) -> None:
    """Torch cannot be imported, and no program of Slurm can be found."""
    live(tmp_path)
    journal = Journal(tmp_path)
    journal.probe()  # the daemon has it open
    env = {"PATH": "/nowhere", "HOME": os.environ.get("HOME", "/")}
    done = ran(sys.executable, "-c", BLOCKED, "history", "3", "--config", config, env=env)
    assert done.stderr == ""
    journal.close()


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
