"""The pages of the port: the HTML of what the board knows."""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

from rltuned.core import refusals
from rltuned.daemon.breaker import FEWEST
from rltuned.daemon.documents import Document
from rltuned.daemon.state import STATES, HealthState
from rltuned.daemon.web.board import Asker, Board
from rltuned.daemon.web.series import RANGES, RangeView, Series
from rltuned.daemon.words import in_words
from rltuned.report import charts, render
from rltuned.stats import word_of
from rltuned.text import at_clock, counted, span

Asked = Mapping[str, str]
"""What the address asks for: range, q, sort, way, from."""
Said = tuple[str, str, list[str]]
"""Of a tile: ok, notice, warning or bad; the text; sentences below."""
ROWS: Final = 50
"""Jobs on one page of the table."""
MOVES: Final = 10
BEFORE: Final = 12
"""Jobs that are named on a job's page as those before it."""
_LAST: Final = 10**12
_HOUR_S: Final = 3_600.0
_DAY_S: Final = 86_400.0
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
_WRITING: Final = frozenset({HealthState.LEARNING.value, HealthState.LIVE.value})


def page(d: Document, rows: list[Document], series: Series, asked: Asked) -> str:
    """The status page. rows: all waiting jobs, which are shown where d has jobs."""
    name = asked.get("range", "24h")
    name = name if name in RANGES else "24h"
    shown, day = (series.shown(one, d["now"]) for one in (name, "24h"))
    rows = rows if d["jobs"] is not None else []
    most = max((u["used"] + u["wanted"] for u in d["users"]), default=0)
    return render(
        "status.html",
        d=d,
        tiles=_tiles(d, day),
        ranges=[(one, _href(asked, range=one), one == name) for one in RANGES],
        waits=_waits(shown),
        gpus=_gpus(d, shown),
        moves=moves(d),
        left=refusals.counted(d["left_alone"]),
        movers=_movers(rows),
        users=[(u, charts.bar((("used", u["used"]), ("wanted", u["wanted"])), most))
               for u in d["users"]],
        table=_table(rows, asked),
        last=next((c for c in d["cycles"] if c["skip"] is None), None),
        severity=LEVELS,
        refusals=refusals.BY_LABEL,
    )  # fmt: skip


def job_page(d: Document, board: Board, name: str) -> tuple[HTTPStatus, str]:
    """The page of one waiting job, and its status: it is shown where all see jobs."""
    name = name.strip()
    job = board.explain(name, Asker()).get("job") if d["jobs"] is not None else None
    shown: Document = {"d": d, "name": name, "job": job, "lines": [], "before": []}
    if job is None or job["state"] != "PENDING":
        return HTTPStatus.NOT_FOUND, render("job.html", **{**shown, "job": None})
    rows = [row for row in board.rows() if row["rank_now"] is not None]
    at = next((n for n, row in enumerate(rows) if row["job_id"] == job["job_id"]), 0)
    shown |= {"lines": in_words(job), "before": rows[max(0, at - BEFORE) : at]}
    return HTTPStatus.OK, render("job.html", **shown, refusals=refusals.BY_LABEL)


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


def _waits(shown: RangeView) -> str:
    rows = [
        charts.Drawn("90% waited less than", "wanted", shown.waits_s(0.9)),
        charts.Drawn("median", "used", shown.waits_s(0.5)),
    ]
    return charts.over_time(
        f"Wait of the {shown.started} jobs that started", shown.begin, shown.end, rows,
        shaded=("off block: Slurm's own order", shown.off()), say=span, tops=_TOPS,
    )  # fmt: skip


def _gpus(d: Document, shown: RangeView) -> str:
    total = sum(g["used"] + g["free"] + g["down"] for g in d["gpus"])
    rows = [
        charts.Drawn("used and asked for", "wanted", shown.means("used", "wanted"), filled=True),
        charts.Drawn("used", "used", shown.means("used"), filled=True),
    ]
    return charts.over_time(
        "GPUs used, and asked for by waiting jobs", shown.begin, shown.end, rows,
        marked=(float(total), f"{total} GPUs") if total else None, tops=_AMOUNTS,
    )  # fmt: skip


