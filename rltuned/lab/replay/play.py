"""A scenario played by the kernel: who orders, and what came of it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from rltuned.core.pools import numbered
from rltuned.core.slurm_plan import NodeSpace, empty_plan, planned_limits_s
from rltuned.domain.cluster import Partition, Resources
from rltuned.domain.units import GpuType, JobId, NodeName
from rltuned.errors import TraceError
from rltuned.lab.kernel import loop
from rltuned.lab.kernel.compiler import FloatArray, IntArray
from rltuned.lab.kernel.cycles import NO_CYCLES, Cycles
from rltuned.lab.kernel.demand import NO_DEMAND
from rltuned.lab.kernel.loop import Faults, Log
from rltuned.lab.kernel.ranking import FIXED, NO_EYES, Eyes, Ranking
from rltuned.lab.kernel.run_times import NOTHING_KNOWN
from rltuned.lab.kernel.state import NO_PLAN, Setup, Shares, Slurm, empty_queue, empty_state
from rltuned.lab.replay.scenario import Scenario
from rltuned.sim.cluster import Cluster, idle_node
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import NodeFault, World

CHANGES = {NodeFault.FAIL: loop.FAIL, NodeFault.DRAIN: loop.DRAIN, NodeFault.RESUME: loop.RESUME}


@dataclass(frozen=True, slots=True)
class Played:
    """What happened to each job, in trace order; shares of job i: rows offset[i]:offset[i+1].

    decisions: how often the queue was ranked. cycles: of the daemon, see kernel/cycles.cycle.
    writes: (n,) how often it wrote each job. lost_gpu_s: of attempts that a failed node cut short.
    """

    start_s: FloatArray
    end_s: FloatArray
    offset: IntArray
    shares: Shares
    decisions: int
    cycles: Log
    writes: IntArray
    lost_gpu_s: float


def played_by(
    world: World, decisions: int, written: Mapping[JobId, int], cycles: Log | None = None
) -> Played:
    """What a world of objects left behind at its end."""
    runs, offset = [world.finished[n] for n in range(1, len(world.jobs) + 1)], [0]
    taken: list[tuple[int, int]] = []
    place = {node.name: at for at, node in enumerate(world.cluster.nodes)}
    for run in runs:
        gpus = Counter[int]()
        for share in run.shares:
            gpus[place[share.node]] += share.taken.gpus
        taken += gpus.items()
        offset.append(len(taken))
    node, gpus_of = np.array(taken, dtype=np.int64).reshape(-1, 2).T
    nothing = np.zeros(0, dtype=np.int64)
    return Played(
        start_s=np.array([run.started_at for run in runs]),
        end_s=np.array([run.ended_at for run in runs]),
        offset=np.array(offset),
        shares=Shares(node, nothing, gpus_of, nothing, nothing),
        decisions=decisions,
        cycles=cycles or [],
        writes=np.array([written.get(JobId(n), 0) for n in range(1, len(runs) + 1)]),
        lost_gpu_s=world.lost_gpu_s,
    )


@cache
def load() -> None:
    """Compile the kernel, or read it from disk, before a stop-watch runs."""
    node = idle_node("n", GpuType("g"), Resources(1, 1, 1), ("p",))
    cluster = Cluster("tiny", (node,), (Partition("p", default=True),))
    zero, none = np.zeros(1), np.zeros(1, dtype=np.int64)
    ranking = Ranking(
        FIXED, zero, zero, zero, zero, np.zeros((1, 3)), np.ones(2), none, zero, NOTHING_KNOWN,
        NO_DEMAND, False,
    )  # fmt: skip
    run(Scenario.of(cluster, (TraceJob("1", 0.0, 1.0, 1),)), ranking)


def setup_of(scenario: Scenario) -> Setup:
    """The fixed side of a run; its own copy of what faults change."""
    prepared, rules = scenario.prepared, scenario.rules
    hardware = prepared.hardware._replace(member=prepared.hardware.member.copy())
    spread, easy = rules.placement == "spread", rules.backfill != "none"
    slurm, jobs = slurm_of(scenario), prepared.jobs
    if slurm.on:
        jobs = jobs._replace(limit_s=planned_limits_s(jobs.limit_s))
    return Setup(hardware, prepared.shapes, jobs, spread, easy, slurm)


def slurm_of(scenario: Scenario) -> Slurm:
    """What Slurm's own passes go by."""
    rules = scenario.rules
    if rules.backfill != "slurm":
        nobody = np.zeros(0, dtype=np.int64)
        return Slurm(False, rules.parameters, nobody, nobody)
    jobs, known = scenario.jobs, dict[tuple[int, str, int], int]()
    users, count = numbered([job.user for job in jobs])
    users = users if count else np.arange(len(jobs))
    parts = scenario.prepared.shapes.partition[scenario.prepared.jobs.shape]
    accounts = zip(users.tolist(), [job.account for job in jobs], parts.tolist(), strict=True)
    assoc = [known.setdefault(one, len(known)) for one in accounts]
    return Slurm(True, rules.parameters, users, np.array(assoc, dtype=np.int64))


