"""How often does `rltuned tune` promote what is no better, and does it find what is?

Worlds of 16 GPUs and about 150 jobs a day, whose users have habits. Slurm orders them by age alone,
so the simulator is right to the second. A row is a night.

- `aa`: the candidate is the incumbent's rule with a predictor of another seed, no choice is left,
  and a promotion is a false one. `second`: another seed, which may pass where `first` does not, as
  the order of the settings may where a generation is in force.
- `blind`: every limit is a day. Nights follow one another until one promotes; then incumbent and
  winner are played on the fortnight that follows, which no night has seen, in as many copies as
  a test period has.
- `turned`: as blind, for fewer nights. Where one promotes, the users turn round on day TURN
  (who ran long jobs runs short ones, at the same load), and the nights AFTER days later may leave
  the winner for the order that was in force before. `truth` is what that order makes of the two
  fortnights after the turn, against the winner.
- `misled`: as turned, on a site that predicts no run times. Limits are 1.05 to 4 times the run
  time; from day TURN on, the shorter half of the jobs asks for a day, and the others for the least.
- `traces`: one night of the whole command's candidates, networks too, on the record that Slurm by
  age would have left of one of LONG scaled to LOAD, without its last days; then these. A trace that
  is too short for RECORD_DAYS gives what it has.
"""

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from rltuned.core.slurm_plan import Parameters
from rltuned.domain.cluster import Partition, Resources
from rltuned.domain.units import GpuType
from rltuned.lab.backtest.past import Past, Span, past_of
from rltuned.lab.backtest.play import as_daemon
from rltuned.lab.backtest.site import SiteModel
from rltuned.lab.compare import Change, Comparison, compared, pooled
from rltuned.lab.replay.orders import slurms_order
from rltuned.lab.replay.play import run
from rltuned.lab.replay.readers.clusters import read_philly_csv
from rltuned.lab.replay.readers.rows import finish
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.replay.trace_file import read_trace
from rltuned.lab.stats import DAY_S
from rltuned.lab.train.predictor import fit
from rltuned.lab.tune.night import COPIES, NightPlan, price_broken, spend, split_of, verdict
from rltuned.lab.tune.search import Candidate, Period
from rltuned.policies.baselines import BASELINES
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.settings import Settings
from rltuned.sim.cluster import Cluster, idle_node, read_cluster
from rltuned.sim.natural import Natural
from rltuned.sim.presets import preset
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Rules
from rltuned.slurm.accounting import SacctAnswer, SacctRecord
from rltuned.slurm.site import SlurmSite
from scripts.studies import data_of
from scripts.studies.plays import TRACES, loaded
from scripts.studies.runner import Row, Study

GPUS, USERS, LOAD = 16, 30, 0.9
RECORD_DAYS, TEST_DAYS, LATER_DAYS = 45.0, 14.0, 14.0
TURN: Final = 62.0
AFTER: Final = (5, 10, 14)
"""Nights after the turn, in days."""
BY_AGE = Natural(
    kind="multifactor", age_weight=10_000, size_weight=0, partition_weight=0, size_of="nodes"
)
EPOCH: Final = 1_700_000_000.0
DAEMON = replace(as_daemon(Settings()), interval_s=300.0)
RULE, SHIPPED = BASELINES["delay"], load_predictor(shipped_predictor())
PRICE: Final = Settings().tune.longest
LONG: Final = ("philly_train_2017-10", "philly_2017-11", "thetagpu_2023", "helios_venus_2020",
               "mira_2018")  # fmt: skip
MINUTES: Final = 45.0
"""Of a night on a trace."""
NIGHTS: Final = {"aa": 4, "blind": 14, "turned": 3, "misled": 14, "traces": 1}


@dataclass(frozen=True)
class Run:
    """One world, or the place of a trace in LONG."""

    study: str
    seed: int


@dataclass(frozen=True)
class Plan:
    """How many nights; how long each looks back, is tested and followed, and what it may use."""

    nights: int = 1
    record_days: float = RECORD_DAYS
    test_days: float = TEST_DAYS
    later_days: float = LATER_DAYS
    minutes: float = 600.0
    price: float = PRICE
    network: Path | None = None
    learn: bool = True
    default: Candidate | None = None


