"""A site of honest users in a memory of run times, and what one user adds to it."""

import io
import math
from collections.abc import Iterable
from copy import deepcopy
from itertools import count

import numpy as np

from rltuned.core.memory import RunTimeMemory
from rltuned.domain.jobs import JobRun, RunningJob
from rltuned.domain.kinds import Kinds
from rltuned.domain.snapshot import RunTime
from rltuned.domain.units import JobId, UnixTime
from rltuned.policies.predictor import load_predictor, replay
from rltuned.policies.shelf import shipped_predictor
from tests.builders import job, request

HOUR, DAY = 3_600.0, 86_400.0
START = 1_700_000_000.0


class Scene:
    """The clock goes on with every job that has ended; see `ends`."""

    def __init__(self, most: int = 20_000) -> None:
        self.memory = RunTimeMemory(load_predictor(shipped_predictor()).logits, most=most)
        self.now, self._ids = START, count(1)

    def ends(
        self, user: str, runs_s: Iterable[float], limit_s: float | None, *, gap_s: float = 30.0,
        gpus: int = 1, account: str = "lab", name: str = "train",
    ) -> None:  # fmt: skip
        """Jobs of a user that came, started and ended one after the other."""
        past = []
        for run_s in runs_s:
            number, at = next(self._ids), self.now
            self.now += gap_s
            ran = RunningJob(
                job_id=JobId(number),
                started_at=UnixTime(at + 1.0),
                request=request(gpus=gpus, time_limit_s=limit_s),
                shares=(),
                partition="gpu",
                user=user,
                account=account,
                submitted_at=UnixTime(at),
                kinds=Kinds(name=sum(name.encode())),
            )
            past.append(JobRun(ran, UnixTime(at + 1.0 + run_s)))
        replay(self.memory, past)

    def told(
        self, user: str, limit_s: float | None, *, gpus: int = 1, account: str = "lab",
        name: str = "train",
    ) -> RunTime:  # fmt: skip
        """What is predicted of a job of a user that comes now; it is not remembered."""
        one = job(
            next(self._ids), user=user, account=account, gpus=gpus, time_limit_s=limit_s,
            kinds=Kinds(name=sum(name.encode())), submitted_at=self.now,
        )  # fmt: skip
        again = deepcopy(self.memory)
        again.submit([one])
        return again.predicted([one])[one.job_id]

    def comes_and_goes(self, user: str, count: int) -> None:
        """Submissions that are cancelled at once, each with a name of its own."""
        for _ in range(count):
            number = next(self._ids)
            one = job(number, user=user, kinds=Kinds(name=number), submitted_at=self.now)
            self.now += 0.05
            self.memory.submit([one])
            self.memory.keep(set())

    def restored(self) -> "Scene":
        """The same with a memory that is read from what this one writes."""
        again = Scene(len(self.memory) + 100)
        again.memory.restore(dict(np.load(io.BytesIO(self.memory.to_bytes()))))
        again.now = self.now
        return again


def honest(scene: Scene, users: int = 24, jobs: int = 40, seed: int = 1) -> None:
    """Users of three accounts whose limits tell little: minutes to a day of limits of a day."""
    draw = np.random.default_rng(seed)
    for _ in range(jobs):
        for number in range(users):
            limit_s = HOUR * float(draw.choice([4, 12, 24, 48]))
            run_s = min(limit_s, float(draw.lognormal(8.0 + 0.2 * (number % 3), 1.5)))
            account = ("lab", "bio", "ai")[number % 3]
            scene.ends(f"u{number}", [run_s], limit_s, account=account, gpus=1 + number % 4)


def honest_limits(scene: Scene, users: int = 24, jobs: int = 40) -> None:
    """Users whose limits tell run times: one to two and a half times as long."""
    draw = np.random.default_rng(1)
    for _ in range(jobs):
        for number in range(users):
            run_s = float(draw.lognormal(8.0, 1.5))
            limit_s = 60.0 * math.ceil(run_s * float(draw.uniform(1.0, 2.5)) / 60.0)
            scene.ends(f"u{number}", [run_s], limit_s, gpus=1 + number % 4)