def plan_for(setup: Setup) -> NodeSpace:
    """Room for the plan of a pass."""
    slurm = setup.slurm
    if not slurm.on:
        return NO_PLAN
    most = min(slurm.rules.bf_max_job_test, len(slurm.user)) + 1
    partitions, nodes = setup.hardware.member.shape
    users, assocs = (int(numbers.max()) + 1 for numbers in (slurm.user, slurm.assoc))
    return empty_plan(most, nodes, partitions, users, assocs)


def faults_of(scenario: Scenario) -> Faults:
    """What befalls the nodes, in order of time. Raises TraceError: no such node."""
    place = {node.name: at for at, node in enumerate(scenario.cluster.nodes)}
    ordered = sorted(scenario.faults, key=lambda f: f.at_s)
    for fault in ordered:
        if fault.node not in place:
            raise fault.no_node()
    return Faults(
        np.array([f.at_s for f in ordered], dtype=np.float64),
        np.array([place[NodeName(f.node)] for f in ordered], dtype=np.int64),
        np.array([CHANGES[f.change] for f in ordered], dtype=np.int64),
        np.zeros(1),
    )


def run(
    scenario: Scenario,
    ranking: Ranking,
    *,
    cycles: Cycles = NO_CYCLES,
    eyes: Eyes = NO_EYES,
    arrive_s: FloatArray | None = None,
) -> Played:
    """Play to the end of the last job. ranking: of the queue, or of Slurm beside a daemon.
    arrive_s: (n,) when each job comes, if not at its submission. Raises TraceError: a job never
    started.
    """
    jobs, setup, faults = scenario.prepared.jobs, setup_of(scenario), faults_of(scenario)
    state = empty_state(setup.hardware, setup.shapes, jobs, plan_for(setup))
    arrive_s = jobs.submit_s if arrive_s is None else arrive_s
    queue = empty_queue(setup, ranking.key, arrive_s, fixed=ranking.rule == FIXED)
    passes, log = loop.play(setup, state, ranking, queue, cycles, eyes, faults)
    stuck = np.flatnonzero(np.isnan(state.start_s))
    if len(stuck):
        down = ": the nodes they need are down or drained to the end" if len(faults.at_s) else ""
        raise TraceError(f"{len(stuck)} jobs never started, the first is row {stuck[0] + 1}{down}")
    return Played(
        start_s=state.start_s,
        end_s=state.start_s + jobs.runs_s,
        offset=np.append(jobs.offset, len(state.shares.node)),
        shares=state.shares,
        decisions=len(log) if len(cycles.managed) else int(passes),
        cycles=log,
        writes=cycles.writes,
        lost_gpu_s=float(faults.lost_gpu_s[0]),
    )
