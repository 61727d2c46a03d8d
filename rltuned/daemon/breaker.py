"""What blocks with and without delays say of the waits, and the circuit breakers of partitions.

A coin decided which block of a pair was on, so the mean difference of the pairs is the effect of
delays, whatever the queue did meanwhile; pairs, not jobs, are what chance may vary.

An open breaker demotes its partition: its jobs leave the scope, and those with a number of
rltuned's get their own standing back. It is kept in the journal, stays open over restarts, and is
closed by a person only, with `rltuned breaker reset`.
"""

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
from enum import StrEnum
from math import sqrt
from statistics import fmean
from typing import Any, Final

from rltuned.core.ladder import Evidence, difference
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import HELD, Outcome, Result
from rltuned.journal.journal import Journal
from rltuned.journal.store import Kept
from rltuned.stats import Word, t95, word_of

FEWEST: Final = 10
"""Pairs below which no interval is given."""
WORDS: Final[dict[Word, str]] = {
    "better": "it helps",
    "worse": "it harms",
    "no proven difference": "chance can explain it",
}
_FEWEST_USERS: Final = 2
_RIGHTS: Final = "permission denied"
"""In Slurm's refusal when rltuned lacks the rights: no user can cause that for another."""


@dataclass(frozen=True, slots=True)
class PairFigure:
    """One figure of a pair: by user, the mean over the user's jobs in the on and the off block."""

    on: Mapping[str, float]
    off: Mapping[str, float]

    @property
    def means(self) -> tuple[float, float] | None:
        """Over the users of each block; None = one has no user."""
        return (fmean(self.on.values()), fmean(self.off.values())) if self.on and self.off else None


@dataclass(frozen=True, slots=True)
class Pair:
    """A decided pair. wait: in seconds; slowdown: bounded, if each job runs to its limit."""

    partition: str
    wait: PairFigure
    slowdown: PairFigure


@dataclass(frozen=True, slots=True)
class Effect:
    """Sums over pairs of blocks with jobs in both: mean waits, squares of their differences."""

    pairs: int = 0
    on_sum_s: float = 0.0
    off_sum_s: float = 0.0
    squares: float = 0.0

    def __add__(self, other: "Effect") -> "Effect":
        return Effect(*map(operator.add, astuple(self), astuple(other)))

    @staticmethod
    def of(on_s: float, off_s: float) -> "Effect":
        return Effect(1, on_s, off_s, (on_s - off_s) ** 2)

    @property
    def interval_s(self) -> tuple[float, float, float] | None:
        """Mean wait of on less off blocks, and its 95 % interval; None = too few pairs."""
        if self.pairs < FEWEST:
            return None
        apart_s = (self.on_sum_s - self.off_sum_s) / self.pairs
        spread = max(0.0, self.squares - self.pairs * apart_s**2) / (self.pairs - 1)
        reach_s = t95(self.pairs - 1) * sqrt(spread / self.pairs)
        return apart_s, apart_s - reach_s, apart_s + reach_s

    @property
    def helps(self) -> bool:
        """Whether waits are shorter in on blocks, and chance cannot explain it."""
        found = self.interval_s
        return found is not None and word_of(*found[1:]) == "better"

    @property
    def verdict(self) -> str:
        if (found := self.interval_s) is None:
            return f"{self.pairs} of {FEWEST} pairs of blocks are measured"
        apart_s, low_s, high_s = found
        return (
            f"{WORDS[word_of(low_s, high_s)]}: mean wait {self.on_sum_s / self.pairs:.0f} s in on "
            f"blocks, {self.off_sum_s / self.pairs:.0f} s in off blocks of {self.pairs} pairs, "
            f"{apart_s:+.0f} s, 95 % interval {low_s:+.0f} to {high_s:+.0f} s"
        )

    def document(self) -> dict[str, Any]:
        """For JSON; what is not known is null."""
        apart_s, low_s, high_s = self.interval_s or (None, None, None)
        return {
            "pairs": self.pairs,
            "on_s": self.on_sum_s / self.pairs if self.pairs else None,
            "off_s": self.off_sum_s / self.pairs if self.pairs else None,
            "difference_s": apart_s,
            "low_s": low_s,
            "high_s": high_s,
            "verdict": self.verdict,
        }


class Cause(StrEnum):
    """Why a breaker opened. The value is the metric label and the log word."""

    ERRORS = "errors"
    WAIT = "wait"
    SLOWDOWN = "slowdown"


@dataclass(frozen=True, slots=True)
class Breaker:
    """One partition's. opened_at: Unix seconds; None = closed. errors: cycles in a row in which
    Slurm did not take most changes. model: digest or name of what the rest is about. harm: by
    cause, the evidence that delays do harm. waits: in on and in off blocks.
    """

    opened_at: float | None = None
    cause: Cause | None = None
    detail: str = ""
    errors: int = 0
    model: str = ""
    harm: Mapping[Cause, Evidence] = field(default_factory=dict)
    waits: Effect = field(default_factory=Effect)

    @property
    def is_open(self) -> bool:
        return self.opened_at is not None

    def opened(self, cause: Cause, detail: str, at: float) -> "Breaker":
        return Breaker(opened_at=at, cause=cause, detail=detail)


