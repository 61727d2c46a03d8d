"""What run-time knowledge is worth: the rule `delay` with predictions beside the limit alone.

    python -m scripts.studies.run_times run [--minutes M]
    python -m scripts.studies.run_times table | network | limits [--load L]

The grounds, the copies and the daemon's cycles of 60 s are those of scripts/studies/delays. Limits
are the trace's own (of Philly and Helios they are drawn from the run time and tell much of it;
ThetaGPU's are real), or drawn again to tell little (weak) or nothing (none). Every run begins with
an empty memory, and its figures are of all jobs.

- `delay`, `qssf`: by the limits alone, or with a predictor: `shipped` has met no job of these
  clusters; `site` was fitted to the first half of the ground's jobs, and is measured on the second
  half as well.
- `rltune`: the network, which corrects `delay`, with the same knowledge.
`limits` plays what a good time limit is worth to its user: of a tenth of the jobs, drawn at random,
the limit becomes GOOD times the run time, rounded up to what people write, and their wait is
compared with their own before.

- `clairvoyant`: `delay` with the true run time in place of the expected one. No scheduler can
  play it.
"""

import argparse
import math
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np

from rltuned.core.decide import Knobs, Policy
from rltuned.core.run_times import PLAN_SCALE, FloatArray
from rltuned.policies.actor import load_actor
from rltuned.policies.baselines import BASELINES
from rltuned.policies.predictor import Predictor, load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.sim.cluster import Cluster
from rltuned.sim.limits import draw_limits, round_up
from rltuned.sim.natural import AGE_ONLY
from rltuned.sim.orders import Stage
from rltuned.sim.play import Played
from rltuned.sim.prepared import prepare
from rltuned.sim.run_times import layers_of
from rltuned.sim.trace import TraceJob
from rltuned.train.predictor import fit
from scripts.studies.delays import (
    COPIES,
    GROUNDS,
    clairvoyant,
    in_minutes,
    known,
    play_missing,
    trace_of,
)

RESULTS = Path("docs/data/run-times.jsonl")
LOAD = 0.9
LOADS = (0.9, 0.7, 1.1)
STRENGTHS = ("own", "weak", "none")
LIMITS_SEED = 5
GOOD, GOOD_SHARE, GOOD_GROUNDS = 1.5, 0.1, ("helios-venus", "philly-nov-1")
ORDERS = (
    ("fcfs", "limit"),
    ("delay", "limit"),
    ("delay", "shipped"),
    ("delay", "site"),
    ("qssf", "site"),
    ("rltune", "shipped"),
    ("rltune", "site"),
    ("clairvoyant", "true"),
)


@dataclass(frozen=True)
class Run:
    """One play. knowledge: limit, shipped, site or true."""

    ground: str
    limits: str
    copy: int
    policy: str
    knowledge: str
    load: float = LOAD


def runs() -> Iterator[Run]:
    """Copy by copy, so that an interrupted study is whole in fewer copies."""
    for load, copy in product(LOADS, range(1, COPIES + 1)):
        for (ground, strength), order in product(product(GROUNDS, STRENGTHS), ORDERS):
            if (ground, strength) != ("testbed", "weak"):  # the testbed's own limits are weak
                yield Run(ground, strength, copy, *order, load=load)


@cache
def jobs_of(ground: str, strength: str, copy: int, load: float = LOAD) -> tuple[TraceJob, ...]:
    """A ground's jobs with limits of a strength; the same draw in every copy."""
    cluster, trace = trace_of(ground, load, copy)
    return with_limits(trace.jobs, strength, cluster)


def with_limits(
    jobs: tuple[TraceJob, ...], strength: str, cluster: Cluster
) -> tuple[TraceJob, ...]:
    """The jobs with limits of a strength."""
    if strength == "own":
        return jobs
    rng = np.random.default_rng(LIMITS_SEED)
    run_s = np.array([j.duration_s for j in jobs])
    drawn = draw_limits(run_s, "weak" if strength == "weak" else "none", rng).tolist()
    most_s = min((p.max_time_s or math.inf) for p in cluster.partitions)
    return tuple(
        replace(job, time_limit_s=min(limit_s, most_s))
        for job, limit_s in zip(jobs, drawn, strict=True)
    )


