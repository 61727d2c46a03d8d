"""The record of a site, asked of the live Slurm or read from a folder of saved files."""

import json
import math
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC
from functools import partial
from pathlib import Path
from typing import Any, Final

import typer

from rltuned.cli.flags import warn
from rltuned.daemon.clock import SystemClock
from rltuned.errors import TraceError
from rltuned.files import whole_folder
from rltuned.journal.cycles import recorded
from rltuned.lab.backtest.past import Past, Span, past_of
from rltuned.lab.backtest.sacct_files import PACKED, collect, lines_of, read_history
from rltuned.lab.backtest.site import HISTORY, read_site_model, with_own_backfill
from rltuned.lab.tune.journal_history import history_of
from rltuned.settings.keys import SlurmKeys
from rltuned.sim.dispatch import BackfillRule
from rltuned.slurm.accounting import SacctAnswer
from rltuned.slurm.run import Commands
from rltuned.slurm.values import asked_moment

LIVE_SINCE: Final = "30d"
SACCT_TIMEOUT_S: Final = 600.0
Show = Callable[[str, float], None]
"""Called with what is being done, and how much of it is done, 0..1."""


def read_record(
    site: Path,
    rows: Path,
    span: Span,
    show: Show,
    *,
    backfill: BackfillRule | None = None,
) -> tuple[SacctAnswer, Past]:
    """A saved record on its site. backfill: None = the site's own. Raises TraceError: a file is
    unfit, or too little is left.
    """
    show(f"reading {rows.name}", 0.0)
    begin = -math.inf if span.begin is None else span.begin
    answer = read_history(lines_of(rows), str(rows), UTC, since=begin)
    show(f"reading {rows.name}", 1.0)
    model = read_site_model(site)
    model = replace(model, backfill=backfill) if backfill else with_own_backfill(model)
    return answer, past_of(answer, model, span)


def read_with_journal(
    site: Path, journal: Path | None, span: Span, show: Show
) -> tuple[SacctAnswer, Past]:
    """A saved record on its site; without sacct's rows what the journal shows, if there is one.

    Raises:
        JournalError: the journal cannot be read.
        TraceError: a file cannot be used, or too little is left.
    """
    model, begin = read_site_model(site), -math.inf if span.begin is None else span.begin
    show("reading the record", 0.0)
    if journal is not None and not has_history(site):
        answer, span = history_of(recorded(journal, begin), model.cluster.name, span)
    else:
        rows = history_file(site)
        answer = read_history(lines_of(rows), str(rows), UTC, since=begin)
    return answer, past_of(answer, model, span)


def span_of(since: str | None, split: float = 0.7) -> Span:
    """Of --since, which must lie before now."""
    begin = moment(since)
    if begin is not None and begin >= SystemClock().now():
        raise typer.BadParameter("--since: is not before now")
    return Span(begin, split=split)


def live(span: Span, since: str = LIVE_SINCE) -> Span:
    """The same with a beginning and an end."""
    begin = span.begin if span.begin is not None else moment(since)
    return replace(
        span, begin=begin, until=span.until if span.until is not None else SystemClock().now()
    )


def moment(text: str | None) -> float | None:
    """Of --since, Unix seconds."""
    if text is None:
        return None
    try:
        return asked_moment(text, SystemClock().now())
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def collect_live(
    slurm: SlurmKeys, folder: Path, span: Span, show: Show, *, has_other: bool = False
) -> None:
    """Save the live site's files in a new folder; has_other: see backtest/sacct_files.

    Raises:
        BackendError: a command failed.
        TraceError: there is no accounting, or the folder cannot be written.
    """
    cli = replace(slurm.cli(), timeout_s=SACCT_TIMEOUT_S)
    # sacct takes the times that it is given for local ones, and prints epochs (slurm/run)
    commands = Commands(cli, environ={**os.environ, "TZ": "UTC"})
    asking = partial(show, "asking sacct")
    begin, until = span.begin or 0.0, span.until or 0.0
    for line in collect(commands, folder, begin, until, asking, has_other=has_other):
        warn(line)


def write_report(folder: Path, page: str, found: dict[str, Any]) -> None:
    """index.html and results.json in one piece. Raises TraceError."""
    try:
        with whole_folder(folder) as made:
            (made / "index.html").write_text(page, encoding="utf-8")
            text = json.dumps(found, indent=1, allow_nan=False)
            (made / "results.json").write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise TraceError(f"{folder}: cannot be written: {error.strerror}") from error


def has_history(place: Path) -> bool:
    """Whether sacct's rows lie in a folder."""
    return any((place / name).is_file() for name in (HISTORY, PACKED))


def history_file(place: Path) -> Path:
    """Sacct's rows in a folder. Raises TraceError: there are none."""
    for name in (HISTORY, PACKED):
        if (place / name).is_file():
            return place / name
    raise TraceError(f"{place}: neither {HISTORY} nor {PACKED} in it")
