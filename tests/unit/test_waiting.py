"""Waiting counts from eligibility, deadlines hold a job's place, node ranges are ranges."""

from dataclasses import replace

import numpy as np
import pytest

from rltuned.core.features import encode
from rltuned.domain.cluster import Resources
from rltuned.domain.jobs import Request
from rltuned.domain.units import UnixTime
from rltuned.policies.baselines import BASELINES
from rltuned.slurm.request import Requests
from tests.builders import NOW, job, node, running, snapshot
from tests.unit.slurm.rows import row


def test_a_job_waits_since_it_was_eligible_or_submitted_whichever_is_later() -> None:
    early = job(1, submitted_at=NOW - 600, eligible_at=UnixTime(NOW - 900))
    late = job(2, submitted_at=NOW - 7 * 86_400, eligible_at=UnixTime(NOW - 30))
    never = job(3, submitted_at=NOW - 600, eligible_at=None)
    soon = job(4, submitted_at=NOW - 600, eligible_at=UnixTime(NOW + 60))
    assert [j.waits_since for j in (early, late, never)] == [NOW - 600, NOW - 30, NOW - 600]
    assert soon.waited_s(NOW) == 0.0
    run = running(9, submitted_at=UnixTime(NOW - 9_000), eligible_at=UnixTime(NOW - 1_300))
    assert run.waits_since == NOW - 1_300
    assert replace(run, submitted_at=None).waits_since is None


def test_begin_buys_no_age() -> None:
    bought = job(1, submitted_at=NOW - 7 * 86_400, eligible_at=UnixTime(NOW - 30))
    honest = job(2, submitted_at=NOW - 600)
    seen = snapshot(bought, honest, nodes=[node()])
    matrix = encode(seen.pending, seen)
    assert matrix.wait_s.tolist() == [30.0, 600.0]
    alike = job(3, submitted_at=NOW - 30)
    other = encode((alike,), snapshot(alike, nodes=[node()]))
    assert np.array_equal(matrix.values[0], other.values[0])
    scores = BASELINES["fcfs"].score(matrix)
    assert scores[1] > scores[0]


def ranged(**changed: str) -> Request:
    asks = {"numnodes": "4", "tres_per_node": "gres:gpu:4", "numcpus": "1", "numtasks": "1"}
    asks |= {"tres_alloc": "cpu=1,mem=500M,node=1,billing=1"} | changed
    requests = Requests(frozenset(), memory_counts=True, roomiest={"gpu": Resources(0, 16, 64_000)})
    return requests.read(row(**asks), running=False)


def test_a_node_range_fits_by_its_minimum_and_counts_by_its_middle() -> None:
    asked = ranged()
    assert (asked.nodes, asked.nodes_most, asked.total.gpus) == (1, 4, 4)
    assert asked.size.gpus == 12
    seen = snapshot(job(1, asks=asked), nodes=[node("p1"), node("p2", free_gpus=0)])
    matrix = encode(seen.pending, seen)
    assert matrix.column("can_schedule_now").tolist() == [1.0]
    assert matrix.gpus.tolist() == [12.0]


@pytest.mark.parametrize(
    "changed",
    [
        {"numnodes": "2", "numcpus": "32", "numtasks": "32"},  # 32 CPUs need two nodes of 16
        {"numnodes": "2", "numcpus": "8", "numtasks": "8", "mincpus": "4"},  # --ntasks-per-node=4
        {"numnodes": "1"},
    ],
)
def test_more_nodes_than_were_asked_for_are_no_range_where_the_tasks_need_them(
    changed: dict[str, str],
) -> None:
    asked = ranged(**changed)
    assert (asked.nodes, asked.nodes_most) == (int(changed["numnodes"]), None)
    assert asked.size == asked.total
