"""Answers of 200 MB cost neither the memory nor the cycle more than their bound."""

import subprocess
import sys
from pathlib import Path

import pytest

from rltuned.slurm.jobs import MOST_RECORDS

MOST_KIB = 400 * 1024
ROWS = "while cat rows; do :; done"
MAKE = """
import sys
from pathlib import Path
from rltuned.slurm.synthetic import write_programs
write_programs(Path(sys.argv[1]), pending=int(sys.argv[2]), running=5, nodes=10)
"""
LOOK = """
import re, sys
from pathlib import Path
from rltuned.errors import BackendError, SnapshotError
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.commands import SlurmCli
from rltuned.slurm.synthetic import MARKS, NOW
backend = SlurmBackend(SlurmCli(bin_dir=Path(sys.argv[1]), timeout_s=300), lambda: NOW, marks=MARKS)
try:
    seen = backend.observe()
    said = f"{len(seen.pending)} pending"
except (BackendError, SnapshotError) as error:
    said = str(error)
# not ru_maxrss: that begins with the peak of the process that started this one
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1], said)
"""
BIG = 200_000_000


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("pending", "script", "says"),
    [
        # one line without end
        (100, f"head -c {BIG} /dev/zero | tr '\\0' x", "no header"),
        # one array, a row for each of its tasks
        (100, f"cat squeue.txt; sed 1d squeue.txt >rows; {ROWS} | head -c {BIG}", "cut after"),
        # complaints
        (100, f"head -c {BIG} /dev/zero | tr '\\0' x >&2; cat squeue.txt", "100 pending"),
        # as many jobs as are read, and more than that
        (MOST_RECORDS - 10, "exec cat squeue.txt", f"{MOST_RECORDS - 10} pending"),
        (MOST_RECORDS + 10, "exec cat squeue.txt", f"more than {MOST_RECORDS} job records"),
    ],
)
def test_peak_memory_of_a_long_answer(tmp_path: Path, pending: int, script: str, says: str) -> None:
    # not in this process: a child begins with the peak of the one that started it
    made = [sys.executable, "-c", MAKE, str(tmp_path), str(pending)]
    subprocess.run(made, check=True, timeout=300)
    program = tmp_path / "squeue"
    program.rename(tmp_path / "squeue.small")
    program.write_text(
        f'#!/bin/sh\ncd "{tmp_path}"\ncase "$*" in *--help*) exec ./squeue.small "$@";; esac\n'
        f"{script}\n"
    )
    program.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(tmp_path)],
        capture_output=True, text=True, check=True, timeout=500,
    )  # fmt: skip
    peak, _, said = done.stdout.partition(" ")
    sys.stdout.write(f"peak {int(peak) // 1024} MiB: {said}")
    assert says in said
    assert int(peak) < MOST_KIB, f"{int(peak) // 1024} MiB: {said}"
