"""The world and its clock, by name: the real Slurm, or the cluster built in."""

from collections.abc import Callable
from dataclasses import dataclass

from rltuned.cli.flags import World
from rltuned.daemon.clock import SystemClock
from rltuned.domain.ports import Backend, Clock
from rltuned.settings import Loaded
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.commands import CallRecord


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command acts.

    Attributes:
        system: real time, for what is timed and what is waited for.
        clock: the world's time.
        backend: makes the backend from settings; called again at every reload.
    """

    system: SystemClock
    clock: Clock
    backend: Callable[[Loaded], Backend]


def _ignore(_: CallRecord) -> None:
    """Nobody counts."""


def open_world(
    world: World,
    *,
    speed: float = 1.0,
    seed: int = 0,
    on_call: Callable[[CallRecord], None] = _ignore,
) -> Place:
    """Make clock and backend. on_call: told of every Slurm command that ends."""
    system = SystemClock()
    if world is World.SLURM:
        return Place(system, system, lambda loaded: real_slurm(loaded, system, on_call))
    from rltuned.sim.demo import ScaledClock, demo_backend  # noqa: PLC0415 - numba's floor

    clock = ScaledClock(system, speed)
    simulated = demo_backend(seed, clock)
    return Place(system, clock, lambda _: simulated)


def real_slurm(
    loaded: Loaded, clock: Clock, on_call: Callable[[CallRecord], None] = _ignore
) -> SlurmBackend:
    """The real cluster, called as the settings say."""
    return SlurmBackend(loaded.settings.slurm.cli(), clock.now, on_call=on_call)
