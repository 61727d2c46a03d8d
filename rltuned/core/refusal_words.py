"""Why a job is left alone, in words: of one job a sentence, of several what follows their count."""

from collections.abc import Mapping
from typing import Final

from rltuned.core.select import Refusal

OF_ONE: Final[Mapping[Refusal, str]] = {
    Refusal.UNREADABLE: "what Slurm prints of it cannot be read",
    Refusal.SLA_PARTITION: "it may run in an SLA partition, which rltuned never touches",
    Refusal.OUT_OF_SCOPE: "none of its partitions is among those that rltuned manages",
    Refusal.BREAKER_OPEN: "the circuit breaker of its partition is open (rltuned breaker show)",
    Refusal.OFF_BLOCK: "its partition is in an off block of the switchback",
    Refusal.JOB_BUDGET: (
        "rltuned has written to it as often as it may within an hour; until that is over it is "
        "only put further back"
    ),
    Refusal.EXCLUDED_USER: "its user is excluded in the settings",
    Refusal.EXCLUDED_ACCOUNT: "its account is excluded in the settings",
    Refusal.EXCLUDED_QOS: "its QOS is excluded in the settings",
    Refusal.HELD_USER: "its user holds it",
    Refusal.HELD_ADMIN: "an administrator holds it",
    Refusal.HELD: "it is held (priority 0)",
    Refusal.CRON: "it is a scrontab job, which Slurm does not let anyone change",
    Refusal.FEDERATED: (
        "it is a job of a federation, whose number in one cluster is that in all of them"
    ),
    Refusal.RESERVATION: "it waits for a reservation",
    Refusal.DEPENDENCY: "it waits for another job",
    Refusal.NOT_ELIGIBLE: "it may not start yet (begin time)",
    Refusal.UNFULFILLABLE: "no order of the queue can start it; see Slurm's reason",
    Refusal.BLOCKED: (
        "a limit of its QOS or account, or a reservation, holds it; see Slurm's reason"
    ),
    Refusal.TOO_YOUNG: "it was submitted moments ago",
    Refusal.PARTITION_PRIORITIES: (
        "it has another priority in each of its partitions, and Priority= would set one for all of "
        "them; write_mode = site_factor orders such jobs"
    ),
    Refusal.INCR_ONLY: (
        "by PriorityFlags=INCR_ONLY a number may never come down again, so that nothing could be "
        "restored"
    ),
    Refusal.BASE_UNKNOWN: (
        "sshare does not show the fair share of its association, so that its own priority is not "
        "known; it keeps its number"
    ),
    Refusal.SITE_FACTOR_UNKNOWN: "Slurm does not show its site factor",
    Refusal.UNADDRESSABLE: (
        "its list of tasks may grow too long for scontrol, so that a change could not be taken back"
    ),
    Refusal.CHANGE_BUDGET: (
        "this cycle's budget of changes was spent on jobs further from their place"
    ),
    Refusal.TAKEN_OVER: "its value was changed by others after rltuned wrote it",
    Refusal.FIXED: "its priority was set directly, and that number stands",
    Refusal.HANDED_BACK: "its number is restored first, since the write mode has changed",
}
OF_SEVERAL: Final[Mapping[Refusal, str]] = {
    Refusal.UNREADABLE: "that cannot be read",
    Refusal.SLA_PARTITION: "of SLA partitions",
    Refusal.OUT_OF_SCOPE: "of partitions that rltuned does not manage",
    Refusal.BREAKER_OPEN: "behind an open circuit breaker",
    Refusal.OFF_BLOCK: "in an off block (Slurm's own order is measured)",
    Refusal.JOB_BUDGET: "written to as often as they may within an hour",
    Refusal.EXCLUDED_USER: "of excluded users",
    Refusal.EXCLUDED_ACCOUNT: "of excluded accounts",
    Refusal.EXCLUDED_QOS: "of excluded QOS",
    Refusal.HELD_USER: "held by their user",
    Refusal.HELD_ADMIN: "held by an administrator",
    Refusal.HELD: "held (priority 0)",
    Refusal.CRON: "of scrontab",
    Refusal.FEDERATED: "of a federation",
    Refusal.RESERVATION: "waiting for a reservation",
    Refusal.DEPENDENCY: "waiting for another job",
    Refusal.NOT_ELIGIBLE: "waiting for their begin time",
    Refusal.UNFULFILLABLE: "that no order can start",
    Refusal.BLOCKED: "held by a limit or a reservation",
    Refusal.TOO_YOUNG: "submitted moments ago",
    Refusal.PARTITION_PRIORITIES: "with a priority for each of their partitions",
    Refusal.INCR_ONLY: "under PriorityFlags=INCR_ONLY",
    Refusal.BASE_UNKNOWN: "whose own priority is not known",
    Refusal.SITE_FACTOR_UNKNOWN: "whose site factor is not shown",
    Refusal.UNADDRESSABLE: "with too long a list of tasks",
    Refusal.CHANGE_BUDGET: "written in a later cycle (change budget)",
    Refusal.TAKEN_OVER: "changed by others",
    Refusal.FIXED: "with a priority set directly",
    Refusal.HANDED_BACK: "restored before the new write mode",
}


def of_several(counts: Mapping[str, int]) -> str:
    """`3 held by their user, 26 submitted moments ago`; counts: by the value of a Refusal."""
    largest = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return ", ".join(f"{count} {OF_SEVERAL[Refusal(reason)]}" for reason, count in largest)
