"""`rltuned train`: learn policies offline. Needs the train extra."""

import itertools
import json
import math
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from rltuned.cli.flags import JsonOption, say, warn
from rltuned.errors import ModelError, TraceError
from rltuned.journal.cycles import recorded
from rltuned.lab.backtest.sacct_files import lines_of, read_history
from rltuned.lab.cli.options import (
    BoardOption,
    TrainingLog,
    against,
    check_board,
    check_folder,
    progress,
)
from rltuned.lab.train.settings import (
    LEARN_UNTIL,
    RULE,
    TEST_FROM,
    EvolutionSettings,
    Fitting,
    Form,
    Objective,
    PpoSettings,
    Reference,
)
from rltuned.policies.actor import Kind
from rltuned.policies.baselines import BASELINES
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.sim.cluster import cluster_named

if TYPE_CHECKING:
    from rltuned.lab.train.evolution import SearchGeneration
    from rltuned.lab.train.imitation import OrderedQueues
    from rltuned.lab.train.ppo import Report
    from rltuned.lab.train.run import Run
    from rltuned.lab.train.sources import DatasetSource, Predict

# What `rltuned train ppo` and `rltuned train evolve` share: options, and what is learned on.


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
WorkOption = Annotated[
    Path | None, typer.Option("--work", help="Checkpoints and logs; OUT.training if absent.")
]
PredictorOption = Annotated[
    Path | None, typer.Option("--predictor", help="Folder of the predictor; the shipped one.")
]
LoadOption = Annotated[tuple[float, float], typer.Option(help="Offered load, from and to.")]
ReachOption = Annotated[
    float,
    typer.Option(
        "--reach", help="Largest factor on the delays of the rule `delay`.", min=1.01, max=100
    ),
]
StartOption = Annotated[
    Path | None, typer.Option("--from", help="Bundle to go on from; its make is kept.")
]
SeedsOption = Annotated[
    int,
    typer.Option(
        "--seeds", help="Tried, from --seed on; the best on held-out windows is exported.", min=1
    ),
]
HeldOutOption = Annotated[int, typer.Option(help="Held out, per trace.", min=1)]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on where it stopped.")]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Export it although it is worse than the rule.")
]
DistributedOption = Annotated[
    bool, typer.Option("--distributed", help="One of several ranks (torchrun, srun).")
]


