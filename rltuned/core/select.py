"""Which pending jobs rltuned may touch, with a reason for every one that it may not."""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property
from itertools import chain
from typing import Final

from rltuned.core.capacity import Capacity
from rltuned.core.ladder import Switchback
from rltuned.core.numbers import base_now
from rltuned.core.placement import width
from rltuned.core.refusals import Refusal
from rltuned.domain.jobs import PendingJob, is_sayable
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId, NodeName

# What Slurm's reasons for a pending job mean: whether it waits for its turn alone.
#
# One table for the releases 22.05 to 26.05 (squeue(1), JOB REASON CODES). A word that is not in it
# is none that an order of the queue is known to change.


class ReasonKind(Enum):
    """What a reason says of a job's place."""

    TURN = auto()
    """The job waits for its turn, or for nodes."""
    BLOCKED = auto()
    """It waits for what no order of the queue gives it."""
    NEVER = auto()
    """As it is asked for it can never start."""


_TURN, _BLOCKED, _NEVER = ReasonKind.TURN, ReasonKind.BLOCKED, ReasonKind.NEVER


@dataclass(frozen=True, slots=True)
class Reason:
    """words: of several jobs, for people; empty = Slurm's own word says it."""

    kind: ReasonKind
    words: str = ""


_LIMIT: Final = Reason(_BLOCKED, "a limit of their QOS, account or association is reached")
_AGAIN: Final = Reason(_TURN, "their last run ended so, and they wait again")
REASONS: Final[Mapping[str, Reason]] = {
    "None": Reason(_TURN, "Slurm has not looked at them yet"),
    "Priority": Reason(_TURN, "other jobs stand before them"),
    "Resources": Reason(_TURN, "first in line: GPUs, CPUs or memory are not free yet"),
    # Slurm 24.11 says it also of a job behind another for the same nodes
    "ReqNodeNotAvail": Reason(
        _TURN, "nodes that they ask for are down, reserved or kept for jobs before them"
    ),
    "Nodes required for job are DOWN": Reason(
        _TURN, "nodes that they ask for are down, drained or kept for partitions before theirs"
    ),
    "JobArrayTaskLimit": Reason(_TURN, "as many tasks of their array run as it allows"),
    "NodeDown": _AGAIN,
    "SystemFailure": _AGAIN,
    "JobLaunchFailure": _AGAIN,
    "NonZeroExitCode": _AGAIN,
    "RaisedSignal": _AGAIN,
    "TimeLimit": _AGAIN,
    "InactiveLimit": _AGAIN,
    "OutOfMemory": _AGAIN,
    "Dependency": Reason(_BLOCKED, "they wait for another job"),
    "BeginTime": Reason(_BLOCKED, "their begin time has not come"),
    "JobHeldUser": Reason(_BLOCKED, "held by their user"),
    "JobHeldAdmin": Reason(_BLOCKED, "held by an administrator"),
    "Reservation": Reason(_BLOCKED, "they wait for a reservation"),
    "Licenses": Reason(_BLOCKED, "licences are in use"),
    "BurstBufferResources": Reason(_BLOCKED, "the burst buffer has no room"),
    "BurstBufferStageIn": Reason(_BLOCKED, "the burst buffer is being filled"),
    "Prolog": Reason(_BLOCKED, "their prolog runs"),
    "Cleaning": Reason(_BLOCKED, "their last run is not cleaned up yet"),
    "FedJobLock": Reason(_BLOCKED, "another cluster of the federation is starting them"),
    "FrontEndDown": Reason(_BLOCKED, "no front end is up"),
    "MpiPortsBusy": Reason(_BLOCKED, "MPI ports are in use"),
    "NvidiaImexChannels": Reason(_BLOCKED, "IMEX channels are in use"),
    "MaxPoweredUpNodes": Reason(_BLOCKED, "as many nodes are powered up as may be"),
    "PowerNotAvail": Reason(_BLOCKED, "there is not enough power"),
    "PowerReserved": Reason(_BLOCKED, "power is reserved for others"),
    "BlockMaxError": Reason(_BLOCKED),
    "BlockFreeAction": Reason(_BLOCKED),
    "SchedDefer": Reason(_BLOCKED, "they were to start at once or never"),
    "AccountingPolicy": _LIMIT,
    "Job is at or exceeds": _LIMIT,  # what limits of minutes say in place of their word
    "PartitionDown": Reason(_NEVER, "their partition is down"),
    "PartitionInactive": Reason(_NEVER, "their partition is inactive"),
    "PartitionNodeLimit": Reason(_NEVER, "they ask for too many or too few nodes"),
    "PartitionTimeLimit": Reason(_NEVER, "their time limit is longer than their partition allows"),
    "PartitionConfig": Reason(_NEVER, "their partition does not take such jobs"),
    "MaxMemPerLimit": Reason(_NEVER, "they ask for more memory than their partition allows"),
    "BadConstraints": Reason(_NEVER, "no node has what they ask for"),
    "Constraints": Reason(_NEVER, "no node has what they ask for"),
    "BurstBufferOperation": Reason(_NEVER, "the burst buffer failed"),
    "DeadLine": Reason(_NEVER, "they cannot end before their deadline"),
    "ReservationDeleted": Reason(_NEVER, "their reservation was deleted"),
    "ReservationInvalid": Reason(_NEVER, "their reservation does not take them"),
    "DependencyNeverSatisfied": Reason(_NEVER, "they wait for a job that ended another way"),
    "JobHoldMaxRequeue": Reason(_NEVER, "they were requeued too often"),
    "InvalidAccount": Reason(_NEVER, "their account is none"),
    "InvalidQOS": Reason(_NEVER, "their QOS is none"),
    "AccountNotAllowed": Reason(_NEVER, "their partition does not take their account"),
    "QOSNotAllowed": Reason(_NEVER, "their partition or association does not take their QOS"),
}
"""By Slurm's word, or by the beginning of the sentence that it says in its place."""
_LIMITS: Final = re.compile(r"(QOS|Assoc)\w+|Max\w+Per(Account|User)")
"""The words of limits, a hundred and more."""
_UNKNOWN: Final = Reason(_BLOCKED, "not known here: they are left alone")
_SENTENCES: Final = tuple(word for word in REASONS if " " in word)
_DETAIL: Final = re.compile("[,:]")