@dataclass(frozen=True)
class Workload:
    """A cluster, and what slurmdbd has of its jobs."""

    cluster: Cluster
    runs: list[SacctRecord]


def small() -> Cluster:
    """Four nodes of four GPUs."""
    nodes = tuple(
        idle_node(f"n{i}", GpuType("a"), Resources(4, 64, 256_000), ("gpu",)) for i in range(4)
    )
    return Cluster("study", nodes, (Partition("gpu", default=True),))


def jobs_of(seed: int, days: float, *, turned_at: float = math.inf) -> tuple[TraceJob, ...]:
    """Users with habits, who turn round on day turned_at; every limit is a day."""
    draw = np.random.default_rng(seed)
    count = int(days * 160)
    habit = draw.normal(np.log(1_200.0), 1.3, USERS)
    wide = draw.choice([1, 1, 2, 4], USERS)
    active = draw.dirichlet(np.full(USERS, 0.7))
    users = draw.choice(USERS, count, p=active)
    gap_s = days * DAY_S / count
    submit_s = np.cumsum(draw.exponential(gap_s, count)).round()
    turned = submit_s >= turned_at * DAY_S
    center = np.where(turned, 2 * np.log(1_200.0) - habit[users], habit[users])
    run_s = np.clip(np.exp(center + draw.normal(0.0, 0.7, count)), 30.0, 86_000.0)
    for part, span in ((~turned, min(turned_at, days)), (turned, days - turned_at)):
        if span > 0:
            work_s = float((run_s * wide[users])[part].sum())
            run_s[part] *= LOAD * GPUS * span * DAY_S / work_s
    run_s = np.ceil(np.minimum(run_s, 86_000.0))
    return tuple(
        TraceJob(
            str(i + 1), float(submit_s[i]), float(run_s[i]), int(wide[users[i]]), DAY_S, cpus=1,
            partition="gpu", user=f"u{users[i]}", account=f"a{users[i] % 5}",
        )
        for i in range(count)
    )  # fmt: skip


def recorded(cluster: Cluster, jobs: tuple[TraceJob, ...]) -> Workload:
    """Jobs in Slurm's order by age."""
    scenario = Scenario.of(cluster, jobs, Rules(natural=BY_AGE))
    played = run(scenario, slurms_order(scenario))
    runs = [
        SacctRecord(
            key=str(number), submit_s=EPOCH + job.submit_s, eligible_s=EPOCH + job.submit_s,
            start_s=EPOCH + start, end_s=EPOCH + end, state="COMPLETED", limit_s=job.time_limit_s,
            gpus=job.gpus, gpu_types=job.gpu_types, cpus=1, mem_mib=None, nodes=job.nodes,
            alloc_gpus=job.gpus, alloc_cpus=1,
            partition=job.partition or cluster.partitions[0].name,
            user=job.user, account=job.account, qos="", where="", priority=None, main=True,
        )
        for number, (job, start, end) in enumerate(
            zip(jobs, played.start_s.tolist(), played.end_s.tolist(), strict=True), 1
        )
    ]  # fmt: skip
    return Workload(cluster, runs)


def record(ground: Workload, begin: float, until: float) -> Past:
    """What sacct says at one moment of the days before it."""
    now = EPOCH + until * DAY_S
    known = [r for r in ground.runs if r.submit_s <= now]
    known = [replace(r, end_s=None, state="RUNNING") if (r.end_s or 0) > now else r for r in known]
    known = [
        replace(r, start_s=None, state="PENDING") if (r.start_s or 0) > now else r for r in known
    ]
    slurm = SlurmSite("study", (24, 11), BY_AGE.system, memory_counts=False, preemption=False)
    site = SiteModel(ground.cluster, BY_AGE, "easy", Parameters(), slurm, "", (), 0.0)
    answer = SacctAnswer(known, len(known), Counter())
    return past_of(answer, site, Span(EPOCH + begin * DAY_S, now))


def incumbent() -> Candidate:
    """The rule with the daemon's default order."""
    order = Settings().order
    return Candidate(RULE, order.own, order.share, order.max_delay_s, SHIPPED)


