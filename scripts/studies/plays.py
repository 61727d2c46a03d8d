"""What the studies of orders share: one play in the daemon's cycles, and runs kept as JSON lines.

A site orders by age alone (sim/natural.AGE_ONLY). What an order knows of run times is `limit`: the
limits alone; `shipped`: a predictor that has met no job of the cluster; `site`: one fitted to the
first jobs of the trace; `true`: the run times themselves, which no scheduler can have.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from rltuned.core.decide import Knobs, Policy
from rltuned.core.features import FloatArray, StateMatrix
from rltuned.core.numbers import Writing
from rltuned.core.order import Order
from rltuned.core.run_times import PLAN_SCALE
from rltuned.lab.compare import paired
from rltuned.lab.replay.metrics import slowdown
from rltuned.lab.replay.orders import in_cycles, layers_of
from rltuned.lab.replay.play import Played
from rltuned.lab.replay.play import run as play_out
from rltuned.lab.replay.run import possible
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.replay.trace_file import scale
from rltuned.lab.train.predictor import fit
from rltuned.policies.baselines import BASELINES, Baseline
from rltuned.policies.predictor import Predictor, load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.sim.cluster import Cluster
from rltuned.sim.dispatch import AGE_ONLY, BackfillRule, Natural
from rltuned.sim.limits import draw_limits
from rltuned.sim.trace import Trace, TraceJob
from rltuned.sim.world import FinishedJob, Rules, World
from rltuned.stats import percent

TRACES = Path("../shared/traces")
ORDERS = (
    ("fcfs", "limit"),
    ("delay", "limit"),
    ("delay", "shipped"),
    ("delay", "site"),
    ("qssf", "site"),
    ("clairvoyant", "true"),
)
"""Policies, each with what it knows."""
STRENGTHS = ("own", "weak", "none")
"""How much limits tell of run times: the trace's own, or drawn to tell little or nothing."""
LIMITS_SEED = 5
PURE = Order(own=1_000.0, share=0.0, clip=1e9, max_delay_s=1e15)
PURE_SITE = replace(AGE_ONLY, age_weight=AGE_ONLY.age_weight // 1_000, base=2_000_000_000)
"""Without bounds: a point is a thousand seconds, so that there is room for a thousand times D."""

Row = dict[str, float]
R = TypeVar("R")


@dataclass(frozen=True)
class Outcome:
    """One play. wait_s, run_s: (n,) of its jobs, in order of submission."""

    played: Played
    wait_s: FloatArray
    run_s: FloatArray

    def figures(self, last: int = 0) -> Row:
        """Of the last so many jobs; 0 = of all."""
        wait_s, run_s = self.wait_s[-last:], self.run_s[-last:]
        return {
            "wait_s": float(wait_s.mean()),
            "wait_p99_s": float(np.quantile(wait_s, 0.99)),
            "wait_max_s": float(wait_s.max()),
            "bsld": float(slowdown(wait_s, run_s).mean()),
        }


def play(
    cluster: Cluster,
    jobs: Sequence[TraceJob],
    policy: Policy,
    *,
    order: Order | None = None,
    natural: Natural = AGE_ONLY,
    predictor: Predictor | None = None,
    hysteresis: float = Writing().hysteresis,
    backfill: BackfillRule = "easy",
) -> Outcome:
    """Jobs in the daemon's cycles of 60 s, with an empty memory of run times at first.

    order: PURE needs the natural PURE_SITE; None = the daemon's bounds.
    """
    layers = None if predictor is None else layers_of(predictor)
    scenario = replace(
        Scenario.of(cluster, jobs, Rules(backfill, natural=natural)), predictor=layers
    )
    writing = Writing(hysteresis=hysteresis)
    knobs = Knobs(top_k=0, order=order or Order(), writing=writing)
    ranking, cycles, eyes = in_cycles(policy, scenario, knobs, 60.0)
    played = play_out(scenario, ranking, cycles=cycles, eyes=eyes)
    run_s = np.array([min(j.duration_s, j.time_limit_s) for j in jobs])
    return Outcome(played, played.start_s - scenario.submit_s, run_s)


def policy_of(name: str, jobs: Sequence[TraceJob]) -> Policy:
    """A policy of ORDERS, or a rule."""
    return BASELINES.get(name) or clairvoyant(jobs, PLAN_SCALE)


def clairvoyant(jobs: Sequence[TraceJob], scale: float = 1.0) -> Baseline:
    """The rule `delay` with scale x sqrt(limit x true run time) in place of the plan, and places by
    true areas."""
    run_s = np.array([min(job.duration_s, job.time_limit_s) for job in jobs])

    def delay_s(matrix: StateMatrix) -> FloatArray:
        found: FloatArray = scale * np.sqrt(matrix.length_s * run_s * matrix.size)
        return found

    def area(matrix: StateMatrix) -> FloatArray:
        found: FloatArray = run_s * matrix.size
        return found

    return Baseline("clairvoyant", lambda matrix: -delay_s(matrix), delay_s, area)


def play_to_end(world: World, jobs: int) -> Sequence[FinishedJob]:
    """Step a plain world until nothing is left to happen; what became of its jobs."""
    while world.next_time() is not None:
        world.step()
    if len(world.finished) != jobs:
        raise RuntimeError(f"{jobs - len(world.finished)} jobs were dropped")
    return list(world.finished.values())


def compared(own: FloatArray, base: FloatArray, metric: str) -> str:
    """The change of a mean with its 95% interval over seeds, (k,) each."""
    found = paired(own, base, metric)
    return percent(found.change or 0.0, found.low, found.high, digits=0)


def predictor_of(knowledge: str, first: Callable[[], Sequence[TraceJob]]) -> Predictor | None:
    """What an order knows; `first` gives the jobs that `site` is fitted to."""
    if knowledge in {"limit", "true"}:
        return None
    shipped = load_predictor(shipped_predictor())
    return shipped if knowledge == "shipped" else fit(tuple(first()), begin=shipped).predictor


def loaded(
    jobs: Sequence[TraceJob], cluster: Cluster, load: float, most_gpus: int = 10**9
) -> Trace:
    """The jobs that fit the cluster and ask for at most so many GPUs, at a load."""
    fitting, _ = possible(jobs, cluster, skip=True)
    kept = tuple(job for job in fitting if job.gpus <= most_gpus)
    return scale(Trace(kept, {}), load, cluster.gpus)


def with_limits(
    jobs: tuple[TraceJob, ...], strength: str, cluster: Cluster
) -> tuple[TraceJob, ...]:
    """The jobs with limits of a strength; the same draw in every copy."""
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


def known(results: Path, kind: type[R]) -> dict[R, Row]:
    """Runs of a kind that have been played: results has a line of JSON for each."""
    if not results.exists():
        return {}
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return {kind(**{k: row[k] for k in names if k in row}): row for row in rows}


def play_missing(
    results: Path, runs: Iterable[R], play: Callable[[R], Row], minutes: float
) -> None:
    """Play what is not known yet, until the time is up."""
    until = time.monotonic() + 60 * minutes
    done: set[R] | None = None
    for run in runs:
        done = set(known(results, type(run))) if done is None else done
        if run in done:
            continue
        if time.monotonic() > until:
            return
        row = play(run)
        with results.open("a") as out:
            out.write(json.dumps(row) + "\n")
        done.add(run)


def drawn(results: Path, kind: type[R], sample: int, seed: int) -> dict[R, Row]:
    """Some of the known runs. Those of a predictor that is fitted to the site are left out: torch
    computes otherwise on another processor, and a long run then ends elsewhere.
    """
    every = [(r, row) for r, row in known(results, kind).items() if _fits_nothing(r)]
    picked = np.random.default_rng(seed).permutation(len(every))[:sample]
    return dict(every[at] for at in picked)


def named(runs: Iterable[R], text: str, names: Callable[[R], Sequence[object]]) -> list[R]:
    """Those whose names, in their order, begin with the parts of a text: `Helios Venus, 0.9`."""
    wanted = _parts([text])
    return [run for run in runs if _parts(names(run))[: len(wanted)] == wanted]


def _parts(names: Iterable[object]) -> list[str]:
    texts = (f"{name:g}" if isinstance(name, float) else str(name) for name in names)
    return [part.strip().casefold() for text in texts for part in text.split(",")]


def differing(rows: Mapping[R, Row], play: Callable[[R], Row]) -> Iterator[str | None]:
    """Play runs again. For each: None, or a line where a figure is not the stored one. Processor
    time is no figure.
    """
    for run, row in rows.items():
        again = play(run)
        found = [
            f"{name} {row[name]} -> {again[name]}"
            for name in row.keys() & again.keys()
            if not (name.startswith("cpu_") or _same(row[name], again[name]))
        ]
        yield f"{run}: {', '.join(sorted(found))}" if found else None


def _fits_nothing(run: object) -> bool:
    return getattr(run, "knowledge", "") != "site"


def _same(a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-9)
    return a == b


def check(
    results: Path, runs: Iterator[R], play: Callable[[R], Row], asked: argparse.Namespace
) -> None:
    """Play stored rows again, a draw or those asked for, and exit with 1 if a figure differs."""
    first = next(runs)
    if asked.only is None:
        rows = drawn(results, type(first), asked.sample, asked.seed)
    else:
        stored = known(results, type(first))
        rows = {run: stored[run] for run in (first, *runs) if run in stored}
    done = list(differing(rows, play))
    wrong = [line for line in done if line is not None]
    print(f"{results}: {len(done)} rows played again, {len(wrong)} differ", *wrong, sep="\n")
    sys.exit(bool(wrong))


def mean(rows: Sequence[Row], name: str) -> float:
    """Of one figure over rows."""
    return float(np.mean([row[name] for row in rows]))


def spread(own: Sequence[Row], base: Sequence[Row], ratio: float) -> str:
    """A ratio of mean waits, with that of the copy where it is smallest, and largest."""
    pairs = [a["wait_s"] / b["wait_s"] for a, b in zip(own, base, strict=False)]
    return f"{ratio:.2f} [{min(pairs):.2f}, {max(pairs):.2f}]"


def geometric(rows: Sequence[Sequence[float]]) -> list[float]:
    """(k,) geometric means of (n, k) ratios."""
    found: list[float] = np.exp(np.log(np.array(rows)).mean(axis=0)).tolist()
    return found


def row_of(cells: Iterable[object]) -> str:
    """A row of a Markdown table; ratios have two decimals."""
    texts = (f"{c:.2f}" if isinstance(c, float) else str(c) for c in cells)
    return f"|{'|'.join(f' {text} ' if text else ' ' for text in texts)}|"


def head(*names: str) -> None:
    """Print the first two rows of a Markdown table."""
    print(f"{row_of(names)}\n|{'---|' * len(names)}")


def main(
    about: str | None,
    results: Path,
    runs: Callable[[argparse.Namespace], Iterator[Any]],
    play: Callable[[Any], Row],
    *,
    views: Mapping[str, Callable[[argparse.Namespace], None]],
    options: Callable[[argparse.ArgumentParser], None] = lambda _: None,
    names: Callable[[Any], Sequence[object]] = astuple,
) -> None:
    """The command line of a study: `run`, which plays what is missing, `check`, which plays a
    draw of what is there again and exits with 1 if a figure differs, or one of its views.
    names: of a run, for --only.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("what", choices=("run", "check", *views))
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--sample", type=int, default=40, help="rows that `check` plays again")
    parser.add_argument("--seed", type=int, default=1, help="of that draw")
    parser.add_argument("--only", help="rows that begin so, in place of a draw")
    options(parser)
    asked = parser.parse_args()
    chosen = runs(asked)
    if asked.only is not None:
        chosen = iter(found := named(chosen, asked.only, names))
        if not found:
            first = ", ".join(map(str, names(next(runs(asked)))))
            parser.error(f"--only: no row begins with {asked.only!r}; rows are named as {first!r}")
    if asked.what == "run":
        play_missing(results, chosen, play, asked.minutes)
    elif asked.what == "check":
        check(results, chosen, play, asked)
    else:
        views[asked.what](asked)
