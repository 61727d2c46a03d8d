"""Times, durations and what Slurm prints, as people read them."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # which `rltuned --help` does without
    from pydantic import ValidationError

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3_600, 86_400
_SOON_S, _ROUND_S = 90, 300


def span(seconds: float) -> str:
    """A duration: `45s`, `12m`, `3h05m`, `2d04h`; shorter than nothing: `-12m`."""
    whole = int(abs(seconds))
    sign = "-" if whole and seconds < 0 else ""
    if whole < _MINUTE_S:
        return f"{sign}{whole}s"
    if whole < _HOUR_S:
        return f"{sign}{whole // _MINUTE_S}m"
    if whole < _DAY_S:
        return f"{sign}{whole // _HOUR_S}h{whole % _HOUR_S // _MINUTE_S:02d}m"
    return f"{sign}{whole // _DAY_S}d{whole % _DAY_S // _HOUR_S:02d}h"


def counted(amount: int, what: str) -> str:
    """`1 GPU`, `3 GPUs`."""
    return f"{amount} {what}{'' if amount == 1 else 's'}"


def ordinal(number: int) -> str:
    """`1st`, `12th`, `23rd`."""
    last = 0 if number // 10 % 10 == 1 else number % 10
    return f"{number}{({1: 'st', 2: 'nd', 3: 'rd'}).get(last, 'th')}"


def trusted(policy: str, trust: float | None) -> str:
    """A policy by its name, and how much of its corrections counts; None = it corrects no rule."""
    return policy if trust is None else f"{policy}, trust {trust:g}"


def hours(seconds: float) -> str:
    """A duration in hours, as settings and tables compare them: `0.5 h`, `36 h`."""
    return f"{seconds / _HOUR_S:.3g} h"


def when(at: float | None) -> str:
    """Local time with its zone, to the second; `never` for None; beyond the calendar as it is."""
    if at is None:
        return "never"
    try:
        return datetime.fromtimestamp(at).astimezone().isoformat(" ", "seconds")
    except (OverflowError, OSError, ValueError):
        return f"second {at:.15g}"


def between(low: float, high: float | None, now: float) -> str:
    """Two moments as people say them: `14:00 to 17:30 today`, to five minutes; None = not known."""
    today = datetime.fromtimestamp(now).astimezone()
    first, day = ("now", "today") if low - now < _SOON_S else _moment(low - low % _ROUND_S, today)
    if high is None:
        return "at any time" if first == "now" else f"after {first} {day}"
    if high - now < _SOON_S:
        return "now"
    last, last_day = _moment(high + -high % _ROUND_S, today)
    if first == "now" or day == last_day:
        return f"{first} to {last} {last_day}"
    return f"{first} {day} to {last} {last_day}"


def _moment(at: float, today: datetime) -> tuple[str, str]:
    """Time of the day, and the day."""
    moment = datetime.fromtimestamp(at).astimezone()
    days = (moment.date() - today.date()).days
    near = ("today", "tomorrow")
    day = near[days] if 0 <= days < len(near) else f"{moment:%a} {moment.day} {moment:%b}"
    return f"{moment:%H:%M}", day


def at_clock(at: float, now: float) -> str:
    """A moment as people say it, local: `14:20`, `14:20 tomorrow`, `14:20 Fri 27 Nov`."""
    time, day = _moment(at, datetime.fromtimestamp(now).astimezone())
    return time if day == "today" else f"{time} {day}"


def utc(at: float) -> str:
    """The same in UTC, for files and for other programs."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def one_line(text: str, limit: int = 300) -> str:
    """Text as one printable line of at most `limit` characters."""
    joined = "; ".join(part.strip() for part in text.splitlines() if part.strip())
    clean = "".join(c if c.isprintable() else "?" for c in joined)
    return clean if len(clean) <= limit else clean[: limit - 3] + "..."


def escaped(text: str, keep: str = "") -> str:
    """The text with what would steer a terminal or forge a line escaped; `keep` stays."""
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)


def first_flaw(error: "ValidationError") -> str:
    """The first wrong field and what is wrong with it."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or '(whole)'}: {first['msg']}"
