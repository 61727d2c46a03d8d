"""`rltuned status`: one look at the daemon, also when it is down."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

import typer

from rltuned.cli.asking import DaemonState, ask, is_private
from rltuned.cli.flags import ConfigOption, JsonOption, say, settings_of
from rltuned.cli.history import what
from rltuned.cli.instances import AllOption, Instance, instances
from rltuned.core.hindsight import SHOWN
from rltuned.daemon.clock import SystemClock
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
        raise typer.Exit(_overview(instances(config), as_json=as_json))
    loaded = settings_of(config)
    state, now = ask(loaded), SystemClock().now()
    if as_json:
        say(json.dumps(state.document(), indent=2, allow_nan=False))
    else:
        for line in lines_of(state, now):
            say(line)
    if state.troubles():
        raise typer.Exit(1)


def _overview(those: Iterator[Instance], *, as_json: bool) -> int:
    documents, rows, worst = [], [], 0
    for one in those:
        now, named = SystemClock().now(), {"instance": one.name, "settings": str(one.path)}
        if one.loaded is None:
            worst = 2
            documents.append({**named, "ok": False, "error": one.error})
            rows.append((one.name, *[""] * (len(_COLUMNS) - 2), one.error))
            continue
        state = ask(one.loaded)
        worst = max(worst, 1 if state.troubles() else 0)
        documents.append({**named, **state.document()})
        rows.append(_row(one, state, now))
    if as_json:
        say(json.dumps({"ok": not worst, "instances": documents}, indent=2, allow_nan=False))
    else:
        from rltuned.cli.tables import Column, console, show_table  # noqa: PLC0415 - rich

        show_table(console(), [Column(name) for name in _COLUMNS], rows)
    return worst


def _row(one: Instance, state: DaemonState, now: float) -> tuple[str, ...]:
    daemon, cycle = state.daemon or {}, state.kept.cycle if state.kept else None
    settings, age_s = state.settings, state.age_s(now)
    return (
        one.name,
        daemon.get("cluster") or (cycle.cluster if cycle else ""),
        daemon.get("stage") or settings.ladder.stage,
        daemon.get("policy") or settings.policy.name,
        "" if cycle is None else str(cycle.pending),
        "" if age_s is None else f"{span(age_s)} ago",
        "; ".join(sentence for sentence, _ in state.sentences()),
    )


def lines_of(state: DaemonState, now: float) -> list[str]:
    """All of it; the first line is the state."""
    return [*headlines(state, now), *changes(state)]


def headlines(state: DaemonState, now: float) -> Iterator[str]:
    """What matters first."""
    yield "rltuned: " + "; ".join(sentence for sentence, _ in state.sentences())
    yield from _daemon(state)
    yield from _journal(state, now)


def changes(state: DaemonState) -> Iterator[str]:
    """The last changes, the latest first."""
    if state.kept is None:
        return
    yield "last changes:" if state.kept.changes else "last changes: none"
    for change in state.kept.changes:
        moved = (
            "" if change.reason is None else f"; {change.reason['why'].partition(', waited')[0]}"
        )
        result = change.result or "unknown"
        yield f"  {when(change.at)}  job {change.address}: {what(change)}: {result}{moved}"


def _daemon(state: DaemonState) -> Iterator[str]:
    daemon = state.daemon
    if daemon is None:
        yield "daemon: no answer"
        yield f"stage: {state.settings.ladder.stage} by the settings"
        if state.kept is not None and (known := state.kept.state) is not None:
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


def _journal(state: DaemonState, now: float) -> Iterator[str]:
    kept = state.kept
    if kept is None:
        for last in state.daemon["cycles"][:1] if state.daemon else ():
            yield _cycle({**last, "policy": state.daemon and state.daemon["policy"]}, now)
        private = is_private(state.settings.daemon.state_dir) and state.daemon is not None
        yield "journal: private; changes are not shown" if private else f"journal: {state.unread}"
        return
    if kept.cycle is not None:
        yield _cycle({**asdict(kept.cycle), "skip": kept.cycle.skipped}, now)
    dead = state.daemon is None and kept.carrying
    then = ": `rltuned restore --all` gives it back" if dead else ""
    carrying = f"{kept.carrying} jobs may carry a value of rltuned's{then}"
    yield f"journal: {kept.cycles} cycles; {carrying}"
    for cluster, name, found in kept.breakers:
        yield (
            f"circuit breaker of {name} on {cluster} open since {when(found.opened_at or 0)}: "
            + (found.detail)
        )


def _cycle(last: Mapping[str, Any], now: float) -> str:
    what = f"skipped ({last['skip']})" if last["skip"] else f"{last['proposed']} proposed"
    return (
        f"last cycle: {last['cycle']}, {span(max(0.0, now - last['at']))} ago, {last['mode']}, "
        f"{last['policy']}: {last['pending']} pending, {what}, {last['applied']} applied, "
        f"{last['seconds']:.2f} s"
    )
