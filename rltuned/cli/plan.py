"""`rltuned plan`: one decision, shown and not applied; `look` is it for the other commands, as
`rltuned groups`.
"""

import json
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

import typer

from rltuned.cli import flags
from rltuned.cli.asking import answered, is_private, open_world
from rltuned.cli.tables import console, show_jobs
from rltuned.core import refusals
from rltuned.core.decide import Decision, decide
from rltuned.core.groups import MOST_EDGES, forecasts
from rltuned.core.line import present_line, proposed_line
from rltuned.core.starts import arrivals_of, expected_of
from rltuned.daemon.apply import PlanApplier
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.documents import Document, Look
from rltuned.daemon.groups import documents, edges_left_out, kept_groups, looked
from rltuned.daemon.kept_settings import as_if_on, kept_salt
from rltuned.daemon.logger import make_log
from rltuned.daemon.run_times import RunTimeLearner
from rltuned.daemon.wiring import Rig, build_rig, run_times_of
from rltuned.domain.jobs import GroupStore
from rltuned.domain.snapshot import NO_CONTEXT, Context, Snapshot
from rltuned.errors import JournalError
from rltuned.journal.journal import Journal
from rltuned.journal.store import FILE_NAME, read_salt
from rltuned.settings import Loaded
from rltuned.text import counted, trusted, when

app, groups_app = typer.Typer(), typer.Typer()

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
        document = answered(loaded.settings, "/plan.json", "plan")
    if document is None:
        document = look(loaded, backend, seed).told().plan()
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
    if later := sum(job["verdict"]["kind"] is None for job in ranked if job["verdict"]):
        flags.say(f"{counted(later, 'job')} placed together with others cannot start now.")
    if refused := Counter(job["refusal"] for job in jobs if job["refusal"]):
        flags.say(f"left alone: {refusals.counted(refused)}")
    if young := [job["waited_s"] for job in jobs if job["refusal"] == "too_young"]:
        left_s = max(1.0, min_age_s - min(young))
        flags.say(f"younger than scope.min_age_s = {min_age_s:g} s: look again in {left_s:.0f} s")
    for note in document["notes"]:
        flags.say(f"note: {note}")


@dataclass(frozen=True, slots=True)
class Made:
    """A decision made here. as_is: what is expected follows the present order, as the proposed one
    is not written.
    """

    look: Look
    decision: Decision
    rig: Rig
    learner: RunTimeLearner | None
    as_is: bool

    def told(self) -> Look:
        """With when each waiting job is expected to start, played on the spot within PATIENCE_S."""
        seen, context, until = self.look.snapshot, self.look.context, time.monotonic() + PATIENCE_S
        line = present_line(seen, context) if self.as_is else proposed_line(self.decision)
        running = {} if self.learner is None else self.learner.of_running(seen)
        arrivals = arrivals_of(seen, context.run_times)
        played = expected_of(line, running, arrivals, late=lambda: time.monotonic() > until)
        return replace(self.look, expected=played)


def look(loaded: Loaded, world: flags.BackendChoice, seed: int = 0) -> Made:
    """What rltuned would do now. Raises SettingsError, ModelError, BackendError, PolicyError; Exit:
    this user may not know what rltuned holds.
    """
    _, make = open_world(world, seed=seed, speed=STANDING_STILL)
    folder, is_slurm = loaded.settings.daemon.state_dir, world is flags.BackendChoice.SLURM
    learner, context, kept = None, NO_CONTEXT, GroupStore()
    if is_slurm and is_private(folder):
        flags.warn("the journal is private, so what rltuned holds is not known here")
        raise typer.Exit(1)
    with closing(Journal(folder)) as journal:
        secret = kept_salt(loaded, journal)
        if secret is None:
            flags.warn(
                "the blocks of the switchback are not known; it is shown as if delays were on"
            )
        rig = build_rig(secret or as_if_on(loaded), make(loaded))
        if is_slurm:
            writer = PlanApplier(journal, SystemClock())
            seen = rig.backend.observe(writer.remembered)
            context, learner = known(writer, seen), _predicting(loaded)
            context = context if learner is None else learner.look(seen, context=context)
            try:
                kept = kept_groups(journal, seen.cluster)
            except JournalError as error:
                flags.warn(f"edges that are satisfied are not known: {error}")
        else:
            seen = rig.backend.observe()
    groups = forecasts(looked(kept, seen, context.run_times), seen.taken_at)
    decision = decide(seen, rig.policy, rig.knobs, rig.solver, context)
    path = folder / FILE_NAME if is_slurm else None
    found = Look(decision.snapshot, context, decision, rig.knobs, groups, journal=path)
    return Made(found, decision, rig, learner, as_is=is_slurm and not rig.ladder.rung.writes)


def known(writer: PlanApplier, seen: Snapshot) -> Context:
    """What the journal says of a look that was made with what the writer remembers."""
    context, _, trouble = writer.look(seen)
    if trouble:
        flags.warn(f"cannot tell which jobs rltuned has changed before: {trouble}")
    return context


def _predicting(loaded: Loaded) -> RunTimeLearner | None:
    """What predicts run times from the daemon's file; None = nothing can. Raises ModelError."""
    try:
        salt = read_salt(loaded.settings.daemon.state_dir)
    except JournalError as error:
        flags.warn(f"run times are not predicted: {error}")
        return None
    return run_times_of(loaded, salt, make_log("console", "error")) if salt else None


@groups_app.command()
def groups(
    *,
    config: flags.ConfigOption = None,
    backend: flags.WorldOption = flags.BackendChoice.SLURM,
    as_json: flags.JsonOption = False,
) -> None:
    """Show groups of dependent jobs: what waits for what, how long, and when each group ends.

    Asks Slurm once, and the journal for edges that Slurm shows no more. The expected end is that of
    a group whose jobs wait for nothing but each other.

    Exit codes: 0 = done; 1 = the cluster gave no usable answer; 2 = settings cannot be used.
    """
    made = look(flags.in_force(config), backend).look
    found, left_out = documents(made.groups or ()), edges_left_out(made.groups or (), made.snapshot)
    if as_json:
        document = {
            "taken_at": made.snapshot.taken_at,
            "cluster": made.snapshot.cluster,
            "edges_left_out": left_out,
            "groups": found,
        }
        flags.say(json.dumps(document, indent=2, allow_nan=False))
        return
    for one in found:
        ended = sum(job["state"] == "ended" for job in one["jobs"])
        partly = "" if one["understood"] else " (partly understood)"
        end = "unknown" if one["end_at"] is None else when(one["end_at"])
        flags.say(
            f"group {one['group']} of {one['user'] or 'nobody'}: {one['state']}{partly}, "
            f"{ended} of {len(one['jobs'])} jobs ended, {one['depth'] or 'unknown'} steps, "
            f"expected end {end}"
        )
    if not found and not left_out:
        flags.say("no job waits for another")
    if left_out:
        flags.warn(f"{left_out} dependencies are left out: {MOST_EDGES} are kept of a cluster")
