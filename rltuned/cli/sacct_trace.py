"""Slurm's accounting as a trace: what slurm/accounting.py reads, in the form of a converted trace.

Times without a zone count as UTC.
"""

from collections.abc import Iterable
from datetime import UTC
from pathlib import Path
from typing import Final

from rltuned.sim.readers.rows import Bad, ParsedTrace
from rltuned.sim.trace import TraceJob, read_text
from rltuned.slurm.accounting import OF_A_TRACE, STEPS, JobRun, read_history
from rltuned.slurm.sacct import lines_of
from rltuned.slurm.sacct_json import rows_of_json

COLUMNS: Final = ("JobID", "Submit", "Start", "End", "Timelimit", "ReqTRES", "Partition", "State")
"""Of sacct -X --parsable2; those of `rltuned backtest --collect` are as good."""
SOURCE: Final = "Slurm accounting"


def read_sacct_text(path: Path) -> ParsedTrace:
    """The output of `sacct --parsable2`; steps are passed over. Raises TraceError."""
    return _reading(lines_of(path), str(path))


def read_sacct_json(path: Path) -> ParsedTrace:
    """The output of `sacct --json`; lines are numbers of records. Raises TraceError."""
    reading = _reading(rows_of_json(read_text(path), str(path)), str(path))
    reading.bad = [Bad(bad.line - 1, bad.why) for bad in reading.bad]  # the header is ours
    return reading


def _reading(lines: Iterable[str], source: str) -> ParsedTrace:
    parsed = read_history(lines, source, UTC, required=COLUMNS)
    reading = ParsedTrace(passed_over=parsed.left_out.pop(STEPS, 0), notes={"source": SOURCE})
    bad = [Bad(line, why) for why in parsed.left_out for line in parsed.lines[why]]
    runs: dict[str, int] = {}
    for record in parsed.records:
        if record.start_s is None or record.end_s is None:
            why = f"job {record.key} has not run to its end ({record.state})"
            bad.append(Bad(record.line, why))
            continue
        runs[record.key] = runs.get(record.key, 0) + 1
        reading.jobs.append(_job(record, record.end_s - record.start_s, runs[record.key]))
    reading.bad = sorted(bad, key=lambda b: b.line)
    return reading


def _job(record: JobRun, duration_s: float, run: int) -> TraceJob:
    """run: from 2 on for a job that was requeued, which has a record for each of its runs."""
    return TraceJob(
        job_id=record.key if run == 1 else f"{record.key}.{run}",
        submit_s=record.submit_s,
        duration_s=duration_s,
        time_limit_s=record.limit_s,
        cpus=record.cpus,
        mem_mib=record.mem_mib,
        **{name: getattr(record, name) for name in OF_A_TRACE},
        status=record.state,
    )
