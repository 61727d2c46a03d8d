"""A training with a progress bar that knows the time left."""

import sys

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from rltuned.cli.flags import say
from rltuned.train.ranks import Ranks
from rltuned.train.run import RULES, Job, perform


def perform_with_bar(job: Job, ranks: Ranks) -> None:
    """Train and export, and say what came of it; only the first rank shows anything."""
    columns = (
        TextColumn("epoch {task.completed}/{task.total}"),
        BarColumn(),
        TextColumn("gap {task.fields[gap]:+.3f}  held out {task.fields[held]:+.3f} vs saf"),
        TimeRemainingColumn(),
    )
    console = Console(file=sys.stderr)
    with Progress(*columns, console=console, disable=ranks.rank > 0) as bar:
        task = bar.add_task("", total=job.settings.epochs, gap=float("nan"), held=float("nan"))
        card = perform(
            job,
            ranks=ranks,
            on_epoch=lambda r: bar.update(
                task, completed=r.epoch + 1, gap=r.gap, held=r.validation
            ),
        )
    if card is not None:
        short = {k: v for k, v in card.results.items() if "geometric" in k and k.endswith(RULES)}
        changes = ", ".join(f"{k} {v:+.1%}" for k, v in short.items())
        say(f"{job.out}: {changes}; {card.training.seconds:.0f} s")
