"""One training from its settings to its bundle: what `rltuned train ppo` does."""

import platform
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import numpy as np
import torch

from rltuned.core.observation import MAX_QUEUE_SIZE
from rltuned.errors import ModelError, TraceError
from rltuned.lab.replay.prepared import net_of
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.choices import read_by
from rltuned.lab.train.course import LEARN_UNTIL, TEST_FROM, DatasetSource
from rltuned.lab.train.episodes import Recorder, play_sampled
from rltuned.lab.train.export import export_bundle
from rltuned.lab.train.learner import Learner, PpoSettings
from rltuned.lab.train.network import TorchActor, module_of, network_of
from rltuned.lab.train.ppo import Report, train
from rltuned.lab.train.ranges import ranges_played
from rltuned.lab.train.ranks import ALONE, Ranks
from rltuned.lab.train.session import Session, Standing
from rltuned.lab.train.trial import RULE, Trial, changes, windows_between
from rltuned.lab.train.verdict import allow, judged, unseen_windows
from rltuned.policies.actor import load_actor
from rltuned.policies.card import BUNDLE_NAME, Card, Training
from rltuned.policies.network import INPUTS

PARITY_WINDOWS = 4
S = TypeVar("S")
"""Settings of a kind of training: they have a seed, and describe themselves."""
RULES = (RULE, "saf", "fcfs", "multifactor")
"""Played before the training begins; the first one chooses the best epoch."""


WINDOWS_SAID = (
    f"Windows: the first {LEARN_UNTIL:.0%} of each trace to learn from, up to {TEST_FROM:.0%} to "
    "choose the epoch by; these results are of the latter."
)


JUDGES_SAID = (
    "Random worlds that were never learned from had a window each among those that chose the epoch."
)


@dataclass(frozen=True, slots=True)
class Validation:
    """Held-out windows by which epochs are compared."""

    windows_per_trace: int = 12
    window_jobs: int = 1_024
    loads: tuple[float, ...] = (0.7, 0.9, 1.1)


@dataclass(frozen=True, slots=True)
class Job(Generic[S]):
    """One training, by PPO or by evolution. start: None = the rule `delay`. judges: scenarios never
    learned from; a window of each helps to choose the epoch; unseen: one of each helps to find the
    verdict. command: for the card. force: a worse actor is exported too. device: of PPO; workers:
    threads that play, of evolution.
    """

    settings: S
    sources: tuple[DatasetSource, ...]
    folder: Path
    out: Path
    command: str
    validation: Validation = Validation()
    start: Path | None = None
    resume: bool = False
    device: str = "cpu"
    workers: int = 1
    judges: tuple[DatasetSource, ...] = ()
    unseen: tuple[DatasetSource, ...] = ()
    force: bool = False


FEWEST_JOBS: Final = 10
"""Of a window that an actor is judged by."""


def fitting(validation: Validation, traces: Sequence[DatasetSource]) -> Validation:
    """The same with shorter windows, where the longest trace has no room for such ones between
    LEARN_UNTIL and TEST_FROM; as it is where none has room for FEWEST_JOBS.
    """
    longest = max(len(s.scenario) for s in traces)
    room = int(longest * TEST_FROM) - int(longest * LEARN_UNTIL)
    if room < FEWEST_JOBS:
        return validation
    return replace(validation, window_jobs=min(validation.window_jobs, room))


def held_out(
    sources: Sequence[DatasetSource], validation: Validation, judges: Sequence[DatasetSource] = ()
) -> list[Scenario]:
    """The validation: each source's later part, a window of each judge. Raises TraceError: too
    short.
    """
    part, size, loads = (LEARN_UNTIL, TEST_FROM), validation.window_jobs, validation.loads
    found = [
        window
        for source in sources
        for window in windows_between(
            source.scenario, part, count=validation.windows_per_trace, size=size, loads=loads
        )
    ]
    for number, judge in enumerate(judges):
        load = loads[number % len(loads)]
        found += windows_between(
            judge.scenario, (LEARN_UNTIL, 1.0), count=1, size=size, loads=[load]
        )
    if not found:
        longest = max(len(s.scenario) for s in sources)
        raise TraceError(
            f"no trace has {validation.window_jobs} jobs between {part[0]:.0%} and {part[1]:.0%} "
            f"of its length to be judged by; the longest has {longest} in all"
        )
    return found


def perform(
    job: Job[PpoSettings],
    *,
    ranks: Ranks = ALONE,
    on_epoch: Callable[[Report], None] = lambda _report: None,
) -> Card | None:
    """Train, keep checkpoints and curves, export the best epoch; None on ranks beyond 0. Raises
    ModelError: says what can be resumed; TraceError: the traces are too short.
    """
    settings = job.settings
    check_name(job.out, ranks)
    check(job)
    session = Session(job.folder, settings, resume=job.resume) if ranks.rank == 0 else None
    trial = Trial.of(
        held_out(job.sources, job.validation, job.judges), settings.contest.objective, RULES
    )
    learner = Learner(settings, job.device)
    standing = _begin(learner, job)
    ranks.align([learner.actor, learner.critic])

    def after(report: Report) -> None:
        if session is not None:
            session.keep(learner, report)
        on_epoch(report)

    try:
        train(
            learner,
            [s.scenario for s in job.sources for _ in range(s.share)],
            settings,
            lambda actor: trial.ratio(actor, RULES[0]),
            first_epoch=standing.epoch,
            best=standing.best,
            since_best=standing.since_best,
            ranks=ranks,
            on_epoch=after,
        )
    except FloatingPointError as error:
        raise ModelError(
            f"training stopped: {error}; the last good checkpoint is in {job.folder}"
        ) from error
    if session is None:
        return None
    session.load_best(learner)
    return _export(job, learner, trial, session.seconds(), ranks.world)


