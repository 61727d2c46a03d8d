"""What a running job has on each of its nodes, as far as squeue tells."""

from collections.abc import Mapping

from rltuned.domain.cluster import GpuCount, Node, Resources
from rltuned.domain.jobs import Request, Share
from rltuned.domain.units import GpuType, NodeName
from rltuned.slurm.request import split_evenly


def shares_of(
    names: tuple[str, ...], request: Request, nodes: Mapping[str, Node]
) -> tuple[Share, ...]:
    """What a running job has on each node: exact on one node, else evenly parted.

    Of nodes that sinfo does not show, or shows unreadably, nothing is known: they count as large
    enough for an even part, and are left out.

    Raises:
        ValueError: it is on no node.
    """
    if not names:
        raise ValueError("it runs, but on no node")
    want = request.total
    homes = [nodes.get(n) or _unknown_node(n, want) for n in names]
    totals = [h.total for h in homes]
    # squeue tells what was asked; with whole nodes their other GPUs are taken as well
    whole = request.exclusive and want.cpus >= sum(t.cpus for t in totals)
    gpus = (
        tuple(t.gpus for t in totals)
        if whole
        else split_evenly(want.gpus, tuple(_room(h, request) for h in homes))
    )
    cpus = split_evenly(want.cpus, tuple(t.cpus for t in totals))
    memory = split_evenly(want.mem_mib, tuple(t.mem_mib for t in totals))
    return tuple(
        Share(
            node=home.name,
            taken=Resources(gpus[i], cpus[i], memory[i]),
            gpu_type=_gpu_type(home, request) if gpus[i] else None,
        )
        for i, home in enumerate(homes)
        if home.name in nodes
    )


def _unknown_node(name: str, size: Resources) -> Node:
    kind = (GpuCount(GpuType(""), size.gpus, 0),) if size.gpus else ()
    return Node(NodeName(name), kind, size, Resources(), schedulable=False, partitions=())


def _room(home: Node, request: Request) -> int:
    types = {*request.gpu_types, ""}  # "" = of a node that is not known
    return sum(g.total for g in home.gpus if not request.gpu_types or g.gpu_type in types)


def _gpu_type(home: Node, request: Request) -> GpuType | None:
    """The type that it holds there, when only one is possible."""
    have = {g.gpu_type for g in home.gpus if g.total}
    possible = have & set(request.gpu_types) if request.gpu_types else have
    return next(iter(possible)) if len(possible) == 1 else None
