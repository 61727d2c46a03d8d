"""The made-up answers of the benchmark are readable and as large as asked."""

from pathlib import Path

import pytest

from rltuned.domain.plan import Plan, Result, SetPriority, Target
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.commands import SlurmCli
from rltuned.slurm.synthetic import MARKS, NOW, grow_older, write_programs


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


def test_what_is_written_is_read_back_and_stays(tmp_path: Path) -> None:
    write_programs(tmp_path, pending=30, running=2, nodes=4)
    it = SlurmBackend(SlurmCli(bin_dir=tmp_path), lambda: float(NOW), marks=MARKS)
    jobs = it.observe().pending
    one, array = jobs[3], next(j for j in jobs if j.array is not None)
    plan = Plan(
        tuple(
            SetPriority(Target(j.job_id, j.submitted_at, j.address), j.priority, new, 0)
            for j, new in ((one, 5), (array, 4_000_000_000))
        )
    )
    assert {o.result for o in it.apply(plan)} == {Result.APPLIED}
    assert grow_older(tmp_path, pending=30, running=2, age=7) == 2
    later = {j.job_id: j for j in it.observe().pending}
    assert later[one.job_id].priority == 5
    assert later[array.job_id].priority == 4_000_000_000
    others = [j for j in jobs if j not in {one, array}]
    assert all(later[j.job_id].priority == j.priority + 7 for j in others)
    assert it.load().server_threads == 3
