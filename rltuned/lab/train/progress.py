"""How a training goes on: a line on the terminal and in training.log, figures for TensorBoard."""

import importlib.util
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rltuned.cli.flags import warn
from rltuned.errors import ModelError
from rltuned.stats import percent
from rltuned.text import span

LOG: Final = "training.log"


class TrainingLog:
    """unit: what a training counts; total: how many of them there will be, over all seeds."""

    def __init__(self, unit: str, total: int) -> None:
        self._unit, self._total, self._began, self._said = unit, total, time.monotonic(), 0
        self._boards: dict[Path, Any] = {}

    def say(self, folder: Path, done: int, text: str, figures: Mapping[str, float | None]) -> None:
        """So many have been done in a folder; where tensorboard is installed, its event files with
        the figures lie there too. Raises ModelError: the folder cannot be written to.
        """
        self._said += 1
        left_s = (time.monotonic() - self._began) / self._said * (self._total - done)
        line = f"{self._unit} {done}/{self._total}: {text}; {span(left_s)} left"
        warn(line)
        try:
            with (folder / LOG).open("a") as file:
                file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n")
            if importlib.util.find_spec("tensorboard") is None:
                return
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - an extra

            board = self._boards.setdefault(folder, None) or SummaryWriter(str(folder))
            self._boards[folder] = board
            for name, value in figures.items():
                if value is not None and math.isfinite(value):
                    board.add_scalar(name, value, done)
            board.flush()
        except OSError as error:
            raise ModelError(f"{folder}: {error.strerror}") from error


def against(rule: str, change: tuple[float, float | None, float | None]) -> str:
    """A mean of logarithms of ratios with its interval, as parts."""
    return f"{percent(*change)} against {rule}"
