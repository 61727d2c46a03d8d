"""Rows of squeue with nothing special in them."""

from rltuned.slurm.columns import Ask

ASK = Ask(
    tres_alloc="cpu=2,mem=1000M,node=1,billing=2",
    tres_per_job="N/A",
    tres_per_node="N/A",
    tres_per_socket="N/A",
    tres_per_task="N/A",
    cpus_per_tres="N/A",
    mem_per_tres="N/A",
    minmemory="500M",
    mincpus="1",
    numcpus="2",
    numtasks="2",
    numnodes="1",
    feature="(null)",
    oversubscribe="OK",
    timelimit="1:00:00",
    licenses="(null)",
    contiguous="0",
    corespec="N/A",
    mintmpdisk="0",
    partition="gpu",
)
