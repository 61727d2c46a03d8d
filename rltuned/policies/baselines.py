"""The classic rules, as pure functions of what a scheduler knows.

Each rule has two forms. The score is its pure order, higher = sooner, as published. In the daemon
it asks for a delay of two parts (core/order): own seconds, and a place in the queue, from 0 to 1,
for the share of the backlog. The place is by the own seconds, that of `delay` by expected areas.
w: seconds waited; r: time limit (never the run time); n: GPUs; s: submit time; L, m, p, e: length,
size, plan and expected run time (core/backlog).

| name        | score                        | own seconds          | source                    |
|-------------|------------------------------|----------------------|---------------------------|
| fcfs        | w                            | 0, place 0           |                           |
| sjf         | -r                           | L                    |                           |
| saf         | -r max(n, 1)                 | L m                  | smallest area first       |
| smallest    | -max(n, 1)                   | 1 h x m              |                           |
| delay       | -p sqrt(m)                   | p sqrt(m), by e m    | docs/adr/0011             |
| qssf        | -e m                         | e m                  | Hu et al., SC 2021        |
| fit_first   | 1 if it fits now             | 0 if so, else a year |                           |
| wfp3        | (w/r)^3 n                    | L / m^(1/3)          | Tang et al., Cluster 2009 |
| unicep      | w / (log2(n+1) r)            | L log2(m+1)          | Tang et al., with a floor |
| f1          | -(log10(r) n + 870 log10(s)) | 6860 s x log10(L) m  | Carastan-Santos, SC 2017  |
| multifactor | Slurm's own priority         | 0, place 0           | slurm.conf(5)             |

The own seconds of wfp3 and unicep are the waits at which two jobs have equal scores, up to a
factor; those of f1 are the slope of its logarithm now.

Traps in published code: w computed from an unset start time inverts wfp3 and unicep, and
log2(1) = 0 divides unicep by nothing. f1 depends on where time zero lies, since s is absolute: the
same queue shifted in time ranks differently. Here time zero lies `F1_EPOCH_S` before now, which
makes the rule invariant to shifts.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from rltuned.core.features import EXPECTED, PLAN, UNLIMITED_AS_S, FloatArray, StateMatrix
from rltuned.core.order import Wish

F1_EPOCH_S: Final = 30 * 86_400.0
"""f1's time zero lies this long before now; older jobs count as submitted then."""
_F1_SLOPE_S: Final = F1_EPOCH_S * math.log(10.0) / 870.0
_SMALLEST_S: Final = 3_600.0

Rule = Callable[[StateMatrix], FloatArray]


@dataclass(frozen=True, slots=True)
class Baseline:
    """A rule with its name. own: its seconds; key: what its places are by, None = there are none.
    static: neither changes while a job waits, but for what is predicted.
    """

    name: str
    rule: Rule
    own: Rule
    key: Rule | None
    static: bool = True

    @property
    def trust(self) -> None:
        """There is nothing that it corrects."""

    def score(self, matrix: StateMatrix) -> FloatArray:
        """(n,) higher = sooner."""
        return self.rule(matrix)

    def wish(self, matrix: StateMatrix) -> Wish:
        """Its seconds, and places by its key."""
        place = matrix.pools.places(self.key(matrix)) if self.key else np.zeros(len(matrix))
        return Wish(self.own(matrix), place)


def fcfs(matrix: StateMatrix) -> FloatArray:
    """First come, first served."""
    return -matrix.submit_s


def sjf(matrix: StateMatrix) -> FloatArray:
    """Shortest job first, by time limit."""
    return -matrix.limit_s


def saf(matrix: StateMatrix) -> FloatArray:
    """Smallest area (GPUs times time limit) first; a job without GPUs counts as one."""
    return -matrix.limit_s * np.maximum(matrix.gpus, 1.0)


def smallest(matrix: StateMatrix) -> FloatArray:
    """Fewest GPUs first; a job without GPUs counts as one."""
    return -np.maximum(matrix.gpus, 1.0)


def delay(matrix: StateMatrix) -> FloatArray:
    """Short and small jobs first, long ones more than wide ones."""
    return -_delayed(matrix)


def qssf(matrix: StateMatrix) -> FloatArray:
    """The shortest predicted service, GPU time, first."""
    return -_served(matrix)


def fit_first(matrix: StateMatrix) -> FloatArray:
    """What could start now first."""
    return matrix.column("can_schedule_now").astype(np.float64)


def wfp3(matrix: StateMatrix) -> FloatArray:
    """Wait over limit, cubed, times GPUs: favours old, short and large jobs."""
    return (matrix.wait_s / matrix.limit_s) ** 3 * np.maximum(matrix.gpus, 1.0)


def unicep(matrix: StateMatrix) -> FloatArray:
    """Wait over limit and the logarithm of the size: favours old, short and small jobs."""
    size = np.log2(np.maximum(matrix.gpus, 1.0) + 1.0)
    return matrix.wait_s / (size * matrix.limit_s)


def f1(matrix: StateMatrix) -> FloatArray:
    """The first of the four rules that were fitted to simulations of parallel jobs."""
    since_s = np.maximum(F1_EPOCH_S - matrix.wait_s, 1.0)
    size = np.log10(np.maximum(matrix.limit_s, 1.0)) * np.maximum(matrix.gpus, 1.0)
    return -(size + 870.0 * np.log10(since_s))


def multifactor(matrix: StateMatrix) -> FloatArray:
    """The priority Slurm itself has given: leaves every queue as it is."""
    return np.array(
        [j.priority if j.natural_priority is None else j.natural_priority for j in matrix.jobs],
        dtype=np.float64,
    )


def _no_delay(matrix: StateMatrix) -> FloatArray:
    return np.zeros(len(matrix.gpus))


def _delayed(matrix: StateMatrix) -> FloatArray:
    plan_s = matrix.run_s[:, PLAN]
    found: FloatArray = np.where(np.isnan(plan_s), matrix.length_s, plan_s)
    return found * np.sqrt(matrix.size)


def _served(matrix: StateMatrix) -> FloatArray:
    mean_s = matrix.run_s[:, EXPECTED]
    found: FloatArray = np.where(np.isnan(mean_s), matrix.length_s, mean_s)
    return found * matrix.size


def _f1_own(matrix: StateMatrix) -> FloatArray:
    return _F1_SLOPE_S * np.log10(np.maximum(matrix.length_s, 10.0)) * matrix.size


def _unfitting(matrix: StateMatrix) -> FloatArray:
    return np.where(fit_first(matrix) > 0, 0.0, UNLIMITED_AS_S)


def _by_own(rule: Rule, own: Rule) -> Baseline:
    return Baseline(rule.__name__, rule, own, own)


_ALL: Final = (
    Baseline("fcfs", fcfs, _no_delay, None),
    _by_own(sjf, lambda m: m.length_s),
    _by_own(saf, lambda m: m.length_s * m.size),
    _by_own(smallest, lambda m: _SMALLEST_S * m.size),
    Baseline("delay", delay, _delayed, lambda m: m.area),
    _by_own(qssf, _served),
    Baseline("fit_first", fit_first, _unfitting, _unfitting, static=False),
    _by_own(wfp3, lambda m: m.length_s / np.cbrt(m.size)),
    _by_own(unicep, lambda m: m.length_s * np.log2(m.size + 1.0)),
    _by_own(f1, _f1_own),
    Baseline("multifactor", multifactor, _no_delay, None),
)
BASELINES: Final = {one.name: one for one in _ALL}
"""Rules by name."""
