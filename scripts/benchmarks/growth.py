"""How the simulator grows with the jobs that wait, in both modes.

All jobs are submitted within a minute on 40 nodes of 8 GPUs, with as many time limits as jobs, so
that nearly all wait at once. Processor seconds of a whole play, trace to schedule. At every event:
each layout of partitions, each backfill, the rules' pure orders. In the daemon's cycles: one
partition with EASY, and the orders that may differ from one cycle to the next.

    python -m scripts.benchmarks.growth [--most JOBS] [--draw SVG]
"""

import argparse
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, get_args

import numpy as np
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import NullFormatter

from rltuned.domain.cluster import Partition, Resources
from rltuned.domain.units import GpuType
from rltuned.lab.replay.protocol import DAEMON, Protocol, by_default
from rltuned.lab.replay.run import simulate
from rltuned.lab.replay.scenario import Scenario
from rltuned.sim.cluster import Cluster, idle_node
from rltuned.sim.dispatch import BackfillRule
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Rules
from scripts.benchmarks import Figure

Layout = Literal["one", "several", "overlapping"]
"""Of partitions: one; four without a common node; three, of which neighbours share half."""
RULES: Final = ("fcfs", "sjf")
IN_CYCLES: Final = ("fcfs", "delay", "predicted", "network")
"""`delay` by limits, with the shipped predictor, and the shipped network with it."""
MOST_IN_CYCLES: Final = 16_000
PURE: Final = Protocol(bounded=False)
"""Within the bounds SJF has the backlog weighed again at every event: it grows with the square."""
LEAST: Final = 1_000
MOST: Final = 64_000
STEP: Final = 4
SMALL: Final = 16_000
NODES: Final = 40
SEED: Final = 1
GOAL: Final = 1.15
SPAN_S: Final = 60.0


def crowd(jobs: int, layout: Layout) -> tuple[Cluster, tuple[TraceJob, ...]]:
    """The cluster, and so many jobs at once."""
    nodes = tuple(
        idle_node(f"n{at:02d}", GpuType("g"), Resources(8, 64, 512_000), _partitions(at, layout))
        for at in range(NODES)
    )
    names = sorted({name for node in nodes for name in node.partitions})
    parts = tuple(Partition(name, default=name == names[0]) for name in names)
    draw = np.random.default_rng(SEED)
    made = []
    for number in range(jobs):
        gpus = int(draw.choice((1, 1, 1, 1, 2, 2, 4, 8, 16)))
        run_s = 1.0 + float(draw.lognormal(7.0, 1.5))
        made.append(
            TraceJob(
                job_id=str(number),
                submit_s=SPAN_S * number / jobs,
                duration_s=run_s,
                gpus=gpus,
                time_limit_s=run_s * float(draw.uniform(1.0, 4.0)),
                cpus=4 * gpus,
                mem_mib=16_000 * gpus,
                partition=names[int(draw.integers(len(names)))],
            )
        )
    return Cluster(layout, nodes, parts), tuple(made)


def _partitions(node: int, layout: Layout) -> tuple[str, ...]:
    if layout == "one":
        return ("p0",)
    if layout == "several":
        return (f"p{4 * node // NODES}",)
    quarter = 4 * node // NODES
    return tuple(f"p{at}" for at in range(3) if at <= quarter <= at + 1)


def play_s(jobs: int, layout: Layout, backfill: BackfillRule, rule: str) -> float:
    """Processor seconds of one play after one that does not count; of small ones the least of 3."""
    cluster, made = crowd(jobs, layout)
    rules, found = Rules(backfill=backfill), []
    simulate(Scenario.of(cluster, made[:LEAST], rules), rule, PURE)
    for _ in range(3 if jobs <= SMALL else 1):
        began = time.process_time()
        simulate(Scenario.of(cluster, made, rules), rule, PURE)
        found.append(time.process_time() - began)
    return min(found)


