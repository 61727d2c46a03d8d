"""The pages of the port: the HTML of what the board knows."""

import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

from rltuned.core import refusals
from rltuned.daemon.breaker import FEWEST
from rltuned.daemon.documents import Document
from rltuned.daemon.state import STATES
from rltuned.daemon.web.board import Asker, Board
from rltuned.daemon.web.series import RANGES, RangeView
from rltuned.daemon.words import in_words
from rltuned.report import charts, render
from rltuned.stats import word_of
from rltuned.text import span

Asked = Mapping[str, str]
"""What the address asks for: range, q, sort, way, from."""
ROWS: Final = 50
"""Jobs on one page of the table."""
MOVES: Final = 10
BEFORE: Final = 12
"""Jobs that are named on a job's page as those before it."""
_LAST: Final = 10**12
_HOUR_S: Final = 3_600.0
_TOPS: Final = (
    60.0, 600.0, 1_800.0, *(n * _HOUR_S for n in (1, 2, 4, 8, 12, 24, 36, 48, 72, 96, 168, 336)),
)  # fmt: skip
"""Where the axis of waits may end."""
_AMOUNTS: Final = (
    2.0, 4.0, 6.0, 8.0, *(step * 10.0**n for n in range(1, 7) for step in (1, 2, 3, 4, 6, 8)),
)  # fmt: skip
"""And that of GPUs: there are whole ones at its middle too."""
SORTS: Final[Mapping[str, Callable[[Document], Any]]] = {
    "place": lambda j: j["rank_now"] or _LAST,
    "wish": lambda j: j["rank_wished"] or _LAST,
    "before": lambda j: j["rank_before"] or _LAST,
    "moves": lambda j: -((j["rank_before"] or 0) - (j["rank_to"] or 0)),
    "waited": lambda j: -j["waited_s"],
    "gpus": lambda j: -j["gpus"],
    "limit": lambda j: j["limit_s"] or _LAST,
    "user": lambda j: (j["user"], j["rank_now"] or _LAST),
    "partition": lambda j: (j["partition"], j["rank_now"] or _LAST),
    "reason": lambda j: (j["reason"], j["rank_now"] or _LAST),
}
LEVELS: Final = {
    "ok": ("good", "●"),
    "notice": ("link", "◆"),
    "warning": ("warn", "▲"),
    "bad": ("bad", "✖"),
}
"""The class and the sign of a level; the word beside it says the same."""


def page(d: Document, board: Board, asked: Asked) -> str:
    """The status page."""
    name = asked.get("range", "24h")
    name = name if name in RANGES else "24h"
    shown, day = (board.series.shown(one, d["now"]) for one in (name, "24h"))
    rows = board.rows() if d["jobs"] is not None else []
    used, both = ([v for _, v in points] for points in (day.used, day.wanted))
    asked_for = [b and b - (a or 0.0) for a, b in zip(used, both, strict=True)]
    most = max((u["used"] + u["wanted"] for u in d["users"]), default=0)
    return render(
        "status.html",
        d=d,
        sparks=[charts.spark(used, "GPUs used, last 24 hours"),
                charts.spark(asked_for, "GPUs asked for, last 24 hours")],
        fewest=FEWEST,
        states=STATES,
        word_of=word_of,
        ranges=[(one, _href(asked, range=one), one == name) for one in RANGES],
        over_time=_over_time(d, shown),
        left=refusals.counted(d["left_alone"]),
        movers=_movers(rows),
        most=most,
        table=_table(rows, asked),
        last=next((c for c in d["cycles"] if c["skip"] is None), None),
        severity=LEVELS,
        refusals=refusals.BY_LABEL,
    )  # fmt: skip


def job_page(d: Document, board: Board, asked: Asked) -> tuple[str, HTTPStatus]:
    """The page of one waiting job, and its status: it is shown where all see jobs."""
    name = asked.get("id", "").strip()
    job = board.explain(name, Asker()).get("job") if d["jobs"] is not None else None
    shown: Document = {"d": d, "name": name, "job": job, "lines": [], "before": []}
    if job is None or job["state"] != "PENDING":
        return render("job.html", **{**shown, "job": None}), HTTPStatus.NOT_FOUND
    rows = [row for row in board.rows() if row["rank_now"] is not None]
    at = next((n for n, row in enumerate(rows) if row["job_id"] == job["job_id"]), 0)
    shown |= {"lines": in_words(job), "before": rows[max(0, at - BEFORE) : at]}
    return render("job.html", **shown, refusals=refusals.BY_LABEL), HTTPStatus.OK


