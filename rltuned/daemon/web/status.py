"""The state of the daemon as one document, for the status page and `rltuned status`.

Made once per cycle from its report, so a request costs Slurm nothing. Single jobs are in it only
where the settings allow it: everyone who reaches the port reads it, and Slurm's PrivateData is not
consulted.
"""

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any, Final

from rltuned import __version__
from rltuned.core.decide import Decision, Entry
from rltuned.core.line import sentence
from rltuned.core.planning import Place, PriorityOrder, priority_order
from rltuned.core.select import reason_of
from rltuned.core.starts import Expected, start_document
from rltuned.daemon.breaker import FEWEST
from rltuned.daemon.canary import CanaryStatus
from rltuned.daemon.documents import place_document
from rltuned.daemon.groups import documents, edges_left_out, open_of, phases
from rltuned.daemon.report import GPU_STATES, CycleReport, Sums, in_line, tasks
from rltuned.daemon.state import STATES, Condition, Health, HealthState
from rltuned.daemon.web.series import LONGEST_S, Series
from rltuned.daemon.wiring import Rig
from rltuned.domain.cluster import Node
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import Result
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId
from rltuned.journal.cycles import UNFINISHED, CycleRow
from rltuned.policies.actor import Actor
from rltuned.slurm.values import asked_job
from rltuned.text import between

Document = dict[str, Any]
CYCLES: Final = 20
"""Last cycles that are shown."""
GROUPS: Final = 20
"""Groups of dependent jobs that are shown, open ones first."""
JOBS: Final = 100
"""First jobs of the new order that are shown."""
CHANGES: Final = 20
"""Last changes that are shown; KEPT of them for the pages of single jobs."""
KEPT: Final = 2_000
BEFORE: Final = 12
"""Jobs that are named on a job's page as those before it."""
USERS: Final = 8
NODES: Final = 30
"""Nodes that are shown."""
LOWEST: Final = 1
"""Slurm's lowest priority of a job that may start: it keeps no order among those."""
_RANKED: Final = ("delay_s", "rank_before", "rank_wished", "what", "bound", "fits")
"""Of an entry; null where there is none."""
EVENTS: Final = 60
_DETAILS: Final[Mapping[HealthState, str]] = {
    HealthState.STANDBY: "another daemon writes",
    HealthState.RIVAL_SUSPECTED: "another daemon seems to write",
    HealthState.NUMBERS_UNEXPLAINED: "the journal does not explain numbers that jobs have",
}
"""Of modes whose sentence needs one, which the journal does not keep."""
_SKIPS: Final[Mapping[str, tuple[str, str]]] = {
    "": ("ok", "cycles come to a result again"),
    "backend": ("bad", "Slurm does not answer"),
    "busy": ("warning", "slurmctld is busy: cycles are left out"),
    "snapshot": ("bad", "what Slurm says cannot be understood"),
    "policy": ("bad", "the policy gives no usable answer"),
    "unexpected": ("bad", "an unexpected error; see the log"),
    UNFINISHED: ("bad", "a cycle was cut off: the daemon was killed"),
}