def reason_of(text: str) -> Reason:
    """What a reason means as squeue shows it, with its detail; empty = none."""
    word = _DETAIL.split(text, maxsplit=1)[0].strip() or "None"
    known = REASONS.get(word)
    if known is not None:
        return known
    if _LIMITS.fullmatch(word):
        return _LIMIT
    return next((REASONS[one] for one in _SENTENCES if text.startswith(one)), _UNKNOWN)


SETTLE_S = 10.0
"""Slurm 22.05 answers updates of a job whose accounting row is still being written with an error
after five one-second retries inside the controller; leave new jobs alone for that long."""

FEDERATED_FROM = 2**26
"""Local job ids end below it (slurm.conf(5), MaxJobId); in a federation the bits above name the
cluster that a job was submitted to."""


_BEGIN = "BeginTime"
_NOT_AVAILABLE = "ReqNodeNotAvail"
"""What Slurm says of a job whose nodes a reservation keeps, with several details; 24.11 and 26.05
say it also of one that only waits behind another for the same nodes."""
_RESERVED = re.compile(r"\b(RESERVED|MAINT)")


@dataclass(frozen=True, slots=True)
class Scope:
    """Which jobs are in scope. A job of several partitions is in it by one of them, and counts as
    SLA by one; neither by one in which it can never run. partitions: empty = every one that is not
    SLA.

    needs_site_factor: refuse jobs whose site factor Slurm does not show. one_number: refuse jobs
    with another priority in each partition, for which `Priority=` would set one, and those of which
    it is not known what multifactor would give them. max_writes_per_hour: a job written to so often
    is only put further back; None = any. switchback: when delays are on; None = always.
    """

    sla_partitions: frozenset[str] = frozenset()
    partitions: frozenset[str] = frozenset()
    excluded_users: frozenset[str] = frozenset()
    excluded_accounts: frozenset[str] = frozenset()
    excluded_qos: frozenset[str] = frozenset()
    min_age_s: float = SETTLE_S
    needs_site_factor: bool = False
    one_number: bool = True
    max_writes_per_hour: int | None = None
    switchback: Switchback | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """chosen: in snapshot order. refused: all else, each with one reason. where: of chosen jobs
    with several partitions those in scope in which they could run. astride: those that could run
    in another one, too; they stand no earlier than without a number.
    """

    chosen: tuple[PendingJob, ...]
    refused: tuple[tuple[JobId, Refusal], ...]
    where: Mapping[JobId, tuple[str, ...]] = field(default_factory=dict)
    astride: frozenset[JobId] = frozenset()

    def counts(self) -> dict[Refusal, int]:
        return dict(Counter(reason for _, reason in self.refused))


