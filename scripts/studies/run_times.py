"""What run-time knowledge is worth: the rule `delay` with predictions beside the limit alone.

The traces and copies are those of delays, the cycles of 60 s those of plays. Limits are the trace's
own (of Philly and Helios they are drawn from the run time and tell much of it; ThetaGPU's are
real), or drawn again to tell little (weak) or nothing (none). Every run begins with an empty
memory, and its figures are of all jobs.

- `delay`, `qssf`: by the limits alone, or with a predictor: `shipped` has met no job of these
  clusters; `site` was fitted to the first half of the trace's jobs, and is measured on the second
  half as well.
- `clairvoyant`: `delay` with the true run time in place of the expected one. No scheduler can
  play it.
"""

import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from functools import cache
from itertools import product

from rltuned.policies.predictor import Predictor
from rltuned.sim.trace import TraceJob
from scripts.studies import data_of, plays
from scripts.studies.plays import COPIES, GROUNDS, ORDERS, SMALL, STRENGTHS, trace_of
from scripts.studies.runner import Row, Study, geometric, head, known, mean, row_of, spread

RESULTS, LOAD = data_of("run_times"), 0.9
FIGURES = {"wait_s": "wait / FCFS", "later_wait_s": "later half", "wait_p99_s": "p99",
           "wait_max_s": "longest", "bsld": "slowdown"}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """One play. knowledge: limit, shipped, site or true."""

    ground: str
    limits: str
    copy: int
    policy: str
    knowledge: str


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


def play(run: Run) -> Row:
    """Its figures, of all jobs and of the second half."""
    jobs, began = jobs_of(run.ground, run.limits, run.copy), time.process_time()
    cluster, _ = trace_of(run.ground, LOAD, run.copy, "own")
    predictor = predictor_of(run.ground, run.limits, run.copy, run.knowledge)
    policy = plays.policy_of(run.policy, jobs)
    found = plays.play(cluster, jobs, policy, predictor=predictor)
    return asdict(run) | found.figures() | {
        "later_wait_s": float(found.wait_s[len(jobs) // 2 :].mean()),
        "writes_per_job": float(found.played.writes.mean()),
        "cpu_s": round(time.process_time() - began, 1),
    }  # fmt: skip


def table() -> None:
    """Ratios to FCFS: mean over copies with the smallest and the largest; geometric means."""
    cells: dict[tuple[str, str], dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for run, row in sorted(known(RESULTS, Run).items(), key=lambda item: item[0].copy):
        cells[run.limits, run.ground][f"{run.policy}, {run.knowledge}"].append(row)
    print(head("limits, trace", "order", *FIGURES.values(), "writes"))
    totals: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    for (limits, ground), by_name in sorted(cells.items()):
        base = by_name["fcfs, limit"]
        for name, rows in by_name.items():
            if len(rows) > len(base) or name.startswith("fcfs"):
                continue
            ratios = [mean(rows, k) / mean(base[: len(rows)], k) for k in FIGURES]
            totals[limits, name].append(ratios)
            wait, writes = spread(rows, base, ratios[0]), mean(rows, "writes_per_job")
            print(row_of([f"{limits}, {ground}", name, wait, *ratios[1:], writes]))
    for (limits, name), found in sorted(totals.items()):
        print(row_of([f"{limits}, all {len(found)}", name, *geometric(found), ""]))


RUNS = [
    Run(ground, strength, copy, *order)
    for copy, ground, strength, order in product(range(1, COPIES + 1), GROUNDS, STRENGTHS, ORDERS)
    if (ground, strength) != (SMALL, "weak")  # the testbed's own limits are weak
]
STUDIES = {"run_times": Study(lambda _: iter(RUNS), play, {"table": table})}
