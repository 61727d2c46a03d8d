"""The cases of the bench: what each measures, as figures beside the paper's or a bound of ours.

Processor seconds are medians on the machine at hand, so that its neighbours do not count.
"""

import math
import os
import resource
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, Literal, NamedTuple, TypeVar, get_args

from prometheus_client import CollectorRegistry

from rltuned.core.decide import Knobs, decide
from rltuned.core.features import encode
from rltuned.core.ladder import Rung
from rltuned.core.memory import RunTimeMemory
from rltuned.daemon.logger import make_log
from rltuned.daemon.loop import Loop, uncollected
from rltuned.daemon.metrics import Metrics
from rltuned.daemon.observers import Publisher
from rltuned.daemon.report import CycleReport
from rltuned.daemon.systemd import Notifier, SignalFlags
from rltuned.daemon.wiring import build_rig
from rltuned.domain.plan import Result
from rltuned.domain.snapshot import Context, Snapshot
from rltuned.errors import BackendError
from rltuned.journal.journal import Journal
from rltuned.lab.replay.protocol import DAEMON, Protocol, by_default
from rltuned.lab.replay.readers import finish, read_philly_csv
from rltuned.lab.replay.run import play_all, simulate, windows
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.replay.trace_file import scale
from rltuned.policies.actor import Actor, load_actor
from rltuned.policies.predictor import load_predictor
from rltuned.settings import Flag, load
from rltuned.sim.cluster import preset
from rltuned.sim.synth import synthesize
from rltuned.sim.world import BackfillRule, Rules
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.run import SlurmCli
from rltuned.solver import Cbc
from scripts.benchmarks.worlds import JOBS, NODES, SEED, Layout, crowd, queue_of
from tests.answers import MARKS, NOW, grow_older, write_programs

T = TypeVar("T")
PAPER, OURS = "RLTune, SoCC 2025", "own bound"
PREDICTOR: Final = Path("models/run-times")
BURST: Final = 10_000
BURST_S: Final = {128: 7.8, 256: 9.8, 512: 14.3, 1_024: 22.8}
"""The paper's decision latency by queue, under "up to 10,000 concurrent job arrivals"."""
TOP_K: Final = 16
AUTHORS_JOBS_PER_S: Final = {"fcfs": 3_203.0, "sjf": 3_583.0}
MONTH_JOBS, MONTH_LOAD = 58_854, 0.73
"""What October 2017 offered: 1,823 of 2,490 GPUs."""
LEAST, MOST, MOST_IN_CYCLES, STEP, SMALL = 1_000, 64_000, 16_000, 4, 16_000
BACKFILLS: Final[tuple[BackfillRule, ...]] = ("easy", "none")
GOAL: Final = 1.15  # the power of the jobs with which a play at every event may grow
SIZES: Final = {(10_000, 1_000): 3.0, (100_000, 1_000): 30.0, (100_000, 10_000): 30.0}
"""Pending jobs and nodes of a whole cycle, and its bound in seconds."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of `make bench`: a value in a unit beside a reference from a source."""

    name: str
    value: float
    unit: str
    reference: float
    source: str
    better: Literal["lower", "higher"] = "lower"

    @property
    def ratio(self) -> float:
        return self.value / self.reference

    def document(self) -> dict[str, str | float]:
        """Its fields and the ratio, for JSON."""
        return asdict(self) | {"ratio": self.ratio}


class Asked(NamedTuple):
    """model: the bundle. philly: the real October (merged CSV); None = a generated month."""

    model: Path = Path("models/rltune")
    philly: Path | None = None


def peak_mib() -> float:
    """Of this program alone, unlike getrusage's."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1_024


def processor_s() -> float:
    """Of this process and of its ended children: the solver, Slurm's commands."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def spent_s(work: Callable[[], object]) -> float:
    """Processor seconds of a piece of work, without the garbage collector, as in a cycle."""
    with uncollected():
        began = processor_s()
        work()
        return processor_s() - began


