"""Slurm, munge and the accounting go away, hang, restart, or answer nonsense."""

import os
import signal

import pytest

from rltuned.slurm.site import parse_counts
from tests.builders import sure
from tests.e2e.process import Daemon
from tests.faults.case import Case

pytestmark = pytest.mark.slurm


def goes_on(daemon: Daemon, case: Case) -> None:
    """The same process has come to results again, has what it wants, and ends in order."""
    daemon.wait_for(lambda: daemon.metric("rltuned_backoff_seconds") == 0, "no back-off any more")
    daemon.wait_for(lambda: case.turned, "the order it wants")
    daemon.stops()
    assert "Traceback" not in daemon.log()
    case.assert_unharmed()
    case.assert_given_back()


def test_slurmctld_hangs(case: Case) -> None:
    controller = case.lab.pid("slurmctld")
    with case.daemon() as daemon:
        daemon.wait_for(lambda: case.turned, "the first order")
        os.kill(controller, signal.SIGSTOP)
        try:
            daemon.wait_for_log("reason=backend")
            assert daemon.get("/healthz") == "alive\n"
        finally:
            os.kill(controller, signal.SIGCONT)
        goes_on(daemon, case)


def test_slurmctld_restarts_between_intent_and_write(case: Case) -> None:
    pid = case.lab.pid("slurmctld")
    case.shims.once("scontrol", f'kill -TERM {pid}; sleep 1; exec "$REAL" "$@"', "-v")
    with case.daemon() as daemon:
        daemon.wait_for(lambda: case.shims.used("scontrol"), "a write into the void")
        case.lab.stop_controller()
        daemon.wait_for_log("reason=backend")
        case.lab.start_controller()
        goes_on(daemon, case)


def test_slurm_is_reconfigured_between_intent_and_write(case: Case) -> None:
    case.shims.once("scontrol", '"$REAL" reconfigure </dev/null; exec "$REAL" "$@"', "-v")
    with case.daemon() as daemon:
        goes_on(daemon, case)
    assert case.shims.used("scontrol")


def test_munge_is_down(case: Case) -> None:
    with case.daemon() as daemon:
        daemon.wait_for(lambda: case.turned, "the first order")
        case.lab.stop_munge()
        try:
            daemon.wait_for_log("reason=backend")
        finally:
            case.lab.start_munge()
        goes_on(daemon, case)


def test_slurmdbd_is_down(case: Case) -> None:
    case.lab.stop_slurmdbd()
    try:
        with case.daemon() as daemon:
            goes_on(daemon, case)
            assert "reason=" not in daemon.log()
    finally:
        case.lab.start_slurmdbd()


@pytest.mark.parametrize(
    ("program", "script"),
    [
        ("squeue", '"$REAL" "$@" | head -c 700'),
        ("sinfo", "true"),
        ("sprio", '"$REAL" "$@" | tr "0-9" "x"'),
    ],
    ids=["cut", "no-nodes", "garbled"],
)
def test_answers_that_cannot_be_true(case: Case, program: str, script: str) -> None:
    case.shims.always(program, script)
    with case.daemon() as daemon:
        daemon.wait_for_log("cycle_skipped")
        case.assert_untouched()
        case.shims.clear(program)
        goes_on(daemon, case)


def test_remarks_beside_whole_answers_stop_nothing(case: Case) -> None:
    for program in ("squeue", "sinfo", "sprio", "scontrol", "sdiag"):
        case.shims.always(program, 'echo "error: 7 is obsolete" >&2; exec "$REAL" "$@"')
    with case.daemon() as daemon:
        goes_on(daemon, case)
        log = daemon.log()
    assert "reason=" not in log
    said = [line for line in log.splitlines() if "slurm_remark" in line]
    assert len(said) == 5, "once for each command, not for each cycle"


def test_one_line_of_two_hundred_fails(case: Case) -> None:
    more = [case.lab.sbatch("--gres=gpu:p100:4", "-n16", "-N1", f"--time={100 * m}", "--nice=5")
            for m in range(301, 501)]  # fmt: skip
    victim = more[100]
    cancel = f"scancel {victim}; sleep 1"
    case.shims.once("scontrol", f'{cancel}; exec "$REAL" "$@"', "-v")
    case.succeeds("run", "--live", "--once")
    left = [*case.waiting, *(job for job in more if job != victim)]
    wanted = sorted(left, key=lambda job: (job in more, -case.waiting.index(job) if job in
                                           case.waiting else more.index(job)))  # fmt: skip
    assert case.order() == wanted
    assert case.rltuned("restore", "--all").returncode == 0
    case.assert_clean()


def test_scontrol_is_gone(case: Case) -> None:
    front = case.shims.folder / "scontrol"
    front.rename(front.with_name("away"))
    with case.daemon() as daemon:
        daemon.wait_for_log("scontrol is not installed", times=2)
        case.assert_untouched()
        front.with_name("away").rename(front)
        goes_on(daemon, case)


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
        daemon.more_cycles()
        assert daemon.log().count(f"name={middle}") == 1
        assert "cycle_skipped" not in daemon.log()
        assert daemon.metric('rltuned_jobs_refused{reason="unreadable"}') == 1
        assert case.sprio()[middle] == before[middle]
        reply = case.rltuned("explain", str(middle))
        assert "what Slurm prints of it cannot be read" in reply.stdout, reply.stdout + reply.stderr
        assert "'a while' is no time limit" in reply.stdout
        daemon.stops()
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
        daemon.more_cycles()
        assert "are too much" in daemon.log()
        assert "cycle_skipped" not in daemon.log()
        case.lab.run("scancel", str(huge))
        daemon.stops()
    case.assert_given_back()
