"""What sinfo does not say of nodes, and what scontrol shows of reservations."""

from pathlib import Path

import pytest

from rltuned.domain.cluster import Reservation, Resources
from rltuned.domain.snapshot import Unreadable
from rltuned.domain.units import NodeName, UnixTime
from rltuned.errors import SnapshotError
from rltuned.slurm import nodes
from rltuned.slurm.columns import FIELD, NODE_COLUMNS, Marks
from rltuned.slurm.nodes import (
    KNOWN_S,
    HiddenNodes,
    read_kept_back,
    read_nodes,
    read_partitions,
    read_reservations,
)
from rltuned.slurm.run import Commands, SlurmCli
from tests.programs import executable
from tests.unit.slurm.rows import node_row

MARKS = Marks(record="\x1e#t")
NOW = 1_000_000.0


def row(name: str, **changed: str) -> list[str]:
    return node_row(name, **{"statecomplete": "idle+cloud+powered_down", **changed})


class World:
    """A sinfo that shows a node that is asked for by name, and counts the questions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        executable(
            folder / "sinfo",
            "#!/bin/sh\n"
            f'for word; do last=$before; before=$word; [ "$last" = -n ] && name=$word; done\n'
            f'echo "$name" >>"{folder}/asked"\n'
            f'cat "{folder}/head" && [ -e "{folder}/$name" ] && cat "{folder}/$name"; exit 0\n',
        )
        (folder / "asked").touch()
        self._put("head", [name.upper() for name in NODE_COLUMNS])
        self.hidden = HiddenNodes(Commands(SlurmCli(bin_dir=folder)), lambda: MARKS)
        self.odd: list[Unreadable] = []

    def _put(self, name: str, cells: list[str]) -> None:
        (self.folder / name).write_text(FIELD.join(cells) + MARKS.record + "\n")

    def has(self, *names: str, **changed: str) -> None:
        for name in names:
            self._put(name, row(name, **changed))

    def look(
        self, shown: list[list[str]], names: set[str], at: float = NOW
    ) -> dict[str, list[str]]:
        self.odd = []
        found = list(self.hidden.beside(iter(shown), frozenset(names), at, self.odd))
        return {one[0]: one for one in found}

    @property
    def asked(self) -> list[str]:
        return (self.folder / "asked").read_text().split()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_hidden_node_is_asked_for_once_and_again_when_that_is_old(world: World) -> None:
    world.has("c1", "c2")
    assert set(world.look([row("p1")], {"p1", "c1", "c2"})) == {"p1", "c1", "c2"}
    assert set(world.look([row("p1")], {"p1", "c1", "c2"}, NOW + 60)) == {"p1", "c1", "c2"}
    assert world.asked == ["c1", "c2"]
    world.has("c2", statecomplete="idle+cloud+drain+powered_down")
    found = world.look([row("p1")], {"p1", "c1", "c2"}, NOW + KNOWN_S)
    assert "drain" in found["c2"][1]
    assert world.asked == ["c1", "c2"] * 2


def test_nothing_is_asked_where_slurm_hides_nothing_or_has_no_such_node(world: World) -> None:
    for names in (set[str](), {"p1"}):
        assert set(world.look([row("p1")], names)) == {"p1"}
        assert not world.asked
    assert world.look([row("p1")], {"p1", "gone"}).keys() == {"p1"}
    assert not world.odd


def test_many_are_asked_for_from_look_to_look(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "MOST_ASKED", 3)
    names = {f"c{n}" for n in range(8)}
    world.has(*names)
    known = []
    for look in range(4):
        known.append(len(world.look([], names, NOW + look)))
        assert [u.why.split()[0] for u in world.odd] == ([str(8 - known[-1])] if look < 2 else [])
    assert known == [3, 6, 8, 8]
    assert sorted(world.asked) == sorted(names)


SHOWN = """\
NodeName=s1 CPUAlloc=0 CPUEfctv=14 CPUTot=16 RealMemory=64000 CoreSpecCount=2 MemSpecLimit=4000 \
State=IDLE Reason=a CPUEfctv=1 CPUTot=9
NodeName=p1 Arch=x86_64 CPUAlloc=0 CPUEfctv=16 CPUTot=16 RealMemory=64000 State=IDLE
NodeName=old CPUTot=16 RealMemory=64000 MemSpecLimit=100

