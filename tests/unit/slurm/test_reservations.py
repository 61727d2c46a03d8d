"""What scontrol shows of reservations, as Slurm 22.05 and 26.05 print it."""

from rltuned.domain.cluster import Reservation, Resources
from rltuned.domain.units import NodeName, UnixTime
from rltuned.slurm.nodes import read_reservations

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


def test_an_empty_answer_is_none() -> None:
    assert read_reservations(["No reservations in the system"]) == ((), ())


def test_a_row_that_cannot_be_read_costs_that_row() -> None:
    odd = MAINT.replace("mnt", "odd").replace("StartTime=1795898095", "StartTime=soon")
    cut = "ReservationName=cut StartTime=1795898095"
    found, bad = read_reservations([odd, MAINT, MAINT, cut, "what is this"])
    assert [one.name for one in found] == ["mnt"]
    assert [(row.kind, row.name) for row in bad] == [
        ("reservation", "odd"),
        ("reservation", "mnt"),
        ("reservation", "cut"),
        ("reservation", ""),
    ]
    assert all(row.why for row in bad)
