"""Who may take the incumbent's place, with which own part and share: chosen on the training period
alone.

A family is a kind of order: a rule, or a network, with a predictor of run times. Of each family a
grid of own part and share is played on the last part of the training period first; what leads there
is played on the whole training period with each longest delay, beside first come, first served.
What breaks the promise is never chosen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np

from rltuned.core.decide import Policy
from rltuned.lab.backtest.past import Past
from rltuned.lab.backtest.play import play_natural, play_ours, scenario_of
from rltuned.lab.compare import Comparison, JobScores, compared, pooled
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.stats import DAY_S
from rltuned.lab.tune.promise import Promise, ScoredJobs
from rltuned.policies.predictor import Predictor
from rltuned.text import trusted

OWNS: Final = (0.03, 0.1, 0.3)
SHARES: Final = (0.5, 0.75, 1.0, 2.0)
LONGEST_DELAYS_S: Final = (1 * DAY_S, 7 * DAY_S, 14 * DAY_S)
FIRST_DELAY_S: Final = 7 * DAY_S
"""That own part and share are chosen with."""
LEFT: Final = 2
"""So many of a family are played on the whole training period."""
JITTER_S: Final = 60.0
SHORT_PART: Final = 0.25
SHORTEST_S: Final = 3 * DAY_S
"""The last part of the training period that prunes, and at least so long."""


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of order.

    Attributes:
        name: for people.
        policies: the same with other exponents of the GPUs; the first is the plain one.
        predictor: of run times; None = time limits alone.
        site_predictor: it was fitted to this site's training period, and belongs into the
        generation. bundle: of the network; None = a rule.
    """

    name: str
    policies: tuple[Policy, ...]
    predictor: Predictor | None
    site_predictor: bool = False
    bundle: Path | None = None

    @property
    def is_rule(self) -> bool:
        return self.bundle is None


