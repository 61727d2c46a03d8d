"""`rltuned simulate`: the same jobs on the same simulated cluster under several policies."""

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from rltuned.cli import flags
from rltuned.cli.tables import Column, console, show_table
from rltuned.core.decide import Knobs
from rltuned.core.milp import Sharing, Tuning
from rltuned.core.order import DEFAULT
from rltuned.errors import TraceError
from rltuned.lab.cli import options
from rltuned.lab.cli.options import progress
from rltuned.lab.replay.metrics import (
    Schedule,
    bound,
    document,
    mean_fragmentation,
    scores_of,
    write_jobs,
)
from rltuned.lab.replay.protocol import BY_DEFAULT, Mode, Protocol, jointly, policy_of, watching
from rltuned.lab.replay.trace_file import read_faults
from rltuned.sim.cluster import PRESETS, Cluster, cluster_named
from rltuned.sim.dispatch import AGE_ONLY, Natural
from rltuned.sim.trace import Bad, TraceJob
from rltuned.sim.world import Fault, Rules
from rltuned.solver import Cbc
from rltuned.text import span

if TYPE_CHECKING:  # numba, which --help does without
    from rltuned.lab.replay.scenario import Scenario

app = typer.Typer()


LONG_S: Final = 60.0
"""A play of which more is left says so, with a terminal or without."""
_NATURAL = {"age": AGE_ONLY, "multifactor": Natural(kind="multifactor"), "basic": Natural()}


PlacementOption = Annotated[
    Literal["pack", "spread", "milp"],
    typer.Option(help="How nodes are chosen; milp: packed, and exclusive jobs may share."),
]
TopKOption = Annotated[
    int, typer.Option(help="milp: how many jobs of the ranking.", min=0, max=10_000)
]
OverSubscribeOption = Annotated[
    list[str] | None,
    typer.Option(help="milp: a partition where exclusive jobs may be asked to share; repeatable."),
]
NaturalOption = Annotated[
    Literal["age", "multifactor", "basic"],
    typer.Option(help="What Slurm's own priorities are made of (cycle mode)."),
]
CountOption = Annotated[
    int | None, typer.Option("--windows", help="Random windows of consecutive jobs.")
]
WarmupOption = Annotated[
    int, typer.Option(help="The first N jobs of each set run but are not scored.")
]
SkipImpossibleOption = Annotated[
    bool, typer.Option("--skip-impossible", help="Leave out jobs that can never run.")
]
DetailsOption = Annotated[
    bool, typer.Option("--details", help="More figures and fairness; with --json the lower bound.")
]
OwnOption = Annotated[
    float, typer.Option("--own", help="Part of a job's own length in its delay.", min=0.0)
]
ShareOption = Annotated[
    float, typer.Option("--share", help="Part of the backlog in its delay.", min=0.0)
]
ClipOption = Annotated[
    float,
    typer.Option(
        "--clip", help="No delay above so many limit x sqrt(GPUs) + share x backlog.", min=0.0
    ),
]
MaxDelayOption = Annotated[
    float, typer.Option("--max-delay", help="No delay above so many seconds.", min=0.0)
]
PredictorOption = Annotated[
    str,
    typer.Option(
        "--predictor", help="Of run times: a folder, the `shipped` one, or `none`: by the limits."
    ),
]
IntervalOption = Annotated[
    float, typer.Option("--interval", help="Seconds between cycles.", min=0.001, max=1e9)
]


@app.command()
def simulate(
    *,
    trace: Annotated[Path, typer.Option(help="Trace CSV, version 1; may be gzip.")],
    cluster: Annotated[str, typer.Option(help=f"Cluster TOML, or one of {', '.join(PRESETS)}.")],
    policy: Annotated[list[str], typer.Option("--policy", "-p", help="May be given again.")],
    mode: Annotated[Mode, typer.Option(help="Rank at every event, or once per cycle.")] = "event",
    interval: IntervalOption = 60.0,
    placement: PlacementOption = "pack",
    top_k: TopKOption = 16,
    oversubscribe: OverSubscribeOption = None,
    backfill: options.BackfillOption = "easy",
    backfill_param: options.BackfillParamOption = None,
    natural: NaturalOption = "age",
    count: CountOption = None,
    window_jobs: Annotated[int, typer.Option(help="Jobs per window.")] = 256,
    seed: Annotated[int, typer.Option(help="Of the windows' places.", min=0)] = 1,
    first: Annotated[int | None, typer.Option(help="Only the first K jobs.")] = None,
    warmup: WarmupOption = 0,
    bounds: options.BoundsOption = options.OnOff.ON,
    own: OwnOption = DEFAULT.own,
    share: ShareOption = DEFAULT.share,
    clip: ClipOption = DEFAULT.clip,
    max_delay: MaxDelayOption = DEFAULT.max_delay_s,
    trust: options.TrustOption = None,
    predictor: PredictorOption = options.SHIPPED,
    faults: Annotated[Path | None, typer.Option(help="CSV of node failures and drains.")] = None,
    skip_impossible: SkipImpossibleOption = False,
    jobs_out: Annotated[Path | None, typer.Option(help="CSV with one line per job.")] = None,
    plot: Annotated[Path | None, typer.Option(help="PNG: Gantt, queue, use, waits.")] = None,
    details: DetailsOption = False,
    as_json: flags.JsonOption = False,
) -> None:
    """Play a trace on a simulated cluster under one or more policies.

    Exit codes: 0 = done; 2 = a file, a number or a policy name cannot be used.
    """
    chosen = {name: policy_of(name) for name in policy}
    trusted = options.trust_of(trust, [one for name, one in chosen.items() if name != BY_DEFAULT])
    parameters = options.parameters_of(backfill, backfill_param)
    hardware = cluster_named(cluster)
    packing: Literal["pack", "spread"] = "spread" if placement == "spread" else "pack"
    protocol = Protocol(
        mode,
        interval,
        knobs=Knobs(top_k=0, order=options.order_of(own, share, clip, max_delay)),
        bounded=bounds is options.OnOff.ON,
        predictor=options.predictor_of(predictor),
    )
    if placement == "milp":
        tuning = Tuning(sharing=Sharing(frozenset(oversubscribe or ())))
        protocol = jointly(protocol, top_k, tuning, Cbc())
    if count is not None and first is not None:
        raise TraceError("--windows and --first exclude each other")
    for out in (jobs_out, plot):
        check_file(out)
    if plot is not None and not importlib.util.find_spec("matplotlib"):
        raise TraceError("--plot needs matplotlib; install rltuned[train]")
    from rltuned.lab.replay.run import whole, windows  # noqa: PLC0415 - numba

    jobs, skipped = _possible(trace, hardware, skip=skip_impossible)
    rules = Rules(backfill, packing, _NATURAL[natural], parameters)
    site = jobs, hardware, rules, _faults(faults) if faults else ()
    if count is None:
        sets = whole(*site, first=first, warmup=warmup)
    else:
        sets = windows(*site, count=count, size=window_jobs, seed=seed, warmup=warmup)
    played = _play(sets, list(dict.fromkeys(policy)), protocol, trusted)
    if jobs_out is not None:
        write_jobs(played, jobs_out)
    _draw(played, hardware, plot)
    if as_json:
        found = document(played, hardware, skipped=skipped, details=details)
        flags.say(json.dumps(found if trust is None else {**found, "trust": trust}))
    else:
        _show(played, hardware, details=details)


