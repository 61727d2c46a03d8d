"""`rltuned backtest`: would it have been worth it, on this site's own history?"""

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from rltuned.cli.flags import ConfigOption, JsonOption, say, settings_of, warn
from rltuned.cli.tables import Column, console, show_table
from rltuned.core.decide import Policy
from rltuned.core.order import DEFAULT as PLAIN
from rltuned.core.slurm_plan import Parameters
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.wiring import in_force
from rltuned.errors import TooLittleError, TraceError
from rltuned.lab.backtest.past import Past
from rltuned.lab.backtest.sacct_files import check_new
from rltuned.lab.cli import options, site_files
from rltuned.lab.cli.options import Bars, progress
from rltuned.lab.compare import Change
from rltuned.lab.replay.protocol import BY_DEFAULT, DEFAULT, Protocol
from rltuned.policies.generations import TUNED
from rltuned.policies.plugins import Plugin, policy_named
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.settings import Loaded, Settings
from rltuned.sim.dispatch import BackfillRule
from rltuned.stats import percent

if TYPE_CHECKING:
    from rltuned.lab.backtest.study import Study

# The last part of `rltuned backtest`: the setting that the record speaks for.


SEARCH_COLUMNS: Final = (
    Column("after the switch", least=14),
    Column("mean wait, s", right=True),
    Column("change", right=True),
    Column("p99 wait, s", right=True, goes=1),
    Column("longest, s", right=True),
)


def chosen_setting(loaded: Loaded, past: Past) -> dict[str, Any]:
    """The choice of a night, of the part before the switch, tested on the part after it: `sentence`
    and `lines` to write, and what spend finds; a sentence alone where there can be no choice.
    Raises ModelError: the policy cannot be used.
    """
    from rltuned.lab.backtest.study import as_daemon  # noqa: PLC0415 - numba
    from rltuned.lab.tune.night import spend  # noqa: PLC0415 - torch
    from rltuned.lab.tune.search import candidate_of, policies_of, training_before  # noqa: PLC0415

    settings, split_s = loaded.settings, past.split_s
    nothing: dict[str, Any] = {"lines": [], "candidates": [], "plain": []}
    if settings.policy.name == TUNED:
        return nothing | {"sentence": "`rltuned tune` chooses and tests where policy.name = tuned"}
    try:
        now = candidate_of(loaded)
        plain = policy_named(DEFAULT.name, trust=DEFAULT.trust)
        own, share, max_delay_s = PLAIN.own, PLAIN.share, PLAIN.max_delay_s
        default = replace(now, policy=plain, own=own, share=share, max_delay_s=max_delay_s)
        _, *training_s = training_before(past, split_s)
        found, won, _ = spend(
            past,
            (training_s[0], training_s[1], split_s),
            now,
            as_daemon(settings),
            price=settings.tune.longest,
            policies=policies_of(now.policy, settings.policy.models_dir),
            others=[default, now.first_come()],
        )
    except (TooLittleError, TraceError) as error:
        return nothing | {"sentence": f"No setting is chosen: {error}."}
    if won is None:
        return found | {"sentence": f"{now.name} stays: {found['why'][0]}.", "lines": []}
    lines = ["[order]", f"own = {won.own:g}", f"share = {won.share:g}"]
    if won.own or won.share:
        trust = [] if won.policy.trust is None else [f"trust = {won.policy.trust:g}"]
        lines = ["[policy]", f'name = "{won.policy.name}"', *trust, *lines]
        lines.append(f"max_delay_s = {won.max_delay_s:g}")
    return found | {"sentence": f"{won.name} is better here. Write:", "lines": lines}


def show_choice(found: dict[str, Any]) -> None:
    """The orders side by side, the sentence, and the lines to write."""
    tested = [one for one in found["candidates"] if one["period"] == "test"]
    if tested:
        rows = [_row("in force: ", found["incumbent"]), *(_row("", one) for one in tested)]
        show_table(console(), SEARCH_COLUMNS, rows)
    say(found["sentence"])
    for text in (*found["lines"], *found["plain"]):
        say(f"  {text}")


def _row(what: str, order: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{what}{order['order']}",
        f"{order['wait_s']:.0f}",
        percent(**order["wait"]) if "wait" in order else "",
        f"{order['wait_p99_s']:.0f}",
        f"{order['wait_max_s']:.0f}",
    )


app = typer.Typer()

SHIPPED: Final = ("model:rltune", "model:rltune-paper", "saf")
LEFT_OUT_SHOWN: Final = 8


