"""Blocks of jobs that joined a canary's trial one after the other, and how long each then waited.

A block is made of arrivals and not of starts: a policy that lets some jobs wait for ever would look
good by the jobs that do start. A job that left without being seen to start, or that anybody but us
has changed or held (touched.py), is taken out of its block, and the jobs of one user alone are no
block: no user may steer what a block says.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from rltuned.core.evidence import worse_share
from rltuned.daemon.claims import JobKey
from rltuned.daemon.outcomes import Arm, Started, unit_of
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId

HORIZON_S: Final = 86_400.0
"""A wait of more than a day counts as one: the verdict on a block must come some day."""
FEWEST_USERS: Final = 2
"""Whose jobs a block must hold: one user alone is no evidence."""


@dataclass(slots=True)
class _Member:
    """joined_at: when the lot first counted. wait_s: from then to its start; None = it waits.

    out: it is no evidence any more.
    """

    arm: Arm
    joined_at: float
    user: str
    wait_s: float | None = None
    out: bool = False

    def is_awaited(self, now: float) -> bool:
        return not self.out and self.wait_s is None and now - self.joined_at < HORIZON_S

    def counted_s(self) -> float:
        return HORIZON_S if self.wait_s is None else min(self.wait_s, HORIZON_S)


@dataclass(slots=True)
class _Partition:
    """filling: not full yet; waiting: full, but somebody waits whose wait may still count."""

    filling: dict[JobKey, _Member] = field(default_factory=dict)
    waiting: list[dict[JobKey, _Member]] = field(default_factory=list)


class Cohorts:
    """The blocks of every partition.

    Args:
        size: jobs of a block; an array counts once.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._partitions: dict[str, _Partition] = defaultdict(_Partition)
        self._open: dict[JobKey, _Member] = {}
        self._known: set[JobKey] = set()

    def look(
        self,
        seen: Snapshot,
        arms: Mapping[JobId, Arm],
        started: Iterable[Started],
        *,
        joining: bool,
        touched: Collection[JobKey] = (),
    ) -> list[tuple[str, float]]:
        """Take in one look.

        Args:
            seen: the cluster now.
            arms: the side of every pending job.
            started: who has started since the last look.
            joining: whether new jobs join, because the treated are treated now.
            touched: units that anybody but us has changed.

        Returns:
            Of the blocks that are decided now: partition, and share of the pairs in which the
            treated job waited longer.
        """
        for name in seen.demoted:
            # once its breaker is closed again, what had opened it must not do so anew
            self._partitions.pop(name, None)
        self._settle(seen, started, touched)
        if joining:
            self._join(seen, arms)
        return list(self._decided(seen.taken_at))

    def _settle(
        self, seen: Snapshot, started: Iterable[Started], touched: Collection[JobKey]
    ) -> None:
        for unit in self._open.keys() & set(touched):
            self._drop(unit)
        for job in started:
            member = self._open.pop(job.unit, None)
            if member is not None:
                member.wait_s = max(0.0, job.started_at - member.joined_at)
        pending = {unit_of(job) for job in seen.pending}
        self._known &= pending
        # cancelled, requeued, or started and ended between two looks: its wait is not known
        for unit in self._open.keys() - pending:
            self._drop(unit)

    def _drop(self, unit: JobKey) -> None:
        """Its place in the block stays empty: who joins must not depend on what users do later."""
        self._open.pop(unit).out = True

    def _join(self, seen: Snapshot, arms: Mapping[JobId, Arm]) -> None:
        for job in seen.pending:
            unit, arm = unit_of(job), arms.get(job.job_id, Arm.OTHER)
            if unit in self._known or arm is Arm.OTHER:
                continue
            member = _Member(arm, seen.taken_at, job.user)
            self._known.add(unit)
            self._open[unit] = member
            of = self._partitions[job.partitions[0]]
            of.filling[unit] = member
            if len(of.filling) == self._size:
                of.waiting.append(of.filling)
                of.filling = {}

    def _decided(self, now: float) -> Iterable[tuple[str, float]]:
        for name, of in self._partitions.items():
            left = []
            for block in of.waiting:
                if any(m.is_awaited(now) for m in block.values()):
                    left.append(block)
                elif (share := _share(block.values())) is not None:
                    yield name, share
            of.waiting = left


def _share(block: Iterable[_Member]) -> float | None:
    sides: dict[Arm, list[float]] = {Arm.TREATED: [], Arm.CONTROL: []}
    left = [member for member in block if not member.out]
    if len({member.user for member in left}) < FEWEST_USERS:
        return None
    for member in left:
        sides[member.arm].append(member.counted_s())
    return worse_share(sides[Arm.TREATED], sides[Arm.CONTROL])
