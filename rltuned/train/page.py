"""An evaluation as one HTML page that needs nothing else: tables, and plots as inline SVG."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from rltuned.errors import TraceError
from rltuned.sim.policy import FUTURE
from rltuned.train.evaluate import Comparison
from rltuned.train.paired import LARGER_IS_BETTER, METRICS, Paired
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
IN_OVERVIEW: Final = ("wait_s", "bsld", "jct_s", "utilisation")
"""The columns of the paper's Table 9."""
STYLE: Final = """
:root{color-scheme:light dark;--paper:#fff;--ink:#1c2330;--muted:#667085;--line:#dfe3ea;
--pale:#d5dae3;--own:#eef4ff;--good:#0a7a3d;--bad:#b3261e;--c0:#2f6fed;--c1:#d9480f;--c2:#0a8a47;
--c3:#8a3ffc;--c4:#b58900;--c5:#c2255c;--c6:#0b7285;--c7:#5f3dc4}
@media(prefers-color-scheme:dark){:root{--paper:#14171d;--ink:#e4e7ec;--muted:#98a2b3;
--line:#2c323d;--pale:#475467;--own:#1b2740;--good:#4cc38a;--bad:#ff8a80;--c0:#7aa7ff;--c1:#ff9a5c;
--c2:#57d393;--c3:#c4a1ff;--c4:#e8c255;--c5:#ff8fb3;--c6:#5cd0e0;--c7:#a99bff}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1240px;
margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem}h2{margin-top:2.6rem;border-bottom:1px solid var(--line);padding-bottom:.2rem}
h3{margin:1.6rem 0 .2rem;font-size:1.05rem}a{color:var(--c0)}
nav{columns:3 16rem}nav a{display:block}
table{border-collapse:collapse;margin:.6rem 0;font-variant-numeric:tabular-nums;font-size:.87rem}
th,td{padding:.22rem .6rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap;
vertical-align:top}th{color:var(--muted);font-weight:600;vertical-align:bottom}
td:first-child,th:first-child,.text{text-align:left}td.text{white-space:normal}
tr.model{background:var(--own);font-weight:600}.good{color:var(--good)}.bad{color:var(--bad)}
.note{color:var(--muted);font-weight:400}small{color:var(--muted);font-weight:400}
figure{margin:1rem 0}svg{max-width:100%;height:auto}svg text{font-family:system-ui,sans-serif}
.wide{overflow-x:auto}.beside{display:flex;flex-wrap:wrap;column-gap:2rem}summary{cursor:pointer;color:var(--c0)}
"""


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
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width,initial-scale=1'>",
        f"<title>rltuned evaluation</title><style>{STYLE}</style>",
        "<h1>rltuned: evaluation</h1>",
        _contents(comparisons),
        _models(cards),
    ]
    if curves:
        parts.append(
            "<h2>Learning curves</h2><p class=note>Left: how much less the learner's windows cost "
            "than the base rule's, as sampled while learning. Right: greedy, on held-out windows. "
            f"Several seeds: mean and range.</p><figure>{plot_curves(curves)}</figure>"
        )
    parts.append(_overview(comparisons))
    parts.append(_transfer(comparisons))
    parts.extend(_section(c, number) for number, c in enumerate(comparisons))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "index.html"
        path.write_text("\n".join(parts) + "\n", encoding="utf-8")
    except OSError as error:
        raise TraceError(f"{folder}: cannot be written: {error.strerror}") from error
    return path


def title(found: Comparison) -> str:
    """Where a comparison took place."""
    load = "its own load" if found.plan.load is None else f"load {found.plan.load:g}"
    return f"{found.ground}, {load}"


def _contents(comparisons: Sequence[Comparison]) -> str:
    links = "".join(
        f"<a href='#s{i}'>{html.escape(title(c))}</a>" for i, c in enumerate(comparisons)
    )
    return f"<nav>{links}</nav>"


def _models(cards: Mapping[str, Mapping[str, object]]) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(name)}<td class=text>{html.escape(str(card['summary']))}"
        f"<td>{html.escape(str(card['seeds']))}<td class=text><code>"
        f"{html.escape(' '.join(str(d)[:12] for d in _listed(card['digests'])))}</code>"
        for name, card in cards.items()
    )
    return _framed(f"<tr><th>model<th class=text>summary<th>seeds<th class=text>cards{rows}")


