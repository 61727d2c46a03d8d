"""`rltuned report`: does it help? From the journal alone, as text, JSON or one HTML page."""

import html
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Final

import typer

from rltuned.cli.flags import ConfigOption, JsonOption, say, settings_of
from rltuned.cli.history import JournalOption, when
from rltuned.core.ladder import Rung
from rltuned.core.select import Rules
from rltuned.daemon.asked import asked_moment
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.effect import Effect, Waits
from rltuned.daemon.page import STYLE
from rltuned.daemon.recipe import decoded
from rltuned.daemon.report import Mode
from rltuned.daemon.rig import MODEL_PREFIX, model_path
from rltuned.daemon.trial import arms
from rltuned.domain.snapshot import Snapshot
from rltuned.errors import JournalError, TraceError
from rltuned.recording import FILE_NAME, Packed, open_to_read, unpack
from rltuned.settings import Loaded

app = typer.Typer()

POINTS: Final = 1_000
"""Most moments of the plot."""
ASSUMED: Final = (
    "The record is played again in the simulator: run times as seen for jobs that ended, the usual "
    "share of the limit for the others; multifactor with the simulator's weights and not the "
    "site's, EASY backfill, ranked at every event, nodes never down, no limits of users. One "
    "history gives one figure and no interval: compare the two simulated waits with each other, "
    "and with the real one only to see how far the simulator is off."
)


