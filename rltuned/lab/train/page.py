"""An evaluation as one HTML page that needs nothing else: tables, and plots as inline SVG."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from markupsafe import Markup

from rltuned.errors import TraceError
from rltuned.lab.compare import LARGER_IS_BETTER
from rltuned.lab.replay.protocol import CLAIRVOYANT, FUTURE
from rltuned.lab.report import plots
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
DRAWN: Final = ("fcfs", "saf", "multifactor", CLAIRVOYANT)
"""Rules whose single jobs are drawn beside the models'; all would be a tangle."""


def write_page(
    folder: Path,
    comparisons: Sequence[Evaluation],
    cards: Mapping[str, Mapping[str, object]],
) -> Path:
    """Write index.html; its path. Raises TraceError."""
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


def title(found: Evaluation) -> str:
    """Where a comparison took place."""
    load = "its own load" if found.plan.load is None else f"load {found.plan.load:g}"
    return f"{found.scenario}, {load}"


def _distributions(found: Evaluation) -> Markup:
    drawn = [*(rule for rule in DRAWN if rule in found.spread), *found.paired]
    singles = {policy: found.spread[policy] for policy in drawn}
    return plots.distributions(title(found), LABELS, found.values, singles, list(found.paired))
