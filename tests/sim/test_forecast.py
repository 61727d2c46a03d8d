"""The forecast plays the queue as the simulated Slurm does, where nothing is left to chance."""

import math
from dataclasses import replace
from unittest.mock import patch

from hypothesis import assume, given

from rltuned.core import forecast
from rltuned.core.capacity import Capacity
from rltuned.core.forecast import PlayedJob
from rltuned.core.lanes import lane_of
from rltuned.domain.jobs import PendingJob, RunningJob
from rltuned.domain.snapshot import RunTime
from rltuned.sim.backend import snapshot_of
from rltuned.sim.cluster import Cluster
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import World
from tests.builders import sure
from tests.sim.worlds import calm, cases

Case = tuple[Cluster, tuple[TraceJob, ...]]
STEP_S = 1_000.0
"""Far more than lies between two passes of a forecast."""


def splits_evenly(job: PendingJob, capacity: Capacity) -> bool:
    lane = sure(lane_of(job, capacity, 0))
    total = job.request.total
    return not any(amount % lane.ask.width for amount in (total.gpus, total.cpus, total.mem_mib))


@calm
@given(case=cases())
def test_with_known_run_times_every_job_starts_when_it_does_in_the_simulator(case: Case) -> None:
    where, given_jobs = case
    jobs = []
    for one in given_jobs:
        run_s = STEP_S * math.ceil(one.duration_s)
        jobs.append(replace(one, submit_s=0.0, duration_s=run_s, time_limit_s=run_s))
    where = replace(where, partitions=tuple(replace(p, max_time_s=None) for p in where.partitions))
    world = World(where, jobs)
    world.advance(-1.0)
    halfway = World(where, jobs)
    halfway.advance(5 * STEP_S)  # some run, some wait
    while world.next_time() is not None:
        world.step()
    snapshot = snapshot_of(halfway)
    assume(all(splits_evenly(job, Capacity.of(snapshot)) for job in snapshot.pending))
    ordered = sorted(snapshot.pending, key=lambda job: -job.priority)
    line = [PlayedJob(job, float(at), exactly(job)) for at, job in enumerate(ordered)]
    running = {run.job_id: exactly(run) for run in snapshot.running}
    with patch.object(forecast, "COARSE", 0.0):
        found = forecast.play_forward(snapshot, line, running, draws=1)[0].tolist()
    real = [world.finished[job.job_id].started_at - 5 * STEP_S for job in ordered]
    assert found == real


def exactly(job: PendingJob | RunningJob) -> RunTime:
    run_s = job.request.time_limit_s or 0.0
    return RunTime(run_s, run_s, run_s, run_s, run_s, 9)
