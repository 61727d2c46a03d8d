"""What the port and the socket show: the document of the daemon's state, and answers about jobs.

Follows the cycles, so a request costs Slurm nothing. Single jobs are in it only where the settings
allow it: everyone who reaches the port reads it, and Slurm's PrivateData is not consulted.
"""

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rltuned import __version__
from rltuned.core.decide import Knobs
from rltuned.core.select import reason_of
from rltuned.core.starts import Expected, expectation
from rltuned.daemon.breaker import FEWEST
from rltuned.daemon.canary import CanaryStatus
from rltuned.daemon.documents import Document, Look, of_task
from rltuned.daemon.groups import documents, edges_left_out, open_of, phases
from rltuned.daemon.report import GPU_STATES, CycleReport, condition_of, in_line, tasks
from rltuned.daemon.state import STATES, Condition, Health, HealthState
from rltuned.daemon.web.series import LONGEST_S, Series
from rltuned.daemon.what_if import OtherRequest, WhatIf, other_of
from rltuned.daemon.wiring import Rig
from rltuned.domain.plan import Result
from rltuned.domain.snapshot import Snapshot
from rltuned.journal.cycles import CycleRow
from rltuned.policies.actor import Actor

CYCLES: Final = 20
"""Last cycles that are shown; and changes, and groups."""
JOBS: Final = 100
"""First jobs of the order that /status.json has."""
USERS: Final = 8
NODES: Final = 30
EVENTS: Final = 60
LOWEST: Final = 1
"""Slurm's lowest priority of a job that may start: it keeps no order among those."""
NOT_SHOWN: Final = "it shows jobs to their own users over its socket, and to all with http.jobs"
NO_DECISION: Final = "it has made no decision yet, or only observes"
NO_JOB: Final = "it sees no pending or running job {}"


@dataclass(frozen=True, slots=True)
class Asker:
    """user: empty = not known. is_admin: root, or the daemon's own user."""

    user: str = ""
    is_admin: bool = False