class Board:
    """Follows the cycles. Written by the loop's thread, read by those of the endpoint. past: the
    cycles of a cluster from a moment on, asked for once. expected: the last forecast. last_week:
    see policies/generations.would_it_help. jobs: whether single jobs are shown, users: and whose
    they are.
    """

    def __init__(
        self,
        now: Callable[[], float],
        past: Callable[[str, float], Iterable[CycleRow]] = lambda _cluster, _since: (),
        expected: Callable[[], Expected | None] = lambda: None,
        last_week: Callable[[], Document | None] = lambda: None,
        *,
        jobs: bool = False,
        users: bool = False,
    ) -> None:
        self._jobs, self._users = jobs, users
        self._now = now
        self._past = past
        self._expected = expected
        self._last_week = last_week
        self._rig: Rig | None = None
        self._cycles: tuple[Document, ...] = ()
        self._changes: tuple[Document, ...] = ()
        self._decision: Decision | None = None
        self._promises: Counter[tuple[str, float, str]] = Counter()
        self._events = Events()
        self._writes = False
        self._of_rows: Snapshot | None = None
        self._remembers = False
        self._last: Document = {}
        self.series = Series()

    def loaded(self, rig: Rig) -> None:
        if self._rig is not None:
            self._events.reloaded(self._now())
        self._rig = rig

    def cycle(self, report: CycleReport) -> None:
        if report.snapshot is not None and not self._remembers:
            self._remember(report.snapshot.cluster, report.started_at)
        # exchanged whole, since threads of the endpoint may be reading the old one
        self._cycles = (_cycle(report), *self._cycles)[:CYCLES]
        self._changes = (*_changes(report), *self._changes)[:KEPT]
        only_observes = report.mode is HealthState.OBSERVE and report.ok
        if report.decision is not None or only_observes:
            self._decision = report.in_force()
            self._of_rows = report.snapshot if self._decision is None else self._decision.snapshot
        self._writes = report.mode is HealthState.LIVE
        self._events.look(report)
        for one, count in report.verdict.promises.items() if report.verdict else ():
            self._promises[one.name, one.max_wait_s, "jobs"] += count.jobs
            self._promises[one.name, one.max_wait_s, "late"] += count.breaches
        if report.sums is not None:
            self.series.add(report.started_at, report.sums.document())
        self._last = {
            **self._last,
            **self._seen(report),
            "groups": _groups(report, jobs=self._jobs, users=self._users),
            "run_times": report.run_times and asdict(report.run_times),
            "next_at": report.started_at + report.next_in_s,
            "last_week": self._last_week(),
        }

    def _remember(self, cluster: str, now: float) -> None:
        """What the journal knows of the last weeks, before the first cycle of this process."""
        self._remembers = True
        for one in self._past(cluster, now - LONGEST_S):
            if one.at < now:
                self.series.add(one.at, one.sums)
                self._events.past(one)

    def _seen(self, report: CycleReport) -> Document:
        seen, sums = report.snapshot, report.sums
        if seen is None or sums is None:
            return {}
        to = report.targets()
        return {
            "cluster": seen.cluster,
            "seen_at": seen.taken_at,
            "partitions": _partitions(report, to),
            "left_alone": report.refused(),
            "gpus": _gpus(sums),
            "waiting": _waiting(seen, sums),
            "users": _users(seen, named=self._users),
            "reasons": _reasons(seen),
            "moves": moves(report, to),
            "nodes": nodes(seen, jobs=self._jobs),
            "jobs": self._rows(seen)[:JOBS] if self._jobs else None,
        }

    def _rows(self, seen: Snapshot) -> list[Document]:
        """All waiting jobs in Slurm's order; those that it could not start at the end. No name of a
        job is there.
        """
        decision, places = self._decision, self._standing(seen).places()
        ranked = {e.job.job_id: e for e in decision.entries} if decision else {}
        refused = dict(decision.refused) if decision else {}
        rows = [
            _row(
                job,
                seen,
                places.get(job.job_id),
                ranked.get(job.job_id),
                refused[job.job_id].sentence
                if job.job_id in refused and job.job_id not in ranked
                else None,
                named=self._users,
                writes=self._writes,
            )
            for job in seen.pending
        ]
        return sorted(rows, key=lambda row: row["rank_now"] or math.inf)

    def _standing(self, seen: Snapshot) -> PriorityOrder:
        if self._decision is not None:
            return self._decision.standing
        return priority_order(in_line(seen), seen)

    def rows(self) -> list[Document]:
        """All waiting jobs with their expected starts; none where jobs are not shown."""
        seen = self._of_rows
        if seen is None or not self._jobs:
            return []
        forecast, now = self._expected(), seen.taken_at
        ids = {job.address: job.job_id for job in seen.pending}
        return [
            {**row, "expected": _expected(forecast, ids[row["job"]], now)}
            for row in self._rows(seen)
        ]

    def job(self, name: str) -> Document | None:
        """The page of one waiting job; None = it is not shown or not there."""
        seen, decision = self._of_rows, self._decision
        try:
            asked = asked_job(name.strip())
        except ValueError:
            return None
        if seen is None or not self._jobs:
            return None
        job = next((j for j in seen.pending if asked.means(j)), None)
        if job is None:
            return None
        rows = self._rows(seen)
        at = next(n for n, row in enumerate(rows) if row["job"] == job.address)
        is_ranked = decision is not None and job in decision.matrix.jobs
        is_in_line = rows[at]["rank_now"] is not None
        return {
            **rows[at],
            "expected": _expected(self._expected(), job.job_id, self._now()),
            "waiting": self._standing(seen).waiting,
            "tiers": len({row["priority_tier"] for row in rows} - {None}),
            "taken_apart": sentence(decision, decision.matrix.jobs.index(job))
            if decision is not None and is_ranked
            else None,
            "before": rows[max(0, at - BEFORE) : at] if is_in_line else [],
            "changes": [c for c in self._changes if c["job"] == job.address],
        }

    def document(self, health: Health, verdict: CanaryStatus) -> Document:
        """All of it. health: as /readyz says it; verdict: the last one that is known."""
        rig = self._rig
        return {
            "rltuned": __version__,
            "now": self._now(),
            **health.document(),
            "stage": None if rig is None else rig.ladder.rung.value,
            "dry_run": None if rig is None else rig.dry_run,
            "policy": None if rig is None else rig.policy.name,
            "trust": None if rig is None else rig.policy.trust,
            "in_place_of": "" if rig is None else rig.in_place_of,
            "digest": None if rig is None else rig.digest,
            "verdict": rig.policy.verdict if rig and isinstance(rig.policy, Actor) else "",
            "generation": None if rig is None else rig.generation,
            "write_mode": None if rig is None else rig.knobs.writing.mode,
            "interval_s": None if rig is None else rig.interval_s,
            **_NOTHING_SEEN,
            **self._last,
            "breakers": [
                {"partition": name, "cause": b.cause, "opened_at": b.opened_at, "detail": b.detail}
                for name in verdict.demoted
                for b in [verdict.breakers[name]]
            ],
            "blocks": [
                {"partition": name, "on": block.on, "until": block.ends_at}
                for name, block in sorted(verdict.blocks.items())
            ],
            "effect": verdict.effect and verdict.effect.document(),
            "effect_at": self._effect_at(verdict),
            "promises": self._promised(),
            "events": self._events.documents(),
            "cycles": list(self._cycles),
            "changes": list(self._changes[:CHANGES]) if self._jobs else None,
        }

    def _promised(self) -> list[Document]:
        """Since the start of the daemon, by class."""
        return [
            {
                "class": name,
                "max_wait_s": most,
                "jobs": count,
                "late": self._promises[name, most, "late"],
            }
            for (name, most, what), count in sorted(self._promises.items())
            if what == "jobs"
        ]

    def _effect_at(self, verdict: CanaryStatus) -> float | None:
        """About when there are enough pairs of blocks for an interval; None = there are, or there
        is nothing to compare.
        """
        switchback = self._rig and self._rig.knobs.rules.switchback
        effect = verdict.effect
        if not switchback or not switchback.off_share or effect is None or effect.interval_s:
            return None
        of_pair_s = 2 * switchback.block_s / (2 * switchback.off_share)
        side_by_side = 1 if switchback.together else max(1, len(verdict.blocks))
        return self._now() + math.ceil((FEWEST - effect.pairs) / side_by_side) * of_pair_s


