"""`rltuned train evolve`: search an order by an evolution strategy."""

import math
import os
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from rltuned.cli.flags import say
from rltuned.lab.cli.progress import BoardOption, EpochLog, EventFiles, against
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
    as_typed,
    judged_by,
    learned_on,
    predicting,
)

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
    board = EventFiles(tensorboard, seeds, resume=resume)
    from rltuned.lab.train.course import JUDGES, UNSEEN, drawn  # noqa: PLC0415 - torch
    from rltuned.lab.train.evolution import EvolutionSettings, perform  # noqa: PLC0415
    from rltuned.lab.train.run import Job  # noqa: PLC0415
    from rltuned.lab.train.trial import RULE  # noqa: PLC0415

    guess, known = predicting("queue", predictor)
    settings = EvolutionSettings(
        generations=generations, members=members, parts=parts, part_jobs=part_jobs, loads=load,
        reach=math.log(reach), eval_every=eval_every, seed=seed,
    )  # fmt: skip
    sources = learned_on(trace, cluster, worlds, seed, guess)
    search = Job(
        settings=settings, out=out, folder=work or out.with_name(f"{out.name}.training"),
        sources=sources,
        judges=tuple(drawn(JUDGES, worlds // 2, guess)),
        unseen=tuple(drawn(UNSEEN, worlds // 2, guess)),
        command=as_typed(), start=start, seeds=seeds, predictor=known,
        validation=judged_by(eval_windows, eval_jobs, sources), resume=resume, force=force,
        workers=workers or len(os.sched_getaffinity(0)),
    )  # fmt: skip
    log = EpochLog(search.folder, "generation", generations)

    def after(found: "SearchGeneration") -> None:
        text = against(RULE, found.change)
        if found.validation is not None:
            text += f", held out {against(RULE, found.validation)}"
        log.say(found.number + 1, text)
        board.add(found.number + 1, _figures(found))

    with closing(board):
        card = perform(search, on_generation=after)
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
