"""`rltuned train`: learn policies offline. Needs the train extra."""

import json
import math
import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rltuned.cli.flags import JsonOption, say, warn
from rltuned.lab.cli import evolve, imitate
from rltuned.lab.cli.options import check_folder
from rltuned.lab.cli.progress import BoardOption, TrainingLog, against, check_board
from rltuned.lab.cli.training import (
    ClusterOption,
    DistributedOption,
    ForceOption,
    HeldOutOption,
    LoadOption,
    OutOption,
    PredictorOption,
    ReachOption,
    ResumeOption,
    SeedsOption,
    StartOption,
    TraceOption,
    WorkOption,
    WorldsOption,
    run_of,
)
from rltuned.lab.train.settings import RULE, Form, Objective, PpoSettings, Reference
from rltuned.policies.baselines import BASELINES
from rltuned.policies.network import Kind
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor

if TYPE_CHECKING:  # torch and numba, which --help does without
    from rltuned.lab.train.ppo import Report

app = typer.Typer(no_args_is_help=True, help="Learn policies offline.")
app.command()(imitate.imitate)
app.command()(evolve.evolve)


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
    from rltuned.lab.train.export import export_predictor  # noqa: PLC0415
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
