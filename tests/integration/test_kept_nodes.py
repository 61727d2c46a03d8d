"""What keeps a job from its nodes, and what holds it: "fits now", the place and the expected start
are what a real Slurm does.

Reservations, other users' jobs and administrators keep nodes; limits of a QOS or an association
hold jobs, which no order moves, so that they have no place in it.
"""

from collections.abc import Iterator

import pytest

from rltuned.core.decide import Decision, Entry, Knobs, decide
from rltuned.core.forecast import NO_ARRIVALS
from rltuned.core.line import THROTTLED, proposed_line
from rltuned.core.refusals import Refusal
from rltuned.core.select import Scope
from rltuned.core.starts import Scales, Start, ToPlay, expected_of
from rltuned.daemon.what_if import OtherRequest, what_if
from rltuned.domain.snapshot import NO_CONTEXT
from rltuned.domain.units import JobId
from rltuned.policies.baselines import BASELINES
from rltuned.text import at_clock
from tests.builders import sure
from tests.clusters import module_lab, world_of
from tests.lab import SlurmLab

pytestmark = pytest.mark.slurm

plain = module_lab(
    partitions=(
        "PartitionName=gpu Nodes=ALL Default=YES MaxTime=UNLIMITED DefaultTime=60",
        "PartitionName=short Nodes=ALL MaxTime=10 DefaultTime=5",
        "PartitionName=small Nodes=p[1-2] MaxTime=UNLIMITED MaxMemPerNode=1000",
    )
)
ONE = ("-n1", "--mem=100")


LIMITS = {"one": "MaxJobsPerUser=1", "small": "GrpTRES=cpu=2", "short": "MaxWall=10"}
NAMES = ",".join(LIMITS)
limited = module_lab(
    *(f"add qos {name} {limit}" for name, limit in LIMITS.items()),
    f"modify user root set qos+={NAMES}",
    "add account tight GrpJobs=1",
    *(f"add user {user} account=tight qos={NAMES},normal" for user in ("root", "daemon")),
    accounting=True,
    extra=("AccountingStorageEnforce=limits,qos",),
)


def cleaned(lab: SlurmLab) -> Iterator[SlurmLab]:
    lab.clear()
    yield lab
    lab.run("scontrol", "delete", "reservation", "kept", check=False)
    lab.run("scontrol", "update", "NodeName=k1", "State=RESUME", check=False)
    lab.clear()


@pytest.fixture
def lab(plain: SlurmLab) -> Iterator[SlurmLab]:
    yield from cleaned(plain)


@pytest.fixture
def enforcing(limited: SlurmLab) -> Iterator[SlurmLab]:
    yield from cleaned(limited)


def reserve(lab: SlurmLab, *words: str) -> None:
    lab.scontrol("create", "reservation", "ReservationName=kept", *words)


def look(lab: SlurmLab) -> Decision:
    world = world_of(lab)
    return decide(world.observe(), BASELINES["sjf"], Knobs(rules=Scope(min_age_s=0)))


def entry_of(found: Decision, job: int) -> Entry:
    return next(e for e in found.entries if e.job.job_id == job)


def start_of(found: Decision, job: int) -> Start:
    return expected_of(proposed_line(found), {}, NO_ARRIVALS).starts[JobId(job)]


def reason(lab: SlurmLab, job: int) -> str:
    return lab.run("squeue", "-h", "-j", str(job), "-O", "reason:90").strip()


def as_nobody(lab: SlurmLab, *words: str) -> int:
    return lab.sbatch("--uid=65534", "-D/tmp", "-o/dev/null", *words)


