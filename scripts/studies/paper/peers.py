"""Table 9: FIFO, SchedInspector, RLScheduler and RLTune on the same windows.

Each learner has the same windows to learn from, the same PPO with as many episodes an epoch, and an
epoch that is chosen on the same windows; each starts blank and makes the mean wait small. Theirs:
networks, features, rewards, and one rollout per window where RLTune has ten. FIFO is the base of
all three. `seconds` is processor time for ten batches of 256 jobs.
"""

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Final

import numpy as np
import torch

from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.network import TorchActor, policy_of
from rltuned.lab.train.ppo import Learner, update
from rltuned.lab.train.ranks import ALONE
from rltuned.lab.train.rollout import Episode, draw_window, join, play_policy
from rltuned.lab.train.settings import PpoSettings
from scripts.studies import data_of
from scripts.studies.paper import bases, common
from scripts.studies.paper.common import CLUSTERS, EVENTS, METRICS, SETTINGS, workload_of
from scripts.studies.paper.inspector import SchedInspector
from scripts.studies.paper.rlscheduler import RLScheduler
from scripts.studies.runner import Row, Study, head, known, row_of

RESULTS: Final = data_of("paper peers")
BASE: Final = "fcfs"
PEERS: Final = (BASE, "rltune", "schedinspector", "rlscheduler")
BATCHES: Final = 10
"""Whose seconds are told."""


Design = SchedInspector | RLScheduler
"""Blank networks; a play (draw: None = the best of each choice); the reward of both mean waits."""


@dataclass(frozen=True)
class Run:
    """One peer, trained and judged."""

    cluster: str
    peer: str
    seed: int
    epochs: int


def runs(asked: argparse.Namespace) -> Iterator[Run]:
    """Seed by seed; FIFO has none."""
    for seed, peer, cluster in product(range(1, asked.seeds + 1), PEERS, CLUSTERS):
        if peer != BASE or seed == 1:
            yield Run(cluster, peer, seed, 0 if peer == BASE else SETTINGS.epochs)


def design_of(peer: str, cluster: str) -> Design:
    """Blank."""
    if peer == "schedinspector":
        return SchedInspector()
    waits = [common.measured(window, "sjf")[0] for window in common.choosing(workload_of(cluster))]
    return RLScheduler(max(float(np.mean(waits)), 1.0))


def play(run: Run) -> Row:
    """Learn, and judge."""
    workload, began = workload_of(run.cluster), time.process_time()
    windows, curve = common.judging(workload), []
    if run.peer == BASE:
        starts = [play_policy(w, BASE, EVENTS) for w in windows]  # and once more, timed
        trained_s, began = 0.0, time.process_time()
        starts = [play_policy(w, BASE, EVENTS) for w in windows]
    elif run.peer == "rltune":
        made = bases.learned(bases.Run(run.cluster, BASE, run.seed))
        policy, curve, trained_s = policy_of(made.actor), made.curve, made.cpu_s
        play_policy(windows[0], policy, EVENTS)
        began = time.process_time()
        starts = [play_policy(w, policy, EVENTS) for w in windows]
    else:
        design = design_of(run.peer, run.cluster)
        actor, curve = learn(design, workload, replace(SETTINGS, seed=run.seed, epochs=run.epochs))
        trained_s, began = time.process_time() - began, time.process_time()
        starts = [design.play(w, actor)[0] for w in windows]
    seconds = (time.process_time() - began) * BATCHES / len(windows)
    found = np.array([common.figures(w, s) for w, s in zip(windows, starts, strict=True)])
    timed = {"seconds": round(seconds, 3), "curve": curve, "cpu_s": round(trained_s, 1)}
    return asdict(run) | common.kept(found) | timed


def learn(
    design: Design, workload: Scenario, settings: PpoSettings
) -> tuple[TorchActor, list[float]]:
    """The actor of the best epoch, by the mean log of its waits over FIFO's; the curve."""
    windows = common.choosing(workload)
    base = np.array([common.measured(window, BASE)[0] for window in windows])
    torch.manual_seed(settings.seed)
    learner = Learner(settings, networks=design.networks())
    curve: list[float] = []
    best = math.inf, learner.actor.state_dict()
    for epoch in range(settings.epochs + 1):
        starts = [design.play(window, learner.actor)[0] for window in windows]
        own = np.array([common.figures(w, s)[0] for w, s in zip(windows, starts, strict=True)])
        curve.append(round(float(np.log((own + 1.0) / (base + 1.0)).mean()), 4))
        if curve[-1] < best[0]:
            best = curve[-1], {k: v.clone() for k, v in learner.actor.state_dict().items()}
        if epoch < settings.epochs:
            _epoch(design, workload, learner, settings, epoch)
    learner.actor.load_state_dict(best[1])
    return learner.actor, curve


def _epoch(
    design: Design, workload: Scenario, learner: Learner, settings: PpoSettings, epoch: int
) -> None:
    """Windows and noise depend on seed and epoch alone."""
    learner.set_rate(settings.learning_rate * (1 - 0.9 * epoch / settings.epochs))
    episodes = []
    for number in range(settings.batches):
        draw = np.random.default_rng([settings.seed, epoch, number])
        window = draw_window(
            [workload], settings.window_jobs, settings.loads, draw, part=settings.part
        )
        episodes.append(episode(design, window, learner.actor, draw))
    batch = join([one for one in episodes if len(one.kept)])
    update(learner, batch, settings, epoch=epoch, ranks=ALONE)


def episode(
    design: Design, window: Scenario, actor: TorchActor, draw: np.random.Generator
) -> Episode:
    """One rollout, with its reward at the end."""
    start_s, choices = design.play(window, actor, draw)
    if choices is None:
        raise RuntimeError("choices that are drawn are kept")
    own = float((start_s - window.submit_s).mean())
    base = float((play_policy(window, BASE, EVENTS) - window.submit_s).mean())
    rewards = np.zeros(len(choices.now_s))
    rewards[-1:] = design.reward(own, base)
    return Episode(choices, rewards, own, base)


def table() -> None:
    """Means over windows, and the changes against FIFO with their intervals."""
    print(head("cluster", "peer", "seed", "epochs", "wait, h", *METRICS, "seconds",
               "training, CPU s"))  # fmt: skip
    stored = known(RESULTS, Run)
    for run, row in sorted(stored.items(), key=lambda x: (x[0].cluster, x[0].peer, x[0].seed)):
        base = stored[Run(run.cluster, BASE, 1, 0)]
        cells = [
            f"{np.mean(row[m]):.4g}" if row is base else common.cell(row, base[m], m)
            for m in METRICS
        ]
        hours, spent = float(np.mean(row["wait"])) / 3600, f"{row['cpu_s']:.0f}"
        print(row_of([*vars(run).values(), hours, *cells, row["seconds"], spent]))


STUDIES = {"paper peers": Study(runs, play, {"table": table}, sample=1)}
