"""What all readers share: rows, bad rows, times, and the way into one trace."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from rltuned.errors import TraceError
from rltuned.lab.replay.trace_file import LATEST_S, Row, csv_rows, from_zero, lines_in, read_text
from rltuned.sim.limits import Strength, draw_limits
from rltuned.sim.trace import Bad, Trace, TraceJob


@dataclass(slots=True)
class ParsedTrace:
    """What came out of a file. passed_over: rows that are not meant to be jobs (steps ...)."""

    jobs: list[TraceJob] = field(default_factory=list)
    bad: list[Bad] = field(default_factory=list)
    passed_over: int = 0
    notes: dict[str, str] = field(default_factory=dict)


def table(
    path: Path, *, required: Iterable[str], header: tuple[str, ...] | None = None
) -> Iterator[tuple[int, Row | Bad]]:
    """Rows of a table with line numbers. header: where the file has none. Raises TraceError."""
    rows = csv_rows(lines_in(read_text(path)))
    line, first = (1, list(header)) if header else next(rows, (1, []))
    if isinstance(first, Bad):
        raise TraceError(f"{path}:{line}: header: {first.why}")
    names = tuple(name.strip() for name in first)
    missing = [name for name in required if name not in names]
    if missing:
        raise TraceError(f"{path}: header: no column {missing[0]!r}")
    return _named(rows, names)


def _named(
    rows: Iterator[tuple[int, list[str] | Bad]], names: tuple[str, ...]
) -> Iterator[tuple[int, Row | Bad]]:
    for line, cells in rows:
        if isinstance(cells, Bad):
            yield line, cells
        elif len(cells) != len(names):
            yield line, Bad(line, f"{len(cells)} fields instead of {len(names)}")
        else:
            yield line, {n: c.strip() for n, c in zip(names, cells, strict=True)}


def collect(
    rows: Iterable[tuple[int, Row | Bad]], make: Callable[[Row], TraceJob | None]
) -> ParsedTrace:
    """Make a job of every row; a ValueError makes it a bad row, None passes it over."""
    reading = ParsedTrace()
    seen: set[str] = set()
    for line, row in rows:
        if isinstance(row, Bad):
            reading.bad.append(row)
            continue
        try:
            job = make(row)
        except ValueError as error:
            reading.bad.append(Bad(line, str(error)))
            continue
        if job is None:
            reading.passed_over += 1
        elif not abs(job.submit_s) < LATEST_S:
            reading.bad.append(Bad(line, "its submit time is no Unix time in seconds"))
        elif job.job_id in seen:
            reading.bad.append(Bad(line, f"job {job.job_id} stands twice"))
        else:
            seen.add(job.job_id)
            reading.jobs.append(job)
    return reading


def finish(reading: ParsedTrace, path: Path, *, limits: Strength | None, seed: int) -> Trace:
    """Sort by submit time, from 0 on. limits: None = the source's. Raises TraceError."""
    if not reading.jobs:
        first = f": line {reading.bad[0].line}: {reading.bad[0].why}" if reading.bad else ""
        raise TraceError(f"{path}: no usable job{first}")
    ordered = sorted(reading.jobs, key=lambda j: j.submit_s)
    notes = {
        "source": f"{path.name}; {reading.notes.get('source', '')}".rstrip("; "),
        **{k: v for k, v in reading.notes.items() if k != "source"},
        "epoch": datetime.fromtimestamp(ordered[0].submit_s, UTC).isoformat(),
        "bad_rows": str(len(reading.bad)),
    }
    jobs = from_zero(ordered)
    if limits is not None:
        rng = np.random.default_rng(seed)
        run_s = np.array([j.duration_s for j in jobs])
        drawn = draw_limits(run_s, limits, rng, [j.user for j in jobs])
        jobs = tuple(
            replace(j, time_limit_s=float(limit)) for j, limit in zip(jobs, drawn, strict=True)
        )
        notes["synthetic"] = f"time_limit_s ({limits}, seed {seed})"
    return Trace(jobs, notes)


def moment(text: str, name: str) -> float:
    """ISO date and time as Unix seconds; without a zone it counts as UTC. Raises ValueError."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{name} is not a date and time: {text!r}") from None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
