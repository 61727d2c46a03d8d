"""The figures of the runs there are, and what each arm changes, as Markdown."""

import csv
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np

from rltuned.lab.compare import geometric
from scripts.studies.experiment_slurm import store
from scripts.studies.experiment_slurm.arms import ARMS
from scripts.studies.experiment_slurm.figures import FIGURES, Figures, figures, simulated
from scripts.studies.experiment_slurm.store import Key, Run

HEAD = (
    "makespan | wait | wait p95 | longest | JCT | BSLD | GPUs used |\n"
    "|---|---|---|---|---|---|---|---|"
)
EXTRA = (("whole-guided", "multifactor"), ("multifactor", "whole"))
"""Compared besides every arm with its base."""
Found = dict[Key, tuple[Run, Figures, Figures]]
"""Each run, its figures, and those of the simulator."""


def gather(results: Path, data: Path) -> Found:
    """Every run there is with its figures, in the order of sizes, seeds and arms. data: what
    `write_data` left; a run that results lack is taken from there.
    """
    found = {run.key: run for run in written(data)}
    found |= {run.key: run for run in map(store.read, results.glob("*.json"))}
    order = list(ARMS)
    keys = sorted(found, key=lambda key: (key.jobs, key.seed, order.index(key.arm)))
    return {key: (found[key], figures(found[key]), simulated(found[key])) for key in keys}


