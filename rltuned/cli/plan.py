"""`rltuned plan`: one decision, shown and not applied; `look` is it for the other commands."""

import json
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

import typer

from rltuned.cli import flags
from rltuned.cli.asking import ask_about, is_private, old, open_world
from rltuned.cli.tables import console, left_alone, show_jobs
from rltuned.core.decide import Decision, decide
from rltuned.core.groups import forecasts
from rltuned.core.line import present_line, proposed_line
from rltuned.core.starts import Expected, Scales, arrivals_of, corrected, expected_of
from rltuned.daemon.apply import PlanApplier
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.documents import Document, Look
from rltuned.daemon.forecasting import FRESH_S, read_file
from rltuned.daemon.groups import Groups, kept_groups, looked
from rltuned.daemon.kept_settings import as_if_on, kept_salt
from rltuned.daemon.logger import make_log
from rltuned.daemon.run_times import LimitUseLearner, RunTimeLearner
from rltuned.daemon.what_if import OtherRequest, what_if
from rltuned.daemon.wiring import Rig, build_rig, run_times_of
from rltuned.domain.jobs import GroupStore, PendingJob
from rltuned.domain.snapshot import NO_CONTEXT, Context, RunTimes, Snapshot
from rltuned.domain.units import JobId
from rltuned.errors import JournalError
from rltuned.journal.journal import Journal
from rltuned.journal.store import FILE_NAME, read_salt
from rltuned.settings import Loaded
from rltuned.text import counted, trusted

app = typer.Typer()

ALONE: Final = "decided without the daemon: {}"
NOT_KNOWN: Final = "the journal is private, so what rltuned holds{} is not known here; {}"

STANDING_STILL: Final = 1e-6
"""Speed of the built-in cluster for one look: the same seed shows the same queue, however long
the machine takes."""
PATIENCE_S: Final = 5.0
"""After so long a forecast on the spot has as many plays as it has."""


@app.command()
def plan(
    *,
    config: flags.ConfigOption = None,
    backend: flags.WorldOption = flags.BackendChoice.SLURM,
    policy: flags.PolicyOption = None,
    seed: flags.SeedOption = 0,
    as_json: flags.JsonOption = False,
) -> None:
    """Show what would change, and write nothing: the last decision of the daemon if it answers and
    no other policy is named, else a decision of now.

    Exit codes: 0 = a plan was made, empty or not; 1 = the cluster or the policy gave no usable
    answer; 2 = settings or model cannot be used.
    """
    loaded = flags.in_force(config, ("policy.name", policy, "--policy"))
    document = None
    if backend is flags.BackendChoice.SLURM and policy is None:
        document, why = ask_about(loaded.settings, "/plan.json", "plan")
        if document is None and is_private(loaded.settings.daemon.state_dir):
            flags.warn(NOT_KNOWN.format("", why))
            raise typer.Exit(1)
        if document is None:
            flags.warn(ALONE.format(why))
        else:
            flags.warn_of(old(document, loaded.settings))
    if document is None:
        made = look(loaded, backend, seed)
        document = replace(made.look, expected=made.expected()).plan()
    if as_json:
        flags.say(json.dumps(document, indent=2, allow_nan=False))
    else:
        _print(document, loaded.settings.scope.min_age_s)


def _print(document: Document, min_age_s: float) -> None:
    counts, jobs = document["counts"], document["jobs"]
    flags.say(
        f"{document['cluster']}: {counts['pending']} pending, {counts['running']} running, "
        f"{counts['nodes']} nodes; {trusted(document['policy'], document['trust'])} ranks "
        f"{counts['ranked']} jobs and would change {counts['changes']}"
    )
    ranked = [job for job in jobs if job["rank_wished"] is not None]
    if ranked:
        show_jobs(console(), ranked, document["taken_at"])
    verdicts = [(job, job["verdict"]) for job in ranked if job["verdict"]]
    for job, verdict in verdicts:
        if verdict["kind"] is not None or verdict["shared"]:
            flags.say(f"Job {job['job_id']}, placed together with others, {verdict['why']}.")
    if later := sum(verdict["kind"] is None for _, verdict in verdicts):
        flags.say(f"{counted(later, 'job')} placed together with others cannot start now.")
    if refused := Counter(job["refusal"] for job in jobs if job["refusal"]):
        flags.say(left_alone(refused))
    if young := [job["waited_s"] for job in jobs if job["refusal"] == "too_young"]:
        left_s = max(1.0, min_age_s - min(young))
        flags.say(f"younger than scope.min_age_s = {min_age_s:g} s: look again in {left_s:.0f} s")
    for note in document["notes"]:
        flags.say(f"note: {note}")


