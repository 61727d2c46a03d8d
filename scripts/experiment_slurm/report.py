"""The committed data and the tables of scripts/studies/results/real-slurm.md, from the runs."""

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from scripts.experiment_slurm import store
from scripts.experiment_slurm.arms import ARMS
from scripts.experiment_slurm.figures import (
    FIGURES,
    JOB_MEANS,
    Interval,
    Played,
    figures,
    over_jobs,
    over_repeats,
    played,
    simulated,
)  # fmt: skip
from scripts.experiment_slurm.foretold import foretell
from scripts.experiment_slurm.jobs import job_set
from scripts.experiment_slurm.store import Key, Run

BLOCK = 32
"""Jobs per block of the bootstrap over jobs."""


@dataclass
class Found:
    """A run, its figures, and what the simulator says of it."""

    run: Run
    real: Played
    figures: dict[str, float]
    held_s: float
    foretold: dict[str, float] = field(default_factory=dict)
    foretold_held: dict[str, float] = field(default_factory=dict)


def gather(results: Path, work: Path) -> dict[Key, Found]:
    """Every run there is, with the simulator's word on it (kept beside the results: it is slow)."""
    found = {}
    for path in sorted(results.glob("*.json")):
        run = store.read(path)
        key = run.key
        real = played(run, job_set(key.jobs, key.seed, whole=ARMS[key.arm].whole))
        held_s = float((real.end_s - real.start_s - real.duration_s).mean())
        found[key] = Found(run, real, figures(real), held_s)
    for one in found.values():
        same_jobs = [x.held_s for x in found.values() if x.run.key.jobs == one.run.key.jobs]
        # one figure for all arms of a size, whole tens of seconds: what differs is the order
        held_s = round(float(np.mean(same_jobs)), -1)
        one.foretold, one.foretold_held = (_foretold(one, work, s) for s in (0.0, held_s))
    return found


def _foretold(one: Found, work: Path, held_s: float) -> dict[str, float]:
    key = one.run.key
    if ARMS[key.arm].write_mode == "site_factor":
        key = replace(key, arm="priority")  # the simulator knows one way to write
    interval_s = round(one.run.interval_s * one.run.speed)
    kept = work / "foretold" / f"{key.name}-{interval_s}-{held_s:.0f}.json"
    if kept.exists():
        said: dict[str, float] = json.loads(kept.read_text())
        return said
    arm = ARMS[key.arm]
    schedule = foretell(key, arm, float(interval_s), held_s=held_s)
    said = figures(simulated(schedule, job_set(key.jobs, key.seed, whole=arm.whole)))
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(said))
    return said


