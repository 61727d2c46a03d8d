"""How much of slurmctld's time rltuned takes: the busier it is, the rarer the cycles.

Doubling and halving with a gap between: a figure at its bound doubles the pause, and only when all
figures are at half of theirs or below is it halved again, so it does not flutter.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from rltuned.errors import BackendError, SnapshotError
from rltuned.slurm.site import Bounds, Figure, Load, pressures

CALM: Final = 0.5
"""At or below this share of every bound slurmctld counts as calm."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """What one look came to. load: None = not known, and `unknown` says why. shares: each figure as
    a share of its bound. stretch: factor on the interval now.
    """

    load: Load | None
    shares: Mapping[Figure, float]
    stretch: float
    unknown: str = ""

    @property
    def busy(self) -> tuple[str, ...]:
        """The figures at or over their bounds, in words; not empty = leave slurmctld alone."""
        over = {figure: share for figure, share in self.shares.items() if share >= 1.0}
        return tuple(f"{figure} is {share:.1f} times its bound" for figure, share in over.items())


def next_stretch(stretch: float, pressure: float, most: float) -> float:
    """The factor on the interval after a look. pressure: the highest share of a bound."""
    factor = 2.0 if pressure >= 1.0 else 0.5 if pressure <= CALM else 1.0
    return min(max(stretch * factor, 1.0), most)


class Throttle:
    """Keeps the factor, and the last look, from cycle to cycle and over reloads."""

    def __init__(self) -> None:
        self.stretch = 1.0
        self._before: Load | None = None

    def weigh(self, ask: Callable[[], Load], bounds: Bounds, most: float) -> Weighed:
        """Look at the load. ask: its errors end here. most: largest factor, >= 1."""
        try:
            load = ask()
        except (BackendError, SnapshotError) as error:
            return Weighed(None, {}, self.stretch, str(error))
        mean_s = load.rpc_mean_s(self._before)
        self._before = load
        shares = pressures(load, mean_s, bounds)
        # a rate limit is about us alone: fewer cycles help, so it skips none
        pressure = max(shares.values(), default=0.0) if not load.rate_limited else 1.0
        self.stretch = next_stretch(self.stretch, pressure, most)
        return Weighed(load, shares, self.stretch)
