"""A training from its settings to its bundle: what `train ppo` does, and what `evolve` shares."""

import platform
import re
from collections.abc import Callable, Iterator, Sequence
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
from rltuned.lab.train.options import FEWEST_JOBS
from rltuned.lab.train.ppo import Report, train
from rltuned.lab.train.ranges import ranges_played
from rltuned.lab.train.ranks import ALONE, Ranks
from rltuned.lab.train.session import Session, Standing
from rltuned.lab.train.trial import DIGITS, RULE, Trial, windows_between
from rltuned.lab.train.verdict import Validation, allow, judged
from rltuned.policies.actor import load_actor
from rltuned.policies.card import BUNDLE_NAME, Card, Training
from rltuned.policies.network import INPUTS
from rltuned.policies.predictor import Predictor

PARITY_WINDOWS = 4
S = TypeVar("S", bound=Any)
"""Settings of a kind of training, a dataclass: they have a seed, and describe themselves."""
Interval = tuple[float, float | None, float | None]
"""A mean and its 95% interval."""
NONE: Final[Interval] = (0.0, None, None)


WINDOWS_SAID = (
    f"Windows: the first {LEARN_UNTIL:.0%} of each trace to learn from, up to {TEST_FROM:.0%} to "
    "choose the epoch by; these results are of the latter."
)


JUDGES_SAID = (
    "Random worlds that were never learned from had a window each among those that chose the epoch."
)


VALIDATION: Final = Validation()


@dataclass(frozen=True, slots=True)
class Job(Generic[S]):
    """One training, by PPO or by evolution. start: None = the rule `delay`. judges: scenarios never
    learned from; a window of each helps to choose the epoch; unseen: one of each helps to find the
    verdict. seeds: so many are tried, from that of the settings on. predictor: of run times, that
    the verdict is played with; None = by the limits. command: for the card. force: a worse actor is
    exported too. device: of PPO; workers: threads that play, of evolution.
    """

    settings: S
    sources: tuple[DatasetSource, ...]
    folder: Path
    out: Path
    command: str
    validation: Validation = VALIDATION
    start: Path | None = None
    resume: bool = False
    device: str = "cpu"
    workers: int = 1
    seeds: int = 1
    predictor: Predictor | None = None
    judges: tuple[DatasetSource, ...] = ()
    unseen: tuple[DatasetSource, ...] = ()
    force: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """What a seed came to. cost: on the held-out windows; the least is the best. validation: its
    change against the rule there, in logarithms. size, loads: of the windows that show the ranges
    of its features. The rest is for the card.
    """

    actor: TorchActor
    seed: int
    cost: float
    validation: Interval
    summary: str
    method: str
    teacher: str
    seconds: float
    machine: str
    size: int
    loads: tuple[float, float]


def seeds_of(job: Job[S]) -> Iterator[Job[S]]:
    """The training once for each seed, in folders of their own where there are several."""
    for seed in range(job.settings.seed, job.settings.seed + job.seeds):
        folder = job.folder / f"seed-{seed}" if job.seeds > 1 else job.folder
        yield replace(job, settings=replace(job.settings, seed=seed), folder=folder, seeds=1)


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
    """Train with each seed, keep checkpoints and curves, export the best epoch of the best seed;
    None on ranks beyond 0. Raises ModelError: says what can be resumed; TraceError: the traces are
    too short.
    """
    check_name(job.out, ranks)
    check(job)
    windows = held_out(job.sources, job.validation, job.judges)
    trial = Trial.of(windows, job.settings.contest.objective, [RULE])
    found = [_train(one, trial, ranks, on_epoch) for one in seeds_of(job)]
    return None if ranks.rank else export_judged(job, found, windows)


def _train(
    job: Job[PpoSettings], trial: Trial, ranks: Ranks, on_epoch: Callable[[Report], None]
) -> Found:
    """One seed."""
    settings = job.settings
    session = Session(job.folder, settings, resume=job.resume) if ranks.rank == 0 else None
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
            lambda actor: trial.ratio(actor, RULE),
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
    if session is not None:
        session.load_best(learner)
    contest, begun = settings.contest, f", begun from {job.start.name}" if job.start else ""
    actor = learner.actor.cpu()
    # the other ranks export nothing
    validation = trial.ratio(actor, RULE) if session is not None else NONE
    return Found(
        actor,
        settings.seed,
        cost=validation[0],
        validation=validation,
        summary=f"PPO, {settings.network} network, objective {contest.objective}.",
        method="PPO on whole scheduling episodes in the simulator, as corrections of the rule "
        f"`delay`{begun}",
        teacher=contest.base,
        seconds=session.seconds() if session is not None else 0.0,
        machine=f"one thread, {job.device}" + (f", {ranks.world} ranks" if ranks.world > 1 else ""),
        size=contest.window_jobs,
        loads=contest.loads,
    )


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


def export_judged(job: Job[Any], found: Sequence[Found], windows: Sequence[Scenario]) -> Card:
    """Judge the seed that did best on the held-out windows on others, and export it. windows: the
    held-out ones, for the parity file. Raises ModelError: it is worse than the rule.
    """
    best = min(found, key=lambda one: one.cost)
    verdict, changes = judged(best.actor, job.sources, job.unseen, job.validation, job.predictor)
    allow(verdict, force=job.force)
    each = zip(("validation", "validation_low", "validation_high"), best.validation, strict=True)
    results = {name: value for name, value in each if value is not None}
    results |= {f"verdict_on_{name}": change for name, change in changes.items()}
    if len(found) > 1:
        results |= {f"validation_cost_seed_{one.seed}": one.cost for one in found}
    seeds = f" The best of {len(found)} seeds on held-out windows." if len(found) > 1 else ""
    return export_bundle(
        job.out,
        best.actor,
        name=job.out.name,
        summary=best.summary + seeds,
        parity=parity_windows(windows, best.actor),
        training=Training(
            method=best.method,
            teacher=best.teacher,
            command=job.command,
            seed=best.seed,
            settings=replace(job.settings, seed=best.seed).described(),
            data="; ".join(dict.fromkeys(s.description for s in job.sources)),
            data_licence="; ".join(sorted({s.licence for s in job.sources})),
            seconds=round(sum(one.seconds for one in found), 1),
            machine=f"{platform.machine()}, {best.machine}",
        ),
        results={name: round(value, DIGITS) for name, value in results.items()},
        verdict=verdict,
        caveats=[
            WINDOWS_SAID,
            *((JUDGES_SAID,) if job.judges else ()),
            "Results on traces and clusters never trained on are in docs/results.md.",
        ],
        ranges=ranges_played(best.actor, job.sources, size=best.size, loads=best.loads),
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
