"""`rltuned groups plan`: what is left of a group, and the commands that give jobs their types."""

import pytest

from rltuned.cli.groups import commands, graph_of, plan_document, speeds_of
from rltuned.core.groups import forecasts
from rltuned.core.heft import heft
from rltuned.daemon.groups import looked
from rltuned.domain.groups import GroupStore
from rltuned.domain.jobs import PendingJob
from rltuned.errors import TraceError
from tests.builders import NOW, job, node, request, running, snapshot
from tests.unit.cli.runner import run


def test_speeds_that_are_none() -> None:
    assert run("groups", "plan").exit_code == 2
    for text in ("fast", "=2", "fast=0", "fast=x"):
        with pytest.raises(TraceError, match="TYPE=X"):
            speeds_of([text])


def test_what_is_left_of_a_group() -> None:
    jobs = (
        job(2, dependency="afterok:1(unfulfilled)", gpus=2, time_limit_s=600.0),
        job(3, dependency="afterok:2(unfulfilled)", gpu_types=("k80",), time_limit_s=300.0),
    )
    nodes = [node("p1"), node("k1", gpu_type="k80", gpus=2), node("x", partitions=("other",))]
    first = running(1, started_at=NOW - 3_000, time_limit_s=3_600.0)
    seen = snapshot(*jobs, runs=[first], nodes=nodes)
    status = forecasts(looked(GroupStore(), seen, {}), NOW)
    made = plan_document(heft(graph_of(seen, status, 3, speeds_of(["p100=2"]))), seen)
    assert [(one["job"], one["node"], one["end_s"]) for one in made["jobs"]] == [
        ("1", "p1", 300.0), ("2", "p1", 600.0), ("3", "k1", 900.0),
    ]  # fmt: skip
    with pytest.raises(TraceError, match="job 9 is in no group"):
        graph_of(seen, status, 9, {})
    endless = snapshot(job(2, dependency="afterok:1", time_limit_s=None), runs=[first], nodes=nodes)
    with pytest.raises(TraceError, match="job 2: its run time is not known"):
        graph_of(endless, forecasts(looked(GroupStore(), endless, {}), NOW), 1, {})


def choosing(constraint: str, **rest: object) -> PendingJob:
    asks = request(gpus=2, time_limit_s=600.0, outside=(f"constraint={constraint}",))
    return job(2, asks=asks, dependency="afterok:1(unfulfilled)", **rest)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("constraint", "apply"),
    [
        ("pascal|kepler", "scontrol update JobId=2 Features='pascal'"),
        ("kepler|gpu", ""),  # the type that it may use has no feature of its own
        ("pascal&gpu", ""),
        ("[pascal|kepler]", ""),
        ("pascal", ""),
        ("pascal|kepler; id", ""),
    ],
)
def test_types_are_given_only_where_the_user_lets_slurm_choose(constraint: str, apply: str) -> None:
    nodes = [
        node("p1", features=("pascal", "gpu")),
        node("k1", gpu_type="k80", features=("kepler", "gpu")),
        node("m1", gpu_type="m40", features=("maxwell",)),
    ]
    first = running(1, started_at=NOW - 3_000, time_limit_s=3_600.0)
    seen = snapshot(choosing(constraint), runs=[first], nodes=nodes)
    status = forecasts(looked(GroupStore(), seen, {}), NOW)
    found = commands(heft(graph_of(seen, status, 2, {"p100": 2.0, "m40": 9.0})), seen)
    assert [one["apply"] for one in found] == ([apply] if apply else [])
    if apply:
        assert found[0]["undo"] == ("scontrol update JobId=2 Features='pascal|kepler'")
