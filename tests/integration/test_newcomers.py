"""New jobs get their delay at submission, in a real slurmctld; the daemon knows it as its own."""

import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.numbers import Writing
from rltuned.core.order import DEFAULT
from rltuned.core.select import Scope
from rltuned.daemon.apply import NEUTRAL, PlanApplier, marked_by
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.newcomers import formula, publish
from rltuned.daemon.restore import restore
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import Result
from rltuned.domain.snapshot import Snapshot
from rltuned.journal.journal import Journal
from rltuned.journal.ownership import Fate
from rltuned.policies.baselines import BASELINES
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.commands import SlurmCli
from rltuned.slurm.undoer import SlurmUndoer
from tests import accounting
from tests.conftest import slurm_or_skip
from tests.integration.site import SCRIPT, no_stopwatch
from tests.lab import SlurmLab
from tests.needs import skip_or_fail

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

WEIGHTS = ("PriorityWeightAge=1000000", "PriorityMaxAge=14-0", "PriorityWeightPartition=9000000")
KNOBS = Knobs(rules=Scope(min_age_s=0.0, sla_partitions=frozenset({"sla"})), order=DEFAULT)
FULL = ("--gres=gpu:p100:4", "-pgpu")


@pytest.fixture(scope="module")
def lab() -> Iterator[SlurmLab]:
    slurm_or_skip()
    if why := accounting.missing():
        skip_or_fail(why)
    with tempfile.TemporaryDirectory(prefix="rltlab-") as name:
        line = 'local STAMP = "/run/rltuned/newcomers"'
        assert SCRIPT.count(line) == 1
        script = SCRIPT.replace(line, f'local STAMP = "{name}/stamp"')
        (Path(name) / "job_submit.lua").write_text(script)
        weights = (*WEIGHTS, "JobSubmitPlugins=lua")
        with SlurmLab(folder=Path(name), accounting=True, extra=weights) as started:
            yield started


class Daemon:
    """Cycles by hand, with the stamp."""

    def __init__(self, lab: SlurmLab, folder: Path) -> None:
        self.lab, self.journal, self.clock = lab, Journal(folder), SystemClock()
        self.stamp = lab.root / "stamp"
        self.world = SlurmBackend(SlurmCli(conf=lab.conf), time.time)

    def see(self) -> Snapshot:
        return marked_by(self.journal, self.world.observe())

    def job(self, number: int) -> PendingJob:
        return next(j for j in self.see().pending if j.job_id == number)

    def cycle(self, good_s: float = 180.0, policy: str = "delay") -> Decision:
        seen = self.see()
        decision = decide(seen, BASELINES[policy], KNOBS)
        writer = PlanApplier(self.journal, self.clock)
        assert decision.neutral is not None
        found = {seen.cluster: decision.neutral}
        NEUTRAL.alter(self.journal, lambda every: every | found, time.time())
        outcomes = writer.write(self.world, decision.plan, seen, 1, no_stopwatch)
        assert {o.result for o in outcomes} <= {Result.APPLIED}, outcomes
        stamp = formula(decision, KNOBS)
        assert publish(self.stamp, stamp, self.journal, time.time(), good_s) == ""
        return decision


@pytest.fixture
def daemon(lab: SlurmLab, tmp_path: Path) -> Iterator[Daemon]:
    (lab.root / "stamp").unlink(missing_ok=True)
    lab.clear()
    takers = [lab.sbatch(f"-w{n}", "--exclusive", "-t60", "-psla") for n in ("p1", "p2")]
    lab.wait_for(lambda: all(lab.state(t) == "R" for t in takers), 30, "the nodes are busy")
    for minutes in (30, 60, 120):
        lab.sbatch(*FULL, f"-t{minutes}")
    started = Daemon(lab, tmp_path)
    yield started
    started.journal.close()


def factor(daemon: Daemon, number: int) -> int:
    daemon.lab.wait_for(
        lambda: daemon.job(number).site_factor is not None, 30, f"sprio shows {number}"
    )
    found = daemon.job(number).site_factor
    assert found is not None
    return found