@dataclass(frozen=True, slots=True)
class Made:
    """A decision made here, with what it was made by. as_is: what is expected follows the present
    order, as the proposed one is not written or known.
    """

    look: Look
    decision: Decision
    rig: Rig
    loaded: Loaded
    learner: RunTimeLearner | LimitUseLearner | None
    as_is: bool

    def expected(self, job_id: JobId | None = None) -> Expected:
        """When each waiting job is expected to start: the daemon's last forecast, if it is fresh
        and knows this job, else one played on the spot within PATIENCE_S.
        """
        seen, context = self.decision.snapshot, self.decision.context
        found, scales = self._kept()
        fresh = found is not None and 0 <= seen.taken_at - found.at <= FRESH_S
        if found is not None and fresh and (job_id is None or found.start_of(job_id) is not None):
            return found
        line = present_line(seen, context) if self.as_is else proposed_line(self.decision)
        arrivals = arrivals_of(seen, context.run_times)
        played = expected_of(line, self._of_running(), arrivals, late=_late())
        starts = {job_id: corrected(one, scales) for job_id, one in played.starts.items()}
        return replace(played, starts=starts)

    def what_if(self, job: PendingJob, other: OtherRequest) -> Document:
        """What another request of a waiting job would change, played on the spot."""
        rig, seen, context = self.rig, self.decision.snapshot, self.decision.context

        def order(seen: Snapshot, context: Context) -> Decision:
            return decide(seen, rig.policy, rig.knobs, rig.solver, context)

        return what_if(
            seen,
            context,
            job,
            other,
            look=lambda seen: NO_CONTEXT if self.learner is None else self.learner.look(seen),
            order=None if self.as_is else order,
            running=self._of_running(),
            arrivals=arrivals_of(seen, context.run_times),
            scales=self._kept()[1],
            late=_late(),
        )

    def _of_running(self) -> RunTimes:
        return {} if self.learner is None else self.learner.of_running(self.decision.snapshot)

    def _kept(self) -> tuple[Expected | None, Scales]:
        """The daemon's last forecast of this cluster, and its record's scales."""
        seen, folder = self.decision.snapshot, self.loaded.settings.daemon.state_dir
        kept = read_file(folder) if self.learner is not None else None
        if kept is None or kept[0] != seen.cluster:
            return None, Scales()
        return kept[1], kept[2].scales(seen.taken_at)


def _late() -> Callable[[], bool]:
    until = time.monotonic() + PATIENCE_S
    return lambda: time.monotonic() > until


def look(
    loaded: Loaded, world: flags.BackendChoice, seed: int, *, is_private: bool = False
) -> Made:
    """What rltuned would do now; without a journal that is private, what Slurm alone shows. Raises
    SettingsError, ModelError, BackendError, PolicyError.
    """
    _, make = open_world(world, seed=seed, speed=STANDING_STILL)
    folder, is_slurm = loaded.settings.daemon.state_dir, world is flags.BackendChoice.SLURM
    learner, context = None, NO_CONTEXT
    with closing(Journal(folder)) as journal:
        secret = None if is_private else kept_salt(loaded, journal)
        if secret is None and not is_private:
            flags.warn(
                "the blocks of the switchback are not known; it is shown as if delays were on"
            )
        rig = build_rig(secret or as_if_on(loaded), make(loaded))
        if is_slurm and not is_private:
            writer = PlanApplier(journal, SystemClock())
            snapshot = rig.backend.observe(writer.remembered)
            context, learner = known(writer, snapshot), predicting(loaded)
        else:
            snapshot = rig.backend.observe()
        context = context if learner is None else learner.look(snapshot, context=context)
        groups = grouped(snapshot, context.run_times, None if is_private else journal)
    decision = decide(snapshot, rig.policy, rig.knobs, rig.solver, context)
    path = folder / FILE_NAME if is_slurm and not is_private else None
    found = Look(decision.snapshot, context, decision, rig.knobs, groups, journal=path)
    as_is = is_slurm and (is_private or not rig.ladder.rung.writes)
    return Made(found, decision, rig, loaded, learner, as_is)


def known(writer: PlanApplier, seen: Snapshot) -> Context:
    """What the journal says of a look that was made with what the writer remembers."""
    context, _, trouble = writer.look(seen)
    if trouble:
        flags.warn(f"cannot tell which jobs rltuned has changed before: {trouble}")
    return context


def grouped(snapshot: Snapshot, predicted: RunTimes, journal: Journal | None) -> Groups:
    """The groups of dependent jobs: what the journal keeps, and what the snapshot shows."""
    kept = GroupStore()
    try:
        kept = kept if journal is None else kept_groups(journal, snapshot.cluster)
    except JournalError as error:
        flags.warn(f"edges that are satisfied are not known: {error}")
    return forecasts(looked(kept, snapshot, predicted), snapshot.taken_at)


def predicting(loaded: Loaded) -> RunTimeLearner | LimitUseLearner | None:
    """What predicts run times from the daemon's file; None = nothing can. Raises ModelError."""
    try:
        salt = read_salt(loaded.settings.daemon.state_dir)
    except JournalError as error:
        flags.warn(f"run times are not predicted: {error}")
        return None
    return run_times_of(loaded, salt, make_log("console", "error")) if salt else None
