"""What `rltuned restore` reads and writes of a Slurm cluster: the Undoer port.

One squeue of the pending records with a few columns, one sprio, the site's configuration. No
sinfo, no running job and no request is read, so that nothing of these can keep a job frozen.
"""

from collections import Counter
from collections.abc import Callable

from rltuned.domain.jobs import ArrayInfo, PendingJob
from rltuned.domain.plan import Outcome, Plan
from rltuned.domain.remnants import UNASKED, Remnants
from rltuned.domain.units import JobId, NodeName, UnixTime
from rltuned.slurm.backend import BatchFence, Unfenced
from rltuned.slurm.columns import UNDO_COLUMNS, Marks, WatchRow
from rltuned.slurm.commands import Commands, SlurmCli
from rltuned.slurm.factors import Factors, standing_of
from rltuned.slurm.job_names import address, held_by, parse_job_id, read_het, read_tasks
from rltuned.slurm.jobs import SqueueRow
from rltuned.slurm.priorities import read_priorities
from rltuned.slurm.reader import Reader
from rltuned.slurm.site import SlurmSite
from rltuned.slurm.values import parse_epoch, parse_number
from rltuned.slurm.writer import Writer


class SlurmUndoer:
    """Gives back, through Slurm's own commands.

    Args:
        cli: how they are called.
        now: Unix seconds.
        exclusions: read the nodes that jobs exclude, by one more squeue.
        marks: see columns.Marks; None = a random mark.
        fence: told of every look and asked right before every batch.
    """

    def __init__(
        self,
        cli: SlurmCli,
        now: Callable[[], float],
        *,
        exclusions: bool = False,
        marks: Marks | None = None,
        fence: BatchFence | None = None,
    ) -> None:
        self._now = now
        self._exclusions = exclusions
        self._plugin: str | None = None
        self._fence = fence or Unfenced()
        commands = Commands(cli)
        self._reader = Reader(commands, marks or Marks())
        self._writer = Writer(commands, self._reader, now, self._fence.shut)

    def look(self) -> Remnants:
        """See domain/ports.Undoer."""
        self._fence.look()
        now = self._now()
        site, records = self._reader.site(now), self._reader.pending(now, UNDO_COLUMNS)
        factors = self._reader.factors() if site.multifactor else {}
        excluded = self._reader.excluded(now) if self._exclusions else {}
        siblings = Counter(rows[0].arrayjobid for rows in records.values())
        pending, unreadable = [], []
        for name, rows in records.items():
            try:
                pending.append(
                    _pending(rows, siblings[rows[0].arrayjobid], factors, site, excluded)
                )
            except ValueError as error:
                unreadable.append((name, str(error)))
        if self._plugin is None:
            self._plugin = read_priorities(self._reader.config()).plugin
        return Remnants(site.cluster, tuple(pending), tuple(unreadable), self._plugin)

    def apply(self, plan: Plan) -> tuple[Outcome, ...]:
        """Carry out a plan: one outcome per action, in the same order. Never raises per action."""
        return self._writer.apply(plan)


def _pending(
    rows: list[WatchRow],
    records: int,
    factors: dict[JobId, Factors],
    site: SlurmSite,
    excluded: dict[JobId, frozenset[NodeName]],
) -> PendingJob:
    row = rows[0]
    job_id, array_id = parse_job_id(row.jobid), parse_job_id(row.arrayjobid)
    tasks = read_tasks([r.arraytaskid for r in rows])
    het_id, offset = read_het(row.hetjobid, row.hetjoboffset)
    submitted = parse_epoch(row.submittime)
    if submitted is None:
        raise ValueError("no submit time")
    nice, holder = parse_number(row.nice), held_by(row.reason)
    partitions = tuple(row.partition.split(","))
    shown = SqueueRow(job_id, parse_number(row.prioritylong), nice, bool(holder), len(partitions))
    stands = standing_of(shown, factors.get(job_id), site)
    return PendingJob(
        job_id=job_id,
        address=f"{het_id}+{offset}" if het_id else address(job_id, array_id, tasks, records),
        submitted_at=UnixTime(submitted),
        request=UNASKED,
        priority=stands.priority,
        partitions=partitions,
        nice=nice,
        site_factor=stands.site_factor,
        base=stands.base,
        reason=row.reason,
        held_by=holder,
        array=None
        if tasks is None
        else ArrayInfo(array_id, tasks.count, tasks.throttle, tasks.text),
        het_job_id=het_id,
        het_offset=offset,
        excluded_nodes=tuple(sorted(excluded.get(job_id, ()))),
        oversubscribe=row.oversubscribe,
        fixed=stands.fixed,
        live=stands.live,
    )
