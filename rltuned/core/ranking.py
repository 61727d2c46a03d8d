"""The jobs as they stand and as they are to stand: delays as numbers, and numbers as places."""

from dataclasses import dataclass

import numpy as np

from rltuned.core.capacity import BoolArray
from rltuned.core.features import FloatArray, StateMatrix
from rltuned.core.numbers import Field, IntArray, Numbers, Writing, numbers_of, settle
from rltuned.core.order import Delays, Order, Policy, bounded, next_neutral
from rltuned.domain.priority import NeutralDelay
from rltuned.domain.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Ranked:
    """The jobs as they stand and as they are to stand.

    before, after: job indices in order. current, proposed, settled: priorities. value: the number
    that each job is to have after this cycle; written: it is not the present one.
    """

    before: IntArray
    after: IntArray
    current: IntArray
    proposed: IntArray
    settled: IntArray
    in_force_s: FloatArray
    value: IntArray
    written: BoolArray


def scale(
    snapshot: Snapshot,
    policy: Policy,
    matrix: StateMatrix,
    mode: Field,
    *,
    order: Order,
    writing: Writing,
) -> tuple[NeutralDelay | None, Numbers | None]:
    """The neutral delay, and how delays become numbers."""
    system, now, neutral = snapshot.priorities, snapshot.taken_at, snapshot.neutral
    if neutral is None:
        neutral = next_neutral(None, bounded(policy, matrix, order).delay_s, now)
    if mode == "site_factor" and system.site_factor_plugin:
        return neutral, None
    return neutral, numbers_of(
        matrix.jobs,
        system,
        mode,
        now=now,
        neutral_s=0.0 if neutral is None else neutral.delay_s,
        own_slope=writing.own_slope,
    )


def rank(
    matrix: StateMatrix, delays: Delays, numbers: Numbers | None, writing: Writing
) -> tuple[Ranked, list[int]]:
    """Where the jobs stand and are to stand; the indices of those that wait for the cap."""
    current = np.array([j.priority for j in matrix.jobs], dtype=np.int64)
    before = np.argsort(-current, kind="stable")
    if numbers is None:
        nothing = np.zeros(len(current), dtype=bool)
        as_is = (current, current, current, delays.delay_s, current, nothing)
        return Ranked(before, before, *as_is), []
    value, waiting = settle(numbers, delays.delay_s, delays.upper_s, writing)
    proposed = numbers.priority(numbers.of(delays.delay_s))
    ranked = Ranked(
        before=before,
        after=np.argsort(-proposed, kind="stable"),
        current=current,
        proposed=proposed,
        settled=numbers.priority(value),
        in_force_s=numbers.in_force_s(),
        value=value,
        written=value != numbers.value,
    )
    return ranked, waiting.tolist()
