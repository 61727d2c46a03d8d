"""What a simulation costs against jobs and against nodes (`python -m scripts.benchmarks.costs`).

Plays philly-like traces at a load of 0.9 on clusters of 8-GPU nodes under FCFS and SAF with EASY,
draws docs/img/costs.svg, and prints how the seconds grow: the exponent of a power law fitted to
them, beside the exponent that n log n has over the same sizes.
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("svg")
from matplotlib import pyplot as plt

from rltuned.domain.cluster import Partition, Resources
from rltuned.domain.units import GpuType
from rltuned.sim.cluster import Cluster, idle_node
from rltuned.sim.protocol import Protocol
from rltuned.sim.reshape import scale
from rltuned.sim.run import simulate, whole
from rltuned.sim.synth import synthesize

LOAD, SEED = 0.9, 1
JOBS = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000)
NODES = (24, 48, 96, 192, 384, 768)
FIXED_NODES, FIXED_JOBS = 96, 16_000
POLICIES = ("fcfs", "saf")


def cluster_of(nodes: int) -> Cluster:
    """Nodes of 8 GPUs in one partition."""
    made = tuple(
        idle_node(f"n{i:04d}", GpuType("p100"), Resources(8, 32, 128_000), ("gpu",))
        for i in range(nodes)
    )
    return Cluster(f"{nodes} nodes", made, (Partition("gpu", default=True),))


def seconds(jobs: int, nodes: int, policy: str, rounds: int) -> float:
    """The fastest of some runs: what else the machine does only ever adds."""
    where = cluster_of(nodes)
    trace = scale(synthesize("philly-like", jobs=jobs, seed=SEED), LOAD, where.gpus)
    window = whole(trace.jobs, first=None, warmup=0)[0]
    simulate(whole(trace.jobs, first=5, warmup=0)[0], where, policy, Protocol())  # compile
    found = []
    for _ in range(rounds):
        began = time.process_time()
        simulate(window, where, policy, Protocol())
        found.append(time.process_time() - began)
    return min(found)


def growth(sizes: tuple[int, ...], costs: list[float]) -> dict[str, float]:
    """Exponents of power laws fitted to the seconds, and to n log n over the same sizes."""
    n, s = np.array(sizes, dtype=float), np.array(costs)
    return {
        "exponent": round(float(np.polyfit(np.log(n), np.log(s), 1)[0]), 2),
        "n_log_n_exponent": round(float(np.polyfit(np.log(n), np.log(n * np.log2(n)), 1)[0]), 2),
    }


def main() -> int:
    """Measure, draw, print."""
    parser = argparse.ArgumentParser(prog="python -m scripts.benchmarks.costs")
    parser.add_argument("--out", type=Path, default=Path("docs/img/costs.svg"))
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    said: dict[str, object] = {}
    for axis, sizes, name in ((axes[0], JOBS, "jobs"), (axes[1], NODES, "nodes")):
        for policy in POLICIES:
            costs = [
                seconds(
                    *((size, FIXED_NODES) if name == "jobs" else (FIXED_JOBS, size)),
                    policy,
                    given.rounds,
                )
                for size in sizes
            ]
            axis.plot(sizes, costs, "o-", ms=3, label=policy)
            said[f"{policy} by {name}"] = growth(sizes, costs) | {
                "seconds": dict(zip(map(str, sizes), (round(c, 4) for c in costs), strict=True))
            }
        last = costs[-1] / (sizes[-1] * math.log2(sizes[-1]))
        axis.plot(sizes, [last * n * math.log2(n) for n in sizes], "k:", lw=1, label="n log n")
        axis.set(xscale="log", yscale="log", xlabel=name, ylabel="seconds")
        axis.grid(alpha=0.3)
    axes[0].set_title(f"{FIXED_NODES} nodes of 8 GPUs", fontsize=9)
    axes[1].set_title(f"{FIXED_JOBS:,} jobs", fontsize=9)
    axes[0].legend(frameon=False)
    mpl.rcParams["svg.hashsalt"] = "rltuned"
    figure.savefig(given.out, metadata={"Date": None})
    print(json.dumps(said, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
