"""How a training goes on: a line on the terminal and in training.log, figures for TensorBoard."""

import importlib.util
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rltuned.cli.flags import warn
from rltuned.errors import ModelError
from rltuned.lab.train.settings import RULE
from rltuned.stats import percent
from rltuned.text import span

LOG: Final = "training.log"


def flat(found: Mapping[str, Any]) -> dict[str, float | None]:
    """Figures by name; of an interval NAME, NAME_low and NAME_high."""
    figures: dict[str, float | None] = {}
    for name, value in found.items():
        if isinstance(value, tuple):
            figures |= zip((name, f"{name}_low", f"{name}_high"), value, strict=True)
        elif not isinstance(value, list):
            figures[name] = value
    return figures


class TrainingLog:
    """unit: what a training counts; total: how many of them there will be."""

    def __init__(self, unit: str, total: int) -> None:
        self._unit, self._total, self._began, self._said = unit, total, time.monotonic(), 0
        self._boards: dict[Path, Any] = {}

    def say(self, folder: Path, done: int, text: str, found: Mapping[str, Any]) -> None:
        """So many have been done in a folder. found: figures; with tensorboard installed, its event
        files with them lie there too. Raises ModelError: the folder cannot be written to.
        """
        self._said += 1
        figures = flat(found)
        held_out = figures["validation"]
        if held_out is not None and math.isfinite(held_out):
            ends = figures["validation_low"], figures["validation_high"]
            text += f", held out {percent(held_out, *ends)} against {RULE}"
        left_s = (time.monotonic() - self._began) / self._said * (self._total - done)
        line = f"{self._unit} {done}/{self._total}: {text}; {span(left_s)} left"
        warn(line)
        try:
            with (folder / LOG).open("a") as file:
                file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n")
            if importlib.util.find_spec("tensorboard") is None:
                return
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - an extra

            if folder not in self._boards:
                self._boards[folder] = SummaryWriter(str(folder))
            for name, value in figures.items():
                if value is not None and math.isfinite(value):
                    self._boards[folder].add_scalar(name, value, done)
            self._boards[folder].flush()
        except OSError as error:
            raise ModelError(f"{folder}: {error.strerror}") from error