def _listed(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _framed(rows: str) -> str:
    return f"<div class=wide><table>{rows}</table></div>"


def _heads(names: Sequence[str]) -> str:
    return "".join(f"<th>{n}" for n in names)


def _places(comparisons: Sequence[Comparison]) -> list[str]:
    return [html.escape(title(c)).replace(", ", "<br>") for c in comparisons]


def _overview(comparisons: Sequence[Comparison]) -> str:
    """Every policy everywhere, a table per metric: the paper's Table 9."""
    parts = ["<h2>Every policy</h2><div class=beside>"]
    means = [c.means() for c in comparisons]
    models = {name for c in comparisons for name in c.paired}
    policies = list(dict.fromkeys(p for m in means for p in m))
    for metric in IN_OVERVIEW:
        rows = []
        for policy in policies:
            cells = "".join(
                f"<td>{_number(m[policy][metric])}" if policy in m else "<td>" for m in means
            )
            mark = " class=model" if policy in models else ""
            rows.append(f"<tr{mark}><td>{html.escape(policy)}{cells}")
        head = _heads([UNITS[metric], *_places(comparisons)])
        parts.append(_framed(f"<tr>{head}{''.join(rows)}"))
    return "".join((*parts, "</div>"))


def _transfer(comparisons: Sequence[Comparison]) -> str:
    """Models down, rules across: the paper's Table 7, for the geometric mean over the places."""
    told = (
        "Change of the ratio, geometric mean over windows and then over the places of this page; "
        "below, its range over the places."
    )
    parts = [f"<h2>Each model against each rule</h2><p class=note>{told}</p>"]
    models = list(dict.fromkeys(name for c in comparisons for name in c.paired))
    for metric in ("wait_s", "bsld", "jct_s"):
        rules = list(
            dict.fromkeys(
                r for c in comparisons for t in c.paired.values() for r in t if r not in FUTURE
            )
        )
        rows = []
        for model in models:
            cells = "".join(
                _everywhere(
                    [c.paired[model][r][metric] for c in comparisons if r in c.paired[model]]
                )
                for r in rules
            )
            rows.append(f"<tr class=model><td>{html.escape(model)}{cells}")
        head = _heads([UNITS[metric].split(",")[0], *map(html.escape, rules)])
        parts.append(_framed(f"<tr>{head}{''.join(rows)}"))
    return "".join(parts)


def _everywhere(found: Sequence[Paired]) -> str:
    if not found:
        return "<td>"
    product = 1.0
    for one in found:
        product *= (1 + one.geometric) ** (1 / len(found))
    changes = [one.geometric for one in found]
    span = f"<br><small>{min(changes):+.0%} to {max(changes):+.0%}</small>"
    mark = "good" if product < 1 else "bad"
    return f"<td class={mark}>{product - 1:+.1%}{span if len(found) > 1 else ''}"


def _section(found: Comparison, number: int) -> str:
    plan = found.plan
    count = plan.windows if plan.unit == "windows" else plan.copies
    copies = f", each in {plan.copies} copies with moved submits" if plan.copies > 1 else ""
    if plan.unit == "copies":
        chance = "intervals are over copies of one stretch: chance of the moment, not of the trace"
    elif found.disjoint:
        chance = "no two windows share a job"
    else:
        chance = "windows share jobs: intervals are narrower than the truth"
    return "".join(
        (
            f"<h2 id=s{number}>{html.escape(title(found))}</h2><p class=note>{plan.windows} ",
            f"windows of {plan.window_jobs:,} jobs{copies}, {plan.part[0]:.0%} to ",
            f"{plan.part[1]:.0%} of the trace{', at random places' if plan.random else ''}; ",
            f"{chance}. Unit of chance: {count} {plan.unit}.</p>",
            _table(found),
            _ways(found),
            f"<figure>{distributions(found)}</figure>",
            *(_paired(found, model) for model in found.paired),
        )
    )


def _table(found: Comparison) -> str:
    rows = []
    for policy, table in found.means().items():
        mark = " class=model" if policy in found.paired else ""
        cells = "".join(f"<td>{_number(table[m])}" for m in METRICS)
        rows.append(f"<tr{mark}><td>{html.escape(policy)}{cells}")
    return _framed(f"<tr>{_heads(['policy', *(UNITS[m] for m in METRICS)])}{''.join(rows)}")


def _ways(found: Comparison) -> str:
    """How much of the way from FCFS each model goes."""
    if not any(found.closed.values()):
        return ""
    goal = f"the better of {' and '.join(FUTURE)}"
    rows = [
        f"<tr><td>{html.escape(model)}<td class=text>{goal}"
        + "".join(f"<td>{found.closed[model][m]:.0%}" for m in ("wait_s", "jct_s", "bsld"))
        for model in found.paired
        if found.closed[model]
    ]
    head = "<th>way from FCFS to<th class=text><th>wait<th>JCT<th>slowdown"
    return _framed(f"<tr>{head}{''.join(rows)}")


def _paired(found: Comparison, model: str) -> str:
    rows = [
        f"<tr><td>{html.escape(rule)}{''.join(_cell(table[m], m) for m in METRICS)}"
        for rule, table in found.paired[model].items()
    ]
    head = _heads(["against", *(UNITS[m].split(",")[0] for m in METRICS)])
    table = _framed(f"<tr>{head}{''.join(rows)}")
    return (
        f"<details><summary>{html.escape(model)} against each rule, every metric</summary>"
        "<p class=note>Change of the mean with its 95% interval; the same of the geometric mean of "
        "ratios (g); wins-losses; where there are several training seeds, the change of each.</p>"
        f"{table}</details>"
    )


def _cell(found: Paired, metric: str) -> str:
    sign = -1 if metric in LARGER_IS_BETTER else 1
    sure = found.low > 0 or found.high < 0
    mark = "" if not sure else " class=good" if sign * found.change < 0 else " class=bad"
    seeds = f"<br>{_signed(found.seeds)}" if found.seeds else ""
    return (
        f"<td{mark}>{found.change:+.1%}<br><small>[{found.low:+.1%}, {found.high:+.1%}]<br>"
        f"g {found.geometric:+.1%} [{found.geometric_low:+.1%}, {found.geometric_high:+.1%}]<br>"
        f"{found.wins}-{found.losses}{seeds}</small>"
    )


def _signed(values: Sequence[float]) -> str:
    return ", ".join(f"{v:+.0%}" for v in values)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits
