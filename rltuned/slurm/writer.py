"""Writing to the cluster: one scontrol per chunk, fed on standard input, then one look back.

scontrol goes on after a line that fails and has no status per line, and an update that was
acknowledged can be undone by a backfill cycle that holds an older copy. So what Slurm says is only
used to explain: an action counts as applied when a re-read shows that it is.
"""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rltuned.domain.jobs import ARGUMENT_LIMIT, FED_LIMIT, PendingJob, is_address
from rltuned.domain.plan import (
    FIELDS,
    HELD,
    NICE,
    PRIORITY,
    RELEASE,
    SITE_FACTOR,
    Action,
    Outcome,
    Plan,
    Result,
)
from rltuned.domain.units import JobId
from rltuned.errors import BackendError, SnapshotError
from rltuned.slurm.run import Fence
from rltuned.text import one_line

if TYPE_CHECKING:
    from rltuned.slurm.backend import SlurmBackend

SLOW_S: Final = 2.0
"""A look and a write that take longer than this are slow: a user may hold a job in between."""
_NAMED: Final = re.compile(r"(?P<text>.+?) for job (?P<id>[0-9][0-9_+,:-]*)$")
_LISTED: Final = re.compile(r"(?P<id>[0-9]+_[0-9\[\],:-]+): (?P<text>.+)$")
_NO_ANSWER: Final = re.compile(
    r"unexpected message|unable to contact|timed out|connect|communication|authentication", re.I
)
_GONE: Final = re.compile(r"invalid job id|already finished|no longer pending", re.I)


def write(reader: "SlurmBackend", fence: Fence | None, plan: Plan) -> tuple[Outcome, ...]:
    """Send a plan and return what became of each action. Never raises per action. fence: asked
    before every batch; None = nothing speaks against one.
    """
    return _Writing(reader, fence, plan.actions).outcomes() if plan.actions else ()


