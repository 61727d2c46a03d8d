"""Compile the simulator ahead of its first use: `python -m rltuned.lab.cli.compile`.

`make setup` and the package rltuned-train run it when they install. No package can bring the
machine code: it fits one type of processor.
"""

from multiprocessing import get_context
from typing import Final

from rltuned.lab.replay import play
from rltuned.lab.replay.prepared import net_of
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.predictor import foreseen
from rltuned.lab.train.rollout import Recorder, play_sampled
from rltuned.policies.actor import load_actor
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import MODELS_DIR, find_bundle, shipped_predictor
from rltuned.sim.cluster import preset
from rltuned.sim.synth import synthesize

_JOBS: Final = 32


def compile_all() -> None:
    """The simulator in a process beside; here the replay of a history, and what training plays.

    Raises RuntimeError: the other process failed, and has said why.
    """
    beside = get_context("spawn").Process(target=play.load)
    beside.start()
    _train()
    beside.join()
    if beside.exitcode:
        raise RuntimeError(f"compiling the simulator ended with {beside.exitcode}")


def _train() -> None:
    jobs = synthesize("testbed-1024", jobs=_JOBS, seed=0).jobs
    found = foreseen(load_predictor(shipped_predictor()), jobs)
    scenario = Scenario.of(preset("testbed"), jobs).foreseeing(found)
    network = net_of(load_actor(find_bundle(MODELS_DIR, "rltune")).network)
    play_sampled(scenario, network, 0, Recorder())


if __name__ == "__main__":
    compile_all()
