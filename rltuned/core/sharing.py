"""OverSubscribe guidance: which exclusive jobs may share their nodes. core/milp says which should.

`scontrol update OverSubscribe=YES` on a pending `--exclusive` job makes Slurm give it what it asked
for instead of whole nodes. It cannot be taken back in full: docs/operations.md says what can.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rltuned.domain.cluster import Partition
from rltuned.domain.jobs import PendingJob
from rltuned.domain.snapshot import Snapshot

SHARED: Final = "YES"
ALONE: Final = "NO"


class SharingBlocker(StrEnum):
    """Why a job's flag is left alone. The value is the log word."""

    NOT_IN_SCOPE = "partition not in the scope of [oversubscribe]"
    FORCED = "the partition shares or isolates by itself (FORCE or EXCLUSIVE): the flag is void"
    CPU_SHARING = "the partition lets such jobs share CPUs (YES): not allowed by the settings"
    PARTITION_UNKNOWN = "Slurm does not show its partition"
    PREEMPTION = "preemption is on: the job could not be isolated again"
    PREEMPTION_UNKNOWN = "it is not known whether preemption is on"
    NOT_BY_FLAG = "its nodes are not its own by a flag of the job"


@dataclass(frozen=True, slots=True)
class Sharing:
    """Where exclusive jobs may be set to share. partitions: a multi-partition job is in scope only
    as a whole. allow_cpu_sharing: also with OverSubscribe=YES, where such jobs share CPUs.
    """

    partitions: frozenset[str] = frozenset()
    allow_cpu_sharing: bool = False


def blocker(job: PendingJob, snapshot: Snapshot, sharing: Sharing) -> SharingBlocker | None:
    """Why an exclusive job may not be set to share; None = it may."""
    if not sharing.partitions.issuperset(job.partitions):
        return SharingBlocker.NOT_IN_SCOPE
    if job.oversubscribe != ALONE:
        return SharingBlocker.NOT_BY_FLAG
    known: Mapping[str, Partition] = {p.name: p for p in snapshot.partitions}
    for name in job.partitions:
        if name not in known:
            return SharingBlocker.PARTITION_UNKNOWN
        # such as NO, YES:4, FORCE:4, EXCLUSIVE
        setting = known[name].oversubscribe.upper().partition(":")[0]
        if setting == "YES" and not sharing.allow_cpu_sharing:
            return SharingBlocker.CPU_SHARING
        if setting not in {"NO", "YES"}:
            return SharingBlocker.FORCED
    if snapshot.preemption is None:
        return SharingBlocker.PREEMPTION_UNKNOWN
    return SharingBlocker.PREEMPTION if snapshot.preemption else None
