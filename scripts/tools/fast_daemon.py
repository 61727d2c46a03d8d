"""The daemon on a real Slurm with a faster clock: started, stopped, read, and all restored."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rltuned.domain.jobs import Ownership
from rltuned.journal.journal import Journal
from rltuned.slurm.priority import GARBAGE_SITE
from scripts.studies.experiment_slurm import arms
from scripts.studies.experiment_slurm.lab import FastLab
from tests.accounting import as_user
from tests.e2e.process import Daemon
from tests.lab import SlurmLab

Event = dict[str, Any]
"""A line of the daemon's log."""
ARM = arms.ARMS["site"]
"""Of the experiment on real Slurm: its weights, QOS and shares, and `delay` as site factors."""
_RPC = re.compile(r"^\s*(\w+)\s+\(\s*\d+\) count:(\d+)", re.MULTILINE)


class EndError(RuntimeError):
    """The daemon ended, or did not end, against expectation."""


@dataclass(kw_only=True)
class FastDaemon:
    """What is running, and what users and administrators have done. home: journal, rltuned.toml, a
    folder of output for each start; rng: draws all that happens; user: of the daemon, empty = root.
    """

    lab: FastLab
    home: Path
    rng: random.Random
    user: str = ""
    running: Daemon = field(init=False)
    starts: int = 0
    done: Counter[str] = field(default_factory=Counter)

    def settle(self, interval_s: float, more: str = "", limits: str = "") -> None:
        """Write rltuned.toml; home and all that is in it become the user's."""
        where = {"folder": str(self.home), "conf": str(self.lab.conf)}
        text = arms.daemon_settings(ARM, **where, interval_s=interval_s)
        self.config.write_text(text.replace("[limits]\n", f"[limits]\n{limits}") + more)
        self.config.chmod(0o600)
        if self.user:
            for path in (self.home, self.config):
                shutil.chown(path, self.user, self.user)

    @property
    def config(self) -> Path:
        return self.home / "rltuned.toml"

    @property
    def prefix(self) -> tuple[str, ...]:
        return as_user(self.user) if self.user else ()

    def environ(self) -> dict[str, str]:
        """What its commands get besides: its clock, and one thread."""
        return {**self.lab.fast_clock.environ(slurmd=False), "OMP_NUM_THREADS": "1"}

    def start(self) -> None:
        """Start the daemon; its output gets a folder of its own."""
        folder = self.home / f"run-{self.starts}"
        folder.mkdir()
        self.starts += 1
        args = ("--config", str(self.config))
        self.running = Daemon(folder, *args, environ=self.environ(), prefix=self.prefix)
        self.running.__enter__()
        self.running.wait_for(lambda: "/metrics" in self.running.log(), "rltuned is up", 300)

    def stop(self) -> None:
        """End the daemon. Raises EndError: it ends badly."""
        self.running.signal(signal.SIGTERM)
        if code := self.running.ends(120):
            raise EndError(f"ended with {code}: {self.running.log()[-3000:]}")

    def kill(self) -> None:
        """End it if it runs, however it fares."""
        if self.starts:
            self.running.__exit__(None, None, None)

    def events(self, name: str) -> Iterator[Event]:
        """Of this name in the log, over all starts."""
        for log in sorted(self.home.glob("run-*/stderr")):
            for line in log.read_text().splitlines():
                if f'"event": "{name}"' in line:
                    yield json.loads(line)

    def factors(self) -> dict[int, int]:
        """What Slurm shows as the site factor of each waiting job that is not held."""
        rows = (row.split() for row in self.lab.run("sprio", "-h", "-o", "%i %S").splitlines())
        shown = {int(job): int(factor.split(".")[0]) for job, factor in rows}
        # as the daemon, which knows no number of a job of which 22.05 prints about -2^31
        return {job: factor for job, factor in shown.items() if factor >= GARBAGE_SITE}

    def owned(self) -> dict[int, Ownership]:
        """The numbers of the journal, by job."""
        with closing(Journal(self.home)) as journal:
            return {key[0]: own for key, own in journal.owned("rltlab").items()}

    def ask(self, *words: str) -> None:
        """A command of an administrator; the job may have gone meanwhile."""
        self.lab.run(*words, check=False, timeout_s=120)

    def restored(self, held: Iterable[str]) -> list[str]:
        """Restore everything; what is not as Slurm would have it, in words.

        Slurm shows no site factor of a held job, so restore leaves such a job: it is released
        first. held: those that may be.
        """
        for job in held:
            self.ask("scontrol", "release", job)
        argv = (*self.prefix, sys.executable, "-m", "rltuned", "restore", "--all", "--config",
                str(self.config))  # fmt: skip
        back = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600)
        left_over = [line for line in back.stdout.splitlines() if ": restored" not in line]
        wrong = [f"restore ended with {back.returncode}: {left_over[:5]}"] * bool(back.returncode)
        asked = ("squeue", "-h", "-a", "-tPD", "-o", "%A")
        pending = {int(job) for job in self.lab.run(*asked, timeout_s=120).split()}
        kept = sorted(job for job in self.owned() if job in pending)
        wrong += [self.lab.run("scontrol", "-o", "show", "job", str(job)) for job in kept]
        left = [(job, f) for job, f in self.factors().items() if f]
        return wrong + ([f"site factors left: {left[:10]}"] if left else [])


def processor_s(pid: int) -> float:
    """Of a process and its ended children."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(w) for w in words[11:15]) / os.sysconf("SC_CLK_TCK")


def status(pid: int) -> dict[str, str]:
    """What /proc says of it."""
    rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(row.split(":\t", 1) for row in rows if ":\t" in row)


def rpc_counts(lab: SlurmLab, by: str = "message type") -> dict[str, int]:
    """RPCs answered by type or, by="user", by user, since slurmctld began to count."""
    text = lab.run("sdiag").partition(f"by {by}")[2].partition("\n\n")[0]
    return {name: int(count) for name, count in _RPC.findall(text)}