""".splitlines()


def test_what_is_kept_from_jobs_is_in_no_total() -> None:
    kept = read_kept_back(SHOWN)
    assert kept == {"s1": (2, 4000), "old": (0, 100)}
    counts = {"cpusstate": "14/2/0/16", "memory": "64000", "allocmem": "60000"}
    one, other = read_nodes([row("s1", **counts), row("p1", **counts)], kept=kept)[0]
    assert (one.total.cpus, one.free.cpus, one.total.mem_mib, one.free.mem_mib) == (14, 0, 60000, 0)
    assert (other.total.cpus, other.free.cpus, other.free.mem_mib) == (16, 2, 4000)


def test_nodes_of_all_partitions_and_those_that_give_whole_nodes() -> None:
    text = (
        "PartitionName=a AllocNodes=ALL Nodes=c[1-2],p1 TotalNodes=3\n"
        "PartitionName=b Nodes=(null) TotalNodes=0 Exclusive=NODE\n\n"
        "PartitionName=c Nodes=(null) TotalNodes=0 Exclusive=NO\n"
    )
    assert [*map(set, read_partitions(text))] == [{"c1", "c2", "p1"}, {"b"}]
    with pytest.raises(SnapshotError, match="'slurm_load_partitions' is no partition"):
        read_partitions("slurm_load_partitions")


MAINT = (
    "ReservationName=mnt StartTime=1795898095 EndTime=1795912495 Duration=04:00:00 "
    "Nodes=k[1-2],m1 NodeCnt=3 CoreCnt=20 Features=(null) PartitionName=(null) "
    "Flags=MAINT,IGNORE_JOBS,SPEC_NODES,ALL_NODES TRES=cpu=20 Users=root Groups=(null) "
    "Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null) Watts=n/a "
    "MaxStartDelay=(null) "
)
DAILY = (
    "ReservationName=part StartTime=1795913695 EndTime=1795917295 Duration=01:00:00 Nodes=p1 "
    "NodeCnt=1 CoreCnt=4 Features=(null) PartitionName=gpu Flags=DAILY,SPEC_NODES "
    "TRES=cpu=4,gres/gpu=2 AllowedPartitions=(null) QOS=high Users=(null) Groups=(null) "
    "Accounts=lab,-ops Licenses=(null) State=INACTIVE BurstBuffer=(null) MaxStartDelay=(null) "
    "Comment=Users=nobody StartTime=0 "
)
LICENCES = MAINT.replace("mnt", "lic").replace("Nodes=k[1-2],m1", "Nodes=(null)")


def test_what_is_shown_is_read() -> None:
    assert read_reservations(["No reservations in the system"]) == ((), ())
    found, bad = read_reservations([MAINT, "", DAILY, LICENCES])
    assert not bad
    assert found == (
        Reservation(
            "mnt", UnixTime(1795898095.0), UnixTime(1795912495.0),
            tuple(map(NodeName, ("k1", "k2", "m1"))), Resources(cpus=20),
            users=("root",), flags=("ALL_NODES", "IGNORE_JOBS", "MAINT", "SPEC_NODES"),
        ),
        Reservation(
            "part", UnixTime(1795913695.0), UnixTime(1795917295.0), (NodeName("p1"),),
            Resources(gpus=2, cpus=4), accounts=("lab", "-ops"), others=True,
            flags=("DAILY", "SPEC_NODES"),
        ),
    )  # fmt: skip


def test_a_row_that_cannot_be_read_costs_that_row() -> None:
    odd = MAINT.replace("mnt", "odd").replace("StartTime=1795898095", "StartTime=soon")
    cut = "ReservationName=cut StartTime=1795898095"
    found, bad = read_reservations([odd, MAINT, MAINT, cut, "what is this"])
    assert [one.name for one in found] == ["mnt"]
    assert {row.kind for row in bad} == {"reservation"}
    assert [row.name for row in bad] == ["odd", "mnt", "cut", ""]
    assert all(row.why for row in bad)
