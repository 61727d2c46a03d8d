"""`rltuned models`: the bundles of trained policies, and the generations of a tuned site."""

import json
from pathlib import Path
from typing import Annotated

import typer

from rltuned.cli.flags import AllOption, ConfigOption, JsonOption, instances, say, settings_of, warn
from rltuned.daemon.clock import SystemClock
from rltuned.errors import ModelError, SettingsError
from rltuned.policies.actor import CARD_FILE, load_actor
from rltuned.policies.generations import (
    FOLDER,
    MANIFEST,
    ROLES,
    TUNED,
    Generation,
    Generations,
    TunedOrder,
)
from rltuned.policies.predictor import CARD_FILE as PREDICTOR_CARD
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import folders
from rltuned.settings import Loaded, Settings

app = typer.Typer(no_args_is_help=True)

BundleArgument = Annotated[Path, typer.Argument(help="Folder of the bundle.", metavar="DIR")]


@app.callback()
def models() -> None:
    """The bundles of trained policies."""


@app.command()
def verify(bundle: BundleArgument) -> None:
    """Check a bundle as the daemon does at start: owner, digests, schema, weights, self-test.

    A generation of `rltuned tune` is checked with all that it holds.

    Exit codes: 0 = fit; 2 = unfit, with the file and the reason.
    """
    if (bundle / MANIFEST).is_file():
        place = bundle.resolve()
        found = Generations(place.parent.parent).read(place.name)
        say(f"{place}: ok: {_order_of(found)}, generation.json sha256 {found.digest}")
        return
    if (bundle / PREDICTOR_CARD).is_file():
        say(f"{bundle}: ok: predictor of run times, card sha256 {load_predictor(bundle).digest}")
        return
    actor = load_actor(bundle)
    say(f"{bundle}: ok: {actor.name}, card sha256 {actor.digest}; {actor.verdict}")


@app.command(name="list")
def list_models(
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="Folder of the bundles; policy.models_dir and the generations if absent."
        ),
    ] = None,
    *,
    config: ConfigOption = None,
    every_one: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """List the bundles of a folder, or those of the settings with the generations of this site.

    Exit codes: 0 = all can be used; 1 = some bundles cannot be used; 2 = the folder cannot be read.
    """
    if every_one and folder is not None:
        raise typer.BadParameter("--all is of settings, and DIR of a folder")
    if every_one:
        rows = [row for one in instances(config) for row in _of_instance(*one)]
    else:
        rows = _rows(folder, None if folder is not None else settings_of(config).settings)
    if as_json:
        say(json.dumps(rows, indent=2))
    else:
        for row in rows:
            role = f"{row['role']}: " if row["role"] else ""
            name = f"{row['instance']}: {row['name']}" if "instance" in row else row["name"]
            say(f"{name:<32} {role}{row['error'] or 'ok: ' + row['summary']}")
    raise typer.Exit(1 if any(row["error"] for row in rows) else 0)


def _of_instance(path: Path, loaded: Loaded | SettingsError) -> list[dict[str, str]]:
    """The same for one daemon of this machine, with its name."""
    try:
        if isinstance(loaded, SettingsError):
            raise loaded
        rows = _rows(None, loaded.settings)
    except (ModelError, SettingsError) as error:
        rows = [_listed("", error=str(error))]
    return [{"instance": path.stem, **row} for row in rows]


def _rows(folder: Path | None, settings: Settings | None) -> list[dict[str, str]]:
    place = folder or Path()
    if settings is not None:
        places = folders(settings.policy.models_dir)
        place = next((p for p in places if p.is_dir()), places[0])
    try:
        cards = [p for name in (CARD_FILE, PREDICTOR_CARD) for p in place.glob(f"*/{name}")]
        bundles = sorted(p.parent for p in cards)
        if not place.is_dir():
            raise ModelError(f"{place}: no such folder")
    except OSError as error:
        raise ModelError(f"{place}: {error.strerror}") from None
    rows = [_row(bundle) for bundle in bundles]
    if settings is not None:
        rows += _generations(settings.daemon.state_dir)
    if not rows:
        warn(f"{place}: no model bundles")
    return rows


