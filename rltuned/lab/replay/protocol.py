"""How a comparison is run: who ranks, when, and within which bounds."""

import math
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from rltuned.core.decide import Knobs
from rltuned.core.joint import Tuning
from rltuned.core.milp import Solver
from rltuned.core.order import Order
from rltuned.core.select import Scope
from rltuned.policies.predictor import Predictor, load_predictor
from rltuned.policies.shelf import shipped_predictor

Mode = Literal["event", "cycle"]


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

    def __post_init__(self) -> None:
        if not (self.interval_s > 0 and math.isfinite(self.interval_s)):
            raise ValueError(f"an interval must be seconds > 0, not {self.interval_s}")


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
