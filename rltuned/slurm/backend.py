"""The real Slurm: the Backend port of the daemon, and the Undoer port of `rltuned restore`."""

import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from rltuned.domain.cluster import Node, Resources
from rltuned.domain.jobs import JobRun, PendingJob
from rltuned.domain.kinds import Digester
from rltuned.domain.plan import Outcome, Plan
from rltuned.domain.snapshot import RememberedBy, Snapshot, Unreadable, nothing
from rltuned.domain.units import CLOCK_S, JobId, UnixTime
from rltuned.errors import BackendError, SnapshotError
from rltuned.run import Call
from rltuned.slurm.accounting import ended_jobs
from rltuned.slurm.columns import (
    NODE_COLUMNS,
    ROW_PER_TASK,
    TEXT_COLUMNS,
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
from rltuned.slurm.pyslurm import (
    PYSLURM,
    REST_S,
    TEXT,
    TOLD,
    ReaderChoice,
    UnusableError,
    ask_pyslurm,
    rows_of,
)
from rltuned.slurm.request import UNASKED, Requests, parse_speeds
from rltuned.slurm.run import Commands, Fence, SlurmCli
from rltuned.slurm.site import (
    JobCounts,
    Load,
    SlurmSite,
    acting_host,
    ask_controllers,
    clock_off_s,
    parse_config,
    parse_counts,
    parse_sdiag,
    read_site,
)
from rltuned.slurm.squeue import (
    TWICE,
    JobsShown,
    QueueReader,
    Row,
    SteppedTasks,
    id_of,
    squeue,
)
from rltuned.slurm.values import absent, parse_epoch, parse_tasks
from rltuned.slurm.writer import write

SITE_LIFE_S: Final = 300.0
"""How long the site's configuration is believed. It changes when a user edits slurm.conf; the
controller's restart that this often needs shows as a failed read, which forgets it at once."""
MOST_LOOKS: Final = 64
"""At the load are kept: the last of them before a count, which is half a minute old at most."""
_T = TypeVar("_T")


class SlurmBackend:
    """Watches and changes one Slurm cluster through its own commands.

    --local, because in a federation squeue also shows the other clusters' jobs, which rltuned
    cannot address; -a, because hidden partitions hold nodes and jobs too. Every method but `apply`
    raises BackendError: a command fails or gives no answer in time; SnapshotError: an answer cannot
    be read as a whole.

    now: of this host, Unix seconds. on_call: called with every finished command. marks: None = new
    ones for every call. fair_shares: read those of jobs with a fixed priority. fence: knows of
    every read of the cluster, and is asked before every batch of updates. pyslurm: its interpreter;
    None = squeue alone. on_reading: called with each new reader of jobs, where pyslurm is set.
    digester: None = no text of a user is asked for.
    """

    def __init__(
        self,
        cli: SlurmCli,
        now: Callable[[], float],
        *,
        on_call: Callable[[Call], None] = lambda _call: None,
        environ: Mapping[str, str] = os.environ,
        marks: Marks | None = None,
        fair_shares: bool = False,
        fence: Fence | None = None,
        pyslurm: Path | None = None,
        on_reading: Callable[[ReaderChoice], None] = lambda _reading: None,
        digester: Digester | None = None,
    ) -> None:
        def count(call: Call) -> None:
            self._limited += call.limited
            on_call(call)

        self.commands = Commands(cli, count, environ)
        self.ahead_s: float | None = None
        """How far slurmctld's clock is ahead of this host's, as seen last; None = not known."""
        self._in_utc = Commands(cli, on_call, {**environ, "TZ": "UTC"})
        self._now, self._fence = now, fence
        self._new_marks: Callable[[], Marks] = Marks if marks is None else lambda: marks
        self._fair_shares = FairShares(self.commands) if fair_shares else None
        self._python, self._on_reading = pyslurm, on_reading
        self._reading: ReaderChoice | None = None
        self._rest_until = -math.inf
        self._digester = digester
        wanted = () if digester is None else digester.wanted
        self._texts = tuple(name for name in TEXT_COLUMNS if name in wanted)
        self._kept: dict[str, tuple[float, Any]] = {}
        self._tasks = SteppedTasks(self.commands)
        self._hidden = HiddenNodes(self.commands, self._new_marks)
        self._requests: Requests | None = None
        self._counts: JobCounts | None = None  # of a look at the load since the last observe
        self._looks: tuple[JobCounts, ...] = ()
        self._limited = 0  # since the last look at the load

    def observe(self, remembered: RememberedBy = nothing) -> Snapshot:
        """Read the cluster: one squeue, one sinfo, one sprio. See domain/plan.Backend. Where it
        shows fewer jobs than slurmctld counted, by a look at the load just before, any job may be
        there.
        """
        if self._fence is not None:
            self._fence.look()
        seen = self.snapshot()
        seen = seen.marked(remembered(seen.cluster, seen.taken_at))
        counts, self._counts = self._counts, None
        shown = seen.others + len(seen.running) + _tasks_of(seen.pending)
        why = counts.lacking(self._looks, shown) if counts is not None else ""
        return replace(seen, unreadable=(*seen.unreadable, *_missing(why)))

    def look(self) -> Snapshot:
        """The pending jobs alone, as a restore needs them."""
        if self._fence is not None:
            self._fence.look()
        now, site = self._now(), self.site()
        queue, why = self.pending(), ""
        # without a count the numbers of the jobs that are shown can be restored all the same
        with suppress(BackendError, SnapshotError, ValueError):
            counts = parse_counts(self.commands.ask("sdiag"))
            if counts is not None and counts.pending > _tasks_of(queue.pending):
                # those that have started or ended since that count are shown for some minutes
                why = counts.lacking([counts._replace(at=0.0)], self.known())
        try:
            return Snapshot(
                UnixTime(now),
                site.cluster,
                queue.pending,
                running=(),
                nodes=(),
                priorities=site.priorities,
                unreadable=(*queue.unreadable, *_missing(why)),
            )
        except ValueError as error:
            raise SnapshotError(f"squeue: {error}") from error

    def apply(self, plan: Plan) -> tuple[Outcome, ...]:
        """Carry out a plan: one outcome per action, in the same order. Never raises per action."""
        return write(self, self._fence, plan)

    def load(self) -> Load:
        """How busy slurmctld is: one sdiag, one RPC."""
        asked_at, self._counts = self._now(), None
        answer = self.commands.ask("sdiag")
        self._counts = counts = parse_counts(answer)
        if counts is not None:
            earlier = (one for one in self._looks[-MOST_LOOKS:] if one.at < counts.at)
            self._looks = (*earlier, counts)
        limited, self._limited = self._limited, 0
        off_s = self.ahead_s = clock_off_s(answer, asked_at, self._now())
        return replace(parse_sdiag(answer), rate_limited=limited, clock_off_s=off_s)

    def clock_off_s(self) -> float | None:
        """How far slurmctld's clock is ahead of this host's, by the last look; None = not known."""
        return self.ahead_s

    def acting(self) -> str:
        """Host of the slurmctld that acts, as SlurmctldHost has it: one `scontrol ping`."""
        return acting_host(self.controllers())

    def controllers(self) -> dict[str, bool]:
        """Every slurmctld, in the order of SlurmctldHost; at least one of them answers."""
        return ask_controllers(self.commands)

    def ended_jobs(self, since: float, until: float) -> list[JobRun] | None:
        """Jobs that ended by themselves between two moments, by some sacct; None = no slurmdbd.
        Takes long; may be called from another thread than the others. Raises TraceError too.
        """
        if not self.site().accounts:
            return None
        return ended_jobs(self._in_utc, since, until, self._digester)

    def qos(self) -> dict[str, int]:
        """The priority of every QOS, by one sacctmgr."""
        answer = self.commands.ask("sacctmgr", "-nP", "show", "qos", "format=name,priority")
        pairs = (line.strip().rpartition("|") for line in answer.splitlines())
        return {name: int(points) for name, _, points in pairs if name and points.isdecimal()}

    def fair_shares(self, jobs: Iterable[PendingJob]) -> tuple[float, ...]:
        """The different fair-share factors of these jobs' associations, by one sshare."""
        return FairShares(self.commands).factors(jobs, self._now())

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
        if "Exclusive" in layout.job_columns:  # 26.05: sinfo does not have it of partitions
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
        self._tasks.look()
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
        queue = reader.read(self._rows(layout, site.version, taken_at, bad))
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
            whole=self._tasks.whole,
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
            found: dict[str, int | None] = dict.fromkeys(arrays)
            names = "arrayjobid", "arraytaskid"
            for row in self._squeue(names, "-t", "PD", per_record="", broken=[]):
                with suppress(ValueError):
                    found[row["arrayjobid"]] = parse_tasks(row["arraytaskid"]).throttle
            return found

        return self._known("throttles", ask)

    def _rows(
        self, layout: Layout, release: tuple[int, int], now: float, bad: list[Unreadable]
    ) -> Iterator[Row]:
        """The rows of every record, or of every task where squeue parts arrays: from squeue alone,
        or from pyslurm with what jobs ask for from squeue. pyslurm is asked first: a job that only
        it knows has ended, one that only squeue knows is younger than the snapshot, and both are
        left out. Where it cannot be used, text stands in. bad: takes jobs without a row.
        """
        names, jobs, broken = layout.job_columns, None, list[str]()
        if self._python is not None and not 0 < self._rest_until - now <= REST_S:
            try:
                version, jobs = ask_pyslurm(self.commands, self._python, release)
                reading = ReaderChoice(PYSLURM, PYSLURM, f"pyslurm {version}")
                names = ("jobid", *(name for name in names if name not in TOLD))
            except UnusableError as error:
                self._rest_until = now + REST_S
                reading = ReaderChoice(PYSLURM, TEXT, str(error))
            if reading != self._reading:
                self._reading = reading
                self._on_reading(reading)
        rows = self._squeue(names, "--noconvert", texts=self._texts, broken=broken)
        yield from rows if jobs is None else rows_of(jobs, rows, bad)
        bad += [Unreadable("job", "", why) for why in broken]

    def reading(self) -> ReaderChoice:
        """What reads the jobs: tried now."""
        if self._python is None:
            return ReaderChoice(TEXT, TEXT, "squeue, sinfo and sprio as text")
        try:
            version, jobs = ask_pyslurm(self.commands, self._python, self.site().version)
        except UnusableError as error:
            return ReaderChoice(PYSLURM, TEXT, str(error))
        return ReaderChoice(PYSLURM, PYSLURM, f"pyslurm {version}, {len(jobs)} jobs")

    def _squeue(
        self, names: tuple[str, ...], *words: str, per_record: str | None = None, **more: Any
    ) -> Iterator[Row]:
        """See squeue.squeue. per_record: None = as this release takes it."""
        option = self._known_site()[1].per_record if per_record is None else per_record
        return squeue(self.commands, option, self._new_marks(), names, *words, **more)

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
            whole=self._tasks.whole,
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
        rows = self._squeue(("jobid", "arraytaskid"), "-t", "all", broken=[])
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


def _tasks_of(jobs: Iterable[PendingJob]) -> int:
    return sum(job.array.tasks if job.array else 1 for job in jobs)


def _missing(why: str) -> tuple[Unreadable, ...]:
    return (Unreadable("job", "", why),) if why else ()


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
