"""`rltuned train`: learn policies offline. Needs the train extra."""

import itertools
import json
import math
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict, replace
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from rltuned.cli.flags import JsonOption, say, warn
from rltuned.errors import ModelError, TraceError
from rltuned.journal.cycles import recorded
from rltuned.lab.backtest.sacct_files import lines_of, read_history
from rltuned.lab.cli.options import check_folder, set_to
from rltuned.lab.train.settings import (
    LEARN_UNTIL,
    RULE,
    TEST_FROM,
    EvolutionSettings,
    Fitting,
    PpoSettings,
)
from rltuned.policies.baselines import BASELINES
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.stats import percent

if TYPE_CHECKING:
    from rltuned.lab.train.evolution import SearchGeneration
    from rltuned.lab.train.export import TrainingRun
    from rltuned.lab.train.imitation import OrderedQueues
    from rltuned.lab.train.ppo import Report

S = TypeVar("S", PpoSettings, EvolutionSettings)

app = typer.Typer(no_args_is_help=True, help="Learn policies offline.")


@app.callback()
def train() -> None:
    """Learn policies offline."""


# By playing in the simulator


OutOption = Annotated[Path, typer.Option(help="Folder of the new bundle; must not exist.")]
TraceOption = Annotated[
    list[Path] | None,
    typer.Option("--trace", help="Trace CSV; may be given again. None: generated jobs."),
]
ClusterOption = Annotated[
    list[str] | None,
    typer.Option("--cluster", help="Cluster TOML or preset: one for all traces, or one for each."),
]
WorldsOption = Annotated[
    int, typer.Option(help="Random clusters and job mixes to learn from as well.", min=0)
]
PredictorOption = Annotated[
    Path | None, typer.Option("--predictor", help="Folder of the predictor; the shipped one.")
]
ReachOption = Annotated[
    float, typer.Option("--reach", help="Largest factor on the rule's delays.", min=1.01, max=100)
]
SeedOption = Annotated[int, typer.Option(help="Of windows, noise and weights.", min=0)]
SeedsOption = Annotated[
    int, typer.Option("--seeds", help="Tried; the best on held-out windows is exported.", min=1)
]
StartOption = Annotated[
    Path | None, typer.Option("--from", help="Bundle to go on from; its make is kept.")
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on where it stopped.")]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Export it although it is worse than the rule.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="name=value of what else is set, see docs/training.md; repeatable."),
]


@app.command()
def evolve(
    out: OutOption,
    *,
    trace: TraceOption = None,
    cluster: ClusterOption = None,
    worlds: WorldsOption = 0,
    predictor: PredictorOption = None,
    generations: Annotated[int, typer.Option(min=1)] = 15,
    reach: ReachOption = 2.7,
    seed: SeedOption = 1,
    seeds: SeedsOption = 1,
    workers: Annotated[
        int | None, typer.Option(help="Threads that play; as many as processors.", min=1)
    ] = None,
    start: StartOption = None,
    resume: ResumeOption = False,
    force: ForceOption = False,
    other: SetOption = None,
) -> None:
    """Search an order in the simulator: CMA-ES on whole parts of traces, in the daemon's cycles.

    Exit codes: 0 = found and exported; 2 = input cannot be used, or what was found is worse than
    the rule.
    """
    settings = EvolutionSettings(generations=generations, reach=math.log(reach), seed=seed)
    settings = set_to(settings, other)
    from rltuned.lab.train.evolution import perform  # noqa: PLC0415 - torch
    from rltuned.lab.train.progress import TrainingLog  # noqa: PLC0415

    log = TrainingLog("generation", settings.generations)

    def after(folder: Path, found: "SearchGeneration") -> None:
        text = f"{percent(*found.change)} against {RULE}"
        figures = found.model_dump() | {"cost_least": min(found.costs)}
        log.say(folder, found.number + 1, text, figures)

    settings, search = _run(
        settings, out, trace, cluster, worlds, worlds // 2, predictor,
        start=start, resume=resume, seeds=seeds, force=force,
    )  # fmt: skip
    threads = workers or len(os.sched_getaffinity(0))
    card = perform(settings, search, workers=threads, on_generation=after)
    say(f"{out}: {card.verdict}; {card.training.seconds:.0f} s")


