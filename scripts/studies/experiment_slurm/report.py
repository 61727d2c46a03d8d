"""The figures of the runs there are, and what each arm changes, as Markdown."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from rltuned.sim.metrics import Schedule, score
from rltuned.sim.trace import TraceJob
from scripts.studies.experiment_slurm import store
from scripts.studies.experiment_slurm.arms import ARMS, job_set
from scripts.studies.experiment_slurm.store import Key, Run
from scripts.tools.draw_results import change

GPUS = 13
FIGURES = ("makespan_s", "wait_s", "wait_p95_s", "jct_s", "bsld", "utilisation")
Figures = dict[str, float]
HEAD = "makespan | wait | wait p95 | JCT | BSLD | GPUs used |\n|---|---|---|---|---|---|---|"
EXTRA = (("whole-guided", "multifactor"), ("multifactor", "whole"))
"""Compared besides every arm with its base."""


def figures(run: Run, jobs: Sequence[TraceJob]) -> Figures:
    """The definitions of docs/contract.md over all jobs of the set.

    A duration is the payload's: what Slurm itself takes to start and end a job is no part of the
    wait and of the utilisation, but counts in jct and makespan.

    Raises:
        ValueError: the run is of another job set.
    """
    if [j.job_id for j in jobs] != run.job_ids:
        raise ValueError(f"{run.key.name}: the result is not of this job set")
    gpus = np.array([j.gpus for j in jobs], dtype=np.float64)
    duration_s = np.array([j.duration_s for j in jobs])
    schedule = Schedule(
        tuple(run.job_ids), np.array(run.submit_s), np.array(run.start_s), np.array(run.end_s),
        duration_s, gpus, tuple(j.user for j in jobs), ("",) * len(jobs), tuple(run.nodes), 0, 0.0,
    )  # fmt: skip
    found = score([schedule], GPUS)
    used = float((duration_s * gpus).sum() / (GPUS * found.makespan_s))
    return {name: getattr(found, name) for name in FIGURES} | {"utilisation": used}


def gather(results: Path) -> dict[Key, tuple[Run, Figures]]:
    """Every run there is with its figures, in the order of sizes, seeds and arms."""
    found = {}
    for path in results.glob("*.json"):
        run = store.read(path)
        key = run.key
        jobs = job_set(key.jobs, key.seed, whole=ARMS[key.arm].whole)
        found[key] = run, figures(run, jobs)
    order = list(ARMS)
    return dict(
        sorted(found.items(), key=lambda at: (at[0].jobs, at[0].seed, order.index(at[0].arm)))
    )


def write_data(found: dict[Key, tuple[Run, Figures]], folder: Path) -> None:
    """runs.json: figures and facts of each run, one line each."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {
            **asdict(key), "figures": {name: round(x, 4) for name, x in values.items()},
            "late_s": run.late_s, "real_s": run.real_s, "speed": run.speed,
            "interval_s": run.interval_s, "facts": run.facts, "rltuned": run.counters,
        }
        for key, (run, values) in found.items()
    ]  # fmt: skip
    text = ",\n".join(json.dumps(row) for row in rows)
    (folder / "runs.json").write_text(f"[\n{text}\n]\n")


def tables(found: dict[Key, tuple[Run, Figures]]) -> Iterator[str]:
    """Figures and changes by size, then what rltuned did."""
    for jobs in sorted({key.jobs for key in found}):
        own = {(k.arm, k.seed): values for k, (_, values) in found.items() if k.jobs == jobs}
        yield f"## {jobs} jobs\n\n| arm | {HEAD}"
        for arm in ARMS.values():
            if runs := [values for (name, _), values in own.items() if name == arm.name]:
                yield _row(f"{arm.words}, {len(runs)} runs", runs)
        yield f"\n| arm against base | {HEAD}"
        for name, base in (*((a.name, a.base) for a in ARMS.values() if a.base), *EXTRA):
            pairs = [
                (v, own[base, s]) for (n, s), v in own.items() if n == name and (base, s) in own
            ]
            if pairs:
                cells = " | ".join(_change(pairs, figure) for figure in FIGURES)
                yield f"| `{name}` against `{base}` | {cells} |"
        yield ""
    yield "| run | cycles | skipped | mean cycle | applied | gone | not taken | reverted |"
    yield "|---|---|---|---|---|---|---|---|"
    yield from (_did(key, run.counters) for key, (run, _) in found.items() if run.counters)


def _row(name: str, runs: list[Figures]) -> str:
    mean = {figure: float(np.mean([r[figure] for r in runs])) for figure in FIGURES}
    cells = [
        f"{mean['makespan_s'] / 60:,.0f} min",
        *(f"{mean[f] / 60:,.1f} min" for f in ("wait_s", "wait_p95_s", "jct_s")),
        f"{mean['bsld']:.2f}", f"{100 * mean['utilisation']:.1f}%",
    ]  # fmt: skip
    return f"| {name} | {' | '.join(cells)} |"


def _change(pairs: list[tuple[Figures, Figures]], figure: str) -> str:
    """In percent; of one pair without an interval."""
    if len(pairs) == 1:
        return f"{100 * (pairs[0][0][figure] / pairs[0][1][figure] - 1):+.1f}%"
    found = change([own[figure] for own, _ in pairs], [base[figure] for _, base in pairs])
    return f"{100 * found.change:+.1f}% [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"


def _did(key: Key, counters: dict[str, float]) -> str:
    """One line of what rltuned did in a run."""

    def total(name: str, label: str = "") -> float:
        return sum(x for s, x in counters.items() if s.split("{")[0] == name and label in s)

    def changed(*results: str) -> float:
        return sum(total("rltuned_changes_total", f'result="{result}"') for result in results)

    cycles = total("rltuned_cycles_total")
    mean_s = total("rltuned_cycle_duration_seconds_sum") / cycles
    cells = (
        f"{cycles:.0f}", f"{total('rltuned_cycles_skipped_total'):.0f}", f"{mean_s:.2f} s",
        f"{changed('applied'):.0f}", f"{changed('gone'):.0f}",
        f"{changed('refused', 'failed', 'withheld'):.0f}",
        f"{total('rltuned_changes_reverted_total'):.0f}",
    )  # fmt: skip
    return f"| `{key.name}` | {' | '.join(cells)} |"