def cycles_s(jobs: int, order: str) -> float:
    """Processor seconds of one play in the daemon's cycles after one that does not count."""
    cluster, made = crowd(jobs, "one")
    protocol = by_default(DAEMON) if order in {"predicted", "network"} else DAEMON
    policy = {"predicted": "delay", "network": "model:rltune"}.get(order, order)
    simulate(Scenario.of(cluster, made[: LEAST // STEP]), policy, protocol)
    began = time.process_time()
    simulate(Scenario.of(cluster, made), policy, protocol)
    return time.process_time() - began


_WORDS: Final = {
    "delay": "delay, by limits",
    "predicted": "the default order",
    "network": "the network",
    "one": "one partition",
    "several": "four apart",
    "overlapping": "three that overlap",
    "easy": "EASY",
    "none": "no backfill",
    "fcfs": "FCFS",
    "sjf": "SJF",
}
"""What the picture calls the parts of a curve's name."""
Curve = tuple[str, list[tuple[int, float]]]
"""What was played, and (jobs, seconds) of each size."""


def _sizes(most: int) -> list[int]:
    found = [LEAST]
    while found[-1] * STEP <= most:
        found.append(found[-1] * STEP)
    return found


def curves(most: int = MOST, rules: Sequence[str] = RULES) -> list[Curve]:
    """Every layout under every backfill and rule, from LEAST to most jobs."""
    sizes = _sizes(most)
    return [
        (f"{layout}_{backfill}_{rule}", [(n, play_s(n, layout, backfill, rule)) for n in sizes])
        for layout in get_args(Layout)
        for backfill in get_args(BackfillRule)
        for rule in rules
    ]


def curves_in_cycles(most: int = MOST_IN_CYCLES) -> list[Curve]:
    """Every order of IN_CYCLES."""
    return [
        (f"cycles_{order}", [(n, cycles_s(n, order)) for n in _sizes(most)]) for order in IN_CYCLES
    ]


def exponent(points: Sequence[tuple[int, float]]) -> float:
    """The power of the jobs with which the seconds grow, from the first size to the last."""
    (few, short_s), (many, long_s) = points[0], points[-1]
    return math.log(long_s / short_s) / math.log(many / few)


def measure(most: int = MOST) -> list[Figure]:
    """The exponent of each, and jobs per second at the largest size."""
    return [figure for curve in (*curves(most), *curves_in_cycles()) for figure in figures(curve)]


def figures(curve: Curve) -> list[Figure]:
    """Of one curve."""
    name, points = curve
    jobs, seconds = points[-1]
    source = f"goal of issue 21; {points[0][0]:,} to {jobs:,} jobs, nearly all of which wait"
    rate = Figure(f"rate_{name}", jobs / seconds, "jobs/s", 20_000.0, source, "higher")
    return [Figure(f"growth_{name}", exponent(points), "power", GOAL, source), rate]


def draw(at_events: Sequence[Curve], in_cycles: Sequence[Curve], path: Path) -> None:
    """Seconds against jobs, both logarithmic; a panel a mode."""
    picture = Picture(figsize=(9.0, 4.5), layout="constrained")
    left, right = picture.subplots(1, 2, sharey=True)
    for name, points in at_events:
        layout, backfill, rule = name.split("_")
        line = "-" if backfill == "easy" else "--"
        color = f"C{get_args(Layout).index(layout)}"
        faint = 1.0 if rule == RULES[0] else 0.5
        left.loglog(*zip(*points, strict=True), line, color=color, alpha=faint, label=_label(name))
    for name, points in in_cycles:
        right.loglog(*zip(*points, strict=True), label=_label(name.partition("_")[2]))
    left.set_ylabel("processor seconds")
    for axis, title in ((left, "at every event"), (right, "in cycles of a minute")):
        axis.set_title(title, fontsize="medium")
        axis.set_xlabel("jobs, nearly all of which wait")
        for side in (axis.xaxis, axis.yaxis):
            side.set_major_formatter("{x:,g}")
            side.set_minor_formatter(NullFormatter())
        axis.grid(visible=True, which="major", alpha=0.3)
        axis.legend(fontsize=7, loc="upper left")
    picture.savefig(path, metadata={"Date": None})


def _label(name: str) -> str:
    return ", ".join(_WORDS[part] for part in name.split("_"))


def main() -> int:
    """Measure, print, and draw if asked to."""
    parser = argparse.ArgumentParser(prog="python -m scripts.benchmarks.growth")
    parser.add_argument("--most", type=int, default=MOST)
    parser.add_argument("--draw", type=Path)
    asked = parser.parse_args()
    at_events, in_cycles = curves(asked.most), curves_in_cycles(min(asked.most, MOST_IN_CYCLES))
    for name, points in (*at_events, *in_cycles):
        cells = "  ".join(f"{n:,}: {s:.3f} s" for n, s in points)
        rate = points[-1][0] / points[-1][1]
        print(f"{name:24} {cells}  power {exponent(points):.2f}, {rate:,.0f} jobs/s", flush=True)
    if asked.draw:
        draw(at_events, in_cycles, asked.draw)
    return 0


if __name__ == "__main__":
    sys.exit(main())
