"""The cluster of `make day`, its jobs and users, and what befalls it."""

import math
import os
import random
import shlex
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from rltuned.domain.jobs import Ownership
from rltuned.journal.journal import Journal
from scripts.studies.experiment_slurm.arms import (
    ARMS,
    PARTITION,
    SHARES,
    accounting_commands,
    daemon_settings,
    slurm_settings,
)
from scripts.studies.experiment_slurm.lab import FastLab
from scripts.tools.fast_daemon import FastDaemon
from tests.accounting import THIRD, as_user
from tests.lab import NodeSpec

ARM = ARMS["site"]
"""Of the experiment on real Slurm: its weights, QOS and shares, and `delay` as site factors."""
SERVICE = THIRD
"""The user of the daemon, operator in Slurm: sdiag counts its RPCs apart."""
HOUR_S, MINUTE_S = 3_600.0, 60.0
NODES_OF = ((1, 30), (2, 20), (4, 20), (8, 15), (16, 10), (32, 5))
"""How many whole nodes a job asks for, and the weight of that; a tenth of the single ones want half
a node. Fewer jobs of more nodes start than at most sites: a start takes half a second of a
processor, which is four seconds of this clock."""
MEAN_NODES = 6
MEDIAN_H, SPREAD, LONGEST_H = 1.6, 0.8, 6.0
"""Of run times: a logarithmic normal distribution, cut."""
TASKS = 25
"""Of an array of the first queue: a thousand times sbatch takes minutes."""
SCHEDULER = (
    "bf_continue,bf_interval=300,bf_resolution=600,bf_window=1440,bf_max_job_test=300,"
    "bf_max_time=600,bf_yield_interval=10000000,default_queue_depth=300,sched_interval=600,"
    "sched_min_interval=60000000,max_sched_time=100,batch_sched_delay=30,defer"
)
"""Of a busy site: the scheduler runs once a minute, backfill every five minutes, because a pass
takes 8 times as much of this clock. Limits of what it measures by the faster clock are raised as
in the lab."""
TUNED = "tune.out"
STAGE = """\
[ladder]
stage = "canary"
canary_salt = "day-{seed}"
canary_block_s = {block_s}
"""
BLOCKS = 4
"""Blocks of the canary in a part."""
NIGHT = 0.1
"""Of the time of a part, for `tune`."""


def big_lab(folder: Path, nodes: int, speed: float) -> FastLab:
    """A Slurm of so many nodes of eight GPUs, a slurmd each."""
    names = tuple(f"n{number:04d}" for number in range(1, nodes + 1))
    return FastLab(
        folder=folder, nodes=(NodeSpec(names, cpus=64, mem_mib=512_000, gpu_type="a100", gpus=8),),
        partitions=(PARTITION,), accounting=True, speed=speed,
        extra=("AccountingStorageTRES=gres/gpu",),
        settings={
            **slurm_settings(ARM), "SchedulerParameters": SCHEDULER,
            "SlurmdTimeout": "0",  # nobody asks a thousand nodes on two processors all the time
        },
    )  # fmt: skip