class Board:
    """Written by the loop's thread, read by those of the endpoint. past: the cycles of a cluster
    from a moment on, asked for once. expected: the last forecast. last_week: see
    policies/generations.would_it_help. run_times: what was learned of them. jobs: whether all see
    single jobs, users: and whose they are. journal: its file. what_if: plays other requests; None =
    none are played.
    """

    def __init__(
        self,
        now: Callable[[], float],
        past: Callable[[str, float], Iterable[CycleRow]] = lambda _cluster, _since: (),
        expected: Callable[[], Expected | None] = lambda: None,
        last_week: Callable[[], Document | None] = lambda: None,
        run_times: Callable[[], Document | None] = lambda: None,
        *,
        jobs: bool = False,
        users: bool = False,
        journal: Path | None = None,
        what_if: WhatIf | None = None,
    ) -> None:
        self._now, self._past, self._expected, self._last_week = now, past, expected, last_week
        self._run_times = run_times
        self._all_see, self._named, self._journal, self._what_if = jobs, users, journal, what_if
        self._rig: Rig | None = None
        self._look: Look | None = None
        self._report: CycleReport | None = None
        self._writes = self._remembers = False
        self._rows: tuple[Look | None, Expected | None, list[Document]] = None, None, []
        self._cycles = deque[Document](maxlen=CYCLES)
        self._changes = deque[Document](maxlen=CYCLES)
        self._promises: dict[tuple[str, float], Document] = {}
        self._events = deque[Document](maxlen=EVENTS)
        self._state: str | None = None
        self._off: frozenset[str] = frozenset()
        self.series = Series()

    # -- The loop's thread -------------------------------------------------------------------------

    def loaded(self, rig: Rig) -> None:
        if self._rig is not None:
            self._event(self._now(), "notice", "settings loaded")
        self._rig = rig

    def cycle(self, report: CycleReport) -> None:
        seen, at, sums = report.snapshot, report.started_at, report.sums
        if seen is not None and not self._remembers:
            self._remembers = True
            for one in self._past(seen.cluster, at - LONGEST_S):
                if one.at < at:
                    self.series.add(one.at, one.sums)
                    self._changed_to(one.at, one.mode, one.skipped, "")
        if sums is not None:
            self.series.add(at, sums.document())
        self._cycles.appendleft(_cycle(report))
        self._changes.extendleft(reversed(_changes(report)))
        self._writes = report.mode is HealthState.LIVE
        only_observes = report.mode is HealthState.OBSERVE and report.ok
        if seen is not None and (report.decision is not None or only_observes):
            decision = report.in_force()
            self._look = Look(
                seen if decision is None else decision.snapshot,
                report.context,
                decision,
                Knobs() if self._rig is None else self._rig.knobs,
                report.groups,
                journal=self._journal,
            )
            self._report = report
        self._follow(report)

    def _follow(self, report: CycleReport) -> None:
        """The timeline, and how promises are kept."""
        at, verdict, failure = report.started_at, report.verdict, report.failure
        skip, detail = (failure.skip.value, failure.detail) if failure else ("", "")
        self._changed_to(at, report.mode.value, skip, detail)
        if verdict is None:
            return
        if (moved := verdict.moved) is not None:
            self._event(at, "notice", f"model {moved['generation']} {moved['what']}")
        for one, (jobs, late) in verdict.promises.items():
            row: Document = {"class": one.name, "max_wait_s": one.max_wait_s, "jobs": 0, "late": 0}
            row = self._promises.setdefault((one.name, one.max_wait_s), row)
            row["jobs"] += jobs
            row["late"] += late
        for name in verdict.opened:
            why = verdict.breakers[name].detail
            self._event(at, "bad", f"the circuit breaker of {name} opens: {why}")
        for pair in verdict.pairs:
            self._event(at, "notice", f"a comparison of {pair.partition} is complete")
        off, before = frozenset(verdict.off), self._off
        for name in sorted(off - before):
            self._event(at, "notice", f"off block of {name}: Slurm's own order is measured")
        for name in sorted(before - off):
            self._event(at, "ok", f"on block of {name}: delays are on")
        self._off = off

    def _changed_to(self, at: float, mode: str, skip: str, detail: str) -> None:
        """An event where the state is another one; modes of another release have no sentence."""
        if (skip or mode) == self._state:
            return
        self._state = skip or mode
        state = STATES.get(mode)
        one = condition_of(skip, detail) if skip else state and Condition(state, "see the log")
        self._event(at, one.state.level if one else "notice", one.sentence if one else mode)

    def _event(self, at: float, severity: str, text: str) -> None:
        self._events.appendleft({"at": at, "severity": severity, "text": text})

    # -- Requests: the state -----------------------------------------------------------------------

    def document(self, health: Health, verdict: CanaryStatus) -> Document:
        """All of it. health: as /readyz says it; verdict: the last one that is known."""
        rig, look, report = self._rig, self._look, self._report
        rows = self.rows()
        policy = rig and rig.policy
        return {
            "rltuned": __version__,
            "now": self._now(),
            **health.document(),
            "stage": rig and rig.ladder.rung.value,
            "dry_run": rig and rig.dry_run,
            "policy": policy and policy.name,
            "trust": policy and policy.trust,
            "in_place_of": rig.in_place_of if rig else "",
            "digest": rig and rig.digest,
            "verdict": policy.verdict if isinstance(policy, Actor) else "",
            "generation": rig and rig.generation,
            "write_mode": rig and rig.knobs.writing.mode,
            "interval_s": rig and rig.interval_s,
            "writes": self._writes,
            "cluster": look and look.snapshot.cluster,
            "seen_at": look and look.snapshot.taken_at,
            "next_at": report
            and report.started_at + (rig.interval_s if rig else 0.0) * report.stretch,
            "run_times": self._run_times(),
            "forecast": None,
            "last_week": self._last_week() if look else None,
            **_seen(look, report, rows, named=self._named, jobs=self._all_see),
            "jobs": rows[:JOBS] if self._all_see else None,
            "breakers": [
                {"partition": name, "cause": b.cause, "opened_at": b.opened_at, "detail": b.detail}
                for name, b in sorted(verdict.breakers.items())
                if b.is_open
            ],
            "blocks": [
                {"partition": name, "on": block.on, "until": block.ends_at}
                for name, block in sorted(verdict.blocks.items())
            ],
            "effect": verdict.effect and verdict.effect.document(),
            "effect_at": self._effect_at(verdict),
            "promises": [dict(row) for _, row in sorted(self._promises.items())],
            "events": list(self._events),
            "cycles": list(self._cycles),
            "changes": list(self._changes) if self._all_see else None,
        }

    def _effect_at(self, verdict: CanaryStatus) -> float | None:
        """About when there are enough pairs of blocks for an interval; None = there are, or there
        is nothing to compare.
        """
        switchback, effect = self._rig and self._rig.knobs.rules.switchback, verdict.effect
        if not switchback or not switchback.off_share or effect is None or effect.interval_s:
            return None
        of_pair_s = 2 * switchback.block_s / (2 * switchback.off_share)
        side_by_side = 1 if switchback.together else max(1, len(verdict.blocks))
        return self._now() + math.ceil((FEWEST - effect.pairs) / side_by_side) * of_pair_s

    def rows(self) -> list[Document]:
        """All waiting jobs in Slurm's order, those that it could not start at the end; whether or
        not they are shown. rank_to: the place in force, or where nothing is written the proposed.
        """
        look, expected = self._look, self._expected()
        if look is None:
            return []
        before, of, rows = self._rows
        if before is look and of is expected:
            return rows
        rows = [
            {
                **row,
                "user": row["user"] if self._named else "",
                "rank_to": row["rank_now"]
                if self._writes or row["rank_wished"] is None
                else row["rank_wished"],
            }
            for row in replace(look, expected=expected).rows()
        ]
        rows.sort(key=lambda row: row["rank_now"] or math.inf)
        self._rows = look, expected, rows
        return rows

    # -- Requests: jobs ----------------------------------------------------------------------------

    def asked(self, words: dict[str, str], asker: Asker) -> Document:
        """Of the job that an address names, and of another request for it."""
        try:
            other = other_of(words.get("limit"), words.get("gpus"))
        except ValueError as error:
            return _nothing(str(error))
        return self.explain(words.get("job", ""), asker, other)

    def explain(self, name: str, asker: Asker, other: OtherRequest | None = None) -> Document:
        """All that is known of one job, or `why` not. other: also, when it would start so."""
        look = self._look
        if look is None:
            return _nothing(NO_DECISION)
        look = replace(look, expected=self._expected())
        found, job = look.explain(name, self._now()), look.find(name)
        user = found.get("user", "") if found else ""
        if not self._sees(asker, user):
            return _nothing(NOT_SHOWN)
        if found is None:
            return _nothing(NO_JOB.format(name))
        found["user"] = self._user(asker, user)
        if job is not None:
            came_later = look.expected is not None and look.expected.start_of(job.job_id) is None
            if self._what_if is not None and (other is not None or came_later):
                # a job that came after the last forecast is played now
                asks, asked = self._what_if.ask, other or OtherRequest()
                told = asks(job.job_id, asked, asker.user, is_admin=asker.is_admin)
                played = told["what_if"] and of_task(told["what_if"], job, name)
                if other is not None:
                    found |= {**told, "what_if": played}
                elif played:
                    found |= {key: played[key] for key in expectation(None, job.job_id, 0.0)}
        return {"rltuned": __version__, "job": found}

    def plan(self, asker: Asker) -> Document:
        """The decision as `plan --json` has it, with the jobs that the asker may see."""
        look = self._look
        if look is None or look.decision is None:
            return _nothing(NO_DECISION)
        if not asker.user and not self._sees(asker, ""):
            return _nothing(NOT_SHOWN)
        whole = replace(look, expected=self._expected()).plan()
        whole["jobs"] = [
            {**row, "user": self._user(asker, row["user"])}
            for row in whole["jobs"]
            if self._sees(asker, row["user"])
        ]
        return {"rltuned": __version__, "plan": whole}

    def _sees(self, asker: Asker, user: str) -> bool:
        return self._all_see or asker.is_admin or bool(user and asker.user == user)

    def _user(self, asker: Asker, user: str) -> str:
        return user if self._named or asker.is_admin or asker.user == user else ""


