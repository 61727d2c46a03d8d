"""`rltuned history`: every change to one job, or a past cycle decided again, from the journal."""

import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from rltuned import __version__
from rltuned.cli import flags
from rltuned.errors import ModelError
from rltuned.journal.cycles import CycleObservation, Document, pack_plan, unpack_plan
from rltuned.journal.inputs import Recipe, plan_document
from rltuned.journal.owned import TAKEN_OVER
from rltuned.journal.queries import JobChange, changes_of, decided, differences
from rltuned.journal.snapshots import FILE_NAME, reading
from rltuned.settings import Loaded
from rltuned.slurm.job_selector import asked_job
from rltuned.text import when

app = typer.Typer()


@app.command()
def history(
    job: Annotated[
        str | None, typer.Argument(metavar="JOBID", help="Its number, or 12_3 of an array.")
    ] = None,
    *,
    replay: Annotated[
        int | None,
        typer.Option(
            metavar="CYCLE",
            min=1,
            help="Decide this past cycle again instead, and compare the plans.",
        ),
    ] = None,
    config: flags.ConfigOption = None,
    journal: Annotated[
        Path | None, typer.Option(help="Another journal than that of the settings.")
    ] = None,
    policy: flags.PolicyOption = None,
    as_json: flags.JsonOption = False,
) -> None:
    """Show what rltuned has changed of a job: when, by which cycle, why, and the outcome.

    Reads the journal only. --replay decides a past cycle again, from its recorded snapshot and
    settings, and compares the plans. A model must be the one that decided then; --policy names it
    if it has another name now.

    Exit codes: 0 = there were changes, or the plans are the same; 1 = none are kept, the plans
    differ, or the journal cannot be read; 2 = settings or model cannot be used.
    """
    if (job is None) == (replay is None):
        raise typer.BadParameter("name one: JOBID, or --replay CYCLE")
    loaded = flags.settings_of(config)
    path = journal or loaded.settings.daemon.state_dir / FILE_NAME
    if replay is not None:
        with reading(path) as db:
            kept, recipe, plan = decided(db, replay)
        named = ("policy.name", policy or recipe.policy, f"cycle {replay}")
        trust = ("policy.trust", recipe.trust, named[2])
        again = _again(flags.in_force(config, named, trust), kept, recipe)
        found = list(differences(plan, again))
        if as_json:
            document = {"cycle": kept.cycle, "identical": not found, "differences": found}
            flags.say(json.dumps({**document, "recorded": plan, "again": again}, indent=2))
        else:
            _compare(kept, recipe, plan, again, found)
        raise typer.Exit(1 if found else 0)
    try:
        asked = asked_job(job or "")
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    with reading(path) as db:
        changes = changes_of(db, asked)
    if as_json:
        flags.say(json.dumps({"job": job, "changes": [c._asdict() for c in changes]}, indent=2))
    else:
        for line in lines_of(changes):
            flags.say(line)
    if not changes:
        flags.warn(f"{path} knows of no change to job {job}")
        raise typer.Exit(1)


def lines_of(changes: list[JobChange]) -> Iterator[str]:
    """Changes for people, under a line for each record."""
    records = sorted(changes, key=lambda c: (c.cluster, c.job_id, c.submitted_at))
    for (cluster, _, submitted_at), rows in groupby(
        records, key=lambda c: (c.cluster, c.job_id, c.submitted_at)
    ):
        ordered = list(rows)
        yield f"job {ordered[-1].address} of {cluster}, submitted {when(submitted_at)}"
        for row in ordered:
            yield f"  {when(row.at)}  {what(row)}: {_result(row)}{_by(row)}"


def what(row: JobChange) -> str:
    """What changed, from which value to which."""
    if row.new is not None:
        return f"{row.field} {row.old} -> {row.new}"
    nice = f", nice {row.nice} set again" if row.nice else ""
    return f"priority {row.old} -> released{nice}"


def _result(row: JobChange) -> str:
    if row.result is None:
        return "unknown (the process ended before it was seen)"
    return f"{row.result} ({row.detail})" if row.detail else row.result


def _by(row: JobChange) -> str:
    if row.snapshot is None:
        return "" if row.result == TAKEN_OVER else "; by restore"
    who = row.policy if row.mode == "live" else f"mode {row.mode}" if row.mode else ""
    text = f"; cycle {row.cycle}" + (f" by {who}" if who else "")
    if row.reason is None:
        return text
    reason = row.reason
    return f"{text}: {reason['why']}; place {reason['rank_before']} -> {reason['rank_after']}"


# -- a past cycle, decided again ----------------------------------------------------------------


def _again(loaded: Loaded, kept: CycleObservation, recipe: Recipe) -> Document:
    # the solver and the policies cost seconds, which the history of a job does without
    from rltuned.core.decide import decide  # noqa: PLC0415
    from rltuned.daemon.wiring import find_policy  # noqa: PLC0415
    from rltuned.solver import Cbc  # noqa: PLC0415

    policy, digest, *_ = find_policy(loaded)
    if digest != recipe.model:
        raise ModelError(
            f"cycle {kept.cycle} was decided by {recipe.policy} with digest "
            f"{recipe.model[:12] or 'none'}, and {policy.name} has {digest[:12] or 'none'}: only "
            "the same model can decide again"
        )
    solver = Cbc() if recipe.solver else None
    decision = decide(kept.snapshot, policy, recipe.knobs, solver, kept.context)
    return unpack_plan(pack_plan(plan_document(decision)))  # as a journal would give it back


def _compare(
    kept: CycleObservation, recipe: Recipe, plan: Document, again: Document, found: list[str]
) -> None:
    flags.say(
        f"cycle {kept.cycle} of {when(kept.at)} ({kept.mode}), {recipe.policy}: "
        f"{len(kept.snapshot.pending)} pending, {len(plan['actions'])} actions"
    )
    if not found:
        flags.say("identical")
        return
    for line in found:
        flags.say(line)
    for note in [*plan["notes"], *again["notes"]]:
        flags.say(f"note: {note}")
    if recipe.release != __version__:
        flags.warn(f"decided then by rltuned {recipe.release}, now by {__version__}")
