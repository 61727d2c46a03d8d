"""`rltuned evaluate`: learned policies beside every rule, with paired intervals."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rltuned.cli import flags
from rltuned.cli.tables import Column, console, show_table
from rltuned.core.decide import Knobs
from rltuned.core.order import DEFAULT
from rltuned.errors import TraceError
from rltuned.lab.cli import options
from rltuned.lab.cli.options import check_folder, progress
from rltuned.lab.compare import SHARES, Paired
from rltuned.lab.replay.protocol import Mode, Protocol
from rltuned.lab.train.settings import LOADS, NAMES, RULES
from rltuned.policies.actor import Actor
from rltuned.sim.cluster import cluster_named
from rltuned.sim.world import Rules

if TYPE_CHECKING:  # numba and matplotlib, which --help does without
    from rltuned.lab.replay.scenario import Scenario
    from rltuned.lab.train import evaluate as evaluation

app = typer.Typer()

_PLUGIN: Final = "a policy of another package"

ModelOption = Annotated[
    list[str],
    typer.Option(
        "--model",
        "-m",
        help="Bundle or plugin:NAME, or NAME=...,... for training seeds of one design; again for "
        "more.",
    ),
]
LoadOption = Annotated[
    list[float] | None,
    typer.Option(
        help=f"Offered; again for more; 0: the trace's own; none: {', '.join(map(str, LOADS))}.",
        min=0.0,
        max=1_000.0,
    ),
]
WindowsOption = Annotated[
    int | None,
    typer.Option(
        "--windows", help="None: as many as share no job, at least 3.", min=1, max=100_000
    ),
]
PartOption = Annotated[
    tuple[float, float], typer.Option(help="Of the trace, from and to; 0 1 = all of it.")
]
RandomOption = Annotated[
    bool, typer.Option("--random", help="At random places, as the paper; they may share jobs.")
]
CopiesOption = Annotated[
    int,
    typer.Option(help="Of each window, with submits moved by up to a minute.", min=1, max=1_000),
]
ModeOption = Annotated[
    Mode, typer.Option(help="Once per cycle, as the daemon; or rank at every event.")
]
RuleOption = Annotated[
    list[str] | None, typer.Option("--rule", help="Only these rules; default: all.")
]
ReportOption = Annotated[Path | None, typer.Option(help="Folder for index.html and results.json.")]


@app.command()
def evaluate(
    *,
    model: ModelOption,
    trace: Annotated[list[Path], typer.Option(help="Trace CSV; again for more.")],
    cluster: Annotated[list[str], typer.Option(help="Cluster TOML or preset; again for more.")],
    load: LoadOption = None,
    count: WindowsOption = None,
    window_jobs: Annotated[int, typer.Option(help="Jobs per window, at most.", min=2)] = 1_024,
    part: PartOption = (0.9, 1.0),
    random: RandomOption = False,
    copies: CopiesOption = 1,
    seed: Annotated[int, typer.Option(help="Of random places and moved submits.", min=0)] = 1,
    mode: ModeOption = "cycle",
    interval: options.IntervalOption = 60.0,
    backfill: options.BackfillOption = "easy",
    backfill_param: options.BackfillParamOption = None,
    bounds: options.BoundsOption = options.OnOff.ON,
    own: options.OwnOption = DEFAULT.own,
    share: options.ShareOption = DEFAULT.share,
    clip: options.ClipOption = DEFAULT.clip,
    max_delay: options.MaxDelayOption = DEFAULT.max_delay_s,
    trust: options.TrustOption = None,
    predictor: options.PredictorOption = options.SHIPPED,
    rule: RuleOption = None,
    report: ReportOption = None,
    as_json: flags.JsonOption = False,
) -> None:
    """Compare learned policies with every rule on the same windows, placement and backfill.

    Exit codes: 0 = done; 2 = a file, a model or a number cannot be used.
    """
    if not 0 <= part[0] < part[1] <= 1:
        raise typer.BadParameter("--part: from and to, within 0 and 1")
    rules, parameters = _rules(rule), options.parameters_of(backfill, backfill_param)
    if mode == "cycle" and bounds is options.OnOff.OFF:
        raise typer.BadParameter("--bounds off: a pure order exists with --mode event only")
    check_folder(report)
    from rltuned.lab.train import evaluate as evaluation  # noqa: PLC0415 - numba
    from rltuned.lab.train.sources import from_files  # noqa: PLC0415 - torch

    usual = 1.0 if trust is None else trust
    contestants = dict(evaluation.contestant_of(one, usual) for one in model)
    options.trust_of(trust, [seed for seeds in contestants.values() for seed in seeds])
    sources = from_files(product(trace, map(cluster_named, cluster)))
    plans = [
        evaluation.EvaluationPlan(
            count, window_jobs, at or None, part, random=random, copies=copies, seed=seed
        )
        for at in (LOADS if load is None else load)
    ]
    knobs = Knobs(top_k=0, order=options.order_of(own, share, clip, max_delay))
    protocol = Protocol(
        mode,
        interval,
        knobs=knobs,
        bounded=bounds is options.OnOff.ON,
        predictor=options.predictor_of(predictor),
    )
    slurm = Rules(backfill, parameters=parameters)
    scenarios = [replace(s.scenario, rules=slurm) for s in sources]
    found = _play(scenarios, contestants, plans, rules, protocol)
    _warn(found, window_jobs)
    document = {
        "models": _cards(contestants),
        "mode": protocol.mode,
        "interval_s": protocol.interval_s if protocol.mode == "cycle" else None,
        "bounds": None if protocol.order is None else asdict(protocol.order),
        "headline": evaluation.headline(found),
        "verdicts": {name: one.model_dump() for name, one in evaluation.verdicts(found).items()},
        "comparisons": [_plain(c) for c in found],
    }
    if as_json:
        flags.say(json.dumps(document))
    else:
        flags.say(evaluation.headline(found))
        _show(found)
    if report is not None:
        _report(report, found, document)


def _rules(asked: list[str] | None) -> tuple[str, ...]:
    """Without what is named twice. Raises TraceError: there is no such rule."""
    rules = tuple(dict.fromkeys(asked or RULES))
    if unknown := [rule for rule in rules if rule not in NAMES]:
        raise TraceError(f"no rule named {unknown[0]!r}; there are {', '.join(NAMES)}")
    return rules


def _warn(found: "list[evaluation.Evaluation]", window_jobs: int) -> None:
    """That windows are other than was asked for."""
    if (fewest := min(one.plan.window_jobs for one in found)) < window_jobs:
        flags.warn(f"windows have {fewest} jobs, not {window_jobs}: that part has no room for more")
    if any(not one.disjoint for one in found):
        flags.warn("some windows share jobs: intervals are narrower than the truth")


def _report(
    folder: Path,
    found: "Sequence[evaluation.Evaluation]",
    document: dict[str, Any],
) -> None:
    from rltuned.lab.train.pages import write_page  # noqa: PLC0415 - matplotlib takes a second

    page = write_page(folder, found, document["models"])
    (folder / "results.json").write_text(json.dumps(document, indent=1) + "\n")
    flags.warn(f"{page} written")


def _play(
    scenarios: "list[Scenario]",
    contestants: "Mapping[str, evaluation.Seeds]",
    plans: "list[evaluation.EvaluationPlan]",
    rules: tuple[str, ...],
    protocol: Protocol,
) -> "list[evaluation.Evaluation]":
    from rltuned.lab.train.evaluate import evaluate_on, plays_of  # noqa: PLC0415 - numba

    players = len(rules) + sum(map(len, contestants.values()))
    fitted = [plan.in_scenario(scenario) for scenario in scenarios for plan in plans]
    steps = sum((plan.windows or 1) * plan.copies for plan in fitted) * players
    with progress() as bar:
        task = bar.add_task("evaluate", total=steps)
        return [
            evaluate_on(
                scenario,
                {name: plays_of(seeds, protocol) for name, seeds in contestants.items()},
                plan,
                rules=rules,
                protocol=protocol,
                on_window=lambda policy: bar.update(task, advance=1, description=policy),
            )
            for scenario in scenarios
            for plan in plans
        ]


def _cards(contestants: "Mapping[str, evaluation.Seeds]") -> dict[str, dict[str, object]]:
    return {
        name: {
            "summary": next((s.card.summary for s in seeds if isinstance(s, Actor)), _PLUGIN),
            "seeds": len(seeds),
            "trust": seeds[0].trust,
            "digests": [s.digest for s in seeds],
            "commits": [s.card.git_commit for s in seeds if isinstance(s, Actor)],
        }
        for name, seeds in contestants.items()
    }


def _plain(found: "evaluation.Evaluation") -> dict[str, object]:
    return {
        "workload": found.scenario,
        "plan": asdict(found.plan),
        "unit_of_chance": found.plan.unit,
        "windows_disjoint": found.disjoint,
        "jobs": found.jobs,
        "policies": found.means(),
        "values": {
            policy: {m: v.tolist() for m, v in table.items()}
            for policy, table in found.values.items()
        },
        "paired": {
            model: {rule: {m: _pair(p) for m, p in table.items()} for rule, table in rules.items()}
            for model, rules in found.paired.items()
        },
        "closed_of_fcfs_to_clairvoyant": found.closed,
        "shares": SHARES.tolist(),
        "single_jobs": {
            policy: {m: v.tolist() for m, v in table.items()}
            for policy, table in found.spread.items()
        },
    }


def _pair(found: Paired) -> dict[str, object]:
    """As the results have been written since 0.1.0."""
    geometric = found.geometric
    ends = {"geometric_low": geometric.low, "geometric_high": geometric.high}
    plain = asdict(found) | {"geometric": geometric.change} | ends
    return {name: value for name, value in plain.items() if name not in {"base", "own"}}


COLUMNS: Final = (
    Column("against"),
    Column("wait_s", right=True),
    Column("wait_p99_s", right=True, goes=2),
    Column("wait_max_s", right=True, goes=3),
    Column("bsld", right=True, goes=1),
    Column("jct_s", right=True, goes=4),
)


def _show(comparisons: "list[evaluation.Evaluation]") -> None:
    out = console()
    for found in comparisons:
        for model, rules in found.paired.items():
            load = "own load" if found.plan.load is None else f"load {found.plan.load:g}"
            rows = [
                (rule, *(str(pairs[column.name]) for column in COLUMNS[1:]))
                for rule, pairs in rules.items()
            ]
            show_table(out, COLUMNS, rows, f"{model} on {found.scenario}, {load}")
