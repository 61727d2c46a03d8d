"""The status page: one document as HTML that needs no script, no build and no other server."""

import html
from collections.abc import Sequence
from typing import Any, Final

from rltuned.text import span, when

CSP: Final = (
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""No script at all, and style from /status.css only."""
REFRESH_S: Final = 15
LIVE: Final = "live"
"""The query that asks for a page which loads itself anew."""
STYLE: Final = """
:root{color-scheme:light dark;--paper:#fff;--ink:#1c2330;--muted:#566073;--line:#d5dae3;
--card:#f5f7fa;--good:#0a6b36;--bad:#b3261e;--warn:#8a5300;--link:#1d57c9}
@media(prefers-color-scheme:dark){:root{--paper:#14171d;--ink:#e4e7ec;--muted:#a7b0be;
--line:#343b47;--card:#1c212a;--good:#57d393;--bad:#ff9a90;--warn:#f0c05a;--link:#8ab4ff}}
*{box-sizing:border-box}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);
max-width:72rem;margin:0 auto;padding:1rem}
a{color:var(--link)}a:focus-visible,.wide:focus-visible{outline:3px solid var(--link);
outline-offset:2px}
.skip{position:absolute;left:-99rem}.skip:focus{left:1rem;background:var(--paper);padding:.3rem}
h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.15rem;margin:2rem 0 .4rem}
header p{margin:.2rem 0;color:var(--muted)}
.state{font-weight:700}.good{color:var(--good)}.bad{color:var(--bad)}.warn{color:var(--warn)}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(11rem,1fr));gap:.6rem;margin:1rem 0}
dl div{background:var(--card);border:1px solid var(--line);border-radius:.4rem;padding:.5rem .7rem}
dt{color:var(--muted);font-size:.85rem}dd{margin:0;font-size:1.1rem;overflow-wrap:anywhere}
.wide{overflow-x:auto;margin-top:1rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.92rem;width:100%}
caption{text-align:left;color:var(--muted);padding-bottom:.3rem}
th,td{padding:.3rem .7rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
thead th{color:var(--muted)}th:first-child,.text{text-align:left}
footer{margin-top:2rem;color:var(--muted);font-size:.9rem}
"""

Document = dict[str, Any]


def page(document: Document, *, live: bool = False) -> str:
    """The whole page. Every value is escaped: names of partitions come from Slurm.

    Args:
        document: see web/status.
        live: it loads itself anew; only when asked for, since that takes the place of who reads
            it by keyboard or ear.
    """
    again = f"<meta http-equiv=refresh content={REFRESH_S}>" if live else ""
    other = "<a href='/'>Stand still</a>" if live else f"<a href='/?{LIVE}'>Keep it fresh</a>"
    title = f"rltuned on {document['cluster'] or 'a cluster not seen yet'}"
    return "".join(
        (
            "<!doctype html><html lang=en><head><meta charset=utf-8>",
            "<meta name=viewport content='width=device-width,initial-scale=1'>",
            f"{again}<title>{_text(title)}</title>",
            "<link rel=stylesheet href=/status.css></head><body>",
            "<a class=skip href='#queue'>To the queue</a>",
            _header(document, title),
            "<main>",
            _trouble(document),
            _facts(document),
            _effect(document["effect"], document["blocks"]),
            _queue(document),
            _cycles(document["cycles"]),
            f"</main><footer>Shows the last cycle and asks Slurm nothing. {other}, ",
            "<a href=/status.json>as JSON</a>, ",
            "<a href=/metrics>metrics</a>. ",
            f"rltuned {_text(document['rltuned'])}</footer></body></html>\n",
        )
    )


def _text(value: object) -> str:
    return html.escape(str(value))


def _header(document: Document, title: str) -> str:
    mood, word = ("good", "working") if document["ready"] else ("bad", "not working")
    seen_at = document["seen_at"]
    old = "" if seen_at is None else f" ({span(max(0.0, document['now'] - seen_at))} ago)"
    return (
        f"<header><h1>{_text(title)}</h1><p class=state role=status><span class={mood}>{word}"
        f"</span>: {_text(document['reason'])}</p>"
        f"<p>Queue seen {_text(when(seen_at) + old)}</p></header>"
    )


def _trouble(document: Document) -> str:
    lines = [
        f"Circuit breaker of {b['partition']} open since {when(b['opened_at'])} "
        f"({b['cause']}): {b['detail']}"
        for b in document["breakers"]
    ]
    if document["journal_error"]:
        lines.append(f"Journal cannot be used, so nothing is written: {document['journal_error']}")
    if document["standby"]:
        lines.append(f"Standing by: {document['standby']}")
    if document["rival"]:
        lines.append(f"Nothing is written: {document['rival']}")
    items = "".join(f"<li class=bad>{_text(line)}" for line in lines)
    return (
        f"<section aria-label=Trouble><h2>Trouble</h2><ul>{items}</ul></section>" if lines else ""
    )


def _facts(document: Document) -> str:
    last = document["cycles"][0] if document["cycles"] else {}
    facts = (
        ("stage", document["stage"]),
        ("mode of the last cycle", last.get("mode")),
        ("policy", document["policy"]),
        ("model digest", (document["digest"] or "none")[:12]),
        ("written as", document["write_mode"]),
        ("pending", last.get("pending")),
        ("running", last.get("running")),
        ("changes proposed, applied", f"{last.get('proposed')}, {last.get('applied')}"),
    )
    cards = "".join(
        f"<div><dt>{_text(name)}</dt><dd>{_text('unknown' if value is None else value)}</dd></div>"
        for name, value in facts
    )
    return f"<section aria-label=State><dl>{cards}</dl></section>"


def _effect(effect: Document | None, blocks: list[Document]) -> str:
    if effect is None:
        said = (
            "Not known: there are no off blocks to compare with (stage canary, or full_off_share)."
        )
    else:
        said = _text(effect["verdict"].capitalize()) + "."
    off = ", ".join(f"{b['partition']} until {when(b['until'])}" for b in blocks if not b["on"])
    said += f" Off blocks now, in Slurm's own order: {_text(off)}." if off else ""
    return f"<section aria-label='Does it help'><h2>Does it help?</h2><p>{said}</p></section>"


def _queue(document: Document) -> str:
    rows = [
        [("text", p["partition"]), *(("", p[k]) for k in _COUNTS)] for p in document["partitions"]
    ]
    parts = [
        "<section id=queue aria-label=Queue><h2>The queue, before and after</h2>",
        _table(
            "Pending jobs by partition, and how many the new order moves",
            ("partition", "pending", "up", "down", "in place", "left alone"),
            rows,
        ),
    ]
    left = document["left_alone"]
    if left:
        counts = ", ".join(f"{count} {reason}" for reason, count in sorted(left.items()))
        parts.append(f"<p>Left alone, or not all at once: {_text(counts)}.</p>")
    parts.append(_jobs(document["jobs"]))
    return "".join((*parts, "</section>"))


_COUNTS: Final = ("pending", "up", "down", "same", "left_alone")


def _jobs(jobs: Sequence[Document] | None) -> str:
    if jobs is None:
        return "<p>Single jobs are not shown here (<code>http.jobs</code>).</p>"
    users = any(job["user"] is not None for job in jobs)
    names = ["job", "partition", *(["user"] if users else []), "GPUs", "waited", "delay"]
    rows = [
        [
            ("", job["job"]),
            ("text", job["partition"]),
            *([("text", job["user"])] if users else []),
            ("", job["gpus"]),
            ("", span(job["waited_s"])),
            ("", span(job["delay_s"])),
            ("", job["rank_before"]),
            ("", job["rank_after"]),
            _move(job["rank_before"], job["rank_after"]),
            ("", job["priority"]),
            ("", job["planned"]),
        ]
        for job in jobs
    ]
    heads = (*names, "place before", "place after", "moves", "priority before", "priority after")
    return _table("The first jobs of the new order", heads, rows)


def _cycles(cycles: Sequence[Document]) -> str:
    rows = [
        [
            ("", c["cycle"]),
            ("text", when(c["at"])),
            ("text", c["mode"]),
            ("text warn" if c["skip"] else "text good", c["skip"] or "done"),
            ("", f"{c['seconds']:.2f}"),
            ("", "unknown" if c["pending"] is None else c["pending"]),
            ("", c["proposed"]),
            ("", c["applied"]),
            ("bad" if c["failed"] else "", c["failed"]),
        ]
        for c in cycles
    ]
    heads = (
        "cycle", "began", "mode", "result", "seconds", "pending", "proposed", "applied", "failed",
    )  # fmt: skip
    table = _table("The last cycles, the latest first", heads, rows)
    return f"<section aria-label='Last cycles'><h2>Last cycles</h2>{table}</section>"


def _table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[tuple[str, object]]]) -> str:
    """A table whose heads stand as the cells below them. rows: (class, text) of each cell."""
    kinds = [kind for kind, _ in rows[0]] if rows else [""] * len(heads)
    head = "".join(
        f"<th scope=col class='{kind.partition(' ')[0]}'>{_text(name)}</th>"
        for kind, name in zip(kinds, heads, strict=True)
    )
    body = "".join(f"<tr>{_row(row)}</tr>" for row in rows)
    return (
        f"<div class=wide tabindex=0 role=region aria-label='{_text(caption)}'><table>"
        f"<caption>{_text(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _row(cells: Sequence[tuple[str, object]]) -> str:
    (_, first), *rest = cells
    found = [f"<th scope=row>{_text(first)}</th>"]
    return "".join((*found, *(f"<td class='{kind}'>{_text(value)}</td>" for kind, value in rest)))


def _move(before: int, after: int) -> tuple[str, str]:
    """How far a job goes, in words: colour alone would not tell everybody."""
    if before == after:
        return "text", "stays"
    step = before - after
    return ("text good", f"up {step}") if step > 0 else ("text warn", f"down {-step}")
