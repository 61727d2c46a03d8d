"""The report: one HTML page that needs nothing else. How far the simulator is off comes first."""

import html
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rltuned.backtest.plots import (
    calibration_plot,
    groups_plot,
    moves_plot,
    orders_plot,
    people_plot,
)
from rltuned.backtest.study import Study
from rltuned.text import span
from rltuned.train.page import STYLE

MORE: Final = """
.verdict{padding:.7rem 1rem;border-left:5px solid var(--c4);background:var(--own);margin:1rem 0}
.verdict.close{border-color:var(--good)}.verdict.poor{border-color:var(--bad)}
.verdict b{font-size:1.08rem}ul{padding-left:1.2rem}li{margin:.15rem 0}
p,li{max-width:62rem}dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1.2rem}
dt{color:var(--muted)}dd{margin:0}
"""
METRIC_WORDS: Final = {
    "wait_s": "mean wait",
    "wait_p50_s": "median wait",
    "wait_p95_s": "95% wait less",
    "wait_max_s": "longest wait",
    "jct_s": "mean completion time",
    "bsld": "bounded slowdown",
}
LONG_ROWS: Final = 40


def page_of(study: Study, told: Mapping[str, Any], shown: Mapping[str, Mapping[str, str]]) -> str:
    """The page.

    Args:
        study: for the plots.
        told: the document, see study.document; the page says nothing that is not in it.
        shown: kind of group -> group -> its name on the page.
    """
    record = told["record"]
    title = f"Backtest of {record['cluster']}"
    first = next(iter(study.outcomes))
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width,initial-scale=1'>",
        f"<title>rltuned: {_safe(title)}</title><style>{STYLE}{MORE}</style></head><body>",
        f"<h1>{_safe(title)}</h1>",
        f"<p class=note>{_safe(_lead(told))}</p>",
        _calibration(study, told),
        _orders(study, told),
        *(_order(study, told, name, shown, whole=name == first) for name in study.outcomes),
        _moves(study, told),
        _record(told),
        _terms(told),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _lead(told: Mapping[str, Any]) -> str:
    record = told["record"]
    return (
        f"{record['gpus']} GPUs on {record['nodes']} nodes, Slurm {record['slurm']}; "
        f"{record['jobs_scored']:,} jobs from {record['begin']} to {record['until']}. Judged by "
        f"the {record['jobs_later']:,} that came from {record['switch']} on. Simulated waits are "
        "compared with simulated waits only; real ones stand beside them."
    )


def _calibration(study: Study, told: Mapping[str, Any]) -> str:
    found = told["calibration"]
    whole = found["whole"]
    head = _heads(
        "jobs|real mean|simulated mean|error|real median|simulated|real p95|simulated|"
        "rank correlation|met"
    )
    rows = [("all", whole), ("after the switch", found["later"])]
    rows += [(f"partition {n}", m) for n, m in found["partitions"].items()]
    body = "".join(f"<tr><td>{_safe(name)}{_match(m)}" for name, m in rows)
    gaps = "".join(f"<li>{_safe(text)}" for text in found["not_played"])
    return (
        "<h2>1. How far is the simulator off?</h2>"
        f"<div class='verdict {found['verdict']}'><b>{_safe(_error_words(whole))}</b><br>"
        f"{_safe(found['means'])}.</div>"
        "<p>The same jobs were played under this site's own order "
        f"({_safe(found['order'])}), and the waits compared with those that Slurm really gave. "
        f"Intervals: 95%, over {_safe(found['unit'])}. <i>Met</i>: wait off by at most a minute or "
        "a quarter. Waits count from when a job was eligible.</p>"
        f"<figure>{calibration_plot(study)}</figure>"
        f"<div class=wide><table><tr><th>{head}{body}</table></div>"
        f"<details><summary>What is not played</summary><ul>{gaps}</ul></details>"
    )


def _error_words(match: Mapping[str, Any]) -> str:
    change = match["mean"]["change"]
    told = "nobody waited" if change is None else f"mean wait off by {change:+.1%}"
    if match["mean"]["low"] is not None:
        told += f" [{match['mean']['low']:+.1%}, {match['mean']['high']:+.1%}]"
    rank = match["rank"]
    told += f", by {span(match['off_s'])} per job"
    return told + ("" if rank is None else f"; rank correlation {rank:.2f}")