@dataclass(frozen=True, slots=True)
class Entrant:
    """One order: a family with all that the daemon's settings would say."""

    family: Family
    policy: Policy
    own: float
    share: float
    max_delay_s: float

    @property
    def name(self) -> str:
        days = self.max_delay_s / DAY_S
        return (
            f"{trusted(self.policy.name, self.policy.trust)}, own {self.own:g}, "
            f"share {self.share:g}, max_delay {days:g} days"
        )

    @property
    def is_first_come(self) -> bool:
        """First come, first served, whatever the policy."""
        return self.own == self.share == 0

    def same_as(self, other: "Entrant") -> bool:
        """Whether the daemon would decide the same."""
        if self.is_first_come or other.is_first_come:
            return self.is_first_come and other.is_first_come
        mine, theirs = (
            (id(e.policy), e.own, e.share, e.max_delay_s, id(e.family.predictor))
            for e in (self, other)
        )
        return mine == theirs


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen of a family, and how it did on the training period against the incumbent.

    broken: why no member keeps the promise; empty = this one does.
    """

    entrant: Entrant
    training: Comparison
    broken: tuple[str, ...]
    played: int


class Course:
    """A part of a record on which orders are compared.

    played, natural: Slurm's own order there.
    """

    def __init__(self, past: Past, daemon: Protocol) -> None:
        self.past, self._daemon = past, daemon
        self._scenario = scenario_of(past)
        self.jobs = ScoredJobs.of(past)
        self.played = play_natural(past, self._scenario, daemon.interval_s)
        self.natural = self.jobs.scores(self.played)

    def play(self, entrant: Entrant, copy: int = 0) -> JobScores:
        """One order, in the daemon's own cycles.

        copy: 0 = the record itself; else one in which the jobs that come after the split end up to
        JITTER_S earlier or later, the same for every order.
        """
        scenario = self._scenario if copy == 0 else self._jittered(copy)
        knobs = self._daemon.knobs
        order = replace(
            knobs.order, own=entrant.own, share=entrant.share, max_delay_s=entrant.max_delay_s
        )
        protocol = replace(
            self._daemon, knobs=replace(knobs, order=order), predictor=entrant.family.predictor
        )
        return self.jobs.scores(play_ours(self.past, scenario, entrant.policy, protocol))

    def _jittered(self, copy: int) -> Scenario:
        prepared, past = self._scenario.prepared, self.past
        draw = np.random.default_rng(copy)
        moved_s = draw.uniform(-JITTER_S, JITTER_S, len(past.jobs)).round()
        moved_s[past.arrived_s < past.split_s] = 0.0
        runs_s = prepared.jobs.runs_s
        jittered = np.clip(runs_s + moved_s, np.minimum(runs_s, 1.0), self._scenario.limit_s)
        jobs = prepared.jobs._replace(runs_s=jittered)
        return replace(self._scenario, prepared=replace(prepared, jobs=jobs))


class TrainingPeriod:
    """The training period: its last part, and the whole, with the incumbent played on both.

    end_s: of the training period, seconds since the record's begin; later jobs are not looked at.
    """

    def __init__(
        self,
        past: Past,
        end_s: float,
        incumbent: Entrant,
        promise: Promise,
        daemon: Protocol,
        *,
        on_play: Callable[[str], None] = lambda _name: None,
    ) -> None:
        past = past.switched_on(past.split_s, end_s)
        span_s = end_s - past.split_s
        short_s = min(span_s, max(SHORTEST_S, SHORT_PART * span_s))
        self.whole = Course(past, daemon)
        self.short = Course(past.switched_on(end_s - short_s), daemon)
        self._promise, self._on_play = promise, on_play
        self._own = {id(c): c.play(incumbent) for c in (self.whole, self.short)}
        self.incumbent = incumbent

    def again(self, choice: Choice, copies: int) -> Comparison:
        """The same choice on further copies of the training period; see compare.pooled."""
        found = [choice.training]
        for copy in range(1, copies):
            both = []
            for entrant in (self.incumbent, choice.entrant):
                self._on_play(f"training period, copy {copy}: {entrant.name}")
                both.append(self.whole.play(entrant, copy))
            found.append(compared(both[0], both[1], self.whole.jobs.days))
        return pooled(found)

    def choose(self, family: Family) -> Choice:
        """The best member of a family that keeps the promise on the training period."""
        pairs = {(self.incumbent.own, self.incumbent.share), *product(OWNS, SHARES)}
        grid = [
            Entrant(family, policy, own, share, FIRST_DELAY_S)
            for policy in family.policies
            for own, share in sorted(pairs)
        ]
        first = self._best(self.short, grid)
        left = [
            replace(choice.entrant, max_delay_s=delay_s)
            for choice in first[:LEFT]
            for delay_s in LONGEST_DELAYS_S
            if not choice.entrant.is_first_come
        ]
        left.append(Entrant(family, family.policies[0], 0.0, 0.0, FIRST_DELAY_S))
        found = self._best(self.whole, left)[0]
        return replace(found, played=len(first) + len(left))

    def alone(self, entrant: Entrant) -> Choice:
        """One order as it is, on the whole training period."""
        return self._best(self.whole, [entrant])[0]

    def _best(self, course: Course, entrants: Sequence[Entrant]) -> list[Choice]:
        """All of them, those that keep the promise first, the best of them first."""
        found = []
        for entrant in entrants:
            self._on_play(entrant.name)
            own, incumbent = course.play(entrant), self._own[id(course)]
            broken = self._promise.broken(course.jobs, course.natural, incumbent, own)
            change = compared(incumbent, own, course.jobs.days)
            found.append(Choice(entrant, change, tuple(broken), len(entrants)))
        return sorted(found, key=lambda c: (len(c.broken) > 0, -c.training.gain))


def pick(choices: Sequence[Choice], incumbent: Entrant) -> Choice | None:
    """The one that is tested: the incumbent's own order, unless another leads on the training
    period.

    A network is taken only where it is better than the best rule by a standard error. None = no
    candidate keeps the promise and leads.
    """
    able = [c for c in choices if not c.broken and not c.entrant.same_as(incumbent)]
    leading = sorted((c for c in able if c.training.leads), key=lambda c: -c.training.gain)
    rules = [c for c in leading if c.entrant.family.is_rule]
    if not leading:
        return None
    best = leading[0]
    if rules and not best.entrant.family.is_rule:
        margin = best.training.error or 0.0
        changes = [c.training.objective.change or 0.0 for c in (rules[0], best)]
        if changes[0] - changes[1] < margin:
            return rules[0]
    return best
