"""SIGKILL at every point of a cycle: the next start converges, and everything can be restored."""

import signal
import time

import numpy as np
import pytest

from tests.faults.case import Case

pytestmark = pytest.mark.slurm

KILL = "kill -KILL $PPID"
LATER = 'mv "$here/later-squeue" "$here/once-squeue"'
POINTS = {
    "while it looks": ("squeue", f'{KILL}; exec "$REAL" "$@"', ""),
    "intents noted, nothing sent": ("scontrol", KILL, "-v"),
    "one line of three sent": ("scontrol", f'head -n 1 | "$REAL" "$@"; {KILL}', "-v"),
    "all sent, answer not received": ("scontrol", f'"$REAL" "$@"; {KILL}', "-v"),
    "answer received, not read back": (
        "scontrol",
        f'"$REAL" "$@"; code=$?; {LATER}; exit $code',
        "-v",
    ),
}


@pytest.mark.parametrize("point", POINTS)
def test_killed_in_a_cycle(case: Case, point: str) -> None:
    program, script, word = POINTS[point]
    (case.shims.folder / "later-squeue").write_text(f"{KILL}\n")
    (case.shims.folder / "once-squeue.word").write_text("")
    with case.daemon() as daemon:
        case.shims.once(program, script, word)
        assert daemon.ends() == -signal.SIGKILL
    case.assert_unharmed()
    case.assert_converges()
    case.assert_given_back()


@pytest.mark.parametrize("point", ["one line of three sent", "all sent, answer not received"])
def test_killed_and_given_back_without_another_start(case: Case, point: str) -> None:
    program, script, word = POINTS[point]
    with case.daemon() as daemon:
        case.shims.once(program, script, word)
        assert daemon.ends() == -signal.SIGKILL
    assert case.sprio() != case.natural
    case.assert_given_back()


@pytest.mark.parametrize("point", ["one line of three sent", "all sent, answer not received"])
def test_killed_while_it_gives_back(case: Case, point: str) -> None:
    case.assert_converges()
    program, script, word = POINTS[point]
    case.shims.once(program, script, word)
    assert case.apart("restore", "--all").returncode == -signal.SIGKILL
    case.assert_unharmed()
    case.assert_given_back()


def test_killed_at_any_moment(case: Case) -> None:
    moments_s = np.random.default_rng(20261121).uniform(0.0, 1.2, size=5)
    for moment_s in moments_s:
        with case.daemon() as daemon:
            daemon.wait_for_log("loaded")
            time.sleep(moment_s)
            daemon.signal(signal.SIGKILL)
            assert daemon.ends() == -signal.SIGKILL
        case.assert_unharmed()
    case.assert_converges()
    case.assert_given_back()
