"""Clusters known by name, so that a comparison needs no file."""

from pathlib import Path

from rltuned.errors import TraceError
from rltuned.sim.cluster import Cluster, parse_cluster, read_cluster

TESTBED = """
[[partitions]]
name = "gpu"
default = true
max_time_s = 86400

[[nodes]]
name = "p[1-2]"
gpu_type = "p100"
gpus = 4
cpus = 16
mem_mib = 64000
partitions = ["gpu"]

[[nodes]]
name = "k[1-2]"
gpu_type = "k80"
gpus = 2
cpus = 8
mem_mib = 32000
partitions = ["gpu"]

[[nodes]]
name = "m1"
gpu_type = "m40"
gpus = 1
cpus = 4
mem_mib = 16000
partitions = ["gpu"]
"""
"""RLTune's testbed: 13 GPUs of three types on five nodes."""


def uniform(*groups: tuple[str, int, str, int, int]) -> str:
    """TOML of node groups (prefix, count, GPU type, GPUs, CPUs) in one partition."""
    text = '[[partitions]]\nname = "gpu"\ndefault = true\n'
    for prefix, count, gpu_type, gpus, cpus in groups:
        digits = len(str(count))
        text += (
            f'\n[[nodes]]\nname = "{prefix}[{"1".zfill(digits)}-{count}]"\n'
            f'gpu_type = "{gpu_type}"\ngpus = {gpus}\ncpus = {cpus}\n'
            f'mem_mib = {gpus * 60_000}\npartitions = ["gpu"]\n'
        )
    return text


PRESETS = {
    "testbed": TESTBED,
    # the slice of 192 GPUs that RLTune's repository simulates
    "philly-192": uniform(("a", 16, "p100", 2, 12), ("b", 20, "p100", 8, 48)),
    # all of Philly: 321 nodes with 2 GPUs, 231 with 8 (Jeon et al., ATC'19)
    "philly-2490": uniform(("a", 321, "p100", 2, 12), ("b", 231, "p100", 8, 48)),
    # Helios Venus: 135 nodes with 8 GPUs (Hu et al., SC'21)
    "helios-1080": uniform(("v", 135, "v100", 8, 48)),
    # a tenth of Alibaba PAI's typed machines (Weng et al., NSDI'22)
    "pai-674": uniform(
        ("h", 10, "V100", 8, 96),
        ("j", 14, "V100M32", 8, 96),
        ("m", 28, "MISC", 8, 96),
        ("p", 80, "P100", 2, 64),
        ("t", 49, "T4", 2, 96),
    ),
}
"""Name -> cluster TOML."""


def preset(name: str) -> Cluster:
    """A cluster by name. Raises TraceError: there is none of that name."""
    if name not in PRESETS:
        raise TraceError(f"no cluster named {name!r}; there are {', '.join(PRESETS)}")
    return parse_cluster(PRESETS[name], f"preset {name}", name)


def cluster_named(name: str) -> Cluster:
    """A cluster file, or a preset when there is no such file. Raises TraceError."""
    path = Path(name)
    # a name without a folder or an ending is meant as a preset's
    by_name = not path.exists() and path.name == name and not path.suffix
    return preset(name) if by_name else read_cluster(path)
