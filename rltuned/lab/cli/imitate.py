"""`rltuned train imitate`: learn an order that exists already."""

import itertools
import sys
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rltuned.cli.flags import say, warn
from rltuned.errors import ModelError, TraceError
from rltuned.journal.cycles import recorded
from rltuned.lab.backtest.sacct_files import lines_of, read_history
from rltuned.lab.cli.progress import progress
from rltuned.lab.train.settings import Fitting
from rltuned.policies.baselines import BASELINES

if TYPE_CHECKING:  # torch, which --help does without
    from rltuned.lab.train.imitation import OrderedQueues

HELD_OUT, OTHER_SEED = 200, 1_000_003
"""Generated queues that are not learned from, and how far their seed lies from the others'."""
SQLITE: Final = b"SQLite format 3\0"


def imitate(
    source: Annotated[str, typer.Argument(help="A rule's name, sacct's rows, or a journal.")],
    out: Annotated[Path, typer.Option(help="Folder of the new bundle; must not exist.")],
    *,
    gpus: Annotated[int | None, typer.Option(help="sacct: of the cluster.", min=1)] = None,
    queues: Annotated[int, typer.Option(help="A rule: generated queues.", min=16)] = 1_500,
    epochs: Annotated[
        int | None, typer.Option(help="Passes; a rule: 40, a site: 20.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 1,
) -> None:
    """Fit the actor to an order: a rule's, or that in which this site's Slurm has started jobs.

    sacct's rows: SLURM_TIME_FORMAT=%s sacct -a -X --parsable2 --starttime=now-30days
    --format=JobIDRaw,Submit,Eligible,Start,End,Partition,ReqTRES,TimelimitRaw,Flags

    A journal: state_dir/journal.sqlite. Jobs that rltuned had written to are left out: learn from a
    journal of a dry run.

    Exit codes: 0 = learned and exported; 1 = the journal cannot be read; 2 = input cannot be used,
    or it shows too few starts.
    """
    if out.exists():
        raise ModelError(f"model {out}: exists already; remove it or choose another name")
    from rltuned.lab.train import history  # noqa: PLC0415 - torch
    from rltuned.lab.train.imitation import imitate_into, rule_orders  # noqa: PLC0415

    if source in BASELINES:
        fitting = Fitting(epochs=epochs or Fitting().epochs, seed=seed)
        learned, held_out = (
            rule_orders(BASELINES[source], count, start)
            for count, start in ((queues, seed), (HELD_OUT, seed + OTHER_SEED))
        )
        data = f"{queues} random queues on random clusters, made by rltuned/lab/train/imitation.py"
    else:
        fitting = replace(history.FITTING, epochs=epochs or history.FITTING.epochs, seed=seed)
        choices, data = _choices(Path(source), gpus)
        learned, held_out = choices.split(0.8)
        data = f"{data}, {len(learned)} starts with rivals"
    order = source if source in BASELINES else "the site's own Slurm"
    with progress("learning {task.description}", "loss {task.fields[loss]:.4f}") as bar:
        task = bar.add_task(order, total=fitting.epochs, loss=float("nan"))
        mean = imitate_into(
            out,
            (learned, held_out),
            fitting,
            order=order,
            data=data,
            command=" ".join(["rltuned", *sys.argv[1:]]),
            on_epoch=lambda loss: bar.update(task, advance=1, loss=loss),
        )
    say(f"{out}: {data}; agrees with {order} on {mean:.2%} of the pairs not learned from")


def _choices(path: Path, gpus: int | None) -> "tuple[OrderedQueues, str]":
    """Starts with rivals, and from what they were read."""
    from rltuned.lab.train import history  # noqa: PLC0415 - torch

    try:
        with path.open("rb") as file:
            is_journal = file.read(len(SQLITE)) == SQLITE
    except OSError as error:
        rules = ", ".join(sorted(BASELINES))
        raise TraceError(f"{path}: no rule ({rules}), and no file: {error.strerror}") from error
    if is_journal:
        number = itertools.count()
        records = (record for record, _ in zip(recorded(path), number))  # noqa: B905 - no end
        return history.choices_of_journal(records), f"{path.name}: {next(number)} snapshots"
    if gpus is None:
        raise typer.BadParameter("--gpus: how many the cluster has is not in sacct's rows")
    parsed = read_history(lines_of(path), str(path), UTC, required=history.COLUMNS)
    jobs = history.started_of(parsed.records)
    for why, rows in parsed.left_out.most_common():
        warn(f"{path}: {rows} rows left out, line {parsed.lines[why][0]} first: {why}")
    found = f"{path.name}: {len(jobs)} jobs ({len(parsed.records) - len(jobs)} wait)"
    return history.choices_of(jobs, gpus), found
