"""The report as one HTML page that needs nothing else: words, and plots as inline SVG."""

import html
from collections.abc import Sequence
from typing import Final

from rltuned.cli.history import when
from rltuned.cli.reckoned import Found
from rltuned.daemon.page import STYLE

POINTS: Final = 1_000
"""Most moments of the line."""
_PLOTS: Final = """figure{margin:1.5rem 0}figcaption{color:var(--muted)}
svg{width:100%;height:auto;max-width:60rem}svg text{fill:var(--ink);font:14px system-ui,sans-serif}
.bar{fill:var(--link)}.line{fill:none;stroke:var(--link);stroke-width:2}
.axis{stroke:var(--muted);stroke-width:1}.reach{stroke:var(--ink);stroke-width:2}"""
_WIDE: Final = 800.0
_HIGH: Final = 160.0
_LEFT: Final = 220.0
_ROW: Final = 30.0

Range = tuple[str, float, float | None, float | None]
"""Name, estimate and 95 % interval (None = too few jobs), in seconds."""


def page_of(found: Found, words: Sequence[str]) -> str:
    """The page. words: the report as text."""
    told = "".join(f"<p>{html.escape(line)}</p>" for line in words)
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width,initial-scale=1'>"
        f"<title>rltuned: does it help?</title><style>{STYLE}\n{_PLOTS}</style></head><body>"
        f"<header><h1>Does it help?</h1></header><main>{told}{_bars(found)}"
        f"{_differences(found)}{_line(found.points[:: 1 + len(found.points) // POINTS])}"
        "</main></body></html>\n"
    )


def _bars(found: Found) -> str:
    """Mean waits side by side."""
    rows: list[tuple[str, float]] = []
    trial, replay = found.trial, found.replay
    if trial is not None and trial.treated_s is not None and trial.control_s is not None:
        rows += [("treated", trial.treated_s), ("control", trial.control_s)]
    if replay is not None:
        rows += [
            ("simulated: Slurm's own order", replay.slurm_s),
            (f"simulated: {replay.policy}", replay.ours_s),
            ("in truth", replay.real_s),
        ]
    if not rows:
        return ""
    scale = (_WIDE - _LEFT - 100) / max(1e-9, *(value for _, value in rows))
    bars = "".join(
        f"<text x=0 y={_ROW * i + 20}>{html.escape(name)}</text>"
        f"<rect class=bar x={_LEFT} y={_ROW * i + 6} width={value * scale:.1f} height=18 />"
        f"<text x={_LEFT + 6 + value * scale:.1f} y={_ROW * i + 20}>{value:.0f} s</text>"
        for i, (name, value) in enumerate(rows)
    )
    return _figure(bars, _ROW * len(rows), "Mean wait of the jobs that came in this time")


def _differences(found: Found) -> str:
    """What rltuned changes, each with its interval, left of the line where it helps."""
    rows: list[Range] = []
    trial, replay = found.trial, found.replay
    if trial is not None and trial.difference_s is not None:
        rows.append(("treated less control", trial.difference_s, trial.low_s, trial.high_s))
    if replay is not None:
        apart = replay.difference
        rows.append(("simulated: ours less Slurm's", apart.mean_s, apart.low_s, apart.high_s))
    if not rows:
        return ""
    ends = [abs(v) for _, *values in rows for v in values if v is not None]
    middle = _LEFT + (_WIDE - _LEFT) / 2
    scale = (_WIDE - _LEFT - 40) / 2 / max(1e-9, *ends)
    high = _ROW * len(rows)
    drawn = "".join(_range(row, _ROW * i + 15, middle, scale) for i, row in enumerate(rows))
    zero = f"<line class=axis x1={middle} y1=0 x2={middle} y2={high} />"
    caption = "Difference of the mean waits with its 95 % interval; left of the line it helps"
    return _figure(zero + drawn, high, caption)


def _range(row: Range, y: float, middle: float, scale: float) -> str:
    name, mean_s, low_s, high_s = row
    text = f"<text x=0 y={y + 5}>{html.escape(name)}</text>"
    point = f"<circle class=bar cx={middle + mean_s * scale:.1f} cy={y} r=5 />"
    if low_s is None or high_s is None:
        return text + point
    ends = f"x1={middle + low_s * scale:.1f} x2={middle + high_s * scale:.1f}"
    return f"{text}<line class=reach {ends} y1={y} y2={y} />{point}"


def _line(points: Sequence[tuple[float, int]]) -> str:
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
    words = html.escape(caption, quote=True)
    return (
        f"<figure><svg viewBox='0 0 {_WIDE:.0f} {high:.0f}' role=img aria-label='{words}'>{drawn}"
        f"</svg><figcaption>{words}</figcaption></figure>"
    )
