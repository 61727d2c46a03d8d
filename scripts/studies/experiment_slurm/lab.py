"""The test Slurm of 13 fake GPUs with an accounting database of its own, and its faster clock."""

import fcntl
import os
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab import SlurmLab

SOURCE = Path(__file__).with_name("fastclock.c")
WAITS_S = 0.25
"""No timed wait of Slurm's daemons is shorter: saving the queue every five seconds of a clock that
runs 180 times as fast would take all of a processor."""


class ClockError(RuntimeError):
    """The clock cannot be made on this machine."""


def build(folder: Path) -> Path:
    """Compile fastclock.c into the folder unless it is there; where the library lies. Raises
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
    """One line from real to faster time, shared by all who get its environment. base: Unix seconds
    at which both clocks agree; speed: seconds that pass on it while one passes really.
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


FAST = {
    # time-outs that go by the wall clock stay long enough in real time
    "MessageTimeout": "6000",
    "TCPTimeout": "6000",
    "SlurmdTimeout": "65000",
    "SlurmctldTimeout": "65000",
    "BatchStartTimeout": "60000",
    "UnkillableStepTimeout": "60000",
    "EioTimeout": "60000",
    "KillWait": "30",
    # what Slurm needs to start and end a job is many seconds of the faster clock
    "OverTimeLimit": "60",
    # as Slurm comes, but for the lab's testing pace
    "MinJobAge": "300",
    "PriorityCalcPeriod": "5",
}
SCHEDULER = (
    "bf_interval={bf},bf_resolution=300,bf_window=10080,bf_continue,bf_max_job_test=1000,"
    "default_queue_depth=2000,sched_interval=600,batch_sched_delay=3,max_sched_time=1000,"
    "bf_max_time=3600,bf_yield_interval=10000000"
)
"""A site's usual settings; bf_yield_interval, max_sched_time and bf_max_time are measured by the
faster clock and are raised so that a pass is not cut off by it."""
CREDENTIAL_S = 60000


@dataclass
class FastLab(SlurmLab):
    """SlurmLab whose daemons see time pass `speed` times as fast. built: folder for the compiled
    clock; settings: more lines of slurm.conf by key, which replace the lab's own.
    """

    speed: float = 1.0
    built: Path = Path(".run/experiment")
    settings: dict[str, str] = field(default_factory=dict)
    clock: FastClock | None = None
    _daemon: bool = False

    def start(self) -> None:
        self.clock = FastClock(build(self.built.resolve()), float(int(time.time())), self.speed)
        with (self.built / "start.lock").open("w") as lock:
            # databases that are made side by side disturb each other
            fcntl.flock(lock, fcntl.LOCK_EX)
            super().start()

    @property
    def fast_clock(self) -> FastClock:
        """Raises ClockError before it is started."""
        if self.clock is None:
            raise ClockError("the lab is not started")
        return self.clock

    def environ(self) -> dict[str, str]:
        """Clients see real time: none of them uses the clock for a figure."""
        if self._daemon and self.clock is not None:
            return {**super().environ(), **self.clock.environ(slurmd=True)}
        return super().environ()

    def _spawn(self, name: str, argv: list[str]) -> None:
        # munge judges the age of credentials by the real clock; slurmdbd stores what slurmctld
        # says, and would sum up an hour every few seconds
        self._daemon = name.startswith(("slurmctld", "slurmd-"))
        try:
            super()._spawn(name, argv)
        finally:
            self._daemon = False

    def _slurm_conf(self, sock: Path) -> str:
        scheduler = SCHEDULER.format(bf=max(30, int(self.speed)))
        own = {"SchedulerParameters": scheduler, **FAST, **self.settings}
        own["AuthInfo"] = f"socket={sock},cred_expire={CREDENTIAL_S}"
        lines = super()._slurm_conf(sock).splitlines()
        kept = [line for line in lines if line.split("=", 1)[0] not in own]
        return "\n".join([*kept, *(f"{key}={value}" for key, value in own.items())]) + "\n"
