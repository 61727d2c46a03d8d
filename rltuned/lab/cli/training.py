"""What `rltuned train ppo` and `rltuned train evolve` share: options, and what is learned on."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rltuned.cli.flags import warn
from rltuned.lab.train.settings import LEARN_UNTIL, TEST_FROM
from rltuned.policies.network import Kind
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.sim.presets import cluster_named

if TYPE_CHECKING:  # torch and numba, which --help does without
    from rltuned.lab.train.run import Run
    from rltuned.lab.train.sources import DatasetSource, Predict

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
