"""How often does `rltuned tune` promote what is no better, and does it find what is?

Worlds of 16 GPUs and about 150 jobs a day, whose users have habits; every limit is a day. Slurm
orders them by age alone, so the simulator is right to the second. A row is a night.

- `aa`: the candidate is the incumbent's rule with a predictor of another seed, no choice is left,
  and a promotion is a false one. `second`: another seed, which may pass where `first` does not, as
  the order of the settings may where a generation is in force.
- `blind`: nights follow one another until one promotes; then incumbent and winner are played on the
  fortnight that follows, which no night has seen, in as many copies as a test period has.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from rltuned.core.slurm_plan import Parameters
from rltuned.domain.cluster import Partition, Resources
from rltuned.domain.units import GpuType
from rltuned.lab.backtest.past import Past, Span, past_of
from rltuned.lab.backtest.site import SiteModel
from rltuned.lab.backtest.study import as_daemon
from rltuned.lab.compare import DAY_S, Change
from rltuned.lab.replay.orders import slurms_order
from rltuned.lab.replay.play import run as play_out
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.predictor import fit
from rltuned.lab.tune.night import COPIES, spend, split_of
from rltuned.lab.tune.search import Candidate, Period
from rltuned.policies.baselines import BASELINES
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.settings import Settings
from rltuned.sim.cluster import Cluster, idle_node
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Natural, Rules
from rltuned.slurm.accounting import SacctAnswer, SacctRecord
from rltuned.slurm.site import SlurmSite
from scripts.studies import data_of
from scripts.studies.runner import Row, Study

GPUS, USERS, LOAD = 16, 30, 0.9
RECORD_DAYS, TEST_DAYS, LATER_DAYS = 45.0, 14.0, 14.0
NIGHTS: Final = {"aa": 4, "blind": 14}
BY_AGE = Natural(
    kind="multifactor", age_weight=10_000, size_weight=0, partition_weight=0, size_of="nodes"
)
EPOCH: Final = 1_700_000_000.0
DAEMON = replace(as_daemon(Settings()), interval_s=300.0)
RULE, SHIPPED = BASELINES["delay"], load_predictor(shipped_predictor())
PRICE, ORDER = Settings().tune.longest, Settings().order
INCUMBENT = Candidate(RULE, ORDER.own, ORDER.share, ORDER.max_delay_s, SHIPPED)
"""The rule with the daemon's default order."""
CLUSTER = Cluster(
    "study",
    tuple(idle_node(f"n{i}", GpuType("a"), Resources(4, 64, 256_000), ("gpu",)) for i in range(4)),
    (Partition("gpu", default=True),),
)


@dataclass(frozen=True)
class Run:
    """One world."""

    study: str
    seed: int


def runs(study: str, _: object) -> Iterator[Run]:
    return (Run(study, seed) for seed in range(1, 11))


def jobs_of(seed: int, days: float) -> tuple[TraceJob, ...]:
    """Of users with habits."""
    draw = np.random.default_rng(seed)
    count = int(days * 160)
    habit = draw.normal(np.log(1_200.0), 1.3, USERS)
    wide = draw.choice([1, 1, 2, 4], USERS)
    users = draw.choice(USERS, count, p=draw.dirichlet(np.full(USERS, 0.7)))
    submit_s = np.cumsum(draw.exponential(days * DAY_S / count, count)).round()
    run_s = np.clip(np.exp(habit[users] + draw.normal(0.0, 0.7, count)), 30.0, 86_000.0)
    run_s *= LOAD * GPUS * days * DAY_S / float((run_s * wide[users]).sum())
    run_s = np.ceil(np.minimum(run_s, 86_000.0))
    return tuple(
        TraceJob(
            str(i + 1), float(submit_s[i]), float(run_s[i]), int(wide[users[i]]), DAY_S, cpus=1,
            partition="gpu", user=f"u{users[i]}", account=f"a{users[i] % 5}",
        )
        for i in range(count)
    )  # fmt: skip


def recorded(jobs: tuple[TraceJob, ...]) -> list[SacctRecord]:
    """What slurmdbd has of the jobs in Slurm's order by age."""
    scenario = Scenario.of(CLUSTER, jobs, Rules(natural=BY_AGE))
    played = play_out(scenario, slurms_order(scenario))
    times = zip(jobs, played.start_s.tolist(), played.end_s.tolist(), strict=True)
    return [
        SacctRecord(
            key=str(number), submit_s=EPOCH + job.submit_s, eligible_s=EPOCH + job.submit_s,
            start_s=EPOCH + start, end_s=EPOCH + end, state="COMPLETED", limit_s=job.time_limit_s,
            gpus=job.gpus, gpu_types=job.gpu_types, cpus=1, mem_mib=None, nodes=job.nodes,
            alloc_gpus=job.gpus, alloc_cpus=1, partition=job.partition, user=job.user,
            account=job.account, qos="", where="", priority=None, main=True,
        )
        for number, (job, start, end) in enumerate(times, 1)
    ]  # fmt: skip


