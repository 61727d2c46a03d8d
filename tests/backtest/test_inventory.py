"""Nodes and partitions as scontrol shows them, on answers recorded from three releases."""

import re
from pathlib import Path
from typing import Any

import pytest

from rltuned.errors import SnapshotError
from rltuned.lab.backtest.site import BadRecord, read_nodes_shown, read_partitions_shown

HOME = Path(__file__).resolve().parents[1] / "data" / "slurm"
RELEASES = ("22.05", "24.11", "26.05")


@pytest.mark.parametrize("release", RELEASES)
def test_nodes_of_a_recorded_site(release: str) -> None:
    nodes = read_nodes_shown((HOME / release / "site" / "nodes.txt").read_text(), "nodes.txt", [])
    reply = {n.name: (n.total.gpus, n.total.cpus, n.total.mem_mib) for n in nodes}
    assert reply == {
        "k1": (2, 8, 32000),
        "k2": (2, 8, 32000),
        "m1": (1, 4, 16000),
        "p1": (4, 16, 64000),
        "p2": (4, 16, 64000),
    }
    by_name = {str(n.name): n for n in nodes}
    assert [g.gpu_type for g in by_name["p1"].gpus] == ["p100"]
    assert by_name["p1"].partitions == ("gpu", "short", "sla")
    assert all(n.schedulable and n.free == n.total for n in nodes)


@pytest.mark.parametrize("release", RELEASES)
def test_partitions_of_a_recorded_site(release: str) -> None:
    text = (HOME / release / "site" / "partitions.txt").read_text()
    found = {p.name: p for p in read_partitions_shown(text, "partitions.txt", [])}
    assert found["gpu"].default
    assert found["sla"].priority_tier == 2
    assert found["short"].priority_factor == 30
    assert found["short"].max_time_s == 600.0
    assert found["whole"].oversubscribe == "EXCLUSIVE"
    assert not found["closed"].up


def test_what_people_write_forges_nothing() -> None:
    line = (
        "NodeName=a1 CPUTot=4 Gres=gpu:t4:2 RealMemory=100 State=IDLE Partitions=gpu "
        "Reason=bad NodeName=b1 CPUTot=900 [root@2026]"
    )
    (node,) = read_nodes_shown(line, "x", [])
    assert (node.name, node.total.cpus) == ("a1", 4)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no node in it"),
        ("NodeName=a1 CPUTot=4 State=IDLE", "x:1: node a1: no 'RealMemory'"),
        ("NodeName=a1 CPUTot=many RealMemory=1 State=IDLE", "x:1: node a1: invalid literal"),
        ("   CPUTot=4", "x:1: does not begin with NodeName="),
    ],
)
def test_what_is_no_node_is_named(text: str, why: str) -> None:
    with pytest.raises(SnapshotError, match=why.replace("(", r"\(")):
        read_nodes_shown(text, "x", [])


def test_future_nodes_are_not_there_and_drained_ones_are_known() -> None:
    text = (
        "NodeName=f1 CPUTot=4 RealMemory=1 State=FUTURE Partitions=gpu\n"
        "NodeName=d1 CPUTot=4 RealMemory=1 State=IDLE+DRAIN Partitions=gpu\n"
    )
    (node,) = read_nodes_shown(text, "x", [])
    assert (node.name, node.schedulable) == ("d1", False)


@pytest.mark.parametrize("release", RELEASES)
def test_what_is_saved_without_o_is_read_as_well(release: str) -> None:
    for name, read, first in (
        ("nodes.txt", read_nodes_shown, "CoresPerSocket"),
        ("partitions.txt", read_partitions_shown, "AllowGroups"),
    ):
        text = (HOME / release / "site" / name).read_text()
        # as scontrol breaks a record: each line but the first begins with spaces
        broken = re.sub(
            r" (?=(?:Gres|RealMemory|State|Partitions|MaxTime|OverSubscribe)=)", "\n   ", text
        )
        broken = broken.replace("\nNodeName=", "\n\nNodeName=").replace("\nPart", "\n\nPart")
        assert first in text
        assert broken.count("\n") > 2 * text.count("\n")
        found: Any = read(broken, name, [])
        assert found == read(text, name, [])


def test_a_record_that_cannot_be_read_costs_itself() -> None:
    good = "NodeName=a{} CPUTot=4 Gres=gpu:t4:2 RealMemory=100 State=IDLE Partitions=gpu"
    odd = ["rubbish", "NodeName=b CPUTot=4", good.format("1"), good.format("9").replace("4", "x")]
    bad: list[BadRecord] = []
    nodes = read_nodes_shown("\n".join((good.format("1"), *odd, good.format("2"))), "x", bad)
    assert [n.name for n in nodes] == ["a1", "a2"]
    assert [(b.line, b.what) for b in bad] == [(n, "node") for n in (2, 3, 4, 5)]
    assert ["begin with", "no 'RealMemory'" in bad[1].why, "twice" in bad[2].why] == [
        "begin with", True, True,
    ]  # fmt: skip


def test_what_jobs_do_not_get_of_a_node_is_in_no_total() -> None:
    text = (
        "NodeName=a1 CPUEfctv=14 CPUTot=16 Gres=gpu:t4:2 RealMemory=64000 MemSpecLimit=4000 "
        "State=MIXED+REBOOT_REQUESTED Partitions=gpu"
    )
    (node,) = read_nodes_shown(text, "x", [])
    assert (node.total.cpus, node.total.mem_mib, node.schedulable) == (14, 60_000, True)
