"""How long a waiting job is expected to run."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunTime:
    """A prediction of one job's run time, in seconds, within its limit. plan_s: what the rule
    `delay` goes by. Quantiles of 10, 50, 90%. ends: ended jobs of its user; 0 = a stranger.
    """

    plan_s: float
    mean_s: float
    low_s: float
    median_s: float
    high_s: float
    ends: int
