"""`rltuned train evolve`: search an order by an evolution strategy."""

import math
import os
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from rltuned.cli.flags import say
from rltuned.lab.cli.progress import BoardOption, TrainingLog, against, check_board
from rltuned.lab.cli.training import (
    ClusterOption,
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
from rltuned.lab.train.settings import RULE, EvolutionSettings

if TYPE_CHECKING:  # torch and numba, which --help does without
    from rltuned.lab.train.evolution import SearchGeneration


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
