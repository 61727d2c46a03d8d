"""`rltuned tune`: an order from this site's own record, and a verdict on it."""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rltuned.cli.flags import AllOption, ConfigOption, JsonOption, instances, say, settings_of, warn
from rltuned.core.order import Policy
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.wiring import (
    configured_predictor,
    find_policy,
    in_force,
    model_path,
    untuned,
)
from rltuned.errors import ModelError, RltunedError, SettingsError, TooLittleError, TraceError
from rltuned.journal.store import FILE_NAME
from rltuned.lab.backtest.past import Past, Span
from rltuned.lab.backtest.sacct_files import check_new
from rltuned.lab.cli import site_files
from rltuned.lab.cli.options import Bars, progress
from rltuned.lab.compare import DAY_S
from rltuned.policies.actor import Actor
from rltuned.policies.generations import FOLDER
from rltuned.policies.plugins import Plugin
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import bundle_at, shipped_predictor
from rltuned.policies.tune_state import LastWeek, TuneState, write_state
from rltuned.settings import Loaded, Settings
from rltuned.slurm.values import asked_span_s
from rltuned.stats import percent

if TYPE_CHECKING:  # torch and numba, which --help does without
    from rltuned.lab.tune.night import Night, NightPlan
    from rltuned.lab.tune.search import Candidate

app = typer.Typer()

NOTHING: Final = 3
"""Exit code: the record allows no verdict."""
SINCE: Final = "45d"
PAGE: Final = "last-night"
"""Folder of the last page, beside the generations."""
SHIPPED: Final = "rltune"
"""The network whose trust is chosen while a rule is in force."""


SinceOption = Annotated[str, typer.Option(help="Beginning of the record: 45d, or 2026-01-31.")]
TestPeriodOption = Annotated[
    str, typer.Option(help="Length of the test period, the last part of the record: 14d.")
]
MinutesOption = Annotated[float, typer.Option(help="For all of it.", min=0.1)]
SiteOption = Annotated[
    Path | None, typer.Option(help="Folder with saved files, as of `backtest --collect`.")
]
JournalOption = Annotated[
    Path | None,
    typer.Option(help="With --site: the daemon's journal.sqlite, for what sacct lacks."),
]
ReportOption = Annotated[Path | None, typer.Option(help="New folder: index.html, results.json.")]


