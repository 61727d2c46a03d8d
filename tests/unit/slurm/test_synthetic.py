"""The made-up answers of the benchmark are readable and as large as asked."""

from pathlib import Path

import pytest

from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.commands import SlurmCli
from rltuned.slurm.synthetic import MARKS, NOW, write_programs


def test_made_up_cluster_is_read_whole(tmp_path: Path) -> None:
    write_programs(tmp_path, pending=300, running=40, nodes=50)
    it = SlurmBackend(SlurmCli(bin_dir=tmp_path), lambda: float(NOW), marks=MARKS)
    snapshot = it.observe()
    assert (len(snapshot.pending), len(snapshot.running), len(snapshot.nodes)) == (300, 40, 50)
    assert sum(j.array is not None for j in snapshot.pending) == 30
    assert sum(bool(j.dependency) for j in snapshot.pending) == 15
    assert [n.name for n in snapshot.nodes if not n.schedulable] == ["gpu0000"]
    assert {p.name for p in snapshot.partitions} == {"gpu", "sla"}
    assert snapshot == it.observe()


def test_more_running_jobs_than_nodes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="3 running jobs on 2 nodes"):
        write_programs(tmp_path, pending=0, running=3, nodes=2)