def _movers(rows: list[Document]) -> Document | None:
    """The largest moves up and down: two lists and the lines between them."""
    ranked = [j for j in rows if j["rank_before"]]
    ranked.sort(key=lambda j: (j["rank_to"] - j["rank_before"], j["rank_to"]))
    ups = [j for j in ranked if j["rank_to"] < j["rank_before"]][: MOVES // 2]
    downs = [j for j in ranked if j["rank_to"] > j["rank_before"]][-MOVES // 2 :]
    before = sorted(ups + downs, key=lambda j: j["rank_before"])
    after = sorted(ups + downs, key=lambda j: j["rank_to"])
    lines = [(before.index(j), at, "up" if j in ups else "down") for at, j in enumerate(after)]
    return {"before": before, "after": after, "lines": charts.slopes(lines)} if lines else None


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


# -- Tiles -----------------------------------------------------------------------------------------


def _tiles(d: Document, day: RangeView) -> Iterator[tuple[str, Said, str]]:
    """Of each its name, what it says, and a chart or nothing."""
    effect = d["effect"]
    measured = effect is None or effect["low_s"] is not None
    progress = "" if measured else charts.bar([("used", effect["pairs"])], FEWEST)
    yield "State", _state_tile(d), ""
    yield "Does it help?", _effect_tile(d), progress
    if d["last_week"]:  # the built-in cluster has none
        yield "Would it have helped?", _last_week_tile(d["last_week"]), ""
    used = charts.spark([v for _, v in day.means("used")], "GPUs used, last 24 hours")
    yield "GPUs", _gpus_tile(d["gpus"]), used
    wanted = charts.spark([v for _, v in day.means("wanted")], "GPUs asked for, last 24 hours")
    seen = d["waiting"]
    nothing: Said = ("notice", "Not seen yet", [])
    yield "Waiting", _waiting_tile(seen) if seen else nothing, wanted
    yield "Longest wait", _longest_tile(seen, d["promises"]) if seen else nothing, ""


def _state_tile(d: Document) -> Said:
    """What the daemon does, in one word; and what is wrong. What holds besides is no news."""
    first, conditions = STATES[d["state"]], d["conditions"]
    more = [
        c["sentence"] for n, c in enumerate(conditions)
        if n == 0 or STATES[c["state"]].level in {"bad", "warning"}
    ]  # fmt: skip
    off = [b for b in d["blocks"] if not b["on"]]
    if d["state"] in _WRITING and off and len(off) == len(d["blocks"]):
        until = at_clock(min(b["until"] for b in off), d["now"])
        return "notice", "Off block", [f"Slurm's own order is measured until {until}"]
    more += [f"off block of {b['partition']} until {at_clock(b['until'], d['now'])}" for b in off]
    return first.level, first.word, more


def _effect_tile(d: Document) -> Said:
    """Whether it helps, or how far the measurement is."""
    found, day = d["effect"], d["effect_at"]
    if found is None:
        why = "there are no off blocks to compare with (stage canary, or ladder.full_off_share)"
        return "notice", "Not measured", [why, "rltuned backtest estimates it beforehand"]
    pairs = found["pairs"]
    if found["low_s"] is None:
        at = datetime.fromtimestamp(day).astimezone() if day else None
        first = f"; first answer about {at.day} {at:%B}" if at else ""
        return "notice", f"{pairs} of {FEWEST} comparisons", [f"measuring{first}"]
    change, low, high = (found[k] / found["off_s"] for k in ("difference_s", "low_s", "high_s"))
    sure = "" if high < 0 or low > 0 else "; chance can explain it"
    more = [
        f"95%: {low:+.0%} to {high:+.0%}, {pairs} comparisons{sure}",
        f"{span(found['on_s'])} with delays, {span(found['off_s'])} without",
    ]
    level = "ok" if high < 0 else "bad" if low > 0 else "notice"
    return level, f"{abs(change):.0%} {'shorter' if change < 0 else 'longer'} waits", more


def _last_week_tile(found: Document) -> Said:
    """What the replay of last week's jobs says, at every stage."""
    more = [found["sentence"]]
    if found["at"] is None or found["why"] or found["verdict"] == "poor" or found["change"] is None:
        return "notice", "Not known" if found["at"] is None else "Cannot be said", more
    word = word_of(found["low"], found["high"])
    if word == "no proven difference":
        return "notice", "No proven difference", more
    level, less = ("ok", "shorter") if word == "better" else ("warning", "longer")
    return level, f"{abs(found['change']):.0%} {less} waits, simulated", more


def _gpus_tile(rows: list[Document]) -> Said:
    """Used, free and down."""
    if not rows:
        return "notice", "No GPUs seen", []
    used, free, down = (sum(r[state] for r in rows) for state in ("used", "free", "down"))
    more = [
        f"{r['type']}: {r['free']} of {r['used'] + r['free'] + r['down']} free"
        + (f", {r['down']} down" if r["down"] else "")
        for r in rows
    ]
    return "warning" if down else "ok", f"{used} of {used + free + down} used", more


def _waiting_tile(found: Document) -> Said:
    """The jobs that wait for GPUs, and the work that they bring."""
    more = []
    if found["work_s"]:
        hours = found["work_s"] / _HOUR_S
        amount = f"{hours:.1f}" if hours < 100 else f"{hours:,.0f}"  # noqa: PLR2004
        more.append(f"backlog: {amount} h for all GPUs, by expected run times")
    if found["cannot_start"]:
        more.append(f"{found['cannot_start']} more cannot start (held, dependent ...)")
    amounts = f"{counted(found['jobs'], 'job')}, {counted(found['gpus'], 'GPU')}"
    return "ok", amounts if found["jobs"] else "No job waits", more


def _longest_tile(found: Document, promises: list[Document]) -> Said:
    """The longest wait, and the promises."""
    more = [
        f"{one['class']}: {one['jobs'] - one['late']} of {one['jobs']} within "
        f"{span(one['max_wait_s'])} since the start"
        for one in promises
    ]
    late = any(one["late"] for one in promises) or found["longest_s"] > _DAY_S
    longest = span(found["longest_s"]) if found["jobs"] else "None"
    return "warning" if late else "ok", longest, more or ["no promises are set"]


def moves(d: Document) -> str:
    """How far the order is from Slurm's own, in one sentence."""
    found = d["moves"]
    if found is None:
        return "Not seen yet."
    if not (found["up"] or found["down"]):
        return "No job stands elsewhere than in Slurm's own order."
    move = "moves" if found["up"] == 1 else "move"
    move = move if d["state"] in _WRITING else "would move"
    said = (
        f"{counted(found['up'], 'job')} {move} up, {found['down']} down, {found['same']} stay; "
        f"at most {found['most_up']} places up and {found['most_down']} down."
    )
    if found["tied"]:
        said += (
            f" {found['tied']} jobs share the lowest number, 1: Slurm takes them by their ids. "
            "rltuned check says how many points they lack."
        )
    return said
