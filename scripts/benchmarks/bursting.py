"""Decisions while 10,000 jobs arrive at once, at the paper's queue sizes (its section 5.7).

The paper stress-tested with "up to 10,000 concurrent job arrivals" and gives the latency of a
decision by the size of its queue, beyond which its design sees no job. So the queue is the first so
many of the burst; beside it stands the same decision over all of them, which ours makes.
"""

import resource
import time
from pathlib import Path
from statistics import median
from typing import Final

from rltuned.core.decide import Knobs, decide
from rltuned.daemon.gc_control import uncollected
from rltuned.policies.actor import Actor, load_actor
from rltuned.solver import cbc
from scripts.benchmarks import PAPER, Figure
from scripts.benchmarks.deciding import queue_of

BURST: Final = 10_000
PAPER_S: Final = {128: 7.8, 256: 9.8, 512: 14.3, 1_024: 22.8}
NODES: Final = 100
RUNNING: Final = 150
ROUNDS: Final = 15
TOP_K: Final = 16
"""The upper end of what the paper solves for (8 to 16)."""


def measure(bundle: Path) -> list[Figure]:
    """Median and slowest wall time, and processor seconds (the solver's too), by queue size.

    The placement of the first 16 is solved by CBC.

    Raises:
        ModelError: the bundle cannot be used.
    """
    actor = load_actor(bundle)
    found = []
    for size, paper_s in PAPER_S.items():
        found += _figures(f"decide_burst_queue_{size}", actor, size, paper_s)
    # the whole burst has no counterpart; it stands beside the paper's smallest queue
    return found + _figures(f"decide_burst_all_{BURST}", actor, BURST, PAPER_S[128])


def _figures(name: str, actor: Actor, size: int, paper_s: float) -> list[Figure]:
    knobs = Knobs(top_k=TOP_K, placement="milp")
    snapshot, solver = queue_of(size, NODES, RUNNING), cbc()
    wall, cpu = [], []
    for number in range(ROUNDS + 1):
        began, spent = time.perf_counter(), _processor_s()
        with uncollected():
            decide(snapshot, actor, knobs, solver)
        if number:
            wall.append(time.perf_counter() - began)
            cpu.append(_processor_s() - spent)
    source = f"{PAPER}, section 5.7: decision latency"
    return [
        Figure(name, median(wall), "s", paper_s, source),
        Figure(f"{name}_slowest", max(wall), "s", paper_s, source),
        Figure(f"{name}_processor", median(cpu), "s", paper_s, source),
    ]


def _processor_s() -> float:
    """Ours and the solver's, which is another program."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime
