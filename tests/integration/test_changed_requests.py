"""A waiting job is what it is now: whatever its user changes, it stands where a new one would.

Of a walk over all that Slurm lets a user change of a waiting job, on a real Slurm: after each step
and one cycle the job has the delay of a job that is submitted so, and `explain` says it before.
"""

import random
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest

from rltuned.cli.flags import BackendChoice, settings_of
from rltuned.cli.plan import known, look
from rltuned.core import memory
from rltuned.core.decide import Decision, decide
from rltuned.daemon.apply import PlanApplier
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.logger import make_log
from rltuned.daemon.loop import Loop
from rltuned.daemon.systemd import SignalFlags
from rltuned.daemon.wiring import build_rig, run_times_of
from rltuned.domain.kinds import Digester
from rltuned.domain.snapshot import Context, Snapshot
from rltuned.journal.journal import Journal
from rltuned.journal.store import keep_salt
from rltuned.settings.source import load
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.run import SlurmCli
from tests.accounting import PLAIN, as_user
from tests.builders import sure
from tests.clusters import cluster
from tests.configs import write_settings
from tests.lab import PARTITIONS, LabError, SlurmLab
from tests.loops import Received

pytestmark = pytest.mark.slurm

SLOPE: Final = 100_000 / 86_400.0
WEIGHTS = ("PriorityWeightAge=100000", "PriorityMaxAge=1-0", "PriorityWeightPartition=3000000")
"""Room for a delay of ten days below every job."""
MORE = ("PartitionName=long Nodes=ALL MaxTime=UNLIMITED PriorityJobFactor=10",)
WALKS: Final = 2
SETTLES_S: Final = 1.5
"""A job that is released may start a moment later, which must not lie between two looks."""
LEAST_STEP_S: Final = 60.0
"""Writing.min_step_s: a smaller change of the delay is not written."""


BY_ROOT: Final = {"deadline", "contiguous"}
"""Slurm lets no user change these, and an administrator may."""


def moment(in_s: float) -> str:
    return datetime.fromtimestamp(time.time() + in_s).strftime("%Y-%m-%dT%H:%M:%S")  # noqa: DTZ006


def changes() -> list[tuple[str, str, str]]:
    """Updates, the option with which a new job is the same, and its name, so that a later change
    takes the place of an earlier.

    No range of nodes: once it is changed Slurm gives the fewest (tests/contract/test_sizes.py), so
    there is no job that could be submitted so.
    """
    later, far = moment(3_600.0), moment(3 * 86_400.0)
    return [
        ("TimeLimit=600", "-t600", "time"),
        # no more than the partition "whole" allows: Slurm sees that a moment later
        ("TimeLimit=1-0", "-t1-0", "time"),
        ("TimeLimit=20", "-t20", "time"),
        ("NumNodes=2", "-N2", "nodes"),
        ("TresPerNode=gres:gpu:2", "--gres=gpu:2", "gpus"),
        ("MinMemoryNode=3000", "--mem=3000", "memory"),
        ("NumCPUs=8", "-n8", "cpus"),
        ("Account=other", "-Aother", "account"),
        ("QOS=high", "-qhigh", "qos"),
        ("Partition=whole", "-pwhole", "partition"),
        ("Partition=gpu,long", "-pgpu,long", "partition"),
        ("JobName=second", "-Jsecond", "name"),
        ("WorkDir=/tmp", "--chdir=/tmp", "folder"),
        (f"Deadline={far}", f"--deadline={far}", "deadline"),
        (f"StartTime={later}", f"--begin={later}", "begin"),
        ("StartTime=now", "", "begin"),
        ("Features=pascal|kepler", "-Cpascal|kepler", "features"),
        ("ExcNodeList=m1", "-xm1", "excluded"),
        ("Licenses=foo:1", "-Lfoo:1", "licenses"),
        ("Comment=hello", "--comment=hello", "comment"),
        ("Nice=100", "--nice=100", "nice"),
        ("Requeue=0", "--no-requeue", "requeue"),
        ("Contiguous=1", "--contiguous", "contiguous"),
        ("hold", "--hold", "hold"),
        ("release", "", "hold"),
    ]


TAKEN: Final = frozenset(
    {
        "time", "nodes", "gpus", "cpus", "memory", "account", "qos", "partition", "name", "folder",
        "deadline", "begin", "features", "nice", "hold",
    }
)  # fmt: skip
"""What Slurm lets them change: the walk must not become empty in silence."""


@pytest.fixture(scope="module")
def lab() -> Iterator[SlurmLab]:
    with cluster(
        "add qos high priority=100", "add account lab", "add account other",
        f"add user {PLAIN} account=lab", f"add user {PLAIN} account=other",
        f"modify user {PLAIN} set qos+=high",
        accounting=True, extra=WEIGHTS, partitions=(*PARTITIONS, *MORE),
    ) as started:  # fmt: skip
        yield started