LONG, IGNORE = ("-t120",), "Flags=IGNORE_JOBS"
RESERVED: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = [
    (f"Nodes=ALL Users=root {IGNORE},MAINT", LONG, ("-t10",)),
    (f"Nodes=ALL Users=root {IGNORE}", LONG, ("-t10",)),
    (f"Nodes=ALL Users=root {IGNORE},DAILY", LONG, ("-t10",)),
    (f"Nodes=p1 Users=daemon {IGNORE}", (*LONG, "-wp1"), (*LONG, "--gres=gpu:p100:1")),
    ("Nodes=p1 Users=daemon CoreCnt=12", (*LONG, "-wp1", "-n8"), (*LONG, "-wp1", "-n4")),
]
"""What is reserved in 40 minutes, a job that would run into it, and one that does not."""


@pytest.mark.parametrize(("words", "waits", "runs"), RESERVED)
def test_a_job_that_would_run_into_a_reservation_starts_when_it_is_over(
    lab: SlurmLab, words: str, waits: tuple[str, ...], runs: tuple[str, ...]
) -> None:
    reserve(lab, "StartTime=now+40minutes", "Duration=4:00:00", *words.split())
    job = lab.sbatch(*ONE, "-N1", *waits)
    # 23.11 without slurmdbd says InvalidAccount of a job that cannot start
    said = {"Resources", "Priority", "InvalidAccount"} if "CoreCnt" in words else set()
    lab.wait_for(
        lambda: (why := reason(lab, job)) in said or "ReqNodeNotAvail" in why, "Slurm says so"
    )
    found = look(lab)
    entry = entry_of(found, job)
    assert (entry.fits, entry.placement) == (False, None)
    assert "does not fit now" in entry.why
    if "CoreCnt" not in words:
        (kept,) = found.snapshot.reservations
        begins_s = sure(start_of(found, job).low_s)
        assert begins_s >= kept.end_at - found.snapshot.taken_at
    lab.run("scancel", str(job))
    lab.runs(*ONE, "-N1", *runs)


def test_a_node_with_a_job_that_has_it_for_its_user_is_free_for_that_user_alone(
    lab: SlurmLab,
) -> None:
    alone = [lab.sbatch(*ONE, "-t60", "--exclusive=user", f"-w{name}") for name in ("p1", "p2")]
    lab.wait_for(lambda: {lab.state(job) for job in alone} == {"R"}, "they run")
    other = as_nobody(lab, *ONE, "-t30", "--gres=gpu:p100:1")
    lab.wait_for(lambda: reason(lab, other) == "Resources", "Slurm keeps the nodes from others")
    found = look(lab)
    assert not entry_of(found, other).fits
    assert sure(start_of(found, other).low_s) > 0
    lab.runs(*ONE, "-t30", "--gres=gpu:p100:1")


def test_a_job_that_names_a_drained_node_does_not_fit(lab: SlurmLab) -> None:
    lab.scontrol("update", "NodeName=k1", "State=DRAIN", "Reason=test")
    job = lab.sbatch(*ONE, "-t10", "-wk1")
    lab.wait_for(lambda: "ReqNodeNotAvail" in reason(lab, job), "Slurm says so")
    found = look(lab)
    assert not entry_of(found, job).fits
    assert start_of(found, job).median_s is None


def test_of_an_array_that_runs_as_many_tasks_as_it_allows_it_is_said(lab: SlurmLab) -> None:
    lab.sbatch(*ONE, "-t10", "--array=0-3%1")
    lab.wait_for(lambda: "JobArrayTaskLimit" in lab.run("squeue", "-h", "-O", "reason:40"), "so")
    found = look(lab)
    assert found.entries == ()
    assert {*proposed_line(found).cannot.values()} == {THROTTLED}


def test_a_job_with_more_memory_than_its_partition_allows_has_no_place(lab: SlurmLab) -> None:
    job = lab.sbatch("-n1", "--mem=2000", "-t10", "-psmall")
    lab.wait_for(lambda: reason(lab, job) in {"MaxMemPerLimit", "PartitionConfig"}, "it says so")
    assert dict(look(lab).refused) == {job: Refusal.UNFULFILLABLE}