FORMS = (
    (*FULL, "-t600"),
    ("--gres=gpu:p100:4", "-t1-0"),
    ("--gpus=8", "-t20"),
    ("-N2", "--gpus-per-node=p100:4", "-t300", "--array=0-3"),
    ("-n4", "--gpus-per-task=1", "-wp1", "--time=UNLIMITED"),
    ("--gres=gpu:p100:2",),
)


def test_a_newcomer_stands_right_in_its_first_cycle_and_is_given_back(daemon: Daemon) -> None:
    daemon.cycle()
    daemon.cycle()  # the neutral delay of the first is in the numbers of both
    assert daemon.stamp.stat().st_mode & 0o777 == 0o644
    new = [daemon.lab.sbatch(*options) for options in FORMS]
    factors = {n: factor(daemon, n) for n in new}
    assert all(factors.values())
    seen = daemon.see()
    decision = decide(seen, BASELINES["delay"], KNOBS)
    entries = {int(e.job.job_id): e for e in decision.entries if int(e.job.job_id) in new}
    slope = seen.priorities.slope
    for entry in entries.values():
        assert entry.job.owned is not None
        assert entry.job.owned.original == 0
        assert entry.in_force_s == pytest.approx(entry.delay_s, abs=1 / slope + 1)
        assert not entry.changes
    assert entries.keys() == set(new)
    daemon.cycle()
    assert {n: factor(daemon, n) for n in new} == factors
    undoer = SlurmUndoer(SlurmCli(conf=daemon.lab.conf), time.time)
    fates = {i.fate for i in restore(undoer, daemon.journal, SystemClock())}
    assert fates == {Fate.GIVEN_BACK}
    assert {j.site_factor for j in daemon.world.observe().pending} == {0}


def test_the_script_stops_with_the_daemon_and_leaves_others_alone(daemon: Daemon) -> None:
    daemon.cycle()
    daemon.cycle()
    left = {
        "an SLA partition": ("--gres=gpu:p100:4", "-psla", "-t300"),
        "several partitions": ("--gres=gpu:p100:4", "-pgpu,short", "-t10"),
        "no GPU": ("-n16", "-wp1", "-t300"),
        "two forms at once": ("--gpus-per-node=p100:4", "--gpus=p100:4", "-t300"),
    }
    numbers = {why: daemon.lab.sbatch(*options) for why, options in left.items()}
    assert {why: factor(daemon, n) for why, n in numbers.items()} == dict.fromkeys(left, 0)
    daemon.cycle(good_s=-1.0)  # a stamp that is out of date
    assert daemon.stamp.exists()
    assert factor(daemon, daemon.lab.sbatch(*FULL, "-t600")) == 0
    daemon.cycle(policy="saf")  # a rule that the script does not know
    assert not daemon.stamp.exists()
    assert factor(daemon, daemon.lab.sbatch(*FULL, "-t600")) == 0


def test_a_job_that_may_not_start_yet_gets_no_factor(daemon: Daemon) -> None:
    daemon.cycle()
    daemon.cycle()
    first = daemon.lab.sbatch(*FULL, "-t600")
    assert factor(daemon, first) != 0
    for option, frees in (
        (f"-dafterany:{first}", "Dependency="),
        ("--begin=now+1hour", "StartTime=now"),
    ):
        new = daemon.lab.sbatch(*FULL, "-t600", option)
        daemon.lab.scontrol("update", f"JobId={new}", frees)
        assert factor(daemon, new) == 0


def test_a_factor_of_the_site_is_the_sites(daemon: Daemon) -> None:
    daemon.cycle()
    daemon.cycle()
    new = daemon.lab.sbatch(*FULL, "-t600")
    daemon.lab.scontrol("update", f"JobId={new}", "SiteFactor=77")
    assert daemon.job(new).owned is None
    daemon.cycle()
    owned = daemon.job(new).owned
    assert owned is not None
    assert owned.original == 77


def test_without_a_live_decision_there_is_no_formula(daemon: Daemon) -> None:
    decision = decide(daemon.see(), BASELINES["delay"], KNOBS)
    assert formula(decision, KNOBS) is not None
    frozen = replace(KNOBS, writing=Writing(mode="priority"))
    assert formula(decide(daemon.see(), BASELINES["delay"], frozen), frozen) is None
    assert formula(decide(daemon.see(), BASELINES["sjf"], KNOBS), KNOBS) is None
