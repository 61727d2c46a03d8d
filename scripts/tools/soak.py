"""Does anything grow? The daemon for a long time, its memory, files, threads and journal watched.

    python -m scripts.tools.soak sim [--cycles 2000]     the built-in cluster, sped up
    python -m scripts.tools.soak week [--cycles 3000] [--before CHECKOUT] [--seed SEED]

`week` is a week in an hour on a real Slurm whose clock runs 201.6 times as fast: a cycle a second.
Users submit jobs of all kinds, hold, requeue and cancel them; entries of tests/corpus.py come at
random; the daemon and Slurm's daemons are stopped, killed and frozen. In the middle the daemon of
the checkout CHECKOUT is replaced by this one, with the same journal. In the last third only Slurm
is disturbed: there memory and times must not grow. At the end `rltuned restore` runs. Prints JSON;
docs/reliability.md holds what was measured. Exit code 1: something grew, or was lost.
"""

import argparse
import json
import math
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from scripts.studies.experiment_slurm import arms
from scripts.studies.experiment_slurm.lab import FastLab
from scripts.tools.fast_daemon import ARM, FastDaemon, status
from tests.accounting import as_user
from tests.corpus import FULL, corpus, put
from tests.e2e.process import Daemon

WARM, ENOUGH = 1 / 3, 10
"""The share of samples that is left out as warming up; the fewest for a line."""
BOUNDS = {"rss_kib": 4096.0, "fds": 4.0, "threads": 1.0, "children": 1.0}
"""The most that may come on top from the end of the warming up to the end, by the fitted line."""
SPEED = 7 * 86_400 / 3_000
QUEUE = 60
"""Ordinary jobs come while fewer wait."""
FAULT_EVERY = 60
"""Cycles between two faults, on average."""
CALM_SHARE = 2 / 3
"""From here on no fault of the daemon's own."""
SLOWER = 1.5
"""How much longer the median cycle of the last third's end may take than that of its beginning."""
SLURM_FAULTS = {
    "slurmctld restarted": ("stop_controller", "start_controller"),
    "slurmctld killed": ("kill_controller", "start_controller"),
    "slurmdbd away": ("stop_slurmdbd", "start_slurmdbd"),
    "munge away": ("stop_munge", "start_munge"),
}
"""Methods of the lab, three seconds apart: ten minutes of its clock."""
OWN_FAULTS = {
    "daemon restarted": (signal.SIGTERM,), "daemon killed": (signal.SIGKILL,),
    "daemon frozen": (signal.SIGSTOP, signal.SIGCONT), "daemon reloaded": (signal.SIGHUP,),
}  # fmt: skip
PAUSE_S = 3.0


@dataclass(frozen=True)
class Sample:
    """One look at the process."""

    at_s: float
    cycles: int
    rss_kib: int
    fds: int
    threads: int
    children: int
    journal_kib: int


def sample(pid: int, started: float, cycles: int) -> Sample:
    """Everything that may leak, from /proc."""
    known, journal, fds = status(pid), 0, list(Path(f"/proc/{pid}/fd").iterdir())
    for fd in fds:
        try:
            if "journal.sqlite" in str(fd.readlink()):
                journal += os.stat(fd).st_blocks // 2  # noqa: PTH116 - of the open file itself
        except FileNotFoundError:
            continue
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return Sample(
        time.monotonic() - started, cycles, int(known["VmRSS"].split()[0]), len(fds),
        int(known["Threads"]), len(children), journal,
    )  # fmt: skip


def growth(samples: list[Sample]) -> dict[str, float]:
    """By how much each figure rose along its fitted line after warming up."""
    late, grown = samples[int(len(samples) * WARM) :], {}
    at = np.array([s.at_s for s in late])
    for name in (*BOUNDS, "journal_kib"):
        values = np.array([float(getattr(s, name)) for s in late])
        slope = np.polyfit(at, values, 1)[0] if len(late) >= ENOUGH else 0.0
        grown[name] = round(float(slope * (at[-1] - at[0])), 2)
    return grown


def too_much(grown: dict[str, float]) -> list[str]:
    """What grew beyond its bound."""
    return [f"{name} grew by {grown[name]}" for name, most in BOUNDS.items() if grown[name] > most]


def on_sim(cycles: int) -> tuple[dict[str, Any], list[str]]:
    """The built-in cluster: an hour of it in a second, everything written."""
    with tempfile.TemporaryDirectory() as folder:
        args = (
            "--backend", "sim", "--stage", "full", "--no-show", "--port", "0", "--speed", "6000",
            "--interval", "60", "--cycles", str(cycles), "--policy", "f1",
        )  # fmt: skip
        started, samples = time.monotonic(), list[Sample]()
        with Daemon(Path(folder), *args) as daemon:
            while True:
                try:
                    count = int(daemon.metric("rltuned_cycles_total"))
                    samples.append(sample(daemon.pid, started, count))
                except (OSError, AssertionError):
                    break  # it has ended
                time.sleep(0.5)
            code = daemon.ends(600)
    warm, grown = samples[int(len(samples) * WARM)], growth(samples)
    figures = {"exit_code": code, "samples": len(samples), "warm": asdict(warm),
               "last": asdict(samples[-1]), "growth": grown}  # fmt: skip
    return figures, too_much(grown) + [f"ended with {code}"] * bool(code)


@dataclass(kw_only=True)
class Week(FastDaemon):
    """newest: the last ordinary job. site_factors: jobs whose site factor the corpus has set."""

    newest: int = 1
    site_factors: set[int] = field(default_factory=set)

    def submit(self) -> None:
        """An ordinary job of one of the users."""
        kind, gpus = self.rng.choice([("p100", 4), ("k80", 2), ("m40", 1), ("p100", 1)])
        argv = (
            *as_user(self.rng.choice(list(arms.SHARES))), "sbatch", "--parsable",
            "--output=/dev/null", "--chdir=/", "--job-name=plain", f"--gres=gpu:{kind}:{gpus}",
            f"--time={self.rng.randint(30, 2_880)}",
            f"--qos={self.rng.choice(['normal'] * 9 + ['high'])}",
            *self.rng.choice([(), (), (), ("--array=0-2",), ("--exclusive",)]),
            f"--wrap=exec sleep {self.rng.uniform(1, 20):.2f}",
        )  # fmt: skip
        self.done["submitted"] += 1
        self.newest = int(self.lab.run(*argv, timeout_s=120).split(";")[0])

    def act(self) -> None:
        """One second of users and administrators."""
        pending = self.waiting()
        many = len(self.waiting("--name=plain")) >= QUEUE
        for _ in range(0 if many else self.rng.randint(0, 3)):
            self.submit()
        what = self.rng.random()
        if what < 0.1:  # noqa: PLR2004 - a tenth of the seconds
            self._odd()
        elif what < 0.2 and pending:  # noqa: PLR2004
            verb = self.rng.choice(["hold", "release", "requeue", "cancel", "nice"])
            self.done[verb] += 1
            job = self.rng.choice(pending)
            nice = ("scontrol", "update", f"JobId={job}", f"Nice={self.rng.randint(0, 500)}")
            words = {"cancel": ("scancel", job), "nice": nice}.get(verb, ("scontrol", verb, job))
            self.ask(*words)

    def _odd(self) -> None:
        odd, jobs = self.rng.choice([e for e in corpus() if not e.undo]), list[int]()

        def plain() -> int:
            jobs.append(self.lab.sbatch(*FULL, "--job-name=odd"))
            return jobs[-1]

        taken = put(self.lab, odd, self.newest, plain)
        self.done["odd, taken" if taken else "odd, refused"] += 1
        if any("SiteFactor" in word for word in odd.words):
            self.site_factors.update(jobs)

    def clear_odd(self) -> bool:
        """Cancel what stays for ever: jobs held, far in the future, or never able to run. Whether
        none is left: scancel gives up soon on a fast clock, and its --state passes over jobs that
        are held after a requeue.
        """
        left = self.waiting("--name=odd,wrap")
        if left:
            self.ask("scancel", *left)
        return not left

    def fault(self, *, calm: bool) -> None:
        """Disturb Slurm or, unless calm, the daemon."""
        name = self.rng.choice([*SLURM_FAULTS, *([] if calm else OWN_FAULTS)])
        self.done[name] += 1
        for method in SLURM_FAULTS.get(name, ()):
            getattr(self.lab, method)()
            time.sleep(PAUSE_S)
        for number in OWN_FAULTS.get(name, ()):
            if number in {signal.SIGTERM, signal.SIGKILL}:
                self.stop(number)
                self.start()
            else:
                self.running.signal(number)
                time.sleep(PAUSE_S)

    def play(self, cycles: int) -> list[Sample]:
        """So many cycles; samples of the process that ran the last third."""
        self.start()
        samples, began = list[Sample](), time.monotonic()
        while (count := self.cycles + self.seen()) < cycles:
            if self.before is not None and count >= cycles // 2:
                self.stop()
                self.before = None
                self.start()
            calm = count >= cycles * CALM_SHARE
            if self.rng.random() < 1 / FAULT_EVERY:
                self.fault(calm=calm)
            if count and self.rng.random() < 1 / (2 * FAULT_EVERY):
                self.clear_odd()
            self.act()
            if calm:
                samples.append(sample(self.running.pid, began, count))
            time.sleep(0.5)
        return samples

    def judged(self, samples: list[Sample]) -> tuple[dict[str, Any], list[str]]:
        """Figures, and what is wrong with them."""
        rows = self.running.log().splitlines()
        events = [json.loads(row) for row in rows if '"event": "cycle"' in row]
        names = ("observe_s", "decide_s", "journal_s", "apply_s")
        took_s = [sum(float(event.get(name, 0.0)) for name in names) for event in events
                  if event["pending"] >= QUEUE // 2]  # fmt: skip
        third, grown = len(took_s) // 3, growth(samples)
        early_s, late_s = (
            float(np.median(part)) if third else math.nan
            for part in (took_s[:third], took_s[-third:])
        )
        wrong = too_much(grown)
        if late_s > SLOWER * early_s:
            wrong.append(f"cycles of {early_s:.3f} s became cycles of {late_s:.3f} s")
        listed = self.lab.run(
            "sacct", "-X", "-n", "-a", "-S2020-01-01", "-E2037-12-31", "--name=plain",
            "-o", "state%20", timeout_s=300,
        )  # fmt: skip
        states = Counter(line.split()[0] for line in listed.splitlines())  # "CANCELLED by 0"
        bad = {s: states[s] for s in ("FAILED", "TIMEOUT", "DEADLINE", "BOOT_FAIL") if states[s]}
        wrong += [f"plain jobs that did not end well: {bad}"] if bad else []
        figures = {
            "cycles": self.cycles + self.seen(), "speed": self.lab.speed, "starts": self.starts,
            "skipped": Counter(event["reason"] for event in self.events("cycle_skipped")),
            "happened": dict(self.done), "plain jobs": dict(states), "growth": grown,
            "median_cycle_s": [round(early_s, 4), round(late_s, 4)], "last": asdict(samples[-1]),
        }  # fmt: skip
        return figures, wrong


def on_slurm(cycles: int, before: Path | None, seed: int) -> tuple[dict[str, Any], list[str]]:
    """A week; what was not restored is wrong too."""
    with tempfile.TemporaryDirectory(prefix="rltuned-week-") as place:
        Path(place).chmod(0o755)  # the database runs as another user
        home = Path(place) / "rltuned"
        home.mkdir(mode=0o700)
        lab = FastLab(
            folder=Path(place) / "slurm", partitions=(arms.PARTITION,), accounting=True,
            speed=SPEED, settings=arms.slurm_settings(ARM),
        )  # fmt: skip
        with lab:
            for words in arms.accounting_commands():
                lab.run("sacctmgr", "-i", *words)
            os.environ["SLURM_CONF"] = str(lab.conf)
            rng = random.Random(seed)  # noqa: S311 - a draw, no secret
            week = Week(lab=lab, home=home, before=before, options=("--stage", "full"), rng=rng)
            week.settle(1.0)
            figures, wrong = week.judged(week.play(cycles))
            week.stop()
            lab.wait_for(week.clear_odd, "odd jobs are cancelled")
            return figures, wrong + week.restored(week.waiting(), week.site_factors)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.tools.soak", description=__doc__)
    parser.add_argument("world", choices=("sim", "week"))
    parser.add_argument("--cycles", type=int)
    parser.add_argument("--before", type=Path, help="checkout whose daemon runs the first half")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.world == "sim":
        figures, wrong = on_sim(given.cycles or 2_000)
    else:
        figures, wrong = on_slurm(given.cycles or 3_000, given.before, given.seed)
    print(json.dumps({**figures, "wrong": wrong}, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
