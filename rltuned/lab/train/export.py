"""What every training does around its learning: windows that choose, a verdict, a bundle.

A training chooses by held-out windows. What it chose is judged on others before it is exported, by
the objective of lab/compare, wait and slowdown together. These windows are those of `rltuned
evaluate` on the last part of a trace at LOADS: both say the same of a model there. A bundle or a
predictor is written whole or not at all, and only one that loads and scores the same.
"""

import hashlib
import io
import math
import platform
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import numpy as np
import torch
from pydantic import BaseModel
from safetensors.torch import save as save_tensors
from torch import Tensor

from rltuned import __version__
from rltuned.core.features import COLUMN, COLUMNS, FIXED, MAX_QUEUE_SIZE, SCHEMA_ID
from rltuned.errors import ModelError, TraceError
from rltuned.files import whole_folder
from rltuned.lab.replay.prepared import net_of
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train import evaluate
from rltuned.lab.train.network import TorchActor, network_of, policy_of, read_by
from rltuned.lab.train.predictor import Fitted, parity_bytes
from rltuned.lab.train.rollout import Recorder, play_policy, play_sampled, windows_between
from rltuned.lab.train.settings import (
    FEWEST_JOBS,
    LEARN_UNTIL,
    LOADS,
    RULE,
    TEST_FROM,
    EvolutionSettings,
    PpoSettings,
    described,
)
from rltuned.lab.train.sources import DatasetSource
from rltuned.policies import actor as actors
from rltuned.policies import predictor as predictors
from rltuned.policies.actor import Card, Kind, Training, Verdict

S = TypeVar("S", PpoSettings, EvolutionSettings)
Interval = tuple[float, float | None, float | None]
"""A mean and its 95% interval."""
_MODEL: Final = "model"
CAVEATS: Final = (
    f"The first {LEARN_UNTIL:.0%} of each trace to learn from, up to {TEST_FROM:.0%} to choose by.",
    "Results on traces and clusters never trained on are in docs/results.md.",
    "Random worlds that were never learned from had a window each among those that chose.",
)
PARITY_WINDOWS: Final = 4
Ranges = dict[str, tuple[float, float]]
"""Smallest and largest value by feature, that a training saw: what the daemon's drift figures
compare with."""
READ: Final[dict[Kind, tuple[str, ...]]] = {
    "queue": COLUMNS,
    "paper": (*FIXED, "job_size", "urgency", "num_ways", "free_nodes"),
}
"""Features by the kind of network that reads them; the paper's two last slots hold two of the last
four at a time."""
RANGE_WINDOWS: Final = 48
"""That show the ranges of features: over all sources together, one each at least."""


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """What a training is given beside its settings. start: a bundle; None = the rule `delay`.
    folder: of its records. judges: scenarios never learned from; a window of each helps to choose
    the epoch; unseen: one of each helps to find the verdict. seeds: so many are tried, from that of
    the settings on. predictor: of run times, that the verdict is played with; None = by the limits.
    command: for the card. force: a worse actor is exported too.
    """

    sources: tuple[DatasetSource, ...]
    folder: Path
    out: Path
    command: str
    start: Path | None = None
    resume: bool = False
    seeds: int = 1
    predictor: predictors.Predictor | None = None
    judges: tuple[DatasetSource, ...] = ()
    unseen: tuple[DatasetSource, ...] = ()
    force: bool = False

    @property
    def scenarios(self) -> list[Scenario]:
        """What is learned on, each as often as its share says."""
        return [s.scenario for s in self.sources for _ in range(s.share)]

    def each(self, settings: S) -> list[tuple[S, Path]]:
        """The settings and the folder of every seed: one of its own where there are several."""
        if self.seeds == 1:
            return [(settings, self.folder)]
        seeds = range(settings.seed, settings.seed + self.seeds)
        return [(replace(settings, seed=one), self.folder / f"seed-{one}") for one in seeds]


class Found(NamedTuple):
    """What a seed came to. cost: on the held-out windows; the least is the best. validation: its
    change against the rule there, in logarithms. summary: for the card.
    """

    cost: float
    seed: int
    actor: TorchActor
    validation: Interval
    summary: str
    seconds: float