def write_data(found: dict[Key, Found], folder: Path) -> None:
    """runs.json: figures and facts of each run; jobs.csv: what became of every job."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {
            **asdict(key), "figures": rounded(one.figures), "held_s": round(one.held_s, 1),
            "foretold": rounded(one.foretold), "foretold_held": rounded(one.foretold_held),
            "late_s": one.run.late_s, "real_s": one.run.real_s, "speed": one.run.speed,
            "interval_s": one.run.interval_s, "facts": one.run.facts, "rltuned": one.run.counters,
        }
        for key, one in sorted(found.items(), key=lambda item: _place(item[0]))
    ]  # fmt: skip
    text = ",\n".join(json.dumps(row) for row in rows)
    (folder / "runs.json").write_text(f"[\n{text}\n]\n")
    with (folder / "jobs.csv").open("w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["arm", "jobs", "seed", "job_id", "submit_s", "start_s", "end_s", "nodes"])
        for key, one in sorted(found.items(), key=lambda item: _place(item[0])):
            run = one.run
            for job in zip(run.job_ids, run.submit_s, run.start_s, run.end_s, run.nodes,
                           strict=True):  # fmt: skip
                cells = [f"{x:g}" if not isinstance(x, float) else f"{x:.0f}" for x in job[1:4]]
                writer.writerow([key.arm, key.jobs, key.seed, job[0], *cells, job[4]])


def _place(key: Key) -> tuple[int, int, int]:
    return key.jobs, key.seed, list(ARMS).index(key.arm)


def rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}


def table_of_figures(found: dict[Key, Found], jobs: int) -> str:
    """Means over the repeats of this size, real and foretold, as Markdown."""
    lines = [
        "| arm | makespan | wait | wait p95 | JCT | BSLD | GPUs used |",
        "|---|---|---|---|---|---|---|",
    ]
    for arm in ARMS.values():
        runs = [one for key, one in found.items() if (key.arm, key.jobs) == (arm.name, jobs)]
        if not runs:
            continue
        lines.append(_row(f"**{arm.words}**, {len(runs)} runs", [r.figures for r in runs]))
        lines.append(_row("simulator", [r.foretold for r in runs]))
        lines.append(_row("simulator, jobs as long as Slurm held them",
                          [r.foretold_held for r in runs]))  # fmt: skip
    return "\n".join(lines)


def _row(name: str, runs: Sequence[dict[str, float]]) -> str:
    mean = {figure: float(np.mean([r[figure] for r in runs])) for figure in FIGURES}
    cells = [
        f"{mean['makespan_s'] / 60:,.0f} min",
        *(f"{mean[f] / 60:,.1f} min" for f in ("wait_s", "wait_p95_s", "jct_s")),
        f"{mean['bsld']:.2f}", f"{100 * mean['utilisation']:.1f}%",
    ]  # fmt: skip
    return f"| {name} | {' | '.join(cells)} |"


def comparisons() -> list[tuple[str, str]]:
    """(arm, what it is compared with), in the order of the tables."""
    pairs = [(arm.name, arm.base) for arm in ARMS.values() if arm.base]
    return [*pairs, ("whole-guided", "multifactor"), ("multifactor", "whole")]


def pairs_of(found: dict[Key, Found], arm: str, base: str, jobs: int) -> list[tuple[Found, Found]]:
    """The runs of both arms on the same job sets."""
    return [
        (one, found[Key(base, key.jobs, key.seed)])
        for key, one in found.items()
        if key.arm == arm and key.jobs == jobs and Key(base, key.jobs, key.seed) in found
    ]


def table_of_changes(found: dict[Key, Found], jobs: int) -> str:
    """Changes against the base on the same jobs, real and foretold, as Markdown."""
    lines = [
        "| arm against base | makespan | wait | wait p95 | JCT | BSLD | GPUs used |",
        "|---|---|---|---|---|---|---|",
    ]
    for arm, base in comparisons():
        pairs = pairs_of(found, arm, base, jobs)
        if not pairs:
            continue
        cells = [interval_text(_real(pairs, figure)) for figure in FIGURES]
        lines.append(f"| **`{arm}` against `{base}`** | {' | '.join(cells)} |")
        said = [_foretold_change(pairs, figure) for figure in FIGURES]
        lines.append(f"| simulator | {' | '.join(said)} |")
    return "\n".join(lines)


def _real(pairs: list[tuple[Found, Found]], figure: str) -> Interval:
    if len(pairs) > 1:
        return over_repeats([(a.real, b.real) for a, b in pairs], figure)
    a, b = pairs[0]
    if figure in JOB_MEANS:
        return over_jobs(a.real, b.real, figure, block=BLOCK)
    return Interval(a.figures[figure] / b.figures[figure] - 1, float("nan"), float("nan"))


def _foretold_change(pairs: list[tuple[Found, Found]], figure: str) -> str:
    ratios = [a.foretold_held[figure] / b.foretold_held[figure] for a, b in pairs]
    return f"{100 * (float(np.exp(np.mean(np.log(ratios)))) - 1):+.1f}%"


def interval_text(found: Interval) -> str:
    if np.isnan(found.low):
        return f"{100 * found.change:+.1f}%"
    return f"{100 * found.change:+.1f}% [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"


def table_of_rltuned(found: dict[Key, Found]) -> str:
    """What rltuned did in each run it took part in, as Markdown."""
    lines = [
        "| run | cycles | skipped | mean cycle | applied | gone | not taken | reverted |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for key, one in sorted(found.items(), key=lambda item: _place(item[0])):
        count = one.run.counters
        if not count:
            continue
        cycles = _sum(count, "rltuned_cycles_total")
        busy_s = _sum(count, "rltuned_cycle_duration_seconds_sum")
        changed = {
            result: _sum(count, "rltuned_changes_total", f'result="{result}"')
            for result in ("applied", "gone", "refused", "failed", "withheld")
        }
        bad = sum(changed[result] for result in ("refused", "failed", "withheld"))
        lines.append(
            f"| `{key.name}` | {cycles:.0f} | {_sum(count, 'rltuned_cycles_skipped_total'):.0f} "
            f"| {busy_s / cycles:.2f} s | {changed['applied']:.0f} | {changed['gone']:.0f} "
            f"| {bad:.0f} | {_sum(count, 'rltuned_changes_reverted_total'):.0f} |"
        )
    return "\n".join(lines)


def _sum(counters: dict[str, float], name: str, label: str = "") -> float:
    return sum(
        value
        for series, value in counters.items()
        if series.split("{")[0] == name and label in series
    )
