"""`rltuned traces`: fetch, convert, describe, generate, cut and scale traces."""

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Final, Literal

import numpy as np
import typer

from rltuned.cli.flags import JsonOption, say, warn
from rltuned.cli.tables import Column, console, show_table
from rltuned.errors import TraceError
from rltuned.lab.backtest.sacct_files import lines_of, read_history
from rltuned.lab.cli.options import progress, shown_trace, warn_of_bad
from rltuned.lab.replay.fetch import SOURCES, fetch
from rltuned.lab.replay.readers import (
    finish,
    read_helios,
    read_openb,
    read_pai,
    read_philly_csv,
    read_philly_log,
    read_swf,
)
from rltuned.lab.replay.trace_file import collect, cut, describe, jittered, scale, write_trace
from rltuned.sim.cluster import PRESETS, Cluster, cluster_named
from rltuned.sim.limits import Strength
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import Bad, EmptyCluster, Trace, TraceJob
from rltuned.slurm.accounting import OF_A_TRACE, STEPS, SacctRecord
from rltuned.text import counted

COLUMNS: Final = ("JobID", "Submit", "Start", "End", "Timelimit", "ReqTRES", "Partition", "State")
"""Of sacct -X --parsable2; those of `rltuned backtest --collect` are as good."""


def read_sacct_text(path: Path) -> Trace:
    """The output of `sacct --parsable2`, whose steps are passed over; bare times are UTC. Raises
    TraceError.
    """
    parsed, runs = read_history(lines_of(path), str(path), UTC, required=COLUMNS), Counter[str]()

    def make(record: SacctRecord) -> TraceJob:
        if record.ran_s is None:
            raise ValueError(f"job {record.key} has not run to its end ({record.state})")
        runs[record.key] += 1
        run = runs[record.key]  # a job that was requeued has a record for each of its runs
        return TraceJob(
            job_id=record.key if run == 1 else f"{record.key}.{run}",
            submit_s=record.submit_s,
            duration_s=record.ran_s,
            time_limit_s=record.limit_s,
            cpus=record.cpus,
            mem_mib=record.mem_mib,
            **{name: getattr(record, name) for name in OF_A_TRACE},
            status=record.state,
        )

    rows: list[tuple[int, SacctRecord | Bad]] = [(r.line, r) for r in parsed.records]
    rows += [(n, Bad(n, why)) for why, at in parsed.lines.items() if why != STEPS for n in at]
    rows.sort(key=itemgetter(0))
    return collect(path, rows, make, {"source": "Slurm accounting"})


app = typer.Typer(
    no_args_is_help=True, help="Fetch, convert, describe, make, cut and scale traces."
)

READERS: dict[str, Callable[[Path], Trace]] = {
    "philly": read_philly_csv,
    "philly-log": read_philly_log,
    "helios": read_helios,
    "pai": read_pai,
    "openb": read_openb,
    "sacct": read_sacct_text,
}
"""And `swf`, which takes an option."""
Format = Literal["philly", "philly-log", "helios", "pai", "openb", "swf", "sacct"]
GeneratorKind = Literal["philly-like", "helios-like", "pai-like", "testbed-1024"]
OutOption = Annotated[Path, typer.Option("--out", "-o", help="Trace CSV; .gz compresses.")]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="The same seed, the same trace.")]
TraceArgument = Annotated[Path, typer.Argument(help="Trace CSV, version 1; may be gzip.")]


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(help="File (folder with the tables for pai).")],
    *,
    kind: Annotated[Format, typer.Option("--from", help="Format of the source.")],
    out: OutOption,
    limits: Annotated[
        Strength | None,
        typer.Option(help="Replace time limits by synthetic ones; the file records it."),
    ] = None,
    seed: SeedOption = 1,
    processors: Annotated[
        Literal["gpus", "cpus"], typer.Option(help="What SWF processors stand for.")
    ] = "gpus",
) -> None:
    """Convert published traces or accounting. Bad rows are counted and named by line."""
    if kind == "swf":
        reading = read_swf(source, processors_are=processors)
    else:
        reading = READERS[kind](source)
    warn_of_bad(source, reading.bad)
    trace = finish(reading, source, limits=limits, seed=seed)
    write_trace(trace, out)
    warn(f"{len(trace.jobs)} jobs, {len(trace.bad)} bad rows -> {out}")


@app.command(name="fetch")
def fetch_command(
    name: Annotated[str | None, typer.Argument(help="None lists what there is.")] = None,
    *,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder.")] = None,
    stored: Annotated[
        Path | None, typer.Option("--from", help="Folder that holds the archives already.")
    ] = None,
) -> None:
    """Fetch a public trace from where its authors publish it, and check its SHA-256."""
    if name is None:
        columns = [Column(title) for title in ("name", "MB", "licence", "paper")]
        rows = [
            (one, f"{sum(a.size_bytes for a in s.archives) / 1e6:.0f}", s.licence, s.paper)
            for one, s in SOURCES.items()
        ]
        show_table(console(), columns, rows)
        return
    if name not in SOURCES:
        raise TraceError(f"no public trace {name!r}; there are {', '.join(SOURCES)}")
    source, folder = SOURCES[name], out or Path(name)
    with progress() as show:
        fetch(source, folder, show, stored)
    warn(f"{name}: {source.paper}, {source.licence}; cite them")
    warn(f"rltuned traces convert {source.convert.format(folder=folder)} --out {name}.csv.gz")


