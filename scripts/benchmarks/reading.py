"""A large cluster: read Slurm, decide, keep the cycle; in a process of its own for its memory."""

import json
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from rltuned.core.decide import Knobs, decide
from rltuned.daemon.apply import recorded_plan
from rltuned.domain.snapshot import NO_CONTEXT
from rltuned.journal.cycles import CycleObservation
from rltuned.journal.journal import Journal
from rltuned.policies.actor import load_actor
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.run import SlurmCli
from scripts.benchmarks import Figure, peak_mib
from tests.answers import MARKS, NOW, write_programs

PENDING: Final = 10_000
NODES: Final = 1_000
RUNNING: Final = 1_000
ROUNDS: Final = 5
TARGET_S: Final = 3.0
TARGET_MIB: Final = 500.0
TARGET_KEEP_S: Final = 0.15


def measure(bundle: Path) -> list[Figure]:
    """Processor seconds and peak memory of observe() and decide(), and of the journal in a cycle.

    Without what Slurm's commands take themselves.

    Raises:
        ModelError: the bundle cannot be used.
    """
    load_actor(bundle)  # a bad one is reported here, not by a child's traceback
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as child:
        found = json.loads(child.submit(_in_child, str(bundle)).result())
    size = f"{PENDING}_pending_{NODES}_nodes"
    ours = "own bound"
    return [
        Figure(f"observe_{size}", found["observe_s"], "s", TARGET_S, ours),
        Figure(f"observe_and_decide_{size}", found["both_s"], "s", TARGET_S, ours),
        Figure(f"journal_{size}", found["keep_s"], "s", TARGET_KEEP_S, ours),
        Figure(f"memory_{size}", found["peak_mib"], "MiB", TARGET_MIB, ours),
    ]


def _in_child(bundle: str) -> str:
    actor = load_actor(Path(bundle))
    observed, both, kept = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        programs = write_programs(Path(folder), pending=PENDING, running=RUNNING, nodes=NODES)
        backend = SlurmBackend(SlurmCli(bin_dir=programs), lambda: float(NOW), marks=MARKS)
        journal = Journal(Path(folder))
        for cycle in range(1, ROUNDS + 1):
            began = time.process_time()
            snapshot = backend.observe()
            observed.append(time.process_time() - began)
            decision = decide(snapshot, actor, Knobs())
            both.append(time.process_time() - began)
            # numbers that move, as age moves them: an unchanged cluster would be kept once
            moved = tuple(replace(j, priority=j.priority + cycle) for j in snapshot.pending)
            seen = replace(snapshot, pending=moved)
            began = time.process_time()
            journal.keep(
                CycleObservation(
                    cycle,
                    NOW,
                    "live",
                    seen,
                    NO_CONTEXT,
                    actor.name,
                    actor.digest,
                    recorded_plan(decision),
                )
            )
            kept.append(time.process_time() - began)
        journal.close()
    return json.dumps(
        {
            "observe_s": statistics.median(observed),
            "both_s": statistics.median(both),
            "keep_s": statistics.median(kept),
            "peak_mib": peak_mib(),
        }
    )
