"""One night: calibrate, split by time, search on the training period, test once, judge, and make a
generation of what passed. And the replay of last week.
"""

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from rltuned import __version__
from rltuned.core.order import Policy
from rltuned.errors import TooLittleError, TraceError
from rltuned.lab.backtest.past import Past
from rltuned.lab.backtest.site import with_own_backfill
from rltuned.lab.backtest.study import VERDICTS, calibrate
from rltuned.lab.compare import DAY_S, JobScores, change_of_mean, stretches_of
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.train.export import export_predictor
from rltuned.lab.train.predictor import Fitted, fit
from rltuned.lab.tune.search import (
    Candidate,
    Period,
    Tried,
    best_of,
    check_part,
    next_step,
    order_json,
    search,
    training_before,
)
from rltuned.policies.actor import Actor
from rltuned.policies.generations import MODEL, PREDICTOR, Generations, TunedOrder
from rltuned.policies.predictor import Predictor
from rltuned.stats import percent
from rltuned.text import counted, span, utc

FEWEST_ENDED: Final = 1_000
COPIES, FEWEST_COPIES = 5, 3
"""Of the test period of one that may pass, with the record itself; see compare.pooled."""
WEEK_S: Final = 7 * DAY_S
"""The replay's; and at most one promotion by itself in this time: a change must be seen first."""


def spend(
    past: Past,
    periods_s: tuple[float, float, float],
    incumbent: Candidate,
    daemon: Protocol,
    *,
    price: float,
    policies: Sequence[Policy] = (),
    shipped: Predictor | None = None,
    others: Sequence[Candidate] = (),
    used: Callable[[], float] = lambda: 0.0,
) -> tuple[dict[str, Any], Candidate | None, Fitted | None]:
    """The whole night: what is found, as JSON without verdict; the candidate that passed, None =
    the order in force is kept; and the predictor of the whole training period. Raises
    TooLittleError: the record allows no verdict.

    periods_s: see split_of. price, policies: see search. shipped: what a predictor of this site is
    fitted from; None = run times are not predicted. others: orders that are tested too where the
    chosen one does not pass. used: how much of the time is over, 1 = all.
    """
    switch_s, end_s, test_s = periods_s
    check_part(past, switch_s, end_s, "training period")
    check_part(past, test_s, math.inf, "test period")
    left_out, before = dict[str, str](), used()
    test = Period(past.switched_on(test_s), daemon)
    # the test period of those that may pass must fit in what the training period leaves
    reserved = FEWEST_COPIES * (2 + len(others)) * (used() - before)
    calibration = calibrate(test.past, test.played)
    verdict, mean = calibration["verdict"], calibration["whole"]["mean"]
    if verdict == "poor":
        raise TooLittleError(f"{VERDICTS[verdict]}: mean wait {mean}; see rltuned backtest")

    def may_play() -> bool:
        if used() + reserved < 1:
            return True
        left_out["further orders"] = "no time was left"
        return False

    parts, fits = [past.switched_on(at_s) for at_s in (switch_s, end_s)], list[Fitted]()
    try:
        for part in parts if shipped else ():
            jobs, start_s = part.known()
            fits.append(fit(jobs, start_s=start_s, begin=shipped))
    except TraceError as error:
        left_out["run times of this site"] = str(error)
    tried = search(
        parts[0],
        end_s,
        incumbent,
        policies=policies,
        predictors=[shipped, fits[0].predictor] if fits else [],
        price=price,
        daemon=daemon,
        also=others,
        may_play=may_play,
    )
    orders = {incumbent.key: incumbent}
    if (best := best_of(tried)) is not None:
        late = fits[-1].predictor if best.candidate.is_refitted else best.candidate.predictor
        orders[best.candidate.key] = replace(best.candidate, predictor=late)
    for one in others:
        orders.setdefault(one.key, one)
    tested, base = _test(test, [*orders.values()], price, used)
    taken = next((one.candidate for one in tested if not one.doubts), None)
    nothing = ["no order that keeps the price leads on the training period"]
    scored, names = past.scored.nonzero()[0], ("training", "gap", "test")
    moments = {"begin": 0.0, **dict(zip(names, periods_s, strict=True))}
    found = {
        "rltuned": __version__,
        "calibration": {
            **{name: calibration[name] for name in ("verdict", "means", "unit")},
            "whole": calibration["whole"] | {"mean": asdict(mean)},
        },
        "record": {
            **{name: utc(past.begin + at_s) for name, at_s in moments.items()},
            "until": utc(past.until),
            "cluster": past.site.cluster.name,
            "jobs": len(scored),
            "test_jobs": len(test.natural.wait_s),
            "users": len({past.jobs[i].user for i in scored}),
        },
        "slurm": order_json(incumbent.first_come(), test.natural),
        "incumbent": order_json(incumbent, base),
        "candidates": [
            *({"period": "test", "passes": not one.doubts, **one.json} for one in tested),
            *({"period": "training", "passes": False, **one.json} for one in tried),
        ],
        "why": [] if taken else tested[0].doubts if best else nothing,
        "plain": next_step(tried),
        "left_out": left_out,
    }
    return found, taken, fits[-1] if fits else None