def select(snapshot: Snapshot, rules: Scope, demoted: Collection[str] = ()) -> Selection:
    """Part the pending jobs into those in scope and the others. demoted: see Context."""
    chosen: list[PendingJob] = []
    refused: list[tuple[JobId, Refusal]] = []
    reach, reservations = Reach(snapshot), Reservations(snapshot)
    for job in snapshot.pending:
        reason = _reason(job, reach.of(job), reservations, rules, demoted)
        if reason is None:
            chosen.append(job)
        else:
            refused.append((job.job_id, reason))
    refused += [(job_id, Refusal.UNREADABLE) for job_id in sorted(snapshot.hidden_ids()) if job_id]
    where, astride = {}, set()
    for job in chosen:
        if len(job.partitions) > 1:
            could = reach.of(job)
            where[job.job_id] = tuple(n for n in could if _manages(rules, n))
            if len(where[job.job_id]) < len(could):
                astride.add(job.job_id)
    return Selection(tuple(chosen), tuple(refused), where, frozenset(astride))


def _manages(rules: Scope, partition: str) -> bool:
    is_ours = not rules.partitions or partition in rules.partitions
    return is_ours and partition not in rules.sla_partitions


def scope(snapshot: Snapshot, rules: Scope, demoted: Collection[str]) -> tuple[str, ...]:
    """The partitions that rltuned orders now."""
    left_alone = rules.sla_partitions.union(demoted)
    names = (p.name for p in snapshot.partitions if p.name not in left_alone)
    return tuple(name for name in names if not rules.partitions or name in rules.partitions)


def _reason(
    job: PendingJob,
    could: tuple[str, ...],
    reservations: "Reservations",
    rules: Scope,
    demoted: Collection[str],
) -> Refusal | None:
    """The first reason, from the most to the least binding, why a job is left alone; None = none.
    The switchback comes late: an off block holds exactly the jobs that an on block orders. could:
    the partitions in which it could run.
    """
    if job.unreadable:
        return Refusal.UNREADABLE
    return (
        _by_partition(could, demoted, rules)
        or _by_rule(job, rules)
        or _by_hold(job)
        or _by_state(job, reservations, rules)
        or _by_time(job, reservations.snapshot, rules)
    )


def _by_partition(could: tuple[str, ...], demoted: Collection[str], rules: Scope) -> Refusal | None:
    if not rules.sla_partitions.isdisjoint(could):
        return Refusal.SLA_PARTITION
    if rules.partitions and rules.partitions.isdisjoint(could):
        return Refusal.OUT_OF_SCOPE
    return None if set(demoted).isdisjoint(could) else Refusal.BREAKER_OPEN


def _by_rule(job: PendingJob, rules: Scope) -> Refusal | None:
    if job.user in rules.excluded_users:
        return Refusal.EXCLUDED_USER
    if job.account in rules.excluded_accounts:
        return Refusal.EXCLUDED_ACCOUNT
    if job.qos in rules.excluded_qos:
        return Refusal.EXCLUDED_QOS
    return None


def cannot_start(job: PendingJob, reservations: "Reservations") -> Refusal | None:
    """Why a job is not in line for the nodes, so that no one waits behind it; None = it is. Whether
    rltuned orders it makes no difference. reservations: of the job's snapshot.
    """
    if job.unreadable:
        return Refusal.UNREADABLE
    return _held(job) or _by_wait(job, reservations)


def _kind(job: PendingJob) -> ReasonKind:
    """Of its reason. Without accounting 23.11 says InvalidAccount of jobs that start anyway."""
    if job.reason == "InvalidAccount" and not job.account:
        return ReasonKind.TURN
    return reason_of(job.reason).kind


def _held(job: PendingJob) -> Refusal | None:
    if job.held_by == "user":
        return Refusal.HELD_USER
    if job.held_by == "admin":
        return Refusal.HELD_ADMIN
    if _kind(job) is ReasonKind.NEVER:
        return Refusal.UNFULFILLABLE
    return Refusal.HELD if job.priority == 0 else None


