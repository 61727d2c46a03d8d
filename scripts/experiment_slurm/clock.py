"""A wall clock that runs faster, for Slurm's daemons and for rltuned: compiled on first use."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("fastclock.c")
SLEEPS = 5.0
"""By how much Slurm's own short sleeps are cut: its main loop then turns every 200 ms."""

AHEAD = -10
"""Nice level of our sessions towards other sessions."""


def go_ahead(pid: int) -> None:
    """Let a process and its session go before what else this machine does.

    A faster clock makes every wait for a processor longer. Where Linux schedules by sessions
    (autogroups), nice levels count within one only, so that other work, however nice, would get
    as much as each of Slurm's daemons.
    """
    group = Path(f"/proc/{pid}/autogroup")
    if group.exists():
        group.write_text(f"{AHEAD}\n")


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
            "FASTCLOCK_WAITS": "1" if slurmd else "0",
            "FASTCLOCK_SLEEPS": repr(SLEEPS) if slurmd else "1",
        }

    def at(self, real: float) -> float:
        """What it shows at a real Unix time."""
        return self.base + (real - self.base) * self.speed
