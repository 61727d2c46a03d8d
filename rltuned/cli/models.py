"""`rltuned models`: the bundles of trained policies."""

import importlib.util
import json
from pathlib import Path
from typing import Annotated

import typer

from rltuned.cli.flags import ConfigOption, JsonOption, say, settings_of, warn
from rltuned.errors import ModelError
from rltuned.policies.actor import load_actor
from rltuned.policies.card import CARD_FILE
from rltuned.policies.predictor import CARD_FILE as PREDICTOR_CARD
from rltuned.policies.predictor import load_predictor

app = typer.Typer(no_args_is_help=True)

BundleArgument = Annotated[Path, typer.Argument(help="Folder of the bundle.", metavar="DIR")]


@app.callback()
def models() -> None:
    """The bundles of trained policies."""


@app.command()
def verify(
    bundle: BundleArgument,
    *,
    torch: Annotated[
        bool, typer.Option("--torch", help="Score with PyTorch too (needs the train extra).")
    ] = False,
) -> None:
    """Check a bundle as the daemon does at start: owner, digests, schema, weights, self-test.

    Exit codes: 0 = fit to be used; 2 = not, with the file and the reason.
    """
    if (bundle / PREDICTOR_CARD).is_file():
        say(f"{bundle}: ok: predictor of run times, card sha256 {load_predictor(bundle).digest}")
        return
    actor = load_actor(bundle)
    beside = ""
    if torch:
        from rltuned.train.probes import compare_with_torch  # noqa: PLC0415 - an extra

        beside = f", PyTorch's scores up to {compare_with_torch(actor, bundle):.1g}"
    say(f"{bundle}: ok: {actor.name}, card sha256 {actor.digest}{beside}")


@app.command(name="list")
def list_models(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder of the bundles; policy.models_dir when absent.")
    ] = None,
    *,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the bundles of a folder and whether each can be used.

    Exit codes: 0 = all can; 1 = some cannot; 2 = the folder cannot be read.
    """
    place = folder or settings_of(config).settings.policy.models_dir
    try:
        cards = [p for name in (CARD_FILE, PREDICTOR_CARD) for p in place.glob(f"*/{name}")]
        bundles = sorted(p.parent for p in cards)
        if not place.is_dir():
            raise ModelError(f"{place}: no such folder")
    except OSError as error:
        raise ModelError(f"{place}: {error.strerror}") from None
    rows = [_row(bundle) for bundle in bundles]
    if as_json:
        say(json.dumps(rows, indent=2))
    else:
        for row in rows:
            say(f"{row['name']:<32} {row['error'] or 'ok: ' + row['summary']}")
    if not rows:
        warn(f"{place}: no model bundles")
    raise typer.Exit(1 if any(row["error"] for row in rows) else 0)


@app.command()
def card(bundle: BundleArgument) -> None:
    """Print the card of a bundle that passes all checks, as JSON."""
    say(load_actor(bundle).card.model_dump_json(indent=2))


@app.command()
def onnx(
    bundle: BundleArgument,
    out: Annotated[Path, typer.Option("--out", help="The file; must not exist.")],
) -> None:
    """Write a bundle's network as ONNX, checked against onnxruntime (needs rltuned[onnx]).

    Exit codes: 0 = written; 2 = the bundle is unfit, the scores differ, or the extra is missing.
    """
    actor = load_actor(bundle)
    missing = [name for name in ("onnx", "onnxruntime") if not importlib.util.find_spec(name)]
    if missing:
        raise ModelError(f"needs the Python package {missing[0]}; install rltuned[onnx]")
    from rltuned.train.onnx_file import write_onnx  # noqa: PLC0415 - an extra

    worst = write_onnx(actor, bundle, out)
    say(f"{out}: same scores as {actor.name} up to {worst:.1g}")


def _row(bundle: Path) -> dict[str, str]:
    try:
        if (bundle / PREDICTOR_CARD).is_file():
            digest = load_predictor(bundle).digest
            summary = "Predictor of run times, for predictor.model."
            return {"name": bundle.name, "summary": summary, "digest": digest, "error": ""}
        actor = load_actor(bundle)
    except ModelError as error:
        return {"name": bundle.name, "summary": "", "digest": "", "error": str(error)}
    return {
        "name": bundle.name,
        "summary": actor.card.summary,
        "digest": actor.digest,
        "error": "",
    }
