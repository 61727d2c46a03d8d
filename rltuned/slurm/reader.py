"""Reading the cluster: which commands are run, and what is made of their answers."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from rltuned.domain.cluster import Node, Resources
from rltuned.domain.jobs import PendingJob
from rltuned.domain.kinds import Digester
from rltuned.domain.snapshot import Snapshot, Unreadable
from rltuned.domain.units import CLOCK_S, JobId, UnixTime
from rltuned.errors import BackendError, SnapshotError
from rltuned.slurm.columns import (
    NODE_COLUMNS,
    ROW_PER_TASK,
    WATCH_COLUMNS,
    Layout,
    Marks,
    read_layout,
)
from rltuned.slurm.nodes import (
    HiddenNodes,
    KeptBack,
    read_kept_back,
    read_names,
    read_nodes,
    read_reservations,
)
from rltuned.slurm.priority import Factors, FairShares, ask_sprio, standing_of
from rltuned.slurm.pyslurm import JobSource, ReaderChoice
from rltuned.slurm.request import UNASKED, Requests, parse_speeds
from rltuned.slurm.run import Commands
from rltuned.slurm.site import (
    SlurmSite,
    clock_off_s,
    parse_config,
    read_exclusive_partitions,
    read_site,
)
from rltuned.slurm.squeue import (
    TWICE,
    JobsShown,
    PriorityState,
    QueueReader,
    SteppedTasks,
    id_of,
    read_throttles,
    squeue,
)
from rltuned.slurm.values import absent, parse_epoch, parse_tasks

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
    digester: None = no text of a user is asked for. now: of this host, Unix seconds.
    """

    def __init__(
        self,
        commands: Commands,
        now: Callable[[], float],
        marks: Marks | None = None,
        *,
        fair_shares: bool = False,
        pyslurm: Path | None = None,
        on_reading: Callable[[ReaderChoice], None] = lambda _reading: None,
        digester: Digester | None = None,
    ) -> None:
        self.ahead_s: float | None = None
        """How far slurmctld's clock is ahead of this host's, as seen last; None = not known."""
        self._now = now
        self.commands = commands
        self._new_marks: Callable[[], Marks] = Marks if marks is None else lambda: marks
        self._fair_shares = FairShares(commands) if fair_shares else None
        self._source = JobSource(commands, self._new_marks, pyslurm, on_reading, digester)
        self._digester = digester
        self._site: tuple[float, SlurmSite, Layout] | None = None
        self._hardware: tuple[float, Mapping[str, KeptBack], frozenset[str]] | None = None
        self.tasks = SteppedTasks(commands)
        self._throttles: tuple[float, Mapping[str, int | None]] = (-math.inf, {})
        self._hidden = HiddenNodes(commands, self._new_marks)
        self._requests: Requests | None = None

    def snapshot(self) -> Snapshot:
        """The cluster now: one squeue, sinfo, sprio and scontrol each. It is taken at the time of
        slurmctld's clock, by which ages count, as long as that can be right.
        """
        try:
            return self._read(self._now())
        except (BackendError, SnapshotError):
            self._site = self._hardware = None
            raise

    def _read(self, asked_at: float) -> Snapshot:
        site, layout = self._known_site()
        taken_at = asked_at
        if self.ahead_s is not None and abs(self.ahead_s) <= CLOCK_S:
            taken_at += self.ahead_s
        kept, names = self._known_hardware(site, taken_at)
        self.tasks.look()
        marks = self._new_marks()
        sinfo = self.commands.call(
            "sinfo", "--local", "-a", "-N", "-O", marks.columns(NODE_COLUMNS)
        )
        odd: list[str] = []
        unseen: list[Unreadable] = []
        rows = self._hidden.beside(
            marks.rows(sinfo, len(NODE_COLUMNS), odd), names, taken_at, unseen
        )
        nodes, partitions, unread = read_nodes(rows, site.exclusive_partitions, kept)
        exclusive = frozenset(p.name for p in partitions if p.oversubscribe == "EXCLUSIVE")
        shown = self.commands.call("scontrol", "-o", "show", "reservations")
        reservations, odd_ones = read_reservations(shown.lines())
        marks = self._new_marks()
        factors, misread = ask_sprio(self.commands, marks) if site.multifactor else ({}, {})
        bad = {u.name: u.why for u in unread if u.kind == "partition"}

        def wrong(job_id: JobId, names: tuple[str, ...]) -> str:
            # a line of sprio without a number may be of any job that has no other
            why = misread.get(job_id) or ("" if job_id in factors else misread.get(JobId(0), ""))
            return why or next((f"partition {n}: {bad[n]}" for n in names if n in bad), "")

        def standing(job: Mapping[str, Any]) -> PriorityState:
            found = standing_of(job, factors.get(job["job_id"]), site)
            if found.live or self._fair_shares is None or not site.priorities.fair_weight:
                return found
            points = self._fair_shares.points(job, taken_at, site.priorities)
            return found._replace(fair=points)

        self._requests = Requests(
            exclusive,
            memory_counts=site.memory_counts,
            roomiest=_roomiest(nodes),
            before=self._requests,
        )
        reader = QueueReader(
            standing,
            requests=self._requests,
            nodes={n.name: n for n in nodes},
            odd=wrong,
            whole=self.tasks.whole,
            digester=self._digester,
            ages_at=taken_at if site.priorities.ages else -math.inf,
            throttles=partial(self._throttles_of, layout, taken_at),
        )
        unlike = list[Unreadable]()
        queue = reader.read(self._source.read(layout, site.version, taken_at, unlike))
        try:
            return Snapshot(
                taken_at=UnixTime(taken_at),
                cluster=site.cluster,
                pending=queue.pending,
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
                    *unlike,
                ),
            )
        except ValueError as error:
            raise SnapshotError(f"squeue and sinfo: {error}") from error

    def _throttles_of(
        self, layout: Layout, now: float, arrays: frozenset[str]
    ) -> Mapping[str, int | None]:
        """What squeue -r leaves out, at most SITE_LIFE_S old; empty = the rows have shown it."""
        if layout.per_record != ROW_PER_TASK:
            return {}
        asked_at, known = self._throttles
        if not 0 <= now - asked_at < SITE_LIFE_S or not arrays <= known.keys():
            names, together = ("arrayjobid", "arraytaskid"), replace(layout, per_record="")
            marks, odd = self._new_marks(), list[str]()
            rows = squeue(self.commands, together, marks, names, "-t", "PD", broken=odd)
            known = dict.fromkeys(arrays) | read_throttles(rows)
            self._throttles = now, known
        return known

    def config(self) -> dict[str, str]:
        """Slurm's configuration, and a look at slurmctld's clock."""
        asked_at = self._now()
        text = self.commands.ask("scontrol", "show", "config")
        self.ahead_s = clock_off_s(text, asked_at, self._now())
        return parse_config(text)

    def clock_off_s(self) -> float | None:
        """How far slurmctld's clock is ahead of this host's, by the last look; None = not known."""
        return self.ahead_s

    def site(self) -> SlurmSite:
        """The settings that reading and writing depend on, at most SITE_LIFE_S old."""
        return self._known_site()[0]

    def _known_site(self) -> tuple[SlurmSite, Layout]:
        now = self._now()
        if self._site is None or not 0 <= now - self._site[0] < SITE_LIFE_S:
            site, layout = read_site(self.config()), self._layout()
            if "Exclusive" in layout.extras:  # 26.05: sinfo does not have it of partitions
                shown = self.commands.ask("scontrol", "-o", "show", "partitions")
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
            kept = read_kept_back(self.commands.call("scontrol", "-o", "show", "nodes").lines())
            names = frozenset[str]()
            if site.hides_nodes:
                shown = self.commands.ask("scontrol", "-o", "show", "partitions")
                names = read_names(shown)
            self._hardware = (now, kept, names)
        return self._hardware[1:]

    def _layout(self) -> Layout:
        usage = self.commands.ask("squeue", "--help")
        listed = "--helpFormat" in usage
        return read_layout(usage, self.commands.ask("squeue", "--helpFormat") if listed else "")

    def reading(self) -> ReaderChoice:
        """What reads the jobs: tried now."""
        return self._source.reading(self._known_site()[0].version)

    def watch(self, of: Iterable[JobId], *, factors: bool) -> dict[JobId, PendingJob]:
        """The pending ones of these records, for a re-read; a bad row costs its own job only.
        factors: with what sprio shows of them, where multifactor rules.
        """
        ids = list(of)
        # as if other records were pending: a task held this instant stays out of a release
        sprio = self.factors(ids) if factors and self.site().multifactor else {}
        queue = self.pending(WATCH_COLUMNS, sprio, only=ids, siblings=1)
        found = {job.job_id: job for job in queue.pending}
        for bad in queue.unreadable:
            why = f"its row in squeue cannot be read: {bad.why}"
            found[bad.job_id] = unreadable(bad.job_id, why)
        return found

    def pending(
        self,
        columns: tuple[str, ...],
        factors: Mapping[JobId, Factors],
        *,
        only: Collection[JobId] | None = None,
        siblings: int = 0,
    ) -> JobsShown:
        """The pending records without what they ask for, in columns of UNDO_COLUMNS. factors: what
        sprio shows of them. only, siblings: see QueueReader.
        """
        site, layout = self._known_site()
        reader = QueueReader(
            lambda job: standing_of(job, factors.get(job["job_id"]), site),
            whole=self.tasks.whole,
            only=None if only is None else frozenset(map(str, only)),
            siblings=siblings,
        )
        return reader.read(squeue(self.commands, layout, self._new_marks(), columns, "-t", "PD"))

    def known(self) -> int:
        """How many jobs squeue shows in whatever state, each task of an array as one."""
        names, layout = ("jobid", "arraytaskid"), self._known_site()[1]
        marks = self._new_marks()
        rows = squeue(self.commands, layout, marks, names, "-t", "all", broken=[])
        tasks = (row["arraytaskid"] for row in rows)
        return sum(1 if absent(listed) else parse_tasks(listed).count for listed in tasks)

    def expected_start(self, job_id: JobId) -> float | None:
        """Unix time at which Slurm's backfill plans to start a record; None = not planned."""
        try:
            starts = [parse_epoch(start) for start in self._of_job(job_id, "starttime")]
        except ValueError as error:
            raise SnapshotError(f"squeue: {error}") from error
        return starts[0] if starts else None

    def speeds(self, job_id: JobId) -> dict[int, float]:
        """By node count how fast a record runs, from its user's comment; empty = none named."""
        comments = self._of_job(job_id, "comment")
        return parse_speeds(comments[0]) if comments else {}

    def _of_job(self, job_id: JobId, column: str) -> list[str]:
        """A column of the rows of a pending record."""
        names, layout = ("jobid", column), self._known_site()[1]
        asked = ("-t", "PD", "-j", str(job_id))
        rows = squeue(self.commands, layout, self._new_marks(), names, *asked)
        found = [row[column] for row in rows if id_of(row["jobid"]) == job_id]
        if len(frozenset(found)) > 1:
            raise SnapshotError(f"squeue: job {job_id}: {TWICE}")
        return found

    def factors(self, jobs: Collection[JobId] | None = None) -> dict[JobId, Factors]:
        """What sprio shows: jobs that are pending, eligible and not held; None = of all jobs."""
        return ask_sprio(self.commands, self._new_marks(), jobs)[0]


def unreadable(job_id: JobId, why: str) -> PendingJob:
    """A record of which nothing is known but that it is pending; it counts as held."""
    return PendingJob(job_id, "", UnixTime(0.0), UNASKED, 0, ("",), unreadable=why)


def _roomiest(nodes: Iterable[Node]) -> dict[str, Resources]:
    """By partition the most CPUs and the most memory that one of its nodes has."""
    found: dict[str, tuple[int, int]] = {}
    for node in nodes:
        cpus, mem_mib = node.total.cpus, node.total.mem_mib
        for name in node.partitions:
            most = found.get(name, (0, 0))
            if cpus > most[0] or mem_mib > most[1]:
                found[name] = max(cpus, most[0]), max(mem_mib, most[1])
    return {name: Resources(0, *most) for name, most in found.items()}
