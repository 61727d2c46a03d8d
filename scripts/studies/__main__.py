"""RLScheduler and SchedInspector (comparators.py): their trainings, and both beside the rules.

nice python -m scripts.studies train rlscheduler --out FOLDER [--trace T ...] [--cluster C ...]
nice python -m scripts.studies play [--trace T] [--cluster C] [NAME or FOLDER ...]
"""

import argparse
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from rltuned.sim.presets import cluster_named
from rltuned.train.batch import Contest, Episode, draw_window
from rltuned.train.course import LEARN_UNTIL, TEST_FROM, from_files, generated
from rltuned.train.episodes import play_rule
from rltuned.train.ground import Ground
from rltuned.train.learner import Learner, PpoSettings
from rltuned.train.network import PaperActor
from rltuned.train.ppo import Report, train
from rltuned.train.reward import Objective
from rltuned.train.run import Exam, held_out
from rltuned.train.session import Session
from rltuned.train.trial import total, windows_between
from scripts.studies.comparators import (
    BASES,
    DESIGNS,
    HIDDEN,
    TRIES,
    Design,
    RLScheduler,
    SchedInspector,
    cost,
    read,
)


def episode(
    design: Design, window: Ground, actor: PaperActor, draw: np.random.Generator
) -> Episode:
    """One rollout, with its reward at the end."""
    start_s, kept = design.play(window, actor, draw)
    own = cost(design.objective, window, start_s)
    base = cost(design.objective, window, play_rule(window, design.base))
    rewards = np.zeros(len(kept.now_s))
    rewards[-1:] = design.reward(own, base)
    return Episode(kept, rewards, own, base)


def collector(
    design: Design, grounds: Sequence[Ground], settings: PpoSettings, actor: PaperActor
) -> Callable[[Learner, int], list[Episode]]:
    """The episodes of an epoch; windows and noise depend on seed and epoch alone."""

    def collect(_learner: Learner, epoch: int) -> list[Episode]:
        found = []
        for number in range(settings.batches):
            draw = np.random.default_rng([settings.seed, epoch, number])
            for _ in range(TRIES):
                window = draw_window(grounds, settings.contest, draw)
                if design.admits(window, epoch):
                    break
            found.append(episode(design, window, actor, draw))
        return found

    return collect


def learn(
    design: RLScheduler | SchedInspector,
    grounds: Sequence[Ground],
    exam: Sequence[Ground],
    settings: PpoSettings,
    session: Session,
) -> PaperActor:
    """The best epoch's actor; goes on where the session's folder stopped."""
    if isinstance(design, RLScheduler):
        design.survey(lambda draw: draw_window(grounds, settings.contest, draw), settings.seed)
    torch.manual_seed(settings.seed)
    actor, critic = design.networks()
    learner = Learner(settings, "cpu", actor, critic)
    saf = [total(design.objective, w, play_rule(w, "saf")) for w in exam]

    def ratio(_: nn.Module) -> float:
        own = [total(design.objective, w, design.play(w, actor)[0]) for w in exam]
        return float(np.mean(np.log(np.array(own) / saf)))

    def keep(report: Report) -> None:
        session.keep(learner, report)
        print(
            f"epoch {report.epoch}: held out {math.expm1(report.validation):+.1%} vs saf",
            flush=True,
        )

    at = session.restore(learner)
    train(
        learner, grounds, settings, ratio,
        first_epoch=at.epoch if at else 0, best=at.best if at else math.inf,
        on_epoch=keep, collector=collector(design, grounds, settings, actor),
    )  # fmt: skip
    session.load_best(learner)
    return actor


