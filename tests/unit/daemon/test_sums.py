"""GPUs, work and waits of a cycle, added up: what the page, the metrics and the journal read."""

import json
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from rltuned.core.decide import Knobs, decide
from rltuned.core.select import Scope
from rltuned.daemon.metrics import Metrics
from rltuned.daemon.report import MOST_WAITS, Sums, sums_of
from rltuned.domain.jobs import ArrayInfo
from rltuned.domain.units import JobId
from rltuned.journal.journal import Journal
from tests.builders import NOW, job, node, running, snapshot, sure
from tests.fakes import ConstantOrder
from tests.loops import Bench
from tests.switchback_world import switchback_at

QUEUE = (
    job(1, gpus=2, submitted_at=NOW - 7_200.0),
    job(2, gpus=1, partition="long", array=ArrayInfo(JobId(2), 5)),
    job(3, gpus=4, priority=0, submitted_at=NOW - 99_999.0),
)
"""One job, an array of five, and a held job, which wants nothing yet."""
NODES = (
    node("p1", gpus=4, free_gpus=1),
    node("p2", gpus=4, free_gpus=3, schedulable=False),
)


def found() -> Sums:
    seen = snapshot(*QUEUE, nodes=NODES)
    return sure(sums_of(seen, decide(seen, ConstantOrder((1, 2, 3)), Knobs(Scope())), None))


def test_gpus_are_used_free_or_down() -> None:
    sums = found()
    assert {state: sums.in_state(state) for state in ("used", "free", "down")} == {
        "used": 4,
        "free": 1,
        "down": 3,
    }


def test_what_waits_is_counted_by_task_and_without_held_jobs() -> None:
    sums = found()
    assert sums.wanted == {"gpu": 2, "long": 5}
    assert (sums.waiting, sums.longest_s) == (6, 7_200.0)
    assert sums.backlog_s["gpu"] > 0
    assert sure(sums.work_s) > 0


def test_the_work_of_jobs_that_are_left_alone_waits_too() -> None:
    """As all of them are in an off block: the backlog does not change with the coin."""
    seen = snapshot(*QUEUE, nodes=NODES)
    every = found()
    for scope in (
        Scope(switchback=switchback_at(NOW, on=False)),
        Scope(excluded_users=frozenset({"alice"})),
        Scope(partitions=frozenset({"long"})),
    ):
        sums = sure(sums_of(seen, decide(seen, ConstantOrder((1, 2, 3)), Knobs(scope)), None))
        assert sums.work_s == pytest.approx(every.work_s)
        assert sums.backlog_s == pytest.approx(every.backlog_s)


@pytest.mark.parametrize(("runs", "tasks"), [(0, 2), (1, 1), (2, 0), (3, 0)])
def test_of_a_throttled_array_the_tasks_count_that_may_start(runs: int, tasks: int) -> None:
    array = job(2, partition="long", gpus=2, array=ArrayInfo(JobId(2), 500, throttle=2))
    begun = [running(100 + n, array_job_id=JobId(2)) for n in range(runs)]
    sums = sure(sums_of(snapshot(array, runs=begun, nodes=NODES), None, None))
    assert (sums.waiting, sums.wanted["long"]) == (tasks, 2 * tasks)


def test_nothing_was_seen() -> None:
    assert sums_of(None, None, None) is None


def test_a_cycle_keeps_its_sums_and_no_name(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.loop().run(2)
    with closing(Journal(tmp_path)) as journal:
        last = journal.past("test", 0.0)[-1]
    assert last.mode == "live"
    assert last.sums["waiting"] == 3
    assert len(last.sums["waits_s"]) <= MOST_WAITS
    assert "alice" not in json.dumps(last.sums)


def test_the_metrics_show_them() -> None:
    metrics = Metrics(CollectorRegistry())
    metrics._table.put("rltuned_gpus", found().gpus)
    read = metrics.registry.get_sample_value
    kinds = {name for _, name in found().gpus}
    assert sum(read("rltuned_gpus", {"state": "down", "type": k}) or 0 for k in kinds) == 3
