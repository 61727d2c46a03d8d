"""`rltuned evaluate`: learned policies beside every rule, with paired intervals."""

from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from pydantic import Field

from rltuned.cli import flags
from rltuned.cli.tables import Column, console, show_table
from rltuned.core.decide import Knobs
from rltuned.core.order import DEFAULT
from rltuned.errors import TraceError
from rltuned.lab.cli import options
from rltuned.lab.cli.options import check_folder, progress
from rltuned.lab.replay.protocol import Mode, Protocol
from rltuned.lab.train.settings import LOADS, NAMES, RULES, Amount
from rltuned.policies.actor import Actor
from rltuned.sim.cluster import cluster_named
from rltuned.sim.world import Rules

if TYPE_CHECKING:  # numba and matplotlib, which --help does without
    from rltuned.lab.train import evaluate as evaluation

app = typer.Typer()


@dataclass(frozen=True, slots=True)
class PlaySettings:
    """What --set changes: the part of the trace; the rules beside; seconds between cycles; the
    bounds of delays; the predictor, a folder, `shipped` or `none`.
    """

    part: tuple[float, float] = (0.9, 1.0)
    rules: tuple[str, ...] = RULES
    interval_s: Annotated[float, Field(ge=0.001, le=1e9)] = 60.0
    own: Amount = DEFAULT.own
    share: Amount = DEFAULT.share
    clip: Amount = DEFAULT.clip
    max_delay_s: Amount = DEFAULT.max_delay_s
    predictor: str = options.SHIPPED


@app.command()
def evaluate(
    *,
    model: Annotated[
        list[str],
        typer.Option(
            "--model",
            "-m",
            help="Bundle or plugin:NAME, or NAME=...,... for training seeds of one design; again.",
        ),
    ],
    trace: Annotated[list[Path], typer.Option(help="Trace CSV; again for more.")],
    cluster: Annotated[list[str], typer.Option(help="Cluster TOML or preset; again for more.")],
    load: Annotated[
        list[float] | None,
        typer.Option(
            help=f"Offered; again; 0: the trace's own; none: {', '.join(map(str, LOADS))}.",
            min=0.0,
            max=1_000.0,
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            "--windows", help="None: as many as share no job, at least 3.", min=1, max=100_000
        ),
    ] = None,
    window_jobs: Annotated[int, typer.Option(help="Jobs per window, at most.", min=2)] = 1_024,
    mode: Annotated[
        Mode, typer.Option(help="Once per cycle, as the daemon; or rank at every event.")
    ] = "cycle",
    bounds: options.BoundsOption = "on",
    trust: options.TrustOption = None,
    backfill: options.BackfillOption = "easy",
    backfill_param: options.BackfillParamOption = None,
    report: Annotated[
        Path | None, typer.Option(help="Folder for index.html and results.json.")
    ] = None,
    as_json: flags.JsonOption = False,
    other: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help=f"name=value of {', '.join(f.name for f in fields(PlaySettings))}; again."
        ),
    ] = None,
) -> None:
    """Compare learned policies with every rule on the same windows, placement and backfill.

    Exit codes: 0 = done; 2 = a file, a model or a number cannot be used.
    """
    play, pure = options.set_to(PlaySettings(), other), bounds == "off"
    _check(play, mode, pure=pure)
    slurm = Rules(backfill, parameters=options.parameters_of(backfill, backfill_param))
    order = options.order_of(play.own, play.share, play.clip, play.max_delay_s)
    check_folder(report)
    from rltuned.lab.train import evaluate as evaluation  # noqa: PLC0415 - numba
    from rltuned.lab.train.sources import from_files  # noqa: PLC0415 - torch

    usual = 1.0 if trust is None else trust
    contestants = dict(evaluation.contestant_of(one, usual) for one in model)
    options.trust_of(trust, [seed for seeds in contestants.values() for seed in seeds])
    protocol = Protocol(
        mode,
        play.interval_s,
        knobs=Knobs(top_k=0, order=order),
        bounded=not pure,
        predictor=options.predictor_of(play.predictor),
    )
    sources = from_files(product(trace, map(cluster_named, cluster)))
    every = [
        (
            replace(source.scenario, rules=slurm),
            evaluation.EvaluationPlan(count, window_jobs, at or None, play.part),
        )
        for source, at in product(sources, LOADS if load is None else load)
    ]
    players = {name: evaluation.plays_of(seeds, protocol) for name, seeds in contestants.items()}
    found = []
    with progress() as show:
        for number, (scenario, plan) in enumerate(every):
            show("evaluate", number / len(every))
            found.append(
                evaluation.evaluate_on(scenario, players, plan, rules=play.rules, protocol=protocol)
            )
    if (fewest := min(one.plan.window_jobs for one in found)) < window_jobs:
        flags.warn(f"windows have {fewest} jobs, not {window_jobs}: that part has no room for more")
    if any(not one.disjoint for one in found):
        flags.warn("some windows share jobs: intervals are narrower than the truth")
    cards, headline = (
        {n: _card(seeds) for n, seeds in contestants.items()},
        evaluation.headline(found),
    )
    document = {
        "models": cards,
        "mode": mode,
        "interval_s": play.interval_s if mode == "cycle" else None,
        "bounds": None if protocol.order is None else asdict(protocol.order),
        "headline": headline,
        "verdicts": {name: one.model_dump() for name, one in evaluation.verdicts(found).items()},
        "comparisons": [_plain(one) for one in found],
    }
    if as_json:
        flags.say(options.as_json(document))
    else:
        _show(headline, found)
    if report is not None:
        page = evaluation.write_page(report, found, cards)
        (report / "results.json").write_text(f"{options.as_json(document, 1)}\n")
        flags.warn(f"{page} written")


