"""Policies by name, as `rltuned simulate` takes them."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from rltuned.core.order import Policy
from rltuned.errors import TraceError
from rltuned.policies.baselines import BASELINES
from rltuned.policies.shelf import MODEL_PREFIX

if TYPE_CHECKING:
    from rltuned.policies.actor import Actor

CLAIRVOYANT: Final = "clairvoyant:sjf"
CLAIRVOYANT_AREA: Final = "clairvoyant:saf"
FUTURE: Final = (CLAIRVOYANT, CLAIRVOYANT_AREA)
"""Shortest true run time, smallest true area first: what no scheduler can know, as a reference."""
MODELS: Final = Path("models")


def known() -> tuple[str, ...]:
    """The names there are."""
    return (*BASELINES, *FUTURE, f"{MODEL_PREFIX}<name or folder>")


def policy_of(name: str) -> Policy | str:
    """The policy of a name; the name itself of those that know the future.

    Raises:
        TraceError: there is none of that name.
        ModelError: the model cannot be used.
    """
    if name in FUTURE:
        return name
    if is_learned(name):
        return actor_of(name)
    if name in BASELINES:
        return BASELINES[name]
    raise TraceError(f"no policy named {name!r}; there are {', '.join(known())}")


def is_learned(name: str) -> bool:
    """Whether a name stands for a bundle."""
    return name.startswith(MODEL_PREFIX)


def actor_of(name: str) -> "Actor":
    """The actor of `model:<name or folder>`.

    Raises:
        ModelError: the model cannot be used.
    """
    from rltuned.policies.actor import load_actor  # noqa: PLC0415 - torch costs seconds

    given = name.removeprefix(MODEL_PREFIX)
    return load_actor(Path(given) if Path(given).is_dir() else MODELS / given)
