"""Writing to a real Slurm: every kind of action, on every kind of job, and what it undoes."""

import time
from operator import attrgetter

import pytest

from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import (
    OVERSUBSCRIBE,
    PRIORITY,
    RELEASE,
    SITE_FACTOR,
    Action,
    Plan,
    Result,
    Target,
)
from rltuned.domain.snapshot import Snapshot
from rltuned.run import Call
from rltuned.slurm.backend import SlurmBackend
from tests.clusters import world_of
from tests.lab import SlurmLab

pytestmark = pytest.mark.slurm
FULL = ("--gres=gpu:p100:4", "-n16", "-N1")


def block(lab: SlurmLab) -> tuple[int, int]:
    """Jobs that hold both p nodes, so that whatever needs p100 waits."""
    first = lab.sbatch(*FULL, "-wp1")
    second = lab.sbatch(*FULL, "-wp2")
    lab.wait_for(lambda: {lab.state(first), lab.state(second)} == {"R"}, "both p nodes busy")
    return first, second


def job(snapshot: Snapshot, job_id: int) -> PendingJob:
    return next(j for j in snapshot.pending if j.job_id == job_id)


def target(found: PendingJob) -> Target:
    return Target(found.job_id, found.submitted_at, found.address)


def set_priority(found: PendingJob, new: int) -> Action:
    return Action(PRIORITY, target(found), found.priority, new, found.nice)


def results(it: SlurmBackend, *actions: Action) -> list[Result]:
    return [o.result for o in it.apply(Plan(actions))]


def free(found: PendingJob, old: int, nice: int = 0) -> Action:
    return Action(RELEASE, target(found), old, None, nice)


def test_256_priorities_in_two_programs_and_one_look_back(slurm: SlurmLab) -> None:
    block(slurm)
    script = "".join(
        f"sbatch --output=/dev/null --chdir=/ {' '.join(FULL)} --wrap='sleep 60' >/dev/null\n"
        for _ in range(256)
    )
    slurm.run("sh", text=script, timeout_s=60)
    calls: list[Call] = []
    it = world_of(slurm, on_call=calls.append)
    jobs = it.observe().pending
    assert len(jobs) == 256
    calls.clear()
    actions = [set_priority(j, 10_000 - i) for i, j in enumerate(jobs)]
    assert set(results(it, *actions)) == {Result.APPLIED}
    assert [c.program for c in calls] == ["scontrol", "scontrol", "squeue"]
    again = {j.job_id: j.priority for j in it.observe().pending}
    assert [again[j.job_id] for j in jobs] == [10_000 - i for i in range(256)]


def test_gone_and_refused(slurm: SlurmLab) -> None:
    block(slurm)
    ended, held, other = (slurm.sbatch(*FULL) for _ in range(3))
    it = world_of(slurm)
    snapshot = it.observe()
    plan = Plan(tuple(set_priority(job(snapshot, i), 9_000 + i) for i in (ended, held, other)))
    slurm.run("scancel", str(ended))
    slurm.scontrol("uhold", str(held))
    outcomes = it.apply(plan)
    assert [o.result for o in outcomes] == [Result.GONE, Result.REFUSED, Result.APPLIED]
    assert "held state" in outcomes[1].detail
    assert job(it.observe(), held).priority == 0


def test_another_job_under_the_same_number_is_gone_not_changed_by_release(slurm: SlurmLab) -> None:
    block(slurm)
    waiting = slurm.sbatch(*FULL)
    it = world_of(slurm)
    found = job(it.observe(), waiting)
    stranger = Target(found.job_id, type(found.submitted_at)(found.submitted_at - 1), found.address)
    assert results(it, Action(RELEASE, stranger, 1, None, 0)) == [Result.GONE]


def test_release_never_frees_a_held_job(slurm: SlurmLab) -> None:
    ids = [slurm.sbatch("-n1", "-H"), slurm.sbatch("-n1", "-H")]
    slurm.scontrol("hold", str(ids[1]))
    it = world_of(slurm)
    snapshot = it.observe()
    outcomes = it.apply(Plan(tuple(free(job(snapshot, i), 77) for i in ids)))
    assert [o.result for o in outcomes] == [Result.REFUSED, Result.REFUSED]
    assert "held" in outcomes[0].detail
    time.sleep(2.5)
    assert [slurm.state(i) for i in ids] == ["PD", "PD"]
    assert [job(it.observe(), i).priority for i in ids] == [0, 0]


