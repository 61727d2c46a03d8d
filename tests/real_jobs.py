"""A record of real jobs that really waited, as slurmdbd has it, and a faster clock for it.

Three users submit four kinds of jobs to a real slurmctld, faster than its slurmds can run them, for
some minutes. Then every moment in the database is moved away from the last one by the same factor,
limits too, as if the clock of that cluster had gone so much faster: nothing else of it is made up.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.accounting import OWNER, PLAIN, THIRD

JOBS = 1_200
BY_AGE = "PriorityWeightAge=1000000000"
"""Beside it nothing counts, so the order of the jobs is the same at every speed of the clock."""
WAVES = ((0.4, 3.4), (0.8, 2.2), (1.0, 4.5))
"""Seconds from wave to wave, up to these parts of the jobs: a rush between calmer times. 72 GPUs
need 3.6 s for a wave, without what Slurm itself takes.
"""
DAYS = 40
"""Of the record: the ones from the first submission to the last end."""
LAST_S = 300.0


@dataclass(frozen=True)
class Kind:
    """Jobs that a user submits as an array; they run for least_s, and up to spread_s more."""

    user: str
    account: str
    name: str
    gpus: int
    least_s: int
    spread_s: int
    limit_min: int
    tasks: int


KINDS = (
    Kind(PLAIN, "quick", "eval", 1, 3, 4, 1, 14),
    Kind(THIRD, "quick", "sweep", 1, 4, 6, 1, 5),
    Kind(OWNER, "slow", "train", 4, 8, 9, 2, 2),
    Kind(OWNER, "slow", "big", 8, 6, 5, 3, 1),
)


@dataclass(frozen=True)
class Site:
    """A real Slurm. query: asks its database; run: a command of Slurm's as a user, or as root."""

    cluster: str
    query: Callable[[str], str]
    run: Callable[[str, tuple[str, ...]], object]

    @property
    def table(self) -> str:
        return f"{self.cluster}_job_table"

    def ended(self) -> int:
        """How many jobs slurmdbd knows from submit to end."""
        where = "time_end > 0 and account > ''"
        return int(self.query(f"select count(*) from {self.table} where {where}"))  # noqa: S608


@dataclass(frozen=True)
class Record:
    """What the database says of the real jobs; wait_s: their mean, as long as it really was."""

    jobs: int
    users: int
    wait_s: float
    waited: int
    faster: float


def add_users(site: Site) -> None:
    """Those of KINDS, in their accounts."""
    for account in {kind.account for kind in KINDS}:
        site.run("root", ("sacctmgr", "-i", "add", "account", account))
    for user, account in {(kind.user, kind.account) for kind in KINDS}:
        site.run("root", ("sacctmgr", "-i", "add", "user", user, f"account={account}"))


def submit_wave(site: Site, wave: int) -> int:
    """An array of each kind; how many jobs that is."""
    for kind in KINDS:
        run_s = f"$(({kind.least_s} + (SLURM_ARRAY_TASK_ID * 7 + {wave}) % {kind.spread_s}))"
        argv = (
            "sbatch", "--output=/dev/null", "--chdir=/", f"-J{kind.name}",
            f"--array=1-{kind.tasks}", "-n1", "--mem=10", f"--gres=gpu:{kind.gpus}",
            f"--time={kind.limit_min}", f"--wrap=sleep {run_s}",
        )  # fmt: skip
        site.run(kind.user, argv)
    return sum(kind.tasks for kind in KINDS)


def play(site: Site, jobs: int) -> None:
    """Let jobs come, wait, run and be remembered."""
    wanted, wave, due = site.ended(), 0, time.monotonic()
    while wanted < jobs:
        wanted += submit_wave(site, wave)
        wave += 1
        due += next((wait_s for part, wait_s in WAVES if wanted < part * jobs), 0.0)
        time.sleep(max(0.0, due - time.monotonic()))
    end = time.monotonic() + LAST_S
    while site.ended() < wanted:
        assert time.monotonic() < end, f"slurmdbd has {site.ended()} of {wanted} jobs"
        time.sleep(1.0)


def sped_up(site: Site) -> Record:
    """Stretch what there is to DAYS; as it really was."""
    waited = f"""select count(*), count(distinct id_user), avg(time_start - time_eligible),
        sum(time_start - time_eligible > 5), max(time_end) - min(time_submit)
        from {site.table} where time_end > 0 and account > ''"""  # noqa: S608
    jobs, users, wait_s, late, span_s = map(float, site.query(waited).split())
    faster = round(DAYS * 86_400 / span_s)
    moments = ("time_submit", "time_eligible", "time_start", "time_end")
    moved = ", ".join(f"{m} = @last - (@last - {m}) * {faster}" for m in moments)
    last = f"set @last := (select max(time_end) from {site.table});"  # noqa: S608
    update = f"update {site.table} set {moved}, timelimit = timelimit * {faster}"  # noqa: S608
    site.query(f"{last} {update}")
    return Record(int(jobs), int(users), wait_s, int(late), faster)


def check_night(record: Record, found: dict[str, Any]) -> None:
    """What a night of `rltuned tune --json` has to say of such a record."""
    assert record.users == len({kind.user for kind in KINDS})
    assert record.waited > record.jobs / 4
    assert found["verdict"] in {"kept", "proposed"}
    assert record.jobs <= found["record"]["rows"] <= record.jobs + 1  # a night as a job is one
    assert found["record"]["users"] == record.users
    assert record.jobs * 0.9 < found["record"]["jobs"] <= record.jobs
    calibration = found["calibration"]["whole"]
    assert calibration["verdict"] in {"close", "rough"}
    assert calibration["mean"]["base"] == pytest.approx(record.wait_s * record.faster, rel=0.1)
    assert {0.5, 0.75, 1.0, 2.0} & {one["share"] for one in found["candidates"]}
    assert found["slurm"]["wait_s"] > 0
