"""Plots as inline SVG whose colours are those of the page, so that it can turn dark."""

import io
import re
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

INK, MUTED, GRID, PALE = "#010101", "#020202", "#030303", "#040404"
"""Stand-ins, replaced by variables of the style sheet."""
SERIES: Final = tuple(f"#05050{i}" for i in range(8))
VARIABLES: Final = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--line",
    PALE: "--pale",
    **{colour: f"--c{i}" for i, colour in enumerate(SERIES)},
}
LOOK: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "legend.frameon": False,
}
SHORT: Final = EngFormatter(sep="")


def seconds_axis(axis: Axes) -> None:
    """An axis of seconds from 0 on: linear up to 10, logarithmic from there."""
    axis.set_xscale("symlog", linthresh=10)
    axis.set_xlim(left=0)
    axis.xaxis.set_major_formatter(SHORT)


def svg_of(figure: Figure, salt: str) -> str:
    """A figure as inline SVG in the colours of the page; same figure and salt, same text."""
    buffer = io.StringIO()
    with mpl.rc_context({**LOOK, "svg.hashsalt": salt}):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    for stand_in, variable in VARIABLES.items():
        text = text.replace(stand_in, f"var({variable})")
    # text is real text, in the page's own typeface
    return re.sub(r"font: ([^;']*?)px [^;\"]*", r"font-size: \1px", text)