def write_data(found: Found, folder: Path) -> None:
    """runs.json: figures and facts of each run; jobs.csv: what became of each job."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {
            **asdict(key), "figures": _rounded(own), "simulator": _rounded(theirs),
            "late_s": run.late_s, "real_s": run.real_s, "speed": run.speed,
            "interval_s": run.interval_s, "facts": run.facts, "rltuned": run.counters,
        }
        for key, (run, own, theirs) in found.items()
    ]  # fmt: skip
    text = ",\n".join(json.dumps(row) for row in rows)
    (folder / "runs.json").write_text(f"[\n{text}\n]\n")
    with (folder / "jobs.csv").open("w") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(("arm", "jobs", "seed", "job_id", "submit_s", "start_s", "end_s", "nodes"))
        for key, (run, _, _) in found.items():
            columns = (run.job_ids, run.submit_s, run.start_s, run.end_s, run.nodes)
            for job_id, *times, nodes in zip(*columns, strict=True):
                writer.writerow((*asdict(key).values(), job_id, *map(int, times), nodes))


def written(data: Path) -> Iterator[Run]:
    """The runs of runs.json and jobs.csv; none where there is no such file."""
    if not (data / "runs.json").exists():
        return
    jobs: dict[tuple[str, ...], list[dict[str, str]]] = {}
    with (data / "jobs.csv").open() as rows:
        for row in csv.DictReader(rows):
            jobs.setdefault((row["arm"], row["jobs"], row["seed"]), []).append(row)
    for one in json.loads((data / "runs.json").read_text()):
        key = Key(one["arm"], one["jobs"], one["seed"])
        own = jobs[key.arm, str(key.jobs), str(key.seed)]
        submit_s, start_s, end_s = (
            [float(row[name]) for row in own] for name in ("submit_s", "start_s", "end_s")
        )
        ids, nodes = ([row[name] for row in own] for name in ("job_id", "nodes"))
        mean_s, most_s = one["late_s"]
        yield Run(
            key, ids, submit_s, start_s, end_s, nodes, (mean_s, most_s), one["real_s"],
            one["speed"], one["interval_s"], one["facts"], one["rltuned"],
        )  # fmt: skip


def _rounded(values: Figures) -> Figures:
    return {name: round(x, 4) for name, x in values.items()}


def tables(found: Found) -> Iterator[str]:
    """Figures and changes by size, then QOS and shares, then what rltuned did."""
    for jobs in sorted({key.jobs for key in found}):
        yield f"### {jobs} jobs"
        yield from _by_arm({k: v for k, v in found.items() if k.jobs == jobs})
    yield (
        "| run | late, mean (most) | load | cycles | skipped | mean cycle | applied | per job "
        "| gone | not taken | reverted | RPCs of root |\n"
        f"|{'---|' * 12}"
    )
    yield from (_did(run) for run, _, _ in found.values())


def _by_arm(found: Found) -> Iterator[str]:
    own = {(k.arm, k.seed): (v, s) for k, (_, v, s) in found.items()}
    runs = {arm: [v for (name, _), v in own.items() if name == arm] for arm in ARMS}
    there = [arm for arm in ARMS if runs[arm]]
    yield f"\n| arm | {HEAD}"
    for name in there:
        yield _row(f"{ARMS[name].words}, {len(runs[name])} runs", [v for v, _ in runs[name]])
        yield _row("simulator", [s for _, s in runs[name]])
    yield f"\n| arm against base | {HEAD}"
    for name, base in (*((arm, ARMS[arm].base) for arm in there if ARMS[arm].base), *EXTRA):
        seeds = [s for (n, s) in own if n == name and (base, s) in own]
        for words, side in ((f"`{name}` against `{base}`", 0), ("simulator", 1)):
            if pairs := [(own[name, s][side], own[base, s][side]) for s in seeds]:
                cells = " | ".join(_change(pairs, figure) for figure in FIGURES)
                yield f"| {words} | {cells} |"
    yield "\n| arm | wait of high QOS | QOS inversions | error of shares |\n|---|---|---|---|"
    yield from (_rights(ARMS[name].words, [v for v, _ in runs[name]]) for name in there)
    yield ""


def _rights(words: str, runs: list[Figures]) -> str:
    """What is left of QOS and fair share."""
    names = ("high_wait_s", "qos_inversions", "share_error")
    high_s, turned, error = (float(np.mean([r[name] for r in runs])) for name in names)
    return f"| {words} | {high_s / 60:,.1f} min | {turned:.1f} | {100 * error:.1f}% |"


def _row(name: str, runs: list[Figures]) -> str:
    mean = {figure: float(np.mean([r[figure] for r in runs])) for figure in FIGURES}
    cells = [
        f"{mean['makespan_s'] / 60:,.0f} min",
        *(
            f"{mean[f] / 60:,.1f} min" for f in ("wait_s", "wait_p95_s", "wait_max_s", "jct_s")
        ),
        f"{mean['bsld']:.2f}", f"{100 * mean['utilisation']:.1f}%",
    ]  # fmt: skip
    return f"| {name} | {' | '.join(cells)} |"


def _change(pairs: list[tuple[Figures, Figures]], figure: str) -> str:
    """In percent; of one pair without an interval."""
    if len(pairs) == 1:
        return f"{100 * (pairs[0][0][figure] / pairs[0][1][figure] - 1):+.1f}%"
    found = geometric([own[figure] for own, _ in pairs], [base[figure] for _, base in pairs])
    change, low, high = (100 * part for part in found.known)
    return f"{change:+.1f}% [{low:+.1f}, {high:+.1f}]"


def _did(run: Run) -> str:
    """One line of how calm a run was, by real seconds, and of what rltuned did in it."""
    counters = run.counters

    def total(name: str, label: str = "") -> float:
        return sum(x for s, x in counters.items() if s.split("{")[0] == name and label in s)

    def changed(*results: str) -> float:
        return sum(total("rltuned_changes_total", f'result="{result}"') for result in results)

    late = "{:.2f} ({:.2f}) s".format(*(late_s / run.speed for late_s in run.late_s))
    name = f"`{run.key.name}` | {late} | {run.facts.get('load', '-')}"
    cycles = total("rltuned_cycles_total")
    if not cycles:
        return f"| {name} |" + " none |" * 8 + f" {counters.get('rpcs', 0.0):.0f} |"
    mean_s = total("rltuned_cycle_duration_seconds_sum") / cycles
    applied = changed("applied")
    cells = (
        f"{cycles:.0f}", f"{total('rltuned_cycles_skipped_total'):.0f}", f"{mean_s:.2f} s",
        f"{applied:.0f}", f"{applied / run.key.jobs:.2f}", f"{changed('gone'):.0f}",
        f"{changed('refused', 'failed', 'withheld'):.0f}",
        f"{total('rltuned_changes_reverted_total'):.0f}", f"{counters.get('rpcs', 0.0):.0f}",
    )  # fmt: skip
    return f"| {name} | {' | '.join(cells)} |"