def test_release_of_an_array_leaves_its_held_task_held(slurm: SlurmLab) -> None:
    block(slurm)
    array = slurm.sbatch(*FULL, "--array=0-4")
    it = world_of(slurm)
    whole = job(it.observe(), array)
    assert whole.address == str(array)
    assert results(it, set_priority(whole, 55)) == [Result.APPLIED]
    slurm.scontrol("uhold", f"{array}_3")  # after we looked: the old address would free it
    assert results(it, free(whole, 55, 0)) == [Result.APPLIED]
    left = [j for j in it.observe().pending if j.array and j.array.array_job_id == array]
    assert sorted((j.held_by, j.priority == 0) for j in left) == [("", False), ("user", True)]


def test_priority_of_a_split_array_touches_only_the_record(slurm: SlurmLab) -> None:
    block(slurm)
    array = slurm.sbatch(*FULL, "--array=0-5%2")
    slurm.scontrol("update", f"JobId={array}_2", "Nice=7")
    it = world_of(slurm)
    before = it.observe()
    head = job(before, array)
    assert head.address == f"{array}_[0-1,3-5]"
    assert results(it, set_priority(head, 4_321)) == [Result.APPLIED]
    after = it.observe()
    assert len(after.pending) == len(before.pending)  # nothing was split
    assert [j.priority for j in after.pending if j.job_id != array] == [
        j.priority for j in before.pending if j.job_id != array
    ]
    split = next(j for j in after.pending if j.job_id != array)
    assert results(it, set_priority(split, 1_234)) == [Result.APPLIED]
    last = it.observe()
    assert (job(last, array).priority, job(last, split.job_id).priority) == (4_321, 1_234)
    assert results(it, free(split, 1_234, 7)) == [Result.APPLIED]


def test_het_component_alone_is_touched(slurm: SlurmLab) -> None:
    block(slurm)
    out = slurm.run(
        "sbatch", "--parsable", "--output=/dev/null", *FULL, ":", *FULL,
        text="#!/bin/sh\nsleep 60\n",
    )  # fmt: skip
    leader = int(out.split(";")[0])
    it = world_of(slurm)
    before = it.observe()
    head = job(before, leader)
    assert results(it, set_priority(head, 4_000)) == [Result.APPLIED]
    component = next(j for j in it.observe().pending if j.address == f"{leader}+1")
    assert component.priority == job(before, component.job_id).priority
    assert results(it, free(head, 4_000, 0)) == [Result.APPLIED]


def test_dependent_and_exclusive_jobs_keep_what_they_are(slurm: SlurmLab) -> None:
    first, _ = block(slurm)
    ids = (
        slurm.sbatch(*FULL, f"--dependency=afterok:{first}"),
        slurm.sbatch(*FULL, "--exclusive"),
        slurm.sbatch(*FULL, "--begin=now+1hour"),
    )
    it = world_of(slurm)
    before = it.observe()
    kept = attrgetter("dependency", "oversubscribe", "eligible_at", "request")
    actions = [set_priority(job(before, i), 6_000 + i) for i in ids]
    assert set(results(it, *actions)) == {Result.APPLIED}
    after = it.observe()
    assert [kept(job(after, i)) for i in ids] == [kept(job(before, i)) for i in ids]


def test_site_factor_is_added_and_undone_exactly(slurm: SlurmLab) -> None:
    block(slurm)
    ids = [slurm.sbatch(*FULL, "--nice=12"), slurm.sbatch(*FULL, "--array=0-3")]
    it = world_of(slurm)
    # sprio lists an array only once the scheduler has made it eligible
    slurm.wait_for(
        lambda: all(j.site_factor == 0 for j in it.observe().pending), "sprio shows both"
    )
    before = {i: job(it.observe(), i) for i in ids}
    numbers = zip(ids, (5_000, -9_999), strict=True)
    up = [Action(SITE_FACTOR, target(before[i]), 0, number) for i, number in numbers]
    assert set(results(it, *up)) == {Result.APPLIED}
    there = it.observe()
    assert [job(there, i).site_factor for i in ids] == [5_000, -9_999]
    assert abs(job(there, ids[0]).priority - before[ids[0]].priority - 5_000) <= 5
    assert job(there, ids[1]).priority == 1  # never 0: a site factor cannot hold
    assert job(there, ids[0]).nice == 12
    undo = [Action(SITE_FACTOR, target(before[i]), 5_000, 0) for i in ids]
    assert set(results(it, *undo)) == {Result.APPLIED}
    after = it.observe()
    for i in ids:
        assert job(after, i).site_factor == 0
        assert abs(job(after, i).priority - before[i].priority) <= 5