Breakers = Mapping[str, Breaker]
"""By partition."""
BREAKERS: Final[Kept[dict[str, Breaker]]] = Kept("breakers", dict[str, Breaker], "circuit breakers")
"""Those of every cluster; a partition that is not named has a closed one."""


def breakers(journal: Journal, cluster: str) -> dict[str, Breaker]:
    """Those of one cluster; raises as Kept.read."""
    return BREAKERS.read(journal).get(cluster, {})


def demoted(journal: Journal, cluster: str) -> tuple[str, ...]:
    """The partitions whose breaker is open; raises as Kept.read."""
    return tuple(sorted(name for name, b in breakers(journal, cluster).items() if b.is_open))


def effect(known: Breakers, model: str) -> Effect:
    """What is known of the effect of delays, over all partitions, under one model."""
    return sum((b.waits for b in known.values() if b.model == model), Effect())


def change(
    journal: Journal, cluster: str, alter: Callable[[Breakers], Breakers], at: float
) -> Breakers:
    """Put altered breakers in place of a cluster's, when they differ; returns them."""
    return BREAKERS.change(journal, cluster, lambda known: dict(alter(known or {})), at)


def reset(journal: Journal, partition: str | None, at: float) -> list[tuple[str, str]]:
    """Close breakers, of one partition or of all; returns (cluster, partition) of the open ones."""
    closed: list[tuple[str, str]] = []

    def put(every: dict[str, dict[str, Breaker]]) -> dict[str, dict[str, Breaker]]:
        closed[:] = [
            (cluster, name)
            for cluster, those in every.items()
            for name, breaker in those.items()
            if breaker.is_open and partition in {None, name}
        ]
        return {
            cluster: {name: b for name, b in those.items() if (cluster, name) not in closed}
            for cluster, those in every.items()
        }

    BREAKERS.alter(journal, put, at)
    return sorted(closed)


def failing(pending: Iterable[PendingJob], outcomes: Iterable[Outcome]) -> dict[str, str]:
    """Partitions, of those that changes were sent to, with what went wrong; empty text = nothing.

    Users are counted, not changes, so that no user with many jobs decides. A user counts when Slurm
    refused, or shows otherwise when read back, more than half of the changes to their jobs; a
    partition fails when more than half of its users count, and at least two: one user can undo
    every change to their own jobs. Where rltuned lacks the rights one is enough.

    No evidence is a job that is held by now, that has left the queue, or to which nothing was sent.
    """
    jobs = {job.job_id: job for job in pending}
    balance, details = Counter[tuple[str, str]](), dict[str, str]()
    for outcome in outcomes:
        job, is_bad = jobs.get(outcome.action.target.job_id), outcome.result is not Result.APPLIED
        unsent = outcome.result in {Result.WITHHELD, Result.GONE}
        if job is None or unsent or (is_bad and outcome.detail == HELD):
            continue
        for name in job.partitions:
            balance[name, job.user] += 1 if is_bad else -1
            if is_bad:
                details.setdefault(name, outcome.detail)
    found = {}
    for name in {name for name, _ in balance}:
        users = [count > 0 for (one, _), count in balance.items() if one == name]
        count, detail = sum(users), details.get(name, "")
        enough = count >= _FEWEST_USERS or _RIGHTS in detail.lower()
        words = f"changes not taken, of {count} of {len(users)} users: {detail}"
        found[name] = words if enough and 2 * count > len(users) else ""
    return found


def count_errors(
    before: Breakers, failures: Mapping[str, str], most: int, at: float
) -> dict[str, Breaker]:
    """The breakers after one cycle's changes: the errors counted, and opened at `most` in a row."""
    after = dict(before)
    for name, detail in failures.items():
        breaker = before.get(name, Breaker())
        if breaker.is_open:
            continue
        errors = breaker.errors + 1 if detail else 0
        if errors >= most:
            after[name] = breaker.opened(Cause.ERRORS, f"{errors} cycles in a row: {detail}", at)
        elif errors != breaker.errors:
            after[name] = replace(breaker, errors=errors)
    return after


def weigh(
    before: Breakers, pair: Pair, *, margin: float, at: float, model: str
) -> dict[str, Breaker]:
    """The breakers after one more pair of blocks. margin: the share by which waits may be longer in
    on blocks. model: of the on block; what is known of another one is dropped, never pooled.
    """
    breaker = before.get(pair.partition, Breaker())
    means = pair.wait.means
    if breaker.is_open or means is None:
        return dict(before)
    if breaker.model != model:
        breaker = replace(breaker, model=model, harm={}, waits=Effect())
    harm = dict(breaker.harm)
    for cause, figure in ((Cause.WAIT, pair.wait), (Cause.SLOWDOWN, pair.slowdown)):
        found = difference(figure.on, figure.off)
        if found is not None:
            harm[cause] = harm.get(cause, Evidence()).after(found, margin)
    after = replace(breaker, harm=harm, waits=breaker.waits + Effect.of(*means))
    for cause, evidence in harm.items():
        if evidence.is_enough:
            detail = f"a longer {cause} in on blocks: {evidence.value:.0f} to 1"
            after = breaker.opened(cause, f"{detail} after {evidence.pairs} pairs of blocks", at)
    return {**before, pair.partition: after}
