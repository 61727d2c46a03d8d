"""Answers of a made-up cluster of any size, for benchmarks: no Slurm is needed to measure a cycle.

The texts have the columns and notations of Slurm 22.05; what is in them follows from the sizes
alone, so that two runs measure the same thing. Site factors that `scontrol` is fed are remembered:
sprio shows them at once, `grow_older` shows squeue's sums with them to the next whole look.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from rltuned.slurm.columns import (
    FIELD,
    JOB_COLUMNS,
    NODE_COLUMNS,
    PRIORITY_LETTERS,
    WATCH_COLUMNS,
    Marks,
    NodeRow,
    PriorityRow,
)
from tests.programs import executable

NOW: Final = 1_795_000_000
"""The "now" to observe such a cluster at, Unix seconds."""
MARKS: Final = Marks(record="\x1e#synthetic")
_TYPES: Final = ("a100", "v100", "p100", "t4")
_LIMITS: Final = ("30:00", "1:00:00", "4:00:00", "12:00:00", "1-00:00:00", "UNLIMITED")
_GPUS_PER_NODE: Final = 8
_APART_S: Final = 7.0
"""From one submit to the next. So the tail of a large queue has waited for days."""
_PRIORITIES: Final = 9_000_000
"""As far apart as multifactor's sums lie at weights of a million: few jobs tie."""
_WROTE: Final = "updates.txt"
_UPDATE: Final = re.compile(r"update JobId=([0-9]+) SiteFactor=(-?[0-9]+)")
_NONE: Final[Mapping[int, int]] = MappingProxyType({})
_CONFIG: Final = """Configuration data as of 1795000000
AccountingStorageType   = accounting_storage/slurmdbd
ClusterName             = synthetic
PreemptType             = preempt/none
PriorityCalcPeriod      = 00:05:00
PriorityMaxAge          = 14-00:00:00
PriorityType            = priority/multifactor
PriorityWeightAge       = 1000000
PriorityWeightFairShare = 1000
SelectTypeParameters    = CR_CORE_MEMORY
SLURM_VERSION           = 22.05.8
"""


def squeue_text(
    pending: int,
    running: int,
    factors: Mapping[int, int] = _NONE,
    age: int = 0,
) -> str:
    """Squeue's answer: every tenth pending record is an array, every twentieth depends on another.

    Args:
        pending: number of pending records.
        running: number of running records; number i runs on node i of sinfo_text.
        factors: site factors that were set, by job id.
        age: what ageing has added.
    """
    rows = [_job(n, age + factors.get(n, 0), _submitted(n)) for n in range(1, pending + 1)]
    first = pending + 1
    rows += [_job(first + i, age, _submitted(first + i), runs=True, node=i) for i in range(running)]
    return _table(JOB_COLUMNS, rows)


def _priority(number: int) -> int:
    return 1000 + _mixed(number) % _PRIORITIES


def _mixed(number: int) -> int:
    return number * 2_654_435_761 % 2**32  # Knuth's multiplicative hash: spread, yet fixed


def _submitted(number: int) -> int:
    return NOW - 40 - int(number * _APART_S)


def _job(
    number: int, more: int, submitted: int, *, runs: bool = False, node: int = 0
) -> tuple[str, ...]:
    mixed = _mixed(number)
    gpus, limit = 1 << (mixed >> 8) % 4, _LIMITS[(mixed >> 12) % len(_LIMITS)]
    kind = "" if mixed % 3 == 0 else f"{_TYPES[node % 4 if runs else (mixed >> 16) % 4]}:"
    cpus, is_array = gpus * 4, not runs and number % 10 == 0
    waits_for = f"afterok:{number - 1}(unfulfilled)" if not runs and number % 20 == 1 else "(null)"
    known = {
        "tres-alloc": f"cpu={cpus},mem={cpus * 4000}M,node=1,billing={cpus}",
        "tres-per-node": f"gres:gpu:{kind}{gpus}",
        "minmemory": "4000M",
        "mincpus": "1",
        "numcpus": str(cpus),
        "numtasks": "1",
        "numnodes": "1",
        "feature": "(null)",
        "oversubscribe": "OK",
        "timelimit": limit,
        "licenses": "(null)",
        "contiguous": "0",
        "mintmpdisk": "0",
        "partition": "gpu",
        "jobid": str(number),
        "arrayjobid": str(number),
        "statecompact": "R" if runs else "PD",
        "reason": "None" if runs else "Priority",
        "prioritylong": str(_priority(number) + more),
        "nice": "0",
        "submittime": str(submitted),
        "username": f"user{mixed % 200}",
        "qos": "normal",
        "reqnodes": "",
        "dependency": waits_for,
        "reservation": "(null)",
        "nodelist": _node_name(node) if runs else "",
        "account": f"group{mixed % 40}",
    }
    if is_array:
        known["arraytaskid"] = f"0-{mixed % 90 + 9}%4"
    if waits_for == "(null)":
        known |= {"eligibletime": str(submitted), "accruetime": str(submitted)}
    if runs:
        known["starttime"] = str(NOW - 20 - mixed % 3000)
    return tuple(known.get(name, "N/A") for name in JOB_COLUMNS)


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