def text_page(markdown: str) -> str:
    """A page of the documentation. Its links to other pages lead nowhere here, so they are text."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 - asked for rarely

    kept = re.sub(r"\[([^\]]+)\]\((?!https?://)[^)]*\)", r"\1", markdown)
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens, title = reader.parse(kept), ""
    for at, token in enumerate(tokens):
        if token.type == "heading_open":  # alerts link to headings by GitHub's names of them
            text = tokens[at + 1].content
            title = title or text
            token.attrSet("id", re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-"))
    html = reader.renderer.render(tokens, reader.options, {})
    html = html.replace("<pre>", "<pre tabindex=0>")  # a wide one is scrolled by keyboard too
    return render("text.html", title=title, html=html)


# -- Charts and the table --------------------------------------------------------------------------


def _over_time(d: Document, shown: RangeView) -> tuple[str, str]:
    """Waits and GPUs."""
    total = sum(g["used"] + g["free"] + g["down"] for g in d["gpus"])
    waits = charts.over_time(
        f"Wait of the {shown.started} jobs that started", shown.begin, shown.end,
        [charts.Drawn("90% waited less than", "wanted", shown.late_s),
         charts.Drawn("median", "used", shown.median_s)],
        shaded=("off block: Slurm's own order", shown.off), say=span, tops=_TOPS,
    )  # fmt: skip
    gpus = charts.over_time(
        "GPUs used, and asked for by waiting jobs", shown.begin, shown.end,
        [charts.Drawn("used and asked for", "wanted", shown.wanted, filled=True),
         charts.Drawn("used", "used", shown.used, filled=True)],
        marked=(float(total), f"{total} GPUs") if total else None, tops=_AMOUNTS,
    )  # fmt: skip
    return waits, gpus


def _movers(rows: list[Document]) -> Document | None:
    """The largest moves up and down: two lists and the lines between them."""
    ranked = [j for j in rows if j["rank_before"]]
    ranked.sort(key=lambda j: (j["rank_to"] - j["rank_before"], j["rank_to"]))
    ups = [j for j in ranked if j["rank_to"] < j["rank_before"]][: MOVES // 2]
    downs = [j for j in ranked if j["rank_to"] > j["rank_before"]][-MOVES // 2 :]
    before = sorted(ups + downs, key=lambda j: j["rank_before"])
    after = sorted(ups + downs, key=lambda j: j["rank_to"])
    lines = [(before.index(j), at, "up" if j in ups else "down") for at, j in enumerate(after)]
    return {"before": before, "after": after, "lines": lines} if lines else None


def _table(rows: list[Document], asked: Asked) -> Document:
    """The jobs that fit the filter, sorted, one page of them."""
    text, sort = asked.get("q", "").strip(), asked.get("sort", "place")
    sort = sort if sort in SORTS else "place"
    turned, words = asked.get("way") == "down", ("address", "partition", "user", "reason")
    found = [
        j for j in rows
        if not text or text.casefold() in "\n".join(j[word] for word in words).casefold()
    ]  # fmt: skip
    found.sort(key=SORTS[sort], reverse=turned)
    first = asked.get("from", "0")[:9]
    begin = min(int(first), max(0, len(found) - 1)) if first.isdecimal() else 0
    begin -= begin % ROWS
    ends = begin + ROWS
    return {
        "q": text,
        "rows": found[begin:ends],
        "count": len(found),
        "all": len(rows),
        "first": begin + 1,
        "last": min(ends, len(found)),
        "earlier": _href(asked, **{"from": str(begin - ROWS)}) if begin else None,
        "later": _href(asked, **{"from": str(ends)}) if ends < len(found) else None,
        "users": any(j["user"] for j in rows),
        "expected": any(j["expected_start"] for j in rows),
        "tiers": len({j["priority_tier"] for j in rows} - {None}) > 1,
        "sort": sort,
        "turned": turned,
        "kept": {k: v for k, v in asked.items() if k in {"range", "sort", "way"}},
        "href": {
            name: _href(asked, sort=name, way="" if turned or name != sort else "down")
            for name in SORTS
        },
    }


def _href(asked: Asked, **changed: str) -> str:
    known = {k: v for k, v in asked.items() if k in {"range", "q", "sort", "way"}} | changed
    query = urlencode({k: v for k, v in known.items() if v and v != "0"})
    return f"./?{query}" if query else "./"
