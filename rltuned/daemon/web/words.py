"""What the first line of the page says: state, effect and amounts, each with one of four levels."""

from datetime import datetime
from typing import Any, Final, NamedTuple

from rltuned.daemon.canary.effect import FEWEST
from rltuned.daemon.state import STATES, HealthState
from rltuned.text import at_clock, counted, span

Document = dict[str, Any]


class Said(NamedTuple):
    """level: ok, notice, warning or bad. more: sentences below."""

    level: str
    text: str
    more: tuple[str, ...] = ()


_WRITING: Final = frozenset({HealthState.LEARNING, HealthState.LIVE})
_SHOWN: Final = frozenset({"bad", "warning"})
_LONG_S: Final = 86_400.0


def state(d: Document) -> Said:
    """What the daemon does, in one word."""
    first = STATES[d["state"]]
    level, word = first.level, first.word
    # what it does, and what is wrong; what holds besides is no news
    conditions = d["conditions"]
    told = conditions[:1] + [c for c in conditions[1:] if STATES[c["state"]].level in _SHOWN]
    more = [c["sentence"] for c in told]
    blocks = d["blocks"]
    off = [b for b in blocks if not b["on"]]
    if first in _WRITING and off and len(off) == len(blocks):
        until = at_clock(min(b["until"] for b in off), d["now"])
        return Said("notice", "Off block", (f"Slurm's own order is measured until {until}",))
    if off:
        more += [
            f"off block of {b['partition']} until {at_clock(b['until'], d['now'])}" for b in off
        ]
    return Said(level, word, tuple(more))


def effect(d: Document) -> Said:
    """Whether it helps, or how far the measurement is."""
    found = d["effect"]
    if found is None:
        why = "there are no off blocks to compare with (stage canary, or ladder.full_off_share)"
        return Said("notice", "Not measured", (why, "rltuned backtest estimates it beforehand"))
    pairs = found["pairs"]
    if found["low_s"] is None:
        day = d["effect_at"]
        first = f"; first answer about {_day(day)}" if day else ""
        return Said("notice", f"{pairs} of {FEWEST} comparisons", (f"measuring{first}",))
    change, low, high = (found[k] / found["off_s"] for k in ("difference_s", "low_s", "high_s"))
    sure = "" if high < 0 or low > 0 else "; chance can explain it"
    more = (
        f"95%: {low:+.0%} to {high:+.0%}, {pairs} comparisons{sure}",
        f"{span(found['on_s'])} with delays, {span(found['off_s'])} without",
    )
    level = "ok" if high < 0 else "bad" if low > 0 else "notice"
    return Said(level, f"{abs(change):.0%} {'shorter' if change < 0 else 'longer'} waits", more)


def gpus(d: Document) -> Said:
    """Used, free and down."""
    rows = d["gpus"]
    if not rows:
        return Said("notice", "No GPUs seen")
    total = sum(r["used"] + r["free"] + r["down"] for r in rows)
    used, down = sum(r["used"] for r in rows), sum(r["down"] for r in rows)
    more = [
        f"{r['type']}: {r['free']} of {r['used'] + r['free'] + r['down']} free"
        + (f", {r['down']} down" if r["down"] else "")
        for r in rows
    ]
    return Said("warning" if down else "ok", f"{used} of {total} used", tuple(more))


def waiting(d: Document) -> Said:
    """The jobs that wait for GPUs, and the work that they bring."""
    found = d["waiting"]
    if found is None:
        return Said("notice", "Not seen yet")
    more = []
    if found["work_s"]:
        hours = found["work_s"] / 3_600
        amount = f"{hours:.1f}" if hours < 100 else f"{hours:,.0f}"  # noqa: PLR2004
        more.append(f"backlog: {amount} h for all GPUs, by expected run times")
    if found["cannot_start"]:
        more.append(f"{found['cannot_start']} more cannot start (held, dependent ...)")
    amounts = f"{counted(found['jobs'], 'job')}, {counted(found['gpus'], 'GPU')}"
    return Said("ok", amounts if found["jobs"] else "No job waits", tuple(more))


def longest(d: Document) -> Said:
    """The longest wait, and the promises."""
    found = d["waiting"]
    if found is None:
        return Said("notice", "Not seen yet")
    more, late = [], 0
    for one in d["promises"]:
        late += one["late"]
        kept = one["jobs"] - one["late"]
        more.append(
            f"{one['class']}: {kept} of {one['jobs']} within {span(one['max_wait_s'])} "
            "since the start"
        )
    level = "warning" if late or found["longest_s"] > _LONG_S else "ok"
    longest = span(found["longest_s"]) if found["jobs"] else "None"
    return Said(level, longest, tuple(more or ["no promises are set"]))


def moves(d: Document) -> str:
    """How far the order is from Slurm's own, in one sentence."""
    found = d["moves"]
    if found is None:
        return "Not seen yet."
    if not (found["up"] or found["down"]):
        return "No job stands elsewhere than in Slurm's own order."
    would = d["state"] not in {"live", "learning"}
    tied = ""
    if found["tied"]:
        tied = (
            f" {found['tied']} jobs share the lowest number, 1: Slurm takes them by their ids. "
            "rltuned check says how many points they lack."
        )
    move = "would move" if would else "moves" if found["up"] == 1 else "move"
    return (
        f"{counted(found['up'], 'job')} {move} up, {found['down']} down, {found['same']} stay; "
        f"at most {found['most_up']} places up and {found['most_down']} down.{tied}"
    )


def _day(at: float) -> str:
    day = datetime.fromtimestamp(at).astimezone()
    return f"{day.day} {day:%B}"
