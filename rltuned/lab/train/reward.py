"""What an episode cost, as a curve over time: each reward is a difference of two points of it.

A cost grows while time passes and ends at the metric, so rewards between decisions sum to the
metric (dense), and the whole of it at the end is the paper's form (gap). Costs are negative
rewards; the true run times are used here and never shown to a policy.

| objective   | cost at time t                                                            |
|-------------|---------------------------------------------------------------------------|
| wait        | seconds waited so far, mean over jobs                                     |
| bsld        | bounded slowdown so far, mean over jobs (1 while a job has lost nothing)  |
| jct         | seconds in the system so far, mean over jobs                              |
| utilisation | seconds since the first submit until the last end: with the work given,   |
|             | utilisation is work over GPUs over this                                   |
| tail        | squares of the seconds waited so far, mean over jobs                      |
| mix         | wait, bsld and tail, each as a part of the reference's total              |
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from rltuned.lab.kernel.compiler import FloatArray
from rltuned.lab.replay.metrics import SHORTEST_S
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.options import Objective

FLOOR: Final = {"wait": 1.0, "bsld": 0.01, "jct": 1.0, "utilisation": 1.0, "tail": 1.0, "mix": 1.0}
"""Least denominator of a gap: the paper's 1, and less where the excess slowdown is counted."""
MIXED: Final[tuple[Objective, ...]] = ("wait", "bsld", "tail")
_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True)
class Work:
    """What the jobs of a window are, (n,). price: of a second that a job waits, or of its slowdown;
    none of utilisation. unit: of each metric in MIXED, one in a mix.
    """

    submit_s: FloatArray
    runs_s: FloatArray
    duration_s: FloatArray
    price: FloatArray | float = 1.0
    unit: tuple[float, ...] = (1.0,) * len(MIXED)

    @classmethod
    def of(cls, window: Scenario) -> "Work":
        """Of a scenario."""
        return cls(window.submit_s, window.prepared.jobs.runs_s, window.duration_s, window.price)

    def measured_by(self, start_s: FloatArray) -> "Work":
        """The same work, a mix being counted in parts of this schedule's totals."""
        end = np.array([np.inf])
        totals = {o: float(cost_at(o, end, start_s, self)[0]) for o in MIXED}
        return replace(self, unit=tuple(max(totals[o], FLOOR[o]) for o in MIXED))


def cost_at(objective: Objective, times: FloatArray, start_s: FloatArray, work: Work) -> FloatArray:
    """(k,) cost of a schedule start_s (n,) at times (k,); at infinity the metric itself, bsld
    without its constant 1.
    """
    if objective == "mix":
        parts = [
            cost_at(o, times, start_s, work) / u for o, u in zip(MIXED, work.unit, strict=True)
        ]
        mean: FloatArray = np.mean(parts, axis=0)
        return mean
    submit_s, count = work.submit_s, len(start_s)
    if objective == "utilisation":
        last_s = (start_s + work.runs_s).max()
        since_s: FloatArray = np.clip(times, submit_s.min(), last_s) - submit_s.min()
        return since_s
    begin, end, rate = submit_s, start_s, np.full(count, 1.0 / count) * work.price
    if objective == "bsld":
        longer = np.maximum(work.duration_s, SHORTEST_S)
        begin, rate = submit_s + (longer - work.duration_s), rate / longer
    elif objective == "jct":
        end = start_s + work.runs_s
    end = np.maximum(end, begin)
    found = np.empty(len(times))
    for at in range(0, len(times), _AT_ONCE):
        some = times[at : at + _AT_ONCE, None]
        passed_s = np.clip(some, begin, end) - begin
        found[at : at + _AT_ONCE] = (passed_s**2 if objective == "tail" else passed_s) @ rate
    return found
