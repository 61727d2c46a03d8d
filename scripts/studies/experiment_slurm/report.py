"""What runs left behind: kept on disk, their figures beside the simulator's, and the tables."""

import csv
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from rltuned.core.milp import Sharing, Tuning
from rltuned.lab.compare import geometric
from rltuned.lab.replay.metrics import Schedule, score
from rltuned.lab.replay.protocol import Protocol, jointly
from rltuned.lab.replay.run import simulate
from rltuned.lab.replay.scenario import Scenario
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Rules
from rltuned.solver import Cbc
from scripts.studies.experiment_slurm import arms
from scripts.studies.experiment_slurm.arms import ARMS, SHARES, is_high, user_of
from scripts.studies.runner import head, row_of

SCORED = ("makespan_s", "wait_s", "wait_p95_s", "wait_max_s", "jct_s", "bsld")
FIGURES = (*SCORED, "utilisation")
HEAD = ("makespan", "wait", "wait p95", "longest", "JCT", "BSLD", "GPUs used")
Figures = dict[str, float]
NOTICED_S = 600.0
"""A start and a wait that overlap by less count as no inversion: a cycle, and Slurm's own pass."""
ROOM = 100_000
"""Points of every job in the simulator, so that delays have room."""
EXTRA = (("whole-guided", "multifactor"), ("multifactor", "whole"))
"""Compared besides every arm with its base."""


@dataclass(frozen=True)
class Key:
    """Which run: an arm on a job set of a seed."""

    arm: str
    jobs: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.arm}-{self.jobs}-{self.seed}"


@dataclass(frozen=True)
class Run:
    """What a run left behind. Times in seconds of the faster clock, from the first submission.

    Attributes:
        job_ids, submit_s, start_s, end_s, nodes: one entry per job, in the trace's order.
        late_s: by how much jobs were submitted later than the trace says: mean and most.
        real_s: how long the run really took.
        speed, interval_s: seconds per real second; real seconds between rltuned's cycles.
        facts: versions, commit, machine.
        counters: rltuned's own metrics at the end; empty = no rltuned.
    """

    key: Key
    job_ids: list[str]
    submit_s: list[float]
    start_s: list[float]
    end_s: list[float]
    nodes: list[str]
    late_s: tuple[float, float]
    real_s: float
    speed: float
    interval_s: float
    facts: dict[str, str]
    counters: dict[str, float] = field(default_factory=dict)


_FILE = TypeAdapter(Run)
Found = dict[Key, tuple[Run, Figures, Figures]]
"""Each run, its figures, and those of the simulator."""


class StoreError(ValueError):
    """A result file of another make."""