def _nothing(why: str) -> Document:
    return {"rltuned": __version__, "why": why}


def _cycle(report: CycleReport) -> Document:
    results, seen = report.results(), report.snapshot
    return {
        "cycle": report.cycle,
        "at": report.started_at,
        "mode": report.mode.value,
        "skip": report.failure and report.failure.skip.value,
        "detail": report.failure and report.failure.detail,
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
    ][:CYCLES]


# -- What is read off one look: GPUs, users, reasons, nodes, partitions ----------------------------


def _seen(
    look: Look | None, report: CycleReport | None, rows: list[Document], *, named: bool, jobs: bool
) -> Document:
    """named: users by their names; jobs: those of nodes too."""
    if look is None or report is None or report.sums is None:
        lists: Document = {k: [] for k in ("partitions", "gpus", "users", "reasons")}
        nothing = dict.fromkeys(("waiting", "moves", "nodes", "groups"))
        return {**lists, **nothing, "left_alone": {}}
    seen, sums, groups = look.snapshot, report.sums, look.groups
    reasons: Counter[str] = Counter()
    for job in seen.pending:
        reasons[(job.reason or "None").partition(",")[0]] += tasks(job)
    of = defaultdict[str, list[Document]](list)
    for row in rows:
        of[row["partition"]].append(row)
    return {
        "partitions": [{"partition": name, **moves(here)} for name, here in sorted(of.items())],
        "moves": moves(rows),
        "left_alone": report.refused(),
        "gpus": [
            {"type": name, **{state: sums.gpus.get((state, name), 0) for state in GPU_STATES}}
            for name in sorted({name for _, name in sums.gpus})
        ],
        "waiting": {
            "jobs": sums.waiting,
            "gpus": sum(sums.wanted.values()),
            "work_s": sums.work_s,
            "longest_s": sums.longest_s,
            "cannot_start": sum(map(tasks, seen.pending)) - sums.waiting,
        },
        "users": _users(seen, named=named),
        "reasons": [
            {"reason": reason, "words": reason_of(reason).words, "jobs": count}
            for reason, count in reasons.most_common()
        ],
        "nodes": nodes(seen, jobs=jobs),
        "groups": groups
        and {
            "open": len(open_of(groups)),
            "jobs": phases(groups),
            "edges_left_out": edges_left_out(groups, seen),
            "listed": [
                {**one, "user": one["user"] if named else None}
                for one in (documents(groups)[:CYCLES] if jobs else ())
            ],
        },
    }


