"""The worlds of scripts/placement_study.py: clusters that their jobs fill, and how jobs are made.

Window i is generated from seed i, so windows are independent of each other. Submit times are
stretched until the mean demand over the arrivals is the asked part of the GPUs (see sim/reshape).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from rltuned.sim.cluster import Cluster, parse_cluster
from rltuned.sim.presets import preset
from rltuned.sim.reshape import scale
from rltuned.sim.run import Window, possible
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import Trace, TraceJob

Jobs = Callable[[int, int], tuple[TraceJob, ...]]
"""(count, seed) -> jobs in submit order."""
SMALLEST = 2
"""GPUs of the smallest nodes: larger jobs stay with their type, whose nodes can carry them."""
WIDE = 4
"""From so many GPUs on, a job keeps its usual CPUs: it would fit nowhere else."""
LONGEST_S = 86_400.0
"""Of heavy-tailed run times the longest would alone decide a window."""


def _cluster(name: str, *groups: tuple[str, int, str, int, int]) -> Cluster:
    """Groups of (prefix, nodes, GPU type, GPUs, CPUs) in one partition."""
    text = '[[partitions]]\nname = "gpu"\ndefault = true\n'
    for prefix, count, kind, gpus, cpus in groups:
        text += (
            f'\n[[nodes]]\nname = "{prefix}[1-{count}]"\ngpu_type = "{kind}"\ngpus = {gpus}\n'
            f'cpus = {cpus}\nmem_mib = {gpus * 60_000}\npartitions = ["gpu"]\n'
        )
    return parse_cluster(text, "study", name)


TYPED = _cluster(
    "typed-80",
    ("h", 2, "V100", 8, 96), ("m", 4, "MISC", 8, 96),
    ("p", 8, "P100", 2, 64), ("t", 8, "T4", 2, 96),
)  # fmt: skip
"""80 GPUs of four types in the mould of Alibaba PAI."""
PHILLY = _cluster("philly-48", ("a", 4, "p100", 2, 12), ("b", 5, "p100", 8, 48))
"""A quarter of the slice that RLTune's repository simulates, with the same two kinds of nodes."""
HELIOS = _cluster("helios-64", ("v", 8, "v100", 8, 48))
PAI = _cluster(
    "pai-40",
    ("h", 1, "V100", 8, 96), ("m", 2, "MISC", 8, 96),
    ("p", 4, "P100", 2, 64), ("t", 4, "T4", 2, 96),
)  # fmt: skip
TESTBED = preset("testbed")


@dataclass(frozen=True, slots=True)
class World:
    """Where the jobs of a window run, and how they are made.

    most_gpus: larger jobs are left out. count, warmup: jobs of a window, and of them not scored.
    """

    cluster: Cluster
    make: Jobs
    most_gpus: int = 1_024
    count: int = 192
    warmup: int = 48


def window(world: World, number: int, load: float) -> Window:
    """Window `number` of a world; the first `warmup` jobs run but are not scored."""
    made = world.make(2 * world.count, number)
    fitting, _ = possible(made, world.cluster, skip=True)
    kept = [j for j in fitting if j.gpus <= world.most_gpus][: world.count]
    capped = tuple(replace(j, duration_s=min(j.duration_s, LONGEST_S)) for j in kept)
    scaled = scale(Trace(capped, {}), load, world.cluster.gpus).jobs
    jobs = tuple(replace(j, submit_s=float(round(j.submit_s))) for j in scaled)
    return Window(number, jobs, world.warmup)


def _generated(kind: str, free_share: float = 0.0) -> Jobs:
    def make(count: int, seed: int) -> tuple[TraceJob, ...]:
        return synthesize(kind, jobs=count, seed=seed, limits="weak", free_share=free_share).jobs

    return make


def _typed(free_share: float) -> Jobs:
    """The testbed's runs and limits, sizes and types drawn for the cluster `typed-80`."""

    def make(count: int, seed: int) -> tuple[TraceJob, ...]:
        rng = np.random.default_rng((seed, 5))
        nodes = TYPED.nodes
        sizes = rng.choice((1, 2, 4, 8, 16), size=count, p=(0.45, 0.2, 0.2, 0.1, 0.05))
        at = rng.choice(len(nodes), size=count, p=[n.total.gpus / TYPED.gpus for n in nodes])
        free = rng.random(count) < free_share
        found = []
        for i, job in enumerate(_generated("testbed-1024")(count, seed)):
            kind, each = nodes[at[i]].gpus[0].gpu_type, nodes[at[i]].total.gpus
            gpus = int(min(sizes[i], 2 * each))
            types = () if free[i] and gpus <= SMALLEST else (str(kind),)
            found.append(
                replace(job, gpus=gpus, gpu_types=types, cpus=4 * gpus, mem_mib=12_000 * gpus)
            )
        return tuple(found)

    return make


def _cpu_bound(jobs: Jobs) -> Jobs:
    """CPUs per GPU between 1 and 12: some nodes run out of CPUs, some of GPUs."""

    def make(count: int, seed: int) -> tuple[TraceJob, ...]:
        rng = np.random.default_rng((seed, 7))
        per_gpu = rng.choice((1, 2, 4, 8, 12), size=count, p=(0.2, 0.3, 0.25, 0.15, 0.1))
        return tuple(
            replace(job, cpus=int(job.gpus * each) if job.gpus < WIDE else job.cpus)
            for job, each in zip(jobs(count, seed), per_gpu, strict=True)
        )

    return make


def _exclusive(jobs: Jobs, share: float) -> Jobs:
    """Part of the jobs asks for whole nodes, as users do who once met a bad neighbour."""

    def make(count: int, seed: int) -> tuple[TraceJob, ...]:
        alone = np.random.default_rng((seed, 11)).random(count) < share
        made = jobs(count, seed)
        return tuple(replace(j, exclusive=bool(a)) for j, a in zip(made, alone, strict=True))

    return make


_TESTBED, _MIXED = _generated("testbed-1024"), _generated("testbed-1024", 0.5)
WORLDS = {
    "philly": World(PHILLY, _generated("philly-like"), most_gpus=16),
    "helios": World(HELIOS, _generated("helios-like"), most_gpus=32),
    "pai": World(PAI, _generated("pai-like", 0.5)),
    "typed": World(TYPED, _typed(0.0)),
    "typed-mixed": World(TYPED, _typed(0.5)),
    "typed-exclusive": World(TYPED, _exclusive(_typed(0.5), 0.25)),
    "testbed-mixed": World(TESTBED, _MIXED),
    "testbed-cpu": World(TESTBED, _cpu_bound(_MIXED)),
    "testbed-exclusive": World(TESTBED, _exclusive(_TESTBED, 0.5)),
    "testbed-all-exclusive": World(TESTBED, _exclusive(_TESTBED, 1.0)),
}
"""-mixed, pai: half of the jobs accept other types; -exclusive: a part of the jobs asks for whole
nodes; -cpu: CPUs per GPU differ from job to job."""