def record(every: list[SacctRecord], begin: float, until: float) -> Past:
    """What sacct says at one moment of the days before it."""
    now = EPOCH + until * DAY_S
    known = [r for r in every if r.submit_s <= now]
    known = [replace(r, end_s=None, state="RUNNING") if (r.end_s or 0) > now else r for r in known]
    known = [
        replace(r, start_s=None, state="PENDING") if (r.start_s or 0) > now else r for r in known
    ]
    slurm = SlurmSite("study", (24, 11), BY_AGE.system, memory_counts=False, preemption=False)
    site = SiteModel(CLUSTER, BY_AGE, "easy", Parameters(), slurm, "", (), 0.0)
    answer = SacctAnswer(known, len(known), Counter())
    return past_of(answer, site, Span(EPOCH + begin * DAY_S, now))


def aa(seed: int) -> Iterator[Row]:
    """Nights in which the candidate is the same, but for a seed."""
    every = recorded(jobs_of(seed, RECORD_DAYS + NIGHTS["aa"] * TEST_DAYS))
    for night in range(NIGHTS["aa"]):
        past = record(every, night * TEST_DAYS, night * TEST_DAYS + RECORD_DAYS)
        _, end_s, test_s = split_of(past, TEST_DAYS)
        learned, start_s = past.switched_on(end_s).known()
        test = Period(past.switched_on(test_s), DAEMON)
        fits = [fit(learned, start_s=start_s, begin=SHIPPED, seed=number) for number in (1, 2, 3)]
        same = [Candidate(RULE, 0.3, 0.75, 7 * DAY_S, own.predictor) for own in fits]
        copies = [[test.play(one, copy) for one in same] for copy in range(COPIES)]
        row: Row = {"study": "aa", "seed": seed, "night": night}
        for name, place in (("first", 1), ("second", 2)):
            base, own = [c[0] for c in copies], [c[place] for c in copies]
            found = test.tried(same[place], base, own, PRICE)
            once = test.tried(same[place], base[:1], own[:1], PRICE)
            row[name] = {
                "promoted": not found.doubts,
                "change": found.change.objective.change,
                "interval": _ends(found.change.objective),
                "one_copy": once.change.is_better,
            }
        yield row


def blind(seed: int) -> Iterator[Row]:
    """Nights one after the other, until one promotes; then the days that follow."""
    every = recorded(jobs_of(seed, RECORD_DAYS + NIGHTS["blind"] + LATER_DAYS))
    for night in range(NIGHTS["blind"]):
        until, began = night + RECORD_DAYS, time.monotonic()
        past = record(every, night, until)
        periods_s = split_of(past, TEST_DAYS)
        found, taken, _ = spend(past, periods_s, INCUMBENT, DAEMON, price=PRICE, shipped=SHIPPED)
        tested = [one for one in found["candidates"] if one["period"] == "test"]
        row: Row = {
            "study": "blind", "seed": seed, "promoted": taken is not None,
            "why": found["why"], "price": found["plain"],
            "calibration": found["calibration"]["verdict"],
            "minutes": round((time.monotonic() - began) / 60, 1),
            "exams": [{"order": one["order"], "wait": one["wait"]} for one in tested],
            "left_out": found["left_out"], "night": night,
        }  # fmt: skip
        if taken is None:
            yield row
            continue
        part = Period(record(every, night, until + LATER_DAYS).switched_on(RECORD_DAYS * DAY_S),
                      DAEMON)  # fmt: skip
        base, own = ([part.play(one, copy) for copy in range(COPIES)] for one in (INCUMBENT, taken))
        later = part.tried(taken, base, own, PRICE).change.wait
        ended = {"change": later.change, "low": later.low, "high": later.high}
        yield row | {"order": taken.name, "promised": tested[-1]["wait"], "later": ended}
        return


def _ends(change: Change) -> tuple[float | None, float | None] | None:
    """Of its interval; None = there is none."""
    return None if change.low is None else (change.low, change.high)


def play(run: Run) -> list[Row]:
    """All nights of a world."""
    return list(aa(run.seed) if run.study == "aa" else blind(run.seed))


def table(study: str) -> None:
    """How many nights have promoted."""
    rows = [json.loads(line) for line in data_of(f"tune {study}").read_text().splitlines()]
    taken = sum(row.get("first", row)["promoted"] for row in rows)
    print(f"{study}: {taken} of {len(rows)} nights promote")


STUDIES = {
    f"tune {name}": Study(partial(runs, name), play, {"table": partial(table, name)})
    for name in NIGHTS
}
