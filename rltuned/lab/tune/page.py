"""The verdict of a night: one HTML page that needs nothing else."""

from collections.abc import Mapping
from typing import Any, Final

from rltuned.lab.report import plots
from rltuned.lab.tune.night import Night
from rltuned.report import render

SHOWN: Final = {"objective": "objective", "wait": "mean wait", "bsld": "bounded slowdown"}


def page_of(night: Night, found: Mapping[str, Any]) -> str:
    """The page.

    found: see results.document, with the verdict.
    """
    past = night.past
    simulated = (night.natural.start_s - past.arrived_s)[past.scored]
    tested = {e.choice.entrant.family.name: e.test for e in night.tested if e.test is not None}
    panels = [
        (title, {name: getattr(change, metric) for name, change in tested.items()})
        for metric, title in SHOWN.items()
    ]
    record = found["record"]
    terms = [(k.replace("_", " "), str(v)) for k, v in found["asked"].items()]
    terms += [
        ("record", f"{record['jobs']} jobs, {record['begin']} to {record['until']}"),
        ("users", str(record["users"])),
        ("sources", record["sources"]["text"]),
        ("training period from, to", f"{record['lesson']}, {record['gap']}"),
        ("test period from", record["exam"]),
        ("orders played", str(found["plays"])),
    ]
    return render(
        "tune.html",
        title=f"Tuning of {record['cluster']}",
        headline=found["sentence"],
        tone="" if found["verdict"] == "kept" else "close",
        night=found,
        plots={
            "calibration": plots.calibration(
                night.calibration.days, past.split_s, (past.wait_s[past.scored], simulated)
            ),
            "exam": plots.forests("exam", panels, same=True) if tested else "",
        },
        terms=terms,
    )
