"""What Slurm's reasons for a pending job mean: whether it waits for its turn alone.

One table for the releases 22.05 to 26.05 (squeue(1), JOB REASON CODES). A word that is not in it is
none that an order of the queue is known to change.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final


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
