"""The state folder is full or read-only, its journal is spoilt: nothing is written blindly."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.case import Case, fill

pytestmark = pytest.mark.slurm


@pytest.fixture
def small_disk(case: Case) -> Iterator[Path]:
    """The state folder on a disk of its own, of 2 MiB."""
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m,mode=0700", "tmpfs", str(case.state)],
        check=True,
        timeout=300,
    )
    yield case.state
    subprocess.run(["umount", str(case.state)], check=True, timeout=300)


def remount(place: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(place)], check=True, timeout=300)


def test_the_disk_is_full_and_then_not(case: Case, small_disk: Path) -> None:
    with case.daemon() as daemon:
        daemon.wait_for(lambda: case.turned, "the first order")
        filler = small_disk / "filler"
        fill(filler)
        case.assert_only_watches(daemon)
        filler.unlink()
        daemon.wait_for_mode("journal_unusable", on=False)
        daemon.stops()
    case.assert_given_back()


FILLS = "for size in 65536 4096 1; do dd if=/dev/zero bs=$size of={file} {more} 2>/dev/null; done"
POINTS = {
    "before the start": "",
    "while it looks": "squeue",
    "between look and intent": "sprio",
    "between intent and outcome": "scontrol",
}


@pytest.mark.parametrize("point", POINTS)
def test_the_disk_gets_full_within_a_cycle(case: Case, small_disk: Path, point: str) -> None:
    """What is not noted is not sent, what was sent is given back, and no file is cut."""
    filler, program = small_disk / "filler", POINTS[point]
    fills = FILLS.format(file=filler, more="oflag=append conv=notrunc")
    if program:
        word = "-v" if program == "scontrol" else ""
        case.shims.once(program, f'{fills}; exec "$REAL" "$@"', word)
    else:
        fill(filler)
    with case.daemon() as daemon:
        daemon.wait_for_mode("journal_unusable")
        daemon.stops()
        assert "unexpected" not in daemon.log()
    assert case.turned == (program == "scontrol")
    done = case.rltuned("restore", "--all")
    # where nothing can be noted, or no journal be made, it says so
    unnoted = "restored, and not noted" in done.stderr
    assert done.returncode == (3 if unnoted or not program else 0), done.stdout + done.stderr
    case.assert_untouched()
    filler.unlink()
    case.assert_converges()
    case.assert_given_back()


def test_the_folder_is_read_only_and_then_not(case: Case, small_disk: Path) -> None:
    remount(small_disk, "ro")
    with case.daemon() as daemon:
        try:
            case.assert_only_watches(daemon)
            case.assert_untouched()
        finally:
            remount(small_disk, "rw")
        daemon.wait_for(lambda: case.turned, "usable again, and the first order")
        daemon.stops()
    case.assert_given_back()