def sprio_text(pending: int, age: int = 0) -> str:
    """Sprio's answer for the pending jobs that do not depend on another, without site factors."""
    rows = [
        PriorityRow(
            str(n), str(_priority(n) + age), "0", "500", "300", "200", "500", "0", "0", "", "0"
        )
        for n in range(1, pending + 1)
        if n % 20 != 1
    ]
    return _table(PRIORITY_LETTERS, rows)


def watch_text(pending: int) -> str:
    """Squeue's answer to the look back after a write, before any write; see squeue_text."""
    rows = [
        (
            str(n), str(n), f"0-{_mixed(n) % 90 + 9}%4" if n % 10 == 0 else "N/A", "PD", "Priority",
            str(_priority(n)), "0", str(_submitted(n)), "N/A", "N/A", "OK",
        )
        for n in range(1, pending + 1)
    ]  # fmt: skip
    return _table(WATCH_COLUMNS, rows)


def _table(
    names: tuple[str, ...] | str,
    rows: Sequence[tuple[str, ...]],
) -> str:
    head = FIELD.join(n.upper() for n in names)
    lines = [head, *(FIELD.join(r) for r in rows)]
    return "".join(line + MARKS.record + "\n" for line in lines)


_SDIAG: Final = """Server thread count:  3
Agent queue size:     0
DBD Agent queue size: 0
Backfilling stats
\tLast cycle: 1000

Remote Procedure Call statistics by message type
\tREQUEST_JOB_INFO ( 2003) count:10 ave_time:100 total_time:1000
"""
_PROGRAMS: Final = {
    # awk adds what was written
    "squeue": """case "$1 $*" in
--help*) exec cat usage.txt ;;
*" -t PD"*) exec cat watch.txt ;;
esac
exec cat squeue.txt""",
    "sinfo": "exec cat sinfo.txt",
    "sprio": f"""exec awk -F '{FIELD}' -v OFS='{FIELD}' '
    NR == FNR {{ if (split($0, w, /[ =]/) == 5) to[w[3]] = w[5]; next }}
    $1 in to {{ $2 += to[$1]; $3 = to[$1] }} {{ print }}' {_WROTE} sprio.txt""",
    "sdiag": "exec cat sdiag.txt",
    "scontrol": f"""[ "$1" = -v ] && exec cat >>{_WROTE}
[ "$3" = reservations ] && exec echo No reservations in the system
exec cat scontrol.txt""",
}


def write_programs(folder: Path, *, pending: int, running: int, nodes: int) -> Path:
    """Put programs named squeue, sinfo, sprio, sdiag and scontrol into a folder that answer for it.

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
        "sdiag": _SDIAG,
        "watch": watch_text(pending),
        "updates": "\n",  # awk takes an empty first file for none
    }
    for name, text in answers.items():
        (folder / f"{name}.txt").write_text(text, newline="\n")
    for name, does in _PROGRAMS.items():
        executable(folder / name, f'#!/bin/sh\ncd "{folder}" || exit 1\n{does}\n')
    return folder


def grow_older(folder: Path, *, pending: int, running: int, age: int) -> int:
    """Show what was written, and let all numbers grow, as a minute would.

    Args:
        folder: of write_programs.
        pending: as there.
        running: as there.
        age: what ageing has added since the beginning.

    Returns:
        How many jobs have a site factor that was set.
    """
    wrote = _UPDATE.findall((folder / _WROTE).read_text())
    factors = {int(job): int(number) for job, number in wrote}
    for name, text in (
        ("squeue", squeue_text(pending, running, factors, age)),
        ("sprio", sprio_text(pending, age)),
    ):
        (folder / f"{name}.txt").write_text(text, newline="\n")
    return len(factors)