class Events:
    """The timeline: what has changed of the daemon's state, the latest first; of before, from the
    journal.
    """

    def __init__(self) -> None:
        self._kept: deque[dict[str, Any]] = deque(maxlen=EVENTS)
        self._mode: str | None = None
        self._skip = ""
        self._off: frozenset[str] = frozenset()

    def documents(self) -> list[dict[str, Any]]:
        return list(reversed(self._kept))

    def past(self, one: CycleRow) -> None:
        self._state(one.at, one.mode, one.skipped)

    def look(self, report: CycleReport) -> None:
        at, verdict = report.started_at, report.verdict
        self._state(at, report.mode.value, report.skip.value if report.skip else "")
        if report.moved is not None:
            self._add(at, "notice", f"model {report.moved['generation']} {report.moved['what']}")
        if verdict is None:
            return
        for name in verdict.opened:
            self._add(
                at, "bad", f"the circuit breaker of {name} opens: {verdict.breakers[name].detail}"
            )
        for pair in verdict.pairs:
            self._add(at, "notice", f"a comparison of {pair.partition} is complete")
        off = frozenset(verdict.off)
        for name in sorted(off - self._off):
            self._add(at, "notice", f"off block of {name}: Slurm's own order is measured")
        for name in sorted(self._off - off):
            self._add(at, "ok", f"on block of {name}: delays are on")
        self._off = off

    def reloaded(self, at: float) -> None:
        self._add(at, "notice", "settings loaded")

    def _state(self, at: float, mode: str, skip: str) -> None:
        if skip != self._skip:
            self._skip = skip
            self._add(at, *_SKIPS.get(skip, ("bad", skip)))
        if mode != self._mode and not skip:
            self._mode = mode
            state = STATES.get(mode)
            if state is None:  # of another release
                self._add(at, "notice", mode)
            else:
                self._add(at, state.level, Condition(state, _DETAILS.get(state, "")).sentence)

    def _add(self, at: float, severity: str, text: str) -> None:
        self._kept.append({"at": at, "severity": severity, "text": text})


