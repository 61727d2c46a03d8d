"""Orders as bounded delays compared with FCFS and pure SAF: the runs of docs/results.md.

    python -m scripts.studies.delays [--minutes M]

Every run is a long part of a trace on its cluster at one load, in the daemon's cycles of 60 s on a
site that orders by age alone (sim/natural.AGE_ONLY), with the same placement (pack) and backfill
(EASY). `saf` has no bounds: its delays are a thousand times limit x GPUs, where a point is
a thousand seconds, so that there is room for them. Each is played in COPIES
with submit times moved by up to 60 s (seeds 1 to COPIES). What is in the results is not played
again. `make docs` draws them; tests compare the tables of the pages with them.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path

from rltuned.core.decide import Knobs
from rltuned.core.order import Order
from rltuned.policies.baselines import BASELINES
from rltuned.sim.cluster import Cluster, read_cluster
from rltuned.sim.engine.orders import Stage, in_cycles
from rltuned.sim.engine.run import prepare
from rltuned.sim.engine.run import run as play_out
from rltuned.sim.metrics import score
from rltuned.sim.natural import AGE_ONLY
from rltuned.sim.presets import preset
from rltuned.sim.reshape import jittered, scale
from rltuned.sim.run import possible, schedule_of_engine, whole
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import Trace, read_trace
from rltuned.sim.world import Rules

TRACES = Path("../shared/traces")
RESULTS = Path("docs/data/delays.jsonl")
COPIES = 4
LOADS = (0.9, 0.7, 1.1)
JITTER_S = 60.0
DAY = 86_400.0
PURE = Order(stretch=1_000.0, clip=1e9, max_delay_s=1e15)
PURE_SITE = replace(AGE_ONLY, age_weight=AGE_ONLY.age_weight // 1_000, base=2_000_000_000)


@dataclass(frozen=True)
class Ground:
    """A part of a trace: jobs first to last of at most so many GPUs, on the first nodes."""

    trace: str
    first: int = 0
    last: int = 10**9
    most_gpus: int = 10**9
    nodes: int = 10**9


GROUNDS = {
    "philly-nov-1": Ground("philly_2017-11", 0, 12_000, 32),
    "philly-nov-2": Ground("philly_2017-11", 30_000, 42_000, 32),
    "helios-venus": Ground("helios_venus_2020", 2_000, 6_000, 64, 52),
    "thetagpu-1": Ground("thetagpu_2023", 0, 11_000),
    "thetagpu-2": Ground("thetagpu_2023", 11_000, 22_000),
    "testbed": Ground(""),
}


@dataclass(frozen=True)
class Run:
    """One play. order: of the bounds; None = the anchor that has none."""

    ground: str
    load: float
    copy: int
    policy: str
    stretch: float
    max_delay_d: float
    newcomers: str = "cycle"

    @property
    def order(self) -> Order:
        if self.policy == "saf":
            return PURE
        return Order(self.stretch, 1.0, self.max_delay_d * DAY)


def runs() -> Iterator[Run]:
    """Every ground at load 0.9, then at the other loads."""
    for load, ground, copy in product(LOADS, GROUNDS, range(1, COPIES + 1)):
        one = Run(ground, load, copy, "fcfs", 0.3, 7.0)
        yield one
        yield replace(one, policy="saf")
        yield replace(one, policy="delay")
        yield replace(one, policy="delay", stretch=1.0)
        yield replace(one, policy="delay", newcomers="submit")


@cache
def trace_of(ground: str, load: float, copy: int) -> tuple[Cluster, Trace]:
    """The ground's jobs, scaled to the load, with submit times moved."""
    part = GROUNDS[ground]
    if not part.trace:
        cluster = preset("testbed")
        trace = synthesize("testbed-1024", jobs=8_000, seed=7, limits="weak")
    else:
        cluster = read_cluster(TRACES / f"{part.trace}.toml")
        cluster = replace(cluster, nodes=cluster.nodes[: part.nodes])
        trace = read_trace(TRACES / f"{part.trace}.csv.gz")
    fitting, _ = possible(trace.jobs[part.first : part.last], cluster, skip=True)
    jobs = tuple(job for job in fitting if job.gpus <= part.most_gpus)
    scaled = scale(replace(trace, jobs=jobs), load, cluster.gpus)
    return cluster, jittered(scaled, JITTER_S, copy)


def play(run: Run) -> dict[str, float]:
    """Its figures."""
    cluster, trace = trace_of(run.ground, run.load, run.copy)
    began = time.process_time()
    natural = PURE_SITE if run.policy == "saf" else AGE_ONLY
    stage = Stage(cluster, trace.jobs, prepare(cluster, trace.jobs), natural)
    knobs = Knobs(top_k=0, order=run.order)
    ranking, cycles, eyes = in_cycles(
        BASELINES[run.policy], stage, knobs, 60.0, at_submit=run.newcomers == "submit"
    )
    rules = Rules(natural=natural)
    played = play_out(stage.prepared, ranking, rules, cycles=cycles, eyes=eyes)
    window = whole(trace.jobs, first=None, warmup=0)[0]
    found = score([schedule_of_engine(played, window, cluster, began)], cluster.gpus)
    figures = {k: getattr(found, k) for k in ("wait_s", "wait_p99_s", "wait_max_s", "bsld", "jobs")}
    figures["writes_per_job"] = found.writes / found.jobs
    figures["cpu_s"] = round(time.process_time() - began, 1)
    return asdict(run) | figures


def known() -> set[Run]:
    """Runs that have been played."""
    if not RESULTS.exists():
        return set()
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    names = Run.__dataclass_fields__
    return {Run(**{k: row[k] for k in names if k in row}) for row in rows}


def main() -> None:
    """Play what is not known yet, until the time is up."""
    parser = argparse.ArgumentParser(prog="python -m scripts.studies.delays")
    parser.add_argument("--minutes", type=float, default=600.0)
    until = time.monotonic() + 60 * parser.parse_args().minutes
    done = known()
    for run in runs():
        if run in done:
            continue
        if time.monotonic() > until:
            return
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        with RESULTS.open("a") as out:
            out.write(json.dumps(play(run)) + "\n")


if __name__ == "__main__":
    main()
