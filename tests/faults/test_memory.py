"""Answers of 200 MB cost neither the memory nor the cycle more than their bound."""

import subprocess
import sys
from pathlib import Path

import pytest

from rltuned.slurm.accounting import MOST_RECORDS as MOST_HISTORY
from rltuned.slurm.pyslurm import MOST_BYTES
from rltuned.slurm.squeue import MOST_RECORDS
from tests.programs import executable, ran

MOST_KIB = 400 * 1024
ROWS = "while cat rows; do :; done"
MAKE = """
import sys
from pathlib import Path
from rltuned.slurm.columns import ASK_COLUMNS, FIELD, JOB_COLUMNS
from tests.answers import MARKS, write_programs
write_programs(Path(sys.argv[1]), pending=int(sys.argv[2]), running=5, nodes=10)
# and the columns that are asked for beside pyslurm
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
from rltuned.slurm.run import SlurmCli
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
    is_cronjob=False, account="a", required_nodes="n" * wide or None, id="N", priority="N")
row = json.dumps([*usual.values()]) + chr(10)
print(json.dumps({"protocol": 2, "pyslurm": "22.5.0", "jobs": jobs}))
sys.stdout.writelines(row.replace('"N"', str(n)) for n in range(1, jobs + 1))
"""
READ = """
import math, re, sys
from datetime import UTC
from pathlib import Path
from rltuned.errors import BackendError, TraceError
from rltuned.lab.backtest.sacct_files import read_history
from rltuned.slurm.run import Commands, SlurmCli
from rltuned.lab.backtest.sacct_files import ask_history
commands = Commands(SlurmCli(bin_dir=Path(sys.argv[1]), timeout_s=300))
try:
    found = read_history(ask_history(commands, 0.0, 86400.0), "sacct", UTC)
    printed = f"{len(found.records)} records of {found.rows} rows"
except (BackendError, TraceError) as error:
    printed = str(error)
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1], printed)
"""
ROW = (
    "%s|%s|1700000000|1700000000|1700000100|1700000200|100|COMPLETED|60|billing=4,cpu=4,gres/gpu=1,"
    "mem=16G,node=1|billing=4,cpu=4,gres/gpu=1,mem=16G,node=1|node001|gpu|user|account|normal|"
    "1000|SchedMain||"
)


FULL, FEW = MOST_RECORDS - 10, 100
"""As many jobs as are read, nearly, and few."""
CUT = f"exec sed {FULL + 2},{MOST_RECORDS + 11}d"
"""Leaves so many of ten too many, with the names before them."""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Slurm's programs by how many jobs wait, and what they print.

    Not made in this process: a child begins with the peak of the one that started it.
    """
    folders = {n: tmp_path_factory.mktemp("answers") for n in (FEW, MOST_RECORDS + 10)}
    for pending, folder in folders.items():
        ran(sys.executable, "-c", MAKE, folder, str(pending))
    return folders


def programs(folder: Path, answers: Path, pattern: str, script: str) -> Path:
    """Those programs, where squeue does what the script says when it is asked so."""
    for name in ("sinfo", "sprio", "sdiag", "scontrol"):
        (folder / name).symlink_to(answers / name)
    squeue = folder / "squeue"
    executable(
        squeue,
        f'#!/bin/sh\ncd "{answers}"\n'
        f'case "$SQUEUE_FORMAT2 $*" in {pattern}) ;; *) exec ./squeue "$@";; esac\n{script}\n',
    )
    return folder


@pytest.mark.parametrize(
    ("pending", "script", "says"),
    [
        # one line without end
        (FEW, f"head -c {BIG} /dev/zero | tr '\\0' x", "no header"),
        # one array, a row for each of its tasks
        (FEW, f"cat squeue.txt; sed 1d squeue.txt >rows; {ROWS} | head -c {BIG}", "cut after"),
        # complaints
        (FEW, f"head -c {BIG} /dev/zero | tr '\\0' x >&2; cat squeue.txt", f"{FEW} pending"),
        # as many jobs as are read, and more than that
        (MOST_RECORDS + 10, f"{CUT} squeue.txt", f"{FULL} pending"),
        (MOST_RECORDS + 10, "exec cat squeue.txt", f"more than {MOST_RECORDS} job records"),
    ],
)
def test_peak_memory_of_a_long_answer(
    answers: dict[int, Path], tmp_path: Path, pending: int, script: str, says: str
) -> None:
    place = programs(tmp_path, answers[pending], "*--array-unique*", script)
    done = ran(sys.executable, "-c", LOOK, place, timeout=500)
    _judge(done.stdout, says)


@pytest.mark.parametrize(
    ("jobs", "wide", "says"),
    [
        # as many as are read, and nearly as long
        (FULL, 230, f"{FULL} pending"),
        (FULL - 1, 1100, f"more than {MOST_BYTES} bytes"),  # 200 MB
        (700_000, 0, f"more than {MOST_RECORDS} job records"),
        (1, BIG, f"{FEW} pending"),  # a line without end: text stands in
    ],
)
def test_peak_memory_of_pyslurms_answer(
    answers: dict[int, Path], tmp_path: Path, jobs: int, wide: int, says: str
) -> None:
    pending, show = (MOST_RECORDS + 10, CUT) if jobs == FULL else (FEW, "exec cat")
    place = programs(tmp_path, answers[pending], "jobid:*", f"{show} asked.txt")
    printed = tmp_path / "printed"
    with printed.open("w") as out:
        reply = [sys.executable, "-c", TELL, str(jobs), str(wide)]
        subprocess.run(reply, check=True, timeout=300, stdout=out)
    python = executable(tmp_path / "python", f'#!/bin/sh\nexec cat "{printed}"\n')
    done = ran(sys.executable, "-c", PYSLURM_LOOK, place, python, timeout=500)
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
    rows = f"yes | awk '{{ j = {job}; printf \"{ROW}\\n\", j, j }}' | tr '|' '\\037'"
    # the accounts in a call of their own
    mark = 'for word; do case "$word" in --delimiter=*) mark="${word#*=}";; esac; done'
    shown = "$1, $3, $15, $20, $1"
    texts = f"exec awk -F '\\037' -v OFS=\"$mark\" '{{ print {shown} }}'"
    others = "exec cut -d \"$(printf '\\037')\" -f1-14,16-19"
    asked = f'case "$*" in *Constraints*) ;; *) {others};; esac\n{texts}'
    script = executable(tmp_path / "cut", f"#!/bin/sh\n{mark}\n{asked}\n")
    executable(program, f'#!/bin/sh\n{rows} | head -c {BIG} | {script} "$@"\n')
    done = ran(sys.executable, "-c", READ, str(tmp_path), timeout=500)
    _judge(done.stdout, says)


def _judge(stdout: str, says: str) -> None:
    peak, _, printed = stdout.partition(" ")
    sys.stdout.write(f"peak {int(peak) // 1024} MiB: {printed}")
    assert says in printed
    assert int(peak) < MOST_KIB, f"{int(peak) // 1024} MiB: {printed}"
