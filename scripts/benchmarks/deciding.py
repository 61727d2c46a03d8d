"""The brain: state matrix and actor, a whole decision, and decisions in a burst of 10,000 jobs.

The paper stress-tested with "up to 10,000 concurrent job arrivals" (section 5.7) and gives the
latency of a decision by the size of its queue, beyond which its design sees no job. So the queue is
the first so many of the burst; then the same decision over all of them, which rltuned makes.
"""

import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

from rltuned.core.capacity import Capacity
from rltuned.core.decide import Knobs, decide
from rltuned.core.features import FloatArray, encode
from rltuned.core.memory import RunTimeMemory
from rltuned.core.pools import Sizes, pools_of
from rltuned.daemon.loop import uncollected
from rltuned.domain.cluster import GpuCount, Node, Resources
from rltuned.domain.jobs import PendingJob, Request, RunningJob, Share
from rltuned.domain.snapshot import Context, Snapshot
from rltuned.domain.units import UNLIMITED_S, GpuType, JobId, NodeName, UnixTime
from rltuned.policies.actor import Actor, load_actor
from rltuned.policies.baselines import BASELINES
from rltuned.policies.predictor import load_predictor
from rltuned.solver import Cbc
from scripts.benchmarks import PAPER, Figure

NOW: Final = 1_000_000.0
JOBS: Final = 256
NODES: Final = 100
RUNNING: Final = 150
SEED: Final = 1
USERS: Final = 40
BURST: Final = 10_000
PREDICTOR: Final = Path("models/run-times")
PAPER_S: Final = {128: 7.8, 256: 9.8, 512: 14.3, 1_024: 22.8}
ROUNDS: Final = 15
TOP_K: Final = 16
"""The upper end of what the paper solves for (8 to 16)."""
_TYPES: Final = (("p100", 4), ("k80", 2), ("m40", 1))
_LIMITS_S: Final = (600.0, 3_600.0, 7_200.0, 86_400.0, UNLIMITED_S)


def queue_of(jobs: int, nodes: int, running: int) -> Snapshot:
    """A busy cluster of three GPU types; requests are shared objects, as the reader makes them."""
    draw = np.random.default_rng(SEED)
    hardware = tuple(_node(i, draw) for i in range(nodes))
    requests = [
        Request(Resources(gpus, 4 * gpus, 16_000 * gpus), limit_s)
        for gpus in (1, 1, 2, 4, 8)
        for limit_s in _LIMITS_S
    ]
    pending = tuple(
        PendingJob(
            job_id=JobId(i + 1),
            address=str(i + 1),
            submitted_at=UnixTime(NOW - 100_000 + i),
            eligible_at=UnixTime(NOW - 100_000 + i),
            request=requests[int(draw.integers(len(requests)))],
            priority=int(draw.integers(1, 100_000)),
            partitions=("gpu",),
            user=f"user{i % USERS}",
        )
        for i in range(jobs)
    )
    runs = tuple(_run(i, hardware[i % nodes]) for i in range(running))
    return Snapshot(UnixTime(NOW), "bench", pending, runs, hardware)


def _node(number: int, draw: np.random.Generator) -> Node:
    kind, gpus = _TYPES[number % len(_TYPES)]
    free = int(draw.integers(0, gpus + 1))
    return Node(
        name=NodeName(f"n{number:04d}"),
        gpus=(GpuCount(GpuType(kind), gpus, free),),
        total=Resources(gpus, 16 * gpus, 64_000 * gpus),
        free=Resources(free, 16 * free, 64_000 * free),
        schedulable=True,
        partitions=("gpu",),
    )


def _run(number: int, node: Node) -> RunningJob:
    taken = Resources(1, 4, 16_000)
    return RunningJob(
        job_id=JobId(1_000_000 + number),
        started_at=UnixTime(NOW - 600.0),
        request=Request(taken, 3_600.0 * (1 + number % 3)),
        shares=(Share(node.name, taken, node.gpus[0].gpu_type),),
        partition="gpu",
    )


def median_s(work: Callable[[], object], rounds: int) -> float:
    """Median processor seconds of a piece of work; three rounds before it do not count."""
    for _ in range(3):
        work()
    seconds = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return median(seconds)


