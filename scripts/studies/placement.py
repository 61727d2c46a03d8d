"""Is it worth deciding the first 16 jobs together? Joint placement against packing.

Windows of WINDOW generated jobs at load 0.9 (window i: seed FIRST_SEED + i), in the daemon's cycles
of 60 s on a site that orders by age alone, under the rule `delay` by limits alone and EASY, so that
only the placement differs (the world that joint placement needs predicts no run times). Jobs have
weak limits; the first WARMUP of a window run but are not scored. `spread` is what Slurm does with
LLN; `guided` is what the daemon may do: Slurm packs, and OverSubscribe is set where the first 16
jobs, placed together, share nodes. The solver has all the time it wants, so that a run does not
depend on the machine. In `exclusive` worlds every second, or every fourth, job asks for whole
nodes.
"""

from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from typing import Literal

import numpy as np

from rltuned.core.milp import Budget, Sharing, Tuning
from rltuned.lab.compare import paired
from rltuned.lab.replay.metrics import score
from rltuned.lab.replay.protocol import Protocol, jointly
from rltuned.lab.replay.run import simulate
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.replay.trace_file import scale
from rltuned.sim.cluster import preset
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import AGE_ONLY, Rules
from rltuned.solver import Cbc
from scripts.studies import data_of
from scripts.studies.runner import Row, Study, head, known, row_of

RESULTS = data_of("placement")
WINDOW, WARMUP, WINDOWS, FIRST_SEED, LOAD, TOP_K = 192, 48, 8, 101, 0.9, 16
WORLDS = {"testbed": 0, "testbed, a quarter exclusive": 4, "testbed, half exclusive": 2}
"""Every so manyth job asks for whole nodes; 0 = none."""
PLACEMENTS = ("pack", "spread", "guided")
PATIENT = Budget(wall_s=60.0)


@dataclass(frozen=True)
class Run:
    """One window of a world under one placement."""

    world: str
    window: int
    placement: str


@cache
def jobs_of(world: str, window: int) -> tuple[TraceJob, ...]:
    """Those of a window at the load."""
    trace = synthesize("testbed-1024", jobs=WINDOW, seed=FIRST_SEED + window, limits="weak")
    every = WORLDS[world]
    return tuple(
        replace(job, exclusive=bool(every) and number % every == 0)
        for number, job in enumerate(scale(trace, LOAD, preset("testbed").gpus).jobs)
    )


def play(run: Run) -> Row:
    """Its figures, as one row of the results."""
    packing: Literal["pack", "spread"] = "spread" if run.placement == "spread" else "pack"
    rules = Rules(placement=packing, natural=AGE_ONLY)
    protocol = Protocol(mode="cycle", interval_s=60.0)
    if run.placement == "guided":
        tuning = Tuning(PATIENT, Sharing(frozenset({"gpu"})))
        protocol = jointly(protocol, TOP_K, tuning, Cbc())
    cluster = preset("testbed")
    jobs = jobs_of(run.world, run.window)
    scenario = Scenario.of(cluster, jobs, rules, warmup=WARMUP)
    found = score([simulate(scenario, "delay", protocol)], cluster.gpus)
    return asdict(run) | {name: getattr(found, name) for name in ("wait_s", "wait_max_s", "bsld")}


def table() -> None:
    """Ratios of sums of waits over windows to packing, with Student's 95% intervals."""
    waits: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for run, row in known(RESULTS, Run).items():
        waits[run.world, run.placement][run.window] = row["wait_s"]
    print(head("jobs", "windows", "packing", *PLACEMENTS[1:]))
    for world in WORLDS:
        base = waits[world, "pack"]
        cells = [_ratio(waits[world, name], base) for name in PLACEMENTS[1:]]
        mean_s = sum(base.values()) / max(1, len(base))
        print(row_of([world, len(base), f"{mean_s / 3600:.1f} h", *cells]))


def _ratio(own: dict[int, float], base: dict[int, float]) -> str:
    both = sorted(own.keys() & base.keys())
    if not both:
        return "not run"
    top, bottom = (np.array([side[w] for w in both]) for side in (own, base))
    found = paired(top, bottom, "wait_s")
    ratio, low, high = (1 + part for part in found.known)
    return f"{ratio:.2f} [{low:.2f}, {high:.2f}]"


RUNS = [Run(world, at, name) for at, world, name in product(range(WINDOWS), WORLDS, PLACEMENTS)]
STUDIES = {"placement": Study(lambda _: iter(RUNS), play, {"table": table})}
