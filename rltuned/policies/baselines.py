"""The classic rules, as pure functions of what a scheduler knows. Higher score = sooner.

w: seconds waited; r: time limit in seconds (never the run time); n: GPUs; s: submit time.

| name        | score                              | source                                        |
|-------------|------------------------------------|-----------------------------------------------|
| fcfs        | w                                  |                                               |
| sjf         | -r                                 |                                               |
| saf         | -r max(n, 1)                       | smallest area first                           |
| smallest    | -max(n, 1)                         |                                               |
| wfp3        | (w/r)^3 n                          | Tang et al., Cluster 2009                     |
| unicep      | w / (log2(n+1) r)                  | Tang et al., with a floor: see below          |
| f1          | -(log10(r) n + 870 log10(s))       | Carastan-Santos & de Camargo, SC 2017         |
| multifactor | Slurm's own priority               | slurm.conf(5), priority/multifactor           |

Traps in published code: w computed from an unset start time turns wfp3 and unicep round, and
log2(1) = 0 divides unicep by nothing. f1 depends on where time zero lies, since s is absolute: the
same queue shifted in time ranks differently. Here time zero lies `F1_EPOCH_S` before now, which
makes the rule invariant to shifts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from rltuned.core.features import FloatArray, StateMatrix

F1_EPOCH_S: Final = 30 * 86_400.0
"""f1's time zero lies this long before now; older jobs count as submitted then."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """A rule with its name."""

    name: str
    rule: Callable[[StateMatrix], FloatArray]

    def score(self, matrix: StateMatrix) -> FloatArray:
        """(n,) higher = sooner."""
        return self.rule(matrix)


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


BASELINES: Final = {
    rule.__name__: Baseline(rule.__name__, rule)
    for rule in (fcfs, sjf, saf, smallest, wfp3, unicep, f1, multifactor)
}
