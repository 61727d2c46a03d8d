"""Whether something has become slower (`make bench-check`).

Each figure is the processor time of a piece of work over that of a fixed loop of plain Python and
numpy, both the least of several rounds that take turns; so another program on the machine, or a
slower one of its class, moves both. A figure that is more than WORSE above the one that is stored
for this class of machine fails. Growth has a goal and needs nothing stored.

    python -m scripts.benchmarks.check [--store]

Exit codes: 0 = none is; 1 = one is; 3 = nothing is stored for this class of machine.
"""

import argparse
import json
import math
import platform
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from rltuned.core.decide import Knobs, decide
from rltuned.core.features import encode
from rltuned.policies.actor import load_actor
from rltuned.sim.protocol import Protocol
from rltuned.sim.run import simulate, whole
from scripts.benchmarks.deciding import JOBS, NODES, RUNNING, queue_of
from scripts.benchmarks.growth import GOAL, LEAST, crowd, curves, exponent

STORED: Final = Path(__file__).with_name("ratios.json")
MODEL: Final = Path("models/rltune")
WORSE: Final = 1.25
ROUNDS: Final = 60
GROWN: Final = 16_000
"""Jobs up to which growth is checked; `make bench` goes further."""


def machine() -> str:
    """The class of machine: its processor and Python's version."""
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return (
        f"{model}, Python {platform.python_version_tuple()[0]}.{platform.python_version_tuple()[1]}"
    )


def _fixed_loop() -> None:
    """What every figure is measured against; to change it is to measure all of them again."""
    table: dict[int, float] = {}
    for at in range(3_000):
        table[at % 97] = table.get(at % 97, 0.0) + at * 0.5
    values = np.arange(20_000, dtype=np.float64)
    for _ in range(5):
        values = np.sort(-values)


def ratio(work: Callable[[], object]) -> float:
    """The processor time of a piece of work over that of the fixed loop."""
    least: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, one in (("loop", _fixed_loop), ("work", work)):
            began = time.process_time()
            one()
            took = time.process_time() - began
            least[name] = min(took, least.get(name, took))
    return least["work"] / least["loop"]


def ratios() -> dict[str, float]:
    """Of every figure; decisions of the shipped model, plays of jobs nearly all of which wait."""
    actor, snapshot = load_actor(MODEL), queue_of(JOBS, NODES, RUNNING)
    works: dict[str, Callable[[], object]] = {
        "encode_and_score": lambda: actor.score(encode(snapshot.pending, snapshot)),
        "decide": partial(decide, snapshot, actor, Knobs()),
    }
    cluster, jobs = crowd(LEAST, "overlapping")
    window = whole(jobs, first=None, warmup=0)[0]
    works["play"] = partial(simulate, window, cluster, "sjf", Protocol())
    for work in works.values():
        work()  # compiled before the clock runs
    return {name: round(ratio(work), 3) for name, work in works.items()}


def slower(found: Mapping[str, float], known: Mapping[str, float]) -> list[str]:
    """The figures that are more than WORSE above what is stored; those that are not, cannot be."""
    return [name for name, value in found.items() if value > WORSE * known.get(name, math.inf)]


def main() -> int:
    """Measure and compare, or store."""
    parser = argparse.ArgumentParser(prog="python -m scripts.benchmarks.check")
    parser.add_argument("--store", action="store_true", help="keep the figures of this machine")
    store, name = parser.parse_args().store, machine()
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    found = ratios()
    if store:
        others = ratios(), ratios()  # the largest of three is kept: runs differ by a fifth
        found = {key: max(value, *(other[key] for other in others)) for key, value in found.items()}
        stored[name] = found
        STORED.write_text(json.dumps(stored, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    known = stored.get(name, {})
    slow = slower(found, known)
    for figure, value in found.items():
        limit = WORSE * known.get(figure, math.inf)
        print(f"{figure}: {value:.3f} times the fixed loop; at most {limit:.3f}")
    for title, points in curves(GROWN, ("sjf",)):
        power = exponent(points)
        slow += [title] if power > GOAL else []
        print(f"growth of {title}: jobs to the power of {power:.2f}; at most {GOAL}")
    if slow:
        print(f"slower than it was: {', '.join(slow)}", file=sys.stderr)
        return 1
    if not known:
        print(f"no figure is stored for {name}; --store keeps these", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