def median_s(work: Callable[[], object], rounds: int) -> float:
    """Three rounds before it do not count."""
    return median([spent_s(work) for _ in range(rounds + 3)][3:])


def in_child(work: Callable[..., T], *args: object) -> T:
    """In a process of its own, for its memory."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as child:
        return child.submit(work, *args).result()


def deciding(asked: Asked) -> list[Figure]:
    """Run times, state matrix and actor; and a whole decision."""
    actor, figures = load_actor(asked.model), []
    goal = "goal of issue 21"
    for jobs, rounds, most, source in ((JOBS, 200, 0.7, PAPER), (BURST, 20, 25.0, goal)):
        spent_ms = 1e3 * median_s(scorer(actor, queue_of(jobs)), rounds)
        name = f"state_actor_predictor_{jobs}_jobs_{NODES}_nodes"
        figures.append(Figure(name, spent_ms, "ms", most, source))
    whole_ms = 1e3 * median_s(partial(decide, queue_of(JOBS), actor, Knobs()), 50)
    source = f"{PAPER}, decision at queue 256"
    return [*figures, Figure(f"decide_{JOBS}_jobs_{NODES}_nodes", whole_ms, "ms", 9_800.0, source)]


def scorer(actor: Actor, queue: Snapshot) -> Callable[[], object]:
    """Run times predicted, state matrix and delays; no job has ended since the look before."""
    memory = RunTimeMemory(load_predictor(PREDICTOR).logits)
    memory.submit(queue.pending)

    def score() -> object:
        context = Context(run_times=memory.predicted(queue.pending))
        return actor.wish(encode(queue.pending, queue, context))

    return score


def bursting(asked: Asked) -> list[Figure]:
    """The first so many of a burst of 10,000 jobs, and all of it; CBC places the first 16."""
    actor, knobs, found = load_actor(asked.model), Knobs(top_k=TOP_K, placement="milp"), []
    source = f"{PAPER}, section 5.7: decision latency, wall"
    # the paper has no figure for the whole burst: its smallest queue stands in
    for size, paper_s in {**BURST_S, BURST: BURST_S[128]}.items():
        name = f"decide_burst_{'all' if size == BURST else 'queue'}_{size}"
        work = partial(decide, queue_of(size), actor, knobs, Cbc())
        cpu = [spent_s(work) for _ in range(16)][1:]
        found.append(Figure(name, median(cpu), "s", paper_s, source))
        found.append(Figure(f"{name}_slowest", max(cpu), "s", paper_s, source))
    return found


class FixedClock:
    """The made-up cluster's time, one interval per cycle; the stopwatch is the real one."""

    cycle = 0

    def now(self) -> float:
        return NOW + 60.0 * self.cycle

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> bool:
        raise AssertionError(f"a benchmark does not wait {seconds} s")


class _Keeper(Publisher):
    """Publishes, and keeps the last report."""

    last: CycleReport

    def cycle(self, report: CycleReport) -> None:
        self.last = report
        super().cycle(report)


def cycling(_: Asked) -> list[Figure]:
    """Whole cycles of the daemon that writes, by size: look, decide, journal, write, look back."""
    figures = []
    for (pending, nodes), bound_s in SIZES.items():
        rounds = 5 if pending <= BURST else 3
        wall_s, cpu_s, peak, writes = in_child(cycles, pending, nodes, rounds)
        name, source = f"cycle_{pending}_pending_{nodes}_nodes", f"{OURS}; {writes:g} writes"
        figures += [
            Figure(name, wall_s, "s", bound_s, source),
            Figure(f"{name}_processor", cpu_s, "s", bound_s, source),
            Figure(f"{name}_memory", peak, "MiB", 500.0 if pending <= BURST else 2_048.0, source),
        ]
    return figures


