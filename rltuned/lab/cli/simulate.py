"""`rltuned simulate`: the same jobs on the same simulated cluster under several policies."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from rltuned.cli import flags
from rltuned.cli.tables import Column, console, show_table
from rltuned.core.decide import Knobs
from rltuned.core.milp import Sharing, Tuning
from rltuned.core.order import DEFAULT
from rltuned.errors import TraceError
from rltuned.lab.cli import options
from rltuned.lab.replay.metrics import Schedule, document, scores_of, write_jobs
from rltuned.lab.replay.protocol import BY_DEFAULT, Mode, Protocol, jointly, policy_of
from rltuned.lab.replay.trace_file import read_faults
from rltuned.sim.cluster import PRESETS, Cluster, cluster_named
from rltuned.sim.trace import Bad
from rltuned.sim.world import AGE_ONLY, Fault, Natural, Rules
from rltuned.solver import Cbc

app = typer.Typer()
_NATURAL = {"age": AGE_ONLY, "multifactor": Natural(kind="multifactor"), "basic": Natural()}


@app.command()
def simulate(
    *,
    trace: Annotated[Path, typer.Option(help="Trace CSV, version 1; may be gzip.")],
    cluster: Annotated[str, typer.Option(help=f"Cluster TOML, or one of {', '.join(PRESETS)}.")],
    policy: Annotated[list[str], typer.Option("--policy", "-p", help="May be given again.")],
    mode: Annotated[Mode, typer.Option(help="Rank at every event, or once per cycle.")] = "event",
    interval: Annotated[
        float, typer.Option(help="Seconds between cycles.", min=0.001, max=1e9)
    ] = 60.0,
    placement: Annotated[
        Literal["pack", "spread", "milp"],
        typer.Option(help="How nodes are chosen; milp: packed, and exclusive jobs may share."),
    ] = "pack",
    top_k: Annotated[
        int, typer.Option(help="milp: how many jobs of the ranking.", min=0, max=10_000)
    ] = 16,
    oversubscribe: Annotated[
        list[str] | None,
        typer.Option(help="milp: a partition where exclusive jobs may be asked to share; again."),
    ] = None,
    backfill: options.BackfillOption = "easy",
    backfill_param: options.BackfillParamOption = None,
    natural: Annotated[
        Literal["age", "multifactor", "basic"],
        typer.Option(help="What Slurm's own priorities are made of (cycle mode)."),
    ] = "age",
    count: Annotated[
        int | None, typer.Option("--windows", help="Random windows of consecutive jobs.")
    ] = None,
    window_jobs: Annotated[int, typer.Option(help="Jobs per window.")] = 256,
    seed: Annotated[int, typer.Option(help="Of the windows' places.", min=0)] = 1,
    first: Annotated[int | None, typer.Option(help="Only the first K jobs.")] = None,
    warmup: Annotated[
        int, typer.Option(help="The first N jobs of each set run but are not scored.")
    ] = 0,
    bounds: options.BoundsOption = "on",
    own: Annotated[
        float, typer.Option(help="Part of a job's own length in its delay.", min=0.0)
    ] = DEFAULT.own,
    share: Annotated[
        float, typer.Option(help="Part of the backlog in its delay.", min=0.0)
    ] = DEFAULT.share,
    clip: Annotated[
        float,
        typer.Option(help="No delay above so many limit x sqrt(GPUs) + share x backlog.", min=0.0),
    ] = DEFAULT.clip,
    max_delay: Annotated[
        float, typer.Option(help="No delay above so many seconds.", min=0.0)
    ] = DEFAULT.max_delay_s,
    trust: options.TrustOption = None,
    predictor: Annotated[
        str,
        typer.Option(help="Of run times: a folder, the `shipped` one, or `none`: by the limits."),
    ] = options.SHIPPED,
    faults: Annotated[Path | None, typer.Option(help="CSV of node failures and drains.")] = None,
    skip_impossible: Annotated[
        bool, typer.Option("--skip-impossible", help="Leave out jobs that can never run.")
    ] = False,
    jobs_out: Annotated[Path | None, typer.Option(help="CSV with one line per job.")] = None,
    as_json: flags.JsonOption = False,
) -> None:
    """Play a trace on a simulated cluster under one or more policies.

    Exit codes: 0 = done; 2 = a file, a number or a policy name cannot be used.
    """
    chosen = {name: policy_of(name) for name in policy}
    trusted = options.trust_of(trust, [one for name, one in chosen.items() if name != BY_DEFAULT])
    parameters = options.parameters_of(backfill, backfill_param)
    hardware = cluster_named(cluster)
    protocol = Protocol(
        mode,
        interval,
        knobs=Knobs(top_k=0, order=options.order_of(own, share, clip, max_delay)),
        bounded=bounds == "on",
        predictor=options.predictor_of(predictor),
    )
    if placement == "milp":
        tuning = Tuning(sharing=Sharing(frozenset(oversubscribe or ())))
        protocol = jointly(protocol, top_k, tuning, Cbc())
    if count is not None and first is not None:
        raise TraceError("--windows and --first exclude each other")
    options.check_file(jobs_out)
    from rltuned.lab.replay.run import play_all, possible, whole, windows  # noqa: PLC0415 - numba

    jobs, skipped = possible(options.shown_trace(trace).jobs, hardware, skip=skip_impossible)
    if skipped:
        flags.warn(f"{skipped} jobs can never run on {hardware.name} and are left out")
    packing: Literal["pack", "spread"] = "spread" if placement == "spread" else "pack"
    site = jobs, hardware, Rules(backfill, packing, _NATURAL[natural], parameters), _faults(faults)
    if count is None:
        sets = whole(*site, first=first, warmup=warmup)
    else:
        sets = windows(*site, count=count, size=window_jobs, seed=seed, warmup=warmup)
    with options.progress() as show:
        played = play_all(sets, list(dict.fromkeys(policy)), protocol, trusted, report=show)
    if jobs_out is not None:
        write_jobs(played, jobs_out)
    if as_json:
        found = document(played, hardware, skipped=skipped)
        flags.say(json.dumps(found if trust is None else {**found, "trust": trust}))
    else:
        _show(played, hardware)


def _faults(path: Path | None) -> tuple[Fault, ...]:
    bad = list[Bad]()
    found = read_faults(path, bad) if path else ()
    options.warn_of_bad(path, bad)
    return found


COLUMNS = (
    Column("policy"),
    *(
        Column(name, right=True, goes=at)
        for at, name in enumerate(("wait", "p95", "max", "JCT", "BSLD", "use", "span"))
    ),
)
"""The last ones go first where there is no room."""


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.2f}"


def _show(played: dict[str, list[Schedule]], hardware: Cluster) -> None:
    scores = scores_of(played, hardware.gpus)
    rows = []
    for name, s in scores.items():
        times = map(_hours, (s.wait_s, s.wait_p95_s, s.wait_max_s, s.jct_s))
        rows.append((name, *times, f"{s.bsld:.2f}", f"{s.utilisation:.1%}", _hours(s.makespan_s)))
    title = f"{next(iter(scores.values())).jobs} jobs, {hardware.gpus} GPUs, hours"
    show_table(console(), COLUMNS, rows, title)
    if not any(s.wait_max_s for s in scores.values()):
        flags.say("Nobody waits in any order: `rltuned traces scale --load 0.9` makes it busier.")
