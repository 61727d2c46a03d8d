"""Answers of 200 MB cost neither the memory nor the cycle more than their bound."""

import subprocess
import sys
from pathlib import Path

import pytest

from rltuned.slurm.accounting import MOST_RECORDS as MOST_HISTORY
from rltuned.slurm.pyslurm import MOST_BYTES
from rltuned.slurm.queue_rows import MOST_RECORDS
from tests.programs import ran

MOST_KIB = 400 * 1024
ROWS = "while cat rows; do :; done"
MAKE = """
import sys
from pathlib import Path
from tests.answers import write_programs
write_programs(Path(sys.argv[1]), pending=int(sys.argv[2]), running=5, nodes=10)
if sys.argv[3:]:  # and the columns that are asked for beside pyslurm
    from rltuned.slurm.columns import ASK_COLUMNS, FIELD, JOB_COLUMNS
    from tests.answers import MARKS
    wanted = ("jobid", *ASK_COLUMNS, "accruetime", "deadline")
    at, end = [JOB_COLUMNS.index(name) for name in wanted], MARKS.record + chr(10)
    with Path(sys.argv[1], "asked.txt").open("w") as out:
        for record in Path(sys.argv[1], "squeue.txt").read_text().split(end)[:-1]:
            cells = record.split(FIELD)
            out.write(FIELD.join(cells[i] for i in at) + end)
"""
LOOK = """
import re, sys
from pathlib import Path
from rltuned.errors import BackendError, SnapshotError
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.commands import SlurmCli
from tests.answers import MARKS, NOW
backend = SlurmBackend(SlurmCli(bin_dir=Path(sys.argv[1]), timeout_s=300), lambda: NOW, marks=MARKS)
try:
    seen = backend.observe()
    if len(seen.pending) > 100:
        seen = backend.observe()  # as the daemon does: what is kept of the first look is there
    printed = f"{len(seen.pending)} pending"
except (BackendError, SnapshotError) as error:
    printed = str(error)
# not ru_maxrss: that begins with the peak of the process that started this one
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1], printed)
"""
BIG = 200_000_000
PYSLURM_LOOK = LOOK.replace("marks=MARKS", "marks=MARKS, pyslurm=Path(sys.argv[2])")
TELL = """
import json, sys
from rltuned.slurm.pyslurm import FIELDS
jobs, wide = int(sys.argv[1]), int(sys.argv[2])
usual = dict.fromkeys(FIELDS) | dict(
    state="PENDING", state_reason="Priority", nice=0, submit_time=1794000000, user_id=0,
    is_cronjob=False, account="a", required_nodes="n" * wide or None)
print(json.dumps({"protocol": 2, "pyslurm": "22.5.0", "jobs": jobs}))
for n in range(1, jobs + 1):
    print(json.dumps([*(usual | dict(id=n, priority=n)).values()]))
"""
READ = """
import math, re, sys
from datetime import UTC
from pathlib import Path
from rltuned.errors import BackendError, TraceError
from rltuned.slurm.accounting import read_history
from rltuned.slurm.commands import Commands, SlurmCli
from rltuned.slurm.sacct import ask_history
commands = Commands(SlurmCli(bin_dir=Path(sys.argv[1]), timeout_s=300))
try:
    found = read_history(ask_history(commands, 0.0, 86400.0), "sacct", UTC)
    printed = f"{len(found.records)} records of {found.rows} rows"
except (BackendError, TraceError) as error:
    printed = str(error)
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1], printed)
"""
ROW = (
    "%s|%s|1700000000|1700000000|1700000100|1700000200|COMPLETED|60|billing=4,cpu=4,gres/gpu=1,"
    "mem=16G,node=1|billing=4,cpu=4,gres/gpu=1,mem=16G,node=1|node001|gpu|user|account|normal|"
    "1000|SchedMain||"
)


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
    done = ran(sys.executable, "-c", LOOK, str(tmp_path), timeout=500)
    _judge(done.stdout, says)


@pytest.mark.parametrize(
    ("jobs", "wide", "says"),
    [
        # as many as are read, and nearly as long
        (MOST_RECORDS - 10, 230, f"{MOST_RECORDS - 10} pending"),
        (MOST_RECORDS - 11, 1100, f"more than {MOST_BYTES} bytes"),  # 200 MB
        (700_000, 0, f"more than {MOST_RECORDS} job records"),
        (1, BIG, "100 pending"),  # a line without end: text stands in
    ],
)
def test_peak_memory_of_pyslurms_answer(tmp_path: Path, jobs: int, wide: int, says: str) -> None:
    pending = str(jobs if jobs == MOST_RECORDS - 10 else 100)
    made = [sys.executable, "-c", MAKE, str(tmp_path), pending, "asked"]
    subprocess.run(made, check=True, timeout=300)
    squeue = tmp_path / "squeue"
    squeue.rename(tmp_path / "squeue.small")
    squeue.write_text(
        f'#!/bin/sh\ncd "{tmp_path}"\n'
        'case "$*" in *"-O jobid:"*) exec cat asked.txt;; esac\nexec ./squeue.small "$@"\n'
    )
    squeue.chmod(0o755)
    printed = tmp_path / "printed"
    with printed.open("w") as out:
        reply = [sys.executable, "-c", TELL, str(jobs), str(wide)]
        subprocess.run(reply, check=True, timeout=300, stdout=out)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec cat "{printed}"\n')
    python.chmod(0o755)
    done = ran(sys.executable, "-c", PYSLURM_LOOK, str(tmp_path), str(python), timeout=500)
    _judge(done.stdout, says)


@pytest.mark.parametrize(
    ("job", "says"),
    [
        ("NR", f"more than {MOST_HISTORY} records"),
        ('int(NR / 4) (NR % 4 ? ".batch" : "")', "records of"),  # steps, 200 MB of it
    ],
)
def test_peak_memory_of_saccts_answer(tmp_path: Path, job: str, says: str) -> None:
    program = tmp_path / "sacct"
    rows = f"yes | awk '{{ j = {job}; printf \"{ROW}\\n\", j, j }}'"
    program.write_text(f"#!/bin/sh\n{rows} | head -c {BIG}\n")
    program.chmod(0o755)
    done = ran(sys.executable, "-c", READ, str(tmp_path), timeout=500)
    _judge(done.stdout, says)


def _judge(stdout: str, says: str) -> None:
    peak, _, printed = stdout.partition(" ")
    sys.stdout.write(f"peak {int(peak) // 1024} MiB: {printed}")
    assert says in printed
    assert int(peak) < MOST_KIB, f"{int(peak) // 1024} MiB: {printed}"