def test_site_factor_of_a_frozen_job_is_not_reported_to_be_applied(slurm: SlurmLab) -> None:
    block(slurm)
    found = slurm.sbatch(*FULL)
    it = world_of(slurm)
    seen = job(it.observe(), found)
    it.apply(Plan((set_priority(seen, 500),)))
    outcomes = it.apply(Plan((Action(SITE_FACTOR, target(seen), 0, 40),)))
    assert [o.result for o in outcomes] == [Result.FAILED]
    assert outcomes[0].detail == "reads back site factor 0"
    it.apply(Plan((Action(SITE_FACTOR, target(seen), 40, 0),)))


def test_oversubscribe_puts_an_exclusive_job_beside_others(slurm: SlurmLab) -> None:
    slurm.sbatch("-n4", "-wp1")
    exclusive = slurm.sbatch("-n2", "--exclusive", "-wp1")
    slurm.sbatch(*FULL, "-wp2")
    it = world_of(slurm)
    slurm.wait_for(lambda: len(it.observe().running) == 2, "the others run")
    found = job(it.observe(), exclusive)
    assert (found.oversubscribe, found.request.exclusive) == ("NO", True)
    assert it.observe().preemption is False
    share = Action(OVERSUBSCRIBE, target(found), found.oversubscribe, "YES")
    slurm.scontrol("update", "PartitionName=gpu", "State=DOWN")  # else it may start before the look
    try:
        assert results(it, share) == [Result.APPLIED]
    finally:
        slurm.scontrol("update", "PartitionName=gpu", "State=UP")
    slurm.wait_for(lambda: slurm.state(exclusive) == "R", "it runs beside the other")
    assert results(it, share) == [Result.GONE]


def test_a_job_that_was_reported_to_share_keeps_others_off_again(slurm: SlurmLab) -> None:
    """Also where squeue no longer shows it: 26.05 prints NO for a job that did not ask, too."""
    alone, plain = slurm.sbatch("-n1", "-wp1", "--exclusive", "--hold"), slurm.sbatch("-n1", "-wk1")
    for word in ("YES", "NO"):
        slurm.scontrol("update", f"JobId={alone}", f"OverSubscribe={word}")
    slurm.scontrol("release", str(alone))
    slurm.wait_for(lambda: slurm.state(alone) == slurm.state(plain) == "R", "both run")
    beside_alone, beside_plain = slurm.sbatch("-n1", "-wp1"), slurm.sbatch("-n1", "-wk1")
    slurm.wait_for(lambda: slurm.state(beside_plain) == "R", "it runs beside a plain job")
    assert slurm.state(beside_alone) == "PD"


@pytest.mark.parametrize(
    "listed",
    [
        "0-9", "0-8:2", "0-10:2", "0-12:2", "0-12:3", "0-15:3", "7-301:6%2", "0,20",
        "1,3,5,7,9,12",
    ],
)  # fmt: skip
def test_every_task_of_a_list_is_named(slurm: SlurmLab, listed: str) -> None:
    """squeue -r of 24.11 and 26.05 leaves out 12 of 0-12:2: a write to the list would part it."""
    block(slurm)
    array = slurm.sbatch(*FULL, f"--array={listed},1000")
    slurm.scontrol("hold", f"{array}_1000")
    body, _, step = listed.partition("%")[0].partition(":")
    wanted = members(body, int(step or 1))
    head = job(world_of(slurm).observe(), array)
    assert members(head.address.removeprefix(f"{array}_[").removesuffix("]")) == wanted
    assert head.array is not None
    assert head.array.tasks == len(wanted)


def members(text: str, step: int = 1) -> set[int]:
    """Of 1-3,7."""
    found = set[int]()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1, step))
    return found
