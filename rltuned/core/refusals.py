"""Why a pending job is left alone: one table, which selection, restore, page and metrics read."""

from collections.abc import Mapping
from enum import Flag, StrEnum, auto
from typing import Final


class Consequence(Flag):
    """What a refusal means beyond: no new number in this cycle."""

    NOTHING = 0
    RESTORED = auto()
    """A job that rltuned wrote to gets its own number back, or what may be restored: of a held one,
    and of one that a user has freed, the nice."""
    ISOLATED = auto()
    """One that rltuned set to share is isolated again. It shares through an off block: what a flag
    took from it does not come back whole."""
    STILL_ORDERED = auto()
    """rltuned orders it, and just does not write to it in this cycle."""


_RESTORED, _STILL_ORDERED = Consequence.RESTORED, Consequence.STILL_ORDERED
_NOT_OURS = Consequence.RESTORED | Consequence.ISOLATED


class Refusal(StrEnum):
    """The value is the metric label and the log word. sentence: of one job; of_several: what
    follows their count; then: see Consequence. core/select and core/decide say which comes first.
    """

    sentence: str
    of_several: str
    then: Consequence

    def __new__(
        cls, label: str, sentence: str, of_several: str, then: Consequence = Consequence.NOTHING
    ) -> "Refusal":
        made = str.__new__(cls, label)
        made._value_ = label
        made.sentence, made.of_several, made.then = sentence, of_several, then
        return made

    UNREADABLE = (
        "unreadable",
        "what Slurm prints of it cannot be read",
        "that cannot be read",
    )
    SLA_PARTITION = (
        "sla_partition",
        "it may run in an SLA partition, which rltuned never touches",
        "of SLA partitions",
        _NOT_OURS,
    )
    OUT_OF_SCOPE = (
        "out_of_scope",
        "none of its partitions is among those that rltuned manages",
        "of partitions that rltuned does not manage",
        _NOT_OURS,
    )
    BREAKER_OPEN = (
        "breaker_open",
        "the circuit breaker of its partition is open (rltuned breaker show)",
        "behind an open circuit breaker",
        _NOT_OURS,
    )
    EXCLUDED_USER = (
        "excluded_user",
        "its user is excluded in the settings",
        "of excluded users",
        _NOT_OURS,
    )
    EXCLUDED_ACCOUNT = (
        "excluded_account",
        "its account is excluded in the settings",
        "of excluded accounts",
        _NOT_OURS,
    )
    EXCLUDED_QOS = (
        "excluded_qos",
        "its QOS is excluded in the settings",
        "of excluded QOS",
        _NOT_OURS,
    )
    HELD_USER = (
        "held_user",
        "its user holds it",
        "held by their user",
        _RESTORED,
    )
    HELD_ADMIN = (
        "held_admin",
        "an administrator holds it",
        "held by an administrator",
        _RESTORED,
    )
    HELD = (
        "held",
        "it is held (priority 0)",
        "held (priority 0)",
    )
    CRON = (
        "cron",
        "it is a scrontab job, which Slurm does not let anyone change",
        "of scrontab",
    )
    TAKEN_OVER = (
        "taken_over",
        "its value was changed by others after rltuned wrote it",
        "changed by others",
        _RESTORED,
    )
    FIXED = (
        "fixed",
        "its priority was set directly, and that number stands",
        "with a priority set directly",
    )
    FEDERATED = (
        "federated",
        "it is a job of a federation, whose number in one cluster is that in all of them",
        "of a federation",
    )
    RESERVATION = (
        "reservation",
        "it waits for a reservation",
        "waiting for a reservation",
    )
    DEPENDENCY = (
        "dependency",
        "it waits for another job",
        "waiting for another job",
    )
    NOT_ELIGIBLE = (
        "not_eligible",
        "it may not start yet (begin time)",
        "waiting for their begin time",
    )
    UNFULFILLABLE = (
        "unfulfillable",
        "no order of the queue can start it; see Slurm's reason",
        "that no order can start",
    )
    BLOCKED = (
        "blocked",
        (
            "it waits for what no order of the queue gives it (a limit, a reservation, licences "
            "...); see Slurm's reason"
        ),
        "held by a limit, a reservation or the like",
    )
    TOO_YOUNG = (
        "too_young",
        "it was submitted moments ago",
        "submitted moments ago",
        _STILL_ORDERED,
    )
    PARTITION_PRIORITIES = (
        "partition_priorities",
        (
            "it has another priority in each of its partitions, and Priority= would set one "
            "for all of them; write_mode = site_factor orders such jobs"
        ),
        "with a priority for each of their partitions",
        _RESTORED,
    )
    INCR_ONLY = (
        "incr_only",
        (
            "by PriorityFlags=INCR_ONLY a number may never come down again, so that nothing "
            "could be restored"
        ),
        "under PriorityFlags=INCR_ONLY",
        _RESTORED,
    )
    BASE_UNKNOWN = (
        "base_unknown",
        (
            "sshare does not show the fair share of its association, so that its own priority "
            "is not known; it keeps its number"
        ),
        "whose own priority is not known",
    )
    SITE_FACTOR_UNKNOWN = (
        "site_factor_unknown",
        "Slurm does not show its site factor",
        "whose site factor is not shown",
    )
    UNADDRESSABLE = (
        "unaddressable",
        (
            "its list of tasks may grow too long for scontrol, so that a change could not be "
            "taken back"
        ),
        "with too long a list of tasks",
    )
    OFF_BLOCK = (
        "off_block",
        "its partition is in an off block of the switchback",
        "in an off block (Slurm's own order is measured)",
        _RESTORED | _STILL_ORDERED,
    )
    JOB_BUDGET = (
        "job_budget",
        (
            "rltuned has written to it as often as it may within an hour; until that is over "
            "it is only put further back"
        ),
        "written to as often as they may within an hour",
        _STILL_ORDERED,
    )
    HANDED_BACK = (
        "handed_back",
        "its number is restored first, since the write mode has changed",
        "restored before the new write mode",
        _STILL_ORDERED,
    )
    CHANGE_BUDGET = (
        "change_budget",
        "this cycle's budget of changes was spent on jobs further from their place",
        "written in a later cycle (change budget)",
        _STILL_ORDERED,
    )


BY_LABEL: Final = {one.value: one for one in Refusal}


def counted(counts: Mapping[str, int]) -> str:
    """`3 held by their user, 26 submitted moments ago`; counts: by the value of a Refusal."""
    largest = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return ", ".join(f"{count} {BY_LABEL[reason].of_several}" for reason, count in largest)