SiteOption = Annotated[
    Path | None,
    typer.Option(help="Folder with the saved files; without it the live Slurm is asked."),
]
CollectOption = Annotated[
    Path | None,
    typer.Option("--collect", help="Only save the live site's files to this new folder."),
]
SinceOption = Annotated[
    str | None, typer.Option(help="30d, 12h, or 2026-01-31T12:00. Live: 30d; saved: the first end.")
]
SplitOption = Annotated[
    float,
    typer.Option(
        help="Part of the jobs that comes before rltuned is switched on.", min=0.1, max=0.95
    ),
]
PoliciesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--policy", "-p", help="A rule, `default`, model:NAME (or its folder), plugin:NAME; again."
    ),
]
TrainOption = Annotated[
    Literal["none", "predictor"], typer.Option(help="What is learned from the earlier part.")
]
ChooseOption = Annotated[
    bool,
    typer.Option(help="Choose own, share, max_delay_s on the earlier part: some 30 more plays."),
]
BackfillOption = Annotated[
    BackfillRule | None,
    typer.Option(help="none given: what this Slurm plays, by its SchedulerParameters; or easy."),
]
WhatIfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--what-if", help="A SchedulerParameters setting, as bf_max_job_test=1000; again for more."
    ),
]
ReportOption = Annotated[Path | None, typer.Option(help="New folder: index.html, results.json.")]


