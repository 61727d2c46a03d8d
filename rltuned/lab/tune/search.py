"""Which order of a few numbers waits least on a part of a record, at a price that is allowed.

The price is the longest wait, as a multiple of that of Slurm's own order on the same jobs. Share,
trust, predictor, own and max_delay_s are changed one after the other, each from the best so far, on
the last part of the training period. What is best there is played on the whole of it with each
share, which moves the price most, beside first come, first served.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rltuned.core.order import DEFAULT, Policy
from rltuned.lab.backtest.past import Past
from rltuned.lab.backtest.study import play_natural, play_ours, scenario_of
from rltuned.lab.compare import DAY_S, Comparison, FloatArray, JobScores, Stretches, compared
from rltuned.lab.replay.metrics import slowdown
from rltuned.lab.replay.play import Played
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.scenario import Scenario
from rltuned.policies.actor import load_actor
from rltuned.policies.baselines import BASELINES
from rltuned.policies.predictor import Predictor
from rltuned.text import trusted

OWNS: Final = (0.03, 0.1, 0.3)
SHARES: Final = (0.5, 0.75, 1.0, 2.0)
LONGEST_DELAYS_S: Final = (1 * DAY_S, 7 * DAY_S, 14 * DAY_S)
TRUSTS: Final = (0.0, 0.35, 0.7, 1.0)
LEAST: Final = 0.01
"""A smaller gain is not worth another order, however sure it is, nor a higher price."""
TOLERANCE_S: Final = 60.0
"""One cycle: a longest wait that is longer by no more than this keeps the price."""
JITTER_S: Final = 60.0
SHORT_PART: Final = 0.25
SHORTEST_S: Final = 3 * DAY_S
"""The last part of the training period that orders are first played on, and at least so long."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An order, with all that the daemon's settings would say.

    Attributes:
        policy: a rule, or a network with its trust.
        predictor: of run times; None = time limits alone.
        is_refitted: the predictor was fitted to this site's training period.
        bundle: of the network; None = a rule.
    """

    policy: Policy
    own: float
    share: float
    max_delay_s: float
    predictor: Predictor | None
    is_refitted: bool = False
    bundle: Path | None = None

    @property
    def name(self) -> str:
        days = self.max_delay_s / DAY_S
        return (
            f"{trusted(self.policy.name, self.policy.trust)}, own {self.own:g}, "
            f"share {self.share:g}, max_delay {days:g} days"
            f"{', run times of this site' if self.is_refitted else ''}"
        )

    @property
    def is_first_come(self) -> bool:
        """First come, first served, whatever the policy."""
        return self.own == self.share == 0

    def same_as(self, other: "Candidate") -> bool:
        """Whether the daemon would decide the same."""
        if self.is_first_come or other.is_first_come:
            return self.is_first_come and other.is_first_come
        mine, theirs = (
            (c.policy.name, c.policy.trust, c.own, c.share, c.max_delay_s, id(c.predictor))
            for c in (self, other)
        )
        return mine == theirs

    def first_come(self) -> "Candidate":
        return replace(self, own=0.0, share=0.0)


def policies_of(network: Path | None) -> list[tuple[Policy, Path | None]]:
    """A network with each trust, and its bundle; trust 0 is the rule, with None. No network: none.
    Raises ModelError.
    """
    if network is None:
        return []
    return [
        (load_actor(network, trust), network) if trust else (BASELINES["delay"], None)
        for trust in TRUSTS
    ]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """What a search may change. policies: see policies_of. predictors: with whether each is fitted
    to this site. Where there is none it stays as it is.
    """

    policies: Sequence[tuple[Policy, Path | None]] = ()
    predictors: Sequence[tuple[Predictor | None, bool]] = ()

    def steps(self) -> Iterator[Callable[[Candidate], list[Candidate]]]:
        """One number at a time: from the best so far to what is played next."""
        yield lambda best: [replace(best, share=share) for share in SHARES]
        yield lambda best: [replace(best, policy=p, bundle=b) for p, b in self.policies]
        yield lambda best: [
            replace(best, predictor=p, is_refitted=refitted) for p, refitted in self.predictors
        ]
        yield lambda best: [replace(best, own=own) for own in OWNS]
        yield lambda best: [replace(best, max_delay_s=delay_s) for delay_s in LONGEST_DELAYS_S]


@dataclass(frozen=True, slots=True)
class Tried:
    """An order on a part of the record. change: against the order in force. longest: its longest
    wait over that of Slurm's own order. keeps: whether that is within the price.
    """

    candidate: Candidate
    scores: JobScores
    change: Comparison
    longest: float
    keeps: bool


class Period:
    """A part of a record on which orders are compared, each by its scored jobs after the split.

    played, natural: Slurm's own order there. days: of the jobs' arrival.
    """

    def __init__(self, past: Past, daemon: Protocol) -> None:
        self.past, self._daemon = past, daemon
        self._scenario = scenario_of(past)
        self._mask: NDArray[np.bool_] = past.later
        self._arrived_s: FloatArray = past.arrived_s[self._mask]
        self._run_s = np.array([job.duration_s for job in past.jobs])[self._mask]
        of = np.floor((self._arrived_s - past.split_s) / DAY_S).astype(np.int64)
        self.days = Stretches(of, 0, DAY_S).part(np.ones(len(of), dtype=bool))
        self.played = play_natural(past, self._scenario, daemon.interval_s)
        self.natural = self._scores(self.played)

    def __len__(self) -> int:
        return len(self._arrived_s)

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

    def tried(self, candidate: Candidate, incumbent: JobScores, price: float) -> Tried:
        """An order beside the one in force and Slurm's own; price: see keeps_price."""
        scores = self.play(candidate)
        return Tried(
            candidate,
            scores,
            compared(incumbent, scores, self.days),
            scores.longest_s / max(self.natural.longest_s, 1.0),
            self.keeps_price(scores, incumbent, price),
        )

    def keeps_price(self, scores: JobScores, incumbent: JobScores, price: float) -> bool:
        """Whether the longest wait is within the price, or that of the order in force."""
        bound_s = max(price * self.natural.longest_s, incumbent.longest_s) + TOLERANCE_S
        return scores.longest_s <= bound_s

    def _scores(self, played: Played) -> JobScores:
        wait_s = played.start_s[self._mask] - self._arrived_s
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


