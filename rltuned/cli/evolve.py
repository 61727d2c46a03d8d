"""`rltuned train evolve`: search an order by an evolution strategy."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from rltuned.cli.epochs import EpochLog, against
from rltuned.cli.flags import say
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.sim.presets import cluster_named
from rltuned.train.course import (
    JUDGES,
    UNSEEN,
    drawn,
    from_files,
    generated,
    predictions,
    together,
)
from rltuned.train.evolution import RULE, EvolutionSettings, Generation
from rltuned.train.evolved import Search, perform
from rltuned.train.ranks import ALONE, join_ranks
from rltuned.train.run import Exam


def evolve(
    out: Annotated[Path, typer.Option(help="Folder of the new bundle; must not exist.")],
    *,
    trace: Annotated[
        list[Path] | None,
        typer.Option("--trace", help="Trace CSV; may be given again. None: generated jobs."),
    ] = None,
    cluster: Annotated[
        list[str] | None, typer.Option("--cluster", help="Cluster TOML or preset; again for more.")
    ] = None,
    worlds: Annotated[
        int, typer.Option(help="Random clusters and job mixes to learn from as well.", min=0)
    ] = 0,
    work: Annotated[
        Path | None, typer.Option("--work", help="Record and log; OUT.training if absent.")
    ] = None,
    generations: Annotated[int, typer.Option(min=1)] = 15,
    members: Annotated[int, typer.Option(help="Actors in each generation.", min=4)] = 20,
    parts: Annotated[int, typer.Option(help="Of traces that all of them play.", min=2)] = 30,
    part_jobs: Annotated[int, typer.Option(help="Jobs of a part.", min=10)] = 1_500,
    load: Annotated[tuple[float, float], typer.Option(help="Offered load, from and to.")] = (
        0.7,
        1.1,
    ),
    predictor: Annotated[
        Path | None, typer.Option("--predictor", help="Folder of the predictor; the shipped one.")
    ] = None,
    exam_windows: Annotated[int, typer.Option(help="Held out, per trace.", min=1)] = 4,
    exam_jobs: Annotated[int, typer.Option(help="Jobs in each of them.", min=10)] = 1_024,
    exam_every: Annotated[int, typer.Option(help="Generations between exams.", min=1)] = 5,
    workers: Annotated[
        int | None, typer.Option(help="Threads that play; as many as processors.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the record.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Export it although it is worse than the rule.")
    ] = False,
    distributed: Annotated[
        bool, typer.Option("--distributed", help="One of several ranks (torchrun, srun).")
    ] = False,
) -> None:
    """Search an order in the simulator: CMA-ES on whole parts of traces, in the daemon's cycles.

    Exit codes: 0 = found and exported; 2 = input cannot be used, or what was found is worse than
    the rule.
    """
    guess = predictions(load_predictor(predictor or shipped_predictor()))
    clusters = list(map(cluster_named, cluster or ["philly-192"]))
    found = from_files(trace, clusters, predict=guess) if trace else generated(seed, predict=guess)
    settings = EvolutionSettings(
        generations=generations, members=members, parts=parts, part_jobs=part_jobs, loads=load,
        exam_every=exam_every, seed=seed,
    )  # fmt: skip
    search = Search(
        settings=settings, out=out, folder=work or out.with_name(f"{out.name}.training"),
        sources=tuple(together(found, drawn(seed + 2, worlds, guess))),
        judges=tuple(drawn(JUDGES, worlds // 2, guess)),
        unseen=tuple(drawn(UNSEEN, worlds // 2, guess)),
        command=" ".join(["rltuned", *(a for a in sys.argv[1:] if a != "--resume")]),
        exam=Exam(exam_windows, exam_jobs), resume=resume, force=force,
        workers=workers or len(os.sched_getaffinity(0)),
    )  # fmt: skip
    ranks = join_ranks() if distributed else ALONE
    log = EpochLog(search.folder, "generation", generations, off=ranks.rank > 0)

    def after(found: Generation) -> None:
        text = against(RULE, found.change)
        if found.exam is not None:
            text += f", held out {against(RULE, found.exam)}"
        log.say(found.number + 1, text)

    card = perform(search, ranks=ranks, on_generation=after)
    if card is not None:
        say(f"{out}: {card.verdict}; {card.training.seconds:.0f} s")
