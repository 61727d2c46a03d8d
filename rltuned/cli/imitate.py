"""`rltuned train warmstart`, `history` and `journal`: learn an order that exists already."""

import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from rltuned.cli.flags import say, warn
from rltuned.errors import ModelError
from rltuned.journal.snapshots import Recorded, recorded
from rltuned.policies.baselines import BASELINES
from rltuned.policies.card import Training
from rltuned.slurm.accounting import read_history
from rltuned.slurm.sacct import lines_of
from rltuned.train import journalled
from rltuned.train.export import export_bundle
from rltuned.train.history import COLUMNS, FITTING, choices_of, started_of
from rltuned.train.imitation import Fitting, Network, OrderedQueues, agreement, fit
from rltuned.train.queues import rule_orders
from rltuned.train.ranges import ranges_shown

PARITY_WINDOWS = 4
MACHINE = f"{platform.machine()}, one thread"
HELD_OUT, OTHER_SEED = 200, 1_000_003
"""Generated queues that are not learned from, and how far their seed lies from the others'."""

OutOption = Annotated[Path, typer.Option("--out", help="Folder of the new bundle; must not exist.")]
EpochsOption = Annotated[int, typer.Option(min=1)]
SeedOption = Annotated[int, typer.Option(min=0)]


def history(
    accounting: Annotated[Path, typer.Argument(help="From sacct; --help says how.")],
    out: OutOption,
    *,
    gpus: Annotated[int, typer.Option(help="GPUs of the cluster.", min=1)],
    epochs: EpochsOption = FITTING.epochs,
    seed: SeedOption = 1,
) -> None:
    """Teach the actor the order in which this site's Slurm has started jobs until now.

    Make the file with: SLURM_TIME_FORMAT=%s sacct -a -X --parsable2 --starttime=now-30days
    --format=JobIDRaw,Submit,Eligible,Start,End,Partition,ReqTRES,TimelimitRaw,Flags

    Exit codes: 0 = learned and exported; 2 = input cannot be used.
    """
    _refuse_existing(out)
    parsed = read_history(lines_of(accounting), str(accounting), UTC, required=COLUMNS)
    jobs = started_of(parsed.records)
    for why, rows in parsed.left_out.most_common():
        warn(f"{accounting}: {rows} rows left out, line {parsed.lines[why][0]} first: {why}")
    choices = choices_of(jobs, gpus)
    fitting = replace(FITTING, epochs=epochs, seed=seed)
    data = f"{accounting.name}: {len(jobs)} jobs"
    agreed = _learn_site(out, choices, fitting, data, {"epochs": epochs, "gpus": gpus})
    say(
        f"{out}: {len(jobs)} jobs ({len(parsed.records) - len(jobs)} wait), "
        f"{len(choices)} starts with rivals; "
        f"agrees with the later ones on {agreed:.2%} of the pairs"
    )


def journal(
    file: Annotated[Path, typer.Argument(metavar="JOURNAL", help="state_dir/journal.sqlite")],
    out: OutOption,
    *,
    epochs: EpochsOption = FITTING.epochs,
    seed: SeedOption = 1,
) -> None:
    """Teach the actor the order in which Slurm has started jobs while rltuned watched.

    Reads the snapshots of the daemon's journal, also while the daemon runs. Jobs that rltuned had
    written to are left out: learn from a journal of a dry run.

    Exit codes: 0 = learned and exported; 1 = the journal cannot be read; 2 = it shows too few
    starts, or OUT cannot be used.
    """
    _refuse_existing(out)
    count = 0

    def counted() -> Iterator[Recorded]:
        nonlocal count
        for record in recorded(file):
            count += 1
            yield record

    choices = journalled.choices_of(counted())
    fitting = replace(FITTING, epochs=epochs, seed=seed)
    agreed = _learn_site(
        out, choices, fitting, f"{file.name}: {count} snapshots", {"epochs": epochs}
    )
    say(
        f"{out}: {len(choices)} starts with rivals from {count} snapshots; agrees "
        f"with the later ones on {agreed:.2%} of the pairs"
    )


