"""What is shown to eyes: tables on standard output, by rich."""

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rltuned.core.decide import Entry
from rltuned.daemon.report import CycleReport
from rltuned.daemon.state import HealthState
from rltuned.domain.plan import Result
from rltuned.text import span

MAX_ROWS = 20
WIDE = 160


def show_cycle(report: CycleReport) -> None:
    """One cycle: a headline and the changes that it proposes or has made."""
    console = wide_console()
    if report.skip is not None:
        console.print(
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
    console.print(
        f"\n[bold]Cycle {report.cycle}[/] ({report.mode}): {pending} pending, {running} running; "
        f"{count} changes {done} in {report.seconds:.2f} s"
    )
    left = Counter(str(reason) for _, reason in report.decision.refused) if report.decision else {}
    if left:
        counts = ", ".join(f"{count} {reason}" for reason, count in sorted(left.items()))
        console.print(f"left alone: {counts}")
    if changes:
        console.print(changes_table(changes[:MAX_ROWS]))
    if len(changes) > MAX_ROWS:
        console.print(f"... and {len(changes) - MAX_ROWS} more")


def wide_console() -> Console:
    """Standard output; where it is no terminal, lines are as long as they need to be."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=WIDE, highlight=False)


def changes_table(entries: Sequence[Entry]) -> Table:
    """Jobs in their new order, with what changes for each."""
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("job")
    table.add_column("partition")
    for name in ("rank", "priority now", "new", "delay"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("fits on", no_wrap=True)
    table.add_column("why", no_wrap=True)
    for entry in entries:
        table.add_row(
            str(entry.job.job_id),
            escape(",".join(entry.job.partitions)),
            _arrow(entry.rank_before, entry.rank_after),
            str(entry.current),
            str(entry.settled) if entry.changes else "",
            span(entry.delay_s),
            escape(nodes_of(entry)),
            # the delay has a column of its own
            escape(entry.why.partition(": ")[2]),
        )
    return table


def nodes_of(entry: Entry) -> str:
    """Where the job would go now, as `p1:2|p2:2` (GPUs per node); empty = nowhere."""
    if entry.placement is None:
        return ""
    return "|".join(f"{s.node}:{s.taken.gpus}" for s in entry.placement.shares)


def _arrow(before: int, after: int) -> str:
    return str(before) if before == after else f"{before} -> {after}"
