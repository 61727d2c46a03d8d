"""What a joint decision costs against K and against nodes (`python -m scripts.draw_placement`).

Every decision of `make bench` (scripts/benchmarks/placing.py: typed nodes full of scraps) needs a
solve by CBC. Milliseconds are processor time of this process and of CBC, so that the machine's
other work counts little. Draws docs/img/placement.svg and prints medians, 95th percentiles, and the
exponents of power laws fitted to the medians.
"""

import argparse
import json
import resource
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("svg")
from matplotlib import pyplot as plt

from scripts.benchmarks.placing import solved_ms

TOP_K, FIXED_NODES = (4, 8, 16, 32, 64), 100
NODES, FIXED_K = (25, 50, 100, 200, 400), 16
GOALS_MS = {"goal for the median": 60.0, "goal for the 95th percentile": 250.0}
"""Of K = 16 on 100 nodes."""


def main() -> int:
    """Measure, draw, print."""
    parser = argparse.ArgumentParser(prog="python -m scripts.draw_placement")
    parser.add_argument("--out", type=Path, default=Path("docs/img/placement.svg"))
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    by_k = {k: solved_ms(k, FIXED_NODES, given.rounds, processor_s) for k in TOP_K}
    by_nodes = {n: solved_ms(FIXED_K, n, given.rounds, processor_s) for n in NODES}
    draw(by_k, by_nodes, given.out)
    print(json.dumps({"k": said(by_k), "nodes": said(by_nodes)}, indent=2))
    return 0


def processor_s() -> float:
    """Processor seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def draw(by_k: dict[int, list[float]], by_nodes: dict[int, list[float]], out: Path) -> None:
    """Two panels: against K, and against nodes."""
    figure, axes = plt.subplots(1, 2, figsize=(8, 3), sharey=True, layout="constrained")
    sides = ((by_k, f"K, on {FIXED_NODES} nodes"), (by_nodes, f"nodes, K = {FIXED_K}"))
    for axis, (found, name) in zip(axes, sides, strict=True):
        sizes = list(found)
        axis.plot(sizes, [np.median(ms) for ms in found.values()], "o-", label="median")
        axis.plot(
            sizes, [np.percentile(ms, 95) for ms in found.values()], "s--", label="95th percentile"
        )
        for (_, goal_ms), style in zip(GOALS_MS.items(), (":", "-."), strict=True):
            axis.axhline(goal_ms, color="grey", linestyle=style, linewidth=0.8)
        axis.set_xscale("log", base=2)
        axis.set_xticks(sizes, [str(s) for s in sizes])
        axis.set_yscale("log")
        axis.set_xlabel(name)
    axes[0].set_ylabel("processor ms per decision")
    axes[0].legend(frameon=False)
    mpl.rcParams["svg.hashsalt"] = "rltuned"
    figure.savefig(out, metadata={"Date": None})


def said(found: dict[int, list[float]]) -> dict[str, object]:
    """Medians, 95th percentiles and how the medians grow."""
    median = [float(np.median(ms)) for ms in found.values()]
    exponent = float(np.polyfit(np.log(list(found)), np.log(median), 1)[0])
    return {
        "median_ms": {k: round(m, 1) for k, m in zip(found, median, strict=True)},
        "p95_ms": {k: round(float(np.percentile(ms, 95)), 1) for k, ms in found.items()},
        "exponent": round(exponent, 2),
    }


if __name__ == "__main__":
    sys.exit(main())
