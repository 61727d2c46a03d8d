"""The cluster inside: RLTune's 13-GPU testbed under a stream of generated jobs, time sped up.

`rltuned run --backend sim` runs the daemon's own loop against it.
"""

from dataclasses import replace
from typing import Final

from rltuned.domain.cluster import Partition
from rltuned.domain.plan import Clock
from rltuned.sim.backend import SimBackend
from rltuned.sim.cluster import Cluster
from rltuned.sim.natural import Natural
from rltuned.sim.presets import preset
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Rules, World

STREAM_JOBS: Final = 4_096
FREE_SHARE: Final = 0.3
MIN_SUBMITTED: Final = 60
MIN_PENDING: Final = 20
SLA: Final = "sla"
SLA_EVERY: Final = 15
_NATURAL: Final = Natural(kind="multifactor")
SETTLED_S: Final = 30.0
"""The first look comes so long after the last submit that no job is too young to be touched."""


class ScaledClock:
    """A clock that shows simulated time: `speed` seconds pass while one passes outside."""

    def __init__(self, inner: Clock, speed: float) -> None:
        if not speed > 0:
            raise ValueError(f"a clock cannot run at speed {speed}")
        self._inner = inner
        self._speed = speed
        self._started_at = inner.now()
        self._origin_s = inner.monotonic()

    def now(self) -> float:
        return self._started_at + self.monotonic()

    def monotonic(self) -> float:
        return (self._inner.monotonic() - self._origin_s) * self._speed

    def wait(self, seconds: float) -> bool:
        return self._inner.wait(seconds / self._speed)


def demo_trace(seed: int) -> tuple[Cluster, tuple[TraceJob, ...]]:
    """The testbed and its stream of jobs, in the trace's own time; the same seed, the same jobs."""
    jobs = synthesize(
        "testbed-1024", jobs=STREAM_JOBS, seed=seed, limits="weak", free_share=FREE_SHARE
    ).jobs
    jobs = tuple(
        replace(j, partition=SLA) if i % SLA_EVERY == 0 else j for i, j in enumerate(jobs, 1)
    )
    return _with_sla(replace(preset("testbed"), name="demo")), jobs


def demo_world(seed: int, now: float) -> World:
    """The testbed, warmed up so that jobs run and a queue waits at `now` (Unix seconds).

    Its Slurm runs multifactor, and every fifteenth job goes to a partition `sla`, so that there is
    something to leave alone. The stream goes on for more than a week of simulated time; the same
    seed gives the same jobs.
    """
    cluster, jobs = demo_trace(seed)
    rules = Rules(natural=_NATURAL)
    ready_s = _ready(World(cluster, jobs, rules=rules))
    shift = now - ready_s
    world = World(cluster, (replace(j, submit_s=j.submit_s + shift) for j in jobs), rules=rules)
    world.advance(now)
    return world


def demo_backend(seed: int, clock: Clock) -> SimBackend:
    """A backend over the demo world that follows a clock (a ScaledClock to see it move)."""
    return SimBackend(demo_world(seed, clock.now()), clock.now)


def _with_sla(cluster: Cluster) -> Cluster:
    """The same nodes, in a second partition as well."""
    nodes = tuple(replace(n, partitions=(*n.partitions, SLA)) for n in cluster.nodes)
    return replace(cluster, nodes=nodes, partitions=(*cluster.partitions, Partition(SLA)))


def _ready(world: World) -> float:
    """When the queue is worth looking at, in the trace's own time."""
    while (time := world.next_time()) is not None:
        if world.now > 0 and time - world.now > SETTLED_S and _is_ready(world):
            return world.now + SETTLED_S
        world.step()
    return world.now


def _is_ready(world: World) -> bool:
    submitted = len(world.pending) + len(world.running) + len(world.finished)
    return submitted >= MIN_SUBMITTED and len(world.pending) >= MIN_PENDING
