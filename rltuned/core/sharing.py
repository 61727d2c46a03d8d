"""OverSubscribe guidance: which exclusive jobs may be told to share their nodes, and why not.

`scontrol update OverSubscribe=YES` on a pending `--exclusive` job makes Slurm give it what it asked
for instead of whole nodes. It cannot be taken back in full: docs/placement.md says what can.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rltuned.core.planning import target_of
from rltuned.domain.cluster import Partition
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import SetOverSubscribe
from rltuned.domain.snapshot import Snapshot

SHARED: Final = "YES"
ALONE: Final = "NO"


class Void(StrEnum):
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
    """Where exclusive jobs may be told to share.

    Attributes:
        partitions: the scope; empty = nowhere. A multi-partition job is in it only as a whole.
        allow_cpu_sharing: also in partitions with OverSubscribe=YES, where Slurm then puts several
            such jobs on one CPU.
    """

    partitions: frozenset[str] = frozenset()
    allow_cpu_sharing: bool = False


def obstacle(job: PendingJob, snapshot: Snapshot, sharing: Sharing) -> Void | None:
    """Why an exclusive job may not be told to share; None = it may."""
    if not sharing.partitions.issuperset(job.partitions):
        return Void.NOT_IN_SCOPE
    if job.oversubscribe != ALONE:
        return Void.NOT_BY_FLAG
    known: Mapping[str, Partition] = {p.name: p for p in snapshot.partitions}
    for name in job.partitions:
        if name not in known:
            return Void.PARTITION_UNKNOWN
        found = _by_partition(known[name], sharing)
        if found is not None:
            return found
    if snapshot.preemption is None:
        return Void.PREEMPTION_UNKNOWN
    return Void.PREEMPTION if snapshot.preemption else None


def _by_partition(partition: Partition, sharing: Sharing) -> Void | None:
    # such as NO, YES:4, FORCE:4, EXCLUSIVE
    setting = partition.oversubscribe.upper().partition(":")[0]
    if setting == "NO":
        return None
    if setting == "YES":
        return None if sharing.allow_cpu_sharing else Void.CPU_SHARING
    return Void.FORCED


def tell_to_share(job: PendingJob) -> SetOverSubscribe:
    """The action that lets others onto the nodes of an exclusive job."""
    return SetOverSubscribe(target_of(job), job.oversubscribe, SHARED)
