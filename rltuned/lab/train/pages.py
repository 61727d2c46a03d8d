"""HTML pages that need nothing else: of an evaluation, and of what a predictor is worth.

The second one answers: how good are the predictions, and what would better time limits have been
worth?
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from markupsafe import Markup

from rltuned.core import run_times
from rltuned.core.order import DEFAULT
from rltuned.errors import ModelError, TraceError
from rltuned.lab.compare import LARGER_IS_BETTER
from rltuned.lab.replay.protocol import CLAIRVOYANT, FUTURE
from rltuned.lab.report import plots
from rltuned.lab.train.evaluate import Evaluation, everywhere, headline, is_proven
from rltuned.lab.train.predictor import HELD_OUT, Examples, examples_of, pinball
from rltuned.policies.predictor import Predictor
from rltuned.report import render
from rltuned.sim.limits import round_up
from rltuned.sim.trace import TraceJob

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


# Of a predictor

LEVELS: Final = np.linspace(0.05, 0.95, 19)
CLOSEST: Final = tuple(
    run_times.KEYS.index(k)
    for k in ("name", "burst", "twin", "user_gpus", "user", "account", "gpus", "all")
)
"""Kinds in the order of likeness: a job is listed under the first of them with an ended job."""
MISSED: Final = 20
GOOD_LIMIT: Final = 1.5
"""A good limit is the run time times this, rounded up to what people write."""


def report_of(
    predictor: Predictor, jobs: Sequence[TraceJob], *, names: bool = False
) -> dict[str, Any]:
    """Judge a predictor on the last part of a history, in the order of submission.

    calibration: levels, and the share of the jobs that ended below that quantile. by_key: jobs and
    loss by closest kind. missed: jobs whose median was furthest off. users: what good limits would
    have saved each user.
    """
    whole = examples_of(jobs, predictor)
    last_s = jobs[-1].submit_s
    ended = [j for j in jobs if j.submit_s + min(j.duration_s, j.time_limit_s) <= last_s]
    first = int(len(whole) * (1 - HELD_OUT))
    judged, late = whole.cut(slice(first, None)), ended[first:]
    quantiles = judged.summary[:, run_times.QUANTILE_COLUMNS] / run_times.LOG_FULL
    places = _closest(judged)
    by_key = []
    for place, name in [*((p, run_times.KEYS[p]) for p in CLOSEST), (-1, "nothing")]:
        own = places == place
        if own.any():
            loss = round(pinball(quantiles[own], judged.x[own]), 4)
            by_key.append({"key": name, "jobs": int(own.sum()), "pinball": loss})
    return {
        "jobs": len(judged),
        "pinball": round(pinball(quantiles, judged.x), 4),
        "calibration": [
            {"level": round(level, 2), "below": round(share, 4)}
            for level, share in _calibration(predictor, judged).tolist()
        ],
        "by_key": by_key,
        "missed": _missed(judged, late),
        "users": _users(late, names=names),
    }


def _closest(judged: Examples) -> np.ndarray:
    """(n,) the closest kind of each job that has an ended job; -1 = none."""
    counts = judged.inputs[:, run_times.REQUEST_SIGNS :: run_times.SIGNS]
    found = np.full(len(judged), -1)
    for place in reversed(CLOSEST):
        found[counts[:, place] > 0] = place
    return found


def _calibration(predictor: Predictor, judged: Examples) -> run_times.FloatArray:
    """(19, 2) levels, and how many jobs ended below the quantile of each."""
    logits = np.where(judged.possible, predictor.logits(judged.inputs), -np.inf)
    share = np.exp(logits - logits.max(axis=1, keepdims=True))
    share /= share.sum(axis=1, keepdims=True)
    limit = np.where(judged.inputs[:, 1] > 0, judged.inputs[:, 0], 1.0)[:, None]
    low, high = run_times.EDGES[None, :-1], np.minimum(run_times.EDGES[None, 1:], limit)
    part = np.clip((judged.x[:, None] - low) / np.maximum(high - low, 1e-9), 0.0, 1.0)
    reached = (share * part).sum(axis=1)
    return np.column_stack([LEVELS, [(reached <= level).mean() for level in LEVELS]])


def _missed(judged: Examples, late: Sequence[TraceJob]) -> list[dict[str, Any]]:
    off = judged.x - judged.summary[:, run_times.MEDIAN] / run_times.LOG_FULL
    worst = np.argsort(-np.abs(off), kind="stable")[:MISSED]
    return [
        {
            "job_id": late[i].job_id,
            "gpus": late[i].gpus,
            "limit_s": None if math.isinf(late[i].time_limit_s) else late[i].time_limit_s,
            "predicted_s": round(float(np.expm1(judged.summary[i, run_times.MEDIAN]))),
            "run_s": round(float(np.expm1(judged.x[i] * run_times.LOG_FULL))),
        }
        for i in worst.tolist()
    ]


def _users(late: Sequence[TraceJob], *, names: bool) -> list[dict[str, Any]]:
    """By user, the mean own part of the delay with the limits given, and with the true run time."""
    own: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for job in late:
        if not job.user or math.isinf(job.time_limit_s):
            continue
        run_s = min(job.duration_s, job.time_limit_s)
        good_s = min(float(round_up(np.array([run_s * GOOD_LIMIT]))[0]), job.time_limit_s)
        given, good = (
            DEFAULT.own * run_times.PLAN_SCALE * math.sqrt(limit_s * run_s * max(job.gpus, 1))
            for limit_s in (job.time_limit_s, good_s)
        )
        own[job.user].append((run_s / job.time_limit_s, given, good))
    rows = []
    for number, (user, table) in enumerate(sorted(own.items(), key=lambda item: -len(item[1])), 1):
        used, given_s, good_s = np.array(table).T
        rows.append(
            {
                "user": user if names else f"user {number}",
                "jobs": len(table),
                "limit_used": round(float(np.median(used)), 3),
                "delay_s": round(float(given_s.mean())),
                "delay_with_good_limits_s": round(float(good_s.mean())),
            }
        )
    return rows


def write_report(folder: Path, found: Mapping[str, Any], title: str) -> None:
    """index.html in a new folder. Raises ModelError: it exists, or cannot be written."""
    try:
        folder.mkdir(parents=True)
        page = render(
            "predictor.html",
            title=title,
            headline=f"Pinball loss {found['pinball']:.3f} on {found['jobs']:,} later jobs",
            found=found,
            plot=plots.levels(np.array([list(row.values()) for row in found["calibration"]])),
            good=GOOD_LIMIT,
        )
        (folder / "index.html").write_text(page, "utf-8")
    except OSError as error:
        raise ModelError(f"{folder}: {error.strerror or error}") from error