def _check(play: PlaySettings, mode: Mode, *, pure: bool) -> None:
    """Options that cannot be used are refused before anything is read."""
    if not 0 <= play.part[0] < play.part[1] <= 1:
        raise typer.BadParameter("--set part: from and to, within 0 and 1")
    if mode == "cycle" and pure:
        raise typer.BadParameter("--bounds off: a pure order exists with --mode event only")
    if unknown := [one for one in play.rules if one not in NAMES]:
        raise TraceError(f"no rule named {unknown[0]!r}; there are {', '.join(NAMES)}")


def _card(seeds: "evaluation.Seeds") -> dict[str, object]:
    cards = [seed.card for seed in seeds if isinstance(seed, Actor)]
    return {
        "summary": cards[0].summary if cards else "a policy of another package",
        "seeds": len(seeds),
        "trust": seeds[0].trust,
        "digests": [seed.digest for seed in seeds],
        "commits": [card.git_commit for card in cards],
    }


def _plain(found: "evaluation.Evaluation") -> dict[str, object]:
    return {
        "workload": found.scenario,
        "plan": asdict(found.plan),
        "windows_disjoint": found.disjoint,
        "jobs": found.jobs,
        "policies": found.means(),
        "values": {
            policy: {m: v.tolist() for m, v in table.items()}
            for policy, table in found.values.items()
        },
        "paired": found.paired,
    }


COLUMNS: Final = (
    Column("against"),
    Column("wait_s", right=True),
    Column("wait_p99_s", right=True, goes=2),
    Column("wait_max_s", right=True, goes=3),
    Column("bsld", right=True, goes=1),
    Column("jct_s", right=True, goes=4),
)


def _show(headline: str, comparisons: "list[evaluation.Evaluation]") -> None:
    out = console()
    if headline:  # there is none without `delay` among the rules
        flags.say(headline)
    for found in comparisons:
        load = "own load" if found.plan.load is None else f"load {found.plan.load:g}"
        for model, rules in found.paired.items():
            rows = [
                (rule, *(str(pairs[column.name]) for column in COLUMNS[1:]))
                for rule, pairs in rules.items()
            ]
            show_table(out, COLUMNS, rows, f"{model} on {found.scenario}, {load}")
