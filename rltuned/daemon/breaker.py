"""The circuit breakers: per partition, kept in the journal, opened by us, closed by a person only.

An open one demotes its partition: jobs there are not ours any more, and those that we wrote to get
their own standing back. It stays open over restarts until `rltuned breaker reset`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from pydantic import ConfigDict, TypeAdapter

from rltuned.core.evidence import Evidence
from rltuned.daemon.memory import Memory, Recall, read_kept
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import HELD, Outcome, Result

_NAME: Final = "breakers"
"""Under which the journal keeps them: cluster -> partition -> breaker."""


_MODELS: Final = 8
"""Of so many earlier models the evidence is kept."""
_FEWEST_USERS: Final = 2
_RIGHTS: Final = "permission denied"
"""In Slurm's refusal when we lack the rights: no user can bring that about for another."""


class Cause(StrEnum):
    """Why a breaker opened. The value is the metric label and the log word."""

    ERRORS = "errors"
    WAIT = "wait"
    SLOWDOWN = "slowdown"


@dataclass(frozen=True, slots=True)
class Breaker:
    """One partition's.

    Attributes:
        opened_at: Unix seconds; None = closed.
        cause, detail: why it opened, in one word and in one line.
        errors: cycles in a row in which Slurm did not take most of the changes.
        evidence: by cause, how strongly the canary speaks for harm, of the model in force.
        model: that model's digest, or the name of a rule.
        others: by model, the evidence of those that were in force before.
    """

    opened_at: float | None = None
    cause: Cause | None = None
    detail: str = ""
    errors: int = 0
    evidence: Mapping[Cause, Evidence] = field(default_factory=dict)
    model: str = ""
    others: Mapping[str, Mapping[Cause, Evidence]] = field(default_factory=dict)

    def under(self, model: str) -> "Breaker":
        """The same with this model in force: evidence of two models is never pooled."""
        if model == self.model:
            return self
        others = {**self.others, self.model: self.evidence} if self.evidence else {**self.others}
        evidence = others.pop(model, {})
        kept = dict(list(others.items())[-_MODELS:])
        return replace(self, evidence=evidence, model=model, others=kept)

    @property
    def is_open(self) -> bool:
        return self.opened_at is not None

    def opened(self, cause: Cause, detail: str, at: float) -> "Breaker":
        return Breaker(opened_at=at, cause=cause, detail=detail)


Breakers = Mapping[str, Breaker]
"""By partition."""
NONE: Final[Breakers] = MappingProxyType({})

_ADAPTER: Final = TypeAdapter(dict[str, dict[str, Breaker]], config=ConfigDict(extra="forbid"))


def clusters(memory: Recall) -> dict[str, dict[str, Breaker]]:
    """The breakers of every cluster; a partition that is not named has a closed one.

    Raises:
        JournalError: the journal cannot be used, or what it says of them cannot be read.
    """
    return _read(memory.recall(_NAME))


def _read(kept: object) -> dict[str, dict[str, Breaker]]:
    return read_kept(_ADAPTER, kept, "circuit breakers in the journal")


def breakers(memory: Recall, cluster: str) -> dict[str, Breaker]:
    """Those of one cluster, see clusters()."""
    return clusters(memory).get(cluster, {})


def demoted(memory: Recall, cluster: str) -> tuple[str, ...]:
    """The partitions whose breaker is open.

    Raises:
        JournalError: the journal cannot be used or read.
    """
    return tuple(sorted(name for name, b in breakers(memory, cluster).items() if b.is_open))


def change(
    memory: Memory, cluster: str, alter: Callable[[Breakers], Breakers], at: float
) -> Breakers:
    """Put altered breakers in place of a cluster's, when they differ; returns them.

    In one piece: what a person closes meanwhile, in another process, is closed before or after.
    """
    result: Breakers = {}

    def put(kept: object) -> object:
        nonlocal result
        everywhere = _read(kept)
        before = everywhere.get(cluster, {})
        result = alter(before)
        if result == before:
            return kept
        return _ADAPTER.dump_python({**everywhere, cluster: dict(result)}, mode="json")

    memory.alter(_NAME, put, at)
    return result


def reset(memory: Memory, partition: str | None, at: float) -> list[tuple[str, str]]:
    """Close breakers, of one partition or of all; returns (cluster, partition) of the open ones."""
    closed: list[tuple[str, str]] = []

    def put(kept: object) -> object:
        everywhere = _read(kept)
        closed[:] = [
            (cluster, name)
            for cluster, those in everywhere.items()
            for name, breaker in those.items()
            if breaker.is_open and partition in {None, name}
        ]
        if not closed:
            return kept
        left = {
            cluster: {name: b for name, b in those.items() if (cluster, name) not in closed}
            for cluster, those in everywhere.items()
        }
        return _ADAPTER.dump_python(left, mode="json")

    memory.alter(_NAME, put, at)
    return sorted(closed)


def failing(pending: Iterable[PendingJob], outcomes: Iterable[Outcome]) -> dict[str, str]:
    """Partitions, of those that changes were sent to, with what went wrong; empty text = nothing.

    Users are counted, not changes, so that nobody with many jobs decides. Of a user it is asked
    whether Slurm refused, or shows otherwise when read back, more than half of the changes to
    their jobs; of a partition, whether that is so for more than half of the users, and at least
    two: one user can undo every change to their own jobs. Where we lack the rights one is enough.

    No evidence is a job that is held by now, that has left the queue, or to which nothing was sent.
    """
    jobs = {job.job_id: job for job in pending}
    bad: Counter[tuple[str, str]] = Counter()
    good: Counter[tuple[str, str]] = Counter()
    said: dict[str, str] = {}
    for outcome in outcomes:
        job = jobs.get(outcome.action.target.job_id)
        if job is None or outcome.result in {Result.WITHHELD, Result.GONE}:
            continue
        if outcome.result is Result.APPLIED:
            good.update((name, job.user) for name in job.partitions)
        elif outcome.detail != HELD:
            bad.update((name, job.user) for name in job.partitions)
            for name in job.partitions:
                said.setdefault(name, outcome.detail)
    users = {*bad, *good}
    return {
        name: _verdict([bad[key] > good[key] for key in users if key[0] == name], said.get(name))
        for name in {name for name, _ in users}
    }


def _verdict(failing: list[bool], said: str | None) -> str:
    count = sum(failing)
    enough = count >= _FEWEST_USERS or _RIGHTS in (said or "").lower()
    if not enough or 2 * count <= len(failing):
        return ""
    return f"changes not taken, of {count} of {len(failing)} users: {said}"


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
    before: Breakers,
    partition: str,
    cause: Cause,
    share: float,
    *,
    margin: float,
    at: float,
    model: str = "",
) -> dict[str, Breaker]:
    """The breakers after one more block of a partition's canary, opened when it is enough.

    Args:
        before: as they were.
        partition: where the block's jobs are.
        cause: what was compared.
        share: of the pairs, in which the treated job fared worse.
        margin: by how much that may be above 1/2.
        at: now.
        model: digest of the model, or name of the rule, that the block was treated by.
    """
    breaker = before.get(partition, Breaker()).under(model)
    if breaker.is_open:
        return dict(before)
    evidence = breaker.evidence.get(cause, Evidence()).after(share, margin)
    if evidence.is_enough:
        detail = f"treated jobs have a longer {cause} than their control: {evidence.value:.0f} to 1"
        return {**before, partition: breaker.opened(cause, detail, at)}
    return {**before, partition: replace(breaker, evidence={**breaker.evidence, cause: evidence})}
