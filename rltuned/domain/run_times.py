"""How long a waiting job is expected to run."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunTime:
    """A prediction of one job's run time, in seconds; none of them beyond its time limit.

    Attributes:
        plan_s: what the rule `delay` goes by in place of the limit.
        mean_s: expected.
        low_s, median_s, high_s: quantiles of 10, 50 and 90%.
        ends: how many ended jobs of its user stand behind it; 0 = a stranger.
    """

    plan_s: float
    mean_s: float
    low_s: float
    median_s: float
    high_s: float
    ends: int
