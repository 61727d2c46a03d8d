"""What is shown to eyes: tables on standard output, by rich, as wide as the terminal.

Where the output is no terminal and COLUMNS is not set, lines are as long as they need to be.
"""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from rltuned.core.decide import Entry
from rltuned.core.refusals import counted
from rltuned.daemon.report import CycleReport
from rltuned.daemon.state import HealthState
from rltuned.domain.plan import Result
from rltuned.text import between, escaped, span

MAX_ROWS: Final = 20
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
    table, missing = fitted(columns, rows, out.width)
    if title:
        out.print(title, style="bold", markup=False, soft_wrap=True)
    out.print(table)
    if missing:
        names = ", ".join(missing)
        out.print(f"no room at {out.width} columns: {names}", style="dim", soft_wrap=True)


def fitted(
    columns: Sequence[Column], rows: Sequence[Sequence[str | Text]], width: int
) -> tuple[Table, list[str]]:
    """A table at most so wide, and the names of the columns that were left out."""
    cells = [[c if isinstance(c, Text) else Text(escaped(c)) for c in row] for row in rows]
    widths = [
        max([cell_len(column.name), *(row[at].cell_len for row in cells)])
        for at, column in enumerate(columns)
    ]
    kept = _widths(columns, widths, width)
    table = Table(box=None, header_style="bold", padding=(0, _GAP, 0, 0), pad_edge=False)
    for at in sorted(kept):
        column = columns[at]
        table.add_column(
            column.name,
            justify="right" if column.right else "left",
            width=kept[at],
            no_wrap=True,
            overflow="ellipsis",
        )
    for row in cells:
        table.add_row(*(row[at] for at in sorted(kept)))
    return table, [c.name for at, c in enumerate(columns) if at not in kept]


def _widths(columns: Sequence[Column], widths: Sequence[int], room: int) -> dict[int, int]:
    kept = dict(enumerate(widths))
    for at in sorted(kept, key=lambda at: (columns[at].goes, at), reverse=True):
        over = sum(kept.values()) + _GAP * len(kept) - room
        if over <= 0:
            break
        goes, least = columns[at].goes, min(columns[at].least, kept[at])
        if least and (kept[at] - over >= least or not goes):
            kept[at] = max(least, kept[at] - over)
        elif goes:
            del kept[at]
    return kept


def show_cycle(report: CycleReport) -> None:
    """One cycle: a headline and the changes that it proposes or has made."""
    out = console()
    if report.skip is not None:
        out.print(
            f"[bold]Cycle {report.cycle}[/]: skipped ({report.skip}): {escape(report.detail)}"
        )
        return
    snapshot = report.snapshot
    pending = len(snapshot.pending) if snapshot else 0
    running = len(snapshot.running) if snapshot else 0
    changes = report.changes()
    done = "applied" if report.mode is HealthState.LIVE else "proposed, nothing written"
    count = (
        report.results().get(Result.APPLIED, 0) if report.mode is HealthState.LIVE else len(changes)
    )
    out.print(
        f"\n[bold]Cycle {report.cycle}[/] ({report.mode}): {pending} pending, {running} running; "
        f"{count} changes {done} in {report.seconds:.2f} s"
    )
    if report.decision and report.decision.refused:
        out.print(left_alone(Counter(r.value for _, r in report.decision.refused)))
    if changes:
        show_changes(out, changes[:MAX_ROWS])
    if len(changes) > MAX_ROWS:
        out.print(f"... and {len(changes) - MAX_ROWS} more")


def left_alone(counts: Mapping[str, int]) -> str:
    """How many jobs were, by reason."""
    return "left alone: " + counted(counts)


EXPECTED: Final = Column("expected start", goes=3, least=14)
CHANGES: Final = (
    Column("job"),
    Column("partition", least=9),
    Column("user", least=6),
    Column("rank", right=True, goes=1),
    Column("priority", right=True),
    Column("new", right=True),
    Column("delay", right=True, goes=2),
    EXPECTED,
    Column("fits on", goes=4, least=9),
    Column("why", goes=5, least=12),
)


def show_changes(out: Console, entries: Sequence[Entry]) -> None:
    """Jobs in their new order, with what changes for each."""
    rows = [
        (
            str(entry.job.job_id),
            ",".join(entry.job.partitions),
            entry.job.user,
            _rank(entry.rank_before, entry.rank_wished),
            str(entry.current),
            str(entry.settled) if entry.changes else "",
            span(entry.delay_s),
            nodes_of(entry),
            _reason(entry.why),
        )
        for entry in entries
    ]
    out.print(fitted([c for c in CHANGES if c is not EXPECTED], rows, out.width)[0])


def show_plan(out: Console, jobs: Sequence[Mapping[str, Any]], now: float) -> None:
    """The same by the ranked jobs of a plan's document, with their expected starts."""
    rows = [
        (
            str(job["job_id"]),
            job["partition"],
            job["user"],
            _rank(job["rank_now"], job["rank_wished"]),
            str(job["current_priority"]),
            str(job["planned_priority"]) if job["changes"] else "",
            span(job["delay_s"]),
            _start(job["expected_start"], now),
            "|".join(f"{s['node']}:{s['gpus']}" for s in job["placement"] or ()),
            _reason(job["why"]),
        )
        for job in jobs
    ]
    out.print(fitted(CHANGES, rows, out.width)[0])


def _rank(before: int, after: int) -> str:
    return " -> ".join(map(str, dict.fromkeys((before, after))))


def _reason(why: str) -> str:
    """The delay has a column of its own."""
    return why.partition(": ")[2]


def _start(found: Mapping[str, float] | None, now: float) -> str:
    return "" if found is None else between(found["low_s"], found["high_s"], now)


def nodes_of(entry: Entry) -> str:
    """Where the job would go now, as `p1:2|p2:2` (GPUs per node); empty = nowhere."""
    if entry.placement is None:
        return ""
    return "|".join(f"{s.node}:{s.taken.gpus}" for s in entry.placement.shares)