def _by_hold(job: PendingJob) -> Refusal | None:
    if held := _held(job):
        return held
    if job.taken_over:
        return Refusal.TAKEN_OVER
    if job.fixed and (job.owned is None or job.owned.field != "priority"):
        return Refusal.FIXED  # an administrator's number stands
    return None


def _by_state(job: PendingJob, reservations: "Reservations", rules: Scope) -> Refusal | None:
    if job.cron:
        return Refusal.CRON
    if job.job_id >= FEDERATED_FROM:
        return Refusal.FEDERATED  # a write to one sibling changes it in every cluster
    if held_back := _by_wait(job, reservations):
        return held_back
    if reservations.snapshot.taken_at - job.submitted_at < rules.min_age_s:
        return Refusal.TOO_YOUNG
    return _by_numbers(job, rules)


def _by_wait(job: PendingJob, reservations: "Reservations") -> Refusal | None:
    """What a job waits for that no order of the queue gives it."""
    if job.reservation:
        return Refusal.RESERVATION
    if job.is_dependent:
        return Refusal.DEPENDENCY
    if job.reason != _BEGIN and (_kind(job) is ReasonKind.BLOCKED or reservations.hold(job)):
        return Refusal.BLOCKED
    # Slurm leaves the eligible time unset while a dependency or a begin time holds the job back
    now = reservations.snapshot.taken_at
    if job.eligible_at is None or job.eligible_at > now or job.reason == _BEGIN:
        return Refusal.NOT_ELIGIBLE
    return None


def _by_numbers(job: PendingJob, rules: Scope) -> Refusal | None:
    if job.sticky:
        return Refusal.INCR_ONLY
    if rules.one_number and job.uneven:
        return Refusal.PARTITION_PRIORITIES
    if rules.needs_site_factor and job.site_factor is None:
        return Refusal.SITE_FACTOR_UNKNOWN
    if not is_sayable(job):
        return Refusal.UNADDRESSABLE  # what cannot be taken back is never written
    return None


def _by_time(job: PendingJob, snapshot: Snapshot, rules: Scope) -> Refusal | None:
    system, now = snapshot.priorities, snapshot.taken_at
    if rules.switchback is not None and rules.switchback.off(job.partitions, now):
        return Refusal.OFF_BLOCK
    aged = system.kind == "multifactor" and system.ages
    if rules.one_number and aged and base_now(job, system, now) is None:
        return Refusal.BASE_UNKNOWN  # giving it back takes no base
    return None


class Reservations:
    """The nodes of a snapshot that reservations keep now."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def hold(self, job: PendingJob) -> bool:
        """Whether one keeps a node that the job names, or all nodes of its partitions from it."""
        if not job.reason.startswith(_NOT_AVAILABLE):
            return False
        if job.required_nodes:
            return not self._nodes.isdisjoint(job.required_nodes)
        return self._open.isdisjoint(job.partitions)

    @cached_property
    def _nodes(self) -> frozenset[NodeName]:
        return frozenset(n.name for n in self.snapshot.nodes if _RESERVED.search(n.state))

    @cached_property
    def _open(self) -> frozenset[str]:
        """Partitions with a node that none of them keeps."""
        free = (n.partitions for n in self.snapshot.nodes if n.name not in self._nodes)
        return frozenset(chain.from_iterable(free))


class Reach:
    """By time limits and hardware; jobs that share one Request object are looked at once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._known: dict[tuple[int, tuple[str, ...]], tuple[str, ...]] = {}

    def of(self, job: PendingJob) -> tuple[str, ...]:
        """Those of a job's partitions; all, where it could run in none. In one of which Slurm shows
        nothing, it could.
        """
        names = job.partitions
        if len(names) == 1:
            return names
        key = id(job.request), names
        if key not in self._known:
            self._known[key] = tuple(n for n in names if self._could_run(job, n)) or names
        return self._known[key]

    def _could_run(self, job: PendingJob, name: str) -> bool:
        if name not in self._longest_s:
            return True
        longest_s = self._longest_s[name]
        if longest_s is not None and (job.request.time_limit_s or 0.0) > longest_s:
            return False
        capacity = self._capacity
        return width(job.request, capacity.members_of((name,)), capacity)[0] > 0

    @cached_property
    def _longest_s(self) -> dict[str, float | None]:
        return {p.name: p.max_time_s for p in self._snapshot.partitions}

    @cached_property
    def _capacity(self) -> Capacity:
        return Capacity.of(self._snapshot)
