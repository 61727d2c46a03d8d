"""Answers of a made-up cluster of any size, for benchmarks: no Slurm is needed to measure reading.

The texts have the columns and notations of Slurm 22.05; what is in them follows from the sizes
alone, so that two runs measure the same thing.
"""

from pathlib import Path
from typing import Final

from rltuned.slurm.columns import (
    FIELD,
    JOB_COLUMNS,
    NODE_COLUMNS,
    PRIORITY_LETTERS,
    Ask,
    JobRow,
    Marks,
    NodeRow,
    PriorityRow,
)

NOW: Final = 1_795_000_000
"""The "now" to observe such a cluster at, Unix seconds."""
MARKS: Final = Marks(record="\x1e#synthetic")
_TYPES: Final = ("a100", "v100", "p100", "t4")
_LIMITS: Final = ("30:00", "1:00:00", "4:00:00", "12:00:00", "1-00:00:00", "UNLIMITED")
_GPUS_PER_NODE: Final = 8
_CONFIG: Final = """Configuration data as of 1795000000
ClusterName             = synthetic
PreemptType             = preempt/none
PriorityType            = priority/multifactor
SelectTypeParameters    = CR_CORE_MEMORY
SLURM_VERSION           = 22.05.8
"""


def squeue_text(pending: int, running: int) -> str:
    """Squeue's answer: every tenth pending record is an array, every twentieth depends on another.

    Args:
        pending: number of pending records.
        running: number of running records; number i runs on node i of sinfo_text.
    """
    rows = [_job(number, runs=False) for number in range(1, pending + 1)]
    rows += [_job(pending + 1 + i, runs=True, node=i) for i in range(running)]
    return _table(JOB_COLUMNS, rows)


def _job(number: int, *, runs: bool, node: int = 0) -> tuple[str, ...]:
    mixed = number * 2_654_435_761 % 2**32  # Knuth's multiplicative hash: spread, yet fixed
    gpus, limit = 1 << (mixed >> 8) % 4, _LIMITS[(mixed >> 12) % len(_LIMITS)]
    kind = "" if mixed % 3 == 0 else f"{_TYPES[node % 4 if runs else (mixed >> 16) % 4]}:"
    cpus, is_array = gpus * 4, not runs and number % 10 == 0
    waits_for = f"afterok:{number - 1}(unfulfilled)" if not runs and number % 20 == 1 else "(null)"
    ask = Ask(
        tres_alloc=f"cpu={cpus},mem={cpus * 4000}M,node=1,billing={cpus}",
        tres_per_job="N/A",
        tres_per_node=f"gres:gpu:{kind}{gpus}",
        tres_per_socket="N/A",
        tres_per_task="N/A",
        cpus_per_tres="N/A",
        mem_per_tres="N/A",
        minmemory="4000M",
        mincpus="1",
        numcpus=str(cpus),
        numtasks="1",
        numnodes="1",
        feature="(null)",
        oversubscribe="OK",
        timelimit=limit,
        licenses="(null)",
        contiguous="0",
        corespec="N/A",
        mintmpdisk="0",
        partition="gpu",
    )
    submitted = NOW - 40 - number * 7
    row = JobRow(
        jobid=str(number),
        arrayjobid=str(number),
        arraytaskid=f"0-{mixed % 90 + 9}%4" if is_array else "N/A",
        statecompact="R" if runs else "PD",
        reason="None" if runs else "Priority",
        prioritylong=str(1000 + mixed % 9000),
        nice="0",
        submittime=str(submitted),
        eligibletime="N/A" if waits_for != "(null)" else str(submitted),
        starttime=str(NOW - 20 - mixed % 3000) if runs else "N/A",
        username=f"user{mixed % 200}",
        qos="normal",
        reqnodes="",
        dependency=waits_for,
        reservation="(null)",
        hetjobid="N/A",
        hetjoboffset="N/A",
        nodelist=_node_name(node) if runs else "",
        account=f"group{mixed % 40}",
    )
    return (*ask, *row)


def sinfo_text(nodes: int) -> str:
    """Sinfo's answer: nodes of eight GPUs in two partitions; one in fifty is drained."""
    rows = []
    for number in range(nodes):
        kind, drained, used = _TYPES[number % 4], number % 50 == 0, number % 9
        for partition, tier in (("gpu*", "1"), ("sla", "2")):
            rows.append(
                NodeRow(
                    nodelist=_node_name(number),
                    statecomplete="mixed+drain" if drained else "mixed",
                    cpusstate=f"{used * 4}/{64 - used * 4}/0/64",
                    memory="512000",
                    allocmem=str(used * 16000),
                    gres=f"gpu:{kind}:{_GPUS_PER_NODE}(S:0-1)",
                    gresused=f"gpu:{kind}:{min(used, _GPUS_PER_NODE)}(IDX:N/A)",
                    features_act=f"{kind},nvlink",
                    partition=partition,
                    available="up",
                    time="infinite",
                    defaulttime="1:00:00",
                    prioritytier=tier,
                    priorityjobfactor="1",
                    oversubscribe="NO",
                )
            )
    return _table(NODE_COLUMNS, rows)


def _node_name(number: int) -> str:
    return f"gpu{number:04d}"


def sprio_text(pending: int) -> str:
    """Sprio's answer for the pending jobs that do not depend on another."""
    rows = [
        PriorityRow(str(n), "1500", "0", "500", "300", "200", "500", "0")
        for n in range(1, pending + 1)
        if n % 20 != 1
    ]
    return _table(PRIORITY_LETTERS, rows)


def _table(
    names: tuple[str, ...] | str, rows: list[tuple[str, ...]] | list[NodeRow] | list[PriorityRow]
) -> str:
    head = FIELD.join(n.upper() for n in names)
    lines = [head, *(FIELD.join(r) for r in rows)]
    return "".join(line + MARKS.record + "\n" for line in lines)


def write_programs(folder: Path, *, pending: int, running: int, nodes: int) -> Path:
    """Put programs named squeue, sinfo, sprio and scontrol into a folder that answer for it.

    Args:
        folder: an existing one; the backend's SlurmCli.bin_dir, with marks=MARKS.
        pending: number of pending records.
        running: number of running records, at most `nodes`.
        nodes: number of nodes.

    Raises:
        ValueError: more running jobs than nodes.
    """
    if running > nodes:
        raise ValueError(f"{running} running jobs on {nodes} nodes")
    answers = {
        "squeue": squeue_text(pending, running),
        "usage": "  --array-unique\n",
        "sinfo": sinfo_text(nodes),
        "sprio": sprio_text(pending),
        "scontrol": _CONFIG,
    }
    for name, text in answers.items():
        (folder / f"{name}.txt").write_text(text, newline="\n")
    for name in ("squeue", "sinfo", "sprio", "scontrol"):
        choose = '[ "$1" = --help ] && f=usage' if name == "squeue" else ":"
        program = folder / name
        program.write_text(f'#!/bin/sh\nf={name}\n{choose}\nexec cat "{folder}/$f.txt"\n')
        program.chmod(0o700)
    return folder