def run_of(
    out: Path,
    *,
    work: Path | None,
    traces: Sequence[Path] | None,
    clusters: Sequence[str] | None,
    worlds: int,
    judges: int,
    seed: int,
    network: Kind,
    predictor: Path | None,
    eval_windows: int,
    eval_jobs: int,
    start: Path | None,
    resume: bool,
    seeds: int,
    force: bool,
) -> "Run":
    """What a training is given. judges: worlds among the held-out windows, which are as long as the
    longest trace has room for; that they are shorter is said.
    """
    from rltuned.lab.train.run import Run, Validation, fitting  # noqa: PLC0415 - torch
    from rltuned.lab.train.sources import (  # noqa: PLC0415
        JUDGES,
        UNSEEN,
        drawn,
        nothing,
        predictions,
    )

    known = load_predictor(predictor or shipped_predictor())
    guess = nothing if network == "paper" else predictions(known)
    sources = learned_on(traces, clusters, worlds, seed, guess)
    own = [s for s in sources if not s.is_world]
    validation = fitting(Validation(eval_windows, eval_jobs), own)
    if validation.window_jobs < eval_jobs:
        warn(
            f"held-out windows have {validation.window_jobs} jobs, not {eval_jobs}: the longest "
            f"trace has no more between {LEARN_UNTIL:.0%} and {TEST_FROM:.0%} of its length"
        )
    return Run(
        sources=sources,
        folder=work or out.parent / f"{out.name}.training",  # no name: train/run refuses it
        out=out,
        # what makes the same weights again
        command=" ".join(["rltuned", *(word for word in sys.argv[1:] if word != "--resume")]),
        validation=validation,
        start=start,
        resume=resume,
        seeds=seeds,
        predictor=known,
        judges=tuple(drawn(JUDGES, judges, guess)),
        unseen=tuple(drawn(UNSEEN, worlds // 2, guess)),
        force=force,
    )


def learned_on(
    traces: Sequence[Path] | None,
    clusters: Sequence[str] | None,
    worlds: int,
    seed: int,
    predict: "Predict",
) -> "tuple[DatasetSource, ...]":
    """The traces, or generated ones, and random worlds. Raises BadParameter: traces and clusters do
    not go together; TraceError: a file is unfit.
    """
    from rltuned.lab.train.sources import (  # noqa: PLC0415 - torch
        drawn,
        from_files,
        generated,
        together,
    )

    on = clusters or ["philly-192"]
    if clusters and len(on) not in {1, len(traces or ())}:
        raise typer.BadParameter(
            f"--cluster: {len(on)} clusters for {len(traces or ())} traces; name one cluster for "
            "all traces, or one for each"
        )
    if clusters and not traces:
        raise typer.BadParameter("--cluster: needs --trace; generated jobs have their own clusters")
    if traces:
        each = list(map(cluster_named, on)) * (len(traces) if len(on) == 1 else 1)
        found = from_files(zip(traces, each, strict=True), predict)
    else:
        found = generated(seed, predict=predict)
    # the first two seeds of worlds are those that judge
    return tuple(together(found, drawn(seed + 2, worlds, predict)))


# `rltuned train evolve`: search an order by an evolution strategy.


def evolve(
    out: OutOption,
    *,
    trace: TraceOption = None,
    cluster: ClusterOption = None,
    worlds: WorldsOption = 0,
    work: WorkOption = None,
    generations: Annotated[int, typer.Option(min=1)] = 15,
    members: Annotated[int, typer.Option(help="Actors in each generation.", min=4)] = 20,
    parts: Annotated[int, typer.Option(help="Of traces that all of them play.", min=2)] = 30,
    part_jobs: Annotated[int, typer.Option(help="Jobs of a part.", min=10)] = 1_500,
    load: LoadOption = (0.7, 1.1),
    predictor: PredictorOption = None,
    eval_windows: HeldOutOption = 4,
    eval_jobs: Annotated[int, typer.Option(help="Jobs in each of them.", min=10)] = 1_024,
    eval_every: Annotated[int, typer.Option(help="Generations between validations.", min=1)] = 5,
    workers: Annotated[
        int | None, typer.Option(help="Threads that play; as many as processors.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 1,
    seeds: SeedsOption = 1,
    reach: ReachOption = 2.7,
    start: StartOption = None,
    tensorboard: BoardOption = None,
    resume: ResumeOption = False,
    force: ForceOption = False,
) -> None:
    """Search an order in the simulator: CMA-ES on whole parts of traces, in the daemon's cycles.

    Exit codes: 0 = found and exported; 2 = input cannot be used, or what was found is worse than
    the rule.
    """
    check_board(tensorboard, seeds, resume=resume)
    from rltuned.lab.train.evolution import perform  # noqa: PLC0415 - torch

    settings = EvolutionSettings(
        generations=generations, members=members, parts=parts, part_jobs=part_jobs, loads=load,
        reach=math.log(reach), eval_every=eval_every, seed=seed,
    )  # fmt: skip
    search = run_of(
        out, work=work, traces=trace, clusters=cluster, worlds=worlds, judges=worlds // 2,
        seed=seed, network="queue", predictor=predictor, eval_windows=eval_windows,
        eval_jobs=eval_jobs, start=start, resume=resume, seeds=seeds, force=force,
    )  # fmt: skip
    log = TrainingLog(search.folder, "generation", generations, tensorboard)

    def after(found: "SearchGeneration") -> None:
        text = against(RULE, found.change)
        if found.validation is not None:
            text += f", held out {against(RULE, found.validation)}"
        log.say(found.number + 1, text, _figures(found))

    threads = workers or len(os.sched_getaffinity(0))
    with closing(log):
        card = perform(settings, search, workers=threads, on_generation=after)
    say(f"{out}: {card.verdict}; {card.training.seconds:.0f} s")


def _figures(found: "SearchGeneration") -> dict[str, float | None]:
    """Under the names that `train ppo` uses where they mean the same."""
    held_out = found.validation or (None, None, None)
    named = {"change": found.change, "validation": held_out}
    figures: dict[str, float | None] = {
        f"{name}{end}": value
        for name, interval in named.items()
        for end, value in zip(("", "_low", "_high"), interval, strict=True)
    }
    costs = {"cost": sum(found.costs) / len(found.costs), "cost_least": min(found.costs)}
    return {**figures, **costs, "validation_cost": found.validation_cost, "seconds": found.seconds}


# `rltuned train imitate`: learn an order that exists already.


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
    from rltuned.lab.train import imitation  # noqa: PLC0415 - torch
    from rltuned.lab.train.imitation import imitate_into, rule_orders  # noqa: PLC0415

    if source in BASELINES:
        fitting = Fitting(epochs=epochs or Fitting().epochs, seed=seed)
        learned, held_out = (
            rule_orders(BASELINES[source], count, start)
            for count, start in ((queues, seed), (HELD_OUT, seed + OTHER_SEED))
        )
        data = f"{queues} random queues on random clusters, made by rltuned/lab/train/imitation.py"
    else:
        fitting = replace(imitation.FITTING, epochs=epochs or imitation.FITTING.epochs, seed=seed)
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
        return imitation.choices_of_journal(records), f"{path.name}: {next(number)} snapshots"
    if gpus is None:
        raise typer.BadParameter("--gpus: how many the cluster has is not in sacct's rows")
    parsed = read_history(lines_of(path), str(path), UTC, required=imitation.COLUMNS)
    jobs = imitation.started_of(parsed.records)
    for why, rows in parsed.left_out.most_common():
        warn(f"{path}: {rows} rows left out, line {parsed.lines[why][0]} first: {why}")
    found = f"{path.name}: {len(jobs)} jobs ({len(parsed.records) - len(jobs)} wait)"
    return imitation.choices_of(jobs, gpus), found


app = typer.Typer(no_args_is_help=True, help="Learn policies offline.")
app.command()(imitate)
app.command()(evolve)


@app.callback()
def train() -> None:
    """Learn policies offline."""


QUICK_EPOCHS, QUICK_BATCHES = 12, 60


DeviceOption = Annotated[
    Literal["cpu", "cuda"],
    typer.Option(help="Where the networks learn; episodes are played on the CPU."),
]
QuickOption = Annotated[
    bool, typer.Option("--quick", help="A smoke test of a minute: too few epochs to deploy.")
]


@app.command()
def ppo(
    out: OutOption,
    *,
    trace: TraceOption = None,
    cluster: ClusterOption = None,
    worlds: WorldsOption = 0,
    work: WorkOption = None,
    network: Annotated[Kind, typer.Option(help="`queue` reads predicted run times too.")] = "queue",
    base: Annotated[str, typer.Option(help="The rule of the other pipeline.")] = "delay",
    objective: Annotated[Objective, typer.Option()] = "wait",
    form: Annotated[Form, typer.Option("--reward")] = "dense",
    reference: Annotated[Reference, typer.Option()] = "group",
    rollouts: Annotated[int, typer.Option(help="Per window.", min=1)] = 10,
    epochs: Annotated[int, typer.Option(min=1)] = 100,
    batches: Annotated[int, typer.Option(help="Episodes per epoch.", min=1)] = 100,
    window_jobs: Annotated[int, typer.Option(help="Jobs per episode.", min=2)] = 256,
    load: LoadOption = (0.7, 1.3),
    learning_rate: Annotated[float, typer.Option(min=0.0)] = 5e-3,
    entropy: Annotated[float, typer.Option(min=0.0)] = 0.01,
    predictor: PredictorOption = None,
    hidden: Annotated[tuple[int, int], typer.Option()] = (32, 16),
    patience: Annotated[int, typer.Option(help="0 = all epochs.", min=0)] = 0,
    seed: Annotated[int, typer.Option(min=0)] = 1,
    seeds: SeedsOption = 1,
    reach: ReachOption = 8.0,
    start: StartOption = None,
    eval_windows: HeldOutOption = 12,
    eval_jobs: Annotated[int, typer.Option(help="Jobs in each of them.", min=2)] = 1_024,
    eval_every: Annotated[int, typer.Option(help="Epochs between validations.", min=1)] = 1,
    device: DeviceOption = "cpu",
    tensorboard: BoardOption = None,
    resume: ResumeOption = False,
    quick: QuickOption = False,
    force: ForceOption = False,
    distributed: DistributedOption = False,
) -> None:
    """Learn an order in the simulator: the actor-critic of RLTune, trained by PPO.

    Exit codes: 0 = trained and exported; 2 = input cannot be used, the training broke, or its
    actor is worse than the rule.
    """
    _check_ppo(base, device)
    check_board(tensorboard, seeds, resume=resume)
    from rltuned.lab.train.ppo import beginning_from, perform  # noqa: PLC0415 - torch
    from rltuned.lab.train.ranks import ALONE, join_ranks  # noqa: PLC0415

    if quick:
        epochs, batches = min(epochs, QUICK_EPOCHS), min(batches, QUICK_BATCHES)
        eval_windows, eval_jobs = min(eval_windows, 4), min(eval_jobs, 256)
    settings = PpoSettings(
        network=network, reach=math.log(reach), hidden=hidden, epochs=epochs, batches=batches,
        learning_rate=learning_rate, entropy=entropy, patience=patience, eval_every=eval_every,
        seed=seed, base=base, objective=objective, form=form, reference=reference,
        window_jobs=window_jobs, rollouts=rollouts, loads=load,
    )  # fmt: skip
    if start is not None:
        settings = beginning_from(start, settings)
    training = run_of(
        out, work=work, traces=trace, clusters=cluster, worlds=worlds, judges=worlds, seed=seed,
        network=settings.network, predictor=predictor, eval_windows=eval_windows,
        eval_jobs=eval_jobs, start=start, resume=resume, seeds=seeds, force=force,
    )  # fmt: skip
    ranks = join_ranks() if distributed else ALONE
    log = TrainingLog(training.folder, "epoch", epochs, tensorboard, off=ranks.rank > 0)

    def after(report: "Report") -> None:
        text = f"gap {report.gap:+.3f}"
        if not math.isnan(report.validation):
            change = (report.validation, report.validation_low, report.validation_high)
            text += f", held out {against(RULE, change)}, best {report.best:+.1%}"
        figures = asdict(report)
        log.say(figures.pop("epoch") + 1, text, figures)

    with closing(log):
        card = perform(settings, training, device=device, ranks=ranks, on_epoch=after)
    if card is not None:
        say(f"{out}: {card.verdict}; {card.training.seconds:.0f} s")


def _check_ppo(base: str, device: str) -> None:
    """Options that cannot go together are refused before the work."""
    if base not in BASELINES:
        raise typer.BadParameter(f"no rule {base!r}; there are: {', '.join(BASELINES)}")
    if device == "cuda":
        import torch  # noqa: PLC0415 - seconds

        if not torch.cuda.is_available():
            raise typer.BadParameter("no CUDA device here")


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
    until: Annotated[
        float,
        typer.Option(help="Part of the trace to fit to, from its beginning.", min=0.05, max=1),
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0)] = 1,
    report: Annotated[
        Path | None, typer.Option(help="New folder for a page of what it is worth.")
    ] = None,
    names: Annotated[bool, typer.Option("--names", help="Show users by name there.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Fit the run-time predictor, to a site's own jobs or (no trace) to generated ones.

    Exit codes: 0 = fitted and exported; 1 = exported too, but on the last fifth of the jobs no
    better than the same answer for every job: better not used; 2 = input cannot be used.
    """
    for folder in (out, report):
        check_folder(folder, new=True)
    from rltuned.lab.train.network import export_predictor  # noqa: PLC0415
    from rltuned.lab.train.sources import fit_to  # noqa: PLC0415 - torch

    base = None if fresh else load_predictor(begin or shipped_predictor())
    fitted, first, data, licence = fit_to(
        trace or [], worlds=worlds, until=until, begin=base, seed=seed
    )
    command = " ".join(["rltuned", *sys.argv[1:]])
    export_predictor(out, fitted, command=command, seed=seed, data=data, licence=licence)
    if report is not None or as_json:
        from rltuned.lab.train.pages import report_of, write_report  # noqa: PLC0415

        found = report_of(fitted.predictor, first, names=names)
        if report is not None:
            write_report(report, found, f"Predicted run times, {out.name}")
        if as_json:
            say(json.dumps(found))
            raise typer.Exit(int(fitted.pinball >= fitted.plain))
    say(
        f"{out}: {fitted.examples} jobs; loss {fitted.pinball:.3f}, without looking at the job "
        f"{fitted.plain:.3f}; of the long jobs {fitted.long_found:.0%} recognised, by limit alone "
        f"{fitted.long_by_limit:.0%}"
    )
    if fitted.pinball >= fitted.plain:
        warn(f"{out}: it predicts no better than the same answer for every job")
        raise typer.Exit(1)
