"""Policies by name, as `rltuned simulate` takes them."""

from typing import Final

from rltuned.core.order import Policy
from rltuned.errors import TraceError
from rltuned.policies.baselines import BASELINES
from rltuned.policies.named import hint, policy_named
from rltuned.policies.plugins import PLUGIN_PREFIX
from rltuned.policies.shelf import MODEL_PREFIX
from rltuned.settings.keys import PolicyKeys

CLAIRVOYANT: Final = "clairvoyant:sjf"
CLAIRVOYANT_AREA: Final = "clairvoyant:saf"
FUTURE: Final = (CLAIRVOYANT, CLAIRVOYANT_AREA)
"""Shortest true run time, smallest true area first: what no scheduler can know, as a reference."""
BY_DEFAULT: Final = "default"
"""What the daemon does with default settings; see replay/protocol.by_default."""
DEFAULT: Final = PolicyKeys()


def policy_of(name: str, trust: float = 1.0) -> Policy | str:
    """The policy of a name; the name itself of a clairvoyant one. trust: of a network. Raises
    TraceError, ModelError.
    """
    if name in FUTURE:
        return name
    if name == BY_DEFAULT:
        return policy_named(DEFAULT.name, trust=DEFAULT.trust)
    if name in BASELINES or name.startswith((MODEL_PREFIX, PLUGIN_PREFIX)):
        return policy_named(name, trust=trust)
    raise TraceError(f"no policy {name!r}; {hint(name, BY_DEFAULT, *FUTURE)}")
