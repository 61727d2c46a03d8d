"""Reading the cluster: which commands are run, and what is made of their answers."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from rltuned.domain.cluster import Node, Resources
from rltuned.domain.jobs import PendingJob
from rltuned.domain.kinds import Digester
from rltuned.domain.snapshot import Snapshot, Unreadable
from rltuned.domain.units import CLOCK_S, JobId, UnixTime
from rltuned.errors import BackendError, SnapshotError
from rltuned.slurm.columns import (
    NODE_COLUMNS,
    ROW_PER_TASK,
    UNDO_COLUMNS,
    WATCH_COLUMNS,
    Layout,
    Marks,
    read_layout,
)
from rltuned.slurm.nodes import (
    HiddenNodes,
    read_kept_back,
    read_nodes,
    read_partitions,
    read_reservations,
)
from rltuned.slurm.priority import FairShares, ask_sprio, standing_of
from rltuned.slurm.pyslurm import JobSource, ReaderChoice
from rltuned.slurm.request import UNASKED, Requests, parse_speeds
from rltuned.slurm.run import Commands
from rltuned.slurm.site import SlurmSite, clock_off_s, parse_config, read_site
from rltuned.slurm.squeue import (
    TWICE,
    JobsShown,
    QueueReader,
    Row,
    SteppedTasks,
    id_of,
    read_throttles,
    squeue,
)
from rltuned.slurm.values import absent, parse_epoch, parse_tasks

SITE_LIFE_S: Final = 300.0
"""How long the site's configuration is believed. It changes when a user edits slurm.conf; the
controller's restart that this often needs shows as a failed read, which forgets it at once."""
_T = TypeVar("_T")


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
        self._kept: dict[str, tuple[float, Any]] = {}
        self.tasks = SteppedTasks(commands)
        self._hidden = HiddenNodes(commands, self._new_marks)
        self._requests: Requests | None = None

    def _known(self, name: str, ask: Callable[[], _T]) -> _T:
        """What was asked at most SITE_LIFE_S ago."""
        now = self._now()
        if name not in self._kept or not 0 <= now - self._kept[name][0] < SITE_LIFE_S:
            self._kept[name] = now, ask()
        found: _T = self._kept[name][1]
        return found

    def config(self) -> dict[str, str]:
        """Slurm's configuration, and a look at slurmctld's clock."""
        asked_at = self._now()
        text = self.commands.ask("scontrol", "show", "config")
        self.ahead_s = clock_off_s(text, asked_at, self._now())
        return parse_config(text)

    def site(self) -> SlurmSite:
        """The settings that reading and writing depend on."""
        return self._known_site()[0]

    def _known_site(self) -> tuple[SlurmSite, Layout]:
        return self._known("site", self._ask_site)

    def _ask_site(self) -> tuple[SlurmSite, Layout]:
        site, usage = read_site(self.config()), self.commands.ask("squeue", "--help")
        known = self.commands.ask("squeue", "--helpFormat") if "--helpFormat" in usage else ""
        layout = read_layout(usage, known)
        if "Exclusive" in layout.extras:  # 26.05: sinfo does not have it of partitions
            site = replace(site, exclusive_partitions=self._partitions()[1])
        return site, layout

    def _partitions(self) -> tuple[frozenset[str], frozenset[str]]:
        return read_partitions(self.commands.ask("scontrol", "-o", "show", "partitions"))

    def snapshot(self) -> Snapshot:
        """The cluster now: one squeue, sinfo, sprio and scontrol each. It is taken at the time of
        slurmctld's clock, by which ages count, as long as that can be right.
        """
        try:
            return self._read(self._now())
        except (BackendError, SnapshotError):
            self._kept.clear()
            raise

    def _read(self, taken_at: float) -> Snapshot:
        site, layout = self._known_site()
        if self.ahead_s is not None and abs(self.ahead_s) <= CLOCK_S:
            taken_at += self.ahead_s
        show = partial(self.commands.call, "scontrol", "-o", "show")
        kept = self._known("kept", lambda: read_kept_back(show("nodes").lines()))
        # sinfo does not say of all what they keep, and hides some
        names = self._known("names", self._partitions)[0] if site.hides_nodes else frozenset()
        self.tasks.look()
        marks, odd, bad = self._new_marks(), list[str](), list[Unreadable]()
        words = ("--local", "-a", "-N", "-O", marks.columns(NODE_COLUMNS))
        rows = marks.rows(self.commands.call("sinfo", *words), len(NODE_COLUMNS), odd)
        rows = self._hidden.beside(rows, names, taken_at, bad)
        nodes, partitions, unread = read_nodes(rows, site.exclusive_partitions, kept)
        reservations, unread_too = read_reservations(show("reservations").lines())
        bad += [*unread, *unread_too, *(Unreadable("node", "", why) for why in odd)]
        self._requests = Requests(
            frozenset(p.name for p in partitions if p.oversubscribe == "EXCLUSIVE"),
            memory_counts=site.memory_counts,
            roomiest=_roomiest(nodes),
            before=self._requests,
        )
        reader = self._queue_reader(site, taken_at, {u.name: u.why for u in unread})
        reader.nodes = {n.name: n for n in nodes}
        reader.throttles = partial(self._throttles_of, layout)
        queue = reader.read(self._source.read(layout, site.version, taken_at, bad))
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
                unreadable=(*bad, *queue.unreadable),
            )
        except ValueError as error:
            raise SnapshotError(f"squeue and sinfo: {error}") from error

    def _queue_reader(
        self, site: SlurmSite, taken_at: float, unread: Mapping[str, str]
    ) -> QueueReader:
        """A reader that knows what sprio shows now. unread: partitions, and why."""
        marks, system = self._new_marks(), site.priorities
        seen, misread = ask_sprio(self.commands, marks) if site.multifactor else ({}, {})

        def wrong(job_id: JobId, names: tuple[str, ...]) -> str:
            # a line of sprio without a number may be of any job that has no other
            why = misread.get(job_id) or ("" if job_id in seen else misread.get(JobId(0), ""))
            return why or next((f"partition {n}: {unread[n]}" for n in names if n in unread), "")

        def standing(job: Mapping[str, Any]) -> dict[str, Any]:
            found = standing_of(job, seen.get(job["job_id"]), site)
            if self._fair_shares and system.fair_weight and not found["live"]:
                found["fair"] = self._fair_shares.points(job, taken_at, system)
            return found

        return QueueReader(
            standing,
            requests=self._requests,
            odd=wrong,
            whole=self.tasks.whole,
            digester=self._digester,
            ages_at=taken_at if system.ages else -math.inf,
        )

    def _throttles_of(self, layout: Layout, arrays: frozenset[str]) -> Mapping[str, int | None]:
        """What squeue -r leaves out; empty = the rows have shown it."""
        if layout.per_record != ROW_PER_TASK:
            return {}
        if "throttles" in self._kept and not arrays <= self._kept["throttles"][1].keys():
            del self._kept["throttles"]

        def ask() -> dict[str, int | None]:
            names, together = ("arrayjobid", "arraytaskid"), replace(layout, per_record="")
            rows = squeue(self.commands, together, self._new_marks(), names, "-t", "PD", broken=[])
            return dict.fromkeys(arrays) | read_throttles(rows)

        return self._known("throttles", ask)

    def reading(self) -> ReaderChoice:
        """What reads the jobs: tried now."""
        return self._source.reading(self.site().version)

    def _squeue(self, names: tuple[str, ...], *words: str) -> Iterable[Row]:
        return squeue(self.commands, self._known_site()[1], self._new_marks(), names, *words)

    def pending(
        self,
        columns: tuple[str, ...] = UNDO_COLUMNS,
        *,
        factors: bool = True,
        only: Collection[JobId] | None = None,
        siblings: int = 0,
    ) -> JobsShown:
        """The pending records without what they ask for, in columns of UNDO_COLUMNS. factors: with
        what sprio shows of them, where multifactor rules. only, siblings: see QueueReader.
        """
        site = self.site()
        seen = {}
        if factors and site.multifactor:
            seen = ask_sprio(self.commands, self._new_marks(), only)[0]
        reader = QueueReader(
            lambda job: standing_of(job, seen.get(job["job_id"]), site),
            whole=self.tasks.whole,
            only=None if only is None else frozenset(map(str, only)),
            siblings=siblings,
        )
        return reader.read(self._squeue(columns, "-t", "PD"))

    def watch(self, of: Iterable[JobId], *, factors: bool) -> dict[JobId, PendingJob]:
        """The pending ones of these records, for a re-read; a bad row costs its own job only. That
        one counts as held. factors: as of pending.
        """
        # as if other records were pending: a task held this instant stays out of a release
        queue = self.pending(WATCH_COLUMNS, factors=factors, only=list(of), siblings=1)
        found = {job.job_id: job for job in queue.pending}
        for bad in queue.unreadable:
            why = f"its row in squeue cannot be read: {bad.why}"
            found[bad.job_id] = PendingJob(
                bad.job_id, "", UnixTime(0.0), UNASKED, 0, ("",), unreadable=why
            )
        return found

    def known(self) -> int:
        """How many jobs squeue shows in whatever state, each task of an array as one."""
        layout, marks = self._known_site()[1], self._new_marks()
        names, words = ("jobid", "arraytaskid"), ("-t", "all")
        rows = squeue(self.commands, layout, marks, names, *words, broken=[])
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
        rows = self._squeue(("jobid", column), "-t", "PD", "-j", str(job_id))
        found = [row[column] for row in rows if id_of(row["jobid"]) == job_id]
        if len(frozenset(found)) > 1:
            raise SnapshotError(f"squeue: job {job_id}: {TWICE}")
        return found


def _roomiest(nodes: Iterable[Node]) -> dict[str, Resources]:
    """By partition the most CPUs and the most memory that one of its nodes has."""
    found: dict[str, Resources] = {}
    for node in nodes:
        for name in node.partitions:
            most, own = found.get(name, Resources()), node.total
            if own.cpus > most.cpus or own.mem_mib > most.mem_mib:
                both = max(own.cpus, most.cpus), max(own.mem_mib, most.mem_mib)
                found[name] = Resources(0, *both)
    return found
