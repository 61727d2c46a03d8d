"""The simulated cluster behind the two methods of the Backend port."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, cast

from rltuned.domain import plan as actions
from rltuned.domain.cluster import GpuCount, Node, Partition, Resources
from rltuned.domain.jobs import PendingJob, RunningJob
from rltuned.domain.plan import (
    NICE,
    OVERSUBSCRIBE,
    PRIORITY,
    RELEASE,
    SITE_FACTOR,
    Action,
    Clock,
    Field,
)
from rltuned.domain.snapshot import RememberedBy, Snapshot, nothing
from rltuned.domain.units import GpuType, JobId, UnixTime
from rltuned.sim.cluster import Cluster, preset
from rltuned.sim.dispatch import Natural, Pending
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Rules, Running, World


class SimBackend:
    """Shows a world as Slurm would show it, and does to it what Slurm would do. now: the world
    catches up with it before every look and change (a daemon); None = the caller moves time.
    """

    def __init__(self, world: World, now: Callable[[], float] | None = None) -> None:
        self.world = world
        self._now = now

    def advance(self, to_time: float) -> None:
        """Let the simulated world run up to a time."""
        self.world.advance(to_time)

    def observe(self, remembered: RememberedBy = nothing) -> Snapshot:
        """The queue, the running jobs and the nodes as they are now. Holds no run time."""
        self._catch_up()
        return snapshot_of(self.world, remembered)

    def apply(self, plan: actions.Plan) -> tuple[actions.Outcome, ...]:
        """Carry out a plan, then let the scheduler look at the new order, as Slurm does."""
        self._catch_up()
        outcomes = tuple(self._carry_out(action) for action in plan.actions)
        if self._now is not None and not plan.is_empty:
            self.world.schedule()
        return outcomes

    def _catch_up(self) -> None:
        if self._now is not None:
            self.world.advance(self._now())

    def _carry_out(self, action: Action) -> actions.Outcome:
        job = self.world.pending.get(action.target.job_id)
        if job is None or job.job.submit_s != action.target.submitted_at:
            return actions.Outcome(action, actions.Result.GONE, "no such pending job")
        put = _PUT.get(action.field)
        if put is None:
            why = f"a simulated job has no {action.field.label} to change"
            return actions.Outcome(action, actions.Result.REFUSED, why)
        put(job, action)
        return actions.Outcome(action, actions.Result.APPLIED)


def _freeze(job: Pending, action: Action) -> None:
    job.frozen, job.nice = action.new, 0


def _release(job: Pending, action: Action) -> None:
    job.frozen, job.nice = None, action.nice or 0


def _set_site_factor(job: Pending, action: Action) -> None:
    job.site_factor = action.new


def _set_nice(job: Pending, action: Action) -> None:
    job.nice = action.new


def _share(job: Pending, action: Action) -> None:
    # NO afterwards isolates the job again; that it then holds only what it asked for makes no
    # difference to anybody else
    job.request = replace(job.request, exclusive=action.new == "NO")
    job.oversubscribe = action.new


_PUT: Final[Mapping[Field, Callable[[Pending, Action], None]]] = {
    PRIORITY: _freeze,
    SITE_FACTOR: _set_site_factor,
    RELEASE: _release,
    NICE: _set_nice,
    OVERSUBSCRIBE: _share,
}
"""What Slurm would do to a job; a field that is not named is refused."""


def snapshot_of(world: World, remembered: RememberedBy = nothing) -> Snapshot:
    """The world as a scheduler may know it."""
    says = remembered(world.cluster.name, world.now)
    return Snapshot(
        taken_at=UnixTime(world.now),
        cluster=world.cluster.name,
        pending=tuple(says.mark(_pending(world, job)) for job in world.pending.values()),
        running=tuple(_running(world, run) for run in world.running.values()),
        nodes=_nodes(world),
        partitions=world.cluster.partitions,
        preemption=False,
        priorities=world.rules.natural.system,
    )


def _pending(world: World, job: Pending) -> PendingJob:
    shown = world.priority(job), job.nice, job.site_factor, job.reason, job.oversubscribe
    kept = world.shown.get(("pending", job.number))
    if kept is not None and kept[0] == (shown, job.frozen is None, job.request):
        return cast("PendingJob", kept[1])
    submitted_at = UnixTime(job.job.submit_s)
    made = PendingJob(
        job_id=JobId(job.number),
        address=str(job.number),
        submitted_at=submitted_at,
        eligible_at=submitted_at,
        request=job.request,
        priority=shown[0],
        partitions=(job.partition.name,),
        user=job.job.user,
        account=job.job.account,
        qos=job.job.qos,
        nice=job.nice,
        # as sprio: a frozen job is no longer listed with its factors
        site_factor=job.site_factor if job.frozen is None else None,
        reason=job.reason,
        oversubscribe=job.oversubscribe or ("NO" if job.request.exclusive else "OK"),
    )
    world.shown["pending", job.number] = ((shown, job.frozen is None, job.request), made)
    return made


def _running(world: World, run: Running) -> RunningJob:
    job = run.pending
    kept = world.shown.get(("running", job.number))
    if kept is not None and kept[0] == run.started_at:
        return cast("RunningJob", kept[1])
    made = RunningJob(
        job_id=JobId(job.number),
        started_at=UnixTime(run.started_at),
        request=job.request,
        shares=run.shares,
        partition=job.partition.name,
        user=job.job.user,
        account=job.job.account,
        submitted_at=UnixTime(job.job.submit_s),
    )
    world.shown.pop(("pending", job.number), None)
    world.shown["running", job.number] = (run.started_at, made)
    return made


def _nodes(world: World) -> tuple[Node, ...]:
    """All nodes; those that changed since the last look are made again."""
    capacity = world.capacity
    free = zip(
        capacity.free.of_type[:-1].T.tolist(),
        capacity.free.cpus.tolist(),
        capacity.free.mem_mib.tolist(),
        capacity.usable.tolist(),
        strict=True,
    )
    nodes = []
    for idle, amounts in zip(world.cluster.nodes, free, strict=True):
        state = (tuple(amounts[0]), *amounts[1:], world.is_down(idle.name))
        kept = world.shown.get(("node", idle.name))
        if kept is None or kept[0] != state:
            by_type = dict(zip(capacity.gpu_types, amounts[0], strict=True))
            kept = (state, _node(world, idle, by_type, amounts[1], amounts[2]))
            world.shown["node", idle.name] = kept
        nodes.append(cast("Node", kept[1]))
    return tuple(nodes)


def _node(
    world: World, idle: Node, gpus: Mapping[GpuType, int], free_cpus: int, free_mem_mib: int
) -> Node:
    counts = tuple(GpuCount(g.gpu_type, g.total, gpus[g.gpu_type]) for g in idle.gpus)
    free = Resources(sum(g.free for g in counts), free_cpus, free_mem_mib)
    return replace(
        idle,
        gpus=counts,
        free=free,
        schedulable=world.usable(idle.name),
        state=_state(world, idle, free),
    )


def _state(world: World, idle: Node, free: Resources) -> str:
    if world.is_down(idle.name):
        return "DOWN"
    base = "IDLE" if free == idle.total else "MIXED"
    if base == "MIXED" and not any((free.gpus, free.cpus)):
        base = "ALLOCATED"
    return base if world.usable(idle.name) else f"{base}+DRAIN"


# The cluster inside: RLTune's 13-GPU testbed under a stream of generated jobs, time sped up.
#
# `rltuned run --backend sim` runs the daemon's own loop against it.


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
