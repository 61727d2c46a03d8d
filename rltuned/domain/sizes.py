"""Node counts that a pending job accepts, where its user lets rltuned choose among them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """Node counts that a pending job accepts. nodes: the range as Slurm has it now, "1-4". tasks:
    with more nodes than that Slurm raises tasks and CPUs for good. speeds: (nodes, speed) by its
    user; empty = rltuned may not choose. submitted, written: by its journal; empty = nothing.
    """

    nodes: str
    tasks: int = 1
    speeds: tuple[tuple[int, float], ...] = ()
    submitted: str = ""
    written: str = ""

    @property
    def bounds(self) -> tuple[int, int]:
        """Fewest and most that its user accepts."""
        least, _, most = (self.submitted or self.nodes).partition("-")
        return int(least), int(most)