def _train(asked: argparse.Namespace) -> None:
    clusters = [cluster_named(name) for name in asked.cluster or ["philly-192"]]
    sources = from_files(asked.trace, clusters) if asked.trace else generated(asked.seed)
    design = DESIGNS[asked.design](objective=asked.objective)
    if asked.design == "schedinspector":
        design.base = asked.base
    rate = asked.learning_rate or (3e-3 if asked.design == "rlscheduler" else 1e-3)
    settings = PpoSettings(
        contest=Contest(
            base=design.base, objective=asked.objective, form="gap",
            window_jobs=asked.window_jobs, part=LEARN_UNTIL,
        ),
        network="context", hidden=HIDDEN, epochs=asked.epochs, batches=asked.batches,
        learning_rate=rate, entropy=0.0, seed=asked.seed,
    )  # fmt: skip
    exam = held_out(sources, Exam(asked.exam_windows, asked.exam_jobs))
    session = Session(asked.out.with_name(f"{asked.out.name}.training"), settings, resume=True)
    actor = learn(design, [s.ground for s in sources], exam, settings, session)
    asked.out.mkdir(parents=True)
    base = design.base if asked.design == "schedinspector" else None
    card = {"name": asked.design, "architecture": {"base": base}, "settings": settings.described()}
    save_file(actor.state_dict(), asked.out / "actor.safetensors")
    (asked.out / "card.json").write_text(json.dumps(card, indent=1) + "\n")


def _play(asked: argparse.Namespace) -> None:
    """Mean wait, excess slowdown and JCT of every policy over windows of what was not learned."""
    clusters = [cluster_named(name) for name in asked.cluster or ["philly-192"]]
    sources = from_files(asked.trace, clusters) if asked.trace else generated(asked.seed)
    models = {name: read(name) for name in asked.names or DESIGNS}
    print("| trace | policy | wait, s | slowdown - 1 | JCT, s |\n|---|---|---|---|---|")
    for source in sources:
        part, size = (TEST_FROM, 1.0), asked.window_jobs
        found = windows_between(
            source.ground, part, count=asked.windows, size=size, loads=asked.load
        )
        starts = {rule: [play_rule(w, rule) for w in found] for rule in BASES}
        starts |= {n: [d.play(w, actor)[0] for w in found] for n, (d, actor) in models.items()}
        metrics: tuple[Objective, ...] = ("wait", "bsld", "jct")
        for name, times in starts.items():
            means = [
                np.mean([total(m, w, s) for w, s in zip(found, times, strict=True)])
                for m in metrics
            ]
            print(f"| {source.ground.name} | {name} | {' | '.join(f'{m:,.1f}' for m in means)} |")


def _parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(prog="python -m scripts.studies")
    commands = whole.add_subparsers(required=True)
    learning = commands.add_parser("train", help="learn by one of the two designs")
    playing = commands.add_parser("play", help="both beside the rules")
    for parser, run in ((learning, _train), (playing, _play)):
        parser.set_defaults(run=run)
        parser.add_argument("--trace", type=Path, action="append")
        parser.add_argument("--cluster", action="append")
        parser.add_argument("--seed", type=int, default=1)
    learning.add_argument("design", choices=list(DESIGNS))
    learning.add_argument("--out", type=Path, required=True)
    learning.add_argument("--base", choices=BASES, default="saf", help="the rule that is inspected")
    learning.add_argument("--objective", choices=["wait", "bsld", "jct"], default="wait")
    learning.add_argument("--epochs", type=int, default=100)
    learning.add_argument("--batches", type=int, default=100)
    learning.add_argument("--window-jobs", type=int, default=256)
    learning.add_argument("--learning-rate", type=float)
    learning.add_argument("--exam-windows", type=int, default=12)
    learning.add_argument("--exam-jobs", type=int, default=1_024)
    playing.add_argument("names", nargs="*", help="folders; none: those of bundles/")
    playing.add_argument("--windows", type=int, default=12)
    playing.add_argument("--window-jobs", type=int, default=1_024)
    playing.add_argument("--load", type=float, nargs="+", default=[0.7, 0.9, 1.1])
    return whole


def main(given: Sequence[str] | None = None) -> None:
    """The command line."""
    asked = _parser().parse_args(given)
    asked.run(asked)


if __name__ == "__main__":
    main()
