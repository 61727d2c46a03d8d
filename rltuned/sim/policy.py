"""Policies by name, as `rltuned simulate` takes them."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from rltuned.core.decide import Policy
from rltuned.errors import TraceError
from rltuned.policies.baselines import BASELINES
from rltuned.sim import qssf

if TYPE_CHECKING:
    from rltuned.policies.actor import Actor

CLAIRVOYANT: Final = "clairvoyant:sjf"
"""Shortest true run time first: what no scheduler can know, as a reference."""
NOT_TRAINED: Final = ("rlscheduler", "schedinspector")
MODEL_PREFIX: Final = "model:"
MODELS: Final = Path("models")


def known() -> tuple[str, ...]:
    """The names there are."""
    return (*BASELINES, qssf.NAME, CLAIRVOYANT, f"{MODEL_PREFIX}<name or folder>")


def policy_of(name: str) -> Policy | None:
    """The policy of a name; None for the clairvoyant one, which is no policy: it knows too much.

    Raises:
        TraceError: there is none of that name.
        ModelError: the model cannot be used.
    """
    if name == CLAIRVOYANT:
        return None
    if name.startswith(MODEL_PREFIX):
        return actor_of(name)
    if name in BASELINES:
        return BASELINES[name]
    if name == qssf.NAME:
        return qssf.Qssf()  # a new one, that has seen no job end yet
    if name in NOT_TRAINED:
        raise TraceError(
            f"policy {name!r} is a network that must be trained, and none is given; "
            f"there are {', '.join(known())}"
        )
    raise TraceError(f"no policy named {name!r}; there are {', '.join(known())}")


def actor_of(name: str) -> "Actor":
    """The actor of `model:<name or folder>`.

    Raises:
        ModelError: the model cannot be used.
    """
    from rltuned.policies.actor import load_actor  # noqa: PLC0415 - torch costs seconds

    given = name.removeprefix(MODEL_PREFIX)
    return load_actor(Path(given) if Path(given).is_dir() else MODELS / given)
