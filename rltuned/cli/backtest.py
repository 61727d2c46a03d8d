"""`rltuned backtest`: would it have been worth it, on this site's own history?"""

import json
import math
import os
import shutil
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer

from rltuned.backtest.collect import PACKED, check_new, collect, put
from rltuned.backtest.fit import Lesson, fit_site
from rltuned.backtest.past import Span, past_of
from rltuned.backtest.site import HISTORY, read_site_model
from rltuned.backtest.study import Study, account_names, anonymous, document, run_study
from rltuned.cli.backtested import show
from rltuned.cli.flags import ConfigOption, JsonOption, say, settings_of, warn
from rltuned.cli.progress import Bars, progress
from rltuned.core.decide import Knobs, Policy
from rltuned.daemon.clock import SystemClock
from rltuned.errors import TraceError
from rltuned.policies.actor import load_actor
from rltuned.policies.baselines import BASELINES
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import MODEL_PREFIX, find_bundle, shipped_predictor
from rltuned.settings import Loaded
from rltuned.slurm.accounting import read_history
from rltuned.slurm.commands import Commands
from rltuned.slurm.job_selector import asked_moment
from rltuned.slurm.sacct import lines_of

app = typer.Typer()

BEGUN_FROM: Final = "model:rltune"
SHIPPED: Final = (BEGUN_FROM, "model:rltune-paper", "saf")
TRAINED: Final = "trained here"
LIVE_SINCE: Final = "30d"
SACCT_TIMEOUT_S: Final = 600.0


SiteOption = Annotated[
    Path | None,
    typer.Option(help="Folder with the saved files; without it the live Slurm is asked."),
]
HistoryOption = Annotated[
    Path | None, typer.Option(help="sacct's rows, if not in SITE/sacct.txt or .gz.")
]
CollectOption = Annotated[
    Path | None,
    typer.Option("--collect", help="Only save the live site's files to this new folder."),
]
SinceOption = Annotated[
    str | None,
    typer.Option(help="30d, 12h, or 2026-01-31T12:00. Live: 30d; saved: the first end."),
]
SplitOption = Annotated[
    float,
    typer.Option(
        help="Part of the jobs that comes before rltuned is switched on.", min=0.1, max=0.95
    ),
]
PoliciesOption = Annotated[
    list[str] | None,
    typer.Option("--policy", "-p", help="A rule or model:NAME (or its folder); again."),
]
TrainOption = Annotated[Lesson, typer.Option(help="What is learned from the earlier part.")]
MinutesOption = Annotated[
    float, typer.Option(help="--train full: the longest that PPO may take.", min=0.01)
]
ReportOption = Annotated[
    Path | None, typer.Option(help="New folder: index.html, results.json, the new model.")
]