@dataclass(frozen=True, slots=True)
class Searched:
    """The training period. tried: on its whole, the best that keeps the price first. plays: of all
    orders. is_cut: the time was over before all were played.
    """

    whole: Period
    tried: list[Tried]
    plays: int
    is_cut: bool

    @property
    def best(self) -> Tried | None:
        """What leads the order in force by a standard error, and keeps the price."""
        found = [t for t in self.tried if t.keeps and t.change.leads]
        return found[0] if found else None

    @property
    def next_step(self) -> Tried | None:
        """The least price above the one allowed that buys at least LEAST more."""
        gain = self.best.change.gain if self.best else 0.0
        more = [t for t in self.tried if not t.keeps and t.change.gain >= gain + LEAST]
        return min(more, key=lambda t: t.longest, default=None)


def search(
    past: Past,
    end_s: float,
    incumbent: Candidate,
    choices: Alternatives,
    *,
    price: float,
    daemon: Protocol,
    also: Sequence[Candidate] = (),
    may_play: Callable[[str], bool] = lambda _name: True,
) -> Searched:
    """Search on the training period, past's split to end_s; later jobs are not looked at.

    also: orders that are played on the whole of it in any case. may_play: asked before each play,
    with its name; False ends the search with what there is.
    """
    past = past.switched_on(past.split_s, end_s)
    short_s = min(end_s - past.split_s, max(SHORTEST_S, SHORT_PART * (end_s - past.split_s)))
    plays, is_cut = 0, False

    def played(period: Period, base: JobScores, given: Sequence[Candidate]) -> list[Tried]:
        nonlocal plays, is_cut
        found: list[Tried] = []
        for candidate in given:
            if is_cut := not may_play(candidate.name):
                break
            found.append(period.tried(candidate, base, price))
            plays += 1
        return found

    start = incumbent
    if incumbent.is_first_come:  # from which trust and predictor change nothing
        start = replace(incumbent, own=DEFAULT.own, share=DEFAULT.share)
    short = Period(past.switched_on(end_s - short_s), daemon)
    base = short.play(incumbent)
    tried = played(short, base, [start])
    for step in choices.steps():
        best = _ranked(tried)[0].candidate if tried else start
        new = [c for c in step(best) if not any(c.same_as(t.candidate) for t in tried)]
        tried += played(short, base, new)
    best = _ranked(tried)[0].candidate if tried else start
    left: list[Candidate] = []
    shares = (replace(best, share=share) for share in SHARES)
    for candidate in (*also, *shares, incumbent.first_come()):
        if not any(candidate.same_as(other) for other in (incumbent, *left)):
            left.append(candidate)
    whole = Period(past, daemon)
    found = played(whole, whole.play(incumbent), left)
    return Searched(whole, _ranked(found), plays, is_cut)


def _ranked(tried: Sequence[Tried]) -> list[Tried]:
    """Those that keep the price first, the best of them first."""
    return sorted(tried, key=lambda t: (not t.keeps, -t.change.gain))