def _users(seen: Snapshot, *, named: bool) -> list[Document]:
    """Who waits for most GPUs; without names the order alone says who is who."""
    found = defaultdict[str, Counter[str]](Counter)
    for job in in_line(seen):
        count, row = tasks(job), found[job.user]
        row["wanted"] += job.request.size.gpus * count
        row["jobs"] += count
        row["waited_s"] += int(job.waited_s(seen.taken_at)) * count
    for run in seen.running:
        found[run.user]["used"] += run.request.size.gpus
    waits = [(name, row) for name, row in found.items() if row["jobs"]]
    waits.sort(key=lambda one: (-one[1]["wanted"], -one[1]["jobs"], one[0]))
    return [
        {
            "user": name if named else f"user {chr(ord('A') + place)}",
            **{key: row[key] for key in ("used", "wanted", "jobs")},
            "mean_wait_s": row["waited_s"] / row["jobs"],
        }
        for place, (name, row) in enumerate(waits[:USERS])
    ]


def moves(rows: Sequence[Document]) -> Document:
    """How long these jobs have waited, and how many stand elsewhere than in Slurm's own order, or
    would where nothing is written. tied: with the lowest number.
    """
    ranked = [row for row in rows if row["rank_before"] is not None]
    steps = [row["rank_before"] - row["rank_to"] for row in ranked]
    tied = sum(row["planned_priority"] <= LOWEST for row in ranked)
    waited_s = [row["waited_s"] for row in rows]
    return {
        "pending": len(rows),
        "waited_mean_s": sum(waited_s) / max(1, len(rows)),
        "waited_most_s": max(waited_s, default=0.0),
        "up": sum(step > 0 for step in steps),
        "down": sum(step < 0 for step in steps),
        "same": steps.count(0),
        "left_alone": len(rows) - len(ranked),
        "tied": tied if tied > 1 else 0,
        "most_up": max([*steps, 0]),
        "most_down": -min([*steps, 0]),
    }


def nodes(seen: Snapshot, *, jobs: bool) -> Document:
    """Nodes with GPUs: those that take no jobs, then those where a job ends first by its limit,
    and what runs there. idle: how many run nothing, which are not listed.
    """
    runs = defaultdict[str, list[tuple[str, float]]](list)
    for run in seen.running:
        for share in run.shares:
            runs[share.node].append((run.address, run.latest_end()))
    with_gpus = [one for one in seen.nodes if one.total.gpus]
    rows: list[Document] = []
    for one in with_gpus:
        here, is_down = runs[one.name], not one.schedulable
        ends = [end for _, end in here if math.isfinite(end)]
        if here or is_down:
            rows.append({
                "node": one.name,
                "types": ", ".join(sorted({g.gpu_type or "gpu" for g in one.gpus})),
                "used": one.total.gpus - one.free.gpus,
                "gpus": one.total.gpus,
                "down": is_down,
                "state": one.state or ("takes no jobs" if is_down else ""),
                "running": len(here),
                "jobs": [name for name, _ in here][:6] if jobs else None,
                "next_end_at": min(ends, default=None),
                "free_at": max(ends, default=None),
            })  # fmt: skip
    rows.sort(key=lambda row: (not row["down"], row["next_end_at"] or math.inf, row["node"]))
    idle, more = len(with_gpus) - len(rows), len(rows[NODES:])
    return {"all": len(with_gpus), "idle": idle, "rows": rows[:NODES], "more": more}
