"""How many nodes a job should have of those that it accepts.

One node more is worth its price while the job's own end comes nearer by more than the ends of those
behind it move away, together. A job on k nodes at speed s(k) takes 1/s(k) of its work in time, and
k/N of that from each of those that wait behind it on N nodes. Its run time cancels out.
"""

from collections.abc import Mapping


def nodes_by_completion(speeds: Mapping[int, float], behind: int, nodes: int) -> int:
    """The node count, of those in speeds, that makes the sum of completion times least; of equals
    the fewest. behind: jobs that wait behind it for the same nodes.
    """
    return min(speeds, key=lambda k: ((1.0 + behind * k / max(1, nodes)) / speeds[k], k))
