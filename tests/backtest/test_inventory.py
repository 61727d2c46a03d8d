"""Nodes and partitions as scontrol shows them, on answers recorded from three releases."""

import re
import shutil
from pathlib import Path

import pytest

from rltuned.errors import TraceError
from rltuned.lab.backtest.site import SiteModel, read_site_model

HOME = Path(__file__).resolve().parents[1] / "data" / "slurm"
RELEASES = ("22.05", "24.11", "26.05")
NODE = "NodeName={} CPUTot=4 Gres=gpu:t4:2 RealMemory=100 State=IDLE Partitions=gpu"
GOOD = NODE.format("a1")


def model(folder: Path, nodes: str) -> SiteModel:
    """A recorded site with other nodes."""
    shutil.copytree(HOME / "24.11" / "site", folder, dirs_exist_ok=True)
    (folder / "nodes.txt").write_text(nodes)
    return read_site_model(folder)


@pytest.mark.parametrize("release", RELEASES)
def test_a_recorded_site_in_either_form(release: str, tmp_path: Path) -> None:
    found = read_site_model(HOME / release / "site")
    assert {n.name: (n.total.gpus, n.total.cpus, n.total.mem_mib) for n in found.cluster.nodes} == {
        "k1": (2, 8, 32000),
        "k2": (2, 8, 32000),
        "m1": (1, 4, 16000),
        "p1": (4, 16, 64000),
        "p2": (4, 16, 64000),
    }
    p1 = next(n for n in found.cluster.nodes if n.name == "p1")
    assert ([g.gpu_type for g in p1.gpus], p1.partitions) == (["p100"], ("gpu", "short", "sla"))
    assert all(n.schedulable and n.free == n.total for n in found.cluster.nodes)
    parts = {p.name: p for p in found.cluster.partitions}
    assert (parts["gpu"].default, parts["closed"].up, parts["sla"].priority_tier) == (
        True,
        False,
        2,
    )
    assert (parts["short"].priority_factor, parts["short"].max_time_s) == (30, 600.0)
    assert parts["whole"].oversubscribe == "EXCLUSIVE"
    # without -o scontrol breaks a record: each line but the first begins with spaces
    shutil.copytree(HOME / release / "site", tmp_path, dirs_exist_ok=True)
    for name in ("nodes.txt", "partitions.txt"):
        text = (tmp_path / name).read_text()
        keys = "Gres|RealMemory|State|Partitions|MaxTime|OverSubscribe"
        broken = re.sub(rf" (?=(?:{keys})=)", "\n   ", text)
        broken = broken.replace("\nNodeName=", "\n\nNodeName=").replace("\nPart", "\n\nPart")
        assert broken.count("\n") > 2 * text.count("\n")
        (tmp_path / name).write_text(broken)
    assert read_site_model(tmp_path) == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", ": no node in it"),
        ("NodeName=a1 CPUTot=4 State=IDLE", ":1: node a1: no 'RealMemory'"),
        ("NodeName=a1 CPUTot=many RealMemory=1 State=IDLE", ":1: node a1: invalid literal"),
        ("\n   CPUTot=4", ":2: .* does not begin with NodeName="),
    ],
)
def test_what_is_no_node_is_named(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(TraceError, match=f"^{tmp_path / 'nodes.txt'}{why}"):
        model(tmp_path, text)


@pytest.mark.parametrize(
    ("nodes", "figures"),
    [
        # what people write forges nothing
        (f"{GOOD} Reason=bad NodeName=b1 CPUTot=900 [root@2026]", ("a1", 4, 100, True)),
        # what is not there yet is left out, what is drained is not
        (
            f"{GOOD.replace('IDLE', 'IDLE+DRAIN')}\n{NODE.format('f1').replace('IDLE', 'FUTURE')}",
            ("a1", 4, 100, False),
        ),
        # what jobs do not get of a node is in no total
        (
            NODE.format("a1").replace("CPUTot=4", "CPUEfctv=14 CPUTot=16 MemSpecLimit=40"),
            ("a1", 14, 60, True),
        ),
    ],
)
def test_what_a_node_has(tmp_path: Path, nodes: str, figures: tuple[object, ...]) -> None:
    (node,) = model(tmp_path, nodes).cluster.nodes
    assert (node.name, node.total.cpus, node.total.mem_mib, node.schedulable) == figures


def test_a_record_that_cannot_be_read_costs_itself(tmp_path: Path) -> None:
    odd = ["rubbish", "NodeName=b CPUTot=4", GOOD, NODE.format("a9").replace("=4", "=x")]
    found = model(tmp_path, "\n".join((GOOD, *odd, NODE.format("a2"))))
    assert [n.name for n in found.cluster.nodes] == ["a1", "a2"]
    assert [text.partition(": ")[0] for text in found.left_out] == [
        f"{tmp_path / 'nodes.txt'}:{line}" for line in (2, 3, 4, 5)
    ]
    for text, why in zip(found.left_out, ("begin with", "'RealMemory'", "twice", "x"), strict=True):
        assert why in text
