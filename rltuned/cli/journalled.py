"""`rltuned train journal`: learn the order of Slurm's main scheduler from the daemon's journal."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from rltuned.cli.flags import say
from rltuned.cli.imitate import Site, export_site
from rltuned.errors import ModelError
from rltuned.journal.snapshots import Recorded, recorded
from rltuned.train.history import EPOCHS, imitate
from rltuned.train.journalled import choices_of


def journal(
    file: Annotated[Path, typer.Argument(metavar="JOURNAL", help="state_dir/journal.sqlite")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the new bundle; must not exist.")],
    *,
    epochs: Annotated[int, typer.Option(min=1)] = EPOCHS,
    seed: Annotated[int, typer.Option(min=0)] = 1,
) -> None:
    """Teach the actor the order in which Slurm has started jobs while rltuned watched.

    Reads the snapshots of the daemon's journal, also while the daemon runs. Jobs that rltuned had
    written to are left out: learn from a journal of a dry run.

    Exit codes: 0 = learned and exported; 1 = the journal cannot be read; 2 = it shows too few
    starts, or OUT cannot be used.
    """
    if out.exists():
        raise ModelError(f"model {out}: exists already; remove it or choose another name")
    began = time.perf_counter()
    count = 0

    def counted() -> Iterator[Recorded]:
        nonlocal count
        for record in recorded(file):
            count += 1
            yield record

    earlier, later = choices_of(counted()).split(0.8)
    network = imitate(earlier, epochs=epochs, seed=seed)
    site = Site(
        data=f"{file.name}: {count} snapshots, {len(earlier)} starts with rivals",
        settings={"epochs": epochs},
        seed=seed,
        seconds=time.perf_counter() - began,
    )
    agreed = export_site(out, network, later, site)
    say(
        f"{out}: {len(earlier) + len(later)} starts with rivals from {count} snapshots; agrees "
        f"with the later ones on {agreed:.2%} of the pairs"
    )
