"""Reading the cluster: which commands are run, and what is made of their answers."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from rltuned.domain.cluster import Node, Resources
from rltuned.domain.context import RememberedBy, nothing
from rltuned.domain.jobs import PendingJob
from rltuned.domain.kinds import Digester
from rltuned.domain.priority import PrioritySystem
from rltuned.domain.snapshot import Snapshot, Unreadable
from rltuned.domain.units import CLOCK_S, JobId, UnixTime
from rltuned.errors import BackendError, SnapshotError
from rltuned.slurm.columns import (
    NODE_COLUMNS,
    PRIORITY_LETTERS,
    WATCH_COLUMNS,
    Layout,
    Marks,
    PriorityRow,
    WatchRow,
    read_layout,
)
from rltuned.slurm.factors import Factors, read_line, read_pending, standing_of, unreadable
from rltuned.slurm.fairshare import FairShares
from rltuned.slurm.hardware import HiddenNodes, KeptBack, read_kept_back, read_names
from rltuned.slurm.jobs import read_queue
from rltuned.slurm.nodes import KnownNodes, read_nodes
from rltuned.slurm.pyslurm import Pyslurm
from rltuned.slurm.queue_rows import Known
from rltuned.slurm.records import TWICE, id_of
from rltuned.slurm.request import Requests, parse_speeds
from rltuned.slurm.reservations import read_reservations
from rltuned.slurm.run import Commands
from rltuned.slurm.sdiag import clock_off_s
from rltuned.slurm.site import SlurmSite, parse_config, read_exclusive_partitions, read_site
from rltuned.slurm.source import JobSource, ReaderChoice, squeue
from rltuned.slurm.stepped import SteppedTasks
from rltuned.slurm.strings import parse_tasks
from rltuned.slurm.values import absent, parse_epoch
from rltuned.text import one_line

SITE_LIFE_S: Final = 300.0
"""How long the site's configuration is believed. It changes when a user edits slurm.conf; the
controller's restart that this often needs shows as a failed read, which forgets it at once."""


