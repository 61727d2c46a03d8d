"""What `rltuned train ppo` and `rltuned train evolve` share: options, and what is learned on."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rltuned.cli.flags import warn
from rltuned.policies.network import Kind
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.sim.presets import cluster_named

if TYPE_CHECKING:  # torch and numba, which --help does without
    from rltuned.lab.train.course import DatasetSource, Predict
    from rltuned.lab.train.run import Validation

OutOption = Annotated[Path, typer.Option(help="Folder of the new bundle; must not exist.")]
TraceOption = Annotated[
    list[Path] | None,
    typer.Option("--trace", help="Trace CSV; may be given again. None: generated jobs."),
]
ClusterOption = Annotated[
    list[str] | None, typer.Option("--cluster", help="Cluster TOML or preset; again for more.")
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
HeldOutOption = Annotated[int, typer.Option(help="Held out, per trace.", min=1)]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on where it stopped.")]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Export it although it is worse than the rule.")
]
DistributedOption = Annotated[
    bool, typer.Option("--distributed", help="One of several ranks (torchrun, srun).")
]


def predicting(network: Kind, predictor: Path | None = None) -> "Predict":
    """What a kind of network reads of run times. predictor: a folder; None = the shipped one."""
    from rltuned.lab.train.course import nothing, predictions  # noqa: PLC0415 - torch

    if network == "paper":
        return nothing
    return predictions(load_predictor(predictor or shipped_predictor()))


def learned_on(
    traces: Sequence[Path] | None,
    clusters: Sequence[str] | None,
    worlds: int,
    seed: int,
    predict: "Predict",
) -> "tuple[DatasetSource, ...]":
    """The traces, or generated ones, and random worlds. Raises TraceError: a file is unfit."""
    from rltuned.lab.train.course import (  # noqa: PLC0415 - torch
        drawn,
        from_files,
        generated,
        together,
    )

    on = list(map(cluster_named, clusters or ["philly-192"]))
    found = from_files(traces, on, predict) if traces else generated(seed, predict=predict)
    # the first two seeds of worlds are those that judge
    return tuple(together(found, drawn(seed + 2, worlds, predict)))


def judged_by(
    windows: int, jobs: int, sources: "Sequence[DatasetSource]", worlds: int
) -> "Validation":
    """What is held out of each source, with as many jobs as the longest trace has room for; that
    there are fewer is said. worlds: so many of the last sources are random worlds.
    """
    from rltuned.lab.train.course import LEARN_UNTIL, TEST_FROM  # noqa: PLC0415 - torch
    from rltuned.lab.train.run import Validation, fitting  # noqa: PLC0415

    found = fitting(Validation(windows, jobs), sources[: len(sources) - worlds])
    if found.window_jobs < jobs:
        warn(
            f"held-out windows have {found.window_jobs} jobs, not {jobs}: the longest trace has no "
            f"more between {LEARN_UNTIL:.0%} and {TEST_FROM:.0%} of its length"
        )
    return found
