"""What `rltuned train ppo` and `rltuned train evolve` share: options, and what is learned on."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rltuned.cli.flags import warn
from rltuned.policies.network import Kind
from rltuned.policies.predictor import Predictor, load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.sim.presets import cluster_named

if TYPE_CHECKING:  # torch and numba, which --help does without
    from rltuned.lab.train.course import DatasetSource, Predict
    from rltuned.lab.train.verdict import Validation


def _with_a_name(out: Path) -> Path:
    if not out.name:
        raise typer.BadParameter(f"{str(out)!r} has no name that a new folder could bear")
    return out


OutOption = Annotated[
    Path,
    typer.Option(help="Folder of the new bundle; must not exist.", callback=_with_a_name),
]
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


def predicting(network: Kind, predictor: Path | None = None) -> "tuple[Predict, Predictor]":
    """What a kind of network reads of run times, and the predictor: that of a folder; None = the
    shipped one.
    """
    from rltuned.lab.train.course import nothing, predictions  # noqa: PLC0415 - torch

    found = load_predictor(predictor or shipped_predictor())
    return nothing if network == "paper" else predictions(found), found


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
    from rltuned.lab.train.course import (  # noqa: PLC0415 - torch
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


def judged_by(windows: int, jobs: int, sources: "Sequence[DatasetSource]") -> "Validation":
    """What is held out of each source, with as many jobs as the longest trace has room for; that
    there are fewer is said.
    """
    from rltuned.lab.train.course import LEARN_UNTIL, TEST_FROM  # noqa: PLC0415 - torch
    from rltuned.lab.train.run import fitting  # noqa: PLC0415
    from rltuned.lab.train.verdict import Validation  # noqa: PLC0415

    found = fitting(Validation(windows, jobs), [s for s in sources if not s.is_world])
    if found.window_jobs < jobs:
        warn(
            f"held-out windows have {found.window_jobs} jobs, not {jobs}: the longest trace has no "
            f"more between {LEARN_UNTIL:.0%} and {TEST_FROM:.0%} of its length"
        )
    return found


def as_typed() -> str:
    """The command, for a card: what makes the same weights again."""
    return " ".join(["rltuned", *(word for word in sys.argv[1:] if word != "--resume")])
