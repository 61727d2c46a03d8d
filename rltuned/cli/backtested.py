"""The short form of a backtest, for a terminal: how far the simulator is off first."""

from collections.abc import Iterator
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from rltuned.cli.flags import say

LEFT_OUT_SHOWN: Final = 8


def show(found: dict[str, Any]) -> None:
    """Print what was found."""
    for line in _lines_before(found):
        say(line)
    Console().print(_table_of(found))
    for line in _lines_after(found):
        say(line)


def _lines_before(found: dict[str, Any]) -> Iterator[str]:
    """The lines before the table."""
    whole, real, record = found["calibration"]["whole"], found["real"]["later"], found["record"]
    yield (
        f"{record['cluster']}: {record['jobs_scored']} jobs, {record['begin']} to {record['until']}"
    )
    mean = whole["mean"]
    off = "no job waited" if mean["change"] is None else f"mean wait off by {mean['change']:+.1%}"
    rank = "" if whole["rank"] is None else f", rank correlation {whole['rank']:.2f}"
    yield f"simulator: {off}{rank}; {found['calibration']['means']}"
    yield (
        f"judged by the {record['jobs_later']} jobs from {record['switch']} on; in truth they "
        f"waited {real['wait_s']:.0f} s in the mean"
    )
    yield found["asked"]["learned"]


def _table_of(found: dict[str, Any]) -> Table:
    """Orders beside simulated multifactor."""
    table = Table(box=None)
    heads = "order|mean wait, s|change|p95 wait, s|slowdown|earlier|later|changes/h"
    for column in heads.split("|"):
        table.add_column(column, justify="left" if column == "order" else "right")
    first = next(iter(found["orders"].values()))["metrics"]
    base = [f"{first[m]['base']:.{n}f}" for m, n in (("wait_s", 0), ("wait_p95_s", 0), ("bsld", 2))]
    table.add_row("multifactor, simulated", base[0], "", *base[1:])
    for name, order in found["orders"].items():
        metrics = order["metrics"]
        table.add_row(
            name,
            f"{metrics['wait_s']['own']:.0f}",
            _between(metrics["wait_s"]),
            f"{metrics['wait_p95_s']['own']:.0f}",
            f"{metrics['bsld']['own']:.2f}",
            f"{order['better']:.0%}",
            f"{order['worse']:.0%}",
            f"{order['moved']['per_hour']:.1f}",
        )
    return table


def _lines_after(found: dict[str, Any]) -> Iterator[str]:
    """What was left out."""
    record = found["record"]
    left = sum(record["left_out"].values())
    yield f"{left} of {record['rows']} rows are not played" + (":" if left else "")
    for why, count in list(record["left_out"].items())[:LEFT_OUT_SHOWN]:
        yield f"  {count} {why}"


def _between(found: dict[str, Any]) -> str:
    if found["change"] is None:
        return "-"
    text = f"{found['change']:+.1%}"
    return text if found["low"] is None else f"{text} [{found['low']:+.1%}, {found['high']:+.1%}]"