def write(folder: Path, run: Run) -> Path:
    """Put a run where `read` finds it; a reader sees all of it or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{run.key.name}.json"
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_bytes(_FILE.dump_json(run) + b"\n")
    fresh.replace(path)
    return path


def read(path: Path) -> Run:
    """Read a run back. Raises StoreError: names the file and what is wrong with it."""
    try:
        run = _FILE.validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: not a result of this experiment: {error}") from error
    lengths = {len(x) for x in (run.job_ids, run.submit_s, run.start_s, run.end_s, run.nodes)}
    if lengths != {run.key.jobs}:
        raise StoreError(f"{path}: {run.key.jobs} jobs were submitted, the file has {lengths}")
    return run


def missing(folder: Path, wanted: list[Key]) -> list[Key]:
    """The runs still to do, in the order asked for. Raises StoreError: a file cannot be read; it is
    not written over silently.
    """
    there = {path.stem: read(path) for path in folder.glob("*.json")}
    return [key for key in wanted if key.name not in there]


# -- Figures --------------------------------------------------------------------------------------


def figures(run: Run) -> Figures:
    """Of all jobs of the set, what users of each kind saw.

    A duration is the payload's: what Slurm itself takes to start and end a job is no part of the
    wait and of the utilisation, but counts in jct and makespan. Raises ValueError: another job set.
    """
    jobs = jobs_of(run)
    if [j.job_id for j in jobs] != run.job_ids:
        raise ValueError(f"{run.key.name}: the result is not of this job set")
    schedule = Schedule(
        tuple(run.job_ids), np.array(run.submit_s), np.array(run.start_s), np.array(run.end_s),
        np.array([j.duration_s for j in jobs]), np.array([j.gpus for j in jobs], dtype=np.float64),
        tuple(run.nodes),
    )  # fmt: skip
    high = np.array([is_high(j) for j in jobs])
    return _scored(schedule, ARMS[run.key.arm].workload.cluster.gpus) | {
        "high_wait_s": float(schedule.wait_s[high].mean()) if high.any() else float("nan"),
        "qos_inversions": float(qos_inversions(run, jobs)),
        "share_error": share_error(run, jobs),
    }


def simulated(run: Run) -> Figures:
    """The same of the simulator, in the daemon's cycles of as many seconds.

    It plays QOS as points of each job, and no fair share: a trace knows no usage of the past.
    """
    arm, jobs = ARMS[run.key.arm], jobs_of(run)
    natural = arms.natural_of(arm)
    if not arm.fifo:
        own = tuple(arms.QOS_WEIGHT * is_high(j) for j in jobs)
        natural = replace(natural, own=own, base=ROOM)
    predictor = load_predictor(shipped_predictor())
    protocol = Protocol("cycle", run.interval_s * run.speed, predictor=predictor)
    if arm.guided:
        tuning = Tuning(sharing=Sharing(frozenset({arms.PARTITION_NAME})))
        protocol = jointly(protocol, 16, tuning, Cbc())
    cluster = arm.workload.cluster
    scenario = Scenario.of(cluster, jobs, Rules(natural=natural))
    policy = arm.policy if arm.write_mode else "fcfs"
    return _scored(simulate(scenario, policy, protocol), cluster.gpus)


def jobs_of(run: Run) -> tuple[TraceJob, ...]:
    """The jobs that were submitted, by whom and to which partition."""
    made = arms.job_set(ARMS[run.key.arm], run.key.jobs, run.key.seed)
    return tuple(replace(j, partition=arms.PARTITION_NAME, user=user_of(j)) for j in made)


def _scored(schedule: Schedule, gpus: int) -> Figures:
    found = score([schedule], gpus)
    work = float((schedule.duration_s * schedule.gpus).sum())
    used = {"utilisation": work / (gpus * found.makespan_s)}
    return {name: getattr(found, name) for name in SCORED} | used


def qos_inversions(run: Run, jobs: Sequence[TraceJob]) -> int:
    """Pairs in which a job of normal QOS starts while one of high QOS, which would fit in its
    place for as long, has waited for NOTICED_S and goes on waiting for as long.
    """
    rows = list(zip(jobs, run.submit_s, run.start_s, strict=True))
    high = [row for row in rows if is_high(row[0])]
    return sum(
        submit + NOTICED_S < began < start - NOTICED_S and _fits(one, job)
        for job, _, began in rows
        if not is_high(job)
        for one, submit, start in high
    )


def _fits(one: TraceJob, place: TraceJob) -> bool:
    same, fewer = one.gpu_types == place.gpu_types, one.gpus <= place.gpus
    return same and fewer and one.time_limit_s <= place.time_limit_s


def share_error(run: Run, jobs: Sequence[TraceJob]) -> float:
    """By how much the users' parts of the GPU time miss their shares while jobs still arrive:
    half of the sum of the absolute differences, 0 to 1.
    """
    until_s = max(run.submit_s)
    used = dict.fromkeys(SHARES, 0.0)
    for job, start, end in zip(jobs, run.start_s, run.end_s, strict=True):
        used[job.user] += job.gpus * max(0.0, min(end, until_s) - start)
    total, shares = sum(used.values()), sum(SHARES.values())
    return sum(abs(used[user] / total - SHARES[user] / shares) for user in SHARES) / 2


# -- Data and tables ------------------------------------------------------------------------------


def gather(results: Path, data: Path) -> Found:
    """Every run there is with its figures, in the order of sizes, seeds and arms. data: what
    `write_data` left; a run that results lack is taken from there.
    """
    found = {run.key: run for run in written(data)}
    found |= {run.key: run for run in map(read, results.glob("*.json"))}
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
    """Figures and changes by size, then QOS and shares."""
    for jobs in sorted({key.jobs for key in found}):
        yield f"### {jobs} jobs\n"
        yield from _by_arm({k: v for k, v in found.items() if k.jobs == jobs})


def _by_arm(found: Found) -> Iterator[str]:
    own = {(k.arm, k.seed): (v, s) for k, (_, v, s) in found.items()}
    runs = {arm: [v for (name, _), v in own.items() if name == arm] for arm in ARMS}
    there = [arm for arm in ARMS if runs[arm]]
    yield head("arm", *HEAD)
    for name in there:
        for words, side in ((f"{ARMS[name].words}, {len(runs[name])} runs", 0), ("simulator", 1)):
            yield row_of([words, *_means([pair[side] for pair in runs[name]])])
    yield "\n" + head("arm against base", *HEAD)
    for name, base in (*((arm, ARMS[arm].base) for arm in there if ARMS[arm].base), *EXTRA):
        seeds = [s for (n, s) in own if n == name and (base, s) in own]
        for words, side in ((f"`{name}` against `{base}`", 0), ("simulator", 1)):
            if pairs := [(own[name, s][side], own[base, s][side]) for s in seeds]:
                yield row_of([words, *(_change(pairs, figure) for figure in FIGURES)])
    yield "\n" + head("arm", "wait of high QOS", "QOS inversions", "error of shares")
    for name in there:
        figures = ("high_wait_s", "qos_inversions", "share_error")
        high_s, turned, error = (float(np.mean([v[f] for v, _ in runs[name]])) for f in figures)
        cells = (f"{high_s / 60:,.1f} min", f"{turned:.1f}", f"{100 * error:.1f}%")
        yield row_of([ARMS[name].words, *cells])
    yield ""


def _means(runs: list[Figures]) -> Iterator[str]:
    for figure in FIGURES:
        mean = float(np.mean([run[figure] for run in runs]))
        if figure.endswith("_s"):
            yield f"{mean / 60:,.{int(figure != 'makespan_s')}f} min"
        else:
            yield f"{mean:.2f}" if figure == "bsld" else f"{100 * mean:.1f}%"


def _change(pairs: list[tuple[Figures, Figures]], figure: str) -> str:
    """In percent; of one pair without an interval."""
    if len(pairs) == 1:
        return f"{100 * (pairs[0][0][figure] / pairs[0][1][figure] - 1):+.1f}%"
    found = geometric([own[figure] for own, _ in pairs], [base[figure] for _, base in pairs])
    change, low, high = (100 * part for part in found.known)
    return f"{change:+.1f}% [{low:+.1f}, {high:+.1f}]"
