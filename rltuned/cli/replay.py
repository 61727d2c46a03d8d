"""`rltuned replay`: decide a past cycle again, from what the journal kept of it."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from rltuned import __version__
from rltuned.cli.flags import ConfigOption, JsonOption, PolicyOption, say, settings_of, warn
from rltuned.cli.history import JournalOption
from rltuned.core.decide import decide
from rltuned.daemon.wiring import find_policy
from rltuned.errors import JournalError, ModelError
from rltuned.journal.cycles import Document, pack_plan, unpack_plan
from rltuned.journal.inputs import plan_document
from rltuned.journal.queries import Decided, decided, differences
from rltuned.journal.snapshots import FILE_NAME, open_to_read
from rltuned.settings import Loaded
from rltuned.text import when

app = typer.Typer()


@app.command()
def replay(
    cycle: Annotated[int, typer.Argument(min=1, help="Its number, as in log and history.")],
    *,
    config: ConfigOption = None,
    journal: JournalOption = None,
    policy: PolicyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Decide a past cycle again from its recorded snapshot and settings, and compare the plans.

    Asks Slurm nothing and writes nothing. A model must be the very one that decided then; --policy
    names it if it has another name now.

    Exit codes: 0 = the same plan; 1 = another one, or the journal does not have the cycle any
    more; 2 = settings or model cannot be used.
    """
    loaded = settings_of(config)
    kept = _kept(journal or loaded.settings.daemon.state_dir / FILE_NAME, cycle)
    loaded = settings_of(config, ("policy.name", policy or kept.recipe.policy, f"cycle {cycle}"))
    again = _again(loaded, kept)
    found = list(differences(kept.plan, again))
    if as_json:
        document = {"cycle": cycle, "identical": not found, "differences": found}
        say(json.dumps({**document, "recorded": kept.plan, "again": again}, indent=2))
    else:
        _tell(kept, again, found)
    raise typer.Exit(1 if found else 0)


def _kept(path: Path, cycle: int) -> Decided:
    with closing(open_to_read(path)) as db:
        try:
            return decided(db, cycle)
        except sqlite3.Error as error:
            raise JournalError(f"{path}: cannot be read: {error}") from None


def _again(loaded: Loaded, kept: Decided) -> Document:
    """The plan of today for the snapshot of then."""
    from rltuned.solver import solver_named  # noqa: PLC0415 - pulp, only where it is needed

    recipe = kept.recipe
    policy, digest, _ = find_policy(loaded)
    if digest != recipe.model:
        raise ModelError(
            f"cycle {kept.cycle} was decided by {recipe.policy} with digest "
            f"{recipe.model[:12] or 'none'}, and {policy.name} has {digest[:12] or 'none'}: only "
            "the same model can decide again"
        )
    solver = solver_named("highs" if recipe.solver == "highs" else "cbc") if recipe.solver else None
    decision = decide(kept.snapshot, policy, recipe.knobs, solver)
    return unpack_plan(pack_plan(plan_document(decision)))  # as a journal would give it back


def _tell(kept: Decided, again: Document, found: list[str]) -> None:
    actions = len(kept.plan["actions"])
    say(
        f"cycle {kept.cycle} of {when(kept.at)} ({kept.mode}), {kept.recipe.policy}: "
        f"{len(kept.snapshot.pending)} pending, {actions} actions"
    )
    if not found:
        say("identical")
        return
    for line in found:
        say(line)
    for note in [*kept.plan["notes"], *again["notes"]]:
        say(f"note: {note}")
    if kept.recipe.release != __version__:
        warn(f"decided then by rltuned {kept.recipe.release}, now by {__version__}")
