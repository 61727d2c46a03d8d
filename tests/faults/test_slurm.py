"""Slurm, munge and the accounting go away, hang, restart, or answer nonsense."""

import os
import signal

import pytest

from tests.e2e.process import Daemon
from tests.faults.case import Case

pytestmark = pytest.mark.slurm


def goes_on(daemon: Daemon, case: Case) -> None:
    """The same process has come to results again, has what it wants, and ends in order."""
    daemon.wait_for(lambda: daemon.metric("rltuned_backoff_seconds") == 0, "no back-off any more")
    daemon.wait_for(lambda: case.turned, "the order it wants")
    daemon.signal(signal.SIGTERM)
    assert daemon.ends() == 0
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
    done = case.rltuned("run", "--live", "--once")
    assert done.returncode == 0, done.stdout + done.stderr
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