def cycles(pending: int, nodes: int, rounds: int) -> tuple[float, float, float, float]:
    """Medians of wall and processor seconds of so many cycles after one that does not count, the
    peak memory in MiB, and the median of the writes.

    The daemon's own loop on the stage `full` with the shipped settings, its journal on the disk,
    against the answers of tests/answers.py. Between two cycles the numbers grow older, and what was
    written stands there. Raises BackendError: a cycle came to no result.
    """
    running, clock, rows = min(1_000, nodes), FixedClock(), []
    with TemporaryDirectory() as name, open(os.devnull, "w") as nowhere:  # noqa: PTH123 - a device
        folder = Path(name)
        write_programs(folder, pending=pending, running=running, nodes=nodes)
        backend = SlurmBackend(SlurmCli(bin_dir=folder), clock.now, marks=MARKS)
        asked = {"policy.name": "model:rltune", "ladder.stage": Rung.FULL.value,
                 "daemon.state_dir": name, "daemon.pause_file": f"{name}/PAUSE"}  # fmt: skip
        loaded = load(None, tuple(Flag(key, value, "bench") for key, value in asked.items()))
        with closing(Journal(folder)) as journal:
            log, rig = make_log("json", "info", nowhere), build_rig(loaded, backend)
            ear = _Keeper(Metrics(CollectorRegistry()), log, Notifier(None), clock)
            ear.loaded(rig)
            loop = Loop(rig, clock, journal, ear, orders=SignalFlags(), reload=lambda: rig)
            for _ in range(rounds + 1):
                wall, cpu = time.perf_counter(), time.process_time()
                loop.run(cycles=1)
                spent = time.perf_counter() - wall, time.process_time() - cpu
                if not ear.last.ok or ear.last.journal_error:
                    raise BackendError(f"{ear.last.summary()} {ear.last.failure}")
                rows.append((*spent, float(ear.last.results().get(Result.APPLIED, 0))))
                clock.cycle += 1
                grow_older(folder, pending=pending, running=running, age=7 * clock.cycle)
    wall_s, cpu_s, writes = (median(column) for column in zip(*rows[1:], strict=True))
    return wall_s, cpu_s, peak_mib(), writes


def simulating(asked: Asked) -> list[Figure]:
    """Jobs per second of rules, seconds of a month."""
    cluster, figures = preset("philly-192"), []
    made = synthesize("philly-like", jobs=20_480, seed=SEED)
    crowded = scale(made, 0.9, cluster.gpus)
    for size in (256, 1_024):
        cut = partial(windows, crowded.jobs, cluster, count=10, size=size, seed=SEED)
        for policy, authors in AUTHORS_JOBS_PER_S.items():
            simulate(cut()[0], policy, Protocol())  # compiled once, not counted
            cpu_s = min(spent_s(partial(_played, cut, policy)) for _ in range(5))
            source = "the authors' base pipeline on 10 x 256 jobs, same kind of machine"
            name = f"simulate_{policy}_easy_10x{size}"
            figures.append(Figure(name, 10 * size / cpu_s, "jobs/s", authors, source, "higher"))
    cpu_s, peak = in_child(month, asked.philly)
    kind = f"{OURS}; {'the real' if asked.philly else 'a generated'} trace"
    return [
        *figures,
        Figure("simulate_month_2490_gpus", cpu_s, "s", 60.0, kind),
        Figure("simulate_month_2490_gpus_memory", peak, "MiB", 1_024.0, kind),
    ]


def _played(cut: Callable[[], Sequence[Scenario]], policy: str) -> None:
    play_all(cut(), (policy,), Protocol())


def month(philly: Path | None) -> tuple[float, float]:
    """Processor seconds and peak memory of a month of a whole cluster. Raises TraceError."""
    cluster = preset("philly-2490")
    if philly is None:
        made = synthesize("philly-like", jobs=MONTH_JOBS, seed=SEED)
        trace = scale(made, MONTH_LOAD, cluster.gpus)
    else:
        trace = finish(read_philly_csv(philly), philly, limits="weak", seed=SEED)
    simulate(Scenario.of(cluster, trace.jobs[:10]), "fcfs", Protocol())
    cpu_s = spent_s(lambda: simulate(Scenario.of(cluster, trace.jobs), "fcfs", Protocol()))
    return cpu_s, peak_mib()


