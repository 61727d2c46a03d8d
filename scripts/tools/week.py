"""A week in an hour: the daemon on a real Slurm whose clock runs 201.6 times as fast (`make soak`).

    python -m scripts.tools.week [--cycles 3000] [--before CHECKOUT] [--seed SEED]

A cycle a second is then a week in 3,000 cycles; slurmctld counts ages as often as it can, and its
scheduler's times are those of scripts/studies/experiment_slurm/lab. Users submit jobs of all
kinds, hold, requeue and cancel them; entries of tests/corpus.py come at random; the daemon and
Slurm's daemons are stopped, killed and frozen. In the middle the daemon of the checkout CHECKOUT is
replaced by this one, with the same journal. In the last third only Slurm is disturbed: there memory
and times must not grow. At the end `rltuned restore` runs. Exit code 1: something was lost or grew.
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

import numpy as np

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
from scripts.tools.soak import BOUNDS, Sample, growth, sample
from tests import accounting
from tests.corpus import FULL, corpus, put

SPEED = 7 * 86_400 / 3_000
QUEUE = 60
"""Ordinary jobs come while fewer wait."""
FAULT_EVERY = 60
"""Cycles between two faults, on average."""
CALM_SHARE = 2 / 3
"""From here on no fault of the daemon's own."""
SLOWER = 1.5
"""How much longer the median cycle of the last third's end may take than that of its beginning."""
ARM = ARMS["site"]
"""Of the experiment: its weights, QOS and shares, and `delay` as site factors."""
SLURM_FAULTS = {
    "slurmctld restarted": ("stop_controller", "start_controller"),
    "slurmctld killed": ("kill_controller", "start_controller"),
    "slurmdbd away": ("stop_slurmdbd", "start_slurmdbd"),
    "munge away": ("stop_munge", "start_munge"),
}
"""Methods of the lab, three seconds apart: ten minutes of its clock."""
OWN_FAULTS = {
    "daemon restarted": (signal.SIGTERM,),
    "daemon killed": (signal.SIGKILL,),
    "daemon frozen": (signal.SIGSTOP, signal.SIGCONT),
    "daemon reloaded": (signal.SIGHUP,),
}
PAUSE_S = 3.0
ENDING = {signal.SIGTERM, signal.SIGKILL}


