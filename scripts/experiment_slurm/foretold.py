"""What the simulator says of each arm: the same jobs, limits, order and interval."""

from dataclasses import replace

from rltuned.core.joint import Tuning
from rltuned.core.sharing import Sharing
from rltuned.sim.metrics import Schedule
from rltuned.sim.natural import Natural
from rltuned.sim.presets import preset
from rltuned.sim.protocol import Protocol, jointly
from rltuned.sim.run import simulate, whole
from rltuned.sim.world import Rules
from rltuned.solver import cbc
from scripts.experiment_slurm.arms import Arm, natural_of
from scripts.experiment_slurm.jobs import job_set
from scripts.experiment_slurm.store import Key

TOP_K = 16


def foretell(key: Key, arm: Arm, interval_s: float, *, held_s: float = 0.0) -> Schedule:
    """Play a run in the simulator.

    Args:
        key: which.
        arm: its arm; both write modes are the same there.
        interval_s: between cycles, in the trace's seconds.
        held_s: how much longer than its payload a job held its GPUs on the real Slurm.
    """
    jobs = job_set(key.jobs, key.seed, whole=arm.whole)
    longer = tuple(replace(j, duration_s=j.duration_s + held_s) for j in jobs)
    window = whole(longer, first=None, warmup=0)[0]
    order: Natural = natural_of(arm)
    plain = Protocol(rules=Rules(natural=order))
    if not arm.write_mode:
        policy = "fcfs" if arm.fifo else "multifactor"
        return simulate(window, preset("testbed"), policy, plain)
    protocol = replace(plain, mode="cycle", interval_s=interval_s)
    if arm.guided:
        tuning = Tuning(sharing=Sharing(frozenset({"gpu"})))
        protocol = jointly(protocol, TOP_K, tuning, cbc())
    return simulate(window, preset("testbed"), "model:rltune", protocol)
