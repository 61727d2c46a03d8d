"""Whether something has become slower (`make bench-check`).

Each figure is the processor time of a piece of work over that of a fixed loop of plain Python and
numpy, both the least of several rounds that take turns. One that is more than WORSE above what is
stored for this class of machine fails. Growth has a goal and needs nothing stored. Exit codes:
0 = none is slower; 1 = one is; 3 = nothing is stored for this class of machine.
"""

import argparse
import json
import math
import platform
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from rltuned.core.decide import Knobs, decide
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.run import simulate
from rltuned.lab.replay.scenario import Scenario
from rltuned.policies.actor import load_actor
from scripts.benchmarks.cases import GOAL, LEAST, curves, exponent, scorer, spent_s
from scripts.benchmarks.worlds import JOBS, crowd, queue_of

STORED: Final = Path(__file__).with_name("ratios.json")
MODEL: Final = Path("models/rltune")
WORSE: Final = 1.25
ROUNDS: Final = 60
TIMES: Final = 3
"""Measurements of a figure that seems worse: another program can only make one slower."""
GROWN: Final = 16_000
"""Jobs up to which growth is checked; `make bench` goes further."""


def machine() -> str:
    """The class of machine: its processor, which a virtual one names by number, and Python's."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    known = {key.strip(): value.strip() for key, _, value in (ln.partition(":") for ln in lines)}
    name = known.get("model name", platform.machine())
    kind = f"family {known.get('cpu family', '?')} model {known.get('model', '?')}"
    return f"{name}, {kind}, Python {'.'.join(platform.python_version_tuple()[:2])}"


def _fixed_loop() -> None:
    """What every figure is measured against; to change it is to measure all of them again.

    Nothing in it that one processor has an instruction for and another has not.
    """
    table: dict[int, float] = {}
    for at in range(3_000):
        table[at % 97] = table.get(at % 97, 0.0) + at * 0.5
    values = np.arange(20_000, dtype=np.float64)
    for _ in range(5):
        values = np.cumsum(values) * 1e-4


def ratio(work: Callable[[], object]) -> float:
    """The processor time of a piece of work over that of the fixed loop."""
    least: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, one in (("loop", _fixed_loop), ("work", work)):
            took = spent_s(one)
            least[name] = min(took, least.get(name, took))
    return least["work"] / least["loop"]


def ratios() -> dict[str, float]:
    """Of every figure; decisions of the shipped model, plays of jobs nearly all of which wait."""
    actor, queue = load_actor(MODEL), queue_of(JOBS)
    works: dict[str, Callable[[], object]] = {
        "score": scorer(actor, queue),
        "decide": partial(decide, queue, actor, Knobs()),
    }
    cluster, jobs = crowd(LEAST, "overlapping")
    works["play"] = lambda: simulate(Scenario.of(cluster, jobs), "sjf", Protocol())
    for work in works.values():
        work()  # compiled before the clock runs
    return {name: round(ratio(work), 3) for name, work in works.items()}


def slower(found: Mapping[str, float], known: Mapping[str, float]) -> list[str]:
    """The figures that are more than WORSE above what is stored; those that are not, cannot be."""
    return [name for name, value in found.items() if value > WORSE * known.get(name, math.inf)]


def best(
    measure: Callable[[], Mapping[str, float]], worse: Callable[[Mapping[str, float]], list[str]]
) -> dict[str, float]:
    """The least of up to TIMES measurements, and of no more once none is worse."""
    found = dict(measure())
    for _ in range(TIMES - 1):
        if not worse(found):
            break
        found = {name: min(value, found[name]) for name, value in measure().items()}
    return found


def main() -> int:
    """Measure and compare, or store."""
    parser = argparse.ArgumentParser(prog="python -m scripts.benchmarks.check")
    parser.add_argument("--store", action="store_true", help="keep the figures of this machine")
    store, name = parser.parse_args().store, machine()
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    known = {} if store else stored.get(name, {})
    found = best(ratios, list if store else partial(slower, known=known))
    if store:
        known = stored[name] = found
        STORED.write_text(json.dumps(stored, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    for figure, value in found.items():
        limit = WORSE * known.get(figure, math.inf)
        print(f"{figure}: {value:.3f} times the fixed loop; at most {limit:.3f}", flush=True)

    def too_steep(powers: Mapping[str, float]) -> list[str]:
        return [title for title, power in powers.items() if power > GOAL]

    powers = best(lambda: {t: exponent(p) for t, p in curves(GROWN, ("sjf",))}, too_steep)
    for title, power in powers.items():
        print(f"growth of {title}: jobs to the power of {power:.2f}; at most {GOAL}")
    if slow := slower(found, known) + too_steep(powers):
        print(f"slower than it was: {', '.join(slow)}", file=sys.stderr)
        return 1
    if not known:
        print(f"no figure is stored for {name}: {json.dumps(found)}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
