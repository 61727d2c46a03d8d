"""What Slurm's order there has beyond age, size and partition, and what jobs had beyond both."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Final

from rltuned.backtest.site import SiteModel
from rltuned.sim.natural import Natural, Whole
from rltuned.sim.trace import TraceJob
from rltuned.slurm.accounting import JobRun

RECORDED: Final = 0.9
"""Part of the jobs whose recorded priority must be known for it to be used."""
_LARGEST: Final = 2**31


def standing(rows: Sequence[tuple[JobRun, TraceJob]], place: SiteModel) -> tuple[Natural, bool]:
    """Slurm's order with what the recorded priorities hold beyond age, size and partition.

    Fair share, QOS, TRES, nice: slurmdbd keeps the priority that a job had when it started; what
    the played factors do not explain of it counts for the job from its submit on, unchanged. It
    says nothing of run times. False: there is nothing of the kind, or it is not known.
    """
    natural = place.natural
    recorded = [r for r, _ in rows if r.priority is not None and r.start_s is not None]
    started = sum(r.start_s is not None for r, _ in rows)
    if not place.other_weight or len(recorded) < RECORDED * max(1, started):
        return natural, False
    nodes = place.cluster.nodes
    whole = Whole(place.cluster.gpus, sum(n.total.cpus for n in nodes), len(nodes))
    factors = {p.name: p.priority_factor for p in place.cluster.partitions}
    most = max(1, *factors.values())
    own: list[int | None] = []
    for record, job in rows:
        request = job.request()
        if record.priority is None or record.start_s is None or record.priority >= _LARGEST:
            own.append(None)
            continue
        played = natural.priority(
            number=1,
            waited_s=record.start_s - record.eligible_s,
            size_share=natural.size(request.total, request.nodes, whole),
            partition_share=factors.get(job.partition, 1) / most,
        )
        own.append(record.priority - played)
    middle = int(median(p for p in own if p is not None))
    return replace(natural, own=tuple(middle if p is None else p for p in own)), True


def noted(records: Sequence[JobRun]) -> list[str]:
    """What some jobs had that is not played."""
    counts = {
        "in a reservation": sum(r.reserved for r in records),
        "with a constraint (--constraint)": sum(r.constrained for r in records),
        "parts of heterogeneous jobs, played but not scored": sum(r.het for r in records),
        "runs that were requeued, preempted or lost a node": sum(
            r.state in {"REQUEUED", "PREEMPTED", "NODE_FAIL"} for r in records
        ),
    }
    return [f"{count} jobs {what}" for what, count in counts.items() if count]