def aa(seed: int, nights: int) -> Iterator[Row]:
    """Nights in which the candidate is the same, but for a seed."""
    ground = recorded(small(), jobs_of(seed, RECORD_DAYS + nights * TEST_DAYS))
    for night in range(nights):
        begin = night * TEST_DAYS
        past = record(ground, begin, begin + RECORD_DAYS)
        _, end_s, test_s = split_of(past, TEST_DAYS)
        learned, start_s = past.switched_on(end_s).known()
        test = Period(past.switched_on(test_s), DAEMON)
        fits = [fit(learned, start_s=start_s, begin=SHIPPED, seed=number) for number in (1, 2, 3)]
        same = [Candidate(RULE, 0.3, 0.75, 7 * DAY_S, own.predictor) for own in fits]
        copies = [[test.play(one, copy) for one in same] for copy in range(COPIES)]
        row: Row = {"study": "aa", "seed": seed, "night": night}
        for name, place in (("first", 1), ("second", 2)):
            once, *more = (compared(c[0], c[place], test.days) for c in copies)
            found = pooled([once, *more])
            broken = price_broken(test, copies[0][0], copies[0][place], PRICE)
            row[name] = {
                "promoted": not verdict(found, same[place], broken),
                "change": found.objective.change,
                "interval": ends_of(found.objective),
                "one_copy": once.is_better,
            }
        yield row


def nightly(
    study: tuple[str, int], first: Candidate, ground: Workload, begin: float, plan: Plan
) -> Iterator[Row]:
    """Nights one after the other, until one promotes; then the days that follow."""
    for night in range(plan.nights):
        row, taken = one_night(study, first, ground, begin + night, plan)
        row["night"] = night
        if taken is None:
            yield row
            continue
        until = begin + night + plan.record_days
        later = against(first, taken, ground, (begin + night, until, until + plan.later_days))
        yield row | {"later": changed(later)}
        return


def one_night(
    study: tuple[str, int], first: Candidate, ground: Workload, begin: float, plan: Plan
) -> tuple[Row, Candidate | None]:
    """A night on the record that begins on that day: its row, and what it promotes."""
    past = record(ground, begin, begin + plan.record_days)
    began = time.monotonic()
    asked = NightPlan(
        plan.test_days, plan.minutes, plan.price, SHIPPED, plan.network, plan.learn,
        default=plan.default,
    )  # fmt: skip
    found = spend(past, first, DAEMON, asked, clock=time.monotonic)
    row: Row = {
        "study": study[0],
        "seed": study[1],
        "promoted": found.taken is not None,
        "why": list(found.why),
        "power": found.power,
        "price": list(found.price_words),
        "calibration": found.calibration.whole.verdict,
        "minutes": round((time.monotonic() - began) / 60, 1),
        "exams": [{"order": one.candidate.name} | changed(one.change) for one in found.tested],
        "left_out": found.left_out,
    }
    if found.taken is not None:
        row["order"] = found.taken.name
        row["promised"] = changed(found.tested[-1].change)
    return row, found.taken


def against(
    base: Candidate, own: Candidate, ground: Workload, days: tuple[float, float, float]
) -> Comparison:
    """Two orders on the days from the second of days to the third, in several copies; the record
    begins before.
    """
    begin, at, until = days
    part = Period(record(ground, begin, until).switched_on((at - begin) * DAY_S), DAEMON)
    played = [[part.play(one, copy) for one in (base, own)] for copy in range(COPIES)]
    return pooled([compared(one, other, part.days) for one, other in played])


def changed(found: Comparison) -> Row:
    """The change of the mean wait."""
    return {"wait": found.wait.change, "interval": ends_of(found.wait)}


def ends_of(change: Change) -> tuple[float | None, float | None] | None:
    """Of its interval; None = there is none."""
    return None if change.low is None else (change.low, change.high)


def blind(seed: int, nights: int) -> Iterator[Row]:
    """A world whose limits say nothing."""
    ground = recorded(small(), jobs_of(seed, RECORD_DAYS + nights + LATER_DAYS))
    yield from nightly(("blind", seed), incumbent(), ground, 0.0, Plan(nights))


def turned(seed: int, nights: int) -> Iterator[Row]:
    """Users turn round after a promotion."""
    ground = recorded(small(), jobs_of(seed, TURN + 2 * LATER_DAYS, turned_at=TURN))
    yield from left(("turned", seed), incumbent(), ground, Plan(nights))


