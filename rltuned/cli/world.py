"""The world and its clock, by name: the real Slurm, or the cluster built in."""

from collections.abc import Callable

from rltuned.cli.flags import BackendChoice
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.lease import Lease
from rltuned.domain.kinds import Digester
from rltuned.domain.plan import Backend, Clock
from rltuned.errors import JournalError
from rltuned.journal.store import read_salt
from rltuned.run import Call
from rltuned.settings import Loaded
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.pyslurm import ReaderChoice
from rltuned.slurm.run import Fence


def kept_digester(loaded: Loaded) -> Digester | None:
    """What makes the kinds for a command that only looks; None = no kinds, or no readable salt."""
    wanted = loaded.settings.predictor.kinds
    try:
        salt = read_salt(loaded.settings.daemon.state_dir) if wanted else None
    except JournalError:
        return None  # `rltuned check` says what is wrong with it
    return None if salt is None else Digester(salt, wanted)


def open_world(
    world: BackendChoice,
    system: SystemClock | None = None,
    *,
    speed: float = 1.0,
    seed: int = 0,
    on_call: Callable[[Call], None] = lambda _call: None,
    on_reading: Callable[[ReaderChoice], None] = lambda _reading: None,
    lease: Lease | None = None,
    digester: Callable[[Loaded], Digester | None] = kept_digester,
) -> tuple[Clock, Callable[[Loaded], Backend]]:
    """The world's clock, and what makes a backend. system: real time. on_reading: called
    with each new reader of the jobs. lease: asked before every batch of updates. digester: makes
    the kinds; called at every reload.
    """
    system = system or SystemClock()
    if world is BackendChoice.SLURM:
        return system, lambda loaded: real_slurm(
            loaded, system, on_call, lease, on_reading, digester=digester(loaded)
        )
    from rltuned.sim.backend import ScaledClock, demo_backend  # noqa: PLC0415 - simulated clusters only

    clock = ScaledClock(system, speed)
    simulated = demo_backend(seed, clock)
    return clock, lambda _: simulated


def real_slurm(
    loaded: Loaded,
    clock: SystemClock,
    on_call: Callable[[Call], None] = lambda _call: None,
    lease: Lease | None = None,
    on_reading: Callable[[ReaderChoice], None] = lambda _reading: None,
    *,
    digester: Digester | None = None,
) -> SlurmBackend:
    """The real cluster, called as the settings say."""
    max_age_s = loaded.settings.daemon.max_snapshot_age_s
    fence = Fence(clock.readings, max_age_s, *((lease.lost,) if lease else ()))
    return SlurmBackend(
        loaded.settings.slurm.cli(),
        clock.now,
        on_call=on_call,
        fair_shares=loaded.settings.limits.write_mode == "priority",
        fence=fence,
        pyslurm=loaded.settings.slurm.pyslurm_python,
        on_reading=on_reading,
        digester=digester,
    )
