"""The simulated cluster behind the two methods of the Backend port, and the one of the demo."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from rltuned.domain import plan as actions
from rltuned.domain.cluster import GpuCount, Node, Partition, Resources
from rltuned.domain.jobs import PendingJob, RunningJob
from rltuned.domain.plan import NICE, OVERSUBSCRIBE, PRIORITY, RELEASE, SITE_FACTOR, Action, Clock
from rltuned.domain.snapshot import RememberedBy, Snapshot, nothing
from rltuned.domain.units import GpuType, JobId, UnixTime
from rltuned.sim.cluster import preset
from rltuned.sim.synth import synthesize
from rltuned.sim.world import Natural, Pending, Rules, Run, World


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
        if action.field is PRIORITY:
            job.frozen, job.nice = action.new, 0
        elif action.field is RELEASE:
            job.frozen, job.nice = None, action.nice or 0
        elif action.field is SITE_FACTOR:
            job.site_factor = action.new
        elif action.field is NICE:
            job.nice = action.new
        elif action.field is OVERSUBSCRIBE:
            # NO afterwards isolates the job again; that it then holds only what it asked for makes
            # no difference to anybody else
            job.request = replace(job.request, exclusive=action.new == "NO")
            job.oversubscribe = action.new
        else:
            why = f"a simulated job has no {action.field.label} to change"
            return actions.Outcome(action, actions.Result.REFUSED, why)
        return actions.Outcome(action, actions.Result.APPLIED)


def snapshot_of(world: World, remembered: RememberedBy = nothing) -> Snapshot:
    """The world as a scheduler may know it."""
    says = remembered(world.cluster.name, world.now)
    return Snapshot(
        taken_at=UnixTime(world.now),
        cluster=world.cluster.name,
        pending=tuple(says.mark(_pending(world, job)) for job in world.pending.values()),
        running=tuple(_running(run) for run in world.running.values()),
        nodes=_nodes(world),
        partitions=world.cluster.partitions,
        preemption=False,
        priorities=world.rules.natural.system,
    )


def _pending(world: World, job: Pending) -> PendingJob:
    """Kept as long as nothing of it changes, which saves a fifth of a play."""
    priority, submitted_at = world.priority(job), UnixTime(job.job.submit_s)
    numbers = priority, job.nice, job.site_factor, job.frozen
    now = *numbers, job.reason, job.request, job.oversubscribe
    if job.shown is not None and job.shown[0] == now:
        return job.shown[1]
    made = PendingJob(
        job_id=JobId(job.number),
        address=str(job.number),
        submitted_at=submitted_at,
        eligible_at=submitted_at,
        request=job.request,
        priority=priority,
        partitions=(job.partition,),
        user=job.job.user,
        account=job.job.account,
        qos=job.job.qos,
        nice=job.nice,
        # as sprio: a frozen job is no longer listed with its factors
        site_factor=job.site_factor if job.frozen is None else None,
        reason=job.reason,
        oversubscribe=job.oversubscribe or ("NO" if job.request.exclusive else "OK"),
    )
    job.shown = now, made
    return made


def _running(run: Run) -> RunningJob:
    return RunningJob(
        job_id=JobId(run.number),
        started_at=UnixTime(run.started_at),
        request=run.pending.request,
        shares=run.shares,
        partition=run.pending.partition,
        user=run.job.user,
        account=run.job.account,
        submitted_at=UnixTime(run.job.submit_s),
    )


def _nodes(world: World) -> tuple[Node, ...]:
    """Those that changed since the last look are made again."""
    capacity, nodes = world.capacity, world.cluster.nodes
    amounts = zip(
        capacity.free.of_type[:-1].T.tolist(),
        capacity.free.cpus.tolist(),
        capacity.free.mem_mib.tolist(),
        capacity.usable.tolist(),
        [node.name in world.down for node in nodes],
        strict=True,
    )
    for idle, now in zip(nodes, amounts, strict=True):
        if world.nodes_shown.get(idle.name, ((), idle))[0] != now:
            world.nodes_shown[idle.name] = now, _node(idle, capacity.gpu_types, *now)
    return tuple(world.nodes_shown[node.name][1] for node in nodes)


def _node(  # noqa: PLR0917 - by place
    idle: Node,
    types: Sequence[GpuType],
    row: list[int],
    cpus: int,
    mem: int,
    usable: bool,
    down: bool,
) -> Node:
    by_type = dict(zip(types, row, strict=True))
    gpus = tuple(GpuCount(g.gpu_type, g.total, by_type[g.gpu_type]) for g in idle.gpus)
    free = Resources(sum(g.free for g in gpus), cpus, mem)
    state = "IDLE" if free == idle.total else "MIXED"
    if state == "MIXED" and not any((free.gpus, free.cpus)):
        state = "ALLOCATED"
    state = "DOWN" if down else state if usable else f"{state}+DRAIN"
    return replace(idle, gpus=gpus, free=free, schedulable=usable, state=state)


# -- The cluster of `rltuned run --backend sim`: RLTune's 13-GPU testbed under generated jobs -----

STREAM_JOBS, FREE_SHARE = 4_096, 0.3
MIN_SUBMITTED, MIN_PENDING = 60, 20
SLA, SLA_EVERY = "sla", 15
SETTLED_S: Final = 30.0
"""The first look comes so long after the last submit that no job is too young to be touched."""


class ScaledClock:
    """A clock that shows simulated time: `speed` seconds pass while one passes outside."""

    def __init__(self, inner: Clock, speed: float) -> None:
        self._inner, self._speed = inner, speed
        self._started_at, self._origin_s = inner.now(), inner.monotonic()

    def now(self) -> float:
        return self._started_at + self.monotonic()

    def monotonic(self) -> float:
        return (self._inner.monotonic() - self._origin_s) * self._speed

    def wait(self, seconds: float) -> bool:
        return self._inner.wait(seconds / self._speed)


def demo_backend(seed: int, clock: Clock) -> SimBackend:
    """A backend that follows a clock (a ScaledClock to see it move), over the testbed, warmed up so
    that jobs run and a queue waits now.

    Its Slurm runs multifactor, and every fifteenth job goes to a partition `sla`, so that there is
    something to leave alone. The stream goes on for more than a week of simulated time; the same
    seed gives the same jobs.
    """
    testbed, rules = preset("testbed"), Rules(natural=Natural(kind="multifactor"))
    nodes = tuple(replace(n, partitions=(*n.partitions, SLA)) for n in testbed.nodes)
    partitions = (*testbed.partitions, Partition(SLA))
    cluster = replace(testbed, name="demo", nodes=nodes, partitions=partitions)
    made = synthesize(
        "testbed-1024", jobs=STREAM_JOBS, seed=seed, limits="weak", free_share=FREE_SHARE
    ).jobs
    jobs = [replace(j, partition="" if i % SLA_EVERY else SLA) for i, j in enumerate(made, 1)]
    now = clock.now()
    shift = now - _ready(World(cluster, jobs, rules=rules))
    world = World(cluster, (replace(j, submit_s=j.submit_s + shift) for j in jobs), rules=rules)
    world.advance(now)
    return SimBackend(world, clock.now)


def _ready(world: World) -> float:
    """When the queue is worth looking at, in the trace's own time."""
    while (time := world.next_time()) is not None:
        submitted = len(world.pending) + len(world.running) + len(world.finished)
        is_ready = submitted >= MIN_SUBMITTED and len(world.pending) >= MIN_PENDING
        if is_ready and world.now > 0 and time - world.now > SETTLED_S:
            return world.now + SETTLED_S
        world.step()
    return world.now