@app.command()
def ppo(
    out: OutOption,
    *,
    trace: TraceOption = None,
    cluster: ClusterOption = None,
    worlds: WorldsOption = 0,
    predictor: PredictorOption = None,
    epochs: Annotated[int, typer.Option(min=1)] = 100,
    reach: ReachOption = 8.0,
    seed: SeedOption = 1,
    seeds: SeedsOption = 1,
    start: StartOption = None,
    resume: ResumeOption = False,
    force: ForceOption = False,
    distributed: Annotated[
        bool, typer.Option("--distributed", help="One of several ranks (torchrun, srun).")
    ] = False,
    other: SetOption = None,
) -> None:
    """Learn an order in the simulator: the actor-critic of RLTune, trained by PPO.

    Exit codes: 0 = trained and exported; 2 = input cannot be used, the training broke, or its
    actor is worse than the rule.
    """
    settings = set_to(PpoSettings(epochs=epochs, reach=math.log(reach), seed=seed), other)
    from rltuned.lab.train.ppo import beginning_from, perform  # noqa: PLC0415 - torch
    from rltuned.lab.train.progress import TrainingLog  # noqa: PLC0415
    from rltuned.lab.train.ranks import ALONE, join_ranks  # noqa: PLC0415

    log = TrainingLog("epoch", settings.epochs)

    def after(folder: Path, report: "Report") -> None:
        if ranks.rank == 0:
            log.say(folder, report.epoch + 1, f"gap {report.gap:+.3f}", asdict(report))

    if start is not None:
        settings = beginning_from(start, settings)
    settings, training = _run(
        settings, out, trace, cluster, worlds, worlds, predictor,
        start=start, resume=resume, seeds=seeds, force=force,
    )  # fmt: skip
    ranks = join_ranks() if distributed else ALONE
    card = perform(settings, training, ranks=ranks, on_epoch=after)
    if card is not None:
        say(f"{out}: {card.verdict}; {card.training.seconds:.0f} s")


