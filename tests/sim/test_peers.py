"""RLScheduler's published numbers come out of its rules, and of ours where both are the same."""

from dataclasses import replace
from pathlib import Path

import pytest

from rltuned.sim.protocol import Protocol
from rltuned.sim.run import Window, simulate
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Rules
from scripts.benchmarks.peers import (
    LENGTH,
    PUBLISHED,
    THEIRS,
    Committed,
    cluster,
    read_jobs,
    starts,
)

TRACE = Path(__file__).parents[3] / "shared" / "traces" / "lublin_256.swf.gz"


def _job(number: int, submit_s: float, run_s: float, processors: int) -> TraceJob:
    return TraceJob(str(number), submit_s, run_s, processors, time_limit_s=run_s)


JOBS = (_job(1, 1, 100, 200), _job(2, 2, 100, 200), _job(3, 3, 10, 50), _job(4, 4, 300, 56))
"""Behind 1, which runs from 1 to 101, the second does not fit; 3 and 4 would."""


def test_who_is_picked_is_waited_for() -> None:
    # 2 starts at 101, only then 3; 4 does not fit beside both, and 3 ends at 111
    slowdowns = [1.0, (99 + 100) / 100, (98 + 10) / 10, (107 + 300) / 300]
    assert Committed(JOBS, THEIRS["fcfs"], backfill=False).play() == pytest.approx(
        sum(slowdowns) / 4
    )


def test_backfill_lets_only_those_pass_that_end_in_time() -> None:
    # 3 starts at once; 4 would end at 304, after the second's turn at 101
    slowdowns = [1.0, (99 + 100) / 100, 1.0, (97 + 300) / 300]
    assert Committed(JOBS, THEIRS["fcfs"], backfill=True).play() == pytest.approx(
        sum(slowdowns) / 4
    )


def test_shortest_first_is_still_held_by_its_pick() -> None:
    # the second is all there is when it is picked, and keeps its turn before the third
    late = (*JOBS[:2], replace(JOBS[2], submit_s=50.0), JOBS[3])
    played = Committed(late, THEIRS["sjf"], backfill=False).play()
    assert played == pytest.approx((1.0 + 1.99 + (51 + 10) / 10 + (107 + 300) / 300) / 4)


if TRACE.exists():  # a trace beside the project is optional, and nothing may skip in CI

    def test_published_numbers() -> None:
        jobs = read_jobs(TRACE)
        begins = starts(len(jobs))
        sequences = [jobs[b : b + LENGTH] for b in begins]
        sjf = [Committed(s, THEIRS["sjf"], backfill=True).play() for s in sequences]
        assert sum(sjf) / len(sjf) == pytest.approx(PUBLISHED["easy"]["sjf"], abs=0.005)
        protocol, where = Protocol(rules=Rules("none"), bounded=False), cluster()
        fcfs = [
            simulate(Window(i, s), where, "fcfs", protocol).slowdown.mean()
            for i, s in enumerate(sequences)
        ]
        assert sum(fcfs) / len(fcfs) == pytest.approx(PUBLISHED["none"]["fcfs"], abs=0.005)
