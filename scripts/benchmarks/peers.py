"""Another simulator beside rltuned's on like jobs, in one call: AccaSim 1.1.3, FCFS with EASY.

    python -m scripts.benchmarks peers

AccaSim is installed from the package index into build/accasim. Both get the same jobs in whole
seconds, each on one node of one resource, and place first fit. Processor seconds of the simulation
alone (AccaSim reads its jobs meanwhile). They are not one schedule: see docs/performance.md.
"""

import json
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from venv import create

from rltuned.domain.cluster import Partition, Resources
from rltuned.domain.units import GpuType
from rltuned.errors import BackendError
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.run import simulate
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.replay.trace_file import scale
from rltuned.sim.cluster import Cluster, idle_node
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Rules
from scripts.benchmarks import Figure

HOME: Final = Path("build/accasim")
PYTHON: Final = HOME / "bin" / "python"
PACKAGE: Final = "accasim==1.1.3"
NODES: Final = 24
GPUS: Final = 8
JOBS: Final = 3_000
LOADS: Final = (0.9, 1.1)
SEED: Final = 1
GOAL: Final = 20.0
CHILD: Final = """
import collections, collections.abc, json, sys, time
collections.Mapping = collections.abc.Mapping  # gone since Python 3.10, and AccaSim asks for it
from accasim.base.allocator_class import FirstFit
from accasim.base.scheduler_class import EASYBackfilling
from accasim.base.simulator_class import Simulator
from accasim.utils.reader_class import Tweaker

class OneNode(Tweaker):
    def tweak_function(self, job):
        cores = job["total_processors"]
        more = {"core": cores, "requested_nodes": 1, "requested_resources": {"core": cores}}
        return job | more | {"queue": job.pop("queue_number")}

swf, system, folder = sys.argv[1:]
world = Simulator(
    swf, system, EASYBackfilling(FirstFit()), tweak_function=OneNode(), scheduling_output=False,
    statistics_output=False, show_statistics=False, RESULTS_FOLDER_PATH=folder, LOG_LEVEL="ERROR",
)
began = time.process_time()
world.start_simulation()
waits = world.mapper.wtimes
print(json.dumps([time.process_time() - began, len(waits), sum(waits) / len(waits)]))
"""


def measure() -> list[Figure]:
    """How many times as fast as AccaSim, with the share of jobs that wait; and both mean waits.

    Raises:
        BackendError: AccaSim cannot be installed or fails.
    """
    if not PYTHON.exists():
        create(HOME, with_pip=True)
        _run("-m", "pip", "install", "--quiet", PACKAGE)
    return [figure for load in LOADS for figure in _at(load)]


def _at(load: float) -> list[Figure]:
    each, names = Resources(GPUS, GPUS, GPUS), [f"n{at:02d}" for at in range(NODES)]
    nodes = tuple(idle_node(name, GpuType("g"), each, ("gpu",)) for name in names)
    cluster = Cluster("peers", nodes, (Partition("gpu", default=True),))
    trace = scale(synthesize("philly-like", jobs=JOBS, seed=SEED), load, cluster.gpus)
    jobs = tuple(_whole(number, job) for number, job in enumerate(trace.jobs, start=1))
    rules = Rules(placement="first")
    simulate(
        Scenario.of(cluster, jobs[:10], rules), "fcfs", Protocol()
    )  # compiled once, not counted
    began = time.process_time()
    result = simulate(Scenario.of(cluster, jobs, rules), "fcfs", Protocol())
    ours_s = time.process_time() - began
    theirs_s, ended, wait_s = _accasim(jobs)
    if ended != JOBS:
        raise BackendError(f"AccaSim ended {ended} of {JOBS} jobs")
    name, waiting = f"easy_load_{load:g}", float((result.wait_s > 0).mean())
    source = f"AccaSim, same call; goal {GOAL:g} times; {waiting:.0%} of {JOBS:,} jobs wait"
    rate = Figure(name, JOBS / ours_s, "jobs/s", JOBS / theirs_s, source, "higher")
    return [rate, Figure(f"{name}_mean_wait", float(result.wait_s.mean()), "s", wait_s, source)]


def _whole(number: int, job: TraceJob) -> TraceJob:
    run_s, gpus = float(max(1, round(job.duration_s))), min(GPUS, max(1, job.gpus))
    limit_s = max(run_s, float(round(job.time_limit_s or 0.0)))
    submit_s = float(round(job.submit_s))
    return TraceJob(str(number), submit_s, run_s, gpus, limit_s, cpus=gpus, mem_mib=gpus)


def _accasim(jobs: tuple[TraceJob, ...]) -> tuple[float, int, float]:
    """Processor seconds, jobs that ended, mean wait."""
    rows = [
        f"{j.job_id} {j.submit_s:.0f} -1 {j.duration_s:.0f} {j.gpus} -1 -1 {j.gpus} "
        f"{j.time_limit_s:.0f} -1 1 1 1 1 1 1 -1 -1\n"
        for j in jobs
    ]
    system = {"groups": {"g": {"core": GPUS}}, "resources": {"g": NODES}}
    with TemporaryDirectory() as folder:
        swf, about = Path(folder, "jobs.swf"), Path(folder, "system.json")
        swf.write_text("".join(rows), encoding="utf-8")
        about.write_text(json.dumps(system), encoding="utf-8")
        out = _run("-c", CHILD, str(swf), str(about), folder)
    seconds, ended, wait_s = json.loads(out.splitlines()[-1])
    return seconds, ended, wait_s


def _run(*arguments: str) -> str:
    done = subprocess.run([PYTHON, *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        raise BackendError(f"AccaSim: {done.stderr[-300:]}; the other parts can be named")
    return done.stdout