@dataclass(kw_only=True)
class Week(FastDaemon):
    """What is running, and what has come of it.

    Attributes:
        rng: draws all that happens.
        newest: the last ordinary job.
        site_factors: jobs whose site factor the corpus has set: theirs to keep.
    """

    rng: random.Random
    newest: int = 1
    done: Counter[str] = field(default_factory=Counter)
    site_factors: set[int] = field(default_factory=set)

    def submit(self) -> None:
        """An ordinary job of one of the users."""
        kind, gpus = self.rng.choice([("p100", 4), ("k80", 2), ("m40", 1), ("p100", 1)])
        options = (
            f"--gres=gpu:{kind}:{gpus}", f"--time={self.rng.randint(30, 2_880)}",
            f"--qos={self.rng.choice(['normal'] * 9 + ['high'])}", "--job-name=plain",
            *self.rng.choice([(), (), (), ("--array=0-2",), ("--exclusive",)]),
        )  # fmt: skip
        argv = (
            *accounting.as_user(self.rng.choice(list(SHARES))), "sbatch", "--parsable",
            "--output=/dev/null", "--chdir=/", *options,
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
            words = {
                "cancel": ("scancel", job),
                "nice": ("scontrol", "update", f"JobId={job}", f"Nice={self.rng.randint(0, 500)}"),
            }.get(verb, ("scontrol", verb, job))
            self.lab.run(*words, check=False, timeout_s=120)

    def _odd(self) -> None:
        odd = self.rng.choice([e for e in corpus() if not e.undo])
        jobs: list[int] = []

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
            self.lab.run("scancel", *left, check=False, timeout_s=120)
        return not left

    def fault(self, *, calm: bool) -> None:
        """Disturb Slurm or, unless calm, the daemon."""
        name = self.rng.choice([*SLURM_FAULTS, *([] if calm else OWN_FAULTS)])
        self.done[name] += 1
        if name in SLURM_FAULTS:
            first, then = SLURM_FAULTS[name]
            getattr(self.lab, first)()
            time.sleep(PAUSE_S)
            getattr(self.lab, then)()
            return
        for number in OWN_FAULTS[name]:
            if number in ENDING:
                self.stop(number)
                self.start()
            else:
                self.running.signal(number)
                time.sleep(PAUSE_S)

    def cycle_times_s(self) -> list[float]:
        """What each cycle of the last start took whose queue was long, in seconds."""
        rows = self.running.log().splitlines()
        every = (json.loads(row) for row in rows if '"event": "cycle"' in row)
        events = [event for event in every if event["pending"] >= QUEUE // 2]
        names = ("observe_s", "decide_s", "journal_s", "apply_s")
        return [sum(float(e.get(name, 0.0)) for name in names) for e in events]


def play(week: Week, cycles: int) -> list[Sample]:
    """So many cycles; samples of the process that ran the last third."""
    week.start()
    samples: list[Sample] = []
    began = time.monotonic()
    while (count := week.cycles + week.seen()) < cycles:
        if week.before is not None and count >= cycles // 2:
            week.stop()
            week.before = None
            week.start()
        calm = count >= cycles * CALM_SHARE
        if week.rng.random() < 1 / FAULT_EVERY:
            week.fault(calm=calm)
        if count and week.rng.random() < 1 / (2 * FAULT_EVERY):
            week.clear_odd()
        week.act()
        if calm:
            samples.append(sample(week.running.pid, began, count))
        time.sleep(0.5)
    return samples


def restored(week: Week) -> list[str]:
    """Give everything back; what is not as Slurm would have it, in words."""
    week.stop()
    week.lab.wait_for(week.clear_odd, "odd jobs are cancelled")
    return week.restored(week.waiting(), week.site_factors)


def judged(week: Week, samples: list[Sample]) -> tuple[dict[str, object], list[str]]:
    """Figures, and what is wrong with them."""
    took_s = week.cycle_times_s()
    third = len(took_s) // 3
    early_s, late_s = (
        float(np.median(part)) if third else math.nan for part in (took_s[:third], took_s[-third:])
    )
    grown = growth(samples)
    wrong = [f"{name} grew by {grown[name]}" for name, most in BOUNDS.items() if grown[name] > most]
    if late_s > SLOWER * early_s:
        wrong.append(f"cycles of {early_s:.3f} s became cycles of {late_s:.3f} s")
    listed = week.lab.run(
        "sacct", "-X", "-n", "-a", "-S2020-01-01", "-E2037-12-31", "--name=plain",
        "-o", "state%20", timeout_s=300,
    )  # fmt: skip
    states = Counter(line.split()[0] for line in listed.splitlines())  # "CANCELLED by 0"
    lost = {s: n for s, n in states.items() if s in {"FAILED", "TIMEOUT", "DEADLINE", "BOOT_FAIL"}}
    wrong += [f"plain jobs that did not end well: {lost}"] if lost else []
    figures = {
        "cycles": week.cycles + week.seen(), "speed": week.lab.speed, "starts": week.starts,
        "skipped": Counter(event["reason"] for event in week.events("cycle_skipped")),
        "happened": dict(week.done), "plain jobs": dict(states),
        "growth": grown, "median_cycle_s": [round(early_s, 4), round(late_s, 4)],
        "last": asdict(samples[-1]),
    }  # fmt: skip
    return figures, wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.tools.week", description=__doc__)
    parser.add_argument("--cycles", type=int, default=3_000)
    parser.add_argument("--before", type=Path, help="checkout whose daemon runs the first half")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rltuned-week-") as place:
        Path(place).chmod(0o755)  # the database runs as another user
        home = Path(place) / "rltuned"
        home.mkdir(mode=0o700)
        lab = FastLab(
            folder=Path(place) / "slurm", partitions=(PARTITION,), accounting=True, speed=SPEED,
            settings=slurm_settings(ARM),
        )  # fmt: skip
        with lab:
            for words in accounting_commands():
                lab.run("sacctmgr", "-i", *words)
            os.environ["SLURM_CONF"] = str(lab.conf)
            week = Week(
                lab=lab, home=home, before=given.before, options=("--stage", "full"),
                rng=random.Random(given.seed),  # noqa: S311 - a draw, no secret
            )  # fmt: skip
            where = {"folder": str(home), "conf": str(lab.conf)}
            week.settle(daemon_settings(ARM, **where, interval_s=1.0))
            samples = play(week, given.cycles)
            figures, wrong = judged(week, samples)
            print(json.dumps(figures, indent=1), flush=True)
            wrong += restored(week)
    print(json.dumps({"wrong": wrong}, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
