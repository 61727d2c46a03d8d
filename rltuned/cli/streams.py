"""Standard output and error that are full, closed or left by their reader: no traceback."""

import os
import sys
from typing import Any, Final

_NAMES: Final = ("stdin", "stdout", "stderr")


class Guarded:
    """A stream that takes all and forgets what its file cannot take: work goes on, and restore
    with it. broken: why, empty = all was written. A reader that went away ends the command.
    """

    def __init__(self, out: Any) -> None:
        self._out = out
        self.broken = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._out, name)

    def write(self, text: str) -> int:
        try:
            return 0 if self.broken else int(self._out.write(text))
        except BrokenPipeError:
            raise
        except OSError as error:
            self._give_up(error)
            return 0

    def flush(self) -> None:
        try:
            self._out.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.broken = self.broken or error.strerror or str(error)
        self.leave()

    def leave(self) -> None:
        """Write the rest to nowhere: the interpreter must not complain at its end."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._out.fileno())


def guard() -> Guarded:
    """Guard both; the guarded standard output. What is closed becomes /dev/null, or the next file
    that is opened takes its place.
    """
    for number, name in enumerate(_NAMES):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
    out = Guarded(sys.stdout)
    sys.stdout, sys.stderr = out, Guarded(sys.stderr)
    return out
