"""`rltuned status`: one look at the daemon, also when it is down."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import typer

from rltuned.cli.asking import ask, is_private
from rltuned.cli.flags import AllOption, ConfigOption, JsonOption, instances, say, settings_of
from rltuned.cli.history import what
from rltuned.core.starts import SHOWN
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.state import kept_state
from rltuned.errors import SettingsError
from rltuned.journal.cycles import JobChange
from rltuned.policies.generations import would_it_help
from rltuned.settings import Settings
from rltuned.text import span, trusted, when

app = typer.Typer()

_COLUMNS: Final = ("instance", "cluster", "stage", "policy", "pending", "last cycle", "state")


@app.command()
def status(
    *,
    config: ConfigOption = None,
    every_one: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show the daemon's state: its cycles, stage, circuit breakers, last changes, model, journal.

    Asks the daemon over its socket and reads the journal; asks Slurm nothing. With --all
    there is a row for each daemon of this machine.

    Exit codes: 0 = it works; 1 = it is down, does not work, or a circuit breaker is open; 2 =
    settings cannot be used. With --all the worst of all.
    """
    if every_one:
        raise typer.Exit(_overview(config, as_json=as_json))
    loaded = settings_of(config)
    (document, changes), now = ask(loaded), SystemClock().now()
    if as_json:
        say(json.dumps(document, indent=2, allow_nan=False))
    else:
        say("rltuned: " + "; ".join(document["state"]))
        for line in (
            *_daemon(document, loaded.settings),
            *_last_week(document, loaded.settings),
            *_journal(document, loaded.settings, now),
            *_changes(document, changes),
        ):
            say(line)
    raise typer.Exit(0 if document["ok"] else 1)


def _overview(config: Path | None, *, as_json: bool) -> int:
    documents, rows, worst = [], [], 0
    for path, loaded in instances(config):
        now, named = SystemClock().now(), {"instance": path.stem, "settings": str(path)}
        if isinstance(loaded, SettingsError):
            worst = 2
            documents.append({**named, "ok": False, "error": str(loaded)})
            rows.append((path.stem, *[""] * (len(_COLUMNS) - 2), str(loaded)))
            continue
        document, _ = ask(loaded)
        worst = max(worst, 0 if document["ok"] else 1)
        documents.append({**named, **document})
        rows.append((path.stem, *_row(document, loaded.settings, now)))
    if as_json:
        say(json.dumps({"ok": not worst, "instances": documents}, indent=2, allow_nan=False))
    else:
        from rltuned.cli.tables import Column, console, show_table  # noqa: PLC0415 - rich

        show_table(console(), [Column(name) for name in _COLUMNS], rows)
    return worst


def _row(document: Mapping[str, Any], settings: Settings, now: float) -> tuple[str, ...]:
    daemon, kept = document["daemon"] or {}, document["journal"] or {}
    cycle = kept.get("cycle")
    return (
        daemon.get("cluster") or (cycle["cluster"] if cycle else ""),
        daemon.get("stage") or settings.ladder.stage,
        daemon.get("policy") or settings.policy.name,
        str(cycle["pending"]) if cycle else "",
        f"{span(max(0.0, now - cycle['at']))} ago" if cycle else "",
        "; ".join(document["state"]),
    )


def _changes(document: Mapping[str, Any], changes: Sequence[JobChange]) -> Iterator[str]:
    """The last changes, the latest first."""
    if document["journal"] is None:
        return
    yield "last changes:" if changes else "last changes: none"
    for change in changes:
        why = "" if change.reason is None else change.reason["why"].partition(", waited")[0]
        said = f"{change.result or 'unknown'}{'; ' if why else ''}{why}"
        yield f"  {when(change.at)}  job {change.address}: {what(change)}: {said}"


def _daemon(document: Mapping[str, Any], settings: Settings) -> Iterator[str]:
    daemon, kept = document["daemon"], document["journal"]
    if daemon is None:
        yield "daemon: no answer"
        yield f"stage: {settings.ladder.stage} by the settings"
        if kept is not None and (known := kept_state(kept["state"])) is not None:
            yield f"state since {when(known.at)}: {known.health}"
            if known.effect is not None:
                yield f"effect: {known.effect.verdict}"
        return
    stage = f"{daemon['stage']} (dry run)" if daemon["dry_run"] else daemon["stage"]
    policy = trusted(daemon["policy"], daemon.get("trust"))  # an older daemon has none
    model = f", model {daemon['digest'][:12]}" if daemon["digest"] else ""
    model += f", {daemon['generation']}" if daemon.get("generation") else ""
    yield f"cluster: {daemon['cluster'] or 'not seen yet'}"
    model += f" ({daemon['verdict']})" if daemon.get("verdict") else ""  # none of an older daemon
    yield f"stage: {stage}; writes {daemon['write_mode']}; policy {policy}{model}"
    if daemon.get("in_place_of"):  # an older daemon has none
        yield f"policy: {policy} orders in place of {daemon['in_place_of']}"
    skipped = [c for c in daemon["cycles"] if c["skip"]]
    yield f"cycles: {len(skipped)} of the last {len(daemon['cycles'])} without a result"
    if daemon["effect"] is not None:
        yield f"effect: {daemon['effect']['verdict']}"
    if daemon.get("forecast"):  # an older daemon has none
        yield f"forecast: {forecast(daemon['forecast'], daemon['now'])}"
    for block in daemon.get("blocks", ()):  # an older daemon has none
        delays = "on" if block["on"] else "off (Slurm's own order is measured)"
        yield f"switchback: {block['partition']} {delays} until {when(block['until'])}"


def _last_week(document: Mapping[str, Any], settings: Settings) -> Iterator[str]:
    """Would it have helped? As the daemon says, else by its folder, where that may be read."""
    daemon = document["daemon"]
    if daemon is not None and daemon.get("last_week"):  # an older daemon has none
        yield f"last week: {daemon['last_week']['sentence']}"
    elif (week := would_it_help(settings.daemon.state_dir, SystemClock().now()))["at"]:
        yield f"last week: {week['sentence']}"


def forecast(found: dict[str, Any], now: float) -> str:
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


def _journal(document: Mapping[str, Any], settings: Settings, now: float) -> Iterator[str]:
    daemon, kept = document["daemon"], document["journal"]
    if kept is None:
        for last in daemon["cycles"][:1] if daemon else ():
            yield _cycle({**last, "policy": daemon["policy"]}, now)
        private = is_private(settings.daemon.state_dir) and daemon is not None
        unread = document["journal_unread"]
        yield "journal: private; changes are not shown" if private else f"journal: {unread}"
        return
    if kept["cycle"] is not None:
        yield _cycle({**kept["cycle"], "skip": kept["cycle"]["skipped"]}, now)
    dead = daemon is None and kept["carrying"]
    then = ": `rltuned restore --all` restores it" if dead else ""
    carrying = f"{kept['carrying']} jobs may carry a value of rltuned's{then}"
    yield f"journal: {kept['cycles']} cycles; {carrying}"
    for one in kept["breakers"]:
        of = f"circuit breaker of {one['partition']} on {one['cluster']}"
        yield f"{of} open since {when(one['opened_at'] or 0)}: {one['detail']}"


def _cycle(last: Mapping[str, Any], now: float) -> str:
    what = f"skipped ({last['skip']})" if last["skip"] else f"{last['proposed']} proposed"
    return (
        f"last cycle: {last['cycle']}, {span(max(0.0, now - last['at']))} ago, {last['mode']}, "
        f"{last['policy']}: {last['pending']} pending, {what}, {last['applied']} applied, "
        f"{last['seconds']:.2f} s"
    )