class Reader:
    """Reads one cluster with squeue, sinfo, sprio, scontrol show reservations and, every few
    minutes, scontrol show config and show nodes.

    --local, because in a federation squeue also shows the other clusters' jobs, which rltuned
    cannot address; -a, because hidden partitions hold nodes and jobs too. Every method raises
    BackendError: no answer; SnapshotError: one cannot be read as a whole.

    marks: None = new ones for every call. fair_shares: read those of jobs with a fixed priority.
    pyslurm: its interpreter; None = squeue alone. on_reading: called with each new reader of jobs.
    digester: None = no text of a user is asked for. clock: of this host, Unix seconds; None = it is
    not compared with slurmctld's.
    """

    def __init__(
        self,
        commands: Commands,
        marks: Marks | None = None,
        *,
        fair_shares: bool = False,
        pyslurm: Path | None = None,
        on_reading: Callable[[ReaderChoice], None] = lambda _reading: None,
        digester: Digester | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.clock_off_s: float | None = None
        """How far slurmctld's clock is ahead of this host's, as seen last; None = not known."""
        self._clock = clock
        self._commands = commands
        self._new_marks: Callable[[], Marks] = Marks if marks is None else lambda: marks
        self._fair_shares = FairShares(commands) if fair_shares else None
        source = Pyslurm(commands, pyslurm) if pyslurm else None
        self._source = JobSource(commands, self._new_marks, source, on_reading, digester)
        self._site: tuple[float, SlurmSite, Layout] | None = None
        self._hardware: tuple[float, Mapping[str, KeptBack], frozenset[str]] | None = None
        self.tasks = SteppedTasks(commands)
        self._hidden = HiddenNodes(commands, self._new_marks)
        self._earlier = Known(Requests(frozenset(), memory_counts=True))
        self._nodes: KnownNodes = {}
        self._lines: dict[int, tuple[JobId, Factors]] = {}

    def snapshot(self, taken_at: float, remembered: RememberedBy = nothing) -> Snapshot:
        """The cluster now: one squeue, sinfo, sprio and scontrol each. remembered: see
        ports.Backend. It is taken at the time of slurmctld's clock, by which ages count, as long as
        that can be right.
        """
        try:
            return self._read(taken_at, remembered)
        except (BackendError, SnapshotError):
            self._site = self._hardware = None
            raise

    def _read(self, asked_at: float, remembered: RememberedBy) -> Snapshot:
        site, layout = self._known_site(asked_at)
        taken_at = asked_at
        if self.clock_off_s is not None and abs(self.clock_off_s) <= CLOCK_S:
            taken_at += self.clock_off_s
        says = remembered(site.cluster, taken_at)
        kept, names = self._known_hardware(site, taken_at)
        self.tasks.look()
        jobs = self._source.read(layout, site.version, taken_at)
        marks = self._new_marks()
        sinfo = self._commands.call(
            "sinfo", "--local", "-a", "-N", "-O", marks.columns(NODE_COLUMNS)
        )
        odd: list[str] = []
        unseen: list[Unreadable] = []
        rows = self._hidden.beside(
            marks.rows(sinfo, len(NODE_COLUMNS), odd), names, taken_at, unseen
        )
        nodes, partitions, unread = read_nodes(rows, site.exclusive_partitions, kept, self._nodes)
        self._nodes = {node.name: self._nodes[node.name] for node in nodes}
        exclusive = frozenset(p.name for p in partitions if p.oversubscribe == "EXCLUSIVE")
        shown = self._commands.call("scontrol", "-o", "show", "reservations")
        reservations, odd_ones = read_reservations(shown.lines())
        factors, misread = self._factors() if site.multifactor else ({}, {})
        bad = {u.name: u.why for u in unread if u.kind == "partition"}

        def wrong(job_id: JobId, names: tuple[str, ...]) -> str:
            # a line of sprio without a number may be of any job that has no other
            why = misread.get(job_id) or ("" if job_id in factors else misread.get(JobId(0), ""))
            return why or next((f"partition {n}: {bad[n]}" for n in names if n in bad), "")

        queue = read_queue(
            jobs.rows,
            self._known(
                Requests(exclusive, memory_counts=site.memory_counts, roomiest=_roomiest(nodes))
            ),
            {n.name: n for n in nodes},
            jobs.extras,
            lambda record, partitions: standing_of(
                record, partitions, factors.get(record.job_id), site
            ),
            odd=wrong,
            whole=self.tasks.whole,
            remembered=says,
            kinds=jobs.kinds,
        )
        pending = self._whole(queue.pending, site.priorities, taken_at)
        try:
            return Snapshot(
                taken_at=UnixTime(taken_at),
                cluster=site.cluster,
                pending=pending,
                running=queue.running,
                nodes=nodes,
                partitions=partitions,
                others=queue.others,
                lingering=queue.lingering,
                preemption=site.preemption,
                priorities=site.priorities,
                reservations=reservations,
                unreadable=(
                    *unread,
                    *odd_ones,
                    *unseen,
                    *(Unreadable("node", "", why) for why in odd),
                    *queue.unreadable,
                    *jobs.unreadable,
                ),
            )
        except ValueError as error:
            raise SnapshotError(f"squeue and sinfo: {error}") from error

    def _whole(
        self, jobs: tuple[PendingJob, ...], system: PrioritySystem, now: float
    ) -> tuple[PendingJob, ...]:
        """The jobs with what squeue does not show of their priorities."""
        if system.ages:
            jobs = _unaged(jobs, UnixTime(now))
        if self._fair_shares is None or not system.fair_weight:
            return jobs
        return self._fair_shares.dress(jobs, now, system)

    def _known(self, requests: Requests) -> Known:
        """What the look before knew, where requests still mean the same."""
        if not self._earlier.requests.reads_as(requests):
            self._earlier = Known(requests)
        return self._earlier

    def config(self) -> dict[str, str]:
        return parse_config(self._commands.ask("scontrol", "show", "config"))

    def _dated_config(self) -> dict[str, str]:
        """The same, and a look at slurmctld's clock."""
        asked_at = 0.0 if self._clock is None else self._clock()
        text = self._commands.ask("scontrol", "show", "config")
        if self._clock is not None:
            self.clock_off_s = clock_off_s(text, asked_at, self._clock())
        return parse_config(text)

    def site(self, now: float) -> SlurmSite:
        """The settings that reading and writing depend on, at most SITE_LIFE_S old."""
        return self._known_site(now)[0]

    def _known_site(self, now: float) -> tuple[SlurmSite, Layout]:
        if self._site is None or not 0 <= now - self._site[0] < SITE_LIFE_S:
            site, layout = read_site(self._dated_config()), self._layout()
            if "Exclusive" in layout.extras:  # 26.05: sinfo does not have it of partitions
                shown = self._commands.ask("scontrol", "-o", "show", "partitions")
                site = replace(site, exclusive_partitions=read_exclusive_partitions(shown))
            self._site = (now, site, layout)
        return self._site[1:]

    def _known_hardware(
        self, site: SlurmSite, now: float
    ) -> tuple[Mapping[str, KeptBack], frozenset[str]]:
        """What sinfo does not say, as old as the site's settings at most: what jobs do not get, by
        node; the names of all nodes, empty where sinfo hides none.
        """
        if self._hardware is None or not 0 <= now - self._hardware[0] < SITE_LIFE_S:
            kept = read_kept_back(self._commands.call("scontrol", "-o", "show", "nodes").lines())
            names = frozenset[str]()
            if site.hides_nodes:
                shown = self._commands.ask("scontrol", "-o", "show", "partitions")
                names = read_names(shown)
            self._hardware = (now, kept, names)
        return self._hardware[1:]

    def _layout(self) -> Layout:
        usage = self._commands.ask("squeue", "--help")
        listed = "--helpFormat" in usage
        return read_layout(usage, self._commands.ask("squeue", "--helpFormat") if listed else "")

    def reading(self, now: float) -> ReaderChoice:
        """What reads the jobs: tried now."""
        return self._source.reading(self._known_site(now)[0].version)

    def watch(self, now: float, of: Iterable[JobId], *, factors: bool) -> dict[JobId, PendingJob]:
        """The pending ones of these records, for a re-read; a bad row costs its own job only.
        factors: with what sprio shows of them, where multifactor rules.
        """
        rows_of = self.pending(now, WATCH_COLUMNS)
        records = Counter(rows[0].arrayjobid for rows in rows_of.values())
        site, ids = self.site(now), list(of)
        parts = self.factors(ids) if factors and site.multifactor else {}
        found: dict[JobId, PendingJob] = {}
        for job_id in ids:
            rows = rows_of.get(str(job_id))
            if rows is None:
                continue
            # as if other records were pending: a task held this instant stays out of a release
            siblings = records[rows[0].arrayjobid] + 1
            try:
                found[job_id] = read_pending(rows, siblings, parts, site, self.tasks.whole)
            except ValueError as error:
                found[job_id] = unreadable(job_id, f"its row in squeue cannot be read: {error}")
        return found

    def pending(self, now: float, columns: tuple[str, ...]) -> dict[str, list[WatchRow]]:
        """Every pending record by its id, in the first columns of WatchRow; a row per task too."""
        marks = self._new_marks()
        layout = self._known_site(now)[1]
        answer = squeue(self._commands, layout, marks.columns(columns), "-t", "PD")
        found: dict[str, list[WatchRow]] = {}
        for raw in marks.rows(answer, len(columns)):
            row = WatchRow(*raw)
            found.setdefault(row.jobid, []).append(row)
        return found

    def known(self, now: float) -> int:
        """How many jobs squeue shows in whatever state, each task of an array as one."""
        marks, layout = self._new_marks(), self._known_site(now)[1]
        columns = marks.columns(("jobid", "arraytaskid"))
        answer = squeue(self._commands, layout, columns, "-t", "all")
        rows = marks.rows(answer, 2, [])
        return sum(1 if absent(tasks) else parse_tasks(tasks).count for _, tasks in rows)

    def expected_start(self, job_id: JobId, now: float) -> float | None:
        """Unix time at which Slurm's backfill plans to start a record; None = not planned."""
        try:
            starts = [parse_epoch(start) for start in self._of_job(job_id, "starttime", now)]
        except ValueError as error:
            raise SnapshotError(f"squeue: {error}") from error
        return starts[0] if starts else None

    def speeds(self, job_id: JobId, now: float) -> dict[int, float]:
        """By node count how fast a record runs, from its user's comment; empty = none named."""
        comments = self._of_job(job_id, "comment", now)
        return parse_speeds(comments[0]) if comments else {}

    def _of_job(self, job_id: JobId, column: str, now: float) -> list[str]:
        """A column of the rows of a pending record."""
        marks, (_, layout) = self._new_marks(), self._known_site(now)
        columns, asked = marks.columns(("jobid", column)), ("-t", "PD", "-j", str(job_id))
        rows = marks.rows(squeue(self._commands, layout, columns, *asked), 2)
        found = [value for own, value in rows if id_of(own) == job_id]
        if len(frozenset(found)) > 1:
            raise SnapshotError(f"squeue: job {job_id}: {TWICE}")
        return found

    def factors(self, jobs: Collection[JobId] | None = None) -> dict[JobId, Factors]:
        """What sprio shows: jobs that are pending, eligible and not held; None = of all jobs."""
        return self._factors(None if jobs is None else frozenset(map(str, jobs)))[0]

    def _factors(
        self, names: Collection[str] | None = None
    ) -> tuple[dict[JobId, Factors], dict[JobId, str]]:
        """The same, and what is wrong with other lines, by job; 0 = not known whose."""
        marks = self._new_marks()
        letters = marks.letters(PRIORITY_LETTERS)
        environ = {"SPRIO_FORMAT": letters}
        answer = self._commands.call("sprio", "--local", environ=environ)
        found: dict[JobId, Factors] = {}
        odd: list[str] = []
        bad: dict[JobId, str] = {}
        lines: dict[int, tuple[JobId, Factors]] = {}
        for raw in marks.rows(answer, len(PRIORITY_LETTERS), odd):
            if names is not None and raw[0].strip() not in names:
                continue
            line = hash(tuple(raw))
            try:
                known = self._lines.get(line) or read_line(PriorityRow._make(map(str.strip, raw)))
            except ValueError as error:
                bad[id_of(raw[0].strip())] = f"sprio: {one_line(' '.join(raw), 120)}: {error}"
                continue
            lines[line] = job_id, factors = known
            found[job_id] = found[job_id].beside(factors) if job_id in found else factors
        if names is None:
            self._lines = lines  # Slurm makes new ones every few minutes alone
        if odd:
            bad.setdefault(JobId(0), odd[0])
        return {job_id: found[job_id] for job_id in found.keys() - bad.keys()}, bad


def _unaged(jobs: tuple[PendingJob, ...], now: UnixTime) -> tuple[PendingJob, ...]:
    """Jobs that could run and have no AccrueTime (MaxJobsAccrue limits) have no age yet."""
    return tuple(
        replace(j, accrue_at=now) if j.accrue_at is None and 0 < (j.eligible_at or 0) <= now else j
        for j in jobs
    )


def _roomiest(nodes: Iterable[Node]) -> dict[str, Resources]:
    """By partition the most CPUs and the most memory that one of its nodes has."""
    found: dict[str, Resources] = {}
    for node in nodes:
        for name in node.partitions:
            most = found.get(name, Resources())
            cpus = max(most.cpus, node.total.cpus)
            found[name] = Resources(0, cpus, max(most.mem_mib, node.total.mem_mib))
    return found
