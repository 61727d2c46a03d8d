"""Known schedulers are recovered from what they started, and nothing later than that is read."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from rltuned.errors import TraceError
from rltuned.sim.cluster import parse_cluster
from rltuned.sim.trace import TraceJob
from rltuned.train.episodes import play_rule
from rltuned.train.ground import cut, make_ground
from rltuned.train.history import Choices, Started, agreement, choices_of, imitate

CLUSTER = """
[[nodes]]
name = "a[1-4]"
gpu_type = "a100"
gpus = 4
cpus = 64
mem_mib = 64000
"""


def single_jobs(count: int) -> tuple[TraceJob, ...]:
    """One GPU each, so that whoever waits could have been started."""
    draw = np.random.default_rng(31)
    submit_s = np.cumsum(draw.exponential(100.0, count)).round()
    run_s = np.ceil(draw.lognormal(6.5, 1.2, count))
    limit_s = np.ceil(draw.lognormal(8.0, 1.5, count)) + 60
    return tuple(
        TraceJob(str(i), float(submit_s[i]), float(run_s[i]), 1, float(limit_s[i]))
        for i in range(count)
    )


GROUND = make_ground("one", parse_cluster(CLUSTER, "one", "one"), single_jobs(900))


def history_of(rule: str) -> list[Started]:
    """What a site that orders its queue by a rule would have in its accounting data."""
    window = cut(GROUND, 0, 900, load=1.3)
    starts = play_rule(window, rule)
    ends = starts + window.prepared.jobs.runs_s
    order = np.lexsort((np.arange(900), starts))
    key = {"fcfs": window.submit_s, "sjf": window.prepared.jobs.limit_s}[rule]
    waiting_better = [
        ((window.submit_s <= starts[i]) & (starts > starts[i]) & (key < key[i])).any()
        for i in range(900)
    ]
    return [
        Started(
            job_id=int(i) + 1,
            submit_s=float(window.submit_s[i]),
            eligible_s=float(window.submit_s[i]),
            start_s=float(starts[i]),
            end_s=float(ends[i]),
            request=window.prepared.requests[i],
            # sacct's Flags tell backfill apart; here: somebody better was left waiting
            by_main=not waiting_better[i],
        )
        for i in order.tolist()
    ]


def agreed(choices: Choices, network: torch.nn.Module) -> float:
    with torch.inference_mode():
        return agreement(network(choices.values, choices.masks).numpy().astype(float), choices)


@pytest.mark.parametrize("rule", ["fcfs", "sjf"])
def test_a_known_scheduler_is_recovered(rule: str) -> None:
    earlier, later = choices_of(history_of(rule), 16).split(0.7)
    network = imitate(earlier, seed=1)
    assert len(later) > 50
    assert agreed(later, network) >= 0.95


def test_nothing_later_than_the_start_is_read() -> None:
    history = history_of("fcfs")
    moment = history[450].start_s
    before = [j for j in history if j.start_s <= moment]
    rest = [j for j in history if j.start_s > moment]
    shuffled = [replace(j, start_s=j.start_s + 7e5, end_s=j.end_s + 9e5) for j in rest]
    longer = [replace(j, end_s=j.end_s + 1e6) if j.end_s > moment else j for j in before]
    one = choices_of([*before, *rest], 16)
    other = choices_of([*longer, *shuffled], 16)
    count = sum(j.by_main for j in before) // 2
    assert torch.equal(one.values[:count], other.values[:count])
    assert torch.equal(one.label[:count], other.label[:count])


def test_too_short_a_history() -> None:
    with pytest.raises(TraceError, match="had rivals"):
        choices_of(history_of("fcfs")[:40], 16)