@app.command()
def backtest(
    *,
    config: ConfigOption = None,
    site: SiteOption = None,
    collect_to: CollectOption = None,
    since: SinceOption = None,
    split: SplitOption = 0.7,
    trust: options.TrustOption = None,
    policy: PoliciesOption = None,
    train: TrainOption = "predictor",
    backfill: BackfillOption = None,
    what_if: WhatIfOption = None,
    names: Annotated[
        bool, typer.Option("--names", help="Show users and accounts by name.")
    ] = False,
    choose: ChooseOption = True,
    report: ReportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Play this site's past under Slurm's own order and under rltuned's. Changes nothing.

    Ends with the lines of [order] to write, or that the setting stays.

    Saved files, one folder: config.txt (scontrol show config), nodes.txt (scontrol -o show node),
    partitions.txt (scontrol -o show partition), sacct.txt[.gz]; --collect makes them.

    Exit codes: 0 = done, whatever the outcome; 1 = Slurm could not be asked; 2 = history, site,
    model, settings or a folder cannot be used.
    """
    loaded = settings_of(config, ("policy.trust", trust, "--trust"))
    for folder in filter(None, (report, collect_to)):
        check_new(folder)
    settings = in_force(loaded, SystemClock().now()).settings
    span = site_files.span_of(since, split)
    if collect_to is not None:
        with progress() as bar:
            site_files.collect_live(
                settings.slurm, collect_to, site_files.live(span), Bars(bar).show
            )
        say(f"{collect_to}: saved; rltuned backtest --site {collect_to}")
        return
    from rltuned.lab.backtest.study import (  # noqa: PLC0415 - torch
        anonymous,
        as_daemon,
        document,
        fit_site,
        run_study,
    )

    shown = list(dict.fromkeys(policy or [loaded.settings.policy.name, *SHIPPED]))
    chosen = _policies(shown, loaded, trust)
    with tempfile.TemporaryDirectory(prefix="rltuned-backtest-") as work, progress() as bar:
        bars = Bars(bar)
        if site is None:
            span, site = site_files.live(span), Path(work, "site")
            site_files.collect_live(settings.slurm, site, span, bars.show)
        rows = site_files.history_file(site)
        answer, past = site_files.read_record(
            site, rows, span, bars.show, backfill=_backfill(backfill, chosen, what_if)
        )
        predictor, fitted = load_predictor(shipped_predictor()), None
        learned = "nothing was learned from the earlier part (--train none)"
        if train == "predictor":
            bars.show("learning", 0.0)
            fitted, learned = fit_site(past, predictor)
        predictor = predictor if fitted is None else fitted.predictor
        protocol = replace(as_daemon(settings), predictor=predictor)
        study = run_study(past, chosen, protocol, names=names, report=bars.show)
        asked = {
            "command": " ".join(["rltuned", *sys.argv[1:]]),
            "history": rows.name,
            "orders": ", ".join(chosen),
            "train": train,
            "learned": learned,
            "split": split,
            "interval_s": protocol.interval_s,
            "bounds": _bounds(settings),
            "trust": loaded.settings.policy.trust,
        }
        found = document(study, answer, asked) | {
            "choice": chosen_setting(loaded, past) if choose else None
        }
        found["what_if"] = _what_if(study, what_if, protocol)
        found = found if names else anonymous(found, past)
        if report is not None:
            _report(report, study, found, names=names)
    if as_json:
        say(json.dumps(found, allow_nan=False))
    else:
        _show(found)


def _backfill(
    given: BackfillRule | None, policies: Mapping[str, Policy], what_if: list[str] | None
) -> BackfillRule | None:
    """What is played; None = as the site. Raises BadParameter: another package's policy cannot,
    or it has no such setting.
    """
    options.changed(Parameters(), what_if or (), "--what-if")
    if what_if and given not in {None, "slurm"}:
        raise typer.BadParameter("--what-if: only sched/backfill has these settings")
    if not any(isinstance(one, Plugin) for one in policies.values()):
        return given
    if given == "slurm" or what_if:
        raise typer.BadParameter("a policy of another package plays with --backfill easy alone")
    return given or "easy"


def _what_if(study: "Study", given: list[str] | None, protocol: Protocol) -> list[dict[str, Any]]:
    """What each setting would change, alone."""
    from rltuned.lab.backtest.study import other_setting  # noqa: PLC0415

    site = study.past.site
    if given and site.backfill != "slurm":
        raise TraceError("--what-if: SchedulerType is not sched/backfill here")
    return [
        other_setting(study, text, options.changed(site.parameters, [text], "--what-if"), protocol)
        for text in given or ()
    ]


def _report(folder: Path, study: "Study", found: dict[str, Any], *, names: bool) -> None:
    from rltuned.lab.backtest.study import account_names, page_of  # noqa: PLC0415 - numba

    accounts = {} if names else account_names(study.past)
    site_files.write_report(folder, page_of(study, found, accounts), found)
    warn(f"report: {folder / 'index.html'}")


def _policies(names: list[str], loaded: Loaded, trust: float | None) -> dict[str, Policy]:
    """All of them by name. Raises ModelError; BadParameter: --trust, and no network."""
    found = {name: _policy(name, loaded) for name in names}
    options.trust_of(trust, found.values())
    return found


def _policy(name: str, loaded: Loaded) -> Policy:
    """A rule, a model, a policy of another package, or what nights have put in force. Raises
    ModelError: it cannot be used.
    """
    if name == BY_DEFAULT:
        return policy_named(DEFAULT.name, trust=DEFAULT.trust)
    if name == TUNED:
        served = in_force(loaded, SystemClock().now()).settings.policy
        return policy_named(served.name, served.models_dir, served.trust)
    asked = loaded.settings.policy
    return policy_named(name, asked.models_dir, asked.trust)


def _bounds(settings: Settings) -> str:
    order, limits, knobs = settings.order, settings.limits, settings.knobs()
    return (
        f"own {order.own:g}, share {order.share:g}, clip {knobs.order.clip:g}, "
        f"max_delay_s {order.max_delay_s:g}, "
        f"write_mode {limits.write_mode}, max_changes {limits.max_changes}, hysteresis "
        f"{limits.hysteresis:g}, changes per job and hour {knobs.rules.max_writes_per_hour}"
    )


# -- the short form for a terminal: how far the simulator is off first ---------------------------


def _show(found: dict[str, Any]) -> None:
    for line in _lines_before(found):
        say(line)
    show_table(console(), COLUMNS, list(_rows(found)))
    for line in _lines_after(found):
        say(line)
    if found["choice"] is not None:
        show_choice(found["choice"])


def _lines_before(found: dict[str, Any]) -> Iterator[str]:
    yield found["headline"]
    whole, real, record = found["calibration"]["whole"], found["real"]["later"], found["record"]
    yield (
        f"{record['cluster']}: {record['jobs_scored']} jobs, {record['begin']} to {record['until']}"
    )
    mean = whole["mean"]
    off = "no job waited" if mean["change"] is None else f"mean wait off by {mean['change']:+.1%}"
    rank = "" if whole["rank"] is None else f", rank correlation {whole['rank']:.2f}"
    yield f"simulator: {off}{rank}; {found['calibration']['means']}"
    yield f"backfill played: {found['backfill']}"
    yield (
        f"judged by the {record['jobs_later']} jobs from {record['switch']} on; in truth they "
        f"waited {real['wait_s']:.0f} s in the mean"
    )
    yield found["asked"]["learned"]


COLUMNS: Final = (
    Column("order", least=14),
    Column("mean wait, s", right=True),
    Column("change", right=True),
    Column("p95 wait, s", right=True, goes=1),
    Column("slowdown", right=True, goes=2),
    Column("earlier", right=True, goes=3),
    Column("later", right=True, goes=3),
    Column("changes/h", right=True, goes=4),
)


def _rows(found: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    first = next(iter(found["orders"].values()))["metrics"]
    base = [f"{first[m]['base']:.{n}f}" for m, n in (("wait_s", 0), ("wait_p95_s", 0), ("bsld", 2))]
    yield ("multifactor, simulated", base[0], "", *base[1:], "", "", "")
    for name, order in found["orders"].items():
        metrics, change = order["metrics"], order["metrics"]["wait_s"]
        yield (
            name,
            f"{metrics['wait_s']['own']:.0f}",
            "-" if change["change"] is None else str(Change(**change)),
            f"{metrics['wait_p95_s']['own']:.0f}",
            f"{metrics['bsld']['own']:.2f}",
            f"{order['better']:.0%}",
            f"{order['worse']:.0%}",
            f"{order['moved']['per_hour']:.1f}",
        )


def _lines_after(found: dict[str, Any]) -> Iterator[str]:
    record = found["record"]
    left = sum(record["left_out"].values())
    yield f"{left} of {record['rows']} rows are not played" + (":" if left else "")
    for why, count in list(record["left_out"].items())[:LEFT_OUT_SHOWN]:
        yield f"  {count} {why}"
    for one in found["what_if"]:
        yield f"with {one['change']}: mean wait " + "; ".join(
            f"under {order} {Change(**change)}" for order, change in one["wait_s"].items()
        )
        yield f"  {one['line']}"
    for text in record["site_left_out"][:LEFT_OUT_SHOWN]:
        yield f"not played: {text}"
