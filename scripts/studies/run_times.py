"""What run-time knowledge is worth: the rule `delay` with predictions beside the limit alone.

    python -m scripts.studies.run_times run [--minutes M]
    python -m scripts.studies.run_times table | limits | ends

The traces and copies are those of scripts/studies/delays, the cycles of 60 s those of plays.
Limits are the trace's own (of Philly and Helios they are drawn from the run time and tell much of
it; ThetaGPU's are real), or drawn again to tell little (weak) or nothing (none). Every run begins
with an empty memory, and its figures are of all jobs.

- `delay`, `qssf`: by the limits alone, or with a predictor: `shipped` has met no job of these
  clusters; `site` was fitted to the first half of the trace's jobs, and is measured on the second
  half as well.
`limits` plays what a good time limit is worth to its user: of a tenth of the jobs, drawn at random,
the limit becomes GOOD times the run time, rounded up to what people write, and their wait is
compared with their own before.

`ends` compares plans with limits by how many jobs had ended when a job came: in parts of the traces
that begin with an empty memory, how often the plans order the jobs better by their true run times.

- `clairvoyant`: `delay` with the true run time in place of the expected one. No scheduler can
  play it.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np

from rltuned.core.features import FloatArray
from rltuned.core.run_times import INPUTS, plan_s
from rltuned.lab.kernel.run_times import Layers, replay
from rltuned.lab.replay.orders import known_of, layers_of, runs_of
from rltuned.policies.predictor import Predictor, load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.sim.limits import round_up
from rltuned.sim.trace import TraceJob
from scripts.studies import plays
from scripts.studies.delays import COPIES, GROUNDS, trace_of
from scripts.studies.plays import ORDERS, STRENGTHS, Outcome, Row, known, mean, spread

RESULTS = Path("docs/data/run-times.jsonl")
LOAD = 0.9
GOOD, GOOD_SHARE, GOOD_GROUNDS = 1.5, 0.1, ("helios-venus", "philly-nov-1")
ENDS_GROUNDS = (
    ("thetagpu-1", "own"), ("thetagpu-2", "own"),
    ("helios-venus", "weak"), ("philly-nov-1", "weak"),
)  # fmt: skip
ENDS_STEPS = (0, 10, 30, 100, 300, 1_000)
ENDS_WINDOWS, ENDS_LEAST = 24, 8
FIGURES = ("wait_s", "later_wait_s", "wait_p99_s", "wait_max_s", "bsld")


@dataclass(frozen=True)
class Run:
    """One play. knowledge: limit, shipped, site or true."""

    ground: str
    limits: str
    copy: int
    policy: str
    knowledge: str


def runs(_: argparse.Namespace) -> Iterator[Run]:
    """Copy by copy, so that an interrupted study is whole in fewer copies."""
    for copy in range(1, COPIES + 1):
        for ground, strength, order in product(GROUNDS, STRENGTHS, ORDERS):
            if (ground, strength) != ("testbed", "weak"):  # the testbed's own limits are weak
                yield Run(ground, strength, copy, *order)


@cache
def jobs_of(ground: str, strength: str, copy: int) -> tuple[TraceJob, ...]:
    """A trace's jobs with limits of a strength; the same draw in every copy."""
    cluster, trace = trace_of(ground, LOAD, copy, "own")
    return plays.with_limits(trace.jobs, strength, cluster)