def test_a_limit_beyond_that_of_the_partition_would_not_start(lab: SlurmLab) -> None:
    lab.scontrol("update", "NodeName=k1", "State=DRAIN", "Reason=test")
    job = lab.sbatch(*ONE, "-t10", "-wk1", "-pshort")
    lab.wait_for(lambda: "ReqNodeNotAvail" in reason(lab, job), "it waits")
    found = look(lab)
    (waits,) = found.snapshot.pending
    told = what_if(
        found.snapshot, NO_CONTEXT, waits, OtherRequest(limit_s=3_600.0),
        look=lambda _: NO_CONTEXT, order=None,
        last=ToPlay(found.snapshot, (), {}, NO_ARRIVALS), scales=Scales(),
    )["what_if"]  # fmt: skip
    assert told["expected_start"] is None
    assert told["expected_why"] == ("Slurm would not start it: partition short takes at most 10m")
    over = lab.sbatch(*ONE, "-t60", "-pshort")
    lab.wait_for(lambda: reason(lab, over) == "PartitionTimeLimit", "as Slurm does not")


def test_of_a_begin_time_it_is_said_when(lab: SlurmLab) -> None:
    job = lab.sbatch(*ONE, "-t10", "--begin=now+2hours")
    lab.wait_for(lambda: reason(lab, job) == "BeginTime", "Slurm says so")
    found = look(lab)
    (waits,) = found.snapshot.pending
    now = found.snapshot.taken_at
    begins = at_clock(sure(waits.eligible_at), now)
    why = proposed_line(found).cannot[waits.job_id]
    assert why == f"it may not start before {begins} (begin time)"


def blocked(lab: SlurmLab) -> set[int]:
    refused = look(lab).refused
    return {int(job) for job, why in refused if why is Refusal.BLOCKED}


@pytest.mark.parametrize(
    ("options", "starts"),
    [(("--qos=one",), "QOS"), (("--qos=small", "-n2"), "QOS"), (("--account=tight",), "Assoc")],
)
def test_a_job_that_a_limit_holds_has_no_place_until_the_limit_lets_it_go(
    enforcing: SlurmLab, options: tuple[str, ...], starts: str
) -> None:
    first = enforcing.runs(*ONE, "-t60", *options)
    second = enforcing.sbatch(*ONE, "-t60", *options)
    enforcing.wait_for(lambda: reason(enforcing, second).startswith(starts), "Slurm says so")
    found = look(enforcing)
    assert (second, Refusal.BLOCKED) in {(int(j), why) for j, why in found.refused}
    assert second not in {int(entry.job.job_id) for entry in found.entries}
    enforcing.run("scancel", str(first))
    enforcing.wait_for(lambda: enforcing.state(second) == "R", "the limit lets it go")


def test_a_job_whose_nodes_are_kept_for_another_has_no_place(enforcing: SlurmLab) -> None:
    reserve(enforcing, "StartTime=now", "Duration=60", "Nodes=m1", "Users=daemon")
    job = enforcing.sbatch(*ONE, "-t60", "-wm1")
    enforcing.wait_for(lambda: "ReqNodeNotAvail" in reason(enforcing, job), "Slurm says so")
    enforcing.wait_for(
        lambda: blocked(enforcing) == {job}, "and of the node too, on 24.11 seconds later"
    )
    enforcing.scontrol("delete", "reservation", "kept")
    enforcing.wait_for(lambda: enforcing.state(job) == "R", "it is free")


def test_a_job_that_waits_for_resources_alone_keeps_its_place(enforcing: SlurmLab) -> None:
    """Slurm 24.11 and 26.05 say of the second that its node may be reserved for another job."""
    enforcing.runs("-n4", "-t60", "--mem=100", "-wm1")
    jobs = [enforcing.sbatch("-n4", f"-t{10 * i}", "--mem=100", "-wm1") for i in (1, 2)]
    enforcing.wait_for(lambda: reason(enforcing, jobs[0]) == "Resources", "Slurm says so")
    found = look(enforcing)
    reasons = [reason(enforcing, job) for job in jobs], found.refused
    assert {int(entry.job.job_id) for entry in found.entries} == set(jobs), reasons
