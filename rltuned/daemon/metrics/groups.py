"""Metrics of groups of dependent jobs."""

from collections.abc import Callable
from typing import Any, Final

from rltuned.daemon.groups import GroupsStatus
from rltuned.daemon.metrics.table import Read, Row, gauge, histogram
from rltuned.daemon.report import CycleReport
from rltuned.domain.groups import JobPhase


def _of(value: Callable[[GroupsStatus], Any]) -> Read:
    """A value of the status; None while it is not known."""

    def read(report: CycleReport) -> Any:
        return None if report.groups is None else value(report.groups)

    return read


GROUPS: Final[tuple[Row, ...]] = (
    gauge(
        "rltuned_groups",
        "Groups of dependent jobs that have not ended.",
        _of(lambda status: len(status.open)),
    ),
    gauge(
        "rltuned_group_jobs",
        "Jobs of groups that have not ended, by how far they have come.",
        _of(lambda status: status.jobs()),
        labels={"state": JobPhase},
    ),
    gauge(
        "rltuned_group_jobs_left_out",
        "Jobs with dependencies that are not followed, because there are too many.",
        _of(lambda status: status.left_out),
    ),
    histogram(
        "rltuned_group_duration_ratio",
        "Time that a group took, over the time that was expected when its last job joined it.",
        _of(
            lambda status: [
                (one.ended_at - one.made_at) / max(one.end_at - one.made_at, 1.0)
                for _, one in status.ended
                if one.ended_at is not None
            ]
        ),
        buckets=(0.25, 0.5, 0.8, 1.0, 1.25, 2.0, 4.0, 8.0, 16.0),
    ),
)
