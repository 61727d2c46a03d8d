"""Policies that look delays up, for properties over many cycles."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from rltuned.core.features import FloatArray, StateMatrix
from rltuned.core.order import Wish
from rltuned.domain.priority import PrioritySystem

DAY = 86_400.0
SLOPE = 0.1
CYCLE_S = 60.0
SYSTEM = PrioritySystem(
    "multifactor", ages=True, age_weight=int(SLOPE * 14 * DAY), max_age_s=14 * DAY
)


@dataclass(frozen=True)
class ByTable:
    """A policy that looks delays up by job id and cycle: steady, jumping or hostile."""

    tables: tuple[tuple[float, ...], ...]
    name: str = "table"
    static: bool = False
    trust: float | None = None

    def score(self, matrix: StateMatrix) -> FloatArray:
        return -self.delay_s(matrix)

    def wish(self, matrix: StateMatrix) -> Wish:
        """Hostile in both parts: places far above 1 too."""
        delay_s = self.delay_s(matrix)
        return Wish(delay_s, delay_s % 7.0)

    def delay_s(self, matrix: StateMatrix) -> FloatArray:
        age = int(matrix.wait_s.max(initial=0.0) // CYCLE_S)
        table = self.tables[age % len(self.tables)]
        return np.array([table[j.job_id % len(table)] for j in matrix.jobs])


delays = st.floats(0, 1e9) | st.sampled_from((0.0, 1.0, 3_600.0, 1e300))
policies = st.lists(
    st.lists(delays, min_size=5, max_size=5).map(tuple), min_size=1, max_size=3
).map(lambda tables: ByTable(tuple(tables)))
