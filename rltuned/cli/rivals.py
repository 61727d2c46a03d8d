"""`rltuned train rlscheduler` and `rltuned train schedinspector`: others' designs, our budget."""

import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rltuned.cli.progress import perform_with_bar
from rltuned.cli.simulate import cluster_named
from rltuned.policies.baselines import BASELINES
from rltuned.train.batch import Contest
from rltuned.train.course import LEARN_UNTIL, from_files, generated
from rltuned.train.learner import Settings
from rltuned.train.ranks import ALONE, join_ranks
from rltuned.train.rivals import SUMMARIES, Rival, settings_of
from rltuned.train.run import Exam, Job


class RivalObjective(StrEnum):
    """What is to be made small (utilisation: large)."""

    WAIT = "wait"
    BSLD = "bsld"
    JCT = "jct"
    UTILISATION = "utilisation"


OutOption = Annotated[Path, typer.Option("--out", help="Folder of the new bundle; must not exist.")]
TraceOption = Annotated[
    list[Path] | None,
    typer.Option("--trace", help="Trace CSV; may be given again. None: generated jobs."),
]
ClusterOption = Annotated[
    list[str] | None, typer.Option("--cluster", help="Cluster TOML or preset; again for more.")
]
WorkOption = Annotated[
    Path | None, typer.Option("--work", help="Checkpoints and curves; OUT.training if absent.")
]
EpochsOption = Annotated[int, typer.Option("--epochs", min=1)]
BatchesOption = Annotated[int, typer.Option("--batches", help="Episodes per epoch.", min=1)]
WindowJobsOption = Annotated[int, typer.Option("--window-jobs", help="Jobs per episode.", min=2)]
LoadOption = Annotated[
    tuple[float, float], typer.Option("--load", help="Offered load, from and to.")
]
RateOption = Annotated[float, typer.Option("--learning-rate", min=0.0)]
EntropyOption = Annotated[float, typer.Option("--entropy", min=0.0)]
PatienceOption = Annotated[int, typer.Option("--patience", help="0 = all epochs.", min=0)]
SeedOption = Annotated[int, typer.Option("--seed", min=0)]
ExamWindowsOption = Annotated[
    int, typer.Option("--exam-windows", help="Held out, per ground.", min=1)
]
ExamJobsOption = Annotated[int, typer.Option("--exam-jobs", help="Jobs in each of them.", min=2)]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint.")]
DistributedOption = Annotated[
    bool, typer.Option("--distributed", help="One of several ranks (torchrun, srun).")
]


@dataclass(frozen=True, slots=True)
class _Given:
    """What both commands are told."""

    out: Path
    trace: list[Path] | None
    cluster: list[str] | None
    work: Path | None
    exam: Exam
    resume: bool
    distributed: bool


def rlscheduler(
    out: OutOption,
    *,
    trace: TraceOption = None,
    cluster: ClusterOption = None,
    work: WorkOption = None,
    objective: RivalObjective = RivalObjective.WAIT,
    epochs: EpochsOption = 100,
    batches: BatchesOption = 100,
    window_jobs: WindowJobsOption = 256,
    load: LoadOption = (0.7, 1.3),
    learning_rate: RateOption = 3e-3,
    entropy: EntropyOption = 0.0,
    patience: PatienceOption = 0,
    seed: SeedOption = 1,
    exam_windows: ExamWindowsOption = 12,
    exam_jobs: ExamJobsOption = 1_024,
    resume: ResumeOption = False,
    distributed: DistributedOption = False,
) -> None:
    """Learn by RLScheduler's design: a kernel network over 128 jobs, the metric as reward.

    Exit codes: 0 = trained and exported; 2 = input cannot be used, or the training broke.
    """
    common = Settings(
        contest=Contest(
            objective=objective.value, window_jobs=window_jobs, loads=load, part=LEARN_UNTIL
        ),
        epochs=epochs,
        batches=batches,
        learning_rate=learning_rate,
        entropy=entropy,
        patience=patience,
        seed=seed,
    )
    exam = Exam(exam_windows, exam_jobs)
    _train("rlscheduler", common, _Given(out, trace, cluster, work, exam, resume, distributed))


def schedinspector(
    out: OutOption,
    *,
    base: Annotated[str, typer.Option("--base", help="The rule that is inspected.")] = "saf",
    trace: TraceOption = None,
    cluster: ClusterOption = None,
    work: WorkOption = None,
    objective: RivalObjective = RivalObjective.WAIT,
    epochs: EpochsOption = 100,
    batches: BatchesOption = 100,
    window_jobs: WindowJobsOption = 256,
    load: LoadOption = (0.7, 1.3),
    learning_rate: RateOption = 1e-3,
    entropy: EntropyOption = 0.0,
    patience: PatienceOption = 0,
    seed: SeedOption = 1,
    exam_windows: ExamWindowsOption = 12,
    exam_jobs: ExamJobsOption = 1_024,
    resume: ResumeOption = False,
    distributed: DistributedOption = False,
) -> None:
    """Learn by SchedInspector's design: accept or reject what a base rule would start next.

    Exit codes: 0 = trained and exported; 2 = input cannot be used, or the training broke.
    """
    if base not in BASELINES:
        raise typer.BadParameter(f"no rule {base!r}; there are: {', '.join(BASELINES)}")
    common = Settings(
        contest=Contest(
            base=base,
            objective=objective.value,
            window_jobs=window_jobs,
            loads=load,
            part=LEARN_UNTIL,
        ),
        epochs=epochs,
        batches=batches,
        learning_rate=learning_rate,
        entropy=entropy,
        patience=patience,
        seed=seed,
    )
    exam = Exam(exam_windows, exam_jobs)
    _train("schedinspector", common, _Given(out, trace, cluster, work, exam, resume, distributed))


def _train(rival: Rival, common: Settings, given: _Given) -> None:
    ranks = join_ranks() if given.distributed else ALONE
    clusters = [cluster_named(name) for name in given.cluster or ["philly-192"]]
    sources = tuple(from_files(given.trace, clusters) if given.trace else generated(common.seed))
    settings = settings_of(rival, common, [s.ground for s in sources])
    job = Job(
        settings=settings,
        sources=sources,
        folder=given.work or given.out.with_name(f"{given.out.name}.training"),
        out=given.out,
        command=" ".join(["rltuned", *(a for a in sys.argv[1:] if a != "--resume")]),
        exam=given.exam,
        resume=given.resume,
        summary=SUMMARIES[rival].format(base=settings.contest.base),
    )
    perform_with_bar(job, ranks)
