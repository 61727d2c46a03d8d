"""What release 0.2.0 left in its journal and in Slurm, restored by this release on a real Slurm.

tests/data/0.2.0 holds journals that 0.2.0 wrote (scripts/tools/old_state.py). The same jobs are
submitted to a new Slurm, which gives them the same ids; the submit times in the journal are set to
theirs, and what the journal says was written is written again by scontrol.
"""

import json
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from rltuned.domain.jobs import PendingJob
from rltuned.journal.journal import Journal
from rltuned.journal.snapshots import FILE_NAME
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.commands import SlurmCli
from scripts.tools.old_state import SCENARIOS, Scenario, lab_of, submit
from tests.clusters import slurm_or_skip
from tests.configs import write_settings
from tests.e2e.process import Daemon
from tests.lab import SlurmLab
from tests.programs import rltuned

pytestmark = pytest.mark.slurm

DATA: Final = Path(__file__).resolve().parents[1] / "data" / "0.2.0"
WORDS: Final = {
    "site_factor": "SiteFactor",
    "priority": "Priority",
    "oversubscribe": "OverSubscribe",
    "num_nodes": "NumNodes",
}
DEPENDENT, RANGED = 7, 8


@dataclass
class Left:
    """A cluster and a state folder as 0.2.0 left them. untouched: the jobs before it wrote. shared:
    their OverSubscribe then. held: address and field of what it left.
    """

    lab: SlurmLab
    config: Path
    state: Path
    untouched: dict[int, PendingJob]
    shared: dict[int, str] = field(default_factory=dict)
    held: set[tuple[str, str]] = field(default_factory=set)

    def pending(self) -> dict[int, PendingJob]:
        found = SlurmBackend(SlurmCli(conf=self.lab.conf), time.time).observe().pending
        return {int(job.job_id): job for job in found}

    def shown(self, number: int, name: str) -> str:
        """As scontrol says it: 26.05 has a word of its own for who asked to be alone."""
        words = self.lab.scontrol("-o", "show", "job", str(number)).split()
        return next(w for w in words if w.startswith(f"{name}=")).removeprefix(f"{name}=")

    def ask(self, *words: str) -> str:
        return rltuned(*words, config=self.config, code=0).stdout


@contextmanager
def left_by(name: str, folder: Path) -> Iterator[Left]:
    one = SCENARIOS[name]
    slurm_or_skip(with_accounting=one.priority_type.endswith("multifactor"))
    state = folder / "state"
    state.mkdir(mode=0o700)
    with lab_of(one) as lab:
        jobs = [*submit(lab, one), *(lab.sbatch(*options) for options in one.later)]
        assert jobs == list(range(1, len(jobs) + 1))
        config = write_settings(folder / "rltuned.toml", lab.conf, state, **settings_of(one))
        left = Left(lab, config, state, {})
        lab.wait_for(lambda: settled(left.pending(), one), "the queue is at rest")
        left.untouched = left.pending()
        left.shared = {number: left.shown(number, "OverSubscribe") for number in left.untouched}
        rows = journal_of(name, left)
        left.held = {(address, name) for address, name, _ in rows}
        write_again(left, rows)
        yield left


def settings_of(one: Scenario) -> dict[str, Any]:
    settings = dict(one.settings)
    if one.later:
        settings["order"] = {**settings["order"], "newcomers": "/run/rltuned/newcomers"}
    return settings


def settled(found: dict[int, PendingJob], one: Scenario) -> bool:
    """Whether sprio shows every job that it can show."""
    if not one.priority_type.endswith("multifactor"):
        return len(found) == len(one.jobs) - 1
    return all(job.is_dependent or job.site_factor is not None for job in found.values())


def journal_of(name: str, left: Left) -> list[tuple[str, str, object]]:
    """The journal of 0.2.0, its jobs those of this cluster; address, field and value as written."""
    path = left.state / FILE_NAME
    path.touch(mode=0o600)
    with closing(sqlite3.connect(path)) as db:
        db.executescript((DATA / f"{name}.sql").read_text())
        for number, job in left.untouched.items():
            db.execute(
                "UPDATE changes SET submitted_at = ? WHERE job_id = ?", (job.submitted_at, number)
            )
        db.commit()
        rows = db.execute("SELECT address, field, new FROM changes WHERE result = 'applied'")
        return list(rows)


def write_again(left: Left, rows: list[tuple[str, str, object]]) -> None:
    for address, name, new in rows:
        left.lab.scontrol("update", f"JobId={address}", f"{WORDS[name]}={new}")


def assert_as_before(left: Left) -> None:
    with closing(Journal(left.state)) as journal:
        assert journal.is_clean()
    found = left.pending()
    assert found.keys() == left.untouched.keys()
    for number, job in found.items():
        before = left.untouched[number]
        assert (job.fixed, job.site_factor) == (before.fixed, before.site_factor), number
        assert left.shown(number, "OverSubscribe") == left.shared[number], number


@pytest.mark.parametrize("name", SCENARIOS)
def test_restore_gives_back_what_the_release_before_has_left(name: str, tmp_path: Path) -> None:
    with left_by(name, tmp_path) as left:
        assert len(left.held) >= len(SCENARIOS[name].written)
        said = left.ask("restore", "--all")
        assert said.count(": restored: ") == len(left.held), said
        assert_as_before(left)
        found = left.pending()
        if name == "basic":  # where the number that is set again has the nice in it
            numbers = {n: job.priority for n, job in left.untouched.items()}
            assert {n: job.priority for n, job in found.items()} == numbers
        else:
            nices = {n: job.nice for n, job in left.untouched.items()}
            assert {n: job.nice for n, job in found.items()} == nices
        if name == "site_factor":
            assert found[DEPENDENT].priority == left.untouched[DEPENDENT].priority
            assert left.shown(RANGED, "NumNodes") == "1-4"


def test_the_daemon_goes_on_from_the_state_of_the_release_before(tmp_path: Path) -> None:
    with left_by("site_factor", tmp_path) as left:
        assert left.shown(RANGED, "NumNodes") == "2-2"
        with Daemon(tmp_path, "--config", str(left.config)) as daemon:
            daemon.wait_for(lambda: left.shown(RANGED, "NumNodes") == "1-4", "the range comes back")
            daemon.wait_for_log("cycle=", times=3)
            daemon.signal(signal.SIGTERM)
            assert daemon.ends() == 0
        for key in ("groups.boost", "sizes.mode", "sla.lift_jobs"):
            assert daemon.log().count(f"{key}: is gone") == 1
        history = json.loads(left.ask("history", str(RANGED), "--json"))["changes"]
        sent = [(c["field"], c["old"], c["new"]) for c in history if c["field"] == "num_nodes"]
        assert sent == [("num_nodes", "1-4", "2-2"), ("num_nodes", "2-2", "1-4")]
        left.ask("restore", "--all")
        assert_as_before(left)
        assert left.pending()[DEPENDENT].priority == left.untouched[DEPENDENT].priority