@dataclass(kw_only=True)
class World(FastDaemon):
    """What is running, and what has come of it.

    Attributes:
        rng: draws all that happens.
        seed: of it, and of the canary's coin.
        target: so many jobs wait.
        hours: of the part.
        queue: some ids of waiting jobs, as last seen.
        held, down: jobs and nodes with the minute in which that ends.
    """

    rng: random.Random
    seed: int
    target: int
    hours: float
    queue: list[str] = field(default_factory=list)
    held: dict[str, int] = field(default_factory=dict)
    down: dict[str, int] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    night: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Users, a full queue, and the daemon."""
        service = ("add", "user", SERVICE, "account=root", "adminlevel=operator")
        for words in (*accounting_commands(), service):
            self.lab.run("sacctmgr", "-i", *words)
        self.user = SERVICE
        self.reload(0.55)
        first = self.target + len(self.lab.node_names) // MEAN_NODES  # those that start at once
        self.submit(math.ceil(first / TASKS), TASKS)
        self.start()

    def reload(self, hysteresis: float) -> None:
        """Write the settings; a daemon that runs is told."""
        where = {"folder": str(self.home), "conf": str(self.lab.conf)}
        text = daemon_settings(ARM, **where, interval_s=MINUTE_S / self.lab.speed)
        limits = f"[limits]\nhysteresis = {hysteresis}\n"
        block_s = max(600.0, self.hours * HOUR_S / BLOCKS)
        stage = STAGE.format(seed=self.seed, block_s=block_s)
        self.settle(text.replace("[limits]\n", limits) + stage)

    def submit(self, count: int, tasks: int = 1) -> None:
        """So many ordinary jobs, or arrays of so many tasks; a shell of each user submits them.

        A task that is changed by itself gets a record of its own, as if submitted so.
        """
        lines: dict[str, list[str]] = {user: [] for user in SHARES}
        for _ in range(count):
            lines[self.rng.choice(list(SHARES))].append(self._sbatch(tasks))
        for user, own in lines.items():
            if not own:
                continue
            shell = (*as_user(user), "sh")
            said = self.lab.run(*shell, text="\n".join(own), check=False, timeout_s=600)
            made = [line for line in said.splitlines() if line.isdigit()]
            self.done["submitted"] += tasks * len(made)
            if tasks > 1:
                each = [f"{job}_{task}" for job in made for task in range(tasks)]
                words = "".join(f"update JobId={task} Comment=own\n" for task in each)
                self.lab.run("scontrol", text=words, check=False, timeout_s=600)

    def _sbatch(self, tasks: int) -> str:
        nodes = self.rng.choices(*zip(*NODES_OF, strict=True))[0]
        half = nodes == 1 and self.rng.random() < 0.1  # noqa: PLR2004 - a tenth
        hours = min(LONGEST_H, MEDIAN_H * math.exp(self.rng.gauss(0.0, SPREAD)))
        limit_min = min(24 * 60, math.ceil(60 * hours * self.rng.choice((1.2, 2, 4)) / 30) * 30)
        array = (f"--array=0-{tasks - 1}",) if tasks > 1 else ()
        return shlex.join((
            "sbatch", *array, "--parsable", "--output=/dev/null", "--chdir=/",
            f"--job-name=train{self.rng.randint(1, 40)}", f"--nodes={nodes}",
            f"--ntasks-per-node={32 if half else 64}", f"--gres=gpu:a100:{4 if half else 8}",
            f"--qos={self.rng.choice(['normal'] * 9 + ['high'])}", f"--time={limit_min}",
            f"--wrap=exec sleep {hours * HOUR_S / self.lab.speed:.3f}",
        ))  # fmt: skip

    def act(self, minute: int, waiting: int) -> None:
        """A minute of users and administrators. waiting: so many jobs do, as far as is known."""
        self.submit(max(0, min(4, self.target - waiting)))
        for job in due(self.held, minute):
            self._ask("release", job)
        for node in due(self.down, minute):
            self._ask("update", f"NodeName={node}", "State=RESUME")
        verb = self.rng.choices(("", "cancel", "hold", "limit", "fail"), (75, 9, 6, 6, 4))[0]
        if not verb or not self.queue:
            return
        job, until = self.rng.choice(self.queue), minute + self.rng.randint(30, 120)
        self.done[verb] += 1
        if verb == "cancel":
            self.lab.run("scancel", job, check=False)
        elif verb == "hold":
            self.held[job] = until
            self._ask("hold", job)
        elif verb == "limit":
            hours = self.rng.randint(1, 24)
            self._ask("update", f"JobId={job}", f"TimeLimit={hours}:00:00")
        else:
            node = self.rng.choice(self.lab.node_names)
            self.down[node] = until
            self._ask("update", f"NodeName={node}", "State=DOWN", "Reason=day")

    def _ask(self, *words: str) -> None:
        """scontrol; the job may have gone meanwhile."""
        self.lab.run("scontrol", *words, check=False)

    def restart(self) -> None:
        """slurmctld ends and comes back, as for an upgrade."""
        self.lab.stop_controller()
        time.sleep(MINUTE_S / self.lab.speed)
        self.lab.start_controller()

    def tune(self) -> None:
        """Begin the nightly search, as the unit does, on the record of this day."""
        minutes = NIGHT * self.hours * HOUR_S / MINUTE_S / self.lab.speed
        argv = (
            *self.prefix, "nice", "-n", "19", sys.executable, "-m", "rltuned", "tune", "--json",
            "--config", str(self.config), "--test-period", "4h",
            "--minutes", f"{max(0.1, minutes):g}",
        )  # fmt: skip
        cache = {"NUMBA_CACHE_DIR": str(self.home / "numba"), "HOME": str(self.home)}
        with (self.home / TUNED).open("wb") as out:
            self.night = subprocess.Popen(
                argv, stdout=out, stderr=subprocess.STDOUT,
                env={**os.environ, **self.environ(), **cache},
            )  # fmt: skip

    def compared(self) -> tuple[int, int, list[str]]:
        """Numbers of the journal beside those that Slurm shows: how many there are, how many of
        them are an earlier value (a write failed, or backfill put it back), and what neither
        explains.

        A job whose number the daemon changes meanwhile is not judged.
        """
        before = self._owned()
        shown = self.factors()
        after = self._owned()
        earlier, lost = 0, []
        for job, factor in shown.items():
            known = before.get(job)
            if known != after.get(job):
                continue
            earlier += known is not None and factor != known.value
            if factor if known is None else not known.explains(factor):
                lost.append(f"{job}: {factor}, journal: {known and known.value}")
        return len(after), earlier, lost

    def _owned(self) -> dict[int, Ownership]:
        with closing(Journal(self.home)) as journal:
            return {key[0]: own for key, own in journal.owned("rltlab").items()}


def due(book: dict[str, int], minute: int) -> list[str]:
    """Whose minute has come; they leave the book."""
    names = [name for name, until in book.items() if until <= minute]
    for name in names:
        del book[name]
    return names
