"""`rltuned tune`: an order from this site's own record, and a verdict on it."""

import math
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from rltuned.cli.flags import ConfigOption, JsonOption, say, settings_of, warn
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.wiring import in_force, untuned
from rltuned.errors import TooLittleError
from rltuned.journal.cycles import recorded
from rltuned.journal.store import FILE_NAME
from rltuned.lab.backtest.past import Past, Span, past_of
from rltuned.lab.backtest.sacct_files import Report, check_new, history_file, saved_history
from rltuned.lab.backtest.site import read_site_model
from rltuned.lab.cli import options
from rltuned.lab.compare import DAY_S
from rltuned.lab.tune.journal_history import history_of
from rltuned.policies.generations import FOLDER, Generations, read_state, write_state
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.report import render
from rltuned.settings import Loaded, Settings
from rltuned.slurm.accounting import SacctAnswer
from rltuned.slurm.values import asked_span_s
from rltuned.stats import percent

app = typer.Typer()

NOTHING: Final = 3
"""Exit code: the record allows no verdict."""
SINCE: Final = "45d"
PAGE: Final = "last-night"
"""Folder of the last page, beside the generations."""


@app.command()
def tune(
    *,
    config: ConfigOption = None,
    since: Annotated[
        str | None, typer.Option(help="Beginning of the record: 45d, or 2026-01-31. Live: 45d.")
    ] = None,
    test_period: Annotated[
        str, typer.Option(help="Length of the test period, the last part of the record: 14d.")
    ] = "14d",
    minutes: Annotated[float, typer.Option(help="For all of it.", min=0.1)] = 40.0,
    site: Annotated[
        Path | None, typer.Option(help="Saved files, as of `backtest --collect`; journal.sqlite.")
    ] = None,
    report: options.ReportOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Keep no generation and no state; only say.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Choose an order on this site's own record, and test it. Changes nothing in Slurm.

    What passes becomes a generation: `candidate`, or in force with [tune] promote = "auto".

    Exit codes: 0 = done: kept, proposed or promoted; 1 = Slurm could not be asked; 2 = settings,
    model, record or a folder cannot be used; 3 = the record allows no verdict, and why.
    """
    if (test_s := asked_span_s(test_period) or 0.0) <= 0:
        raise typer.BadParameter(f"--test-period: {test_period!r} is no length of time, as 14d")
    span = options.span_of(since, live="" if site else SINCE)
    given = settings_of(config)
    if report is not None:
        check_new(report)
    found = _night(
        given, site, span, test_days=test_s / DAY_S, minutes=minutes, report=report, dry_run=dry_run
    )
    if as_json:
        say(options.as_json(found))
    else:
        say(found["last_week"]["sentence"])
        if "candidates" in found:
            _show(found)
    raise typer.Exit(NOTHING if found["verdict"] == "nothing" else 0)


def _show(found: dict[str, Any]) -> None:
    for text in (found["sentence"], *found["why"], *found["plain"]):
        say(text)
    for one in found["candidates"]:
        said = f"{one['period']} {percent(**one['objective'])}"
        say(f"{one['order']:<72} {said}: {'; '.join(one['why']) or 'better'}")
    for what, text in found["left_out"].items():
        say(f"{what}: not played: {text}")


def _night(
    given: Loaded,
    site: Path | None,
    span: Span,
    *,
    test_days: float,
    minutes: float,
    report: Path | None,
    dry_run: bool,
) -> dict[str, Any]:
    """One night, as --json prints it. Raises RltunedError: it came to no end, and why."""
    from rltuned.lab.backtest.study import as_daemon  # noqa: PLC0415 - numba
    from rltuned.lab.tune import night as nights  # noqa: PLC0415 - torch
    from rltuned.lab.tune.search import candidate_of, policies_of  # noqa: PLC0415

    folder, clock = given.settings.daemon.state_dir, SystemClock()
    before, at = read_state(folder), clock.now()
    keep: Callable[..., None] = partial(write_state, None if dry_run else folder)
    keep(verdict="failed", failed=before.get("failed", 0) + 1, last_week=before.get("last_week"))
    loaded = in_force(given, at)
    settings, order, daemon = loaded.settings, candidate_of(loaded), as_daemon(loaded.settings)
    plain = replace(given, settings=untuned(given.settings))
    week = {"at": at, "sentence": "", "verdict": "", "change": None}
    with tempfile.TemporaryDirectory(prefix="rltuned-tune-") as work, options.progress() as show:
        began_s = 0.0

        def used() -> float:
            part = (clock.monotonic() - began_s) / (60.0 * minutes)
            show("tuning", min(1.0, part))
            return part

        try:
            answer, past = _record(settings, site, Path(work, "site"), span, show)
            show("replaying last week", 0.0)
            week |= nights.last_week(past, order, daemon)
            began_s = clock.monotonic()
            found, taken, fitted = nights.spend(
                past,
                nights.split_of(past, test_days),
                order,
                daemon,
                price=settings.tune.longest,
                policies=policies_of(order.policy, settings.policy.models_dir),
                shipped=load_predictor(shipped_predictor()) if order.predictor else None,
                others=[candidate_of(plain)] if loaded.generation else [],
                used=used,
            )
        except TooLittleError as error:
            week["sentence"] = week["sentence"] or f"Last week's jobs are not replayed: {error}."
            keep(verdict="nothing", failed=0, sentence=str(error), last_week=week)
            warn(f"nothing tuned: {error}")
            return {"verdict": "nothing", "why": [str(error)], "last_week": week}
    found |= {"command": " ".join(["rltuned", *sys.argv[1:]]), "last_week": week}
    found["record"] |= {"rows": len(answer.records), "left_out": answer.left_out}
    promote = "" if dry_run else settings.tune.promote
    found |= nights.conclude(Generations(folder), found, taken, fitted, promote=promote, at=at)
    keep(verdict=found["verdict"], failed=0, sentence=found["sentence"], last_week=week)
    page = render("tune.html", title="Tuning", headline=found["sentence"], night=found)
    if not dry_run:
        shutil.rmtree(folder / FOLDER / PAGE, ignore_errors=True)
        options.write_report(folder / FOLDER / PAGE, page, found)
    if report is not None:
        options.write_report(report, page, found)
    return found


def _record(
    settings: Settings, site: Path | None, work: Path, span: Span, show: Report
) -> tuple[SacctAnswer, Past]:
    """The saved record, or that of the live Slurm; without accounting what the journal shows."""
    kept = (site or settings.daemon.state_dir) / FILE_NAME
    journal = kept if kept.exists() else None
    if site is None:
        site = work
        options.collected(settings.slurm, site, span, show, has_other=journal is not None)
    show("reading the record", 0.0)
    model = read_site_model(site)
    if journal is not None and history_file(site) is None:
        begin = -math.inf if span.begin is None else span.begin
        answer, span = history_of(recorded(journal, begin), model.cluster.name, span)
    else:
        answer = saved_history(site, span.begin)
    return answer, past_of(answer, model, span)
