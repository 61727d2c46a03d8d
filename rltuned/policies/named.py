"""A policy by its name: a rule, `model:NAME` or `model:FOLDER`, `plugin:NAME`."""

import difflib
from pathlib import Path

from rltuned.errors import ModelError
from rltuned.policies.actor import Actor, load_actor
from rltuned.policies.baselines import BASELINES, Baseline
from rltuned.policies.plugins import Plugin, is_plugin, load_plugin, plugin_names
from rltuned.policies.shelf import MODEL_PREFIX, MODELS_DIR, bundle_at


def policy_named(
    name: str, models_dir: Path = MODELS_DIR, trust: float = 1.0
) -> Baseline | Actor | Plugin:
    """The policy of a name; a model's is its folder or in models_dir. trust: of a network, see
    load_actor. Raises ModelError.
    """
    if name in BASELINES:
        return BASELINES[name]
    if is_plugin(name):
        return load_plugin(name)
    if name.startswith(MODEL_PREFIX):
        return load_actor(bundle_at(name, models_dir), trust)
    raise ModelError(f"no policy {name!r}; {hint(name)}")


def hint(name: str, *also: str) -> str:
    """What may have been meant by a name that no policy has; also: further names."""
    known = [*BASELINES, f"{MODEL_PREFIX}NAME", *plugin_names(), *also]
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
