"""Every feature against a value worked out by hand, and the free amounts of nodes."""

import math
from dataclasses import replace

import pytest

from rltuned.core.capacity import Capacity
from rltuned.core.cluster import idle
from rltuned.core.features import (
    COLUMNS,
    FEATURES,
    OBSERVED,
    SCHEMA_ID,
    encode,
    sample_features,
    schema_id,
)
from rltuned.domain.cluster import Resources
from rltuned.domain.jobs import Share
from rltuned.domain.units import NodeName
from tests.builders import NOW, job, node, running, snapshot

NODES = (
    node("a1", gpu_type="a100", gpus=4, free_gpus=1, free_cpus=4, free_mem_mib=16_000),
    node("a2", gpu_type="a100", gpus=4),
    node("k1", gpu_type="k80", gpus=2, cpus=8, mem_mib=32_000),
)


def seen(column: str, *queue: object, **world: object) -> list[float]:
    shot = snapshot(*queue, **({"nodes": NODES} | world))  # type: ignore[arg-type]
    return [float(value) for value in encode(shot.pending, shot).column(column)]


def test_the_table_has_the_papers_seventeen_features() -> None:
    assert len(FEATURES) == 17
    assert len(COLUMNS) == 13
    assert [f.column for f in FEATURES if f.column is not None] == list(range(13))
    assert all(f.formula and f.unit and f.scale and f.source for f in FEATURES)
    assert SCHEMA_ID.startswith("rltuned-17-")


@pytest.mark.parametrize("field", ["name", "column", "formula", "unit", "scale", "source"])
def test_a_model_fits_as_long_as_columns_formulas_and_scales_stay(field: str) -> None:
    first, *rest = FEATURES
    other = replace(first, **{field: "other"})  # type: ignore[arg-type]
    assert (schema_id((other, *rest)) == SCHEMA_ID) is (field == "source")


@pytest.mark.parametrize(
    ("column", "fields", "expected"),
    [
        ("requested_gpus", {"gpus": 3}, 2 / math.log2(1025)),
        ("requested_gpus", {"gpus": 0}, 0.0),
        ("requested_time", {"time_limit_s": 3599.0}, math.log(3600) / math.log(30 * 86400 + 1)),
        ("requested_time", {"time_limit_s": math.inf}, 1.0),
        ("requested_time", {"time_limit_s": None}, 1.0),
        ("submit_time", {"submitted_at": NOW - 599}, math.log(600) / math.log(7 * 86400 + 1)),
        ("submit_time", {"submitted_at": NOW + 5}, 0.0),
        ("req_cpu", {"cpus": 7}, 3 / math.log2(16385)),
        ("req_mem", {"mem_mib": 7 * 1024}, 3 / math.log2(16385)),
        # two of the three nodes are wholly free; of the a100 nodes one of two
        ("free_nodes", {}, 2 / 3),
        ("free_nodes", {"gpu_types": ("a100",)}, 1 / 2),
        ("can_schedule_now", {"gpus": 4}, 1.0),
        ("can_schedule_now", {"gpus": 8, "gpu_types": ("a100",)}, 0.0),
        ("can_schedule_now", {"gpus": 9}, 0.0),
        # one GPU fits on all three nodes, on two of them as an a100
        ("num_ways", {"gpus": 1}, 3 / 8),
        ("num_ways", {"gpus": 1, "gpu_types": ("a100",)}, 2 / 8),
        ("num_ways", {"gpus": 5}, 0.0),
        # 7 GPUs are free, 5 of them a100
        ("dsr", {"gpus": 1}, 1 / 8),
        ("dsr", {"gpus": 1, "gpu_types": ("a100",)}, 1 / 6),
        ("dsr", {"gpus": 0}, 0.0),
        (
            "job_size",
            {"gpus": 2, "time_limit_s": 100.0},
            math.log(201) / math.log(1024 * 2592e3 + 1),
        ),
        ("urgency", {"submitted_at": NOW - 12 * 3600}, 0.5),
        # (7 - 1 + 0) / 10 GPUs, moved into 0..1
        ("future_avail", {"gpus": 1}, (0.6 + 1) / 2),
        ("future_avail", {"gpus": 200}, 0.0),
        # one scrap of four on a1; a2 and k1 are whole
        ("cff", {}, 1 - (0.25 + 4 + 2) / 7),
    ],
)
def test_one_feature_by_hand(column: str, fields: dict[str, object], expected: float) -> None:
    assert seen(column, job(**fields)) == pytest.approx([expected], abs=1e-6)  # type: ignore[arg-type]


