"""Which order of a few numbers waits least on a part of a record, at a price that is allowed.

The price is the longest wait, as a multiple of that of Slurm's own order on the same jobs. Share,
trust, predictor, own and max_delay_s are changed one after the other, each from the best so far, on
the last part of the training period. What is best there is played on the whole of it with each
share, which moves the price most, beside first come, first served.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import numpy as np

from rltuned.core.order import DEFAULT, Policy
from rltuned.daemon.wiring import configured_predictor, find_policy
from rltuned.errors import TooLittleError, TraceError
from rltuned.lab.backtest.past import FEWEST as FEWEST_JOBS
from rltuned.lab.backtest.past import Past
from rltuned.lab.backtest.study import play_natural, play_ours, scenario_of
from rltuned.lab.compare import DAY_S, Comparison, JobScores, Stretches, compared, pooled
from rltuned.lab.replay.metrics import slowdown
from rltuned.lab.replay.play import Played
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.scenario import Scenario
from rltuned.policies.actor import Actor, load_actor
from rltuned.policies.baselines import BASELINES
from rltuned.policies.plugins import Plugin
from rltuned.policies.predictor import Predictor
from rltuned.policies.shelf import bundle_at
from rltuned.settings import Loaded
from rltuned.text import trusted

OWNS: Final = (0.03, 0.1, 0.3)
SHARES: Final = (0.5, 0.75, 1.0, 2.0)
LONGEST_DELAYS_S: Final = (1 * DAY_S, 7 * DAY_S, 14 * DAY_S)
TRUSTS: Final = (0.0, 0.35, 0.7, 1.0)
NETWORK: Final = "rltune"
"""Whose trust is chosen while a rule is in force."""
LEAST: Final = 0.01
"""A smaller gain is not worth another order, however sure it is, nor a higher price."""
TOLERANCE_S: Final = 60.0
"""One cycle: a longest wait that is longer by no more than this keeps the price."""
JITTER_S: Final = 60.0
SHORT_PART: Final = 0.25
SHORTEST_S: Final = 3 * DAY_S
"""The last part of the training period that orders are first played on, and at least so long."""
LONGEST_GAP_S: Final = 2 * DAY_S
TRAINING_SPLIT: Final = 0.5
"""Part of the training period that the predictor is fitted to while orders are chosen on the rest.
The predictor that is tested is fitted to the whole training period."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An order, with all that the daemon's settings would say. policy: a rule, or a network with
    its trust. predictor: of run times; None = time limits alone.
    """

    policy: Policy
    own: float
    share: float
    max_delay_s: float
    predictor: Predictor | None

    @property
    def name(self) -> str:
        return (
            f"{trusted(self.policy.name, self.policy.trust)}, own {self.own:g}, "
            f"share {self.share:g}, max_delay {self.max_delay_s / DAY_S:g} days"
            f"{', run times of this site' if self.is_refitted else ''}"
        )

    @property
    def is_refitted(self) -> bool:
        """The predictor was just fitted to this site."""
        return self.predictor is not None and not self.predictor.digest

    @property
    def key(self) -> tuple[object, ...]:
        """Orders with the same key decide the same in the daemon; empty = first come, first
        served, whatever the policy.
        """
        digest = None if self.predictor is None else self.predictor.digest
        own = (self.policy.name, self.policy.trust, self.own, self.share, self.max_delay_s, digest)
        return own if self.own or self.share else ()

    def first_come(self) -> "Candidate":
        return replace(self, own=0.0, share=0.0)


def candidate_of(loaded: Loaded) -> Candidate:
    """The order of settings. Raises ModelError; TraceError: it is another package's policy, which
    the kernel cannot play.
    """
    settings, policy = loaded.settings, find_policy(loaded)[0]
    if isinstance(policy, Plugin):
        raise TraceError(f"policy.name: {policy.name} plays in rltuned simulate only")
    predictor = configured_predictor(settings) if settings.predictor.enabled else None
    order = settings.order
    return Candidate(policy, order.own, order.share, order.max_delay_s, predictor)


def policies_of(policy: Policy, models_dir: Path) -> list[Policy]:
    """What may take a policy's place: its network, or the shipped one where a rule is in force,
    with each trust; trust 0 is the rule. Raises ModelError.
    """
    network = policy.path if isinstance(policy, Actor) else bundle_at(NETWORK, models_dir)
    trusts = TRUSTS if network.is_dir() else ()
    return [load_actor(network, trust) if trust else BASELINES["delay"] for trust in trusts]


@dataclass(frozen=True, slots=True)
class Tried:
    """An order on a part of the record. scores: on the record itself. change: against the order in
    force. longest: its longest wait over that of Slurm's own order. over_price: that this is above
    the price, in a sentence; empty = it is not.
    """

    candidate: Candidate
    scores: JobScores
    change: Comparison
    longest: float
    over_price: str = ""

    @property
    def doubts(self) -> list[str]:
        """Why the order in force stays; empty = this one passes."""
        found, why = self.change.objective, list[str]()
        if found.low is None:
            why.append(f"of {self.change.days} days there is no interval")
        elif not self.change.is_better or (found.change or 0.0) > -LEAST:
            why.append(f"no gain of 1% is proven: {found}")
        why += [self.over_price] if self.over_price else []
        if isinstance(self.candidate.policy, Actor) and not self.candidate.policy.ranges:
            why.append("the bundle does not say on which ranges of the features it was trained")
        return why

    @property
    def json(self) -> dict[str, Any]:
        """What --json has of it, changes with their intervals; null where days are too few."""
        changes = {name: getattr(self.change, name) for name in ("wait", "bsld", "objective")}
        return {
            **order_json(self.candidate, self.scores),
            "longest": self.longest,
            "days": self.change.days,
            **{n: {"change": c.change, "low": c.low, "high": c.high} for n, c in changes.items()},
            "why": self.doubts,
        }


class Period:
    """A part of a record on which orders are compared, each by its scored jobs after the split.

    played, natural: Slurm's own order there. days: of the jobs' arrival.
    """

    def __init__(self, past: Past, daemon: Protocol) -> None:
        self.past, self._daemon = past, daemon
        self._scenario = scenario_of(past)
        self._arrived_s = past.arrived_s[past.later]
        self._run_s = np.array([job.duration_s for job in past.jobs])[past.later]
        of = np.floor((self._arrived_s - past.split_s) / DAY_S).astype(np.int64)
        self.days = Stretches(of, 0, DAY_S).part(np.ones(len(of), dtype=bool))
        self.played = play_natural(past, self._scenario, daemon.interval_s)
        self.natural = self._scores(self.played)

    def play(self, candidate: Candidate, copy: int = 0) -> JobScores:
        """One order, in the daemon's own cycles.

        copy: 0 = the record itself; else one in which the jobs that come after the split end up to
        JITTER_S earlier or later, the same for every order.
        """
        scenario = self._scenario if copy == 0 else self._jittered(copy)
        knobs = self._daemon.knobs
        order = replace(
            knobs.order, own=candidate.own, share=candidate.share, max_delay_s=candidate.max_delay_s
        )
        protocol = replace(
            self._daemon, knobs=replace(knobs, order=order), predictor=candidate.predictor
        )
        return self._scores(play_ours(self.past, scenario, candidate.policy, protocol))

    def tried(
        self,
        candidate: Candidate,
        base: Sequence[JobScores],
        own: Sequence[JobScores],
        price: float,
    ) -> Tried:
        """What the plays of an order say beside those of the one in force, copy by copy. The price
        is kept where the longest wait is within it, or within that of the order in force.
        """
        own_s, base_s, slurm_s = (x.longest_s for x in (own[0], base[0], self.natural))
        longest, over = own_s / max(slurm_s, 1.0), ""
        if own_s > max(price * slurm_s, base_s) + TOLERANCE_S:
            over = f"the longest wait is {longest:.2f} times that of Slurm's own, not {price:g}"
        pairs = zip(base, own, strict=False)
        found = pooled([compared(one, other, self.days) for one, other in pairs])
        return Tried(candidate, own[0], found, longest, over)

    def _scores(self, played: Played) -> JobScores:
        wait_s = played.start_s[self.past.later] - self._arrived_s
        return JobScores(wait_s, slowdown(wait_s, self._run_s))

    def _jittered(self, copy: int) -> Scenario:
        prepared, past = self._scenario.prepared, self.past
        draw = np.random.default_rng(copy)
        moved_s = draw.uniform(-JITTER_S, JITTER_S, len(past.jobs)).round()
        moved_s[past.arrived_s < past.split_s] = 0.0
        runs_s = prepared.jobs.runs_s
        jittered = np.clip(runs_s + moved_s, np.minimum(runs_s, 1.0), self._scenario.limit_s)
        jobs = prepared.jobs._replace(runs_s=jittered)
        return replace(self._scenario, prepared=replace(prepared, jobs=jobs))


def search(
    past: Past,
    end_s: float,
    incumbent: Candidate,
    *,
    policies: Sequence[Policy] = (),
    predictors: Sequence[Predictor | None] = (),
    price: float,
    daemon: Protocol,
    also: Sequence[Candidate] = (),
    may_play: Callable[[], bool] = lambda: True,
) -> list[Tried]:
    """Search on the training period, past's split to end_s; later jobs are not looked at. Returns
    what was tried on the whole of it: what keeps the price first, the best of it first.

    policies, predictors: what may take the place of those in force. also: orders that are played on
    the whole of it in any case. may_play: asked before each play; False ends the search with
    what there is.
    """
    past = past.switched_on(past.split_s, end_s)

    def played(period: Period, base: JobScores, given: Sequence[Candidate]) -> list[Tried]:
        new = takewhile(lambda _: may_play(), given)
        return [period.tried(one, [base], [period.play(one)], price) for one in new]

    start = incumbent
    if not incumbent.key:  # from which trust and predictor change nothing
        start = replace(incumbent, own=DEFAULT.own, share=DEFAULT.share)
    short_s = max(SHORTEST_S, SHORT_PART * (end_s - past.split_s))
    short = Period(past.switched_on(max(past.split_s, end_s - short_s)), daemon)
    base = short.play(incumbent)
    tried = played(short, base, [start])
    steps: list[list[dict[str, Any]]] = [
        [{"share": share} for share in SHARES],
        [{"policy": policy} for policy in policies],
        [{"predictor": predictor} for predictor in predictors],
        [{"own": own} for own in OWNS],
        [{"max_delay_s": delay_s} for delay_s in LONGEST_DELAYS_S],
    ]
    for step in steps:
        best = min(tried, key=_rank).candidate if tried else start
        known = {one.candidate.key for one in tried}
        new = [replace(best, **changed) for changed in step]
        tried += played(short, base, [c for c in new if c.key not in known])
    best = min(tried, key=_rank).candidate if tried else start
    shares = [replace(best, share=share) for share in SHARES]
    left = {incumbent.key: incumbent}
    for candidate in (*also, *shares, incumbent.first_come()):
        left.setdefault(candidate.key, candidate)
    whole = Period(past, daemon)
    return sorted(played(whole, whole.play(incumbent), [*left.values()][1:]), key=_rank)


def _rank(tried: Tried) -> tuple[bool, float]:
    """Those that keep the price first, the best of them first."""
    return bool(tried.over_price), -tried.change.gain


def best_of(tried: Sequence[Tried]) -> Tried | None:
    """What keeps the price and leads the order in force by a standard error. tried: see search."""
    return next((one for one in tried if not one.over_price and one.change.leads), None)


def next_step(tried: Sequence[Tried]) -> list[str]:
    """What the next step of the price would buy: the least one at which an order gains LEAST more;
    empty = there is none.
    """
    best = best_of(tried)
    least = LEAST + (best.change.gain if best else 0.0)
    dearer = [one for one in tried if one.over_price and one.change.gain >= least]
    more = min(dearer, key=lambda one: one.longest, default=None)
    if more is None:
        return []
    step = math.ceil(more.longest * 20) / 20
    bought = f"mean wait {more.change.wait}, slowdown {more.change.bsld} against the order in force"
    where = "on the training period"
    return [f"tune.longest = {step:g} would allow {more.candidate.name}: {bought}, {where}"]


def order_json(candidate: Candidate, scores: JobScores) -> dict[str, Any]:
    """An order, and its waits."""
    return {
        "order": candidate.name,
        "policy": candidate.policy.name,
        "trust": candidate.policy.trust,
        "own": candidate.own,
        "share": candidate.share,
        "max_delay_s": candidate.max_delay_s,
        "site_predictor": candidate.is_refitted,
        "wait_s": scores.mean_s,
        "wait_p99_s": scores.tail_s,
        "wait_max_s": scores.longest_s,
    }


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
    if (jobs := int(part.sum())) < FEWEST_JOBS:
        raise TooLittleError(f"{jobs} jobs in the {name}; at least {FEWEST_JOBS} are needed")
