"""One order against simulated multifactor: for whom, by how much, and how much was moved."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rltuned.lab.backtest.past import Past
from rltuned.lab.compare import (
    Change,
    FloatArray,
    Stretches,
    change_of_longest,
    change_of_mean,
    change_of_quantile,
    stretches_of,
)
from rltuned.lab.replay.metrics import slowdown
from rltuned.lab.replay.play import Played
from rltuned.sim.limits import spearman

# How well does the simulator reproduce this site? Simulated against real waits, stated first.


NEAR_S: Final = 60.0
"""A wait is met when it is off by no more than this, or by no more than NEAR of it."""
NEAR: Final = 0.25
CLOSE, CLOSE_RANK = 0.20, 0.7
ROUGH, ROUGH_RANK = 0.50, 0.4
"""Bounds of the verdict: error of the mean, and rank correlation."""
FEW: Final = 5


@dataclass(frozen=True, slots=True)
class Match:
    """Real and simulated waits of a set of jobs, seconds.

    mean: base = real, own = simulated. rank: Spearman's correlation, None where one side is
    constant. met: share of the jobs whose wait is met. off_s: mean of the absolute differences.
    """

    jobs: int
    mean: Change
    median_s: tuple[float, float]
    p95_s: tuple[float, float]
    rank: float | None
    met: float
    off_s: float

    @property
    def verdict(self) -> str:
        """`close`, `rough` or `poor`."""
        error = 0.0 if self.exact else abs(self.mean.change) if self.mean.change is not None else 9
        rank = 1.0 if self.exact else self.rank if self.rank is not None else 0.0
        if error <= CLOSE and rank >= CLOSE_RANK:
            return "close"
        return "rough" if error <= ROUGH and rank >= ROUGH_RANK else "poor"

    @property
    def exact(self) -> bool:
        """Whether every wait came out to the second."""
        return self.off_s < 1.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """All scored jobs of the record, those after the split, and by partition.

    unit: of chance. days: (day, real mean, simulated mean, jobs) over the record.
    """

    whole: Match
    later: Match
    partitions: dict[str, Match]
    unit: str
    days: tuple[tuple[float, float, float, int], ...]


def calibrate(past: Past, played: Played) -> Calibration:
    """Compare what Slurm did with what the simulator does under the same weights."""
    arrived = past.arrived_s
    simulated = played.start_s - arrived
    names = np.array([j.partition for j in past.jobs])
    stretches = stretches_of(arrived[past.scored])
    columns = [values[past.scored] for values in (arrived, past.wait_s, simulated)]
    days = []
    for number in range(stretches.count):
        came, real, ours = (column[stretches.of == number] for column in columns)
        days.append((float(came.min()), float(real.mean()), float(ours.mean()), len(came)))
    return Calibration(
        whole=_match(past, simulated, arrived, past.scored),
        later=_match(past, simulated, arrived, past.later),
        partitions={
            str(name): _match(past, simulated, arrived, past.scored & (names == name))
            for name in np.unique(names[past.scored])
        },
        unit=stretches.words,
        days=tuple(days),
    )


def _match(
    past: Past, simulated: FloatArray, arrived: FloatArray, mask: NDArray[np.bool_]
) -> Match:
    real, ours = past.wait_s[mask], simulated[mask]
    off = np.abs(ours - real)
    rank = spearman(real, ours) if len(real) >= FEW else float("nan")
    return Match(
        jobs=len(real),
        mean=change_of_mean(real, ours, stretches_of(arrived[mask])),
        median_s=(float(np.median(real)), float(np.median(ours))),
        p95_s=(float(np.quantile(real, 0.95)), float(np.quantile(ours, 0.95))),
        rank=None if np.isnan(rank) else rank,
        met=float((off <= np.maximum(NEAR_S, NEAR * real)).mean()),
        off_s=float(off.mean()),
    )


TOLERANCE_S: Final = 60.0
"""A job is better or worse off when its wait differs by more than this; one cycle."""
FEWEST_JOBS: Final = 5
"""Of a user, to be counted among those better or worse off."""
WORST: Final = 10
LARGEST_GROUPS: Final = 12
HALF: Final = 0.5
HOUR_S: Final = 3_600.0
Pair = tuple[FloatArray, FloatArray]
"""Of the same jobs: under multifactor, and under the order in question."""


@dataclass(frozen=True, slots=True)
class Group:
    """Some of the jobs: how their mean wait and bounded slowdown change. real_s: mean real wait."""

    jobs: int
    real_s: float
    wait: Change
    bsld: Change


@dataclass(frozen=True, slots=True)
class Person:
    """A user: jobs, and mean waits in seconds under multifactor and under this order."""

    name: str
    jobs: int
    base_s: float
    own_s: float
    longest_s: float


@dataclass(frozen=True, slots=True)
class Moved:
    """changes per hour of the later part: mean and largest of an hour; share of the jobs whose
    priority was ever changed; mean and largest shift of ranks in cycles that changed something.
    """

    cycles: int
    changes: int
    per_hour: float
    hour_max: float
    touched: float
    shift: float
    furthest: int
    hours: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class OrderOutcome:
    """What one order would have done.

    better, worse: shares of the jobs; users_*: numbers of users with enough jobs. differences:
    quantiles (0, 1, 5, 25, 50, 75, 95, 99, 100%) of own - base wait per job. people: mean
    differences of the users with enough jobs, sorted.
    """

    metrics: dict[str, Change]
    groups: dict[str, dict[str, Group]]
    better: float
    worse: float
    users_better: int
    users_worse: int
    users: int
    worst: tuple[Person, ...]
    differences: tuple[float, ...]
    people: tuple[float, ...]
    moved: Moved
    unit: str


QUANTILES: Final = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)


def outcome_of(past: Past, base: Played, own: Played, users: Sequence[str]) -> OrderOutcome:
    """Compare two plays on the jobs that came after the split.

    users: of every job, as they are shown.
    """
    mask = past.later
    arrived = past.arrived_s[mask]
    stretches = stretches_of(arrived)
    waits = base.start_s[mask] - arrived, own.start_s[mask] - arrived
    duration_s = np.array([j.duration_s for j in past.jobs])[mask]
    slow = slowdown(waits[0], duration_s), slowdown(waits[1], duration_s)
    jct = base.end_s[mask] - arrived, own.end_s[mask] - arrived
    names = np.array(users, dtype=object)[mask]
    difference = waits[1] - waits[0]
    people = _people(names, waits)
    gaps = [p.own_s - p.base_s for p in people]
    return OrderOutcome(
        metrics={
            "wait_s": change_of_mean(*waits, stretches),
            "wait_p50_s": change_of_quantile(*waits, 0.5, stretches),
            "wait_p95_s": change_of_quantile(*waits, 0.95, stretches),
            "wait_max_s": change_of_longest(*waits),
            "jct_s": change_of_mean(*jct, stretches),
            "bsld": change_of_mean(*slow, stretches),
        },
        groups={
            kind: _groups(labels[mask], past.wait_s[mask], waits, slow, stretches)
            for kind, labels in labels_of(past).items()
        },
        better=float((difference < -TOLERANCE_S).mean()),
        worse=float((difference > TOLERANCE_S).mean()),
        users_better=sum(g < -TOLERANCE_S for g in gaps),
        users_worse=sum(g > TOLERANCE_S for g in gaps),
        users=len(people),
        worst=tuple(sorted(people, key=lambda p: p.base_s - p.own_s)[:WORST]),
        differences=tuple(np.quantile(difference, QUANTILES).tolist()),
        people=tuple(sorted(gaps)),
        moved=_moved(past, own, int(mask.sum())),
        unit=stretches.words,
    )


def labels_of(past: Past) -> dict[str, NDArray[np.object_]]:
    """Kind of group -> the group of every job."""
    jobs = past.jobs
    return {
        "partition": np.array([j.partition for j in jobs], dtype=object),
        "GPUs": np.array([size_class(j.gpus) for j in jobs], dtype=object),
        "account": np.array([j.account or "(none)" for j in jobs], dtype=object),
        "users": _activity(past),
    }


def size_class(gpus: int) -> str:
    """`0`, `1`, `2-3`, `4-7`, `8-15` ..."""
    if gpus <= 1:
        return str(gpus)
    low = 1 << (gpus.bit_length() - 1)
    return f"{low}-{2 * low - 1}"


def _activity(past: Past) -> NDArray[np.object_]:
    """Users by the GPU time of what had ended by the split: those who held half of it, and others.

    Who had no job until then is new.
    """
    held: dict[str, float] = {}
    for job in past.known()[0]:
        held[job.user] = held.get(job.user, 0.0) + job.duration_s * max(1, job.gpus)
    total, so_far = sum(held.values()), 0.0
    heavy = set()
    for user in sorted(held, key=lambda u: -held[u]):
        if so_far >= HALF * total:
            break
        heavy.add(user)
        so_far += held[user]
    kinds = [
        "held half of the GPU time" if j.user in heavy else "others" if j.user in held else "new"
        for j in past.jobs
    ]
    return np.array(kinds, dtype=object)


def _groups(
    labels: NDArray[np.object_],
    real_s: FloatArray,
    waits: Pair,
    slow: Pair,
    stretches: Stretches,
) -> dict[str, Group]:
    names, counts = np.unique(labels.astype(str), return_counts=True)
    largest = [str(names[i]) for i in np.argsort(-counts, kind="stable")[:LARGEST_GROUPS]]
    if all(name.partition("-")[0].isdigit() for name in largest):
        largest.sort(key=lambda name: int(name.partition("-")[0]))
    found = {}
    for name in largest:
        some = labels == name
        part = stretches.part(some)
        found[name] = Group(
            jobs=int(some.sum()),
            real_s=float(real_s[some].mean()),
            wait=change_of_mean(waits[0][some], waits[1][some], part),
            bsld=change_of_mean(slow[0][some], slow[1][some], part),
        )
    return found


def _people(names: NDArray[np.object_], waits: Pair) -> list[Person]:
    found = []
    for name in np.unique(names.astype(str)):
        mine = names == name
        if mine.sum() >= FEWEST_JOBS:
            base, own = (w[mine] for w in waits)
            found.append(
                Person(str(name), len(own), float(base.mean()), float(own.mean()), float(own.max()))
            )
    return found


def _moved(past: Past, own: Played, jobs: int) -> Moved:
    cycles = np.array(own.cycles, dtype=np.float64).reshape(-1, 5)
    at_s, _, changes, shift, furthest = cycles.T
    last_s = max([float(past.arrived_s[past.later].max()), *at_s[-1:]])
    span_s = max(HOUR_S, last_s - past.split_s)
    hours = np.zeros(max(1, int(np.ceil(span_s / HOUR_S))))
    hour = np.clip((at_s - past.split_s) // HOUR_S, 0, len(hours) - 1).astype(int)
    np.add.at(hours, hour, changes)
    busy = changes > 0
    return Moved(
        cycles=len(cycles),
        changes=int(changes.sum()),
        per_hour=float(changes.sum()) / (span_s / HOUR_S),
        hour_max=float(hours.max()),
        touched=int((own.writes[past.later] > 0).sum()) / jobs,
        shift=float(shift[busy].mean()) if busy.any() else 0.0,
        furthest=int(furthest[busy].max(initial=0)),
        hours=tuple(hours.tolist()),
    )