def test_future_availability_counts_what_limits_will_free_within_the_hour() -> None:
    soon = running(103, node_name="a1", gpus=2, started_at=NOW - 600, time_limit_s=3600)
    late = running(101, node_name="a1", gpus=1, started_at=NOW - 600, time_limit_s=7200)
    never = running(100, node_name="a1", gpus=1, time_limit_s=math.inf, gpu_type="a100")
    gone = running(102, node_name="vanished", gpus=4)
    found = seen("future_avail", job(gpus=1), runs=(never, late, gone, soon))
    assert found == pytest.approx([((7 - 1 + 2) / 10 + 1) / 2])


def test_a_drained_node_offers_nothing() -> None:
    nodes = (node("a1", schedulable=False), node("a2", free_gpus=0))
    assert seen("can_schedule_now", job(), nodes=nodes) == [0.0]
    assert seen("dsr", job(), nodes=nodes) == [1.0]
    assert seen("cff", job(), nodes=nodes) == [0.0]


def test_another_partition_has_other_nodes() -> None:
    nodes = (node("a1", partitions=("gpu",)), node("b1", partitions=("other",), free_gpus=0))
    found = seen("can_schedule_now", job(1), job(2, partition="other"), nodes=nodes)
    assert found == [1.0, 0.0]


def test_an_exclusive_job_needs_a_node_on_which_nothing_runs() -> None:
    asks = job(1).request
    alone = type(asks)(asks.total, asks.time_limit_s, exclusive=True)
    assert seen("num_ways", job(asks=alone)) == [2 / 8]


def test_no_jobs_and_no_nodes_are_no_error() -> None:
    empty = snapshot()
    assert encode((), empty).values.shape == (0, 13)
    assert seen("can_schedule_now", job(), nodes=()) == [0.0]


def test_fragmentation_decides_the_sixth_slot_and_ways_the_seventh() -> None:
    scraps = tuple(node(f"s{i}", gpus=8, free_gpus=1) for i in range(3))
    shot = snapshot(job(gpus=1), nodes=scraps)
    _, names = sample_features(encode(shot.pending, shot))
    assert names[6:] == ("1-job_size", "num_ways")
    whole = snapshot(job(gpus=4), nodes=(node("w"),))
    found, names = sample_features(encode(whole.pending, whole))
    assert names[6:] == ("urgency", "free_nodes")
    assert found.shape == (1, OBSERVED)
    assert found[0, 7] == 1.0


WHOLE = Resources(4, 8, 32_000)


def world() -> tuple[Capacity, Share]:
    nodes = [node(gpus=4, cpus=8, mem_mib=32_000)]
    capacity = Capacity.of(snapshot(nodes=nodes))
    (one,) = nodes
    return capacity, Share(NodeName(one.name), WHOLE, one.gpus[0].gpu_type)


def free(capacity: Capacity) -> tuple[int, int, int]:
    return (
        int(capacity.free.of_type.sum()),
        int(capacity.free.cpus.sum()),
        int(capacity.free.mem_mib.sum()),
    )


def test_what_is_taken_is_given_back() -> None:
    capacity, share = world()
    assert free(capacity) == (4, 8, 32_000)
    capacity.take((share,))
    assert free(capacity) == (0, 0, 0)
    assert not idle(capacity.total, capacity.free).any()
    with pytest.raises(ValueError, match="is more than is free"):
        capacity.take((share,))
    capacity, share = world()
    capacity.take((share,))
    capacity.give((share,))
    assert free(capacity) == (4, 8, 32_000)
    assert idle(capacity.total, capacity.free).all()


def test_free_is_never_more_than_there_is() -> None:
    capacity, share = world()
    capacity.give((share,))
    assert free(capacity) == (8, 16, 64_000)
    capacity.cap()
    assert free(capacity) == (4, 8, 32_000)