def measure_burst(bundle: Path) -> list[Figure]:
    """Median and largest processor seconds (the solver's too) by queue size.

    The placement of the first 16 is solved by CBC.

    Raises:
        ModelError: the bundle cannot be used.
    """
    actor = load_actor(bundle)
    found = []
    for size, paper_s in PAPER_S.items():
        found += _burst(f"decide_burst_queue_{size}", actor, size, paper_s)
    # the paper has no figure for the whole burst: its smallest queue stands in
    return found + _burst(f"decide_burst_all_{BURST}", actor, BURST, PAPER_S[128])


def _burst(name: str, actor: Actor, size: int, paper_s: float) -> list[Figure]:
    knobs = Knobs(top_k=TOP_K, placement="milp")
    snapshot, solver = queue_of(size, NODES, RUNNING), Cbc()
    cpu = []
    for number in range(ROUNDS + 1):
        spent = processor_s()
        with uncollected():
            decide(snapshot, actor, knobs, solver)
        if number:
            cpu.append(processor_s() - spent)
    source = f"{PAPER}, section 5.7: decision latency, wall"
    return [
        Figure(name, median(cpu), "s", paper_s, source),
        Figure(f"{name}_slowest", max(cpu), "s", paper_s, source),
    ]


def processor_s() -> float:
    """Of this process and of the solver, which is another program."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def measure(bundle: Path) -> list[Figure]:
    """State matrix and actor, and a whole decision with placement and plan.

    Raises:
        ModelError: the bundle cannot be used.
    """
    actor, few = load_actor(bundle), queue_of(JOBS, NODES, RUNNING)
    whole = median_s(lambda: decide(few, actor, Knobs()), 50)
    return [
        _scored(actor, few, 200, 0.7, f"{PAPER}, section 5.7: inference"),
        _scored(actor, queue_of(BURST, NODES, RUNNING), 20, 25.0, "goal of issue 21"),
        Figure(
            f"decide_{JOBS}_jobs_{NODES}_nodes",
            1e3 * whole,
            "ms",
            9_800.0,
            f"{PAPER}, decision at queue 256",
        ),
    ]


def measure_order() -> list[Figure]:
    """What the unit of the queue costs: pools, sizes, backlogs and places; of a whole decision."""
    found = []
    for count in (JOBS, 1_000, BURST):
        seen = queue_of(count, NODES, RUNNING)
        capacity, matrix = Capacity.of(seen), encode(seen.pending, seen)
        with uncollected():
            whole = median_s(partial(decide, seen, BASELINES["delay"], Knobs()), ROUNDS)
            spent = median_s(partial(_order, seen, capacity, matrix.area), ROUNDS)
        name = f"order_by_backlog_{count}_jobs_{NODES}_nodes"
        found.append(Figure(name, 1e3 * spent, "ms", 1e3 * whole, "the decision, same run"))
    return found


def _order(seen: Snapshot, capacity: Capacity, area: FloatArray) -> None:
    pools = pools_of(seen.pending, capacity, seen.room_in_arrays())
    sizes = Sizes(capacity)
    for request, partitions in {(id(j.request), j.partitions): (j.request, j.partitions)
                                for j in seen.pending}.values():  # fmt: skip
        sizes.of(request, partitions)
    pools.backlogs_s(area)
    pools.places(area)


def _scored(actor: Actor, queue: Snapshot, rounds: int, reference: float, source: str) -> Figure:
    with uncollected():
        name = f"state_actor_predictor_{len(queue.pending)}_jobs_{NODES}_nodes"
        return Figure(name, 1e3 * median_s(scorer(actor, queue), rounds), "ms", reference, source)


def scorer(actor: Actor, queue: Snapshot) -> Callable[[], object]:
    """Run times predicted, state matrix and delays; no job has ended since the look before."""
    memory = RunTimeMemory(load_predictor(PREDICTOR).logits)
    memory.submit(queue.pending)

    def score() -> object:
        context = Context(run_times=memory.predicted(queue.pending))
        return actor.wish(encode(queue.pending, queue, context))

    return score
