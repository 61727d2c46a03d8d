"""The report: one HTML page that needs nothing else. How far the simulator is off comes first."""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from rltuned.backtest.plots import (
    calibration_plot,
    groups_plot,
    moves_plot,
    orders_plot,
    people_plot,
)
from rltuned.backtest.study import Study
from rltuned.report import render


def page_of(study: Study, told: Mapping[str, Any], shown: Mapping[str, Mapping[str, str]]) -> str:
    """The page.

    Args:
        study: for the plots.
        told: the document, see study.document; the page says nothing that is not in it.
        shown: kind of group -> group -> its name on the page.
    """
    calibration, outcomes = told["calibration"], study.outcomes
    matches = {"all": calibration["whole"], "after the switch": calibration["later"]}
    matches |= {f"partition {name}": match for name, match in calibration["partitions"].items()}
    plots = {
        "calibration": Markup(calibration_plot(study)),  # noqa: S704 - matplotlib's SVG
        "orders": Markup(orders_plot(outcomes)),  # noqa: S704
        "moves": Markup(moves_plot(outcomes)),  # noqa: S704
        "people": {name: Markup(people_plot(study, name)) for name in outcomes},  # noqa: S704
        "groups": {n: Markup(groups_plot(o, shown)) for n, o in outcomes.items()},  # noqa: S704
    }
    return render(
        "backtest.html",
        title=f"Backtest of {told['record']['cluster']}",
        told=told,
        matches=list(matches.items()),
        plots=plots,
        terms=[(k.replace("_", " "), v) for k, v in told["asked"].items() if k != "learned"],
    )
