"""How well does the simulator reproduce this site? Simulated against real waits, stated first."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rltuned.lab.backtest.past import Past
from rltuned.lab.compare import Change, FloatArray, change_of_mean, stretches_of
from rltuned.lab.replay.play import Played
from rltuned.sim.limits import spearman

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