@app.command()
def report(
    *,
    config: ConfigOption = None,
    journal: JournalOption = None,
    since: Annotated[str, typer.Option("--since", help="7d, 12h, or 2026-01-31T12:00.")] = "7d",
    out: Annotated[
        Path | None, typer.Option("--out", help="Write one HTML page here.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say whether rltuned helps: treated against control, and the past played again without it.

    Reads the journal only, and asks Slurm nothing.

    Exit codes: 0 = reported, also when there is too little to say; 1 = the journal or a file
    cannot be used; 2 = settings or model cannot be used.
    """
    try:
        moment = asked_moment(since, SystemClock().now())
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    loaded = settings_of(config)
    path = journal or loaded.settings.daemon.state_dir / FILE_NAME
    found = gathered(path, moment, loaded)
    if out is not None:
        try:
            out.write_text(page_of(found), encoding="utf-8")
        except OSError as error:
            raise JournalError(f"{out}: cannot be written: {error.strerror}") from None
    if as_json:
        say(json.dumps(found, indent=2, allow_nan=False))
    else:
        for line in in_words(found):
            say(line)


@dataclass(frozen=True, slots=True)
class _Seen:
    snapshot: Snapshot
    mode: str
    recipe: str | None


def gathered(path: Path, since: float, loaded: Loaded) -> dict[str, Any]:
    """All figures, for JSON; what cannot be said is null, with the reason beside it."""
    effect, points = _canary(_looks(path, since))
    replayed, why = None, None
    try:
        replayed = _replayed((look.snapshot for look in _looks(path, since)), loaded)
    except TraceError as error:
        why = str(error)
    return {
        "since": since,
        "cycles": len(points),
        "first": points[0][0] if points else None,
        "last": points[-1][0] if points else None,
        "canary": None if effect is None else {**asdict(effect), "verdict": effect.verdict},
        "replayed": replayed,
        "not_replayed": why,
        "assumed": ASSUMED,
        "pending": points[:: 1 + len(points) // POINTS],
    }


def _looks(path: Path, since: float) -> Iterator[_Seen]:
    with closing(open_to_read(path)) as db:
        try:
            for taken_at, digest, body, mode, recipe in db.execute(
                "SELECT c.taken_at, s.digest, s.body, c.mode, r.body FROM cycles AS c"
                " JOIN snapshots AS s ON s.digest = c.snapshot"
                " LEFT JOIN recipes AS r ON r.digest = c.recipe"
                " WHERE c.taken_at >= ? ORDER BY c.cycle",
                (since,),
            ):
                yield _Seen(unpack(Packed(digest, body), taken_at), mode, recipe)
        except sqlite3.Error as error:
            raise JournalError(f"{path}: cannot be read: {error}") from None


def _canary(seen: Iterator[_Seen]) -> tuple[Effect | None, list[tuple[float, int]]]:
    """Of the last canary in the record (None = there was none), and pending jobs over time."""
    waits, terms, points = None, None, []
    for look in seen:
        points.append((float(look.snapshot.taken_at), len(look.snapshot.pending)))
        rules = None if look.recipe is None else _rules(look.recipe)
        if rules is None or rules.canary is None:
            continue
        if waits is None or rules.canary != terms:
            waits, terms = Waits(), rules.canary
        sides = arms(look.snapshot, None, rules, Rung.CANARY)
        waits.look(look.snapshot, sides, joining=look.mode == Mode.LIVE)
    return (None if waits is None else waits.effect()), points


@cache
def _rules(recipe: str) -> Rules:
    return decoded(recipe).knobs.rules


def _replayed(seen: Iterator[Snapshot], loaded: Loaded) -> dict[str, Any]:
    from rltuned.sim.past import past_of, waits_under  # noqa: PLC0415 - only this command
    from rltuned.sim.protocol import Protocol  # noqa: PLC0415

    past = past_of(seen)
    policy = loaded.settings.policy.name
    played = policy
    if policy.startswith(MODEL_PREFIX):
        played = f"{MODEL_PREFIX}{model_path(loaded)}"
    protocol = Protocol(starvation=loaded.settings.guards.starvation())
    without = waits_under(past, "multifactor", protocol)
    ours = waits_under(past, played, protocol)
    return {
        "policy": policy,
        "jobs": len(ours),
        "ended": past.ended,
        "assumed": past.assumed,
        "real_s": fmean(past.waits_s[name] for name in ours),
        "multifactor_s": fmean(without.values()),
        "policy_s": fmean(ours.values()),
    }


def in_words(found: dict[str, Any]) -> Iterator[str]:
    """The report for people."""
    if not found["cycles"]:
        yield f"no cycle since {when(found['since'])} is kept: nothing can be said"
        return
    yield f"{found['cycles']} cycles from {when(found['first'])} to {when(found['last'])}"
    canary = found["canary"]
    if canary is None:
        yield "treated against control: no canary in this time, nobody to compare with"
    else:
        yield f"treated against control: {canary['verdict']}"
        if canary["difference_s"] is not None:
            yield (
                f"  mean wait {canary['treated_s']:.0f} s of {canary['treated']} treated, "
                f"{canary['control_s']:.0f} s of {canary['control']} control jobs: "
                f"{canary['difference_s']:+.0f} s, 95 % interval "
                f"{canary['low_s']:+.0f} to {canary['high_s']:+.0f} s"
            )
    replayed = found["replayed"]
    if replayed is None:
        yield f"played again without rltuned: too little to say: {found['not_replayed']}"
        return
    yield (
        f"played again, {replayed['jobs']} jobs that came in this time, mean wait: "
        f"{replayed['multifactor_s']:.0f} s simulated under multifactor, "
        f"{replayed['policy_s']:.0f} s simulated under {replayed['policy']}, "
        f"{replayed['real_s']:.0f} s in truth"
    )
    yield f"  run times of {replayed['assumed']} jobs are assumed, of {replayed['ended']} seen"
    yield f"  {found['assumed']}"


def page_of(found: dict[str, Any]) -> str:
    """One page that needs nothing else."""
    words = "".join(f"<p>{html.escape(line)}</p>" for line in in_words(found))
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width,initial-scale=1'>"
        f"<title>rltuned: does it help?</title><style>{STYLE}\n{_PLOTS}</style></head><body>"
        f"<header><h1>Does it help?</h1></header><main>{words}{_bars(found)}"
        f"{_line(found['pending'])}</main></body></html>\n"
    )


_PLOTS: Final = """figure{margin:1.5rem 0}figcaption{color:var(--muted)}
svg{width:100%;height:auto;max-width:60rem}svg text{fill:var(--ink);font:14px system-ui,sans-serif}
.bar{fill:var(--link)}.line{fill:none;stroke:var(--link);stroke-width:2}
.axis{stroke:var(--muted);stroke-width:1}"""
_WIDE: Final = 800.0
_HIGH: Final = 160.0


def _bars(found: dict[str, Any]) -> str:
    """Mean waits side by side."""
    rows: list[tuple[str, float]] = []
    canary, replayed = found["canary"], found["replayed"]
    if canary is not None and canary["difference_s"] is not None:
        rows += [("treated", canary["treated_s"]), ("control", canary["control_s"])]
    if replayed is not None:
        rows += [
            ("simulated: multifactor", replayed["multifactor_s"]),
            (f"simulated: {replayed['policy']}", replayed["policy_s"]),
            ("in truth", replayed["real_s"]),
        ]
    if not rows:
        return ""
    scale = (_WIDE - 320) / max(1e-9, *(value for _, value in rows))
    bars = "".join(
        f"<text x=0 y={30 * i + 20}>{html.escape(name)}</text>"
        f"<rect class=bar x=220 y={30 * i + 6} width={value * scale:.1f} height=18 />"
        f"<text x={226 + value * scale:.1f} y={30 * i + 20}>{value:.0f} s</text>"
        for i, (name, value) in enumerate(rows)
    )
    return _figure(bars, 30.0 * len(rows), "Mean wait of the jobs that came in this time")


def _line(points: list[tuple[float, int]]) -> str:
    """Pending jobs over time."""
    if len(points) < 2:  # noqa: PLR2004 - no line
        return ""
    first, span_s = points[0][0], max(1.0, points[-1][0] - points[0][0])
    most = max(1.0, *(count for _, count in points))
    path = " ".join(
        f"{(at - first) / span_s * _WIDE:.1f},{_HIGH - count / most * (_HIGH - 20):.1f}"
        for at, count in points
    )
    drawn = (
        f"<polyline class=line points='{path}' />"
        f"<line class=axis x1=0 y1={_HIGH} x2={_WIDE} y2={_HIGH} />"
        f"<text x=0 y=14>{most:.0f}</text>"
    )
    ends = f"{when(points[0][0])} to {when(points[-1][0])}"
    return _figure(drawn, _HIGH + 2, f"Pending jobs, {ends}; the highest is {most:.0f}")


def _figure(drawn: str, high: float, caption: str) -> str:
    words = html.escape(caption)
    return (
        f"<figure><svg viewBox='0 0 {_WIDE:.0f} {high:.0f}' role=img aria-label='{words}'>{drawn}"
        f"</svg><figcaption>{words}</figcaption></figure>"
    )