@app.command()
def backtest(
    *,
    config: ConfigOption = None,
    site: SiteOption = None,
    history: HistoryOption = None,
    collect_to: CollectOption = None,
    since: SinceOption = None,
    until: Annotated[str | None, typer.Option(help="End of the record; live: now.")] = None,
    timezone: Annotated[str, typer.Option(help="Of saved times that name no zone.")] = "UTC",
    split: SplitOption = 0.7,
    policy: PoliciesOption = None,
    train: TrainOption = "predictor",
    train_minutes: MinutesOption = 10.0,
    seed: Annotated[int, typer.Option(help="Of the training.", min=0)] = 1,
    names: Annotated[
        bool, typer.Option("--names", help="Show users and accounts by name.")
    ] = False,
    report: ReportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Play this site's past under Slurm's own order and under rltuned's. Changes nothing.

    Saved files, one folder: config.txt (scontrol show config), nodes.txt (scontrol -o show node),
    partitions.txt (scontrol -o show partition), sacct.txt[.gz]; --collect makes them.

    Exit codes: 0 = done, whatever the outcome; 1 = Slurm could not be asked; 2 = history, site,
    model, settings or a folder cannot be used.
    """
    loaded = settings_of(config)
    for folder in (report, collect_to):
        if folder is not None:
            check_new(folder)
    zone, span = _zone(timezone), Span(_moment(since), _moment(until), split)
    if collect_to is not None:
        with progress() as bar:
            _collect(loaded, collect_to, _live(span), Bars(bar))
        say(f"{collect_to}: saved; rltuned backtest --site {collect_to}")
        return
    shown = list(dict.fromkeys(policy or [loaded.settings.policy.name, *SHIPPED]))
    chosen = {name: _policy(name, loaded) for name in shown}
    settings = loaded.settings
    with tempfile.TemporaryDirectory(prefix="rltuned-backtest-") as work, progress() as bar:
        bars = Bars(bar)
        if site is None:
            span, site = _live(span), Path(work, "site")
            _collect(loaded, site, span, bars)
        rows = _history_file(site, history)
        bars.show(f"reading {rows.name}", 0.0)
        begin = -math.inf if span.begin is None else span.begin
        answer = read_history(lines_of(rows), str(rows), zone, since=begin)
        bars.show(f"reading {rows.name}", 1.0)
        past = past_of(answer, read_site_model(site), span)
        model = find_bundle(settings.policy.models_dir, BEGUN_FROM.removeprefix(MODEL_PREFIX))
        begin_from = load_predictor(shipped_predictor())
        fitted = fit_site(
            train, past, model, begin_from, Path(work, "trained"),
            minutes=train_minutes, seed=seed, report=partial(bars.show, "learning"),
        )  # fmt: skip
        if fitted.bundle is not None:
            chosen = {TRAINED: _policy(f"{MODEL_PREFIX}{fitted.bundle}", loaded), **chosen}
        interval_s = settings.daemon.interval_s
        predictor = begin_from if fitted.fitted is None else fitted.fitted.predictor
        study = run_study(
            past, chosen, interval_s, _knobs(loaded), predictor, names=names, report=bars.show
        )
        asked = {
            "command": " ".join(["rltuned", *sys.argv[1:]]),
            "history": rows.name,
            "orders": ", ".join(chosen),
            "train": train,
            "learned": fitted.text,
            "split": split,
            "interval_s": interval_s,
            "bounds": _bounds(loaded),
            "seed": seed,
        }
        found = document(study, answer, asked)
        found = found if names else anonymous(found, past)
        if report is not None:
            _write(report, study, found, fitted.bundle, names=names)
    if as_json:
        say(json.dumps(found, allow_nan=False))
    else:
        show(found)


def _live(span: Span) -> Span:
    """The same with a beginning and an end."""
    begin = span.begin if span.begin is not None else _moment(LIVE_SINCE)
    return replace(
        span, begin=begin, until=span.until if span.until is not None else SystemClock().now()
    )


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise typer.BadParameter(f"--timezone: no time zone {name!r}") from None


def _moment(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return asked_moment(text, SystemClock().now())
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _collect(loaded: Loaded, folder: Path, span: Span, bars: Bars) -> None:
    cli = replace(loaded.settings.slurm.cli(), timeout_s=SACCT_TIMEOUT_S)
    # sacct takes the times that it is given for local ones, and prints epochs (slurm/commands)
    commands = Commands(cli, environ={**os.environ, "TZ": "UTC"})
    asking = partial(bars.show, "asking sacct")
    for line in collect(commands, folder, span.begin or 0.0, span.until or 0.0, asking):
        warn(line)


def _history_file(place: Path, given: Path | None) -> Path:
    if given is not None:
        return given
    for name in (HISTORY, PACKED):
        if (place / name).is_file():
            return place / name
    raise TraceError(f"{place}: neither {HISTORY} nor {PACKED} in it; --history names another file")


def _policy(name: str, loaded: Loaded) -> Policy:
    """A rule, or the model of a name or a folder.

    Raises:
        TraceError: there is no such rule.
        ModelError: the model cannot be used.
    """
    if name in BASELINES:
        return BASELINES[name]
    if not name.startswith(MODEL_PREFIX):
        known = ", ".join([*BASELINES, "model:NAME"])
        raise TraceError(f"--policy: no rule named {name!r}; there are {known}")
    given = name.removeprefix(MODEL_PREFIX)
    place = Path(given)
    if not place.is_dir():
        place = find_bundle(loaded.settings.policy.models_dir, given)
    return load_actor(place)


def _knobs(loaded: Loaded) -> Knobs:
    """As the daemon runs at stage full; where jobs go is Slurm's business here."""
    knobs = loaded.settings.knobs()
    return replace(knobs, rules=replace(knobs.rules, switchback=None), top_k=0, placement="pack")


def _bounds(loaded: Loaded) -> str:
    order, limits = loaded.settings.order, loaded.settings.limits
    return (
        f"stretch {order.stretch:g}, clip {order.clip:g}, max_delay_s {order.max_delay_s:g}, "
        f"write_mode {limits.write_mode}, max_changes {limits.max_changes}, hysteresis "
        f"{limits.hysteresis:g}, max_changes_per_job_hour {limits.max_changes_per_job_hour}"
    )


def _write(
    folder: Path, study: Study, found: dict[str, Any], bundle: Path | None, *, names: bool
) -> None:
    """The report, whole or not at all."""
    from rltuned.backtest.page import page_of  # noqa: PLC0415 - matplotlib takes a second

    shown = {} if names else account_names(study.past)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as made:
            whole = Path(made, "report")
            whole.mkdir()
            (whole / "index.html").write_text(page_of(study, found, shown), encoding="utf-8")
            (whole / "results.json").write_text(
                json.dumps(found, indent=1, allow_nan=False) + "\n", encoding="utf-8"
            )
            if bundle is not None:
                shutil.copytree(bundle, whole / bundle.name)
            put(whole, folder)
    except OSError as error:
        raise TraceError(f"{folder}: cannot be written: {error.strerror}") from error
    warn(f"report: {folder / 'index.html'}")