def warmstart(
    out: OutOption,
    teacher: Annotated[str, typer.Option("--teacher", help="The rule to learn.")] = "saf",
    queues: Annotated[int, typer.Option("--queues", help="Generated queues.", min=16)] = 1_500,
    epochs: Annotated[int, typer.Option("--epochs", help="Passes over them.", min=1)] = 40,
    seed: Annotated[int, typer.Option("--seed", help="Of queues and weights.", min=0)] = 1,
) -> None:
    """Teach the actor an existing rule's order on generated queues, and export it."""
    if teacher not in BASELINES:
        raise typer.BadParameter(f"no rule {teacher!r}; there are: {', '.join(sorted(BASELINES))}")
    _refuse_existing(out)
    began = time.perf_counter()
    fitting, rule = Fitting(epochs=epochs, seed=seed), BASELINES[teacher]
    orders = rule_orders(rule, queues, fitting, seed)
    network, losses = _fit_with_bar(orders, fitting, teacher)
    held_out = rule_orders(rule, HELD_OUT, fitting, seed + OTHER_SEED)
    _, mean, lowest = agreement(network, held_out)
    seconds = time.perf_counter() - began
    training = Training(
        method="supervised imitation, listwise (Plackett-Luce) loss",
        teacher=teacher,
        command=_command(),
        settings=fitting.described() | {"queues": queues, "held_out": HELD_OUT},
        data="random queues on random clusters, made by rltuned/train/queues.py",
        data_licence="none needed: generated by rltuned itself",
        seed=seed,
        seconds=round(seconds, 1),
        machine=MACHINE,
    )
    results = {
        "held_out_pairwise_agreement": mean,
        "held_out_lowest_queue_agreement": lowest,
        "loss_first_epoch": losses[0],
        "loss_last_epoch": losses[-1],
    }
    summary = f"Warm start: the order of {teacher}, learned from generated queues."
    caveats = [
        f"It imitates {teacher}, can at best be as good, and claims no result on a cluster.",
        "Agreement was measured on queues from the same generator as those it learned from.",
    ]
    _export(out, network, held_out, summary, training, results, caveats)
    say(
        f"{out}: agrees with {teacher} on {mean:.2%} of the pairs of "
        f"{HELD_OUT} unseen queues, {seconds:.0f} s"
    )


def _refuse_existing(out: Path) -> None:
    """Before the work, not after."""
    if out.exists():
        raise ModelError(f"model {out}: exists already; remove it or choose another name")


def _fit_with_bar(
    orders: OrderedQueues, fitting: Fitting, name: str
) -> tuple[Network, list[float]]:
    columns = (
        TextColumn("learning {task.description}"),
        BarColumn(),
        TextColumn("loss {task.fields[loss]:.4f}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task(name, total=fitting.epochs, loss=float("nan"))
        return fit(orders, fitting, lambda loss: bar.update(task, advance=1, loss=loss))


def _learn_site(
    out: Path,
    choices: OrderedQueues,
    fitting: Fitting,
    data: str,
    settings: dict[str, int | float | str],
) -> float:
    """Learn the first four fifths; returns the share of the later pairs that it agrees on."""
    earlier, later = choices.split(0.8)
    began = time.perf_counter()
    network, _ = _fit_with_bar(earlier, fitting, "the site")
    agreed, _, _ = agreement(network, later)
    training = Training(
        method="supervised imitation of starts by the main scheduler, cross-entropy",
        teacher="the site's own Slurm",
        command=_command(),
        settings=settings,
        data=f"{data}, {len(earlier)} starts with rivals",
        data_licence="the site's own",
        seed=fitting.seed,
        seconds=round(time.perf_counter() - began, 1),
        machine=MACHINE,
    )
    summary = "Warm start: the order in which a site's Slurm has started its jobs."
    caveats = ["It imitates what was there, and can at best be as good."]
    results = {"later_pairwise_agreement": agreed}
    _export(out, network, later, summary, training, results, caveats)
    return agreed


def _command() -> str:
    return " ".join(["rltuned", *sys.argv[1:]])


def _export(  # noqa: PLR0917 - by place, as the card has them
    out: Path,
    network: Network,
    held_out: OrderedQueues,
    summary: str,
    training: Training,
    results: dict[str, float],
    caveats: list[str],
) -> None:
    values, masks = held_out.values, held_out.masks
    export_bundle(
        out,
        network,
        name=out.name,
        summary=summary,
        parity=(values[:PARITY_WINDOWS], masks[:PARITY_WINDOWS]),
        training=training,
        results={name: round(value, 5) for name, value in results.items()},
        caveats=caveats,
        ranges=ranges_shown(network.kind, values, masks),
    )
