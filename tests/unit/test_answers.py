"""The made-up answers of the benchmark are readable and as large as asked."""

from pathlib import Path

import pytest

from rltuned.domain.jobs import Ownership
from rltuned.domain.plan import SITE_FACTOR, Action, Plan, Result, target_of
from rltuned.domain.snapshot import Remembered
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.run import SlurmCli
from tests.answers import MARKS, NOW, grow_older, write_programs


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
            Action(SITE_FACTOR, target_of(j), 0, new) for j, new in ((one, -5), (array, 4_000_000))
        )
    )
    outcomes = it.apply(plan)
    assert {o.result for o in outcomes} == {Result.APPLIED}, [o.detail for o in outcomes]
    assert grow_older(tmp_path, pending=30, running=2, age=7) == 2
    later = {j.job_id: j for j in it.observe().pending}
    assert [later[j.job_id].site_factor for j in (one, array)] == [-5, 4_000_000]
    assert later[one.job_id].priority == one.priority - 5 + 7
    assert later[array.job_id].priority == array.priority + 4_000_000 + 7
    assert [later[j.job_id].base for j in (one, array)] == [j.priority + 7 for j in (one, array)]
    others = [j for j in jobs if j not in {one, array}]
    assert all(later[j.job_id].priority == j.priority + 7 for j in others)
    assert it.load().server_threads == 3


def test_what_is_remembered_is_joined_to_the_jobs_that_were_read(tmp_path: Path) -> None:
    write_programs(tmp_path, pending=30, running=2, nodes=4)
    it = SlurmBackend(SlurmCli(bin_dir=tmp_path), lambda: float(NOW), marks=MARKS)
    bare = it.observe()
    keys = [(j.job_id, j.submitted_at) for j in bare.pending]
    ours = {key: Ownership("priority", number) for number, key in enumerate(keys[:20])}
    known = Remembered(ours, dict.fromkeys(keys[10:25], 2))
    seen = it.observe(lambda _cluster, _now: known)
    assert seen == bare.marked(known)
    assert [j.owned for j in seen.pending] == [ours.get(key) for key in keys]
