"""How the promises of `[[sla]]` are kept: which jobs have waited longer than promised."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rltuned.core.explaining import CANNOT_START
from rltuned.core.select import Scope, refusal
from rltuned.core.sla import SlaClass, class_of
from rltuned.daemon.canary.outcomes import JobStart
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import UnixTime


@dataclass(frozen=True, slots=True)
class ClassCount:
    """Since the last look: jobs that started or passed the bound; those that waited too long."""

    jobs: int = 0
    breaches: int = 0


class PromiseWatch:
    """Counts each job once, from look to look: when it passes its bound, or starts in time."""

    def __init__(self) -> None:
        self._looked_at: float | None = None

    def look(
        self, classes: Sequence[SlaClass], seen: Snapshot, started: Iterable[JobStart]
    ) -> Mapping[SlaClass, ClassCount]:
        """What has happened since the last look. classes: the first that fits a job counts it."""
        last, self._looked_at = self._looked_at, float(seen.taken_at)
        counts = {one: [0, 0] for one in classes}
        if last is None or not classes:
            return {one: ClassCount() for one in counts}
        begun, whole = {start.job_id for start in started}, replace(seen, demoted=())
        for job in seen.pending:
            one = class_of(job, classes)
            # one that cannot start, whatever the order, is not late
            if one is None or refusal(job, whole, Scope()) in CANNOT_START:
                continue
            late = _passed(one, job.waits_since, last, seen.taken_at)
            counts[one][0] += late
            counts[one][1] += late
        for run in seen.running:
            if run.job_id not in begun or run.waits_since is None:
                continue
            fits = (c for c in classes if c.covers((run.partition,), run.qos, run.account))
            one = next(fits, None)
            if one is None:
                continue
            late = _passed(one, run.waits_since, last, run.started_at)
            counts[one][0] += late or run.started_at - run.waits_since <= one.max_wait_s
            counts[one][1] += late
        return {one: ClassCount(*found) for one, found in counts.items()}


def _passed(one: SlaClass, since: UnixTime, last: float, until: float) -> bool:
    """Whether a wait passed its bound between the last look and a time."""
    return last - since <= one.max_wait_s < until - since
