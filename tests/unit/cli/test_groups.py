"""`rltuned groups plan`: files that can be planned, and those that cannot, with the reason."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from rltuned.cli.group_plan import graph_of, plan_document, speeds_of, type_changes
from rltuned.core.heft import heft
from rltuned.daemon.groups import looked, status_of
from rltuned.domain.groups import GroupStore
from rltuned.domain.jobs import PendingJob
from rltuned.errors import TraceError
from tests.builders import NOW, job, node, request, running, snapshot
from tests.unit.cli.runner import run

NODES = """
[speeds]
fast = 2.0
[[nodes]]
name = "f1"
gpu_type = "fast"
gpus = 1
[[nodes]]
name = "s[1-2]"
gpu_type = "slow"
gpus = 2
"""
JOBS = """
[[jobs]]
name = "a"
run_s = 100
[[jobs]]
name = "b"
run_s = { fast = 40.0, slow = 90.0 }
after = ["a"]
[[jobs]]
name = "c<&>"
run_s = 60
gpus = 2
types = ["slow"]
after = ["a"]
transfer_s = 5
"""


def test_a_file(tmp_path: Path) -> None:
    path, picture = tmp_path / "flow.toml", tmp_path / "flow.svg"
    path.write_text(NODES + JOBS)
    done = run("groups", "plan", str(path), "--json", "--gantt", str(picture))
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert {one["job"]: (one["node"], one["end_s"]) for one in document["jobs"]} == {
        "a": ("f1", 50.0), "b": ("f1", 90.0), "c<&>": ("s1", 115.0),
    }  # fmt: skip
    assert (document["makespan_s"], document["lower_bound_s"]) == (115.0, 110.0)
    assert document["critical_path"] == ["a", "c<&>"]
    root = ET.fromstring(picture.read_text())  # noqa: S314 - our own
    titles = [one.text or "" for one in root.iter("{http://www.w3.org/2000/svg}title")]
    assert sum(title.startswith("c<&>: 2 GPUs") for title in titles) == 2
    assert "critical path: a, c<&>" in run("groups", "plan", str(path)).stdout
    for where, why in {tmp_path: "it is a folder", tmp_path / "no" / "x.svg": "no folder"}.items():
        with pytest.raises(TraceError, match=f"{where}: cannot be written: {why}"):
            run("groups", "plan", str(path), "--gantt", str(where))
    refused = run("groups", "plan", str(path), "--speed", "fast=2")
    assert (refused.exit_code, "--speed needs --group ID" in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x = 1", "nodes: Field required"),
        ("[[", "Invalid"),
        (NODES + JOBS + "more = 1\n", "more"),
        (NODES + JOBS.replace("run_s = 60", "run_s = -1"), "greater than 0"),
        (NODES + JOBS.replace('"slow"]', '"odd"]'), "no node has GPUs of type odd"),
        (NODES + JOBS.replace('after = ["a"]', 'after = ["z"]'), "no job z"),
        (NODES + JOBS.replace("gpus = 2\n", "gpus = 9\n"), "no node has 9 GPUs"),
        (NODES + JOBS.replace('name = "b"', 'name = "a"'), "stands twice"),
        (NODES + JOBS.replace("run_s = 100\n", 'run_s = 100\nafter = ["b"]\n'), "in a circle"),
    ],
)
def test_what_is_wrong_with_a_file(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "flow.toml"
    path.write_text(text)
    with pytest.raises(TraceError) as raised:  # main() ends with 2
        run("groups", "plan", str(path))
    assert str(raised.value).startswith(f"{path}: ")
    assert reason in str(raised.value)


def test_a_missing_file_and_no_file() -> None:
    with pytest.raises(TraceError, match=r"/nowhere/flow\.toml: No such file"):
        run("groups", "plan", "/nowhere/flow.toml")
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
    status = status_of(looked(GroupStore(), seen, {}), NOW)
    made = plan_document(heft(graph_of(seen, status, 3, speeds_of(["p100=2"]))), "heft")
    assert [(one["job"], one["node"], one["end_s"]) for one in made["jobs"]] == [
        ("1", "p1", 300.0), ("2", "p1", 600.0), ("3", "k1", 900.0),
    ]  # fmt: skip
    with pytest.raises(TraceError, match="job 9 is in no group"):
        graph_of(seen, status, 9, {})
    endless = snapshot(job(2, dependency="afterok:1", time_limit_s=None), runs=[first], nodes=nodes)
    with pytest.raises(TraceError, match="job 2: its run time is not known"):
        graph_of(endless, status_of(looked(GroupStore(), endless, {}), NOW), 1, {})


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
    status = status_of(looked(GroupStore(), seen, {}), NOW)
    found = type_changes(heft(graph_of(seen, status, 2, {"p100": 2.0, "m40": 9.0})), seen)
    assert [one.command(one.planned) for one in found] == ([apply] if apply else [])
    if apply:
        assert found[0].command(found[0].before) == (
            "scontrol update JobId=2 Features='pascal|kepler'"
        )