@app.command()
def tune(
    *,
    config: ConfigOption = None,
    every_one: AllOption = False,
    since: SinceOption = SINCE,
    test_period: TestPeriodOption = "14d",
    minutes: MinutesOption = 40.0,
    site: SiteOption = None,
    journal: JournalOption = None,
    timezone: Annotated[str, typer.Option(help="Of saved times that name no zone.")] = "UTC",
    seed: Annotated[int, typer.Option(help="Of the predictor's fit.", min=0)] = 1,
    report: ReportOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Keep no generation and no state; only say.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Choose an order on this site's own record, and test it. Changes nothing in Slurm.

    What passes becomes a generation: `candidate`, or in force with [tune] promote = "auto".

    Exit codes: 0 = done: kept, proposed or promoted; 1 = Slurm could not be asked; 2 = settings,
    model, record or a folder cannot be used; 3 = the record allows no verdict, and why. With --all,
    which tunes one after the other, the worst of all.
    """
    _check(test_period, since, timezone, several=every_one and site is not None)
    options = _NightOptions(
        since, test_period, minutes, site, journal, timezone, seed, report, dry_run
    )
    night = _each if every_one else _one
    raise typer.Exit(night(config, options, as_json=as_json))


def _check(test_period: str, since: str, timezone: str, *, several: bool) -> None:
    """Options that cannot be used are refused before anything is read."""
    _days(test_period)
    site_files.span_of(since)
    site_files.zone_of(timezone)
    if several:
        raise typer.BadParameter("--site is of one cluster, and --all of several")


@dataclass(frozen=True, slots=True)
class _NightOptions:
    since: str
    test_period: str
    minutes: float
    site: Path | None
    journal: Path | None
    timezone: str
    seed: int
    report: Path | None
    dry_run: bool


def _one(config: Path | None, options: _NightOptions, *, as_json: bool) -> int:
    """The night of one daemon; returns the exit code."""
    found = _tuned(config, options)
    if as_json:
        say(json.dumps(found, allow_nan=False))
    elif "candidates" in found:
        _show(found)
    return NOTHING if found["verdict"] == "nothing" else 0


def _each(config: Path | None, options: _NightOptions, *, as_json: bool) -> int:
    """One night for each daemon of this machine, one after the other; returns the exit code."""
    documents, codes = [], [0]
    for path, _ in instances(config):
        report = None if options.report is None else options.report / path.stem
        try:
            found = _tuned(path, replace(options, report=report))
            codes.append(NOTHING if found["verdict"] == "nothing" else 0)
        except RltunedError as error:
            found = {"verdict": "failed", "why": str(error).splitlines()}
            codes.append(2 if isinstance(error, SettingsError | ModelError | TraceError) else 1)
        documents.append({"instance": path.stem, **found})
        if not as_json and "candidates" in found:
            say(f"{path.stem}:")
            _show(found)
        elif not as_json:
            say(f"{path.stem}: {found['verdict']}: {'; '.join(found['why'])}")
    if as_json:
        say(json.dumps({"instances": documents}, allow_nan=False))
    return max(codes, key=(0, NOTHING, 1, 2).index)


def _tuned(config: Path | None, options: _NightOptions) -> dict[str, Any]:
    """One night, as --json prints it. Raises RltunedError: it came to no end, and why."""
    from rltuned.lab.tune.results import NightState, concluded, document  # noqa: PLC0415 - torch

    report, dry_run, site = options.report, options.dry_run, options.site
    given = settings_of(config)
    if report is not None:
        check_new(report)
    days, zone = _days(options.test_period), site_files.zone_of(options.timezone)
    span = site_files.span_of(options.since if site is None or options.since != SINCE else None)
    state = NightState(given.settings, dry_run=dry_run)
    loaded = in_force(given, SystemClock().now())
    policy = _policy(loaded)
    with tempfile.TemporaryDirectory(prefix="rltuned-tune-") as work, progress() as bar:
        bars = Bars(bar)
        journal = options.journal
        if site is None:
            site = Path(work, "site")
            span, journal = _asked_of_slurm(loaded.settings, site, span, options, bars.show)
        week = None
        try:
            past, sources = site_files.read_with_journal(site, journal, zone, span, bars.show)
            week = _last_week(loaded, past, bars.show, dry_run=dry_run)
            plan = _asked(loaded, policy, days, options)
            plan = replace(plan, default=_default(given, loaded))
            night = _spend(loaded, past, plan, bars.show)
        except TooLittleError as error:
            state.end(TuneState(verdict="nothing", sentence=str(error)))
            week = week or _kept(loaded, _not_replayed(error), dry_run=dry_run)
            warn(f"nothing tuned: {error}")
            return {"verdict": "nothing", "why": [str(error)], "last_week": _week_json(week)}
        found = document(night, _terms(loaded.settings, options), sources)
        found["last_week"] = _week_json(week)
        found |= concluded(loaded.settings, night, found, state, dry_run=dry_run)
        if report is not None:
            _write(report, night, found)
            warn(f"report: {report / 'index.html'}")
        if not dry_run:
            page = loaded.settings.daemon.state_dir / FOLDER / PAGE
            shutil.rmtree(page, ignore_errors=True)
            _write(page, night, found)
    return found


def _asked_of_slurm(
    settings: Settings, site: Path, span: Span, options: _NightOptions, show: site_files.Show
) -> tuple[Span, Path | None]:
    """Save the live site's files; the span of the record, and the journal for what sacct lacks."""
    span = site_files.live(span, options.since)
    kept = settings.daemon.state_dir / FILE_NAME
    journal = options.journal or (kept if kept.exists() else None)
    site_files.collect_live(settings.slurm, site, span, show, has_other=journal is not None)
    return span, journal


def _last_week(loaded: Loaded, past: Past, show: site_files.Show, *, dry_run: bool) -> LastWeek:
    """What the order in force would have done last week, for the daemon to show from now on."""
    from rltuned.lab.backtest.study import as_daemon  # noqa: PLC0415 - numba
    from rltuned.lab.tune.night import replayed  # noqa: PLC0415

    show("replaying last week", 0.0)
    order, daemon = _candidate(loaded), as_daemon(loaded.settings)
    try:
        found = replayed(past, order, daemon, SystemClock().now())
    except TooLittleError as error:
        found = _not_replayed(error)
    return _kept(loaded, found, dry_run=dry_run)


def _not_replayed(error: TooLittleError) -> LastWeek:
    return LastWeek(at=SystemClock().now(), why=str(error))


def _kept(loaded: Loaded, week: LastWeek, *, dry_run: bool) -> LastWeek:
    if not dry_run:
        write_state(loaded.settings.daemon.state_dir, week)
    warn(week.sentence(week.at))
    return week


def _week_json(week: LastWeek) -> dict[str, Any]:
    return week.model_dump() | {"sentence": week.sentence(week.at)}


def _terms(settings: Settings, options: _NightOptions) -> dict[str, Any]:
    return {
        "command": " ".join(["rltuned", *sys.argv[1:]]),
        "since": options.since,
        "exam": options.test_period,
        "minutes": options.minutes,
        "seed": options.seed,
        "promote": settings.tune.promote,
        "interval_s": settings.daemon.interval_s,
    }


def _days(text: str) -> float:
    days = (asked_span_s(text) or 0.0) / DAY_S
    if days <= 0:
        raise typer.BadParameter(f"--test-period: {text!r} is no length of time, as 14d")
    return days


def _policy(loaded: Loaded) -> Policy:
    """The incumbent's. Raises TraceError: it is another package's, which the kernel cannot play."""
    policy = find_policy(loaded)[0]
    if isinstance(policy, Plugin):
        raise TraceError(f"policy.name: {policy.name} plays in rltuned simulate only")
    return policy


def _asked(loaded: Loaded, policy: Policy, days: float, options: _NightOptions) -> "NightPlan":
    from rltuned.lab.tune.night import NightPlan  # noqa: PLC0415 - numba

    settings = loaded.settings
    place = bundle_at(SHIPPED, settings.policy.models_dir)
    if isinstance(policy, Actor):
        place = model_path(loaded)
    return NightPlan(
        test_days=days,
        minutes=options.minutes,
        price=settings.tune.longest,
        shipped=load_predictor(shipped_predictor()),
        network=place if place.is_dir() else None,
        learn=settings.predictor.enabled,
        seed=options.seed,
    )


def _default(given: Loaded, loaded: Loaded) -> "Candidate | None":
    """The order without a generation; None = it is in force. Raises ModelError."""
    if not loaded.generation:
        return None
    return _candidate(replace(given, settings=untuned(given.settings)))


def _candidate(loaded: Loaded) -> "Candidate":
    """The order of the settings."""
    from rltuned.lab.tune.search import Candidate  # noqa: PLC0415 - numba

    settings, policy = loaded.settings, _policy(loaded)
    predictor = configured_predictor(settings) if settings.predictor.enabled else None
    bundle = model_path(loaded) if isinstance(policy, Actor) else None
    order = settings.order
    return Candidate(policy, order.own, order.share, order.max_delay_s, predictor, bundle=bundle)


def _spend(
    loaded: Loaded, past: Past, plan: "NightPlan", show: Callable[[str, float], None]
) -> "Night":
    from rltuned.lab.backtest.study import as_daemon  # noqa: PLC0415 - numba
    from rltuned.lab.tune.night import spend  # noqa: PLC0415

    def report(what: str, part: float) -> None:
        show("tuning", part)
        if what.startswith("power:"):
            warn(what)

    daemon, clock = as_daemon(loaded.settings), SystemClock()
    incumbent = _candidate(loaded)
    return spend(past, incumbent, daemon, plan, clock=clock.monotonic, report=report)


def _show(found: dict[str, Any]) -> None:
    say(found["sentence"])
    for text in (*found["why"], *found["plain"], found["record"]["sources"]["text"]):
        say(f"  {text}")
    for one in found["candidates"]:
        change = (one["exam"] or one["lesson"])["objective"]
        where = "test" if one["exam"] else "training"
        say(f"{one['order']:<72} {where} {percent(**change)}")
        for text in one["why"]:
            say(f"    {text}")
    for name, text in found["left_out"].items():
        say(f"{name}: not played: {text}")


def _write(folder: Path, night: "Night", found: dict[str, Any]) -> None:
    from rltuned.lab.tune.results import page_of  # noqa: PLC0415 - matplotlib takes a second

    site_files.write_report(folder, page_of(night, found), found)
