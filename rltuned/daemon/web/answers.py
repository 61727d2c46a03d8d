"""What the daemon answers about single jobs, to users who may not read its journal.

The numbers are those of its last decision, which knows what of a priority is rltuned's own. A job
is shown to its user, to root and the daemon's user, and to all where http.jobs shows jobs.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rltuned import __version__
from rltuned.core.decide import Knobs
from rltuned.core.other_request import OtherRequest
from rltuned.core.starts import Expected, expectation
from rltuned.daemon.documents import (
    explanation,
    find_job,
    of_task,
    past_of,
    plan_document,
    situation,
    user_of,
)
from rltuned.daemon.report import CycleReport
from rltuned.daemon.state import HealthState
from rltuned.daemon.what_if import WhatIf
from rltuned.daemon.wiring import Rig
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId

Document = dict[str, Any]
NOT_SHOWN: Final = "it shows jobs to their own users over its socket, and to all with http.jobs"
NO_DECISION: Final = "it has made no decision yet, or only observes"
NO_JOB: Final = "it sees no pending or running job {}"


@dataclass(frozen=True, slots=True)
class Asker:
    """user: empty = not known. is_admin: root, or the daemon's own user. sees_all: or all are shown
    to all.
    """

    user: str = ""
    is_admin: bool = False
    sees_all: bool = False

    def sees(self, user: str) -> bool:
        """Whether it may see the jobs of a user."""
        return self.sees_all or bool(self.user and self.user == user)


class Answers:
    """Follows the cycles. Written by the loop's thread, read by those of the endpoint. journal: its
    file. users: whether all may know whose a job is. expected: the last forecast. now: Unix
    time. what_if: plays other requests; None = none are played.
    """

    def __init__(
        self,
        journal: Path,
        *,
        users: bool = False,
        expected: Callable[[], Expected | None] = lambda: None,
        now: Callable[[], float] = lambda: 0.0,
        what_if: WhatIf | None = None,
    ) -> None:
        self._journal, self._users, self._expected = journal, users, expected
        self._what_if, self._now = what_if, now
        self._knobs = Knobs()
        self._last: tuple[Snapshot, CycleReport, Knobs] | None = None

    def loaded(self, rig: Rig) -> None:
        self._knobs = rig.knobs

    def cycle(self, report: CycleReport) -> None:
        only_observes = report.mode is HealthState.OBSERVE and report.ok
        if report.snapshot is not None and (report.decision is not None or only_observes):
            seen = report.snapshot if report.decision is None else report.decision.snapshot
            # exchanged whole, since a thread of the endpoint may be reading the old one
            self._last = seen, replace(report, decision=report.in_force()), self._knobs

    def explain(self, name: str, asker: Asker, other: OtherRequest | None = None) -> Document:
        """All that is known of one job, or `why` not. other: also, when it would start so."""
        last = self._last
        if last is None:
            return _nothing(NO_DECISION)
        seen, report, knobs = last
        if not asker.sees(user_of(seen, name)):
            return _nothing(NOT_SHOWN)
        found = explanation(name, seen, report.context, report.decision)
        if found is None:
            return _nothing(NO_JOB.format(name))
        found |= past_of(self._journal, seen.cluster, found)
        job = find_job(seen, name)
        if job is not None:
            start = self._start(job.job_id, asker, plays=other is None)
            found |= of_task(start, job, name)
            refusal = found["refusal"]
            found |= situation(job, seen, knobs, report.groups, report.decision, refusal=refusal)
            if other is not None and self._what_if is not None:
                asks = self._what_if.ask
                told = asks(job.job_id, other, asker.user, is_admin=asker.is_admin)
                played = told["what_if"]
                found |= {**told, "what_if": played and of_task(played, job, name)}
        return {"rltuned": __version__, "job": found}

    def _start(self, job_id: JobId, asker: Asker, *, plays: bool) -> Document:
        """When it starts. One that came after the last forecast is played now. plays: unless that
        would take the turn of another request.
        """
        expected = self._expected()
        told = expectation(expected, job_id, self._now())
        if not plays or expected is None or expected.start_of(job_id) or self._what_if is None:
            return told
        played = self._what_if.ask(job_id, OtherRequest(), asker.user, is_admin=asker.is_admin)
        return told if played["what_if"] is None else {k: played["what_if"][k] for k in told}

    def plan(self, asker: Asker) -> Document:
        """The decision as `plan --json` has it, with the jobs that the asker may see."""
        decision = None if self._last is None else self._last[1].decision
        if decision is None:
            return _nothing(NO_DECISION)
        if not asker.sees_all and not asker.user:
            return _nothing(NOT_SHOWN)
        whole = plan_document(decision, self._expected())
        if not asker.is_admin and not self._users:
            hidden = [
                {**j, "user": j["user"] if asker.user == j["user"] else ""} for j in whole["jobs"]
            ]
            whole["jobs"] = hidden
        if asker.sees_all:
            return {"rltuned": __version__, "plan": whole}
        mine = [one for one in whole["jobs"] if asker.sees(one["user"])]
        return {"rltuned": __version__, "plan": {**whole, "jobs": mine, "joint": None}}


def _nothing(why: str) -> Document:
    return {"rltuned": __version__, "why": why}