def _run(  # noqa: PLR0917 - by place
    settings: S,
    out: Path,
    traces: Iterable[Path] | None,
    clusters: Iterable[str] | None,
    worlds: int,
    judges: int,
    predictor: Path | None,
    **given: Any,
) -> "tuple[S, TrainingRun]":
    """What a training is given. judges: worlds among the held-out windows, which are as long as the
    longest trace has room for; that they are shorter is said.
    """
    from rltuned.lab.train.export import TrainingRun, fitting  # noqa: PLC0415 - torch
    from rltuned.lab.train.sources import (  # noqa: PLC0415
        JUDGES,
        UNSEEN,
        drawn,
        learned_on,
        nothing,
        predictions,
    )

    known = load_predictor(predictor or shipped_predictor())
    is_paper = isinstance(settings, PpoSettings) and settings.network == "paper"
    guess = nothing if is_paper else predictions(known)
    try:
        sources = learned_on(list(traces or ()), list(clusters or ()), worlds, settings.seed, guess)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    jobs = fitting(settings.eval_jobs, sources)
    if jobs < settings.eval_jobs:
        warn(
            f"held-out windows have {jobs} jobs, not {settings.eval_jobs}: the longest trace has "
            f"no more between {LEARN_UNTIL:.0%} and {TEST_FROM:.0%} of its length"
        )
    words: list[str] = [word for word in sys.argv[1:] if word != "--resume"]
    return replace(settings, eval_jobs=jobs), TrainingRun(
        sources=sources,
        folder=out.parent / f"{out.name}.training",  # no name: export.check_name refuses it
        out=out,
        command=" ".join(["rltuned", *words]),  # what makes the same weights
        predictor=known,
        judges=tuple(drawn(JUDGES, judges, guess)),
        unseen=tuple(drawn(UNSEEN, worlds // 2, guess)),
        **given,
    )


# From an order that exists already


HELD_OUT, OTHER_SEED = 200, 1_000_003
"""Generated queues that are not learned from, and how far their seed lies from the others'."""
SQLITE: Final = b"SQLite format 3\0"


@app.command()
def imitate(
    source: Annotated[str, typer.Argument(help="A rule's name, sacct's rows, or a journal.")],
    out: OutOption,
    *,
    gpus: Annotated[int | None, typer.Option(help="sacct: of the cluster.", min=1)] = None,
    queues: Annotated[int, typer.Option(help="A rule: generated queues.", min=16)] = 1_500,
    epochs: Annotated[
        int | None, typer.Option(help="Passes; a rule: 40, a site: 20.", min=1)
    ] = None,
    seed: SeedOption = 1,
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
    from rltuned.lab.train import imitation  # noqa: PLC0415 - torch

    if source in BASELINES:
        order, fitting = source, Fitting()
        learned, held_out = (
            imitation.rule_orders(BASELINES[source], count, start)
            for count, start in ((queues, seed), (HELD_OUT, seed + OTHER_SEED))
        )
        data = f"{queues} random queues on random clusters, made by rltuned/lab/train/imitation.py"
    else:
        order, fitting = "the site's own Slurm", imitation.FITTING
        choices, data = _choices(Path(source), gpus)
        learned, held_out = choices.split(0.8)
        data = f"{data}, {len(learned)} starts with rivals"
    fitting = replace(fitting, epochs=epochs or fitting.epochs, seed=seed)
    command, queues_of = " ".join(["rltuned", *sys.argv[1:]]), (learned, held_out)
    mean = imitation.imitate_into(out, queues_of, fitting, order=order, data=data, command=command)
    say(f"{out}: {data}; agrees with {order} on {mean:.2%} of the pairs not learned from")


def _choices(path: Path, gpus: int | None) -> "tuple[OrderedQueues, str]":
    """Starts with rivals, and from what they were read."""
    from rltuned.lab.train import imitation  # noqa: PLC0415 - torch

    try:
        with path.open("rb") as file:
            is_journal = file.read(len(SQLITE)) == SQLITE
    except OSError as error:
        rules = ", ".join(sorted(BASELINES))
        raise TraceError(f"{path}: no rule ({rules}), and no file: {error.strerror}") from error
    if is_journal:
        number = itertools.count()
        records = (record for record, _ in zip(recorded(path), number))  # noqa: B905 - no end
        choices = imitation.choices_of(imitation.in_journal(records))
        return choices, f"{path.name}: {next(number)} snapshots"
    if gpus is None:
        raise typer.BadParameter("--gpus: how many the cluster has is not in sacct's rows")
    parsed = read_history(lines_of(path), str(path), UTC, required=imitation.COLUMNS)
    for why, rows in parsed.left_out.most_common():
        warn(f"{path}: {rows} rows left out, line {parsed.lines[why][0]} first: {why}")
    choices = imitation.choices_of(imitation.in_history(parsed.records, gpus))
    return choices, f"{path.name}: {len(parsed.records)} jobs"


# How long jobs run


@app.command(name="predictor")
def fit_predictor(
    begin: Annotated[
        Path | None, typer.Argument(help="Predictor to begin from; the shipped one.")
    ] = None,
    *,
    out: Annotated[Path, typer.Option(help="Its folder; must not exist.")],
    trace: Annotated[
        list[Path] | None, typer.Option(help="Your jobs: rltuned traces convert --from sacct.")
    ] = None,
    worlds: WorldsOption = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin from drawn weights.")] = False,
    seed: Annotated[int, typer.Option(min=0)] = 1,
    as_json: JsonOption = False,
) -> None:
    """Fit the run-time predictor, to a site's own jobs or (no trace) to generated ones.

    Exit codes: 0 = fitted and exported; 1 = exported too, but on the last fifth of the jobs no
    better than the same answer for every job: better not used; 2 = input cannot be used.
    """
    check_folder(out, new=True)
    from rltuned.lab.train.export import export_predictor  # noqa: PLC0415
    from rltuned.lab.train.sources import fit_to  # noqa: PLC0415 - torch

    base = None if fresh else load_predictor(begin or shipped_predictor())
    fitted, data, licence = fit_to(trace or [], worlds=worlds, begin=base, seed=seed)
    command = " ".join(["rltuned", *sys.argv[1:]])
    card = export_predictor(out, fitted, command=command, seed=seed, data=data, licence=licence)
    if as_json:
        say(json.dumps(card.results))
    else:
        low, median, high = fitted.covered
        say(
            f"{out}: {fitted.examples} jobs; loss {fitted.pinball:.3f}, without looking at the job "
            f"{fitted.plain:.3f}; {low:.0%}, {median:.0%} and {high:.0%} of the later jobs ended "
            "below the quantiles of 10%, 50% and 90%"
        )
    if fitted.pinball >= fitted.plain:
        warn(f"{out}: it predicts no better than the same answer for every job")
        raise typer.Exit(1)
