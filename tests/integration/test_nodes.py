"""What the snapshot says may start on a node is what Slurm starts there, on a real Slurm.

Cloud nodes that power scripts start and stop, reboots that are asked for, drains, power-downs,
specialised cores and memory.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from rltuned.core.capacity import Capacity
from rltuned.domain.cluster import Node, Resources
from rltuned.slurm.backend import SlurmBackend
from tests.clusters import slurm_or_skip, world_of
from tests.lab import NodeSpec, SlurmLab
from tests.programs import executable
from tests.waits import looks

pytestmark = pytest.mark.slurm

CLOUD = ("c1", "c2", "c3")
SPECIAL = "s1"
NODES = (
    NodeSpec(("p1",), cpus=16, mem_mib=64000, gpu_type="p100", gpus=4),
    NodeSpec((SPECIAL,), cpus=16, mem_mib=64000, gpu_type="v100", gpus=4),
    NodeSpec(CLOUD, cpus=8, mem_mib=32000, gpu_type="a100", gpus=2, features="far"),
)
PARTITIONS = (
    "PartitionName=gpu Nodes=p1,s1 Default=YES MaxTime=UNLIMITED DefaultTime=60",
    "PartitionName=far Nodes=c[1-3] MaxTime=1-0",
)
SMALL = ("-n1", "-N1", "--mem=100", "-t60")


@dataclass
class PoweredLab(SlurmLab):
    """A cluster whose cloud nodes are started when Slurm has asked for them."""

    def _node_line(self, spec: NodeSpec, name: str, host: str, port: int) -> str:
        line = super()._node_line(spec, name, host, port)
        more = {SPECIAL: " CoreSpecCount=2 MemSpecLimit=4000"}
        return line + (" State=CLOUD" if name in CLOUD else more.get(name, ""))

    def start_node(self, name: str) -> None:
        if name not in CLOUD:
            super().start_node(name)

    def power_up(self, name: str) -> None:
        # -b: it says that its machine has been booted
        self._spawn(f"slurmd-{name}", ["slurmd", "-D", "-b", "-N", name])

    def _all_nodes_up(self) -> bool:
        states = self.run("sinfo", "-h", "-N", "-p", "gpu", "-o", "%T", check=False).split()
        return len(states) == 2 and set(states) <= {"idle", "mixed"}

    def backend(self) -> SlurmBackend:
        return world_of(self)

    def node(self, name: str) -> Node:
        found = {str(n.name): n for n in self.backend().observe().nodes}
        assert name in found, sorted(found)
        return found[name]

    def starts(self, *options: str, within_s: float = 8.0) -> int | None:
        """Whether Slurm gives a job its nodes now; the job, which is cancelled else."""
        job = self.sbatch(*SMALL, *options)
        if any(self.state(job) in {"R", "CF"} for _ in looks(within_s)):
            return job
        self.run("scancel", str(job))
        return None


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoweredLab]:
    slurm_or_skip()
    script = executable(tmp_path_factory.mktemp("power") / "power.sh", "#!/bin/sh\nexit 0\n")
    script.parent.chmod(0o755)
    for folder in (script.parent.parent, script.parent.parent.parent):
        folder.chmod(0o755)
    power = (
        f"ResumeProgram={script}", f"SuspendProgram={script}", f"RebootProgram={script}",
        "SuspendTime=3600", "ResumeTimeout=300", "SuspendTimeout=3", "SuspendExcNodes=p1,s1",
    )  # fmt: skip
    with PoweredLab(nodes=NODES, partitions=PARTITIONS, extra=power) as started:
        yield started


@pytest.fixture(autouse=True)
def clean(lab: PoweredLab) -> Iterator[None]:
    yield
    lab.run("scontrol", "cancel_reboot", "p1", check=False)
    lab.run("scontrol", "delete", "reservation", "kept", check=False)
    lab.clear()


def test_powered_down_cloud_nodes_are_there_with_what_they_can_give(lab: PoweredLab) -> None:
    seen = lab.backend().observe()
    assert not seen.unreadable
    found = {str(n.name): n for n in seen.nodes}
    assert set(found) == {"p1", SPECIAL, *CLOUD}
    c3 = found["c3"]
    assert (c3.total, c3.free) == (Resources(2, 8, 32000), Resources(2, 8, 32000))
    assert c3.schedulable
    assert (c3.partitions, c3.features) == (("far",), ("far",))
    assert Capacity.of(seen).usable.all()


def test_a_node_that_powers_up_takes_jobs_and_then_runs_them(lab: PoweredLab) -> None:
    world = lab.backend()
    first = lab.starts("-pfar", "-wc1", "--gres=gpu:1")
    lab.wait_for(lambda: "POWERING_UP" in lab.node("c1").state, "the node is asked for")
    c1 = lab.node("c1")
    assert (c1.schedulable, c1.free.gpus) == (True, 1)
    second = lab.starts("-pfar", "-wc1", "--gres=gpu:1")
    assert first
    assert second, "Slurm starts a job there, as the snapshot says"
    seen = world.observe()
    assert {int(j.job_id) for j in seen.running} == {first, second}
    lab.power_up("c1")
    lab.wait_for(lambda: lab.state(second) == "R", "the node is up")
    assert lab.node("c1").free.gpus == 0
    lab.clear()
    lab.scontrol("update", "NodeName=c1", "State=POWER_DOWN")
    shown = ("sinfo", "-h", "-N", "-n", "c1", "-O", "statecomplete:60")
    lab.wait_for(lambda: "powered_down" in lab.run(*shown), "it is down again")
    lab.stop_node("c1")
    c1 = {str(n.name): n for n in world.observe().nodes}["c1"]
    assert (c1.schedulable, c1.free.gpus, c1.total.gpus) == (True, 2, 2)


def test_a_drained_cloud_node_that_is_hidden_takes_nothing(lab: PoweredLab) -> None:
    lab.scontrol("update", "NodeName=c2", "State=DRAIN", "Reason=x")
    try:
        assert not lab.node("c2").schedulable
        assert lab.starts("-pfar", "-wc2") is None
    finally:
        lab.run("scontrol", "update", "NodeName=c2", "State=UNDRAIN", check=False)


def reboot(lab: PoweredLab) -> None:
    lab.scontrol("reboot", "p1")


def reboot_asap(lab: PoweredLab) -> None:
    lab.scontrol("reboot", "ASAP", "p1")


def drain(lab: PoweredLab) -> None:
    lab.scontrol("update", "NodeName=p1", "State=DRAIN", "Reason=x")


def reserve(lab: PoweredLab) -> None:
    lab.scontrol(
        "create", "reservation", "ReservationName=kept", "StartTime=now", "Duration=60",
        "Nodes=p1", "Users=daemon", "Flags=IGNORE_JOBS",
    )  # fmt: skip
    lab.wait_for(
        lambda: "reserved" in lab.run("sinfo", "-h", "-N", "-n", "p1", "-O", "statecomplete:60"),
        "it is reserved",
    )


@pytest.mark.parametrize(
    ("change", "takes"), [(reboot, True), (reboot_asap, False), (drain, False), (reserve, False)]
)
def test_a_node_in_this_state_takes_jobs_or_not_as_the_snapshot_says(
    lab: PoweredLab, change: Callable[[PoweredLab], None], takes: bool
) -> None:
    assert lab.starts("-wp1"), "it is in use, so nothing comes of it at once"
    change(lab)
    node = lab.node("p1")
    assert node.schedulable is takes, node.state
    assert (lab.starts("-wp1") is not None) is takes


def test_specialised_cores_and_memory_are_nobodys(lab: PoweredLab) -> None:
    node = lab.node(SPECIAL)
    assert node.total == node.free == Resources(4, 14, 60_000)
    assert lab.starts(f"-w{SPECIAL}", "-n14", "--mem=60000")
    assert lab.node(SPECIAL).free == Resources(4, 0, 0)
    assert lab.starts(f"-w{SPECIAL}") is None


def test_an_exclusive_job_on_a_node_with_specialised_cores_has_the_whole_node(
    lab: PoweredLab,
) -> None:
    job = lab.starts(f"-w{SPECIAL}", "--exclusive", "--gres=gpu:1")
    seen = lab.backend().observe()
    (run,) = (r for r in seen.running if r.job_id == job)
    (share,) = run.shares
    assert (share.taken.gpus, share.taken.cpus) == (4, 14)
    (node,) = (n for n in seen.nodes if n.name == SPECIAL)
    assert (node.free.gpus, node.free.cpus) == (0, 0)
    capacity = Capacity.of(seen)
    capacity.give(run.shares)
    at = capacity.index[node.name]
    assert capacity.free.of_type[:, at].sum() == 4, "all of them come back in a forecast"
