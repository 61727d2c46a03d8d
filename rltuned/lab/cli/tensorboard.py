"""Figures of a training for TensorBoard: `--tensorboard` of `train ppo` and `train evolve`."""

import importlib.util
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rltuned.errors import ModelError, SettingsError
from rltuned.lab.cli.outputs import check_folder

if TYPE_CHECKING:  # torch
    from torch.utils.tensorboard import SummaryWriter

PACKAGE: Final = "tensorboard"
EVENTS: Final = "events.out.tfevents.*"

BoardOption = Annotated[
    Path | None,
    typer.Option("--tensorboard", help="Folder for TensorBoard; needs rltuned[tensorboard]."),
]


class EventFiles:
    """Event files of one training. folder: None = none is asked for.

    Raises:
        SettingsError: the package is missing.
        ModelError: the folder has the figures of another training.
        BadParameter: several seeds are trained, whose steps would be the same.
        TraceError: there can be no such folder.
    """

    def __init__(self, folder: Path | None, seeds: int = 1, *, resume: bool = False) -> None:
        self._folder = folder
        self._writer: SummaryWriter | None = None
        if folder is None:
            return
        if importlib.util.find_spec(PACKAGE) is None:
            raise SettingsError(
                f"--tensorboard needs the Python package {PACKAGE}, which is not installed; "
                "install rltuned[tensorboard]"
            )
        if seeds > 1:
            raise typer.BadParameter("--tensorboard shows one training, --seeds makes several")
        check_folder(folder)
        if not resume and any(folder.glob(EVENTS)):
            raise ModelError(f"{folder}: has the figures of another training; name another folder")

    def add(self, done: int, figures: Mapping[str, float | None]) -> None:
        """Those after so many epochs; without what was not measured. Raises ModelError."""
        if self._folder is None:
            return
        try:
            if self._writer is None:
                from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - an extra

                self._writer = SummaryWriter(str(self._folder))
            for name, value in figures.items():
                if value is not None and math.isfinite(value):
                    self._writer.add_scalar(name, value, done)
            self._writer.flush()
        except OSError as error:
            raise ModelError(f"{self._folder}: {error.strerror}") from error

    def close(self) -> None:
        """No more will come."""
        if self._writer is not None:
            self._writer.close()