@cache
def predictor_of(ground: str, strength: str, copy: int, knowledge: str) -> Predictor | None:
    """What the order of a run knows; `site` has seen the first half."""
    jobs = jobs_of(ground, strength, copy)
    return plays.predictor_of(knowledge, lambda: jobs[: len(jobs) // 2])


def played(run: Run, jobs: tuple[TraceJob, ...]) -> Outcome:
    """The run with these jobs."""
    cluster, _ = trace_of(run.ground, LOAD, run.copy, "own")
    predictor = predictor_of(run.ground, run.limits, run.copy, run.knowledge)
    return plays.play(cluster, jobs, plays.policy_of(run.policy, jobs), predictor=predictor)


def play(run: Run) -> Row:
    """Its figures, of all jobs and of the second half."""
    jobs = jobs_of(run.ground, run.limits, run.copy)
    began = time.process_time()
    found = played(run, jobs)
    return (
        asdict(run)
        | found.figures()
        | {
            "later_wait_s": float(found.wait_s[len(jobs) // 2 :].mean()),
            "writes_per_job": float(found.played.writes.mean()),
            "cpu_s": round(time.process_time() - began, 1),
        }
    )


def limits(_: argparse.Namespace) -> None:
    """The change of the mean wait of jobs with good limits, and of all others; over the copies."""
    plays.head("trace, weak limits", "knowledge", "jobs with good limits", "all others")
    for ground, knowledge in product(GOOD_GROUNDS, ("limit", "shipped")):
        changes = []
        for copy in range(1, COPIES + 1):
            run = Run(ground, "weak", copy, "delay", knowledge)
            jobs = jobs_of(ground, "weak", copy)
            chosen = np.random.default_rng(copy).random(len(jobs)) < GOOD_SHARE
            better = tuple(
                replace(job, time_limit_s=min(_good_s(job), job.time_limit_s)) if own else job
                for job, own in zip(jobs, chosen.tolist(), strict=True)
            )
            before, after = (played(run, some).wait_s for some in (jobs, better))
            changes.append([after[c].mean() / before[c].mean() - 1 for c in (chosen, ~chosen)])
        cells = [f"{c.mean():+.0%} [{c.min():+.0%}, {c.max():+.0%}]" for c in np.array(changes).T]
        print(plays.row_of([ground, knowledge, *cells]))


def ends(_: argparse.Namespace) -> None:
    """Rank correlations with the run time; the part of the windows where the plan's is larger."""
    plays.head("trace, limits", "jobs ended", "windows", "plan", "limit", "plan is better in")
    layers = layers_of(load_predictor(shipped_predictor()))
    for ground, strength in ENDS_GROUNDS:
        jobs = sorted(jobs_of(ground, strength, 1), key=lambda job: job.submit_s)
        rows: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for first in range(0, len(jobs) - 2_000, (len(jobs) - 2_000) // ENDS_WINDOWS):
            some = jobs[first : first + 3 * ENDS_STEPS[-1]]
            ended, plan_s, limit_s, run_s = _planned(some, layers)
            step = np.searchsorted(ENDS_STEPS, ended, side="right") - 1
            for number in range(len(ENDS_STEPS)):
                here = step == number
                if here.sum() >= ENDS_LEAST:
                    ran = _ranks(run_s[here])
                    pair = (_alike(_ranks(s[here]), ran) for s in (plan_s, limit_s))
                    rows[number].append(tuple(pair))  # type: ignore[arg-type]
        for number, pairs in sorted(rows.items()):
            plan, limit = np.array(pairs).T
            cells = [plan.mean(), limit.mean(), f"{np.mean(plan > limit):.0%}"]
            print(plays.row_of([f"{ground}, {strength}", ENDS_STEPS[number], len(pairs), *cells]))


def _planned(jobs: Sequence[TraceJob], layers: Layers) -> tuple[FloatArray, ...]:
    """(n,) of each job that starts as it comes: how many had ended, plan, limit and run time."""
    known, run_s = known_of(jobs, layers), np.maximum(runs_of(jobs), 1.0)
    came_s, count = np.array([job.submit_s for job in jobs]), len(jobs)
    inputs, shift = np.zeros((count, INPUTS), dtype=np.float32), np.zeros(count)
    replay(known, came_s, came_s.copy(), came_s + run_s, inputs, shift)
    rows = zip(known.predicted, known.limit_s.tolist(), strict=True)
    plan = np.array([plan_s(row, 0.0, limit) for row, limit in rows])
    ended = np.searchsorted(np.sort(came_s + run_s), came_s, side="right").astype(np.float64)
    return ended, plan, known.limit_s, run_s


def _ranks(values: FloatArray) -> FloatArray:
    """(n,) places by value; equal ones share the middle."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    middle: FloatArray = np.cumsum(count) - (count - 1) / 2
    return middle[place]


def _alike(one: FloatArray, other: FloatArray) -> float:
    return float(np.corrcoef(one, other)[0, 1]) if one.std() * other.std() > 0 else 0.0


def _good_s(job: TraceJob) -> float:
    return float(round_up(np.array([min(job.duration_s, job.time_limit_s) * GOOD]))[0])


def table(_: argparse.Namespace) -> None:
    """Ratios to FCFS: mean over copies with the smallest and the largest; geometric means."""
    cells: dict[tuple[str, str], dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for run, row in sorted(known(RESULTS, Run).items(), key=lambda item: item[0].copy):
        cells[run.limits, run.ground][f"{run.policy}, {run.knowledge}"].append(row)
    plays.head("limits, trace", "order", "wait / FCFS", "later half", "p99", "longest", "slowdown",
               "writes")  # fmt: skip
    totals: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    for (limits, ground), by_name in sorted(cells.items()):
        base = by_name["fcfs, limit"]
        for name, rows in by_name.items():
            if len(rows) > len(base) or name.startswith("fcfs"):
                continue
            ratios = [mean(rows, k) / mean(base[: len(rows)], k) for k in FIGURES]
            totals[limits, name].append(ratios)
            wait, writes = spread(rows, base, ratios[0]), mean(rows, "writes_per_job")
            print(plays.row_of([f"{limits}, {ground}", name, wait, *ratios[1:], writes]))
    for (limits, name), found in sorted(totals.items()):
        shown = plays.geometric(found)
        print(plays.row_of([f"{limits}, all {len(found)}", name, *shown, ""]))


if __name__ == "__main__":
    views = {"table": table, "limits": limits, "ends": ends}
    plays.main(__doc__, RESULTS, runs, play, views=views)
