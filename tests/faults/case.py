"""Three jobs wait in the wrong order, a daemon that would turn them, and a fault to come."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self
from unittest.mock import patch

from tests.e2e.process import Daemon
from tests.faults.shims import Shims
from tests.lab import LabError, SlurmLab
from tests.programs import process, rltuned

FULL = ("--gres=gpu:p100:4", "-n16", "-N1")
MINUTES = (30_000, 20_000, 10_000)
"""Weeks, as a point is worth hours here (conftest)."""

SETTINGS = """\
[daemon]
interval_s = 1
state_dir = "{state}"
pause_file = "{folder}/PAUSE"
[policy]
name = "{policy}"
models_dir = "{models}"
[scope]
min_age_s = 0
[order]
max_delay_s = 2_592_000
[predictor]
enabled = false
[limits]
hysteresis = 0.0
[slurm]
bin_dir = "{bin}"
conf = "{conf}"
timeout_s = 3
[http]
port = 0
"""


class Case:
    """What every fault test starts from, and what must hold whatever the fault was.

    Args:
        lab: a running cluster with an empty queue.
        folder: for settings, state, commands and temporary files.
    """

    def __init__(self, lab: SlurmLab, folder: Path) -> None:
        self.lab = lab
        self.folder = folder
        self.shims = Shims(folder / "bin")
        self.state = folder / "state"
        self.models = folder / "models"
        self.temporary = folder / "tmp"
        self.config = folder / "rltuned.toml"
        for place in (self.state, self.models, self.temporary):
            place.mkdir(mode=0o700)
        self.settle()
        self.running: tuple[int, ...] = ()
        self.waiting: tuple[int, ...] = ()
        self.natural: dict[int, str] = {}

    def settle(self, policy: str = "sjf") -> None:
        """Write the settings."""
        self.config.write_text(
            SETTINGS.format(
                state=self.state, folder=self.folder, policy=policy, models=self.models,
                bin=self.shims.folder, conf=self.lab.conf,
            )
        )  # fmt: skip

    def __enter__(self) -> Self:
        self.running = tuple(
            self.lab.sbatch(*FULL, f"-w{node}", "--time=2:00:00") for node in ("p1", "p2")
        )
        self.lab.wait_for(
            lambda: all(self.lab.state(job) == "R" for job in self.running), "both run"
        )
        self.waiting = tuple(self.lab.sbatch(*FULL, f"--time={m}", "--nice=5") for m in MINUTES)
        self.lab.wait_for(lambda: len(self.sprio()) == len(self.waiting), "three wait")
        self.natural = self.sprio()
        return self

    def __exit__(self, *_: object) -> None:
        for name in ("squeue", "sinfo", "sprio", "scontrol"):
            self.shims.clear(name)

    # -- what is done -------------------------------------------------------------------------

    def daemon(self, *args: str, environ: Mapping[str, str] | None = None) -> Daemon:
        words = args or ("--live",)
        return Daemon(
            self.folder,
            *words,
            "--config",
            str(self.config),
            environ={"TMPDIR": str(self.temporary), **(environ or {})},
        )

    def rltuned(self, *args: str) -> "subprocess.CompletedProcess[str]":
        """A command in this process; `apart` where a fault ends it or its surroundings differ."""
        place = str(self.temporary)
        with patch.dict(os.environ, TMPDIR=place), patch.object(tempfile, "tempdir", place):
            return rltuned(*args, config=self.config)

    def succeeds(self, *args: str) -> None:
        done = self.rltuned(*args)
        assert done.returncode == 0, done.stdout + done.stderr

    def apart(self, *args: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        environ = {**os.environ, "TMPDIR": str(self.temporary), **environ}
        return process(*args, config=self.config, env=environ)

    def copy_models(self, source: Path) -> None:
        shutil.copytree(source, self.models, dirs_exist_ok=True)

    # -- what is seen -------------------------------------------------------------------------

    def sprio(self) -> dict[int, str]:
        """Waiting job -> all that sprio shows of it: priority, factors, nice, site factor."""
        lines = self.lab.run("sprio", "-h", "-o", "%i %Y %A %F %J %P %Q %N %S").splitlines()
        return {int(line.split()[0]): " ".join(line.split()[1:]) for line in lines}

    def order(self) -> list[int]:
        """The waiting jobs, the first to start first."""
        lines = self.lab.run("squeue", "-h", "-t", "PD", "-o", "%i %Q").splitlines()
        rows = [(int(number), int(job)) for job, number in (line.split() for line in lines)]
        return [job for _, job in sorted(rows, key=lambda row: (-row[0], row[1]))]

    @property
    def turned(self) -> bool:
        """Whether the shortest stands first: what the daemon wants; not while Slurm is away."""
        try:
            return self.order() == list(reversed(self.waiting))
        except LabError:
            # A slurmctld that reconfigures takes connections and answers none for a moment.
            return False

    # -- what must hold -----------------------------------------------------------------------

    def assert_unharmed(self) -> None:
        """Nobody was killed, held or freed, and nobody changed what else makes a job."""
        assert all(self.lab.state(job) == "R" for job in self.running)
        assert all(self.lab.state(job) == "PD" for job in self.waiting)
        assert all(int(self.sprio()[job].split()[0]) > 0 for job in self.waiting)

    def assert_untouched(self) -> None:
        """Every byte of sprio is what it was before rltuned."""
        self.assert_unharmed()
        assert self.sprio() == self.natural

    def assert_only_watches(self, daemon: Daemon, state: str = "journal_unusable") -> None:
        """It says why, looks on, and leaves every number as it is, a newcomer's too."""
        frozen = self.sprio()
        daemon.wait_for_mode(state)
        newcomer = self.lab.sbatch(*FULL, "--time=10", "--nice=5")
        daemon.more_cycles()
        after = self.sprio()
        assert after.pop(newcomer).split()[-1] == "0"
        assert after == frozen
        self.lab.run("scancel", str(newcomer))

    def assert_given_back(self) -> None:
        """`restore --all` works, and then nothing is left of us: no number, process or file."""
        self.succeeds("restore", "--all")
        self.assert_untouched()
        self.assert_clean()

    def assert_clean(self) -> None:
        assert list(self.temporary.iterdir()) == []
        known = {"journal.sqlite", "journal.sqlite-journal", "writer.lock"}
        known |= {"salt", "run-times", "forecast"}
        assert {file.name for file in self.state.iterdir()} <= known
        assert self.processes() == []

    def processes(self) -> list[str]:
        """Command lines of processes that have to do with this case."""
        found = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if str(self.folder) in words:
                found.append(words)
        return found

    def assert_converges(self) -> None:
        """A new daemon brings about what an undisturbed one would have."""
        self.succeeds("run", "--live", "--cycles", "2")
        assert self.turned
        self.assert_unharmed()


def fill(file: Path) -> None:
    """Take every block that is left, the last ones by single bytes."""
    with file.open("wb", buffering=0) as out:
        for piece in (65536, 4096, 1):
            with suppress(OSError):
                while out.write(b"x" * piece):
                    pass