def misled(seed: int, nights: int) -> Iterator[Row]:
    """Limits lie after a promotion, and nothing else is known of run times."""
    jobs, draw = jobs_of(seed, TURN + 2 * LATER_DAYS), np.random.default_rng(seed)
    median_s = float(np.median([job.duration_s for job in jobs]))
    given = []
    for job in jobs:
        limit_s = job.duration_s * draw.uniform(1.05, 4.0)
        if job.submit_s >= TURN * DAY_S:
            limit_s = DAY_S if job.duration_s < median_s else job.duration_s * 1.05
        minutes = math.ceil(max(limit_s, job.duration_s + 60.0) / 60.0)
        given.append(replace(job, time_limit_s=min(60.0 * minutes, DAY_S)))
    first = replace(incumbent(), predictor=None)
    plan = Plan(nights, learn=False)
    yield from left(("misled", seed), first, recorded(small(), tuple(given)), plan)


def left(study: tuple[str, int], first: Candidate, ground: Workload, plan: Plan) -> Iterator[Row]:
    """Nights until one promotes; then those after the turn: do they leave the winner?"""
    taken = None
    for night in range(plan.nights):
        row, taken = one_night(study, first, ground, float(night), plan)
        yield row | {"night": night}
        if taken is not None:
            break
    if taken is None:
        return
    for day in AFTER:
        back = replace(plan, default=first)
        row, other = one_night(study, taken, ground, TURN + day - plan.record_days, back)
        yield row | {"after": day}
        if other is not None:
            break
    begin = TURN - plan.record_days
    spans = [(begin + n * LATER_DAYS, TURN + n * LATER_DAYS) for n in (0, 1)]
    truth = [against(taken, first, ground, (b, at, at + LATER_DAYS)) for b, at in spans]
    yield {"study": study[0], "seed": study[1], "truth": [changed(found) for found in truth]}


def traces(number: int, nights: int) -> Iterator[Row]:
    """A night on one of LONG: its last days follow, the days before them are the record."""
    name = LONG[number - 1]
    if (TRACES / f"{name}.toml").exists():
        cluster = read_cluster(TRACES / f"{name}.toml")
        jobs = read_trace(TRACES / f"{name}.csv.gz").jobs
    else:
        cluster, path = preset("philly-2490"), TRACES / f"{name}.csv.gz"
        jobs = finish(read_philly_csv(path), path, limits="informative", seed=1).jobs
    ground = recorded(cluster, loaded(jobs, cluster, LOAD).jobs)
    days = (ground.runs[-1].submit_s - EPOCH) / DAY_S
    later = min(LATER_DAYS, days / 5)
    record_days = min(RECORD_DAYS, days - later)
    network = Path("models", "rltune")
    test_days = min(TEST_DAYS, record_days / 2)
    plan = Plan(nights, record_days, test_days, later, MINUTES, network=network)
    begin = days - later - plan.record_days
    rows = nightly(("traces", number), incumbent(), ground, begin, plan)
    yield from ({"trace": name, "days": plan.record_days} | row for row in rows)


PLAYED = {"aa": aa, "blind": blind, "turned": turned, "misled": misled, "traces": traces}


def runs(study: str, _: argparse.Namespace) -> Iterator[Run]:
    """World by world."""
    for seed in range(1, 1 + (len(LONG) if study == "traces" else 10)):
        yield Run(study, seed)


def play(run: Run) -> list[Row]:
    """All of its nights."""
    return list(PLAYED[run.study](run.seed, NIGHTS[run.study]))


def table(study: str) -> None:
    """How many worlds have promoted, and in how many nights."""
    rows = [json.loads(line) for line in data_of(f"tune {study}").read_text().splitlines()]
    taken = [row for row in rows if row.get("promoted", row.get("first", {}).get("promoted"))]
    worlds = len({row["seed"] for row in taken})
    print(f"{study}: {len(rows)} rows, {len(taken)} promotions in {worlds} worlds")


STUDIES = {
    f"tune {name}": Study(partial(runs, name), play, {"table": partial(table, name)})
    for name in PLAYED
}
