"""One user floods the queue: what it costs another user beyond what it costs under FCFS."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.run import simulate
from rltuned.lab.replay.scenario import Scenario
from rltuned.sim.trace import TraceJob
from tests.sim import worlds

DAY, HOUR = 86_400.0, 3_600.0
NODES, GPUS = 8, 8
DAYS = 6.0
FLOOD_AT = 2.0 * DAY
LOAD = 0.85
SEEDS, PLAYED = 6, ("fcfs", "default")


def honest(seed: int) -> list[TraceJob]:
    """Twelve users, run times of minutes to a day, limits of one to eight times those."""
    draw = np.random.default_rng(seed)
    jobs: list[TraceJob] = []
    at_s, wanted = 0.0, LOAD * NODES * GPUS
    while at_s < DAYS * DAY:
        gpus = int(draw.choice([1, 1, 1, 2, 4, 8, 16]))
        run_s = float(np.clip(np.exp(draw.normal(np.log(2 * HOUR), 1.5)), 60, DAY).round())
        limit_s = float(np.ceil(run_s * draw.uniform(1, 8) / 600) * 600)
        user = f"u{draw.integers(12)}"
        jobs.append(worlds.job(f"h{len(jobs)}", at_s, run_s, gpus, time_limit_s=limit_s, user=user))
        mean_s = 3.5 * 4.4 * HOUR / wanted  # mean GPUs and run time of the draws above
        at_s = float(round(at_s + draw.exponential(mean_s)))
    return jobs


def tiny() -> list[TraceJob]:
    return [
        worlds.job(f"e{n}", FLOOD_AT, 30.0, 1, time_limit_s=60.0, user="eve") for n in range(10_000)
    ]


def wide() -> list[TraceJob]:
    return [
        worlds.job(f"e{n}", FLOOD_AT, 600.0, NODES * GPUS, time_limit_s=HOUR, user="eve")
        for n in range(500)
    ]


def waits(jobs: list[TraceJob], policy: str) -> float:
    """Mean wait of the honest jobs, in seconds."""
    where = worlds.cluster(*((f"n{i}", GPUS) for i in range(NODES)))
    ordered = tuple(sorted(jobs, key=lambda job: job.submit_s))
    found = simulate(Scenario.of(where, ordered), policy, Protocol("cycle", 60.0))
    is_honest = np.array([job.user != "eve" for job in ordered])
    return float((found.start_s - found.submit_s)[is_honest].mean())


@cache
def calm(seed: int, policy: str) -> float:
    """The same without a flood."""
    return waits(honest(seed), policy)


@pytest.mark.parametrize("flood", [tiny, wide])
def test_a_flood_costs_others_at_most_a_tenth_more_than_under_fcfs(
    flood: Callable[[], list[TraceJob]],
) -> None:
    """A week of a small cluster varies by a quarter with any job more, so the mean of six."""
    beyond_s = []
    for seed in range(SEEDS):
        flooded = [*honest(seed), *flood()]
        found = {policy: waits(flooded, policy) - calm(seed, policy) for policy in PLAYED}
        beyond_s.append(found["default"] - found["fcfs"])
    assert np.mean(beyond_s) <= 0.1 * np.mean([calm(seed, "default") for seed in range(SEEDS)])
