"""Why a job stands where it stands: by hand where a hand can work it out."""

from dataclasses import replace

import numpy as np
import pytest

from rltuned.cli.explain import in_words
from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.line import (
    advised_nodes,
    sentence,
)
from rltuned.core.order import Bound, Order
from rltuned.daemon.documents import explanation
from rltuned.domain.cluster import Resources
from rltuned.domain.jobs import PendingJob
from rltuned.domain.priority import NeutralDelay
from rltuned.domain.snapshot import Context, RunTime
from rltuned.domain.units import JobId
from rltuned.policies.baselines import BASELINES
from tests.builders import NOW, job, node, request, running, snapshot, sure

HOUR = 3_600.0
ALONE = Order(own=1.0, share=0.0)


def decided(*jobs: PendingJob, policy: str = "sjf", knobs: Knobs | None = None) -> Decision:
    return decide(snapshot(*jobs), BASELINES[policy], knobs or Knobs())


def test_a_predicted_run_time_is_named() -> None:
    expected = [RunTime(n * HOUR, n * HOUR, 60.0, n * HOUR, n * HOUR, 3) for n in (1, 2, 3)]
    jobs = [job(n, time_limit_s=9 * HOUR) for n in (1, 2, 3)]
    context = Context(run_times=dict(zip([j.job_id for j in jobs], expected, strict=True)))
    found = decide(snapshot(*jobs), BASELINES["delay"], Knobs(), context=context)
    row = found.matrix.jobs.index(jobs[2])
    assert "(limit 9h00m, 3h00m expected on" in sentence(found, row)


def test_the_bound_that_holds_a_job_is_named() -> None:
    order = Order(own=1.0, share=0.0, clip=1.0, max_delay_s=10 * HOUR)
    jobs = [
        job(1, gpus=16, time_limit_s=HOUR),  # saf asks for 16 h, the clip allows 4
        job(2, gpus=1, time_limit_s=90 * HOUR),
        job(3, gpus=1, time_limit_s=HOUR),
        job(4, gpus=1, time_limit_s=HOUR, deadline_at=NOW + HOUR),
    ]
    neutral = NeutralDelay(60.0, NOW, 60.0, NOW)
    context = Context(neutral=neutral)
    found = decide(snapshot(*jobs), BASELINES["saf"], Knobs(order=order), context=context)
    rows = {int(j.job_id): i for i, j in enumerate(found.matrix.jobs)}
    named = {job_id: found.delays.bound_on(row) for job_id, row in rows.items()}
    assert named == {1: Bound.CLIP, 2: Bound.MAX_DELAY, 3: None, 4: Bound.DEADLINE}


def test_the_sentence_says_how_long_why_and_what_it_promises() -> None:
    jobs = [job(1, gpus=4, time_limit_s=6 * HOUR), job(2, gpus=1, time_limit_s=HOUR)]
    found = decided(*jobs, policy="delay")
    row = found.matrix.jobs.index(jobs[0])
    # 12.5 GPU h are expected for four GPUs; it stands behind the other one
    assert sentence(found, row) == (
        "may be overtaken because of rltuned by jobs that become eligible within 2h57m after it, "
        "and by no later ones: 1h12m for its own length (limit 6h00m on 4 GPUs) and 1h45m for its "
        "share of the backlog (more GPU time than 75% of 2 waiting jobs; the queue is 3h07m of "
        "work)"
    )
    close = replace(found, delays=replace(found.delays, delay_s=np.array([60.0, 60.0])))
    assert "held to" not in sentence(close, row)


def test_a_job_of_several_sizes_is_advised() -> None:
    nodes = [node(f"n{i}", free_gpus=4 if i < 3 else 0) for i in range(1, 5)]
    runs = [running(90 + i, node_name=f"n{i}", gpus=4) for i in (3, 4)]
    asks = request(gpus=4, cpus=1, mem_mib=0, nodes=1)
    ranged = replace(asks, nodes_most=4, expected=Resources(12, 3, 0))
    whole = replace(ranged, expected=Resources(4, 3, 0))
    jobs = (job(1, asks=ranged), job(2, asks=whole), job(3))
    seen = snapshot(*jobs, nodes=nodes, runs=runs)
    found = decide(seen, BASELINES["fcfs"], Knobs())
    # two jobs wait behind it for four nodes
    assert advised_nodes(found, jobs[0], {1: 1.0, 2: 1.2, 4: 1.9}) == 1
    assert advised_nodes(found, jobs[0], {1: 1.0, 2: 1.9, 4: 3.4}) == 4
    assert advised_nodes(found, jobs[0], {8: 7.0}) is None
    assert advised_nodes(found, jobs[2], {1: 1.0}) is None
    assert advised_nodes(found, job(9, asks=ranged), {1: 1.0}) is None


@pytest.mark.parametrize(
    ("ends", "words"), [(0, "its user is new"), (1, "after 1 job of its user")]
)
def test_what_a_prediction_rests_on_is_said(ends: int, words: str) -> None:
    run_time = RunTime(HOUR, 60.0, 2.0, 60.0, 120.0, ends=ends)
    context = Context(run_times={JobId(1): run_time}, limit_use=0.3)
    decision = decide(snapshot(job(1)), BASELINES["delay"], Knobs(), context=context)
    document = sure(explanation("1", decision.snapshot, decision.context, decision))
    odd = {"starts": None, "verdict": None, "reason": "x\nJob 2: starts now"}
    text = in_words({**document, **odd})
    assert not any("\n" in line for line in text)
    assert f"It is expected to run 1m (2s to 2m; {words})." in text
    assert "It asks for 1 GPU, 2 CPUs, " in "\n".join(text)