@cache
def predictor_of(
    ground: str, strength: str, copy: int, knowledge: str, load: float
) -> Predictor | None:
    """What the order of a run knows."""
    if knowledge in {"limit", "true"}:
        return None
    shipped = load_predictor(shipped_predictor())
    if knowledge == "shipped":
        return shipped
    jobs = jobs_of(ground, strength, copy, load)
    return fit(jobs[: len(jobs) // 2], begin=shipped).predictor


def played(run: Run, jobs: tuple[TraceJob, ...]) -> tuple[Played, FloatArray]:
    """The run with these jobs, and (n,) their waits in seconds."""
    cluster, _ = trace_of(run.ground, run.load, run.copy)
    predictor = predictor_of(run.ground, run.limits, run.copy, run.knowledge, run.load)
    layers = None if predictor is None else layers_of(predictor)
    stage = Stage(cluster, jobs, prepare(cluster, jobs), AGE_ONLY, predictor=layers)
    policy: Policy = BASELINES.get(run.policy) or clairvoyant(jobs, PLAN_SCALE)
    if run.policy.startswith("rltune"):
        policy = load_actor(Path("models", run.policy))
    found = in_minutes(stage, policy, Knobs(top_k=0))
    return found, found.start_s - stage.prepared.jobs.submit_s


def play(run: Run) -> dict[str, float]:
    """Its figures, of all jobs and of the second half."""
    jobs = jobs_of(run.ground, run.limits, run.copy, run.load)
    began = time.process_time()
    found, wait_s = played(run, jobs)
    later_s = wait_s[len(wait_s) // 2 :]
    run_s = np.array([min(j.duration_s, j.time_limit_s) for j in jobs])
    figures = {
        "wait_s": float(wait_s.mean()),
        "later_wait_s": float(later_s.mean()),
        "wait_p99_s": float(np.quantile(wait_s, 0.99)),
        "wait_max_s": float(wait_s.max()),
        "bsld": float(np.maximum((wait_s + run_s) / np.maximum(run_s, 10.0), 1.0).mean()),
        "writes_per_job": float(found.writes.mean()),
        "cpu_s": round(time.process_time() - began, 1),
    }
    return asdict(run) | figures


def limits(load: float) -> None:
    """The change of the mean wait of jobs with good limits, and of all others; over the copies."""
    print("| ground, weak limits | knowledge | jobs with good limits | all others |")
    print("|---|---|---|---|")
    for ground, knowledge in product(GOOD_GROUNDS, ("limit", "shipped")):
        changes = []
        for copy in range(1, COPIES + 1):
            run = Run(ground, "weak", copy, "delay", knowledge, load)
            jobs = jobs_of(ground, "weak", copy, load)
            chosen = np.random.default_rng(copy).random(len(jobs)) < GOOD_SHARE
            better = tuple(
                replace(job, time_limit_s=min(_good_s(job), job.time_limit_s)) if own else job
                for job, own in zip(jobs, chosen.tolist(), strict=True)
            )
            before, after = (played(run, some)[1] for some in (jobs, better))
            changes.append([after[c].mean() / before[c].mean() - 1 for c in (chosen, ~chosen)])
        table = np.array(changes).T
        cells = [f"{c.mean():+.0%} [{c.min():+.0%}, {c.max():+.0%}]" for c in table]
        print(f"| {ground} | {knowledge} | {' | '.join(cells)} |")


def _good_s(job: TraceJob) -> float:
    return float(round_up(np.array([min(job.duration_s, job.time_limit_s) * GOOD]))[0])


def table(load: float) -> None:
    """Ratios to FCFS: mean over copies with the smallest and the largest; geometric means."""
    cells: dict[tuple[str, str], dict[str, list[dict[str, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for run, row in sorted(known(RESULTS, Run).items(), key=lambda item: item[0].copy):
        if run.load == load:
            cells[run.limits, run.ground][f"{run.policy}, {run.knowledge}"].append(row)
    print(
        "| limits, ground | order | wait / FCFS | later half | p99 | longest | slowdown | writes |"
    )
    print("|---|---|---|---|---|---|---|---|")
    totals: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    for (limits, ground), by_name in sorted(cells.items()):
        base = by_name["fcfs, limit"]
        for name, rows in by_name.items():
            if len(rows) > len(base) or name.startswith("fcfs"):
                continue
            pairs = [a["wait_s"] / b["wait_s"] for a, b in zip(rows, base, strict=False)]
            ratios = [
                float(np.mean([a[k] for a in rows]) / np.mean([b[k] for b in base[: len(rows)]]))
                for k in ("wait_s", "later_wait_s", "wait_p99_s", "wait_max_s", "bsld")
            ]
            totals[limits, name].append(ratios)
            writes = float(np.mean([a["writes_per_job"] for a in rows]))
            shown = " | ".join(f"{r:.2f}" for r in ratios[1:])
            wait = f"{ratios[0]:.2f} [{min(pairs):.2f}, {max(pairs):.2f}]"
            print(f"| {limits}, {ground} | {name} | {wait} | {shown} | {writes:.2f} |")
    for (limits, name), found in sorted(totals.items()):
        mean = np.exp(np.log(np.array(found)).mean(axis=0))
        shown = " | ".join(f"{r:.2f}" for r in mean)
        print(f"| {limits}, all {len(found)} | {name} | {shown} | |")


def network(load: float) -> None:
    """The network as a multiple of the rule with the same knowledge: means over copies."""
    found = known(RESULTS, Run)
    pairs: dict[tuple[str, str, str], list[tuple[dict[str, float], ...]]] = defaultdict(list)
    for run, row in found.items():
        rule, base = replace(run, policy="delay"), replace(run, policy="fcfs", knowledge="limit")
        of_load = run.policy == "rltune" and run.load == load
        if of_load and rule in found and base in found:
            pairs[run.limits, run.knowledge, run.ground].append((row, found[rule], found[base]))
    print("| limits, predictor, ground | copies | wait | p99 | longest | slowdown | writes |")
    print("|---|---|---|---|---|---|---|")
    totals: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    for (limits, knowledge, ground), rows in sorted(pairs.items()):
        ratios = [
            sum(own[k] for own, _, _ in rows) / sum(rule[k] for _, rule, _ in rows)
            for k in ("wait_s", "wait_p99_s", "wait_max_s", "bsld")
        ]
        longest = sum(r[0]["wait_max_s"] for r in rows) / sum(r[2]["wait_max_s"] for r in rows)
        totals[limits, knowledge].append([*ratios, longest])
        each = [own["wait_s"] / rule["wait_s"] for own, rule, _ in rows]
        shown = " | ".join(f"{r:.2f}" for r in ratios[1:])
        writes = float(np.mean([own["writes_per_job"] for own, _, _ in rows]))
        wait = f"{ratios[0]:.2f} [{min(each):.2f}, {max(each):.2f}]"
        name = f"{limits}, {knowledge}, {ground}"
        print(f"| {name} | {len(rows)} | {wait} | {shown} | {writes:.2f} |")
    for (limits, knowledge), table_of in sorted(totals.items()):
        mean = np.exp(np.log(np.array(table_of)).mean(axis=0))
        shown = " | ".join(f"{r:.2f}" for r in mean)
        print(f"| {limits}, {knowledge}, all {len(table_of)} | | {shown} of FCFS's | |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("run", "table", "network", "limits"))
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--load", type=float, default=LOAD)
    asked = parser.parse_args()
    if asked.what == "run":
        play_missing(RESULTS, runs(), play, asked.minutes)
    else:
        {"table": table, "network": network, "limits": limits}[asked.what](asked.load)


if __name__ == "__main__":
    main()
