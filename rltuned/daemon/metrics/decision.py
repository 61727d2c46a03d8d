"""What a decision looked like, as Prometheus metrics: delays, features, moves, placement.

A value that is not known is NaN, never 0: no job was ranked, or the model's card has no ranges.
"""

import math
from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from rltuned.core.decide import Decision, Entry
from rltuned.core.features import COLUMNS, StateMatrix
from rltuned.core.milp.candidates import PlacementKind
from rltuned.core.milp.solution import JobDecision, JointPlacement, SolveStatus

Ranges = Mapping[str, tuple[float, float]]
"""Smallest and largest value of a feature that a model was trained on, by its name in COLUMNS."""

PLACES_BUCKETS: Final = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000)
SOLVE_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
DELAY_AT: Final = {"min": 0.0, "q25": 0.25, "median": 0.5, "q75": 0.75, "max": 1.0}
FEATURE_AT: Final = {"min": 0.0, "median": 0.5, "max": 1.0}
MANY_WAYS: Final = 8
"""From here on ways are not told apart."""
NOT_YET: Final = "not_yet"
"""Verdict on a job that does not start within the horizon."""
_ROUNDING: Final = 1e-6
"""Features are float32, ranges went through JSON."""


class DecisionMetrics:
    """Metrics of decisions on one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._ranges: Ranges = {}
        self._make_order(registry)
        self._make_features(registry)
        self._make_placement(registry)
        for direction in ("up", "down"):
            self.moved.labels(direction=direction)
        for at in DELAY_AT:
            self.delay.labels(at=at).set(math.nan)
        for feature in COLUMNS:
            self.outside.labels(feature=feature).set(math.nan)
            for at in FEATURE_AT:
                self.feature.labels(feature=feature, at=at).set(math.nan)
        for result in ("optimal", "failed"):
            self.solves.labels(result=result)
        for how in SolveStatus:
            self.joint.labels(how=how.value)
        self._show_joint(())

    def _make_order(self, registry: CollectorRegistry) -> None:
        self.moved = Histogram(
            "rltuned_rank_displacement_places",
            "Places between Slurm's order and the new one, of the jobs of each decision that "
            "stand elsewhere, by direction.",
            ["direction"],
            buckets=PLACES_BUCKETS,
            registry=registry,
        )
        self.delay = Gauge(
            "rltuned_delay_seconds",
            "Delays of the ranked jobs in the last decision: smallest, quartiles, largest; NaN = "
            "none was ranked.",
            ["at"],
            registry=registry,
        )
        self.neutral = Gauge(
            "rltuned_neutral_delay_seconds",
            "The delay that a job without a number of rltuned's stands for.",
            registry=registry,
        )
        self.max_delay = Gauge(
            "rltuned_max_delay_seconds",
            "The longest delay that the settings allow.",
            registry=registry,
        )
        self.bounded = Gauge(
            "rltuned_bounded_jobs",
            "Jobs of the last decision whose delay a bound keeps below what the policy wished.",
            registry=registry,
        )

    def _make_features(self, registry: CollectorRegistry) -> None:
        self.feature = Gauge(
            "rltuned_feature_ratio",
            "Features of the ranked jobs in the last decision, on their scale of 0 to 1; NaN = "
            "none was ranked.",
            ["feature", "at"],
            registry=registry,
        )
        self.outside = Gauge(
            "rltuned_feature_outside_training_ratio",
            "Share of the ranked jobs whose feature lies outside the range on the model's card; "
            "NaN = no range is known, or no job was ranked.",
            ["feature"],
            registry=registry,
        )

    def _make_placement(self, registry: CollectorRegistry) -> None:
        self.placed = Gauge(
            "rltuned_jobs_placed",
            "Jobs at the head of the new order that would fit on free nodes now.",
            registry=registry,
        )
        self.joint = Counter(
            "rltuned_joint_placements",
            "Joint placements by how they came about; fell_back = the greedy one stands.",
            ["how"],
            registry=registry,
        )
        self.solves = Counter(
            "rltuned_milp_solves",
            "Problems given to the solver: optimal = proven, with no gap (no other answer is "
            "used); failed = out of time, ended badly, or no usable answer.",
            ["result"],
            registry=registry,
        )
        self.solve_seconds = Histogram(
            "rltuned_milp_solve_duration_seconds",
            "Wall time of the solver, its failures included.",
            buckets=SOLVE_BUCKETS_S,
            registry=registry,
        )
        self.ways = Gauge(
            "rltuned_placement_jobs",
            "Jobs in the last problem, by ways to start now; 0 unless one was solved.",
            ["ways"],
            registry=registry,
        )
        self.verdicts = Gauge(
            "rltuned_placement_verdicts",
            "Jobs in the last problem, by the kind of way that was chosen; not_yet = no start "
            "within the horizon.",
            ["verdict"],
            registry=registry,
        )

    def trained_on(self, ranges: Ranges) -> None:
        """A policy was loaded; empty = its ranges are not known."""
        self._ranges = ranges
        for feature in COLUMNS:
            self.outside.labels(feature=feature).set(math.nan)

    def solved(self, seconds: float, *, ok: bool) -> None:
        """The solver has ended."""
        self.solve_seconds.observe(seconds)
        self.solves.labels(result="optimal" if ok else "failed").inc()

    def update(self, decision: Decision | None) -> None:
        """Take over one cycle; None = it came to no decision, and what was known stays."""
        if decision is None:
            return
        self._show_moves(decision.entries)
        for at, share in DELAY_AT.items():
            self.delay.labels(at=at).set(_quantile(decision.delays.delay_s, share))
        if decision.neutral is not None:
            self.neutral.set(decision.neutral.delay_s)
        self.max_delay.set(decision.max_delay_s)
        self.bounded.set(decision.delays.clipped)
        self._show_features(decision.matrix)
        self.placed.set(len(decision.placements))
        self._count_joint(decision.joint)

    def _show_moves(self, entries: Iterable[Entry]) -> None:
        up, down = (self.moved.labels(direction=name) for name in ("up", "down"))
        for entry in entries:
            if places := entry.rank_before - entry.rank_after:
                (up if places > 0 else down).observe(abs(places))

    def _show_features(self, matrix: StateMatrix) -> None:
        for feature in COLUMNS:
            values = matrix.column(feature)
            for at, share in FEATURE_AT.items():
                self.feature.labels(feature=feature, at=at).set(_quantile(values, share))
            if feature in self._ranges and len(values):
                low, high = self._ranges[feature]
                outside = (values < low - _ROUNDING) | (values > high + _ROUNDING)
                self.outside.labels(feature=feature).set(float(outside.mean()))

    def _count_joint(self, joint: JointPlacement | None) -> None:
        if joint is None:
            return
        self.joint.labels(how=joint.how.value).inc()
        self._show_joint(joint.verdicts)

    def _show_joint(self, verdicts: tuple[JobDecision, ...]) -> None:
        ways = Tally(min(v.ways, MANY_WAYS) for v in verdicts)
        for number in range(MANY_WAYS + 1):
            name = f"{number}+" if number == MANY_WAYS else str(number)
            self.ways.labels(ways=name).set(ways[number])
        chosen = Tally(NOT_YET if v.kind is None else v.kind.value for v in verdicts)
        for verdict in (*(kind.value for kind in PlacementKind), NOT_YET):
            self.verdicts.labels(verdict=verdict).set(chosen[verdict])


def _quantile(values: np.ndarray, share: float) -> float:
    """NaN of nothing."""
    return float(np.quantile(values, share)) if len(values) else math.nan
