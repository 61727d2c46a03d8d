"""How a policy names a model bundle, and where those lie that come with rltuned."""

import sys
from pathlib import Path
from typing import Final

MODEL_PREFIX: Final = "model:"
MODELS_DIR: Final = Path("/usr/share/rltuned/models")
"""Where the packages of a distribution put them; the default of policy.models_dir."""
PREDICTOR_NAME: Final = "run-times"
_INSTALLED: Final = Path(sys.prefix, "share", "rltuned", "models")
_CHECKOUT: Final = Path(__file__).resolve().parents[2] / "models"


def folders(models_dir: Path) -> list[Path]:
    """Where bundles are looked for. A models_dir that the site has chosen is the only place. The
    default one is absent where rltuned was installed by pip or runs from a checkout: then the
    bundles that came with this very program are meant.
    """
    if models_dir == MODELS_DIR and not models_dir.is_dir():
        return [models_dir, _INSTALLED, _CHECKOUT]
    return [models_dir]


def find_bundle(models_dir: Path, name: str) -> Path:
    """The folder of a bundle; where it should be, when it is nowhere."""
    places = [place / name for place in folders(models_dir)]
    return next((place for place in places if place.is_dir()), models_dir / name)


def bundle_at(given: str, models_dir: Path = MODELS_DIR) -> Path:
    """The folder of a bundle that a command names: by folder, or as find_bundle."""
    name = given.removeprefix(MODEL_PREFIX)
    return Path(name) if Path(name).is_dir() else find_bundle(models_dir, name)


def from_root(policy: str) -> str:
    """A policy's name; a path in it begins at the root, as in a settings file."""
    name = policy.removeprefix(MODEL_PREFIX)
    by_path = policy.startswith(MODEL_PREFIX) and "/" in name
    return f"{MODEL_PREFIX}{Path(name).resolve()}" if by_path else policy


def find_predictor(models_dir: Path, name: str) -> Path:
    """The folder of a predictor; the shipped one is found wherever models_dir is."""
    found = find_bundle(models_dir, name)
    return shipped_predictor() if name == PREDICTOR_NAME and not found.is_dir() else found


def shipped_predictor() -> Path:
    """The folder of the run-time predictor that comes with rltuned."""
    return find_bundle(MODELS_DIR, PREDICTOR_NAME)
