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
BIG = 200_000_000
FULL, MORE, FEW = MOST_RECORDS - 10, MOST_RECORDS + 10, 100
"""As many jobs as are read, nearly; too many; and few."""
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
TELL = """
import json, sys
from rltuned.slurm.pyslurm import FIELDS
jobs, wide = int(sys.argv[1]), int(sys.argv[2])
usual = dict.fromkeys(FIELDS) | dict(
    state="PENDING", state_reason="Priority", nice=0, submit_time=1794000000, user_id=0,
    is_cronjob=False, account="a", required_nodes="n" * wide or None, id="N", priority="N")
row = json.dumps([*usual.values()]) + chr(10)
print(json.dumps({"pyslurm": "22.5.0", "jobs": jobs}))
sys.stdout.writelines(row.replace('"N"', str(n)) for n in range(1, jobs + 1))
"""
JUDGED = """
import re, sys
from pathlib import Path
from rltuned.errors import BackendError, SnapshotError, TraceError
from rltuned.slurm.run import SlurmCli
cli = SlurmCli(bin_dir=Path(sys.argv[1]), timeout_s=300)
try:
    {}
except (BackendError, SnapshotError, TraceError) as error:
    printed = str(error)
# not ru_maxrss: that begins with the peak of the process that started this one
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1], printed)
"""
LOOK = """
    from rltuned.slurm.backend import SlurmBackend
    from tests.answers import MARKS, NOW
    backend = SlurmBackend(cli, lambda: NOW, marks=MARKS, pyslurm=PYSLURM)
    seen = backend.observe()
    if len(seen.pending) > 100:
        seen = backend.observe()  # as the daemon does: what is kept of the first look is there
    printed = f"{len(seen.pending)} pending"
"""
READ = """
    from datetime import UTC
    from rltuned.lab.backtest.sacct_files import ask_history, read_history
    from rltuned.slurm.run import Commands
    found = read_history(ask_history(Commands(cli), 0.0, 86400.0), "sacct", UTC)
    printed = f"{len(found.records)} records of {found.rows} rows"
"""


def judge(body: str, folder: Path, says: str) -> None:
    """Run so in a process of its own."""
    done = ran(sys.executable, "-c", JUDGED.replace("{}", body.strip()), folder, timeout=500)
    peak, _, printed = done.stdout.partition(" ")
    sys.stdout.write(f"peak {int(peak) // 1024} MiB: {printed}")
    assert says in printed
    assert int(peak) < MOST_KIB, f"{int(peak) // 1024} MiB: {printed}"


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Slurm's programs by how many jobs wait, and what they print.

    Not made in this process: a child begins with the peak of the one that started it.
    """
    folders = {n: tmp_path_factory.mktemp("answers") for n in (FEW, FULL, MORE)}
    for pending, folder in folders.items():
        ran(sys.executable, "-c", MAKE, folder, str(pending))
    return folders


LINE = f"head -c {BIG} /dev/zero | tr '\\0' x"
TASKS = f"cat squeue.txt; sed 1d squeue.txt >rows; while cat rows; do :; done | head -c {BIG}"
OTHER: tuple[tuple[int, str, tuple[int, int] | None, str], ...] = (
    (FEW, LINE, None, "no header"),
    (FEW, TASKS, None, "cut after"),  # one array, a row for each of its tasks
    (FEW, f"{LINE} >&2; cat squeue.txt", None, f"{FEW} pending"),
    (FULL, "exec cat squeue.txt", None, f"{FULL} pending"),
    (MORE, "exec cat squeue.txt", None, f"more than {MOST_RECORDS} job records"),
    (FULL, "exec cat asked.txt", (FULL, 230), f"{FULL} pending"),
    (FEW, "exec cat asked.txt", (FULL - 1, 1100), f"more than {MOST_BYTES} bytes"),
    (FEW, "exec cat asked.txt", (700_000, 0), f"more than {MOST_RECORDS} job records"),
    (FEW, "exec cat asked.txt", (1, BIG), f"{FEW} pending"),  # a line too long: text stands in
)
"""How many jobs wait, what squeue does, pyslurm's jobs and how wide they are, what is said."""


@pytest.mark.parametrize("case", OTHER, ids=lambda case: f"{case[1][:20]}-{case[2:]}")
def test_peak_memory_of_a_long_answer_of_the_queue(
    answers: dict[int, Path],
    tmp_path: Path,
    case: tuple[int, str, tuple[int, int] | None, str],
) -> None:
    pending, script, jobs, says = case
    place, pyslurm = answers[pending], "None"
    for name in ("sinfo", "sprio", "sdiag", "scontrol"):
        (tmp_path / name).symlink_to(place / name)
    if jobs:
        with (tmp_path / "printed").open("w") as out:
            reply = [sys.executable, "-c", TELL, *map(str, jobs)]
            subprocess.run(reply, check=True, timeout=300, stdout=out)
        python = executable(tmp_path / "python", f'#!/bin/sh\nexec cat "{tmp_path}/printed"\n')
        pyslurm = f"Path({str(python)!r})"
    asked = "jobid:*" if jobs else "*--array-unique*"
    executable(
        tmp_path / "squeue",
        f'#!/bin/sh\ncd "{place}"\n'
        f'case "$SQUEUE_FORMAT2 $*" in {asked}) ;; *) exec ./squeue "$@";; esac\n{script}\n',
    )
    judge(LOOK.replace("PYSLURM", pyslurm), tmp_path, says)


@pytest.mark.parametrize(
    ("job", "says"),
    [
        ("NR", f"more than {MOST_HISTORY} records"),
        ('int(NR / 4) (NR % 4 ? ".batch" : "")', "records of"),  # steps, 200 MB of it
    ],
)
def test_peak_memory_of_saccts_answer(tmp_path: Path, job: str, says: str) -> None:
    cells = (
        "%s|%s|1700000000|1700000000|1700000100|1700000200|100|COMPLETED|60|"
        "billing=4,cpu=4,gres/gpu=1,mem=16G,node=1|billing=4,cpu=4,gres/gpu=1,mem=16G,node=1|"
        "node001|gpu|user|account|normal|1000|SchedMain||"
    )
    rows = f"yes | awk '{{ j = {job}; printf \"{cells}\\n\", j, j }}' | tr '|' '\\037'"
    # the accounts in a call of their own
    mark = 'for word; do case "$word" in --delimiter=*) mark="${word#*=}";; esac; done'
    texts = "exec awk -F '\\037' -v OFS=\"$mark\" '{ print $1, $3, $15, $20, $1 }'"
    others = "exec cut -d \"$(printf '\\037')\" -f1-14,16-19"
    asked = f'case "$*" in *Constraints*) ;; *) {others};; esac\n{texts}'
    script = executable(tmp_path / "cut", f"#!/bin/sh\n{mark}\n{asked}\n")
    executable(tmp_path / "sacct", f'#!/bin/sh\n{rows} | head -c {BIG} | {script} "$@"\n')
    judge(READ, tmp_path, says)
