"""Tables on standard output, as wide as the terminal; in a file lines are as long as they need."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console

from rltuned.text import between, escaped, span

ENDLESS: Final = 10_000
_GAP: Final = 2
"""Blanks between two columns."""


class Column(NamedTuple):
    """A column. right: numbers align. goes: the highest give way first where room is short; 0 = it
    is never left out. least: it may be cut to so many characters; 0 = it is not cut.
    """

    name: str
    right: bool = False
    goes: int = 0
    least: int = 0


def console() -> Console:
    """Standard output."""
    made = Console(highlight=False)
    is_free = not made.is_terminal and not os.environ.get("COLUMNS")
    return Console(width=ENDLESS, highlight=False) if is_free else made


def show_table(
    out: Console, columns: Sequence[Column], rows: Sequence[Sequence[str]], title: str = ""
) -> None:
    """Print a table, and which of its columns found no room."""
    cells = [[column.name for column in columns], *([escaped(c) for c in row] for row in rows)]
    widths = [max(map(cell_len, cell)) for cell in zip(*cells, strict=True)]
    kept = _widths(columns, widths, out.width)
    if title:
        out.print(title, style="bold", markup=False, soft_wrap=True)
    for number, row in enumerate(cells):
        parts = [_cell(row[at], kept[at], columns[at]) for at in sorted(kept)]
        line = (" " * _GAP).join(parts).rstrip()
        line = line if cell_len(line) <= out.width else set_cell_size(line, out.width)
        out.print(line, style="" if number else "bold", markup=False, soft_wrap=True)
    if missing := [c.name for at, c in enumerate(columns) if at not in kept]:
        names = ", ".join(missing)
        out.print(f"no room at {out.width} columns: {names}", style="dim", soft_wrap=True)


def _cell(text: str, width: int, column: Column) -> str:
    lacking = width - cell_len(text)
    if lacking < 0:
        return set_cell_size(text, width - 1) + "…"
    return " " * lacking + text if column.right else text + " " * lacking


def _widths(columns: Sequence[Column], widths: Sequence[int], room: int) -> dict[int, int]:
    kept = dict(enumerate(widths))
    for at in sorted(kept, key=lambda at: (columns[at].goes, at), reverse=True):
        over = sum(kept.values()) + _GAP * (len(kept) - 1) - room
        if over <= 0:
            break
        goes, least = columns[at].goes, min(columns[at].least, kept[at])
        if least and (kept[at] - over >= least or not goes):
            kept[at] = max(least, kept[at] - over)
        elif goes:
            del kept[at]
    return kept


OF_PLAN: Final = (
    Column("job"),
    Column("partition", least=9),
    Column("user", least=6),
    Column("rank", right=True, goes=1),
    Column("priority", right=True),
    Column("new", right=True),
    Column("delay", right=True, goes=2),
    Column("expected start", goes=3, least=14),
    Column("fits on", goes=4, least=9),
    Column("why", goes=5, least=12),
)


def show_jobs(out: Console, jobs: Sequence[Mapping[str, Any]], now: float) -> None:
    """The ranked jobs of a plan's document in their new order, with what changes for each. now: of
    their expected starts.
    """
    rows = []
    for job in jobs:
        start = job["expected_start"]
        rows.append([
            str(job["job_id"]),
            job["partition"],
            job["user"],
            " -> ".join(map(str, dict.fromkeys((job["rank_now"], job["rank_wished"])))),
            str(job["current_priority"]),
            str(job["planned_priority"]) if job["changes"] else "",
            span(job["delay_s"]),
            between(start["low_s"], start["high_s"], now) if start else "",
            "|".join(f"{s['node']}:{s['gpus']}" for s in job["placement"] or ()),
            job["why"].partition(": ")[2],  # the delay has a column of its own
        ])  # fmt: skip
    show_table(out, OF_PLAN, rows)