def check_name(out: Path, *, first: bool = True) -> None:
    """Raises ModelError: no bundle can have this name, or it exists already."""
    if not re.fullmatch(actors.BUNDLE_NAME, out.name):
        raise ModelError(f"model {out}: small letters, digits, '.', '_' and '-' make its name")
    if first and out.exists():
        raise ModelError(f"model {out}: exists already; remove it or choose another name")


def begin(record: Path, *, resume: bool) -> None:
    """Make the folder of a training's record. Raises ModelError: unfit, or it has one that is not
    to go on.
    """
    try:
        record.parent.mkdir(parents=True, exist_ok=True)
        begun = record.exists()
    except OSError as error:
        raise ModelError(f"{record.parent}: {error.strerror}") from error
    if begun and not resume:
        raise ModelError(
            f"{record.parent}: holds a training; continue it with --resume, or remove it"
        )


def fitting(jobs: int, sources: Sequence[DatasetSource]) -> int:
    """So many jobs of a window, or as many as the longest trace has room for between LEARN_UNTIL
    and TEST_FROM, unless none has room for FEWEST_JOBS.
    """
    longest = max(len(s.scenario) for s in sources if not s.is_world)
    room = int(longest * TEST_FROM) - int(longest * LEARN_UNTIL)
    return jobs if room < FEWEST_JOBS else min(jobs, room)


def held_out(
    sources: Sequence[DatasetSource],
    count: int,
    jobs: int,
    judges: Sequence[DatasetSource] = (),
) -> list[Scenario]:
    """The validation: windows of each source's later part, and one of each judge. Raises
    TraceError: too short.
    """
    part, loads, found = (LEARN_UNTIL, TEST_FROM), LOADS, []
    for source in sources:
        found += windows_between(source.scenario, part, count=count, size=jobs, loads=loads)
    for at, judge in enumerate(judges):
        load = loads[at % len(loads)]
        found += windows_between(
            judge.scenario, (LEARN_UNTIL, 1.0), count=1, size=jobs, loads=[load]
        )
    if not found:
        longest = max(len(s.scenario) for s in sources)
        raise TraceError(
            f"no trace has {jobs} jobs between {part[0]:.0%} and {part[1]:.0%} of its length to be "
            f"judged by; the longest has {longest} in all"
        )
    return found


def judged(
    actor: TorchActor,
    sources: Sequence[DatasetSource],
    worlds: Sequence[DatasetSource],
    jobs: int,
    predictor: predictors.Predictor | None,
) -> tuple[Verdict, dict[str, float]]:
    """The actor against the rule on the last part of each trace and one window of each unseen
    world, and its change on each trace by name. jobs: of a window.
    """
    loads, traces = LOADS, {s.description: _plain(s.scenario) for s in sources if not s.is_world}
    test = evaluate.EvaluationPlan(window_jobs=jobs, part=(TEST_FROM, 1.0))
    one = evaluate.EvaluationPlan(1, jobs, part=(LEARN_UNTIL, 1.0))
    plays = [(t, replace(test, load=load)) for t in traces.values() for load in loads]
    plays += [
        (_plain(world.scenario), replace(one, load=loads[at % len(loads)]))
        for at, world in enumerate(worlds)
    ]
    protocol = Protocol("cycle", predictor=predictor)
    player = partial(play_policy, policy=policy_of(actor), protocol=protocol)
    found = [
        evaluate.evaluate_on(scenario, {_MODEL: [player]}, plan, rules=(RULE,), protocol=protocol)
        for scenario, plan in plays
    ]
    by_name: dict[str, list[evaluate.Evaluation]] = {}
    for place in found[: len(traces) * len(loads)]:
        by_name.setdefault(place.scenario, []).append(place)
    changes = {
        name: round(evaluate.objective_over(some, _MODEL, RULE)[0].change or 0.0, evaluate.DIGITS)
        for name, some in by_name.items()
    }
    return evaluate.verdict_of(*evaluate.objective_over(found, _MODEL, RULE)), changes


def _plain(scenario: Scenario) -> Scenario:
    """Without what was predicted beforehand: the protocol's predictor learns as it goes."""
    return replace(scenario, seen=None, foreseen_s=None).for_networks()


