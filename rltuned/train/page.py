"""An evaluation as one HTML page that needs nothing else: tables, and plots as inline SVG."""

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Final

from markupsafe import Markup

from rltuned.errors import TraceError
from rltuned.report import render
from rltuned.sim.policy import FUTURE
from rltuned.train.evaluate import Comparison
from rltuned.train.paired import LARGER_IS_BETTER
from rltuned.train.plots import curves as plot_curves
from rltuned.train.plots import distributions

UNITS: Final = {
    "wait_s": "mean wait, s",
    "wait_p95_s": "p95 wait, s",
    "wait_p99_s": "p99 wait, s",
    "wait_max_s": "longest wait, s",
    "jct_s": "mean JCT, s",
    "bsld": "bounded slowdown",
    "utilisation": "utilisation",
    "makespan_s": "makespan, s",
}
"""Every metric of train/paired, with its unit."""
IN_OVERVIEW: Final = ("wait_s", "bsld", "jct_s", "utilisation")
"""The columns of the paper's Table 9."""


def write_page(
    folder: Path,
    comparisons: Sequence[Comparison],
    cards: Mapping[str, Mapping[str, object]],
    curves: Mapping[str, Sequence[Path]],
) -> Path:
    """Write index.html; returns its path.

    Args:
        folder: made when absent.
        comparisons: one section each.
        cards: model -> what to say of it.
        curves: model -> curves.csv of its trainings, one per seed.

    Raises:
        TraceError: it cannot be written, or a curve cannot be read.
    """
    places = [
        {
            "title": title(one),
            "found": one,
            "means": one.means(),
            "plot": Markup(distributions(one)),  # noqa: S704 - matplotlib's SVG
        }
        for one in comparisons
    ]
    paired = [table for one in comparisons for table in one.paired.values()]
    text = render(
        "evaluation.html",
        title="Evaluation",
        places=places,
        cards=cards,
        curves=Markup(plot_curves(curves)) if curves else "",  # noqa: S704
        units=UNITS,
        short_units=[unit.split(",")[0] for unit in UNITS.values()],
        overview=IN_OVERVIEW,
        larger_is_better=LARGER_IS_BETTER,
        future=FUTURE,
        policies=dict.fromkeys(name for one in comparisons for name in one.means()),
        models=dict.fromkeys(name for one in comparisons for name in one.paired),
        rules=list(dict.fromkeys(r for table in paired for r in table if r not in FUTURE)),
        everywhere=lambda *at: _everywhere(comparisons, *at),
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "index.html"
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise TraceError(f"{folder}: cannot be written: {error.strerror}") from error
    return path


def title(found: Comparison) -> str:
    """Where a comparison took place."""
    load = "its own load" if found.plan.load is None else f"load {found.plan.load:g}"
    return f"{found.ground}, {load}"


def _everywhere(
    comparisons: Sequence[Comparison], model: str, rule: str, metric: str
) -> list[float]:
    """Change of a model's ratio to a rule: the geometric mean over the places, then at each."""
    tables = [one.paired.get(model, {}) for one in comparisons]
    changes = [table[rule][metric].geometric for table in tables if rule in table]
    if not changes:
        return []
    return [prod((1 + one) ** (1 / len(changes)) for one in changes) - 1, *changes]
