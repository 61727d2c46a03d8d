"""How a comparison is run: who ranks, when, and within which bounds; and policies by name."""

from dataclasses import dataclass, field, replace
from typing import Final, Literal

from rltuned.core.decide import Knobs
from rltuned.core.milp import Solver, Tuning
from rltuned.core.order import Order, Policy
from rltuned.core.select import Scope
from rltuned.errors import TraceError
from rltuned.policies.baselines import BASELINES
from rltuned.policies.plugins import PLUGIN_PREFIX, hint, policy_named
from rltuned.policies.predictor import Predictor, load_predictor
from rltuned.policies.shelf import MODEL_PREFIX, shipped_predictor
from rltuned.settings.keys import PolicyKeys

Mode = Literal["event", "cycle"]


CLAIRVOYANT: Final = "clairvoyant:sjf"
CLAIRVOYANT_AREA: Final = "clairvoyant:saf"
FUTURE: Final = (CLAIRVOYANT, CLAIRVOYANT_AREA)
"""Shortest true run time, smallest true area first: what no scheduler can know, as a reference."""
BY_DEFAULT: Final = "default"
"""What the daemon does with default settings, see by_default."""
DEFAULT: Final = PolicyKeys()


@dataclass(frozen=True, slots=True)
class Protocol:
    """How a comparison is run. mode: `cycle` decides once per interval_s, as the daemon; `event`
    ranks at every event.

    knobs: of the daemon; by default without placements, for where jobs go is Slurm's business.
    bounded: False = the policy's pure order. predictor: None = policies go by the limits.
    """

    mode: Mode = "event"
    interval_s: float = 60.0
    knobs: Knobs = field(default_factory=lambda: Knobs(top_k=0))
    bounded: bool = True
    solver: Solver | None = None
    predictor: Predictor | None = None

    @property
    def is_joint(self) -> bool:
        return self.knobs.placement == "milp"

    @property
    def order(self) -> Order | None:
        """The bounds; None = there are none."""
        return self.knobs.order if self.bounded else None


DAEMON: Final = Protocol("cycle", 60.0, knobs=Knobs(Scope(max_writes_per_hour=30), top_k=0))
"""How the daemon runs with default settings; a test holds it to rltuned/settings."""


def by_default(protocol: Protocol) -> Protocol:
    """The same comparison as the daemon plays its part with default settings: cycles, bounds and
    the shipped predictor. Raises ModelError.
    """
    asked = protocol.knobs
    knobs = replace(DAEMON.knobs, top_k=asked.top_k, placement=asked.placement, tuning=asked.tuning)
    return replace(
        protocol,
        mode=DAEMON.mode,
        interval_s=DAEMON.interval_s,
        knobs=knobs,
        bounded=True,
        predictor=load_predictor(shipped_predictor()),
    )


def jointly(protocol: Protocol, top_k: int, tuning: Tuning, solver: Solver | None) -> Protocol:
    """The same comparison with the first top_k jobs placed together at every ranking."""
    knobs = replace(protocol.knobs, top_k=top_k, placement="milp", tuning=tuning)
    return replace(protocol, knobs=knobs, solver=solver)


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
