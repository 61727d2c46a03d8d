"""An evaluation as one HTML page that needs nothing else: tables, and plots as inline SVG."""

import csv
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from markupsafe import Markup

from rltuned.errors import TraceError
from rltuned.lab.compare import LARGER_IS_BETTER
from rltuned.lab.replay.policy import CLAIRVOYANT, FUTURE
from rltuned.lab.report import plots
from rltuned.lab.stats import FloatArray
from rltuned.lab.train.evaluate import Evaluation, everywhere, is_proven
from rltuned.lab.train.verdict import headline
from rltuned.report import render

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
"""Every metric of train/evaluate, with its unit."""
IN_OVERVIEW: Final = ("wait_s", "bsld", "jct_s", "utilisation")
"""The columns of the paper's Table 9."""
LABELS: Final = {"wait_s": "wait, s", "bsld": "bounded slowdown", "jct_s": "job completion time, s"}
"""What is drawn."""
Curve = tuple[FloatArray, FloatArray]
"""Gap, and cost over that of `delay`, of every epoch; straight between validations."""
DRAWN: Final = ("fcfs", "saf", "multifactor", CLAIRVOYANT)
"""Rules whose single jobs are drawn beside the models'; all would be a tangle."""


def write_page(
    folder: Path,
    comparisons: Sequence[Evaluation],
    cards: Mapping[str, Mapping[str, object]],
    curves: Mapping[str, Sequence[Curve]],
) -> Path:
    """Write index.html; its path. curves: of each seed by model. Raises TraceError."""
    places = [
        {"title": title(one), "found": one, "means": one.means(), "plot": _distributions(one)}
        for one in comparisons
    ]
    paired = [table for one in comparisons for table in one.paired.values()]
    text = render(
        "evaluation.html",
        title="Evaluation",
        headline=headline(comparisons),
        places=places,
        cards=cards,
        curves=plots.curves(curves) if curves else "",
        units=UNITS,
        short_units=[unit.split(",")[0] for unit in UNITS.values()],
        overview=IN_OVERVIEW,
        larger_is_better=LARGER_IS_BETTER,
        future=FUTURE,
        policies=dict.fromkeys(name for one in comparisons for name in one.means()),
        models=dict.fromkeys(name for one in comparisons for name in one.paired),
        rules=list(dict.fromkeys(r for table in paired for r in table if r not in FUTURE)),
        everywhere=partial(everywhere, comparisons),
        is_proven=partial(is_proven, comparisons),
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "index.html"
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise TraceError(f"{folder}: cannot be written: {error.strerror}") from error
    return path


def curves_page(curves: Mapping[str, Sequence[Curve]]) -> str:
    """The curves alone, of each seed by name, with where each training stands."""
    standing = [
        f"{name}: {max(len(gap) for gap, _ in seeds)} epochs, held out "
        f"{np.mean([cost[-1] for _, cost in seeds]):.3f} of what `delay` costs"
        for name, seeds in curves.items()
    ]
    drawn = plots.curves(curves)
    return render(
        "curves.html", title="Learning curves", headline="; ".join(standing), curves=drawn
    )


def title(found: Evaluation) -> str:
    """Where a comparison took place."""
    load = "its own load" if found.plan.load is None else f"load {found.plan.load:g}"
    return f"{found.scenario}, {load}"


def _distributions(found: Evaluation) -> Markup:
    drawn = [*(rule for rule in DRAWN if rule in found.spread), *found.paired]
    singles = {policy: found.spread[policy] for policy in drawn}
    return plots.distributions(title(found), LABELS, found.values, singles, list(found.paired))


def read_curve(path: Path) -> Curve:
    """The curves.csv of a training. Raises TraceError: it is none."""
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        gap = np.array([float(r["gap"]) for r in rows])
        validations = np.array([float(r["validation"]) for r in rows])
        held = np.flatnonzero(np.isfinite(validations))
        return gap, np.exp(np.interp(np.arange(len(validations)), held, validations[held]))
    except (OSError, KeyError, ValueError) as error:
        raise TraceError(f"{path}: not curves of a training: {error}") from error
