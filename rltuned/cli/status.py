"""`rltuned status`: one look at the daemon, also when it is down.

The daemon need not answer, and only its owner and root may read the journal. Either is of use
without the other.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

import typer

from rltuned.cli.asking import ask_daemon, is_private
from rltuned.cli.flags import AllOption, ConfigOption, JsonOption, instances, say, settings_of
from rltuned.core.starts import SHOWN
from rltuned.daemon.breaker import BREAKERS
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.documents import Document
from rltuned.daemon.state import Condition, HealthState, kept_state
from rltuned.daemon.words import what
from rltuned.errors import JournalError, SettingsError
from rltuned.journal import cycles, owned, store
from rltuned.journal.cycles import JobChange
from rltuned.policies.tune_state import LastWeek, read_state
from rltuned.settings import Loaded
from rltuned.text import span, trusted, when

app = typer.Typer()

CHANGES: Final = 8
"""Last changes that are shown."""


@app.command()
def status(
    *,
    config: ConfigOption = None,
    every_one: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show the daemon's state: its cycles, stage, circuit breakers, last changes, model, journal.

    Asks the daemon over its socket and reads the journal; asks Slurm nothing. With --all
    there is a line for each daemon of this machine.

    Exit codes: 0 = it works; 1 = it is down, does not work, or a circuit breaker is open; 2 =
    settings cannot be used. With --all the worst of all.
    """
    if not every_one:
        found = ask(settings_of(config))
        lines, code = in_words(found, SystemClock().now()), 0 if found["ok"] else 1
    else:
        rows = list[Document]()
        for path, loaded in instances(config):
            told: Document = {"ok": False, "error": str(loaded), "state": [str(loaded)]}
            told = told if isinstance(loaded, SettingsError) else ask(loaded)
            rows.append({"instance": path.stem, "settings": str(path), **told})
        code = max(2 if "error" in row else 0 if row["ok"] else 1 for row in rows)
        found = {"ok": not code, "instances": rows}
        lines = (f"{row['instance']}: {'; '.join(row['state'])}" for row in rows)
    say(json.dumps(found, indent=2, allow_nan=False) if as_json else "\n".join(lines))
    raise typer.Exit(code)


def ask(loaded: Loaded) -> Document:
    """All that can be found out, for JSON; nothing that fails here is an error. daemon: its
    /status.json, else `daemon_silent` says why not; journal, else `journal_unread`. Single jobs are
    in `rltuned plan --json`.
    """
    state_dir = loaded.settings.daemon.state_dir
    daemon, silent = ask_daemon(loaded.settings)
    kept, unread = None, ""
    try:
        with store.reading(state_dir / store.FILE_NAME) as db:
            kept = _journal(db)
    except JournalError as error:
        private = daemon is not None and is_private(state_dir)
        unread = "private; changes are not shown" if private else str(error)
    said = [f"the daemon does not answer: {silent}"] if daemon is None else []
    said += [f"the journal cannot be read: {unread}"] if daemon is None and kept is None else []
    found = [] if daemon is None else list(daemon["conditions"])
    if kept is not None:
        # a breaker may have been closed since the last cycle: the journal has the last word
        found = [one for one in found if one["state"] != HealthState.BREAKER_OPEN]
        names = ", ".join(one["partition"] for one in kept["breakers"])
        said += [Condition(HealthState.BREAKER_OPEN, names).sentence] if names else []
    week = None if daemon else read_state(state_dir, LastWeek)
    troubles = said + [one["sentence"] for one in found if one["trouble"]]
    return {
        "ok": not troubles,
        "state": troubles + [one["sentence"] for one in found if not one["trouble"]],
        "troubles": troubles,
        "stage": daemon["stage"] if daemon else loaded.settings.ladder.stage,
        "last_week": daemon["last_week"] and daemon["last_week"]["sentence"]
        if daemon
        else week and week.sentence(SystemClock().now()),
        "daemon": daemon,
        "daemon_silent": silent or None,
        "journal": kept,
        "journal_unread": unread or None,
    }


def _journal(db: sqlite3.Connection) -> Document:
    """carrying: jobs that may still carry a value of rltuned's. breakers: the open ones."""
    cycle, state = cycles.last_row(db), kept_state(store.get(db, store.STATE))
    return {
        "cycle": cycle and {**asdict(cycle), "skip": cycle.skipped},
        "carrying": len(owned.carrying(db)),
        "state": state and state.model_dump(mode="json"),
        "changes": [one._asdict() for one in cycles.latest(db, CHANGES)],
        "breakers": [
            {"cluster": cluster, "partition": name, **asdict(found)}
            for cluster, those in sorted(BREAKERS.of(store.get(db, BREAKERS.name)).items())
            for name, found in sorted(those.items())
            if found.is_open
        ],
    }


