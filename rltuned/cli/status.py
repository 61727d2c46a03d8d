"""`rltuned status`: one look at the daemon, also when it is down."""

import json
from collections.abc import Iterator

import typer

from rltuned.cli.asking import DaemonState, ask
from rltuned.cli.flags import ConfigOption, JsonOption, say, settings_of
from rltuned.daemon.clock import SystemClock
from rltuned.journal.queries import JobChange
from rltuned.text import span, when

app = typer.Typer()


@app.command()
def status(*, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show the daemon's state: its cycles, stage, circuit breakers, last changes, model, journal.

    Asks the daemon's own port and reads the journal; asks Slurm nothing.

    Exit codes: 0 = it works; 1 = it is down, does not work, or a circuit breaker is open;
    2 = settings cannot be used.
    """
    state = ask(settings_of(config))
    now = SystemClock().now()
    if as_json:
        say(json.dumps(state.document(now), indent=2, allow_nan=False))
    else:
        for line in (*headlines(state, now), *changes(state)):
            say(line)
    if state.troubles(now):
        raise typer.Exit(1)


def headlines(state: DaemonState, now: float) -> Iterator[str]:
    """What matters first."""
    troubles = state.troubles(now)
    yield "rltuned: " + ("; ".join(troubles) if troubles else "works")
    yield from _daemon(state)
    yield from _journal(state, now)


def changes(state: DaemonState) -> Iterator[str]:
    """The last changes, the latest first."""
    if state.kept is None:
        return
    yield "last changes:" if state.kept.changes else "last changes: none"
    for change in state.kept.changes:
        yield f"  {when(change.at)}  job {change.address}: {_change(change)}"


def _change(change: JobChange) -> str:
    new = "released" if change.new is None else change.new
    back = "" if change.delay_s is None else f", steps back {span(change.delay_s)}"
    return f"{change.field} {change.old} -> {new}{back}: {change.result or 'unknown'}"


def _daemon(state: DaemonState) -> Iterator[str]:
    daemon = state.daemon
    if daemon is None:
        yield f"daemon: not asked: {state.silent}" if not state.asked else "daemon: no answer"
        yield f"stage: {state.stage} by the settings"
        return
    stage = f"{daemon['stage']} (dry run)" if daemon["dry_run"] else daemon["stage"]
    model = f", model {daemon['digest'][:12]}" if daemon["digest"] else ""
    yield f"daemon: {daemon['reason']}; cluster {daemon['cluster'] or 'not seen yet'}"
    yield f"stage: {stage}; writes {daemon['write_mode']}; policy {daemon['policy']}{model}"
    skipped = [c for c in daemon["cycles"] if c["skip"]]
    yield f"cycles: {len(skipped)} of the last {len(daemon['cycles'])} without a result"
    if daemon["effect"] is not None:
        yield f"effect: {daemon['effect']['verdict']}"
    for block in daemon.get("blocks", ()):  # an older daemon has none
        delays = "on" if block["on"] else "off (Slurm's own order is measured)"
        yield f"switchback: {block['partition']} {delays} until {when(block['until'])}"


def _journal(state: DaemonState, now: float) -> Iterator[str]:
    kept = state.kept
    if kept is None:
        yield f"journal: {state.unread}"
        return
    cycle = kept.cycle
    if cycle is not None:
        what = f"skipped ({cycle.skipped})" if cycle.skipped else f"{cycle.proposed} proposed"
        yield (
            f"last cycle: {cycle.cycle}, {span(max(0.0, now - cycle.at))} ago, {cycle.mode}, "
            f"{cycle.policy}: {cycle.pending} pending, {what}, {cycle.applied} applied, "
            f"{cycle.seconds:.2f} s"
        )
    yield f"journal: {kept.cycles} cycles; {kept.carrying} jobs may carry something of ours"
    for cluster, name, found in kept.breakers:
        yield (
            f"circuit breaker of {name} on {cluster} open since {when(found.opened_at or 0)}: "
            + (found.detail)
        )
