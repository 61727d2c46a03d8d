"""What the daemon answers about single jobs, to users who may not read its journal.

The numbers are those of its last decision, which knows what of a priority is rltuned's own. A job
is shown to its user, to root and the daemon's user, and to all where http.jobs shows jobs.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from rltuned import __version__
from rltuned.core.decide import Decision, Knobs
from rltuned.core.starts import Expected, expectation
from rltuned.daemon.documents import (
    explanation,
    find_job,
    off_block,
    past_of,
    plan_document,
    promised,
)
from rltuned.daemon.groups import GroupsStatus, place_of
from rltuned.daemon.report import CycleReport
from rltuned.daemon.runtime import Rig
from rltuned.daemon.web.askers import Asker

Document = dict[str, Any]
NOT_SHOWN: Final = "it shows jobs to their own users on its machine, and to all with http.jobs"
NO_DECISION: Final = "it has made no decision yet, or only observes"
NO_JOB: Final = "it sees no pending or running job {}"


class Answers:
    """Follows the cycles. Written by the loop's thread, read by those of the endpoint. journal: its
    file. users: whether all may know whose a job is. expected: the last forecast.
    """

    def __init__(
        self,
        journal: Path,
        *,
        users: bool = False,
        expected: Callable[[], Expected | None] = lambda: None,
    ) -> None:
        self._journal, self._users, self._expected = journal, users, expected
        self._knobs = Knobs()
        self._last: tuple[Decision, Knobs, GroupsStatus | None] | None = None

    def loaded(self, rig: Rig) -> None:
        self._knobs = rig.knobs

    def cycle(self, report: CycleReport) -> None:
        if report.decision is not None:
            # exchanged whole, since a thread of the endpoint may be reading the old one
            self._last = report.decision, self._knobs, report.groups

    def explain(self, name: str, asker: Asker) -> Document:
        """All that is known of one job, or `why` not."""
        if self._last is None:
            return _nothing(NO_DECISION)
        decision, knobs, groups = self._last
        found = explanation(decision, name)
        if not asker.sees(_user_of(decision, name)):
            return _nothing(NOT_SHOWN)
        if found is None:
            return _nothing(NO_JOB.format(name))
        seen = decision.snapshot
        found |= past_of(self._journal, seen.cluster, found)
        job = find_job(seen, name)
        if job is not None:
            found |= expectation(self._expected(), job.job_id)
            found |= {
                "group": None if groups is None else place_of(groups, job, seen.taken_at),
                "off_block": off_block(knobs, decision, job, found["refusal"]),
                "sla": promised(knobs, decision, job),
            }
        return {"rltuned": __version__, "job": found}

    def plan(self, asker: Asker) -> Document:
        """The decision as `plan --json` has it, with the jobs that the asker may see."""
        if self._last is None:
            return _nothing(NO_DECISION)
        if not asker.sees_all and not asker.user:
            return _nothing(NOT_SHOWN)
        whole = plan_document(self._last[0], self._expected())
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


def _user_of(decision: Decision, name: str) -> str:
    """Whose job that is; empty = there is none such, or of no known user."""
    job = find_job(decision.snapshot, name)
    if job is not None:
        return job.user
    runs = decision.snapshot.running
    return next((r.user for r in runs if name in {str(r.job_id), r.address}), "")