def export_best(
    run: TrainingRun,
    settings: PpoSettings | EvolutionSettings,
    found: Sequence[Found],
    windows: Sequence[Scenario],
    *,
    method: str,
    teacher: str,
    machine: str,
    size: int,
) -> Card:
    """Judge the seed that did best on the held-out windows on others, and export it. windows: the
    held-out ones, for the parity file. size: of the windows that show the ranges of its features;
    the other words: for the card. Raises ModelError: it is worse than the rule.
    """
    best = min(found, key=lambda one: one.cost)
    verdict, changes = judged(
        best.actor, run.sources, run.unseen, settings.eval_jobs, run.predictor
    )
    if verdict.word == "worse" and not run.force:
        raise ModelError(f"not exported: {verdict}; --force exports it all the same")
    each = zip(("validation", "validation_low", "validation_high"), best.validation, strict=True)
    results = {name: value for name, value in each if value is not None}
    results |= {f"verdict_on_{name}": change for name, change in changes.items()}
    if len(found) > 1:
        results |= {f"validation_cost_seed_{one.seed}": one.cost for one in found}
    seeds = f" The best of {len(found)} seeds on held-out windows." if len(found) > 1 else ""
    return export_bundle(
        run.out,
        best.actor,
        summary=best.summary + seeds,
        parity=parity_windows(windows, best.actor),
        training=Training(
            method=method + (f", begun from {run.start.name}" if run.start else ""),
            teacher=teacher,
            command=run.command,
            seed=best.seed,
            settings=described(replace(settings, seed=best.seed)),
            data="; ".join(dict.fromkeys(s.description for s in run.sources)),
            data_licence="; ".join(sorted({s.licence for s in run.sources})),
            seconds=round(sum(one.seconds for one in found), 1),
            machine=f"{platform.machine()}, {machine}",
        ),
        results={name: round(value, evaluate.DIGITS) for name, value in results.items()},
        verdict=verdict,
        caveats=list(CAVEATS if run.judges else CAVEATS[:2]),
        ranges=ranges_played(best.actor, run.sources, size=size, loads=settings.loads),
    )


# Bundles