@app.command(name="describe")
def describe_command(trace: TraceArgument, *, as_json: JsonOption = False) -> None:
    """Show what is in a trace: sizes, run times, arrivals, load, limits."""
    read = shown_trace(trace)
    facts = {**describe(read), "bad_rows": len(read.bad)}
    if as_json:
        say(json.dumps(facts | {"notes": read.notes}))
        return
    for key, value in read.notes.items():
        say(f"# {key}: {value}")
    for key, value in facts.items():
        say(f"{key:>16}  {_shown(value)}")


@app.command()
def synth(
    kind: Annotated[GeneratorKind, typer.Argument(help="Generator.")],
    *,
    out: OutOption,
    jobs: Annotated[int, typer.Option(min=1, max=10_000_000)] = 1024,
    seed: SeedOption = 1,
    limits: Annotated[Strength, typer.Option()] = "weak",
    free_share: Annotated[
        float, typer.Option(help="Part of the jobs not bound to one GPU type.", min=0.0, max=1.0)
    ] = 0.0,
) -> None:
    """Generate a trace with published marginals."""
    made = synthesize(kind, jobs=jobs, seed=seed, limits=limits, free_share=free_share)
    write_trace(made, out)
    warn(f"{len(made.jobs)} jobs -> {out}")


@app.command()
def window(
    trace: TraceArgument,
    *,
    out: OutOption,
    jobs: Annotated[int, typer.Option(help="How many consecutive jobs.", min=1)],
    start: Annotated[int | None, typer.Option(help="First row, from 0.", min=0)] = None,
    seed: SeedOption = 1,
) -> None:
    """Cut consecutive jobs out, at a given row or at a random place."""
    read = shown_trace(trace)
    if start is None:
        if jobs > len(read.jobs):
            raise TraceError(f"{trace}: has {len(read.jobs)} jobs, not {jobs}")
        start = int(np.random.default_rng(seed).integers(0, len(read.jobs) - jobs + 1))
    write_trace(cut(read, start, jobs), out)
    warn(f"rows {start} to {start + jobs - 1} -> {out}")


@app.command(name="scale")
def scale_command(
    trace: TraceArgument,
    *,
    out: OutOption,
    load: Annotated[float, typer.Option(help="Mean GPU demand as a part of the cluster's GPUs.")],
    cluster: Annotated[
        str | None, typer.Option(help=f"Cluster TOML, or one of {', '.join(PRESETS)}.")
    ] = None,
    gpus: Annotated[int | None, typer.Option(help="Or its number of GPUs.", min=1)] = None,
    copies: Annotated[int, typer.Option(help="Write so many jittered copies.", min=1)] = 1,
    jitter: Annotated[float, typer.Option(help="Seconds each way.", min=0.0)] = 0.0,
    seed: SeedOption = 1,
) -> None:
    """Stretch the submit times to a stated load; several copies go to OUT-1, OUT-2 ..."""
    if (cluster is None) == (gpus is None):
        raise TraceError("give the cluster or the number of its GPUs")
    read, where = shown_trace(trace), None if cluster is None else cluster_named(cluster)
    size = gpus or (where.gpus if where else 0)
    scaled = scale(read, load, size)
    if where is not None:
        _warn_of_impossible(read, where)
    for number in range(1, copies + 1):
        made: Trace = jittered(scaled, jitter, seed + number - 1) if jitter else scaled
        path = out if copies == 1 else numbered(out, number)
        write_trace(made, path)
        warn(f"{len(made.jobs)} jobs at load {load:g} of {size} GPUs -> {path}")


def _warn_of_impossible(read: Trace, cluster: Cluster) -> None:
    """A load of jobs that never run is not offered to anyone."""
    empty = EmptyCluster(cluster)
    found = [(job, why) for job in read.jobs if (why := empty.why_not(job)) is not None]
    if found:
        first, why = found[0]
        warn(
            f"{len(found)} of {len(read.jobs)} jobs can never run on {cluster.name}, and the load "
            f"counts them; the first, {first.job_id}: {why}"
        )


def numbered(path: Path, number: int) -> Path:
    """`a.csv.gz`, 2 -> `a-2.csv.gz`."""
    stem, dot, rest = path.name.partition(".")
    return path.with_name(f"{stem}-{number}{dot}{rest}")


SIZES_SHOWN: Final = 8
"""The most frequent ones; --json has all."""


def _shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict):
        common = sorted(value, key=lambda k: -value[k])[:SIZES_SHOWN]
        text = "  ".join(f"{k}: {v:.1%}" for k, v in value.items() if k in common)
        more = len(value) - len(common)
        return f"{text}  and {counted(more, 'other')}" if more else text
    return f"{value:.4g}" if isinstance(value, float) else str(value)
