"""The node range of a pending job, where release 0.2.0 has narrowed one."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeRange:
    """nodes: the range as Slurm has it now, "1-4". submitted, written: before 0.2.0 narrowed it,
    and what that wrote, by its journal; empty = nothing.
    """

    nodes: str
    submitted: str = ""
    written: str = ""