def in_words(found: Document, now: float) -> Iterator[str]:
    """The same for people. now: Unix time."""
    daemon, kept = found["daemon"], found["journal"]
    yield "rltuned: " + "; ".join(found["state"])
    yield from _daemon(daemon) if daemon else _silent(found)
    if found["last_week"]:
        yield f"last week: {found['last_week']}"
    for last in [kept["cycle"]] if kept else daemon["cycles"][:1] if daemon else []:
        if last is not None:
            done = f"skipped ({last['skip']})" if last["skip"] else f"{last['proposed']} proposed"
            age = span(max(0.0, now - last["at"]))
            yield (
                f"last cycle: {last['cycle']}, {age} ago, {last['mode']}: {last['pending']} "
                f"pending, {done}, {last['applied']} applied, {last['seconds']:.2f} s"
            )
    yield from (
        _kept(kept, is_dead=daemon is None) if kept else [f"journal: {found['journal_unread']}"]
    )


def _silent(found: Document) -> Iterator[str]:
    yield f"daemon: no answer; stage {found['stage']} by the settings"
    if found["journal"] and (known := kept_state(found["journal"]["state"])):
        yield f"state since {when(known.at)}: {known.health}"
        if known.effect is not None:
            yield f"effect: {known.effect.verdict}"


def _daemon(daemon: Document) -> Iterator[str]:
    policy = trusted(daemon["policy"], daemon["trust"])
    model = f", model {daemon['digest'][:12]}" if daemon["digest"] else ""
    model += f", {daemon['generation']}" if daemon["generation"] else ""
    model += f" ({daemon['verdict']})" if daemon["verdict"] else ""
    stage = f"{daemon['stage']}{' (dry run)' if daemon['dry_run'] else ''}"
    yield f"cluster: {daemon['cluster'] or 'not seen yet'}"
    yield f"stage: {stage}; writes {daemon['write_mode']}; policy {policy}{model}"
    if daemon["in_place_of"]:
        yield f"policy: {policy} orders in place of {daemon['in_place_of']}"
    skipped = sum(1 for c in daemon["cycles"] if c["skip"])
    yield f"cycles: {skipped} of the last {len(daemon['cycles'])} without a result"
    if daemon["effect"] is not None:
        yield f"effect: {daemon['effect']['verdict']}"
    if daemon.get("forecast"):
        yield f"forecast: {forecast(daemon['forecast'], daemon['now'])}"
    for block in daemon["blocks"]:
        delays = "on" if block["on"] else "off (Slurm's own order is measured)"
        yield f"switchback: {block['partition']} {delays} until {when(block['until'])}"


def _kept(kept: Document, *, is_dead: bool) -> Iterator[str]:
    then = ": `rltuned restore --all` restores it" if is_dead and kept["carrying"] else ""
    yield f"journal: {kept['carrying']} jobs may carry a value of rltuned's{then}"
    for one in kept["breakers"]:
        of = f"circuit breaker of {one['partition']} on {one['cluster']}"
        yield f"{of} open since {when(one['opened_at'] or 0)}: {one['detail']}"
    yield "last changes:" if kept["changes"] else "last changes: none"
    for change in (JobChange(**one) for one in kept["changes"]):
        why = "" if change.reason is None else change.reason["why"].partition(", waited")[0]
        said = f"{change.result or 'unknown'}{'; ' if why else ''}{why}"
        yield f"  {when(change.at)}  job {change.address}: {what(change)}: {said}"


def forecast(found: Mapping[str, Any], now: float) -> str:
    """How old it is, and what became of past ones."""
    trouble = f"; {found['trouble']}" if found["trouble"] else ""
    if found["at"] is None:
        return f"none yet{trouble}"
    words = f"{found['jobs']} jobs have an expected start, {span(max(0.0, now - found['at']))} ago"
    if found["past"]:
        words += (
            f"; of the last {min(found['past'], SHOWN)} starts {found['coverage']:.0%} lay within "
            f"the interval, the median is off by {span(found['error_s'])}"
        )
    return words + trouble
