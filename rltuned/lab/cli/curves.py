"""`rltuned train curves`: how trainings go, also while they run; with the curves of `evaluate`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rltuned.cli.flags import warn
from rltuned.lab.cli.outputs import check_file, write_text

if TYPE_CHECKING:  # numba and matplotlib
    from rltuned.lab.train.page import Curve


def curves(
    given: Annotated[
        list[str],
        typer.Argument(help="NAME=curves.csv,... of `train ppo` (one per seed).", metavar="CURVES"),
    ],
    *,
    out: Annotated[Path, typer.Option(help="HTML page.")] = Path("curves.html"),
) -> None:
    """Draw the learning curves of trainings, also while they run.

    Exit codes: 0 = drawn; 2 = a file has no held-out windows yet, or the page cannot be written.
    """
    check_file(out)
    found = curves_of(given)
    from rltuned.lab.train.page import curves_page  # noqa: PLC0415 - matplotlib takes a second

    write_text(out, curves_page(found) + "\n")
    warn(f"{out} written")


def curves_of(given: Sequence[str]) -> "dict[str, list[Curve]]":
    """By name, those of each seed. given: NAME=FILE,... Raises TraceError: a file has none."""
    if not given:
        return {}
    split = [text.partition("=") for text in given]
    if unnamed := [text for text, (_, equals, _) in zip(given, split, strict=True) if not equals]:
        raise typer.BadParameter(f"curves: NAME=FILE,..., not {unnamed[0]!r}")
    from rltuned.lab.train.page import read_curve  # noqa: PLC0415 - matplotlib takes a second

    return {name: [read_curve(Path(p)) for p in listed.split(",")] for name, _, listed in split}