def check_name(out: Path, ranks: Ranks = ALONE) -> None:
    """Raises ModelError: no bundle can have this name, or it exists already."""
    if ranks.rank == 0 and out.exists():
        raise ModelError(f"model {out}: exists already; remove it or choose another name")
    if not re.fullmatch(BUNDLE_NAME, out.name):
        raise ModelError(f"model {out}: small letters, digits, '.', '_' and '-' make its name")


def check(job: Job[PpoSettings]) -> None:
    """Refuse what cannot work. Raises TraceError: a short trace."""
    size = job.settings.contest.window_jobs
    for source in job.sources:
        if len(source.scenario) * LEARN_UNTIL < size:
            raise TraceError(
                f"{source.scenario.name}: {len(source.scenario)} jobs are too few: windows of "
                f"{size} are cut from the first {LEARN_UNTIL:.0%}"
            )


def beginning_from(bundle: Path, settings: PpoSettings) -> PpoSettings:
    """The settings, for a network like that of a bundle. Raises ModelError."""
    form = load_actor(bundle).card.architecture
    return replace(settings, network=form.kind, hidden=form.hidden, reach=form.reach)


def _begin(learner: Learner, job: Job[PpoSettings]) -> Standing:
    """Where the weights come from: a checkpoint, a bundle, or the rule `delay`, uncorrected."""
    if job.resume:
        standing = Session(job.folder, job.settings, resume=True).restore(learner)
        if standing is not None:
            return standing
    if job.start is not None:
        learner.actor.load_state_dict(module_of(load_actor(job.start).network).state_dict())
    return Standing(0, float("inf"))


def _export(
    job: Job[PpoSettings], learner: Learner, trial: Trial, seconds: float, ranks: int
) -> Card:
    settings, begun = job.settings, f", begun from {job.start.name}" if job.start else ""
    actor = learner.actor.cpu()
    return export_judged(
        job,
        actor,
        summary=f"PPO, {settings.network} network, objective {settings.contest.objective}.",
        method="PPO on whole scheduling episodes in the simulator, as corrections of the rule "
        f"`delay`{begun}",
        teacher=settings.contest.base,
        windows=trial.windows,
        results=lambda: changes(trial, trial.totals(actor)),
        seconds=seconds,
        machine=f"one thread, {job.device}" + (f", {ranks} ranks" if ranks > 1 else ""),
        size=settings.contest.window_jobs,
        loads=settings.contest.loads,
    )


def export_judged(
    job: Job[Any],
    actor: TorchActor,
    *,
    summary: str,
    method: str,
    teacher: str,
    windows: Sequence[Scenario],
    results: Callable[[], dict[str, float]],
    seconds: float,
    machine: str,
    size: int,
    loads: tuple[float, float],
) -> Card:
    """Judge an actor on windows that chose nothing, and export it. windows: for the parity file.
    results: of the validation, played when it may be exported. size, loads: of the windows that
    show the ranges of its features. Raises ModelError: it is worse than the rule.
    """
    unseen = unseen_windows(
        job.sources, job.unseen, size=job.validation.window_jobs, loads=job.validation.loads
    )
    verdict = judged(actor, unseen)
    allow(verdict, force=job.force)
    return export_bundle(
        job.out,
        actor,
        name=job.out.name,
        summary=summary,
        parity=parity_windows(windows, actor),
        training=Training(
            method=method,
            teacher=teacher,
            command=job.command,
            seed=job.settings.seed,
            settings=job.settings.described(),
            data="; ".join(s.description for s in job.sources),
            data_licence="; ".join(sorted({s.licence for s in job.sources})),
            seconds=round(seconds, 1),
            machine=f"{platform.machine()}, {machine}",
        ),
        results=results(),
        verdict=verdict,
        caveats=[
            WINDOWS_SAID,
            *((JUDGES_SAID,) if job.judges else ()),
            "Results on traces and clusters never trained on are in docs/results.md.",
        ],
        ranges=ranges_played(actor, job.sources, size=size, loads=loads),
    )


def parity_windows(
    windows: Sequence[Scenario], actor: TorchActor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Queues of real episodes, as the network sees them: (k, 256, features) and (k, 256)."""
    net, kind = net_of(network_of(actor)), actor.kind
    values = np.zeros((PARITY_WINDOWS, MAX_QUEUE_SIZE, INPUTS[kind]), np.float32)
    masks = np.zeros((PARITY_WINDOWS, MAX_QUEUE_SIZE), dtype=bool)
    for k in range(PARITY_WINDOWS):
        _, kept = play_sampled(windows[k % len(windows)], net, k, Recorder())
        if not len(kept):
            masks[k, :2] = True
            continue
        longest = int(np.diff(kept.first).argmax())
        rows = kept.rows[kept.first[longest] : kept.first[longest + 1]]
        rows = rows[:MAX_QUEUE_SIZE]
        flags = np.repeat(kept.flags[longest][None], len(rows), axis=0)
        values[k, : len(rows)] = read_by(kind, rows, flags)
        masks[k, : len(rows)] = True
    return torch.from_numpy(values), torch.from_numpy(masks)
