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
    """The lines of one training. unit: what it counts; total: how many of them, for each of the
    seeds. off: another rank says it. Raises ModelError: the folder cannot be written to.
    """

    def __init__(
        self, folder: Path, unit: str, total: int, seeds: int = 1, *, off: bool = False
    ) -> None:
        self._path, self._unit, self._total, self._off = folder / LOG, unit, total, off
        self._began, self._said, self._seeds, self._seed, self._last = (
            time.monotonic(), 0, seeds, 1, 0,
        )  # fmt: skip

    def say(self, done: int, text: str) -> None:
        """So many have been done; a number that is not above the last one is the next seed's."""
        self._said += 1
        self._seed += done <= self._last
        self._last = done
        if self._off:
            return
        each_s = (time.monotonic() - self._began) / self._said
        left_s = each_s * (self._total - done + self._total * (self._seeds - self._seed))
        seed = f"seed {self._seed}/{self._seeds}, " if self._seeds > 1 else ""
        line = f"{seed}{self._unit} {done}/{self._total}: {text}; {span(left_s)} left"
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