def split_of(past: Past, test_days: float) -> tuple[float, float, float]:
    """When the training period's second part, the gap and the test period begin, seconds since the
    record's begin. Raises TooLittleError: the record is too short, or has too few jobs.
    """
    ended = int(np.isfinite(past.ended_s).sum())
    if ended < FEWEST_ENDED:
        raise TooLittleError(f"{ended} jobs have ended; at least {FEWEST_ENDED} are needed")
    # a saved record may go on, with jobs that end, long after the last one came
    test_s = float(past.arrived_s[past.scored].max()) - test_days * DAY_S
    first_s, switch_s, end_s = training_before(past, test_s)
    if (days := (end_s - first_s) / DAY_S) < test_days / 2:
        raise TooLittleError(
            f"the record has {max(days, 0.0):.1f} days before the test period of {test_days:g} "
            "days and its gap; at least half as many are needed"
        )
    return switch_s, end_s, test_s


def _test(
    test: Period, orders: Sequence[Candidate], price: float, used: Callable[[], float]
) -> tuple[list[Tried], JobScores]:
    """Orders on the test period until one passes, each beside the first, which is in force, in as
    many copies as there is time for; and what that one does on the record itself.
    """
    incumbent, *others = orders
    base, tested = [test.play(incumbent)], list[Tried]()
    for order in others:
        own = list[JobScores]()
        while len(own) < FEWEST_COPIES or (len(own) < COPIES and used() <= 1):
            if len(own) == len(base):
                base.append(test.play(incumbent, len(own)))
            own.append(test.play(order, len(own)))
        tested.append(test.tried(order, base, own, price))
        if not tested[-1].doubts:
            break
    return tested, base[0]


def conclude(
    store: Generations,
    found: Mapping[str, Any],
    won: Candidate | None,
    fitted: Fitted | None,
    *,
    promote: str,
    at: float,
) -> dict[str, Any]:
    """Verdict, sentence, reasons and generation, which is made, proposed and promoted here.

    found, won, fitted: see spend. promote: of the settings; empty = only say. at: now, Unix
    seconds. Raises ModelError.
    """
    said = {"verdict": "kept", "why": found["why"], "generation": None}
    if won is None:
        return said | {"sentence": f"Kept: {found['incumbent']['order']}"}
    change = next(one for one in found["candidates"] if one["passes"])["objective"]
    text, candidate = f"{won.name}: objective {percent(**change)}", store.named_by("candidate")
    if promote == "canary" and candidate not in {None, store.named_by("current")}:
        why = [f"an order has passed, but {candidate} is on trial"]
        return said | {"why": why, "sentence": f"Kept: {text}"}
    said["verdict"] = "proposed"
    if promote == "auto" and abs(at - store.promoted_at()) < WEEK_S:
        said["why"] = ["a generation was promoted within the last week"]
    elif promote == "auto":
        said["verdict"] = "promoted"
    said["sentence"] = sentence = f"{str(said['verdict']).capitalize()}: {text}"
    if promote:
        said["generation"] = name = _seal(store, won, fitted)
        store.propose(name, at=at, why=sentence)
    if said["verdict"] == "promoted":
        store.promote(at=at, why=sentence)
    return said


def _seal(store: Generations, won: Candidate, fitted: Fitted | None) -> str:
    """The winner as a generation, which nothing follows yet; its name. Raises ModelError."""
    with tempfile.TemporaryDirectory(prefix="rltuned-tune-") as work:
        parts = {MODEL: won.policy.path} if isinstance(won.policy, Actor) else {}
        if won.is_refitted and fitted is not None:
            parts[PREDICTOR] = Path(work, "site")
            data, licence = f"{fitted.examples} jobs of this site", "the site's own"
            export_predictor(
                parts[PREDICTOR], fitted, command="rltuned tune", seed=1, data=data, licence=licence
            )
        order = TunedOrder(
            policy=MODEL if MODEL in parts else won.policy.name,
            trust=1.0 if won.policy.trust is None else won.policy.trust,
            own=won.own,
            share=won.share,
            max_delay_s=won.max_delay_s,
            site_predictor=PREDICTOR in parts,
            label=won.policy.name,
        )
        return store.add(order, parts).name


def last_week(past: Past, order: Candidate, daemon: Protocol) -> dict[str, Any]:
    """Would it help here? The last seven days that jobs came in, under Slurm's own order and under
    rltuned's, as JSON: `sentence`, `verdict` of the calibration, and `change`, `low`, `high` of the
    mean wait; of too few jobs a sentence alone.

    What came before is played too, so that the week begins with the queue that it had. Slurm places
    as the site's own sched/backfill does. One play of each order: chance is of stretches of
    arrival.
    """
    came_s = past.arrived_s[past.scored]
    begin_s = float(max(came_s.min(initial=math.inf), came_s.max(initial=0.0) - WEEK_S))
    try:
        check_part(past, begin_s, math.inf, "last week")
    except TooLittleError as error:
        return {"sentence": f"Last week's jobs are not replayed: {error}."}
    past = replace(past, site=with_own_backfill(past.site)).switched_on(begin_s)
    week = Period(past, daemon)
    base, own = week.natural, week.play(order)
    wait = change_of_mean(base.wait_s, own.wait_s, stretches_of(past.arrived_s[past.later]))
    verdict = calibrate(past, week.played)["later"]["verdict"]
    said = (
        f"mean wait {wait} in rltuned's order against Slurm's own, {span(own.mean_s)} and not "
        f"{span(base.mean_s)}, at most {span(own.longest_s)} and not {span(base.longest_s)}; "
    )
    said = f"{'' if verdict == 'poor' else said}{VERDICTS[verdict]}."
    return {
        "sentence": f"Last week's {counted(len(own.wait_s), 'job')}, simulated: {said}",
        "verdict": verdict,
        "change": wait.change,
        "low": wait.low,
        "high": wait.high,
    }
