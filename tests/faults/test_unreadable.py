"""One row that cannot be read costs one job, on a real Slurm."""

import signal

import pytest

from rltuned.slurm.site import parse_counts
from tests.builders import sure
from tests.faults.case import Case

pytestmark = pytest.mark.slurm


def squeue_with(job: int, old: str, new: str) -> str:
    """squeue's answer with something else in the row of one job."""
    return (
        f"\"$REAL\" \"$@\" | tr '\\n' '\\001' | sed -E "
        f"'s/{old}([^\\x01]*\\x1f{job}\\x1f)/{new}\\1/' | tr '\\001' '\\n'"
    )


def test_a_job_that_turns_unreadable_is_left_alone_and_the_others_go_on(case: Case) -> None:
    first, middle, last = case.waiting

    def counts_these_alone() -> bool:
        seen = sure(parse_counts(case.lab.run("sdiag")))
        return (seen.pending, seen.running) == (len(case.waiting), len(case.running))

    # a count is up to 30 s old: jobs of the test before, ended since, look as if squeue lacked them
    case.lab.wait_for(counts_these_alone, "slurmctld counts these jobs alone")
    with case.daemon() as daemon:
        daemon.wait_for(lambda: case.turned, "the shortest stands first")
        before = case.sprio()
        case.shims.always("squeue", squeue_with(middle, "13-21:20:00", "a while"), "--noconvert")
        daemon.wait_for_log(f"name={middle}")
        cycles = daemon.metric("rltuned_cycles_total")
        daemon.wait_for(lambda: daemon.metric("rltuned_cycles_total") >= cycles + 3, "three more")
        assert daemon.log().count(f"name={middle}") == 1
        assert "cycle_skipped" not in daemon.log()
        assert daemon.metric('rltuned_jobs_refused{reason="unreadable"}') == 1
        assert case.sprio()[middle] == before[middle]
        reply = case.rltuned("explain", str(middle))
        assert "what Slurm prints of it cannot be read" in reply.stdout, reply.stdout + reply.stderr
        assert "'a while' is no time limit" in reply.stdout
        daemon.signal(signal.SIGTERM)
        assert daemon.ends() == 0
    # the journal still knows that it is ours, and its number and id are all that is needed
    case.assert_given_back()
    assert {first, middle, last} == set(case.natural)


def test_a_job_that_its_owner_makes_larger_than_64_bits_costs_that_job(case: Case) -> None:
    """Slurm takes such an update of a pending job; three cycles later no daemon was there."""
    with case.daemon() as daemon:
        daemon.wait_for(lambda: case.turned, "the shortest stands first")
        huge = case.lab.sbatch("-N65000")
        # Slurm takes the last one when it has looked at the others, whatever it says of them
        for change in (
            "MinMemoryNode=99999999999",
            "TimeLimit=4294967290",
            f"Gres=gpu:{10**18 - 1}",
        ):
            case.lab.run("scontrol", "update", f"JobId={huge}", change, check=False)
        daemon.wait_for_log(f"name={huge}")
        cycles = daemon.metric("rltuned_cycles_total")
        daemon.wait_for(lambda: daemon.metric("rltuned_cycles_total") >= cycles + 3, "three more")
        assert "are too much" in daemon.log()
        assert "cycle_skipped" not in daemon.log()
        case.lab.run("scancel", str(huge))
        daemon.signal(signal.SIGTERM)
        assert daemon.ends() == 0
    case.assert_given_back()