class Watched:
    """A job of PLAIN in a full cluster, and a daemon in this process."""

    def __init__(self, lab: SlurmLab, folder: Path) -> None:
        self.lab = lab
        self.options = {"cpus": "-n4", "time": "-t60", "gpus": "--gres=gpu:1", "name": "-Jfirst"}
        self.config = write_settings(
            folder / "rltuned.toml",
            lab.conf,
            policy={"name": "delay"},
            order={"own": 0.3, "share": 1.0},
            limits={"hysteresis": 0.9},
            ladder={"stage": "full"},
        )
        lab.clear()
        lab.runs("-N5", "--exclusive", "-t1:00:00")
        for limit in ("-t45", "-t300", "-t1-0"):
            lab.sbatch("--gres=gpu:1", "-n1", limit)
        self.job = self.submit()
        self.loaded, self.log = load(self.config), make_log("console", "error")
        state = self.loaded.settings.daemon.state_dir
        salt, cli = keep_salt(state), SlurmCli(conf=lab.conf)
        self.world = SlurmBackend(cli, time.time, digester=Digester(salt))
        self.rig = build_rig(self.loaded, self.world)
        self.journal = Journal(state)
        self.loop = Loop(
            self.rig, SystemClock(), self.journal, Received(), orders=SignalFlags(),
            reload=lambda: self.rig, run_times=run_times_of(self.loaded, salt, self.log),
        )  # fmt: skip

    def submit(self) -> int:
        """A job as it is asked for now."""
        command = (*as_user(PLAIN), "sbatch", "--parsable", "--output=/dev/null")
        where = () if "folder" in self.options else ("--chdir=/",)
        words = filter(None, self.options.values())
        done = self.lab.run(*command, *where, *words, "--wrap=sleep 600")
        return int(done.split(";")[0])

    def change(self, update: str, option: str, of: str) -> bool:
        """Whether Slurm lets its user do so."""
        asked = ("update", f"JobId={self.job}", update)
        words = asked if "=" in update else (update, str(self.job))
        try:
            self.lab.run(*(() if of in BY_ROOT else as_user(PLAIN)), "scontrol", *words)
        except LabError:
            return False
        self.options[of] = option
        if of == "qos":  # 25.11 takes the time limit away with it
            limit = self.options["time"].removeprefix("-t")
            self.lab.run("scontrol", "update", f"JobId={self.job}", f"TimeLimit={limit}")
        return True

    def cycle(self) -> Decision:
        report = self.loop.cycle()
        assert not report.journal_error
        assert report.decision is not None, report
        return report.decision

    def explained(self) -> dict[str, Any]:
        seen = look(settings_of(self.config), BackendChoice.SLURM, 0)
        return sure(seen.look.explain(str(self.job)))

    def as_new(self, twin: int) -> tuple[Decision, Decision]:
        """What is decided of the job, and of one submitted so now, where none was known before."""
        writer = PlanApplier(self.journal, SystemClock())
        seen = self.world.observe(writer.remembered)
        context = known(writer, seen)
        jobs = {int(job.job_id): job for job in seen.pending}
        mine, other = jobs.pop(self.job), jobs.pop(twin)
        same = replace(
            other,
            job_id=mine.job_id,
            address=mine.address,
            submitted_at=mine.submitted_at,
            eligible_at=mine.eligible_at if other.eligible_at is not None else None,
            accrue_at=mine.accrue_at,
        )
        both = ([*jobs.values(), one] for one in (mine, same))
        one, two = (self._decided(replace(seen, pending=tuple(each)), context) for each in both)
        return one, two

    def _decided(self, seen: Snapshot, context: Context) -> Decision:
        known = run_times_of(self.loaded, None, self.log)
        return decide(
            seen, self.rig.policy, self.rig.knobs, context=known.look(seen, context=context)
        )

    def stands(self, decision: Decision) -> tuple[float | None, str | None]:
        """The job's delay; else why it has none."""
        entry = next((e for e in decision.entries if e.job.job_id == self.job), None)
        if entry is not None:
            return entry.delay_s, None
        return None, next(str(why) for job, why in decision.refused if job == self.job)


def near(one: tuple[float | None, str | None], other: tuple[float | None, str | None]) -> bool:
    """Within a point."""
    if one[0] is None or other[0] is None:
        return one == other
    return abs(one[0] - other[0]) <= 1.0 / SLOPE


def walk(watched: Watched, seed: int) -> set[str]:
    """All changes in an order of their own, one or two at a time; what Slurm let them change."""
    draw, taken = random.Random(seed), set[str]()  # noqa: S311 - no secret
    steps = changes()
    draw.shuffle(steps)
    steps.reverse()  # in the other order Slurm 25.11 refuses QOS=high in every walk
    watched.cycle()
    for at in range(0, len(steps), 2):
        done = [one for one in steps[at : at + 2] if watched.change(*one)]
        now = {of for _, _, of in done}
        if {"begin", "hold"} & now:
            time.sleep(SETTLES_S)
        if done:
            check_stands(watched, " and ".join(update for update, _, _ in done))
        taken |= now
    return taken


def check_stands(watched: Watched, what: str) -> None:
    shown = watched.explained()
    decision = watched.cycle()
    twin = watched.submit()
    mine, new = watched.as_new(twin)
    watched.lab.run("scancel", str(twin))
    now = watched.stands(decision)
    print(what, now, watched.stands(mine), watched.stands(new))  # noqa: T201 - where a test fails
    assert near(now, watched.stands(mine)), what
    assert near(now, watched.stands(new)), what
    assert near((shown["delay_s"], shown["refusal"]), now), what
    entry = next((e for e in mine.entries if e.job.job_id == watched.job), None)
    if entry is not None:
        assert abs(entry.in_force_s - entry.delay_s) <= LEAST_STEP_S, what


def test_after_each_change_it_stands_where_a_new_one_would(
    lab: SlurmLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "LEAST_ENDS", 0)  # names and folders count by what is predicted
    taken = set[str]()
    for seed in range(WALKS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        watched = Watched(lab, folder)
        with closing(watched.journal):
            taken |= walk(watched, seed)
    lab.clear()
    assert taken >= TAKEN
