"""Simulated pasts as a site saves its own: rows of sacct, and what scontrol answers."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from rltuned.lab.replay.metrics import FloatArray
from rltuned.sim.cluster import Cluster
from rltuned.sim.trace import TraceJob

EPOCH = 1_700_000_000
WEIGHTS = {
    "PriorityWeightAge": "10000",
    "PriorityWeightAssoc": "0",
    "PriorityWeightFairShare": "0",
    "PriorityWeightJobSize": "3000",
    "PriorityWeightPartition": "1000",
    "PriorityWeightQOS": "0",
    "PriorityWeightTRES": "(null)",
}


def row(job: TraceJob, start_s: float, end_s: float, *, number: int, priority: int = 0) -> str:
    """One line of the documented sacct command, without a header."""
    limit = "UNLIMITED" if job.time_limit_s == float("inf") else f"{job.time_limit_s / 60:.0f}"
    tres = f"cpu={job.cpus or 1},gres/gpu={job.gpus},node={job.nodes or 1}"
    tres += f",mem={job.mem_mib}M" if job.mem_mib else ""
    moments = (job.submit_s, job.submit_s, start_s, end_s)
    cells = [
        str(number),
        str(number),
        *(f"{EPOCH + moment:.0f}" for moment in moments),
        "COMPLETED",
        limit,
        tres,
        tres,
        "somewhere",
        job.partition or "gpu",
        job.user,
        job.account,
        "normal",
        str(priority) if priority else "",
        "SchedMain",
        "",
        "",
    ]
    return "|".join(cells)


def rows(jobs: Sequence[TraceJob], start_s: FloatArray, end_s: FloatArray) -> list[str]:
    """A whole history."""
    return [
        row(job, start, end, number=i)
        for i, (job, start, end) in enumerate(
            zip(jobs, start_s.tolist(), end_s.tolist(), strict=True), 1
        )
    ]


def save_site(
    folder: Path, cluster: Cluster, history: Sequence[str], weights: Mapping[str, str] = WEIGHTS
) -> Path:
    """Write the four files of a site; the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "ClusterName": cluster.name,
        "SLURM_VERSION": "24.11.5",
        "PriorityType": "priority/multifactor",
        "PriorityMaxAge": "7-00:00:00",
        "PriorityFavorSmall": "No",
        "PriorityFlags": "",
        "PriorityCalcPeriod": "00:05:00",
        "SelectTypeParameters": "CR_CORE_MEMORY",
        "PreemptType": "preempt/none",
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": "bf_continue",
        **weights,
    }
    lines = [f"{key:<24}= {value}" for key, value in config.items()]
    (folder / "config.txt").write_text("\n".join(lines) + "\n")
    nodes = [
        f"NodeName={n.name} Arch=x86_64 CPUTot={n.total.cpus} "
        f"Gres={','.join(f'gpu:{g.gpu_type}:{g.total}' for g in n.gpus) or '(null)'} "
        f"RealMemory={n.total.mem_mib} State=IDLE Partitions={','.join(n.partitions)} "
        for n in cluster.nodes
    ]
    (folder / "nodes.txt").write_text("\n".join(nodes) + "\n")
    partitions = [
        f"PartitionName={p.name} Default={'YES' if p.default else 'NO'} DefaultTime=NONE "
        f"MaxTime={format_limit(p.max_time_s) if p.max_time_s else 'UNLIMITED'} "
        f"PriorityJobFactor={p.priority_factor} PriorityTier={p.priority_tier} "
        f"OverSubscribe={p.oversubscribe} State=UP"
        for p in cluster.partitions
    ]
    (folder / "partitions.txt").write_text("\n".join(partitions) + "\n")
    (folder / "sacct.txt").write_text("\n".join(history) + "\n")
    return folder


def format_limit(seconds: float | None) -> str:
    """A time limit in squeue's form; the inverse of parse_limit_s for whole seconds."""
    if seconds is None:
        return "NOT_SET"
    if math.isinf(seconds):
        return "UNLIMITED"
    days, rest = divmod(int(seconds), 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, secs = divmod(rest, 60)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{secs:02}"
    return f"{hours}:{minutes:02}:{secs:02}" if hours else f"{minutes}:{secs:02}"
