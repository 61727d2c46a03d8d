"""A journal that lost its end, or is gone whole, while jobs bear its numbers: no restart adds."""

import shutil
import signal
from collections.abc import Callable

import pytest

from tests.e2e.process import Daemon
from tests.faults.case import FULL, Case

pytestmark = pytest.mark.slurm


def killed(case: Case) -> None:
    with case.daemon() as daemon:
        daemon.wait_for(lambda: case.turned, "the first order")
        daemon.signal(signal.SIGKILL)
        daemon.ends()


def older_file(case: Case) -> None:
    """As in review: what was not in the main file is lost, or a copy is put back."""
    shutil.copy(case.folder / "before" / "journal.sqlite", case.state)


def older_folder(case: Case) -> None:
    shutil.rmtree(case.state)
    shutil.copytree(case.folder / "before", case.state)
    case.state.chmod(0o700)


def older_folder_alone(case: Case) -> None:
    """The same after a new start of the machine: the mark outside is gone, too."""
    older_folder(case)
    for mark in case.folder.glob("journal-mark-*"):
        mark.unlink()


def no_folder(case: Case) -> None:
    shutil.rmtree(case.state)
    case.state.mkdir(mode=0o700)


@pytest.mark.parametrize(
    ("lose", "state"),
    [
        (older_file, "journal_unusable"),
        (older_folder, "journal_unusable"),
        (older_folder_alone, "numbers_unexplained"),
        (no_folder, "numbers_unexplained"),
    ],
)
def test_a_restarted_daemon_takes_no_number_of_its_own_for_the_sites(
    case: Case, lose: Callable[[Case], None], state: str
) -> None:
    """In review a job went from 100 to 175, 402 and further, with each restart."""
    assert case.rltuned("run", "--once", "--stage", "observe").returncode == 0
    shutil.copytree(case.state, case.folder / "before")
    killed(case)
    lose(case)
    with case.daemon() as daemon:
        case.assert_only_watches(daemon, state)
        daemon.signal(signal.SIGKILL)
        daemon.ends()
    with case.daemon() as daemon:  # nor the next one
        case.assert_only_watches(daemon, state)
        named = case.rltuned("restore", "--all")
        assert named.returncode == 3
        done = case.rltuned("restore", "--all", "--as-shown")
        assert done.returncode == (3 if state == "journal_unusable" else 0), done.stderr
        if state == "numbers_unexplained":
            daemon.wait_for(lambda: case.turned, "live again")
        daemon.stops()
    if state == "numbers_unexplained":
        case.assert_given_back()
    else:
        case.assert_untouched()


def test_numbers_that_a_daemon_has_seen_before_it_wrote_are_the_sites(case: Case) -> None:
    """An administrator's, or a submit plugin's: the delay is added to them, and taken off again."""
    own, other = case.waiting[:2]
    for job in (own, other):
        case.lab.scontrol("update", f"JobId={job}", "SiteFactor=1")
    with case.daemon() as daemon:
        case.assert_only_watches(daemon, "numbers_unexplained")
        daemon.stops()
    assert case.rltuned("run", "--once", "--stage", "observe").returncode == 0
    with case.daemon() as daemon:
        daemon.wait_for(lambda: case.turned, "the first order")
        newcomer = case.lab.sbatch(*FULL, "--time=10", "--nice=5")
        case.lab.scontrol("update", f"JobId={newcomer}", "SiteFactor=1")
        daemon.more_cycles()
        assert daemon.metric('rltuned_mode{mode="numbers_unexplained"}') == 0
        case.lab.run("scancel", str(newcomer))
        daemon.stops()
    case.succeeds("restore", "--all")
    for job in (own, other):
        assert int(case.sprio()[job].split()[-1]) == 1
        case.lab.scontrol("update", f"JobId={job}", "SiteFactor=0")
    case.assert_untouched()


def test_a_second_daemon_on_the_same_folder_says_who_holds_it(case: Case) -> None:
    """In review it said that it was live."""
    (case.folder / "second").mkdir()
    with case.daemon() as daemon:
        daemon.wait_for(lambda: case.turned, "the first order")
        second = Daemon(case.folder / "second", "--live", "--config", str(case.config))
        with second:
            second.wait_for_mode("journal_unusable")
            assert f"a live rltuned (pid {daemon.pid}) writes" in second.log()
            with pytest.raises(OSError, match="503"):
                second.get("/readyz")
            daemon.stops()
            second.wait_for_mode("live")
            second.stops()
    case.assert_given_back()


def test_numbers_outside_the_scope_are_another_daemons(case: Case) -> None:
    """Two instances share a cluster by partitions: neither doubts, names nor zeroes the other's."""
    text = case.config.read_text()
    case.config.write_text(text.replace("[scope]\n", '[scope]\npartitions = ["gpu"]\n'))
    others = case.lab.sbatch(*FULL, "-psla", "--time=10")
    case.lab.wait_for(lambda: others in case.sprio(), "sprio shows it")
    case.lab.scontrol("update", f"JobId={others}", "SiteFactor=7")
    with case.daemon() as daemon:
        daemon.wait_for(lambda: case.order()[1:] == [*reversed(case.waiting)], "the first order")
        daemon.stops()
    case.lab.scontrol("update", f"JobId={others}", "SiteFactor=9")
    for more in ((), ("--as-shown",)):
        case.succeeds("restore", "--all", *more)
        assert int(case.sprio()[others].split()[-1]) == 9
    case.lab.run("scancel", str(others))
    case.assert_given_back()