def _match(match: Mapping[str, Any]) -> str:
    mean = match["mean"]
    rank = "-" if match["rank"] is None else f"{match['rank']:.2f}"
    cells = [
        f"{match['jobs']:,}",
        span(mean["base"]),
        span(mean["own"]),
        _change(mean, plain=True),
        *(span(v) for v in (*match["median_s"], *match["p95_s"])),
        rank,
        f"{match['met']:.0%}",
    ]
    return "".join(f"<td>{c}" for c in cells)


def _orders(study: Study, told: Mapping[str, Any]) -> str:
    real = told["real"]["later"]
    names = list(METRIC_WORDS)
    first = next(iter(told["orders"].values()))["metrics"]
    kinds = ("wait_s", "wait_p50_s", "wait_p95_s", "wait_max_s")
    truth = "".join(f"<td>{span(real[kind])}" for kind in kinds)
    base = "".join(f"<td>{_value(m, first[m]['base'])}" for m in names)
    rows = [
        f"<tr class=note><td>in truth, for comparison only{truth}<td><td>",
        f"<tr><td>multifactor, simulated{base}",
    ]
    for name, order in told["orders"].items():
        cells = "".join(
            f"<td>{_value(m, order['metrics'][m]['own'])}<br>{_change(order['metrics'][m])}"
            for m in names
        )
        rows.append(f"<tr class=model><td>{_safe(name)}{cells}")
    unit = next(iter(told["orders"].values()))["unit"]
    return (
        "<h2>2. What would another order have done?</h2>"
        f"<p>Changes against simulated multifactor, 95% intervals over {_safe(unit)}. "
        f"Learned: {_safe(told['asked']['learned'])}.</p>"
        f"<figure>{orders_plot(study.outcomes)}</figure>"
        f"<div class=wide><table><tr><th>{_heads('|'.join(METRIC_WORDS.values()))}"
        f"{''.join(rows)}</table></div>"
    )


def _order(
    study: Study,
    told: Mapping[str, Any],
    name: str,
    shown: Mapping[str, Mapping[str, str]],
    *,
    whole: bool,
) -> str:
    order = told["orders"][name]
    text = (
        f"<h3>Who would have won and lost</h3>{_won(order)}"
        f"<figure>{people_plot(study, name)}</figure>{_worst(order['worst'])}"
        f"<h3>By partition, size, account and user group</h3>"
        f"<figure>{groups_plot(study.outcomes[name], shown)}</figure>{_groups(order['groups'])}"
    )
    if whole:
        return f"<h2>3. {_safe(name)}, in detail</h2>{text}"
    return f"<details><summary>{_safe(name)}, in detail</summary>{text}</details>"


def _won(order: Mapping[str, Any]) -> str:
    same = 1 - order["better"] - order["worse"]
    return (
        f"<p>{order['better']:.1%} of the jobs start more than a minute earlier, "
        f"{order['worse']:.1%} more than a minute later, {same:.1%} about when they would have. Of "
        f"{order['users']} users with five jobs and more {order['users_better']} wait less in the "
        f"mean and {order['users_worse']} longer.</p>"
    )


def _worst(people: Sequence[Mapping[str, Any]]) -> str:
    rows = "".join(
        f"<tr><td>{_safe(p['name'])}<td>{p['jobs']:,}<td>{span(p['base_s'])}<td>{span(p['own_s'])}"
        f"<td class={'bad' if p['own_s'] > p['base_s'] else 'good'}>"
        f"{_signed(p['own_s'] - p['base_s'])}<td>{span(p['longest_s'])}"
        for p in people
    )
    head = _heads("jobs|mean wait, multifactor|this order|difference|longest, this order")
    return (
        "<details open><summary>Users who would have been hit worst</summary>"
        f"<div class=wide><table><tr><th>{head}{rows}</table></div></details>"
    )