Curve = tuple[str, list[tuple[int, float]]]
"""What was played, and (jobs, processor seconds) of each size."""


def growing(_: Asked) -> list[Figure]:
    """With which power of the jobs that wait a play grows, and jobs per second at the most."""
    sizes, found = _sizes(MOST_IN_CYCLES), curves()
    for order in ("fcfs", "delay", "predicted", "network"):
        found.append((f"cycles_{order}", [(n, cycles_s(n, order)) for n in sizes]))
    figures = []
    for name, points in found:
        jobs, seconds = points[-1]
        source = f"goal of issue 21; {points[0][0]:,} to {jobs:,} jobs, nearly all of which wait"
        figures.append(Figure(f"growth_{name}", exponent(points), "power", GOAL, source))
        rate = jobs / seconds
        figures.append(Figure(f"rate_{name}", rate, "jobs/s", 20_000.0, source, "higher"))
    return figures


def curves(most: int = MOST, rules: Sequence[str] = ("fcfs", "sjf")) -> list[Curve]:
    """Every layout of partitions under every backfill and the pure order of each rule."""
    return [
        (f"{layout}_{backfill}_{rule}", [(n, play_s(n, layout, backfill, rule)) for n in sizes])
        for sizes in [_sizes(most)]
        for layout in get_args(Layout)
        for backfill in BACKFILLS
        for rule in rules
    ]


def _sizes(most: int) -> list[int]:
    return [LEAST * STEP**at for at in range(int(math.log(most / LEAST, STEP) + 1e-9) + 1)]


def exponent(points: Sequence[tuple[int, float]]) -> float:
    """The power of the jobs with which the seconds grow, from the first size to the last."""
    (few, short_s), (many, long_s) = points[0], points[-1]
    return math.log(long_s / short_s) / math.log(many / few)


def play_s(jobs: int, layout: Layout, backfill: BackfillRule, rule: str) -> float:
    """Seconds of one play at every event after one that does not count; of small ones the least of
    3. Without bounds: within them SJF has the backlog weighed again at every event.
    """
    cluster, made = crowd(jobs, layout)
    rules, pure = Rules(backfill=backfill), Protocol(bounded=False)
    simulate(Scenario.of(cluster, made[:LEAST], rules), rule, pure)

    def play() -> None:
        simulate(Scenario.of(cluster, made, rules), rule, pure)

    return min(spent_s(play) for _ in range(3 if jobs <= SMALL else 1))


def cycles_s(jobs: int, order: str) -> float:
    """Seconds of one play in the daemon's cycles: by limits, with the shipped predictor
    (`predicted`), or with the shipped network.
    """
    cluster, made = crowd(jobs, "one")
    protocol = by_default(DAEMON) if order in {"predicted", "network"} else DAEMON
    policy = {"predicted": "delay", "network": "model:rltune"}.get(order, order)
    simulate(Scenario.of(cluster, made[: LEAST // STEP]), policy, protocol)
    return spent_s(lambda: simulate(Scenario.of(cluster, made), policy, protocol))


CASES: Final[dict[str, tuple[Callable[[Asked], list[Figure]], str]]] = {
    "deciding": (deciding, "run times, state matrix and delays; a whole decision"),
    "bursting": (bursting, "decisions in a burst of 10,000 jobs, with CBC"),
    "simulating": (simulating, "the simulator: rules, a month"),
    "growing": (growing, "how a play grows with the jobs that wait"),
    "cycling": (cycling, "whole cycles of the daemon; only when it is named"),
}
"""Name, function, and what is measured."""
