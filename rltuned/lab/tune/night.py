"""One night: calibrate, split by time, search on the training period, test once, judge."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from rltuned.errors import TooLittleError, TraceError
from rltuned.lab.backtest.outcome import Calibration, calibrate
from rltuned.lab.backtest.past import FEWEST as FEWEST_JOBS
from rltuned.lab.backtest.past import Past
from rltuned.lab.backtest.site import with_own_backfill
from rltuned.lab.compare import (
    DAY_S,
    FEWEST,
    NORMAL,
    Comparison,
    JobScores,
    change_of_mean,
    compared,
    pooled,
    stretches_of,
)
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.train.predictor import Fitted, fit
from rltuned.lab.tune.search import (
    LEAST,
    Alternatives,
    Candidate,
    Period,
    Searched,
    policies_of,
    search,
)
from rltuned.policies.actor import Actor
from rltuned.policies.predictor import Predictor
from rltuned.policies.tune_state import LastWeek

MINUTE_S: Final = 60.0
FEWEST_ENDED: Final = 1_000
LONGEST_GAP_S: Final = 2 * DAY_S
TRAINING_SPLIT: Final = 0.5
"""Part of the training period that the predictor is fitted to while orders are chosen on the rest.
The predictor that is tested is fitted to the whole training period."""
COPIES, FEWEST_COPIES = 5, 3
"""Of the test period of one that may pass, with the record itself; see compare.pooled."""
POWER: Final = NORMAL + 0.84
"""A change of so many standard errors is found by four of five test periods."""


@dataclass(frozen=True, slots=True)
class NightPlan:
    """How the night is to be spent.

    test_days, minutes: of its test period, and its time. price: see search. shipped: predictor.
    network: whose trust is chosen. learn: whether run times are predicted at all. seed: of the
    predictor's fit. default: the order without a generation, which may take the place of the one in
    force; None = it is in force.
    """

    test_days: float
    minutes: float
    price: float
    shipped: Predictor
    network: Path | None = None
    learn: bool = True
    seed: int = 1
    default: Candidate | None = None


@dataclass(frozen=True, slots=True)
class Tested:
    """An order on the test period, against the order in force. scores: on the record itself. why:
    it is not taken; empty = it is.
    """

    candidate: Candidate
    change: Comparison
    scores: JobScores
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Night:
    """What came of it.

    test: the test period. base: of the order in force there. taken: the candidate that passed; None
    = the order in force is kept. price_words: what the price is and what a higher one would buy.
    power: what the test period can see; None = not known. left_out: what was not played, and why.
    """

    test: Period
    calibration: Calibration
    periods_s: tuple[float, float, float]
    incumbent: Candidate
    base: JobScores
    searched: Searched
    tested: tuple[Tested, ...]
    taken: Candidate | None
    why: tuple[str, ...]
    price_words: tuple[str, ...]
    power: str | None
    fitted: Fitted | None
    left_out: dict[str, str]


Report = Callable[[str, float], None]
"""Called with what is being done, and how much of the time is used, 0..1."""


def spend(
    past: Past,
    incumbent: Candidate,
    daemon: Protocol,
    plan: NightPlan,
    *,
    clock: Callable[[], float],
    report: Report = lambda _what, _part: None,
) -> Night:
    """The whole night. Raises TooLittleError: the record allows no verdict."""
    time, left_out = _Time(clock, plan.minutes, report), dict[str, str]()
    switch_s, end_s, test_s = split_of(past, plan.test_days)
    before = time.used()
    test = Period(past.switched_on(test_s), daemon)
    # the test period of those that may pass must fit in what the training period leaves
    plays = FEWEST_COPIES * (2 + (plan.default is not None))
    reserved = plays * (time.used() - before)
    calibration = calibrate(test.past, test.played)
    if calibration.whole.verdict == "poor":
        raise TooLittleError(poor_calibration(calibration))

    def fitted_to(part: Past) -> Fitted | None:
        jobs, start_s = part.known()
        time.says("fitting the predictor")
        try:
            return fit(jobs, start_s=start_s, begin=plan.shipped, seed=plan.seed)
        except TraceError as error:
            left_out["run times of this site"] = str(error)
            return None

    def may_play(name: str) -> bool:
        time.says(f"training period: {name}")
        return time.used() + reserved < 1

    parts = (past.switched_on(switch_s), past.switched_on(end_s))
    early, late = (fitted_to(part) if plan.learn else None for part in parts)
    searched = search(
        parts[0],
        end_s,
        incumbent,
        alternatives_of(plan, incumbent, early),
        price=plan.price,
        daemon=daemon,
        also=[] if plan.default is None else [plan.default],
        may_play=may_play,
    )
    if searched.is_cut:
        left_out["further orders"] = "no time was left"
    best, power = searched.best, None
    if best is not None:
        power = power_of(best.change, plan.test_days, len(test))
        time.says(f"power: {power or 'not known'}")
    leading = [] if best is None else [_refitted(best.candidate, late)]
    default = [] if plan.default is None else [plan.default]
    tested, base = _test(test, incumbent, [*leading, *default], plan.price, time)
    taken = next((one.candidate for one in tested if not one.why), None)
    nothing = ("no order that keeps the price leads on the training period",)
    return Night(
        test=test,
        calibration=calibration,
        periods_s=(switch_s, end_s, test_s),
        incumbent=incumbent,
        base=base,
        searched=searched,
        tested=tested,
        taken=taken,
        why=() if taken else tested[0].why if tested else nothing,
        price_words=tuple(price_words(searched, plan.price)),
        power=power,
        fitted=late,
        left_out=left_out,
    )


class _Time:
    """What of the night's minutes is used."""

    def __init__(self, clock: Callable[[], float], minutes: float, report: Report) -> None:
        self._clock, self._all_s, self._report = clock, minutes * MINUTE_S, report
        self._began = clock()

    def used(self) -> float:
        """1 = all."""
        return (self._clock() - self._began) / self._all_s

    def says(self, what: str) -> None:
        self._report(what, min(1.0, self.used()))