def _groups(groups: Mapping[str, Mapping[str, Any]]) -> str:
    rows = []
    for kind, members in groups.items():
        for name, group in members.items():
            rows.append(
                f"<tr><td>{_safe(kind)}<td class=text>{_safe(name)}<td>{group['jobs']:,}"
                f"<td>{span(group['real_s'])}<td>{span(group['wait']['base'])}"
                f"<td>{span(group['wait']['own'])}<td>{_change(group['wait'])}"
                f"<td>{_change(group['bsld'])}"
            )
    head = _heads("group|jobs|real mean wait|multifactor|this order|change|bounded slowdown")
    table = f"<div class=wide><table><tr><th>{head}{''.join(rows)}</table></div>"
    return f"<details><summary>The same as a table</summary>{table}</details>"


def _moves(study: Study, told: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{_safe(name)}<td>{m['changes']:,}<td>{m['per_hour']:.1f}<td>{m['hour_max']:.0f}"
        f"<td>{m['touched']:.1%}<td>{m['shift']:.1f}<td>{m['furthest']}"
        for name, m in ((n, o["moved"]) for n, o in told["orders"].items())
    )
    head = _heads(
        "changes|per hour|in the busiest hour|jobs ever changed|mean shift of ranks|furthest"
    )
    return (
        "<h2>4. How much would have been moved</h2><p>A change is one number written to one job. "
        "Shifts are places in the queue, over all pending jobs, in cycles that changed "
        f"something.</p><figure>{moves_plot(study.outcomes)}</figure>"
        f"<div class=wide><table><tr><th>{head}{rows}</table></div>"
    )


def _record(told: Mapping[str, Any]) -> str:
    record = told["record"]
    reasons = "".join(
        f"<tr><td class=text>{_safe(why)}<td>{count:,}<td class=text>"
        f"{_safe(', '.join(map(str, record['left_out_lines'].get(why, []))))}"
        for why, count in list(record["left_out"].items())[:LONG_ROWS]
    )
    left = (
        f"<div class=wide><table><tr><th>left out<th>rows<th class=text>first lines{reasons}"
        "</table></div>"
        if reasons
        else "<p>No row was left out.</p>"
    )
    facts = {
        "rows read": f"{record['rows']:,}",
        "jobs played": f"{record['jobs_played']:,}",
        "of them scored": f"{record['jobs_scored']:,} (came and ended within the record)",
        "ran or waited when it began": f"{record['running_at_begin']} / "
        f"{record['waiting_at_begin']}, put there before the play",
        "run time assumed": f"{record['run_times_assumed']} that had not ended: the usual share of "
        "their limit; not scored",
        "nodes left out": ", ".join(record["nodes_left_out"]) or "none",
        "columns missing": ", ".join(record["columns_missing"]) or "none",
        "times without a zone": str(record["times_without_zone"]),
    }
    return f"<h2>5. What was read</h2>{_list(facts)}{left}"


def _terms(told: Mapping[str, Any]) -> str:
    facts = {k.replace("_", " "): str(v) for k, v in told["asked"].items() if k != "learned"}
    return (
        f"<h2>6. How it was played</h2>{_list(facts)}"
        "<p>One world: up to the switch the history is played once under the site's own order, "
        "then each order goes on from a copy of it. Same jobs, placement and backfill; the "
        "daemon's own brain with its bounds, its interval and its journal; between two cycles "
        "Slurm's order stands. Nobody sees a run time before its job has ended. One history gives "
        "one figure: intervals are about chance within it, not about another month.</p>"
    )


def _list(facts: Mapping[str, str]) -> str:
    rows = "".join(f"<dt>{_safe(k)}<dd>{_safe(v)}" for k, v in facts.items())
    return f"<dl>{rows}</dl>"


def _heads(names: str) -> str:
    return "".join(f"<th>{_safe(n)}" for n in names.split("|"))


def _change(found: Mapping[str, Any], *, plain: bool = False) -> str:
    if found["change"] is None:
        return "-"
    sure = found["low"] is not None and (found["low"] > 0 or found["high"] < 0)
    mark = "" if plain or not sure else "good" if found["change"] < 0 else "bad"
    between = "" if found["low"] is None else f" [{found['low']:+.1%}, {found['high']:+.1%}]"
    return f"<span class='{mark}'>{found['change']:+.1%}</span><small>{between}</small>"


def _value(metric: str, value: float) -> str:
    return f"{value:.2f}" if metric == "bsld" else span(value)


def _signed(seconds: float) -> str:
    return f"+{span(seconds)}" if seconds > 0 else span(seconds)


def _safe(text: str) -> str:
    return html.escape(text)
