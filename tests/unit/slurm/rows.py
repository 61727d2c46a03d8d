"""Rows of squeue and sinfo with nothing special in them."""

from rltuned.slurm.columns import JOB_COLUMNS, NodeRow

ROW = dict.fromkeys(JOB_COLUMNS, "N/A") | {
    "tres-alloc": "cpu=2,mem=1000M,node=1,billing=2",
    "minmemory": "500M",
    "mincpus": "1",
    "numcpus": "2",
    "numtasks": "2",
    "numnodes": "1",
    "oversubscribe": "OK",
    "timelimit": "1:00:00",
    "contiguous": "0",
    "mintmpdisk": "0",
    "partition": "gpu",
    "jobid": "7",
    "arrayjobid": "7",
    "statecompact": "PD",
    "reason": "Priority",
    "prioritylong": "5",
    "nice": "0",
    "submittime": "1700000000",
}


def row(**changed: str) -> dict[str, str]:
    """A pending job's; the names of columns have no hyphens here."""
    return ROW | {name.replace("_", "-"): word for name, word in changed.items()}


def node_row(name: str = "n1", **changed: str) -> list[str]:
    """A node's."""
    plain = NodeRow(
        nodelist=name, statecomplete="mixed", cpusstate="2/6/0/8", memory="32000",
        allocmem="1000", gres="gpu:p100:4(S:0-1)", gresused="gpu:p100:1(IDX:0)",
        features_act="a,b", partition="gpu*", available="up", time="infinite",
        defaulttime="n/a", prioritytier="1", priorityjobfactor="1", oversubscribe="NO",
    )  # fmt: skip
    return list(plain._replace(**changed))
