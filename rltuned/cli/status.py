"""`rltuned status`: one look at the daemon, also when it is down.

The daemon need not answer, and only its owner and root may read the journal. Either is of use
without the other.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
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
_SHOWN: Final = ("at", "address", "field", "old", "new", "result", "delay_s")
"""Of a change, for JSON."""


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
    if every_one:
        raise typer.Exit(_overview(config, as_json=as_json))
    loaded = settings_of(config)
    document, changes = ask(loaded)
    if as_json:
        say(json.dumps(document, indent=2, allow_nan=False))
    else:
        say("rltuned: " + "; ".join(document["state"]))
        of_daemon = _daemon if document["daemon"] else _silent
        for line in (*of_daemon(document, loaded), *_journal_lines(document, changes, loaded)):
            say(line)
    raise typer.Exit(0 if document["ok"] else 1)


def _overview(config: Path | None, *, as_json: bool) -> int:
    documents, worst = list[Document](), 0
    for path, loaded in instances(config):
        if isinstance(loaded, SettingsError):
            document: Document = {"ok": False, "error": str(loaded), "state": [str(loaded)]}
        else:
            document, _ = ask(loaded)
        worst = max(worst, 2 if "error" in document else 0 if document["ok"] else 1)
        documents.append({"instance": path.stem, "settings": str(path), **document})
    if as_json:
        say(json.dumps({"ok": not worst, "instances": documents}, indent=2, allow_nan=False))
    for one in () if as_json else documents:
        say(f"{one['instance']}: {'; '.join(one['state'])}")
    return worst


# -- The document ----------------------------------------------------------------------------------


def ask(loaded: Loaded) -> tuple[Document, tuple[JobChange, ...]]:
    """All that can be found out, for JSON, and the last changes; nothing that fails here is an
    error. daemon: its /status.json, else `daemon_silent` says why not; journal, else
    `journal_unread`. Single jobs are in `rltuned plan --json`.
    """
    daemon, silent = ask_daemon(loaded.settings)
    kept, unread, changes = None, "", tuple[JobChange, ...]()
    try:
        with store.reading(loaded.settings.daemon.state_dir / store.FILE_NAME) as db:
            changes = cycles.latest(db, CHANGES)
            kept = _journal(db, changes)
    except JournalError as error:
        unread = str(error)
    said = [f"the daemon does not answer: {silent}"] if daemon is None else []
    said += [f"the journal cannot be read: {unread}"] if daemon is None and kept is None else []
    found = [] if daemon is None else list(daemon["conditions"])
    if kept is not None:
        # a breaker may have been closed since the last cycle: the journal has the last word
        found = [one for one in found if one["state"] != HealthState.BREAKER_OPEN]
        names = ", ".join(one["partition"] for one in kept["breakers"])
        said += [Condition(HealthState.BREAKER_OPEN, names).sentence] if names else []
    troubles = said + [one["sentence"] for one in found if one["trouble"]]
    return {
        "ok": not troubles,
        "state": troubles + [one["sentence"] for one in found if not one["trouble"]],
        "troubles": troubles,
        "daemon": daemon,
        "daemon_silent": silent or None,
        "journal": kept,
        "journal_unread": unread or None,
    }, changes


def _journal(db: sqlite3.Connection, changes: tuple[JobChange, ...]) -> Document:
    """carrying: jobs that may still carry a value of rltuned's. breakers: the open ones."""
    cycle, state = cycles.last_row(db), kept_state(store.get(db, store.STATE))
    return {
        "cycle": cycle and asdict(cycle),
        "carrying": len(owned.carrying(db)),
        "state": state and state.model_dump(mode="json"),
        "changes": [{name: getattr(one, name) for name in _SHOWN} for one in changes],
        "breakers": [
            {"cluster": cluster, "partition": name, **asdict(found)}
            for cluster, those in sorted(BREAKERS.of(store.get(db, BREAKERS.name)).items())
            for name, found in sorted(those.items())
            if found.is_open
        ],
    }


# -- For people ------------------------------------------------------------------------------------


def _silent(document: Document, loaded: Loaded) -> Iterator[str]:
    yield f"daemon: no answer; stage {loaded.settings.ladder.stage} by the settings"
    if (kept := document["journal"]) and (known := kept_state(kept["state"])):
        yield f"state since {when(known.at)}: {known.health}"
        if known.effect is not None:
            yield f"effect: {known.effect.verdict}"
    if (week := read_state(loaded.settings.daemon.state_dir, LastWeek)) is not None:
        yield f"last week: {week.sentence(SystemClock().now())}"


def _daemon(document: Document, _loaded: Loaded) -> Iterator[str]:
    daemon = document["daemon"]
    stage = f"{daemon['stage']} (dry run)" if daemon["dry_run"] else daemon["stage"]
    policy = trusted(daemon["policy"], daemon["trust"])
    model = f", model {daemon['digest'][:12]}" if daemon["digest"] else ""
    model += f", {daemon['generation']}" if daemon["generation"] else ""
    model += f" ({daemon['verdict']})" if daemon["verdict"] else ""
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
    if daemon["last_week"]:
        yield f"last week: {daemon['last_week']['sentence']}"


def _journal_lines(
    document: Document, changes: tuple[JobChange, ...], loaded: Loaded
) -> Iterator[str]:
    daemon, kept = document["daemon"], document["journal"]
    last = kept["cycle"] if kept else daemon["cycles"][0] if daemon and daemon["cycles"] else None
    if last is not None:
        skip = last.get("skip") or last.get("skipped")
        done = f"skipped ({skip})" if skip else f"{last['proposed']} proposed"
        age_s = max(0.0, SystemClock().now() - last["at"])
        yield (
            f"last cycle: {last['cycle']}, {span(age_s)} ago, {last['mode']}: {last['pending']} "
            f"pending, {done}, {last['applied']} applied, {last['seconds']:.2f} s"
        )
    if kept is None:
        private = daemon is not None and is_private(loaded.settings.daemon.state_dir)
        unread = "private; changes are not shown" if private else document["journal_unread"]
        yield f"journal: {unread}"
        return
    then = "" if daemon or not kept["carrying"] else ": `rltuned restore --all` restores it"
    yield f"journal: {kept['carrying']} jobs may carry a value of rltuned's{then}"
    for one in kept["breakers"]:
        of = f"circuit breaker of {one['partition']} on {one['cluster']}"
        yield f"{of} open since {when(one['opened_at'] or 0)}: {one['detail']}"
    yield "last changes:" if changes else "last changes: none"
    for change in changes:
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