def _test(
    test: Period, incumbent: Candidate, candidates: Sequence[Candidate], price: float, time: _Time
) -> tuple[tuple[Tested, ...], JobScores]:
    """Orders on the test period until one passes, each beside the one in force, in as many copies
    as there is time for; and what the one in force does on the record itself.
    """
    tested: list[Tested] = []
    base = [test.play(incumbent)]
    for candidate in candidates:
        own: list[JobScores] = []
        for copy in range(COPIES):
            if copy >= FEWEST_COPIES and time.used() > 1:
                break
            time.says(f"test period, copy {copy}: {candidate.name}")
            if copy == len(base):
                base.append(test.play(incumbent, copy))
            own.append(test.play(candidate, copy))
        found = change_of(test, base, own)
        why = verdict(found, candidate, price_broken(test, base[0], own[0], price))
        tested.append(Tested(candidate, found, own[0], tuple(why)))
        if not why:
            break
    return tuple(tested), base[0]


def alternatives_of(plan: NightPlan, incumbent: Candidate, early: Fitted | None) -> Alternatives:
    """What the search may change: trust where there is a network, the predictor where one could be
    fitted.
    """
    predictors: list[tuple[Predictor | None, bool]] = []
    if early is not None:
        predictors = [(_same(plan.shipped, incumbent), False), (early.predictor, True)]
    return Alternatives(policies_of(plan.network), predictors)


def _same(predictor: Predictor, incumbent: Candidate) -> Predictor:
    """The order in force's own object where it is the same predictor."""
    own = incumbent.predictor
    return own if own is not None and own.digest == predictor.digest else predictor


def _refitted(candidate: Candidate, late: Fitted | None) -> Candidate:
    """The same with the predictor that is fitted to the whole training period."""
    if not candidate.is_refitted or late is None:
        return candidate
    return replace(candidate, predictor=late.predictor)


# -- judging --------------------------------------------------------------------------------------


def change_of(test: Period, base: Sequence[JobScores], own: Sequence[JobScores]) -> Comparison:
    """An order against another one, over the copies that both have."""
    return pooled([compared(one, other, test.days) for one, other in zip(base, own, strict=False)])


def price_broken(test: Period, base: JobScores, own: JobScores, price: float) -> str:
    """That the price is not kept, in a sentence; empty = it is. See Period.keeps_price."""
    natural_s = test.natural.longest_s
    if test.keeps_price(own, base, price):
        return ""
    return (
        f"the longest wait is {own.longest_s:.0f} s, {own.longest_s / max(natural_s, 1.0):.2f} "
        f"times that of Slurm's own order; tune.longest allows {price:g}, or the "
        f"{base.longest_s:.0f} s of the order in force"
    )


def verdict(found: Comparison, candidate: Candidate, broken: str) -> list[str]:
    """Why the order in force stays; empty = the candidate passes."""
    why = []
    objective, change = found.objective, found.objective.change or 0.0
    if objective.low is None:
        why.append(f"the test period has jobs on {found.days} days; an interval needs {FEWEST}")
    elif not found.is_better:
        why.append(
            f"the change of {objective} may be chance"
            if change < 0
            else f"it is no better: {objective}"
        )
    elif change > -LEAST:
        why.append(f"a change of {change:+.2%} is too small to be worth it")
    why += [broken] if broken else []
    if isinstance(candidate.policy, Actor) and not candidate.policy.ranges:
        why.append("the bundle does not say on which ranges of the features it was trained")
    return why


def price_words(searched: Searched, price: float) -> list[str]:
    """What the price is on the training period, and what the next step of it would buy."""
    found = []
    best, more = searched.best, searched.next_step
    if best is not None:
        found.append(
            f"The longest wait of the chosen order is {best.longest:.2f} times that of Slurm's own "
            f"order on the training period; tune.longest allows {price:g}."
        )
    if more is not None:
        found.append(
            f"tune.longest = {math.ceil(more.longest * 20) / 20:g} would allow "
            f"{more.candidate.name}: mean wait {more.change.wait}, slowdown {more.change.bsld} "
            "against the order in force on the training period."
        )
    return found


