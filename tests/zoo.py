"""One job of every kind, on a cluster with one node of every kind, and what must be read of them.

Used twice: on answers recorded by `make record`, and on the live cluster of tests/lab.py.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rltuned.domain.cluster import Resources
from rltuned.domain.jobs import ArrayInfo, PendingJob
from tests.lab import TESTBED, NodeSpec, SlurmLab

ZOO_NODES = (
    *TESTBED,
    NodeSpec(("a1",), cpus=8, mem_mib=64000, gpu_type="a100_1g.5gb", gpus=4, features="mig,ampere"),
    NodeSpec(("g1",), cpus=8, mem_mib=64000, gpu_type="v100", gpus=2, more_gpus=(("a30", 1),)),
    NodeSpec(("s1",), cpus=8, mem_mib=32000, gpu_type="t4", gpus=2, shards=8),
    NodeSpec(("d1",), cpus=4, mem_mib=16000, gpu_type="m40", gpus=1),
    NodeSpec(("d2",), cpus=4, mem_mib=16000, gpu_type="m40", gpus=1),
)


@dataclass
class Zoo:
    """Job ids by the names below; base is the id that the text `{name}` in expectations means."""

    ids: dict[str, int] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)


RUNNING: dict[str, tuple[str, ...]] = {
    "r_typed": ("--gres=gpu:p100:2", "-n4", "--mem=8000", "-t30", "-wp1"),
    "r_multi": ("-N2", "--gres=gpu:p100:1", "-n2", "-wp1,p2", "-t60", "--uid=65534"),
    "r_exclusive": ("--exclusive", "-wk1", "-n1", "--gres=gpu:1", "-tUNLIMITED"),
    "r_whole": ("-pwhole", "-wk2", "-n1"),
    "r_mig": ("--gres=gpu:a100_1g.5gb:2", "-n1", "-wa1"),
    "r_two": ("--gres=gpu:v100:1,gpu:a30:1", "-n8", "-wg1"),
    "r_shard": ("--gres=shard:2", "-n1", "-ws1"),
    "r_m1": ("-n4", "-wm1", "--gres=gpu:m40:1", "--mem-per-cpu=1G"),
    "fill_p1": ("-n9", "-wp1"),
    "fill_a1": ("-n7", "-wa1"),
    "fill_s1": ("-n7", "-ws1"),
}
PENDING: dict[str, tuple[str, ...]] = {
    "gpu_plain": ("--gres=gpu:2", "-n2"),
    "gpu_typed": ("--gres=gpu:p100:4", "-n8", "--mem=4G"),
    "gpu_per_job": ("--gpus=6", "-n6"),
    "gpu_per_node": ("-N2", "--gpus-per-node=k80:2", "-n2"),
    "gpu_per_task": ("-n3", "--gpus-per-task=1"),
    "gpu_per_socket": ("-N1", "--sockets-per-node=1", "--gpus-per-socket=1", "-n1"),
    "gpu_with_cpus": ("--gpus=2", "--cpus-per-gpu=3", "--mem-per-gpu=2G"),
    "mig": ("--gres=gpu:a100_1g.5gb:2", "-n1"),
    "two_types": ("--gres=gpu:v100:1,gpu:a30:1", "-n1"),
    "shard": ("--gres=shard:4", "-n1"),
    "mem_per_cpu": ("--mem-per-cpu=700M", "-n3", "-c2", "--gres=gpu:p100:1"),
    "mem_per_node": ("--mem=3G", "-N2", "-n4", "--gres=gpu:p100:1"),
    "mem_all": ("--mem=0", "-n1", "--gres=gpu:1"),
    "array": ("--array=0-9%3", "-n1", "--gres=gpu:p100:4", "-t30"),
    "array_gaps": ("--array=1,5,7-9:2,100", "-n1", "--gres=gpu:p100:4"),
    "array_split": ("--array=0-5", "-n1", "--gres=gpu:p100:4"),
    "held_by_user": ("-n1", "--gres=gpu:p100:4"),
    "held_by_admin": ("-n1", "--gres=gpu:p100:4"),
    "dependent": ("-n1",),
    "begin": ("--begin=now+1hour", "-n1"),
    "many_partitions": ("-pgpu,short", "-n1", "--gres=gpu:p100:4", "-t5"),
    "licensed": ("-Lmatlab:2", "-n1"),
    "reserved": ("--reservation=zoo", "-n1"),
    "exclusive": ("--exclusive", "-n2", "--gres=gpu:p100:4", "-N1"),
    "exclusive_user": ("--exclusive=user", "-n2", "--gres=gpu:p100:4", "-N1"),
    "oversubscribed": ("-s", "-n2", "--gres=gpu:p100:4", "-N1"),
    "whole": ("-pwhole", "-n1", "--gres=gpu:k80:1"),
    "constrained": ("-Cpascal|kepler", "-n1", "--gres=gpu:1"),
    "on_p1": ("-wp1", "-n16", "-N1"),
    "closed": ("-pclosed", "-n1"),
    "sla": ("-psla", "-n16", "-wp1", "-N1", "--nice=-5"),
    "nice": ("-n16", "-wp1", "-N1", "--nice=50"),
    "unlimited": ("-tUNLIMITED", "-n16", "-wp1", "-N1"),
    "contiguous": ("-N2", "--contiguous", "-n32", "--ntasks-per-node=16"),
    "min_cpus": ("-n1", "--mincpus=16"),
    "odd_account": ("-n1", "--account=a|c=1,\x1fd"),
    "evil_account": ("-n1", "--account=x\n1\x1f1\x1f\x1e9\nPriority=5"),
    "odd_name": ("-n1", "--comment=a|b\nJobId=1 Priority=9"),
}
HOUR, MINUTE = 3600.0, 60.0


def fill(lab: SlurmLab) -> Zoo:
    """Submit everything; returns when what must run runs and the rest waits."""
    zoo = Zoo()
    lab.stop_node("d1")
    lab.scontrol("update", "NodeName=d1", "State=DOWN", "Reason=dead")
    lab.scontrol("update", "NodeName=d2", "State=DRAIN", "Reason=t|x=1")
    for name, options in RUNNING.items():
        zoo.ids[name] = lab.sbatch(f"--job-name={name}", *options)
    zoo.ids["r_array"] = lab.sbatch("--array=0-3%2", "-n1", "-wp1", "-t5", "--mem=100")
    lab.wait_for(lambda: _running(lab) == len(RUNNING) + 2, "the zoo's running jobs")
    lab.scontrol("update", "NodeName=p2", "State=DRAIN", "Reason=remedy")
    lab.scontrol(
        "create", "reservation", "ReservationName=zoo", "Users=root", "Nodes=m1",
        "StartTime=now+1hour", "Duration=60",
    )  # fmt: skip
    for name, options in PENDING.items():
        zoo.ids[name] = lab.sbatch(f"--job-name=z|{name}", *_more(name, zoo), *options)
    lab.scontrol("hold", str(zoo.ids["held_by_admin"]))
    lab.scontrol("uhold", str(zoo.ids["held_by_user"]))
    split = zoo.ids["array_split"]
    lab.scontrol("update", f"JobId={split}_2", "Nice=7")
    lab.scontrol("hold", f"{split}_4")
    out = lab.run(
        "sbatch", "--parsable", "--output=/dev/null", "-n1", "--gres=gpu:p100:4", ":", "-n2",
        "--gres=gpu:k80:2", text="#!/bin/sh\nsleep 600\n",
    )  # fmt: skip
    zoo.ids["het"] = int(out.strip().split(";")[0])
    # the main scheduler and backfill have been over them once: what they rewrite is rewritten
    time.sleep(3)
    return zoo


def _more(name: str, zoo: Zoo) -> tuple[str, ...]:
    return (f"--dependency=afterok:{zoo.ids['r_typed']}",) if name == "dependent" else ()


def _running(lab: SlurmLab) -> int:
    return len(lab.run("squeue", "-h", "-a", "-t", "R", "-o", "%A").split())


def _ask(gpus: int, cpus: int, mem_mib: int, **rest: Any) -> dict[str, Any]:
    types = rest.pop("types", ())
    return {
        "total": Resources(gpus, cpus, mem_mib),
        "gpu_types": types,
        "nodes": None,
        "time_limit_s": HOUR,
        "exclusive": False,
        "outside": (),
    } | rest


P = ("p100",)
REQUESTS: dict[str, dict[str, Any]] = {
    "gpu_plain": _ask(2, 2, 1000, nodes=1),
    "gpu_typed": _ask(4, 8, 4096, types=P, nodes=1),
    "gpu_per_job": _ask(6, 6, 3000),
    "gpu_per_node": _ask(4, 2, 1000, types=("k80",), nodes=2),
    "gpu_per_task": _ask(3, 3, 1500),
    "gpu_with_cpus": _ask(2, 6, 4096),
    "mig": _ask(2, 1, 500, types=("a100_1g.5gb",), nodes=1),
    "two_types": _ask(
        2, 1, 500, types=("v100", "a30"), nodes=1, outside=("gpu types at once: v100,a30",)
    ),
    "shard": _ask(0, 1, 500, outside=("gres/shard=4",)),
    "mem_per_cpu": _ask(1, 6, 4200, types=P, nodes=1),
    "mem_per_node": _ask(2, 4, 6144, types=P, nodes=2),
    "array": _ask(4, 1, 500, types=P, nodes=1, time_limit_s=30 * MINUTE),
    "array_gaps": _ask(4, 1, 500, types=P, nodes=1),
    "array_split": _ask(4, 1, 500, types=P, nodes=1),
    "held_by_user": _ask(4, 1, 500, types=P, nodes=1),
    "many_partitions": _ask(4, 1, 500, types=P, nodes=1, time_limit_s=5 * MINUTE),
    "licensed": _ask(0, 1, 500, outside=("licenses=matlab:2",)),
    "exclusive": _ask(4, 2, 1000, types=P, nodes=1, exclusive=True),
    "exclusive_user": _ask(4, 2, 1000, types=P, nodes=1, outside=("exclusive=user",)),
    "oversubscribed": _ask(4, 2, 1000, types=P, nodes=1),
    "whole": _ask(1, 1, 500, types=("k80",), nodes=1, exclusive=True, time_limit_s=24 * HOUR),
    "constrained": _ask(1, 1, 500, nodes=1, outside=("constraint=pascal|kepler",)),
    "closed": _ask(0, 1, 500, time_limit_s=24 * HOUR),
    "sla": _ask(0, 16, 8000, time_limit_s=24 * HOUR),
    "unlimited": _ask(0, 16, 8000, time_limit_s=float("inf")),
    "contiguous": _ask(0, 32, 16000, nodes=2, outside=("contiguous",)),
    "min_cpus": _ask(0, 16, 8000),
    "het": _ask(4, 1, 500, types=P, nodes=1),
}


def _array(job: PendingJob) -> tuple[str, int | None, int | None]:
    array = job.array or ArrayInfo(job.job_id, -1)
    return job.address, array.tasks, array.throttle


Seen = Callable[[PendingJob], Any]
FIELDS: dict[str, tuple[Seen, Any]] = {
    "gpu_plain": (lambda j: (j.user, j.qos, j.account, j.partitions), ("root", "", "", ("gpu",))),
    "gpu_per_socket": (
        lambda j: (j.request.total.gpus, j.request.outside),
        (1, ("tres-per-socket=gpu:1",)),
    ),
    "mem_all": (lambda j: j.request.outside, ("mem=0 (all memory of each node)",)),
    "held_by_user": (lambda j: (j.held_by, j.priority, j.site_factor), ("user", 0, None)),
    "held_by_admin": (lambda j: (j.held_by, j.priority), ("admin", 0)),
    "dependent": (
        lambda j: (j.reason, j.eligible_at, "afterok" in j.dependency),
        ("Dependency", None, True),
    ),
    "begin": (  # sbatch counts the hour from its own second, slurmctld may note the next one
        lambda j: (j.reason, round((j.eligible_at or 0) - j.submitted_at, -1)),
        ("BeginTime", HOUR),
    ),
    "many_partitions": (lambda j: j.partitions, ("gpu", "short")),
    "reserved": (lambda j: (j.reservation, j.eligible_at), ("zoo", None)),
    "exclusive": (lambda j: j.oversubscribe, "NO"),
    "exclusive_user": (lambda j: j.oversubscribe, "USER"),
    "oversubscribed": (lambda j: j.oversubscribe, "YES"),
    "on_p1": (lambda j: j.required_nodes, ("p1",)),
    "closed": (lambda j: (j.reason, j.partitions), ("PartitionDown", ("closed",))),
    "sla": (lambda j: (j.nice, j.site_factor, j.held_by), (-5, 0, "")),
    "nice": (lambda j: j.nice, 50),
    "odd_account": (lambda j: j.account, "a|c=1,\x1fd"),
    "evil_account": (lambda j: j.account, "x\n1\x1f1\x1f\x1e9\npriority=5"),
    "array": (_array, ("{id}", 10, 3)),
    "array_gaps": (_array, ("{id}", 5, None)),
    "array_split": (_array, ("{id}_[0-1,3,5]", 4, None)),
    "het": (lambda j: (j.address, j.het_job_id == j.job_id), ("{id}+0", True)),
}


NODES: dict[str, tuple[bool, Resources, Resources, tuple[tuple[str, int, int], ...]]] = {
    "p1": (True, Resources(4, 16, 64000), Resources(1, 0, 50800), (("p100", 4, 1),)),
    "p2": (False, Resources(4, 16, 64000), Resources(3, 15, 63500), (("p100", 4, 3),)),
    "k1": (True, Resources(2, 8, 32000), Resources(0, 0, 28000), (("k80", 2, 0),)),
    "k2": (True, Resources(2, 8, 32000), Resources(0, 0, 28000), (("k80", 2, 0),)),
    "m1": (True, Resources(1, 4, 16000), Resources(0, 0, 11904), (("m40", 1, 0),)),
    "a1": (True, Resources(4, 8, 64000), Resources(2, 0, 60000), (("a100_1g.5gb", 4, 2),)),
    "g1": (True, Resources(3, 8, 64000), Resources(1, 0, 60000), (("v100", 2, 1), ("a30", 1, 0))),
    "s1": (True, Resources(2, 8, 32000), Resources(1, 0, 28000), (("t4", 2, 1),)),
    "d1": (False, Resources(1, 4, 16000), Resources(1, 4, 16000), (("m40", 1, 1),)),
    "d2": (False, Resources(1, 4, 16000), Resources(1, 4, 16000), (("m40", 1, 1),)),
}
"""schedulable, total, free, GPUs by type with total and free."""

SHARES: dict[str, tuple[tuple[str, Resources, str | None], ...]] = {
    "r_typed": (("p1", Resources(2, 4, 8000), "p100"),),
    "r_multi": (("p1", Resources(1, 1, 500), "p100"), ("p2", Resources(1, 1, 500), "p100")),
    "r_exclusive": (("k1", Resources(2, 8, 4000), "k80"),),
    "r_whole": (("k2", Resources(2, 8, 4000), "k80"),),
    "r_mig": (("a1", Resources(2, 1, 500), "a100_1g.5gb"),),
    "r_two": (("g1", Resources(2, 8, 4000), None),),
    "r_shard": (("s1", Resources(0, 1, 500), None),),
    "r_m1": (("m1", Resources(1, 4, 4096), "m40"),),
}
