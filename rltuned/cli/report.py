"""`rltuned report`: does it help? From the journal, as text, JSON, HTML, or for the daemon."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from rltuned.cli.flags import ConfigOption, JsonOption, say, settings_of, warn
from rltuned.cli.history import JournalOption, when
from rltuned.cli.reckoned import ASSUMED, Found, found_in
from rltuned.cli.report_page import page_of
from rltuned.daemon.asked import asked_moment
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.effect import Effect
from rltuned.daemon.reckoning import Interval, Reckoning, Trial, keep
from rltuned.errors import JournalError
from rltuned.recording import FILE_NAME

app = typer.Typer()

POINTS: Final = 1_000
"""Most moments of the plot."""


@app.command()
def report(
    *,
    config: ConfigOption = None,
    journal: JournalOption = None,
    since: Annotated[str, typer.Option("--since", help="7d, 12h, or 2026-01-31T12:00.")] = "7d",
    out: Annotated[
        Path | None, typer.Option("--out", help="Write one HTML page here.", show_default=False)
    ] = None,
    keep_it: Annotated[
        bool,
        typer.Option(
            "--keep", help="Leave the figures in state_dir, where the daemon shows them as metrics."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Say whether rltuned helps: treated against control, and the past played again without it.

    Reads the journal, once, and asks Slurm one thing: the weights of its own order. Where it
    cannot be asked, the report says whose weights were played. Takes processor time, and none of
    the daemon's; rltuned-report.timer runs it at night with --keep.

    Exit codes: 0 = reported, also when there is too little to say; 1 = the journal or a file
    cannot be used; 2 = settings or model cannot be used.
    """
    clock = SystemClock()
    try:
        moment = asked_moment(since, clock.now())
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    loaded = settings_of(config)
    folder, began_s = loaded.settings.daemon.state_dir, clock.monotonic()
    found = found_in(journal or folder / FILE_NAME, moment, loaded)
    if out is not None:
        try:
            out.write_text(page_of(found, in_words(found)), encoding="utf-8")
        except OSError as error:
            raise JournalError(f"{out}: cannot be written: {error.strerror}") from None
    if as_json:
        say(json.dumps(document(found), indent=2, allow_nan=False))
    else:
        for line in in_words(found):
            say(line)
    if keep_it:
        _keep(found, folder, clock.now(), clock.monotonic() - began_s)


def _keep(found: Found, folder: Path, now: float, took_s: float) -> None:
    if not found.points:
        warn("nothing is kept for the daemon: there is no cycle to tell of")
        return
    made = Reckoning(
        made_at=now,
        took_s=took_s,
        cluster=found.cluster,
        first=found.points[0][0],
        last=found.points[-1][0],
        cycles=len(found.points),
        trial=_trial(found.trial),
        replay=found.replay,
        not_replayed=found.why,
    )
    warn(f"kept as {keep(folder, made)}")


def _trial(effect: Effect | None) -> Trial | None:
    if effect is None:
        return None
    apart = None
    if effect.difference_s is not None:
        apart = Interval(mean_s=effect.difference_s, low_s=effect.low_s, high_s=effect.high_s)
    return Trial(treated=effect.treated, control=effect.control, difference=apart)


def document(found: Found) -> dict[str, Any]:
    """All figures, for JSON; what cannot be said is null, with the reason beside it."""
    points, trial, replay = found.points, found.trial, found.replay
    replayed = None
    if replay is not None:
        apart = replay.difference
        rest = replay.model_dump(exclude={"difference"})
        replayed = {**rest, "difference_s": apart.mean_s, "low_s": apart.low_s}
        replayed["high_s"] = apart.high_s
    return {
        "since": found.since,
        "cycles": len(points),
        "first": points[0][0] if points else None,
        "last": points[-1][0] if points else None,
        "canary": None if trial is None else {**asdict(trial), "verdict": trial.verdict},
        "replayed": replayed,
        "not_replayed": found.why or None,
        "assumed": ASSUMED,
        "pending": points[:: 1 + len(points) // POINTS],
    }


def in_words(found: Found) -> list[str]:
    """The report for people."""
    if not found.points:
        return [f"no cycle since {when(found.since)} is kept: nothing can be said"]
    first, last = found.points[0][0], found.points[-1][0]
    span = f"{len(found.points)} cycles from {when(first)} to {when(last)}"
    return [span, *_of_trial(found.trial), *_of_replay(found)]


def _of_trial(trial: Effect | None) -> Iterator[str]:
    if trial is None:
        yield "treated against control: no canary in this time, nobody to compare with"
        return
    yield f"treated against control: {trial.verdict}"
    if trial.difference_s is not None:
        yield (
            f"  mean wait {trial.treated_s:.0f} s of {trial.treated} treated, "
            f"{trial.control_s:.0f} s of {trial.control} control jobs: "
            f"{_interval(trial.difference_s, trial.low_s, trial.high_s)}"
        )


def _of_replay(found: Found) -> Iterator[str]:
    replay = found.replay
    if replay is None:
        yield f"played again without rltuned: too little to say: {found.why}"
        return
    apart = replay.difference
    yield (
        f"played again, {replay.jobs} jobs that came in this time, mean wait: "
        f"{replay.slurm_s:.0f} s simulated under Slurm's own order, "
        f"{replay.ours_s:.0f} s simulated under {replay.policy}, {replay.real_s:.0f} s in truth"
    )
    told = _interval(apart.mean_s, apart.low_s, apart.high_s)
    yield f"  {replay.policy} less Slurm's own: {told}"
    yield f"  Slurm's own order is played as {replay.order}"
    yield f"  run times of {replay.assumed} jobs are assumed, of {replay.ended} seen"
    yield f"  {ASSUMED}"


def _interval(mean_s: float, low_s: float | None, high_s: float | None) -> str:
    if low_s is None or high_s is None:
        return f"{mean_s:+.0f} s, too few jobs for an interval"
    return f"{mean_s:+.0f} s, 95 % interval {low_s:+.0f} to {high_s:+.0f} s"