_NOTHING_SEEN: Final[Document] = {
    "cluster": None,
    "seen_at": None,
    "partitions": [],
    "left_alone": {},
    "gpus": [],
    "waiting": None,
    "users": [],
    "reasons": [],
    "moves": None,
    "nodes": None,
    "jobs": None,
    "groups": None,
    "run_times": None,
    "next_at": None,
    "last_week": None,
}


def _cycle(report: CycleReport) -> Document:
    results, seen = report.results(), report.snapshot
    return {
        "cycle": report.cycle,
        "at": report.started_at,
        "mode": report.mode.value,
        "skip": report.skip.value if report.skip else None,
        "detail": report.detail,
        "seconds": report.seconds,
        "pending": len(seen.pending) if seen else None,
        "running": len(seen.running) if seen else None,
        "proposed": sum(report.proposed().values()),
        "applied": results.get(Result.APPLIED, 0),
        "failed": sum(results.get(r, 0) for r in (Result.REFUSED, Result.FAILED)),
    }


def _changes(report: CycleReport) -> list[Document]:
    return [
        {
            "cycle": report.cycle,
            "at": report.started_at,
            "job": done.action.target.address,
            "old": done.action.old,
            "new": done.action.new,
        }
        for done in report.outcomes
        if done.result is Result.APPLIED and done.action.field.orders
    ]


def _groups(report: CycleReport, *, jobs: bool, users: bool) -> Document | None:
    """Of dependent jobs; None = not known."""
    found = report.groups
    if found is None:
        return None
    listed = [
        {**one, "user": one["user"] if users else None}
        for one in (documents(found)[:GROUPS] if jobs else ())
    ]
    seen = report.snapshot
    return {
        "open": len(open_of(found)),
        "jobs": phases(found),
        "edges_left_out": 0 if seen is None else edges_left_out(found, seen),
        "listed": listed,
    }


# -- What is read off one cycle: GPUs, users, reasons, jobs, nodes ---------------------------------


def _gpus(sums: Sums) -> list[Document]:
    """By type."""
    return [
        {"type": name, **{state: sums.gpus.get((state, name), 0) for state in GPU_STATES}}
        for name in sums.types
    ]


def _waiting(seen: Snapshot, sums: Sums) -> Document:
    """The jobs that could start, and how many more there are."""
    every = sum(tasks(job) for job in seen.pending)
    return {
        "jobs": sums.waiting,
        "gpus": sum(sums.wanted.values()),
        "work_s": sums.work_s,
        "longest_s": sums.longest_s,
        "cannot_start": every - sums.waiting,
    }


def _users(seen: Snapshot, *, named: bool) -> list[Document]:
    """Who waits for most GPUs; without names the order alone says who is who."""
    found: dict[str, Document] = defaultdict(
        lambda: {"used": 0, "wanted": 0, "jobs": 0, "waited_s": 0.0}
    )
    for job in in_line(seen):
        row, count = found[job.user], tasks(job)
        row["wanted"] += job.request.size.gpus * count
        row["jobs"] += count
        row["waited_s"] += job.waited_s(seen.taken_at) * count
    for run in seen.running:
        found[run.user]["used"] += run.request.size.gpus
    waits = [(name, row) for name, row in found.items() if row["jobs"]]
    waits.sort(key=lambda one: (-one[1]["wanted"], -one[1]["jobs"], one[0]))
    return [
        {
            "user": name if named else f"user {chr(ord('A') + place)}",
            "used": row["used"],
            "wanted": row["wanted"],
            "jobs": row["jobs"],
            "mean_wait_s": row["waited_s"] / row["jobs"],
        }
        for place, (name, row) in enumerate(waits[:USERS])
    ]


def _reasons(seen: Snapshot) -> list[Document]:
    """Why jobs wait, by Slurm's reason, the most frequent first."""
    counts: Counter[str] = Counter()
    for job in seen.pending:
        counts[(job.reason or "None").partition(",")[0]] += tasks(job)
    return [
        {"reason": reason, "words": reason_of(reason).words, "jobs": count}
        for reason, count in counts.most_common()
    ]


def moves(report: CycleReport, to: Mapping[JobId, int]) -> Document:
    """How many jobs stand elsewhere than in Slurm's own order, or would where nothing is written.
    to: CycleReport.targets. tied: with the lowest number.
    """
    entries = report.decision.entries if report.decision else ()
    steps = [e.rank_before - to[e.job.job_id] for e in entries]
    return {
        "up": sum(step > 0 for step in steps),
        "down": sum(step < 0 for step in steps),
        "same": sum(step == 0 for step in steps),
        "tied": tied if (tied := sum(e.settled <= LOWEST for e in entries)) > 1 else 0,
        "most_up": max([*steps, 0]),
        "most_down": -min([*steps, 0]),
    }


