"""`rltuned breaker`: the circuit breakers of partitions, which only a person closes."""

from contextlib import closing
from typing import Annotated

import typer

from rltuned.cli.flags import ConfigOption, say, settings_of
from rltuned.daemon.breaker import BREAKERS, Breaker
from rltuned.daemon.breaker import reset as close
from rltuned.daemon.clock import SystemClock
from rltuned.errors import JournalError
from rltuned.journal.journal import Journal
from rltuned.text import utc

app = typer.Typer(no_args_is_help=True)


@app.command()
def show(config: ConfigOption = None) -> None:
    """Show which breakers are open and why, and the evidence against the others.

    Exit codes: 0 = none is open; 1 = a breaker is open, or no journal can be read; 2 = the
    settings cannot be used.
    """
    with closing(_journal(config)) as journal:
        if not journal.is_there():
            raise JournalError(f"{journal.path}: there is none, so that no breaker is known")
        found = BREAKERS.read(journal)
    lines = [
        f"{cluster}: {partition}: {_line(breaker)}"
        for cluster, those in sorted(found.items())
        for partition, breaker in sorted(those.items())
    ]
    for line in lines or ["every circuit breaker is closed"]:
        say(line)
    is_open = any(b.is_open for those in found.values() for b in those.values())
    raise typer.Exit(1 if is_open else 0)


@app.command()
def reset(
    partition: Annotated[str | None, typer.Argument(help="Only this one; absent = all.")] = None,
    config: ConfigOption = None,
) -> None:
    """Close open breakers; a running daemon applies it from its next cycle on.

    Exit codes: 0 = closed; 1 = none was open, or the journal cannot be written; 2 = the settings
    cannot be used.
    """
    with closing(_journal(config)) as journal:
        closed = close(journal, partition, SystemClock().now())
    for cluster, name in closed:
        say(f"{cluster}: {name}: closed")
    if not closed:
        say(f"no open circuit breaker{f' of partition {partition}' if partition else ''}")
    raise typer.Exit(0 if closed else 1)


def _journal(config: ConfigOption) -> Journal:
    journal = Journal(settings_of(config).settings.daemon.state_dir)
    if journal.is_lost():
        raise JournalError(f"{journal.path}: it is gone, and which breakers were open with it")
    return journal


def _line(breaker: Breaker) -> str:
    if breaker.opened_at is not None:
        return f"open since {utc(breaker.opened_at)}: {breaker.cause}: {breaker.detail}"
    evidence = [f"{cause} {e.value:.1f} to 1" for cause, e in sorted(breaker.harm.items())]
    return ", ".join(["closed", f"{breaker.errors} cycles of errors in a row", *evidence])
