"""A wall clock that runs faster, for Slurm's daemons and for rltuned: compiled on first use."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("fastclock.c")
WAITS_S = 0.25
"""No timed wait of Slurm's daemons is shorter: saving the queue every five seconds of a clock that
runs 180 times as fast would take all of a processor."""


class ClockError(RuntimeError):
    """The clock cannot be made on this machine."""


def build(folder: Path) -> Path:
    """Compile fastclock.c into the folder unless it is there; where the library lies.

    Raises:
        ClockError: no compiler, or it refuses.
    """
    library = folder / "fastclock.so"
    if library.exists() and library.stat().st_mtime >= SOURCE.stat().st_mtime:
        return library
    compiler = shutil.which("cc")
    if compiler is None:
        raise ClockError("no C compiler: the faster clock needs one (Debian: gcc libc6-dev)")
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f"fastclock.{os.getpid()}.so"
    done = subprocess.run(
        [compiler, "-O2", "-Wall", "-shared", "-fPIC", "-o", str(fresh), str(SOURCE), "-ldl"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise ClockError(f"{SOURCE.name} does not compile: {done.stderr.strip()}")
    fresh.replace(library)
    return library


@dataclass(frozen=True)
class FastClock:
    """One line from real to faster time, shared by all who get its environment.

    Args:
        library: what `build` made.
        base: Unix seconds at which both clocks agree.
        speed: seconds that pass on it while one passes really.
    """

    library: Path
    base: float
    speed: float

    def environ(self, *, slurmd: bool) -> dict[str, str]:
        """For a process; slurmd: one of Slurm's daemons, whose waits go by this clock."""
        return {
            "LD_PRELOAD": str(self.library),
            "FASTCLOCK_BASE": repr(self.base),
            "FASTCLOCK_SPEED": repr(self.speed),
            "FASTCLOCK_WAITS": repr(WAITS_S) if slurmd else "0",
        }

    def at(self, real: float) -> float:
        """What it shows at a real Unix time."""
        return self.base + (real - self.base) * self.speed