def power_of(training: Comparison, test_days: float, jobs: int) -> str | None:
    """What a test period of so many days can see, stated before it is played, from how much a day
    of the training period varies; None = not known.
    """
    if training.error is None or not training.error > 0:
        return None
    per_day = training.error * math.sqrt(training.days)
    needed = ", ".join(
        f"{math.ceil((POWER * per_day / -math.log1p(-part)) ** 2)} days to see {part:.0%}"
        for part in (0.05, 0.10)
    )
    smallest = -math.expm1(-POWER * per_day / math.sqrt(test_days))
    return (
        f"{jobs / max(test_days, 1e-9):.0f} jobs a day; this site needs {needed} (four times of "
        f"five); the test period's {test_days:.0f} days can see {smallest:.0%}"
    )


def poor_calibration(calibration: Calibration) -> str:
    """Why no order is chosen by a simulator that plays the past so badly."""
    whole = calibration.whole
    off = (
        "no job waited"
        if whole.mean.change is None
        else f"mean wait off by {whole.mean.change:+.1%}"
    )
    rank = "none" if whole.rank is None else f"{whole.rank:.2f}"
    return (
        f"the simulator does not behave as this Slurm did ({off}, rank correlation {rank}): no "
        "order is chosen by it; `rltuned backtest --report DIR` shows what is not played"
    )


# -- the record, by time --------------------------------------------------------------------------


def split_of(past: Past, test_days: float) -> tuple[float, float, float]:
    """When the training period's second part, the gap and the test period begin, seconds since the
    record's begin.

    Raises TooLittleError: the record is too short, or has too few jobs.
    """
    ended = int(np.isfinite(past.ended_s).sum())
    if ended < FEWEST_ENDED:
        raise TooLittleError(f"{ended} jobs have ended; at least {FEWEST_ENDED} are needed")
    # a saved record may go on, with jobs that end, long after the last one came
    test_s = float(past.arrived_s[past.scored].max()) - test_days * DAY_S
    first_s, switch_s, end_s = training_before(past, test_s)
    if end_s - first_s < test_days * DAY_S / 2:
        raise TooLittleError(
            f"the record has {max(end_s - first_s, 0.0) / DAY_S:.1f} days before the test period "
            f"of {test_days:g} days and its gap; at least half as many are needed"
        )
    check_part(past, switch_s, end_s, "training period")
    check_part(past, test_s, math.inf, "test period")
    return switch_s, end_s, test_s


def training_before(past: Past, test_s: float) -> tuple[float, float, float]:
    """When a test period's training period, its second part and the gap begin, seconds since the
    record's begin.

    The gap is as long as the longest run, so that no run time of the training period comes from the
    test period.
    """
    end_s = test_s - min(LONGEST_GAP_S, max(job.duration_s for job in past.jobs))
    first_s = float(past.arrived_s[past.scored].min())
    return first_s, first_s + TRAINING_SPLIT * (end_s - first_s), end_s


def check_part(past: Past, begin_s: float, end_s: float, name: str) -> None:
    """Raises TooLittleError: nothing can be concluded from so few jobs."""
    part = past.scored & (past.arrived_s >= begin_s) & (past.arrived_s < end_s)
    if part.sum() < FEWEST_JOBS:
        raise TooLittleError(
            f"{int(part.sum())} jobs in the {name}; at least {FEWEST_JOBS} are needed"
        )


# Would it help here? The last seven days of a record under Slurm's own order and under rltuned's.
#
# What came before is played too, so that the week begins with the queue that it had; run times are
# predicted by what had ended until each job came. Slurm places as the site's own sched/backfill
# does. One play of each order: chance is of stretches of arrival.


DAYS: Final = 7.0


def replayed(past: Past, order: Candidate, daemon: Protocol, at: float) -> LastWeek:
    """Replay the last week that jobs came in. at: Unix seconds, when this is. Raises
    TooLittleError: too few jobs came in it.
    """
    if not past.scored.any():
        raise TooLittleError("no job of the record is scored")
    last_s = float(past.arrived_s[past.scored].max())
    begin_s = max(float(past.arrived_s[past.scored].min()), last_s - DAYS * DAY_S)
    check_part(past, begin_s, np.inf, "last week")
    past = replace(past, site=with_own_backfill(past.site)).switched_on(begin_s)
    week = Period(past, daemon)
    own = week.play(order)
    wait = change_of_mean(week.natural.wait_s, own.wait_s, stretches_of(past.arrived_s[past.later]))
    return LastWeek(
        at=at,
        begin=past.begin + begin_s,
        until=past.begin + last_s,
        jobs=len(week),
        order=order.name,
        verdict=calibrate(past, week.played).later.verdict,
        slurm_wait_s=wait.base,
        wait_s=wait.own,
        change=wait.change,
        low=wait.low,
        high=wait.high,
        slurm_longest_s=week.natural.longest_s,
        longest_s=own.longest_s,
    )
