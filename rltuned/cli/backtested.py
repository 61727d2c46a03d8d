"""The short form of a backtest, for a terminal: how far the simulator is off first."""

from collections.abc import Iterator
from typing import Any, Final

from rltuned.cli.flags import say
from rltuned.cli.tables import Column, console, show_table

LEFT_OUT_SHOWN: Final = 8


def show(found: dict[str, Any]) -> None:
    """Print what was found."""
    for line in _lines_before(found):
        say(line)
    show_table(console(), COLUMNS, list(_rows(found)))
    for line in _lines_after(found):
        say(line)


def _lines_before(found: dict[str, Any]) -> Iterator[str]:
    """The lines before the table."""
    yield found["headline"]
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


COLUMNS: Final = (
    Column("order", least=14),
    Column("mean wait, s", right=True),
    Column("change", right=True),
    Column("p95 wait, s", right=True, goes=1),
    Column("slowdown", right=True, goes=2),
    Column("earlier", right=True, goes=3),
    Column("later", right=True, goes=3),
    Column("changes/h", right=True, goes=4),
)


def _rows(found: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Orders beside simulated multifactor."""
    first = next(iter(found["orders"].values()))["metrics"]
    base = [f"{first[m]['base']:.{n}f}" for m, n in (("wait_s", 0), ("wait_p95_s", 0), ("bsld", 2))]
    yield ("multifactor, simulated", base[0], "", *base[1:], "", "", "")
    for name, order in found["orders"].items():
        metrics = order["metrics"]
        yield (
            name,
            f"{metrics['wait_s']['own']:.0f}",
            _between(metrics["wait_s"]),
            f"{metrics['wait_p95_s']['own']:.0f}",
            f"{metrics['bsld']['own']:.2f}",
            f"{order['better']:.0%}",
            f"{order['worse']:.0%}",
            f"{order['moved']['per_hour']:.1f}",
        )


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