def export_bundle(
    target: Path,
    network: TorchActor,
    *,
    summary: str,
    parity: tuple[Tensor, Tensor],
    training: Training,
    results: dict[str, float],
    caveats: list[str],
    ranges: Ranges | None = None,
    verdict: Verdict | None = None,
) -> Card:
    """Write weights, parity pairs and card into a new folder. parity: windows (k, 256, features),
    masks (k, 256). ranges: of the features; None = of the parity windows. Raises ModelError.
    """
    values, masks = parity
    with torch.inference_mode():
        scores = network.eval()(values, masks)
    arrays = {"values": values.numpy(), "masks": masks.numpy(), "scores": scores.numpy()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    weights = save_tensors({k: v.contiguous() for k, v in network.state_dict().items()})
    files = {actors.WEIGHTS_FILE: weights, actors.PARITY_FILE: buffer.getvalue()}
    card = Card(
        format=actors.FORMAT,
        name=target.name,
        summary=summary,
        schema_id=SCHEMA_ID,
        architecture=actors.Architecture(
            kind=network.kind,
            features=actors.INPUTS[network.kind],
            predicted=network.kind == "queue",
            hidden=network.hidden,
            reach=network.reach,
        ),
        files_sha256=_digests(files),
        rltuned_version=__version__,
        git_commit=git_commit(Path(__file__).resolve().parents[3]),
        torch_version=str(torch.__version__),
        training=training,
        results=results,
        verdict=verdict,
        caveats=caveats,
        ranges=ranges_shown(network.kind, *parity) if ranges is None else ranges,
    )
    _write(target, files, actors.CARD_FILE, card, actors.load_actor)
    return card


def export_predictor(
    target: Path, fitted: Fitted, *, command: str, seed: int, data: str, licence: str
) -> predictors.PredictorCard:
    """Write a predictor's weights, parity pairs and card into a new folder. Raises ModelError."""
    files = {
        predictors.PREDICTOR_FILE: fitted.predictor.to_bytes(),
        predictors.PARITY_FILE: parity_bytes(fitted.predictor),
    }
    figures = {k: v for k, v in asdict(fitted).items() if isinstance(v, int | float)}
    figures |= dict(zip(("below_10%", "below_50%", "below_90%"), fitted.covered, strict=True))
    card = predictors.PredictorCard(
        format=1,
        name=target.name,
        inputs_id=predictors.INPUTS_ID,
        files_sha256=_digests(files),
        rltuned_version=__version__,
        command=command,
        seed=seed,
        data=data,
        data_licence=licence,
        # a figure that there is none of, as of a rank where no job has a limit, is left out
        results={k: round(v, 5) for k, v in figures.items() if math.isfinite(v)},
    )
    _write(target, files, predictors.CARD_FILE, card, predictors.load_predictor)
    return card


def _digests(files: dict[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def _write(
    target: Path,
    files: dict[str, bytes],
    card_name: str,
    card: BaseModel,
    check: Callable[[Path], object],
) -> None:
    """Into a folder beside the target, checked by loading it there, then moved into place."""
    if target.exists():
        raise ModelError(f"model {target}: exists already; remove it or choose another name")
    files |= {card_name: (card.model_dump_json(indent=2) + "\n").encode()}
    try:
        with whole_folder(target) as staged:
            for file, data in files.items():
                (staged / file).write_bytes(data)
            check(staged)
    except OSError as error:
        raise ModelError(f"model {target}: {error.strerror or error}") from error


def git_commit(root: Path) -> str:
    """The commit checked out at root, read off .git; "unknown" outside a checkout."""
    git = root / ".git"
    try:
        if git.is_file():  # of a worktree, which keeps its HEAD beside the branches of all
            git = Path(git.read_text().strip().removeprefix("gitdir: "))
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        shared = git.parents[1] if git.parent.name == "worktrees" else git
        return (shared / head.removeprefix("ref: ")).read_text().strip()
    except OSError:
        return "unknown"


# What a network saw: queues for its parity file, and the range of each feature


def parity_windows(windows: Sequence[Scenario], actor: TorchActor) -> tuple[Tensor, Tensor]:
    """Queues of real episodes, as the network sees them: (k, 256, features) and (k, 256)."""
    net, kind, recorder = net_of(network_of(actor)), actor.kind, Recorder()
    values = np.zeros((PARITY_WINDOWS, MAX_QUEUE_SIZE, actors.INPUTS[kind]), np.float32)
    masks = np.zeros((PARITY_WINDOWS, MAX_QUEUE_SIZE), dtype=bool)
    for k in range(PARITY_WINDOWS):
        _, kept = play_sampled(windows[k % len(windows)], net, k, recorder)
        if not len(kept):
            masks[k, :2] = True
            continue
        longest = int(np.diff(kept.first).argmax())
        rows = kept.rows[kept.first[longest] : kept.first[longest + 1]][:MAX_QUEUE_SIZE]
        flags = np.repeat(kept.flags[longest][None], len(rows), axis=0)
        values[k, : len(rows)] = read_by(kind, rows, flags)
        masks[k, : len(rows)] = True
    return torch.from_numpy(values), torch.from_numpy(masks)


def ranges_played(
    actor: TorchActor, sources: Sequence[DatasetSource], *, size: int, loads: Sequence[float]
) -> Ranges:
    """Over every whole queue of windows, even in the first LEARN_UNTIL of each source."""
    each, part = -(-RANGE_WINDOWS // len(sources)), (0.0, LEARN_UNTIL)
    net, recorder = net_of(network_of(actor)), Recorder()
    low = np.full(len(COLUMNS), np.inf)
    high = np.full(len(COLUMNS), -np.inf)
    for source in sources:
        found = windows_between(source.scenario, part, count=each, size=size, loads=loads)
        for number, window in enumerate(found):
            rows = play_sampled(window, net, number, recorder)[1].rows[:, : len(COLUMNS)]
            low = np.minimum(low, rows.min(axis=0, initial=np.inf))
            high = np.maximum(high, rows.max(axis=0, initial=-np.inf))
    at = [(name, COLUMN[name]) for name in READ[actor.kind]]
    return {name: (float(low[i]), float(high[i])) for name, i in at if low[i] <= high[i]}


def ranges_shown(kind: Kind, values: Tensor, masks: Tensor) -> Ranges:
    """Of every feature but for those whose meaning changes; empty: no job.
    values: (k, 256, features). masks: (k, 256), True on real jobs.
    """
    seen = values[masks].numpy()
    names = (COLUMNS if kind == "queue" else FIXED) if len(seen) else ()
    return {
        name: (float(seen[:, i].min()), float(seen[:, i].max())) for i, name in enumerate(names)
    }