class _Writing:
    """What is known while a plan is carried out."""

    def __init__(
        self, reader: "SlurmBackend", fence: Fence | None, actions: tuple[Action, ...]
    ) -> None:
        self._reader, self._fence, self._actions = reader, fence, actions
        self._result: dict[int, Outcome] = {}
        self._complaints: dict[str, str] = {}
        self._stopped = ""
        """Why an answer is missing; what was asked may be done."""
        self._withheld = ""
        """Why nothing more is sent; it is not done."""

    def outcomes(self) -> tuple[Outcome, ...]:
        most, numbered = self._reader.commands.cli.chunk, [*enumerate(self._actions)]
        sets = [(i, a, a.target.address) for i, a in numbered if not a.field.releases]
        releases = [i for i, a in numbered if a.field.releases]
        for start in range(0, len(sets), most):
            self._send(sets[start : start + most])
        size = 1
        while releases:
            done, quick = self._release(releases[:size])
            releases = releases[done:]
            # two lines each
            size = min(2 * size, max(1, most // 2)) if quick else 1
        self._look_back()
        return tuple(self._result[i] for i in range(len(self._actions)))

    def _end(self, index: int, result: Result, why: str) -> None:
        """What became of one action, unless that is known already."""
        self._result.setdefault(index, Outcome(self._actions[index], result, why))

    def _release(self, chunk: Sequence[int]) -> tuple[int, bool]:
        """Compared once more right before: a release would start what is held by now.

        Slurm cannot be asked to release a job only if it is not held. So when the look was slow
        only the first job of the chunk is sent, and the others are looked at again. Returns how
        many of the chunk are done with, and whether Slurm was quick.
        """
        if self._stopped or self._withheld:
            for index in chunk if self._withheld else ():
                self._end(index, Result.WITHHELD, self._withheld)
            return len(chunk), True
        began = time.monotonic()
        try:
            ids = [self._actions[i].target.job_id for i in chunk]
            seen = self._reader.watch(ids, factors=False)
            dealt = bool(seen) and not self._reader.site().multifactor
        except (BackendError, SnapshotError) as error:
            self._stopped = str(error)
            return len(chunk), True
        if time.monotonic() - began > SLOW_S:
            chunk = chunk[:1]
        fit: list[tuple[int, Action, str]] = []
        for index in chunk:
            action = self._actions[index]
            job = _same(seen, action)
            if job is None:
                self._end(index, Result.GONE, "no longer pending")
            elif why := against(action, job, dealt=dealt):
                self._end(index, Result.REFUSED, why)
            else:
                fit.append((index, _as_number(action, dealt=dealt), job.address))
        self._send(fit)
        return len(chunk), time.monotonic() - began <= SLOW_S

    def _send(self, chunk: Sequence[tuple[int, Action, str]]) -> None:
        """Each action to the job at an address, as far as nothing speaks against it."""
        lines: list[str] = []
        for index, action, address in chunk:
            try:
                lines += command_lines(action, address)
            except ValueError as error:
                self._end(index, Result.REFUSED, str(error))
        if not lines or self._stopped:
            return
        if self._fence is not None:
            self._withheld = self._withheld or self._fence.shut()
        if self._withheld:
            for index, _, _ in chunk:
                self._end(index, Result.WITHHELD, self._withheld)
            return
        self._call([], "".join(f"{line}\n" for line in lines if len(line) <= FED_LIMIT))
        for words in (line.split(" ") for line in lines if len(line) > FED_LIMIT):
            self._call(words, "")

    def _call(self, words: Sequence[str], feed: str) -> None:
        if self._stopped or not (words or feed):
            return
        try:
            # -v: only then does it say that it was made to wait
            answer = self._reader.commands.call("scontrol", "-v", *words, feed=feed)
        except BackendError as error:
            self._stopped = str(error)
            return
        self._complaints.update(read_complaints(answer.stderr))
        if answer.failure:
            self._stopped = answer.failure
        elif answer.limited:
            self._withheld = "not sent: slurmctld limits the rate of requests"

    def _look_back(self) -> None:
        open_actions = [(i, a) for i, a in enumerate(self._actions) if i not in self._result]
        if not open_actions:
            return
        try:
            ids = [action.target.job_id for _, action in open_actions]
            fields = {action.field for _, action in open_actions}
            # of site factors and releases sprio says what stands
            factors = not fields.isdisjoint({SITE_FACTOR, RELEASE})
            seen = self._reader.watch(ids, factors=factors)
            dealt = RELEASE in fields and not self._reader.site().multifactor
        except (BackendError, SnapshotError) as error:
            why = one_line(f"{self._stopped}; not read back: {error}".removeprefix("; "))
            for index, _ in open_actions:
                self._end(index, Result.FAILED, why)
            return
        for index, action in open_actions:
            complaint = _complaint(action, self._complaints) or self._stopped
            sent = _as_number(action, dealt=dealt)
            found = replace(judge(sent, _same(seen, action), complaint), action=action)
            if sent is not action and found.result is Result.APPLIED:
                found = replace(found, detail=f"priority {sent.old} -> {sent.new}, nice counted in")
            self._result[index] = found


def against(action: Action, job: PendingJob, *, dealt: bool) -> str:
    """Why a job may not be restored as it stands now; empty = it may. dealt: priority/basic."""
    if job.unreadable:
        return job.unreadable
    if action.field is not NICE:
        return "it is held: a release would start it" if job.is_held else ""
    if dealt:
        return "priority/basic takes a nice off the number at once: that would free a held job"
    if job.nice != action.old:
        return f"its nice is {job.nice} meanwhile"
    # any update makes Slurm look again at a job that is stuck for another reason
    return "it is held by no user and cannot start" if job.is_held and not job.held_by else ""


def _as_number(action: Action, *, dealt: bool) -> Action:
    """Where Slurm deals numbers out by turn (priority/basic), the old one is set, not released."""
    if not dealt or action.field is not RELEASE or action.new is None:
        return action
    return replace(action, field=PRIORITY)


def _same(seen: dict[JobId, PendingJob], action: Action) -> PendingJob | None:
    """The record the action is meant for, if it is still pending: ids are handed out again."""
    job = seen.get(action.target.job_id)
    if job is None or job.unreadable:
        return job
    return job if job.submitted_at == action.target.submitted_at else None


def read_complaints(stderr: str) -> dict[str, str]:
    """Scontrol's complaints by the job they name, brackets left out ("12", "12_0-3", "12+1")."""
    found: dict[str, str] = {}
    for line in stderr.splitlines():
        match = _NAMED.search(line) or _LISTED.match(line)
        if match is not None and match["text"] != "No error":
            found.setdefault(re.sub(r"[\[\]]", "", match["id"]), one_line(match["text"]))
    return found


def _complaint(action: Action, complaints: Mapping[str, str]) -> str:
    """The complaint about this action's record, or about one task of it."""
    named = re.sub(r"[\[\]]", "", action.target.address)
    head = named.partition("_")[0] + "_"
    of_tasks = (text for key, text in complaints.items() if key.startswith(head))
    exact = complaints.get(named) or complaints.get(str(action.target.job_id))
    return exact or next(of_tasks, "")


def judge(action: Action, job: PendingJob | None, complaint: str) -> Outcome:
    """An action's result, from the re-read (None = no longer pending) and scontrol's complaint."""
    if job is None:
        return Outcome(action, Result.GONE, complaint or "no longer pending")
    if job.unreadable:
        return Outcome(action, Result.FAILED, job.unreadable)
    wrong = _difference(action, job)
    hidden = action.field.under is not None and action.field.of(job) is None
    if not wrong:
        return Outcome(action, Result.APPLIED)
    if _NO_ANSWER.search(complaint) or "no answer" in complaint:
        return Outcome(action, Result.FAILED, complaint)
    if job.is_held and hidden:
        return Outcome(action, Result.FAILED, HELD)  # Slurm sets it all the same
    if complaint:
        # that a pending job has ended is said of one of its tasks
        unknown = hidden or _GONE.search(complaint)
        return Outcome(action, Result.FAILED if unknown else Result.REFUSED, complaint)
    return Outcome(action, Result.FAILED, HELD if job.is_held else wrong)


def _difference(action: Action, job: PendingJob) -> str:
    """How the record differs from what the action wants; empty = not at all."""
    shown = action.field.of(job)
    if action.field is RELEASE:
        # sprio shows factors only of jobs that multifactor rules; where it shows none, the value
        # must at least have left the one at which the job was frozen
        freed = job.live or job.priority != action.old
        good = freed and job.nice == action.nice and not job.is_held
        return "" if good else f"reads back priority {job.priority}, nice {job.nice}"
    if shown is not None or action.field.under is None:
        return "" if shown == action.new else f"reads back {action.field.says(shown)}"
    if action.priority is None or job.is_held:
        return f"sent, but Slurm does not show this job's {action.field.label}"
    moved = job.priority != action.priority
    return "" if moved else "sent, but the job's priority has not moved"


_VALUES: Final = "|".join(
    f"{field.argument}=(?:{'-?[0-9]{1,10}' if field.pattern is None else field.pattern.pattern})"
    for field in FIELDS
    if field.argument
)
_LINE: Final = re.compile(rf"release \S+|update JobId=\S+ (?:{_VALUES})")
"""All that scontrol receives from the daemon and from restore."""


def command_lines(action: Action, address: str) -> list[str]:
    """Scontrol's lines for one action. Raises ValueError: no job's address, or too long a line."""
    if not is_address(address):
        raise ValueError(f"{one_line(address, 60)!r} is no address of a job; nothing was sent")
    if action.field is RELEASE:
        lines = [f"release {address}"]
        lines += [f"update JobId={address} {NICE.argument}={action.nice}"] if action.nice else []
    else:
        lines = [f"update JobId={address} {action.field.argument}={action.new}"]
    if not all(_LINE.fullmatch(line) for line in lines):
        raise ValueError(f"{one_line(lines[0], 80)!r} is no line for scontrol; nothing was sent")
    if max(map(len, lines)) > ARGUMENT_LIMIT:
        raise ValueError("a list of tasks is too long for scontrol's arguments; nothing was sent")
    return lines