@app.command()
def promote(
    generation: Annotated[
        str, typer.Argument(help="`candidate`, or the name of a generation.", metavar="NAME")
    ] = "candidate",
    *,
    config: ConfigOption = None,
    why: Annotated[str, typer.Option(help="Noted beside the change.")] = "",
) -> None:
    """Put a generation in force; the one in force becomes `previous`. Run it as the daemon's user.

    The daemon takes it over before its next cycle where policy.name is "tuned".

    Exit codes: 0 = it is in force; 2 = no such generation, or an unfit one: nothing has changed.
    """
    loaded = settings_of(config)
    found = _store(loaded).promote(generation, at=SystemClock().now(), why=why)
    say(f"{found.name} is in force: {_order_of(found)}")
    _follows(loaded)


@app.command()
def adopt(
    generation: Annotated[Path, typer.Argument(help="Its folder, or a link to it.", metavar="DIR")],
    *,
    config: ConfigOption = None,
) -> None:
    """Copy a generation that was made elsewhere, as the candidate. Run it as the daemon's user.

    Exit codes: 0 = it is the candidate; 2 = it cannot be used: nothing has changed.
    """
    place, loaded = generation.resolve(), settings_of(config)
    if not place.is_dir():
        raise ModelError(f"model {generation}: no such folder")
    own = Generations(place.parent.parent).read(place.name).manifest
    parts = {name.partition("/")[0] for name in own.files_sha256}
    store, fields = _store(loaded), set(TunedOrder.model_fields)
    made = store.add(
        TunedOrder(**own.model_dump(include=fields)), {part: place / part for part in parts}
    )
    store.propose(made.name, at=SystemClock().now(), why=f"adopted from {place}")
    say(f"{made.name} is the candidate: {_order_of(made)}")


@app.command()
def rollback(
    *,
    config: ConfigOption = None,
    why: Annotated[str, typer.Option(help="Noted beside the change.")] = "",
) -> None:
    """Go back to the generation that was in force before. Run it as the daemon's user.

    Exit codes: 0 = done; 2 = no generation is in force, or the previous one cannot be used.
    """
    loaded = settings_of(config)
    found = _store(loaded).rollback(at=SystemClock().now(), why=why)
    if found is None:
        say("no generation is in force any more: the rule delay, with the [order] of the settings")
    else:
        say(f"{found.name} is in force again: {_order_of(found)}")
    _follows(loaded)


@app.command()
def card(bundle: BundleArgument) -> None:
    """Print the card of a bundle that passes all checks, as JSON."""
    say(load_actor(bundle).card.model_dump_json(indent=2))


def _store(loaded: Loaded) -> Generations:
    return Generations(loaded.settings.daemon.state_dir)


def _follows(loaded: Loaded) -> None:
    """Say so where the daemon's settings name another policy."""
    name = loaded.settings.policy.name
    if name != TUNED:
        warn(f'policy.name is "{name}", which follows no generation; set it to "{TUNED}"')


def _order_of(found: Generation) -> str:
    own = found.manifest
    predictor = "this site's" if own.site_predictor else "the shipped"
    return (
        f"{own.label or own.policy}, own {own.own:g}, share {own.share:g}, max_delay "
        f"{own.max_delay_s / 86_400:g} days, {predictor} predictor"
    )


def _generations(state_dir: Path) -> list[dict[str, str]]:
    store = Generations(state_dir)
    try:
        names = store.names()
    except ModelError as error:
        warn(f"the generations are not shown: {error}")
        return []
    try:
        roles = {role: store.named_by(role) for role in ROLES}
    except ModelError as error:
        return [_listed(FOLDER, error=str(error))]
    rows = []
    for name in names:
        role = ", ".join(role for role, named in roles.items() if named == name)
        try:
            found = store.read(name)
        except ModelError as error:
            rows.append(_listed(name, role=role, error=str(error)))
        else:
            rows.append(_listed(name, _order_of(found), found.digest, role=role))
    return rows


def _row(bundle: Path) -> dict[str, str]:
    try:
        if (bundle / PREDICTOR_CARD).is_file():
            digest = load_predictor(bundle).digest
            return _listed(bundle.name, "Predictor of run times, for predictor.model.", digest)
        actor = load_actor(bundle)
    except ModelError as error:
        return _listed(bundle.name, error=str(error))
    return _listed(bundle.name, actor.card.summary, actor.digest)


def _listed(
    name: str, summary: str = "", digest: str = "", *, role: str = "", error: str = ""
) -> dict[str, str]:
    return {"name": name, "summary": summary, "digest": digest, "role": role, "error": error}
