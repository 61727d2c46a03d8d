"""`rltuned models`: the bundles of trained policies, and the generations of a tuned site."""

import json
from pathlib import Path
from typing import Annotated

import typer

from rltuned.cli.flags import ConfigOption, JsonOption, say, settings_of, warn
from rltuned.daemon.clock import SystemClock
from rltuned.errors import ModelError
from rltuned.policies.actor import CARD_FILE, load_actor
from rltuned.policies.files import named
from rltuned.policies.generations import (
    MANIFEST,
    ROLES,
    TUNED,
    Generation,
    Generations,
    TunedOrder,
    read_generation,
)
from rltuned.policies.predictor import CARD_FILE as PREDICTOR_CARD
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import folders
from rltuned.settings import Loaded

app = typer.Typer(no_args_is_help=True)

BundleArgument = Annotated[Path, typer.Argument(help="Folder of the bundle.", metavar="DIR")]
FolderArgument = Annotated[
    Path | None,
    typer.Argument(help="Folder of the bundles; policy.models_dir and the generations if absent."),
]
NameArgument = Annotated[
    str, typer.Argument(help="`candidate`, or the name of a generation.", metavar="NAME")
]
WhyOption = Annotated[str, typer.Option(help="Noted beside the change.")]
Row = dict[str, str]


@app.callback()
def models() -> None:
    """The bundles of trained policies."""


@app.command()
def verify(bundle: BundleArgument) -> None:
    """Check a bundle as the daemon does at start: owner, digests, schema, weights, self-test.

    A generation of `rltuned tune` is checked with all that it holds.

    Exit codes: 0 = fit; 2 = unfit, with the file and the reason.
    """
    summary, digest = _checked(bundle)
    say(f"{bundle}: ok: {summary}, sha256 {digest}")


@app.command()
def card(bundle: BundleArgument) -> None:
    """Print the card of a bundle that passes all checks, as JSON."""
    say(load_actor(bundle).card.model_dump_json(indent=2))


@app.command(name="list")
def list_models(
    folder: FolderArgument = None, *, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """List the bundles of a folder, or those of the settings with the generations of this site.

    Exit codes: 0 = all can be used; 1 = some bundles cannot be used; 2 = the folder cannot be read.
    """
    if folder is None:
        loaded = settings_of(config)
        places, store = folders(loaded.settings.policy.models_dir), _store(loaded)
        rows = _bundles(next((p for p in places if p.is_dir()), places[0]))
        try:
            roles = {store.named_by(role): role for role in reversed(ROLES)}
            rows += [_row(store.folder / name, roles.get(name, "")) for name in store.names()]
        except ModelError as error:
            warn(f"the generations are not shown: {error}")
    else:
        rows = _bundles(folder)
    if as_json:
        say(json.dumps(rows, indent=2))
    for row in () if as_json else rows:
        said = row["error"] or f"ok: {row['summary']}"
        say(f"{row['name']:<32} {row['role'] and row['role'] + ': '}{said}")
    raise typer.Exit(1 if any(row["error"] for row in rows) else 0)


@app.command()
def promote(
    generation: NameArgument = "candidate", *, config: ConfigOption = None, why: WhyOption = ""
) -> None:
    """Put a generation in force; the one in force becomes `previous`. Run it as the daemon's user.

    The daemon takes it over before its next cycle where policy.name is "tuned".

    Exit codes: 0 = it is in force; 2 = no such generation, or an unfit one: nothing has changed.
    """
    loaded = settings_of(config)
    found = _store(loaded).promote(generation, at=SystemClock().now(), why=why)
    _say_in_force(loaded, found)


@app.command()
def rollback(*, config: ConfigOption = None, why: WhyOption = "") -> None:
    """Go back to the generation that was in force before. Run it as the daemon's user.

    Exit codes: 0 = done; 2 = no generation is in force, or the previous one cannot be used.
    """
    loaded = settings_of(config)
    _say_in_force(loaded, _store(loaded).rollback(at=SystemClock().now(), why=why))


@app.command()
def adopt(bundle: BundleArgument, *, config: ConfigOption = None) -> None:
    """Copy a generation that was made elsewhere, as the candidate. Run it as the daemon's user.

    Exit codes: 0 = it is the candidate; 2 = it cannot be used: nothing has changed.
    """
    place, store = bundle.resolve(), _store(settings_of(config))
    own = read_generation(place).manifest
    parts = {name.partition("/")[0] for name in own.files_sha256}
    made = store.add(own, {part: place / part for part in parts})
    store.propose(made.name, at=SystemClock().now(), why=f"adopted from {place}")
    say(f"{made.name} is the candidate: {_order_of(own)}")


def _store(loaded: Loaded) -> Generations:
    return Generations(loaded.settings.daemon.state_dir)


def _say_in_force(loaded: Loaded, found: Generation | None) -> None:
    """And that the daemon's settings name another policy, where they do. None = no generation."""
    said = "no generation is in force any more: the default, with the [order] of the settings"
    say(said if found is None else f"{found.name} is in force: {_order_of(found.manifest)}")
    if (name := loaded.settings.policy.name) != TUNED:
        warn(f'policy.name is "{name}", which follows no generation; set it to "{TUNED}"')


def _order_of(own: TunedOrder) -> str:
    predictor = "this site's" if own.site_predictor else "the shipped"
    return (
        f"{own.label or own.policy}, own {own.own:g}, share {own.share:g}, max_delay "
        f"{own.max_delay_s / 86_400:g} days, {predictor} predictor"
    )


def _bundles(place: Path) -> list[Row]:
    """Those of a folder. Raises ModelError: it cannot be read."""
    with named(place):
        found = [path for path in sorted(place.iterdir()) if path.is_dir()]
    cards = (CARD_FILE, PREDICTOR_CARD)
    return [_row(path) for path in found if any((path / name).is_file() for name in cards)]


def _row(bundle: Path, role: str = "") -> Row:
    row = {"name": bundle.name, "summary": "", "digest": "", "role": role, "error": ""}
    try:
        row["summary"], row["digest"] = _checked(bundle)
    except ModelError as error:
        row["error"] = str(error)
    return row


def _checked(bundle: Path) -> tuple[str, str]:
    """What a bundle or a generation is, and its digest. Raises ModelError: it is unfit."""
    if (bundle / MANIFEST).is_file():
        found = read_generation(bundle.resolve())
        return _order_of(found.manifest), found.digest
    if (bundle / PREDICTOR_CARD).is_file():
        return "predictor of run times, for predictor.model", load_predictor(bundle).digest
    actor = load_actor(bundle)
    return f"{actor.card.summary} ({actor.verdict})", actor.digest
