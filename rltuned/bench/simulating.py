"""The simulator: classic rules, a policy at every event, and a month of a whole cluster."""

import time
from pathlib import Path
from typing import Final

from rltuned.bench import Figure
from rltuned.policies.actor import load_actor
from rltuned.sim.presets import preset
from rltuned.sim.protocol import EVENT_KNOBS, Protocol, play_decided
from rltuned.sim.reshape import scale
from rltuned.sim.run import compare, whole, windows
from rltuned.sim.synth import synthesize

SEED: Final = 1
LOAD: Final = 0.9
WINDOWS: Final = 10
SOURCE: Final = "the authors' base pipeline, 10 x 256 jobs, same kind of machine"
AUTHORS_JOBS_PER_S: Final = {"fcfs": 3_203.0, "sjf": 3_583.0}
MONTH_JOBS: Final = 58_854
MONTH_TARGET_S: Final = 60.0
DECISIONS_PER_S: Final = 5_000.0


def measure(bundle: Path) -> list[Figure]:
    """Jobs per second of rules, decisions per second of the actor, seconds of a month.

    Raises:
        ModelError: the bundle cannot be used.
    """
    return [*_rules(), _actor(bundle), _month()]


def _rules() -> list[Figure]:
    cluster = preset("philly-192")
    trace = scale(synthesize("philly-like", jobs=20_480, seed=SEED), LOAD, cluster.gpus)
    figures = []
    for size in (256, 1_024):
        chosen = windows(trace.jobs, count=WINDOWS, size=size, seed=SEED, warmup=0)
        for policy, authors in AUTHORS_JOBS_PER_S.items():
            compare(chosen[:1], cluster, (policy,), Protocol())  # compiled once, not counted
            began = time.perf_counter()
            compare(chosen, cluster, (policy,), Protocol())
            rate = WINDOWS * size / (time.perf_counter() - began)
            name = f"simulate_{policy}_{WINDOWS}x{size}"
            figures.append(Figure(name, rate, "jobs/s", authors, SOURCE, "higher"))
    return figures


def _actor(bundle: Path) -> Figure:
    cluster = preset("philly-192")
    trace = scale(synthesize("philly-like", jobs=2_048, seed=SEED), LOAD, cluster.gpus)
    actor = load_actor(bundle)
    began = time.perf_counter()
    outcome = play_decided(cluster, trace.jobs[:1_024], actor, Protocol(knobs=EVENT_KNOBS))
    rate = outcome.decisions / (time.perf_counter() - began)
    return Figure("simulate_actor_every_event", rate, "decisions/s", DECISIONS_PER_S,
                  "our own bound", "higher")  # fmt: skip


def _month() -> Figure:
    cluster = preset("philly-2490")
    trace = scale(synthesize("philly-like", jobs=MONTH_JOBS, seed=SEED), LOAD, cluster.gpus)
    one = whole(trace.jobs, first=None, warmup=0)
    began = time.perf_counter()
    compare(one, cluster, ("fcfs",), Protocol())
    elapsed_s = time.perf_counter() - began
    return Figure("simulate_month_2490_gpus", elapsed_s, "s", MONTH_TARGET_S, "our own bound")