def _row(
    job: PendingJob,
    seen: Snapshot,
    place: Place | None,
    entry: Entry | None,
    refusal: str | None,
    *,
    named: bool,
    writes: bool,
) -> Document:
    """A job and where it stands; place: None = Slurm could not start it. entry: None = it is left
    alone, or nothing is ranked; refusal: why, in words. rank_to: the place in force, or where
    nothing is written the proposed one. Nothing of it is a name unless `named`.
    """
    limit_s = job.request.time_limit_s
    ranked = {name: getattr(entry, name, None) for name in _RANKED}
    planned = None if entry is None else entry.settled
    stands = place_document(job, place)
    return {
        "job": job.address,
        "partition": ",".join(job.partitions),
        "user": job.user if named else None,
        "gpus": job.request.total.gpus,
        "limit_s": None if limit_s is None or math.isinf(limit_s) else limit_s,
        "waited_s": job.waited_s(seen.taken_at),
        "reason": job.reason or "None",
        "expected": None,
        **ranked,
        **{name: stands[name] for name in ("rank_now", "ties", "priority_tier")},
        "rank_to": stands["rank_now"] if writes or entry is None else entry.rank_wished,
        "planned": planned,
        "priority": stands["current_priority"],
        "refusal": refusal,
    }


def _expected(forecast: Expected | None, job_id: JobId, now: float) -> str | None:
    """When a job is expected to start, in words; None = not known."""
    times = start_document(forecast, job_id)["expected_start"]
    return None if times is None else between(times["low_s"], times["high_s"], now)


def nodes(seen: Snapshot, *, jobs: bool) -> Document:
    """Nodes with GPUs: those that take no jobs, then those where a job ends first by its limit,
    and what runs there. idle: how many run nothing, which are not listed.
    """
    runs: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for run in seen.running:
        for share in run.shares:
            runs[share.node].append((run.address, run.latest_end()))
    with_gpus = [one for one in seen.nodes if one.total.gpus]
    listed = [one for one in with_gpus if runs[one.name] or not one.schedulable]
    rows = [_node(one, runs[one.name], jobs=jobs) for one in listed]
    rows.sort(key=lambda row: (not row["down"], row["next_end_at"] or math.inf, row["node"]))
    return {
        "all": len(with_gpus),
        "idle": len(with_gpus) - len(listed),
        "rows": rows[:NODES],
        "more": len(rows[NODES:]),
    }


def _node(one: Node, runs: list[tuple[str, float]], *, jobs: bool) -> Document:
    ends = [end for _, end in runs if math.isfinite(end)]
    return {
        "node": one.name,
        "types": ", ".join(sorted({g.gpu_type or "gpu" for g in one.gpus})),
        "used": one.total.gpus - one.free.gpus,
        "gpus": one.total.gpus,
        "down": not one.schedulable,
        "state": one.state or ("" if one.schedulable else "takes no jobs"),
        "running": len(runs),
        "jobs": [name for name, _ in runs][:6] if jobs else None,
        "next_end_at": min(ends, default=None),
        "free_at": max(ends, default=None),
    }


def _partitions(report: CycleReport, to: Mapping[JobId, int]) -> list[Document]:
    """A line for each: what waits, how long, and how many jobs stand elsewhere. to: as in moves."""
    waits: dict[str, list[float]] = defaultdict(list)
    moved: Counter[tuple[str, str]] = Counter()
    for job in report.snapshot.pending if report.snapshot else ():
        waits[",".join(job.partitions)].append(job.waited_s(report.started_at))
    for entry in report.decision.entries if report.decision else ():
        step = entry.rank_before - to[entry.job.job_id]
        way = "up" if step > 0 else "down" if step < 0 else "same"
        moved[",".join(entry.job.partitions), way] += 1
    return [
        {
            "partition": name,
            "pending": len(waited_s),
            "waited_mean_s": sum(waited_s) / len(waited_s),
            "waited_most_s": max(waited_s),
            **{way: moved[name, way] for way in ("up", "down", "same")},
            "left_alone": len(waited_s) - sum(moved[name, way] for way in ("up", "down", "same")),
        }
        for name, waited_s in sorted(waits.items())
    ]