def _faults(path: Path) -> tuple[Fault, ...]:
    bad: list[Bad] = []
    found = read_faults(path, bad)
    options.warn_of_bad(path, bad)
    return found


def _possible(trace: Path, cluster: Cluster, *, skip: bool) -> tuple[tuple[TraceJob, ...], int]:
    from rltuned.lab.replay.run import possible  # noqa: PLC0415 - numba

    jobs, skipped = possible(options.shown_trace(trace).jobs, cluster, skip=skip)
    if skipped:
        flags.warn(f"{skipped} jobs can never run on {cluster.name} and are left out")
    return jobs, skipped


def _draw(played: dict[str, list[Schedule]], cluster: Cluster, path: Path | None) -> None:
    if path is None:
        return
    from rltuned.lab.replay.plot import draw  # noqa: PLC0415 - matplotlib is in the train extra

    try:
        draw(played, cluster, path)
    except OSError as error:
        raise TraceError(f"{path}: cannot be written: {error.strerror}") from error


def _play(
    sets: "tuple[Scenario, ...]", policies: list[str], protocol: Protocol, trust: float
) -> dict[str, list[Schedule]]:
    from rltuned.lab.replay.run import play_all  # noqa: PLC0415 - numba

    with progress() as bar:
        task = bar.add_task("simulate", total=len(sets) * len(policies))

        def report(policy: str, window: int) -> None:
            bar.update(task, advance=1, description=f"{policy}, window {window + 1}")

        def watcher(part: float, left_s: float) -> None:
            text = f"{part:.0%} of the jobs have started; about {span(left_s)} left"
            bar.update(task, description=text)
            if left_s > LONG_S and not told:
                told.append(text)
                flags.warn(f"this play takes long: {text}")

        told: list[str] = []
        with watching(watcher):
            return play_all(sets, policies, protocol, trust, report=report)


def _show(played: dict[str, list[Schedule]], cluster: Cluster, *, details: bool) -> None:
    scores = scores_of(played, cluster.gpus)
    title = f"{next(iter(scores.values())).jobs} jobs, {cluster.gpus} GPUs, hours"
    rows = []
    for name, s in scores.items():
        times = map(_hours, (s.wait_s, s.wait_p95_s, s.wait_max_s, s.jct_s))
        rows.append((name, *times, f"{s.bsld:.2f}", f"{s.utilisation:.1%}", _hours(s.makespan_s)))
    out = console()
    show_table(out, _columns("wait", "p95", "max", "JCT", "BSLD", "use", "span"), rows, title)
    if details:
        rows = []
        for name, s in scores.items():
            worst = f"{s.worst_user or '-'} {s.worst_user_bsld:.0f}"
            fairness = (f"{s.fairness_users:.3f}", f"{s.fairness_partitions:.3f}", worst)
            scraps = f"{mean_fragmentation(played[name], cluster):.2f}"
            rows.append((name, _hours(s.wait_p50_s), _hours(s.wait_p99_s), *fairness, scraps))
        more = _columns("p50", "p99", "Jain users", "Jain parts", "worst user", "scraps")
        show_table(out, more, rows)
    if not any(s.wait_max_s for s in scores.values()):
        flags.say("Nobody waits in any order: `rltuned traces scale --load 0.9` makes it busier.")
        return
    wait_s, jct_s = bound(next(iter(played.values())), cluster.gpus)
    flags.say(
        f"No order can do better than a mean wait of {_hours(wait_s)} h, JCT {_hours(jct_s)} h."
    )


def _columns(*names: str) -> list[Column]:
    """The last ones go first where there is no room."""
    others = [Column(name, right=True, goes=at) for at, name in enumerate(names)]
    return [Column("policy"), *others]


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.2f}"


def check_file(path: Path | None) -> None:
    """Raises TraceError: there can be no such file. None = none is asked for."""
    if path is not None and path.is_dir():
        raise TraceError(f"{path}: cannot be written: it is a folder")
    if path is not None and not path.parent.is_dir():
        raise TraceError(f"{path}: cannot be written: no folder {path.parent}")
