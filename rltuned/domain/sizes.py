"""Node counts that a pending job accepts, where its user lets rltuned choose among them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """Node counts that a pending job accepts.

    Attributes:
        nodes: the range as Slurm has it now, in Slurm's words: "1-4".
        tasks: so many tasks. With more nodes than that Slurm raises tasks and CPUs for good.
        speeds: (nodes, speed) by its user, within the range that the user names; empty = rltuned
            may not choose.
        submitted: the range before rltuned wrote, from its journal; empty = it has not.
        written: what rltuned wrote, from its journal.
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
