"""The report of a backtest: one HTML page that needs nothing else."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from markupsafe import Markup

from rltuned.lab.backtest.outcome import OrderOutcome
from rltuned.lab.backtest.study import Study
from rltuned.lab.report import plots
from rltuned.report import render

SHOWN: Final = {
    "wait_s": "mean wait",
    "wait_p50_s": "median wait",
    "wait_p95_s": "95% wait less",
    "jct_s": "mean completion",
    "bsld": "bounded slowdown",
}


def page_of(study: Study, found: Mapping[str, Any], accounts: Mapping[str, str]) -> str:
    """The page.

    found: see document; the page has nothing else. accounts: account -> its name on the page.
    """
    calibration, past, outcomes = found["calibration"], study.past, study.outcomes
    matches = {"all": calibration["whole"], "after the switch": calibration["later"]}
    matches |= {f"partition {name}": match for name, match in calibration["partitions"].items()}
    simulated = (study.base.start_s - past.arrived_s)[past.scored]
    metrics = [
        (title, {name: o.metrics[metric] for name, o in outcomes.items()})
        for metric, title in SHOWN.items()
    ]
    return render(
        "backtest.html",
        title=f"Backtest of {found['record']['cluster']}",
        headline=found["headline"],
        tone=calibration["verdict"],
        study=found,
        matches=list(matches.items()),
        plots={
            "calibration": plots.calibration(
                study.calibration.days, past.split_s, (past.wait_s[past.scored], simulated)
            ),
            "orders": plots.forests("orders", metrics, same=True),
            "moves": plots.moves({name: o.moved.hours for name, o in outcomes.items()}),
            "people": {name: _people_plot(study, name) for name in outcomes},
            "groups": {name: _groups_plot(o, accounts) for name, o in outcomes.items()},
        },
        terms=[(k.replace("_", " "), v) for k, v in found["asked"].items() if k != "learned"],
    )


def _people_plot(study: Study, name: str) -> Markup:
    gap = (study.own[name].start_s - study.base.start_s)[study.past.later]
    users = np.array(study.outcomes[name].people)
    few = "share of the users with five jobs and more"
    return plots.gaps(f"people {name}", {"share of the jobs": gap, few: users})


def _groups_plot(outcome: OrderOutcome, accounts: Mapping[str, str]) -> Markup:
    """Change of the mean wait by group; a kind with one group says nothing."""
    kinds = {kind: groups for kind, groups in outcome.groups.items() if len(groups) > 1}
    panels = [
        (
            f"mean wait, by {kind}",
            {f"{accounts.get(n, n) if kind == 'account' else n} ({g.jobs})": g.wait
             for n, g in groups.items()},
        )
        for kind, groups in (kinds or dict([*outcome.groups.items()][:1])).items()
    ]  # fmt: skip
    return plots.forests("groups", panels)
