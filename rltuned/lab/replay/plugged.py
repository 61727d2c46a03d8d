"""A policy of another package at work in the simulator, with the run times that a daemon predicts.

The kernel cannot call it, so the daemon's own decision asks it beside a world of objects: slowly.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from rltuned.core.asked import Job, key_of
from rltuned.core.memory import RunTimeMemory
from rltuned.core.order import Policy
from rltuned.core.sizes import Sizes
from rltuned.domain.context import RunTimes
from rltuned.domain.jobs import RunningJob
from rltuned.domain.kinds import Kinds
from rltuned.domain.runs import JobRun
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId, UnixTime
from rltuned.lab.replay.decided import DecidedWorld
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.scenario import Scenario
from rltuned.policies.feeding import feed
from rltuned.policies.predictor import Predictor
from rltuned.sim.fitting import in_partition
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import World

Seen = TypeVar("Seen", bound=Job)


def play_plugged(scenario: Scenario, policy: Policy, protocol: Protocol) -> DecidedWorld:
    """Play to the end of the last job. Raises TraceError: a job can never start; PolicyError: the
    package's code fails.
    """
    decided = DecidedWorld(scenario.world(), protocol)
    learning = None
    if protocol.predictor is not None:
        learning = Learning(decided.world, scenario.jobs, protocol.predictor)
    while (snapshot := decided.due()) is not None:
        decided.decide(snapshot, policy, {} if learning is None else learning.predicted(snapshot))
    return decided


class Learning:
    """What a daemon learns of run times from look to look. jobs: numbered from 1."""

    def __init__(self, world: World, jobs: Sequence[TraceJob], predictor: Predictor) -> None:
        self._world, self._jobs = world, jobs
        self._memory = RunTimeMemory(predictor.logits)
        self._memory.size_of = Sizes(world.capacity).of
        self._partitions = {p.name: p for p in world.cluster.partitions}
        names = dict.fromkeys(["", *(job.name for job in jobs)])
        self._kinds = {name: Kinds(name=number) for number, name in enumerate(names)}
        self._ended = 0

    def predicted(self, snapshot: Snapshot) -> RunTimes:
        """Of the waiting jobs of a look."""
        ended = list(self._ends())
        here: list[Job] = [*snapshot.pending, *snapshot.running, *(run.job for run in ended)]
        came, started = self._memory.news({key_of(job): job for job in here})
        feed(self._memory, map(self._dressed, came), map(self._dressed, started), ended)
        return self._memory.predicted(snapshot.pending)

    def _ends(self) -> Iterator[JobRun]:
        """Since the last look."""
        done = list(islice(self._world.finished.values(), self._ended, None))
        self._ended += len(done)
        for one in done:
            job, name = one.job, one.job.partition or self._world.cluster.default_partition
            run = RunningJob(
                job_id=JobId(one.number),
                started_at=UnixTime(one.started_at),
                request=in_partition(job.request(), self._partitions[name]),
                shares=(),
                partition=name,
                user=job.user,
                account=job.account,
                submitted_at=UnixTime(job.submit_s),
            )
            yield JobRun(self._dressed(run), UnixTime(one.ended_at))

    def _dressed(self, job: Seen) -> Seen:
        """With what the world does not show of it."""
        of = self._jobs[job.job_id - 1]
        return replace(job, qos=of.qos, kinds=self._kinds[of.name])
