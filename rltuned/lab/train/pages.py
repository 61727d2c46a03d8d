"""An evaluation as one HTML page that needs nothing else."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from rltuned.errors import TraceError
from rltuned.lab.compare import LARGER_IS_BETTER
from rltuned.lab.replay.protocol import CLAIRVOYANT
from rltuned.lab.report import plots
from rltuned.lab.train.evaluate import Evaluation, headline
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
LABELS: Final = {"wait_s": "wait, s", "bsld": "bounded slowdown", "jct_s": "job completion time, s"}
"""What is drawn."""
DRAWN: Final = ("fcfs", "saf", "multifactor", CLAIRVOYANT)
"""Rules whose single jobs are drawn beside the models'; all would be a tangle."""


def write_page(
    folder: Path,
    comparisons: Sequence[Evaluation],
    cards: Mapping[str, Mapping[str, object]],
) -> Path:
    """Write index.html of an evaluation; its path. Raises TraceError."""
    places = []
    for found in comparisons:
        load = "its own load" if found.plan.load is None else f"load {found.plan.load:g}"
        title, models = f"{found.scenario}, {load}", list(found.paired)
        drawn = [*(rule for rule in DRAWN if rule in found.spread), *models]
        singles = {policy: found.spread[policy] for policy in drawn}
        plot = plots.distributions(title, LABELS, found.values, singles, models)
        places.append({"title": title, "found": found, "means": found.means(), "plot": plot})
    text = render(
        "evaluation.html",
        title="Evaluation",
        headline=headline(comparisons),
        places=places,
        cards=cards,
        units=UNITS,
        short_units=[unit.split(",")[0] for unit in UNITS.values()],
        larger_is_better=LARGER_IS_BETTER,
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "index.html"
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise TraceError(f"{folder}: cannot be written: {error.strerror}") from error
    return path
