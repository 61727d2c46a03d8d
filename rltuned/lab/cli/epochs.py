"""Where a training stands: a line for each epoch, on standard error and in FOLDER/training.log."""

import time
from pathlib import Path
from typing import Final

from rltuned.cli.flags import warn
from rltuned.errors import ModelError
from rltuned.stats import percent
from rltuned.text import span

LOG: Final = "training.log"


class EpochLog:
    """The lines of one training. unit: what it counts; total: how many of them. off: another rank
    says it. Raises ModelError: the folder cannot be written to.
    """

    def __init__(self, folder: Path, unit: str, total: int, *, off: bool = False) -> None:
        self._path, self._unit, self._total, self._off = folder / LOG, unit, total, off
        self._began, self._said = time.monotonic(), 0

    def say(self, done: int, text: str) -> None:
        """So many have been done."""
        self._said += 1
        if self._off:
            return
        each_s = (time.monotonic() - self._began) / self._said
        left_s = each_s * (self._total - done)
        line = f"{self._unit} {done}/{self._total}: {text}; {span(left_s)} left"
        warn(line)
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime())
        try:
            with self._path.open("a") as file:
                file.write(f"{stamp} {line}\n")
        except OSError as error:
            raise ModelError(f"{self._path}: {error.strerror}") from error


def against(rule: str, change: tuple[float, float | None, float | None]) -> str:
    """A mean of logarithms of ratios with its interval, as parts."""
    return f"{percent(*change)} against {rule}"
