"""An evaluation as one HTML page that needs nothing else: tables, and plots as inline SVG."""

import csv
import html
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from rltuned.errors import TraceError
from rltuned.sim.policy import CLAIRVOYANT
from rltuned.train.evaluate import METRICS, Comparison, Paired

UNITS = {
    "wait_s": "mean wait, s",
    "wait_p95_s": "p95 wait, s",
    "wait_p99_s": "p99 wait, s",
    "wait_max_s": "longest wait, s",
    "jct_s": "mean JCT, s",
    "bsld": "bounded slowdown",
    "utilisation": "utilisation",
    "makespan_s": "makespan, s",
}
STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#1c2330;max-width:1080px;margin:2rem auto;
padding:0 1rem}h1{font-size:1.6rem}h2{margin-top:2.5rem;border-bottom:1px solid #d8dde6}
h3{margin-top:1.6rem}
table{border-collapse:collapse;margin:.8rem 0;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .7rem;text-align:right;border-bottom:1px solid #e6e9ef}
th{color:#5a6475;font-weight:600}td:first-child,th:first-child{text-align:left}
tr.model{background:#eef4ff;font-weight:600}td.good{color:#0a7a3d}td.bad{color:#b3261e}
.note{color:#5a6475}figure{margin:1rem 0;overflow-x:auto}svg{max-width:100%;height:auto}
.wide{overflow-x:auto}
"""
COLOURS = ("#2f6fed", "#d9480f", "#0a7a3d", "#8a3ffc", "#b58900", "#c2255c", "#0b7285", "#5f3dc4")


def write_page(
    folder: Path,
    comparisons: Sequence[Comparison],
    cards: Mapping[str, Mapping[str, object]],
    curves: Mapping[str, Path],
) -> Path:
    """Write index.html; returns its path.

    Args:
        folder: made when absent.
        comparisons: one section each.
        cards: model -> what to say of it.
        curves: model -> curves.csv of its training.

    Raises:
        TraceError: it cannot be written, or a curve cannot be read.
    """
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width,initial-scale=1'>",
        f"<title>rltuned evaluation</title><style>{STYLE}</style>",
        "<h1>rltuned: evaluation</h1>",
        _models(cards),
    ]
    if curves:
        parts.append(f"<h2>Learning curves</h2><figure>{_curves(curves)}</figure>")
    if len(comparisons) > 1:
        parts.append(_overview(comparisons))
    parts.extend(_section(c) for c in comparisons)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "index.html"
        path.write_text("\n".join(parts) + "\n", encoding="utf-8")
    except OSError as error:
        raise TraceError(f"{folder}: cannot be written: {error.strerror}") from error
    return path


def _models(cards: Mapping[str, Mapping[str, object]]) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(name)}<td style='text-align:left'>"
        f"{html.escape(str(card['summary']))}"
        f"<td><code>{html.escape(str(card['digest'])[:12])}</code>"
        for name, card in cards.items()
    )
    return f"<table><tr><th>model<th style='text-align:left'>summary<th>card{rows}</table>"


def _section(found: Comparison) -> str:
    plan = found.plan
    load = "as in the trace" if plan.load is None else f"{plan.load:g}"
    count = len(next(iter(found.values.values()))["wait_s"])
    chance = (
        "windows share no job"
        if found.disjoint
        else "windows share jobs: intervals are narrower than the truth"
    )
    return "".join(
        (
            f"<h2>{html.escape(found.ground)}, load {load}</h2><p class=note>{count} windows of ",
            f"{plan.window_jobs} jobs, {plan.part[0]:.0%} to {plan.part[1]:.0%} of the trace; ",
            f"{chance}. No order can bring the mean wait below {found.bound[0]:,.0f} s or the ",
            f"mean JCT below {found.bound[1]:,.0f} s.</p>",
            _table(found),
            *(_paired(found, model) for model in found.paired),
            f"<figure>{_distributions(found)}</figure>",
        )
    )


def _table(found: Comparison) -> str:
    means = found.means()
    head = "".join(f"<th>{UNITS[m]}" for m in METRICS)
    rows = []
    for policy, table in means.items():
        mark = " class=model" if policy in found.paired else ""
        cells = "".join(f"<td>{_number(table[m])}" for m in METRICS)
        rows.append(f"<tr{mark}><td>{html.escape(policy)}{cells}")
    return f"<div class=wide><table><tr><th>policy{head}{''.join(rows)}</table></div>"


def _paired(found: Comparison, model: str) -> str:
    head = "".join(f"<th>{UNITS[m].split(',')[0]}" for m in METRICS)
    rows = []
    for rule, table in found.paired[model].items():
        cells = "".join(_cell(table[m], m) for m in METRICS)
        rows.append(f"<tr><td>{html.escape(rule)}{cells}")
    closed = ", ".join(f"{UNITS[m].split(',')[0]} {v:.0%}" for m, v in found.closed[model].items())
    return (
        f"<h3>{html.escape(model)} against each rule</h3><p class=note>Change of the mean, 95% "
        f"interval by resampling windows, wins-losses. Way from FCFS to the clairvoyant order: "
        f"{closed or 'not asked for'}.</p><div class=wide><table><tr><th>against{head}"
        f"{''.join(rows)}</table></div>"
    )


def _cell(found: Paired, metric: str) -> str:
    sign = -1 if metric == "utilisation" else 1
    better, worse = sign * found.change < 0, sign * found.change > 0
    sure = found.low > 0 or found.high < 0
    mark = " class=good" if better and sure else " class=bad" if worse and sure else ""
    return (
        f"<td{mark}>{found.change:+.1%}<br><span class=note>[{found.low:+.1%}, {found.high:+.1%}] "
        f"{found.wins}-{found.losses}</span>"
    )


def _overview(comparisons: Sequence[Comparison]) -> str:
    """Rows: model and rule; columns: where; the transfer matrix of the paper's Table 7."""
    head = "".join(
        f"<th>{html.escape(c.ground)}<br>load {c.plan.load or 'own'}" for c in comparisons
    )
    rows = []
    for metric in ("wait_s", "bsld"):
        for model in comparisons[0].paired:
            for rule in ("fcfs", "sjf", "saf", "f1", "wfp3", "multifactor", CLAIRVOYANT):
                cells = "".join(
                    _cell(c.paired[model][rule][metric], metric)
                    for c in comparisons
                    if rule in c.paired[model]
                )
                rows.append(f"<tr><td>{UNITS[metric]}: {html.escape(model)} against {rule}{cells}")
    return f"<h2>Everywhere</h2><div class=wide><table><tr><th>{head}{''.join(rows)}</table></div>"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits


def _distributions(found: Comparison) -> str:
    figure = Figure(figsize=(10.5, 3.6), layout="constrained")
    axes = figure.subplots(1, 3)
    for axis, metric in zip(axes, ("wait_s", "bsld", "jct_s"), strict=True):
        data = [table[metric] for table in found.values.values()]
        boxes = axis.boxplot(data, orientation="horizontal", showfliers=False, patch_artist=True)
        for box, policy in zip(boxes["boxes"], found.values, strict=True):
            box.set_facecolor("#2f6fed" if policy in found.paired else "#dfe4ec")
        axis.set_yticks(range(1, len(data) + 1), list(found.values) if axis is axes[0] else [])
        axis.set_xscale("symlog", linthresh=10)
        axis.set_xlabel(f"{UNITS[metric]} per window")
        axis.invert_yaxis()
    return _svg(figure)


def _curves(curves: Mapping[str, Path]) -> str:
    figure = Figure(figsize=(10.5, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for (name, path), colour in zip(curves.items(), COLOURS * len(curves), strict=False):
        try:
            with path.open(newline="") as file:
                rows = list(csv.DictReader(file))
            epochs = [int(r["epoch"]) for r in rows]
            gap = np.array([float(r["gap"]) for r in rows])
            held = np.array([float(r["validation"]) for r in rows])
        except (OSError, KeyError, ValueError) as error:
            raise TraceError(f"{path}: not curves of a training: {error}") from error
        left.plot(epochs, gap, color=colour, label=name)
        right.plot(epochs, np.exp(held), color=colour, label=name)
    left.set_ylabel("gap to the base rule, training windows")
    right.set_ylabel("held out: model over SAF")
    right.axhline(1.0, color="#5a6475", linewidth=0.8)
    for axis in (left, right):
        axis.set_xlabel("epoch")
        axis.grid(alpha=0.3)
    left.legend()
    return _svg(figure)


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "rltuned", "font.size": 9}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]
