"""The pages of the port: what a request asks for, and the HTML of it."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from rltuned.core import refusals
from rltuned.daemon.breaker import FEWEST
from rltuned.daemon.state import STATES, HealthState
from rltuned.daemon.web.series import RANGES, RangeView, Series
from rltuned.daemon.web.status import Board
from rltuned.report import charts, render
from rltuned.report.charts import Drawn, TimeChart
from rltuned.stats import word_of
from rltuned.text import at_clock, counted, span

Document = dict[str, Any]
Asked = Mapping[str, str]
"""What the address asks for: range, q, sort, way, from."""
ROWS: Final = 50
"""Jobs on one page of the table."""
MOVES: Final = 10
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
    "user": lambda j: (j["user"] or "", j["rank_now"] or _LAST),
    "partition": lambda j: (j["partition"], j["rank_now"] or _LAST),
    "reason": lambda j: (j["reason"], j["rank_now"] or _LAST),
}
_LAST: Final = 10**12


def answer(path: str, d: Document, board: Board | None, asked: Asked) -> tuple[HTTPStatus, str]:
    """The page of an address, and its status."""
    if path == "/job":
        name = asked.get("id", "")
        found = None if board is None else board.job(name)
        code = HTTPStatus.OK if found else HTTPStatus.NOT_FOUND
        return code, render("job.html", d=d, job=found, name=name, shown=d["jobs"] is not None)
    rows = [] if board is None else board.rows()
    return HTTPStatus.OK, page(d, rows, Series() if board is None else board.series, asked)


def page(d: Document, rows: list[Document], series: Series, asked: Asked) -> str:
    """The status page."""
    name = asked.get("range", "24h")
    name = name if name in RANGES else "24h"
    shown = series.shown(name, d["now"])
    day = series.shown("24h", d["now"])
    last = next((c for c in d["cycles"] if c["skip"] is None), None)
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
        users=_users(d),
        table=_table(rows, asked),
        last=last,
        severity=LEVELS,
    )


LEVELS: Final = {
    "ok": ("good", "●"),
    "notice": ("link", "◆"),
    "warning": ("warn", "▲"),
    "bad": ("bad", "✖"),
}
"""The class and the sign of a level; the word beside it says the same."""


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


def _tiles(d: Document, day: RangeView) -> list[Document]:
    used = charts.spark([v for _, v in day.means("used")], "GPUs used, last 24 hours")
    wait = charts.spark([v for _, v in day.means("wanted")], "GPUs asked for, last 24 hours")
    week = d["last_week"]  # the built-in cluster has none
    said = (
        ("State", _state_tile(d), ""),
        ("Does it help?", _effect_tile(d), _progress(d)),
        *((("Would it have helped?", _last_week_tile(week), ""),) if week else ()),
        ("GPUs", _gpus_tile(d), used),
        ("Waiting", _waiting_tile(d), wait),
        ("Longest wait", _longest_tile(d), ""),
    )
    return [{"name": name, "said": one, "chart": chart} for name, one, chart in said]


def _progress(d: Document) -> str:
    found = d["effect"]
    if found is None or found["low_s"] is not None:
        return ""
    return charts.bar([("used", found["pairs"])], FEWEST)


def _waits(shown: RangeView) -> str:
    rows = [
        Drawn("90% waited less than", "wanted", shown.waits_s(0.9)),
        Drawn("median", "used", shown.waits_s(0.5)),
    ]
    title = f"Wait of the {shown.started} jobs that started"
    return TimeChart(
        title, shown.begin, shown.end, rows,
        shaded=shown.off(), shade_name="off block: Slurm's own order", say=span, tops=_TOPS,
    ).drawn()  # fmt: skip


def _gpus(d: Document, shown: RangeView) -> str:
    total = sum(g["used"] + g["free"] + g["down"] for g in d["gpus"])
    rows = [
        Drawn("used and asked for", "wanted", shown.means("used", "wanted"), filled=True),
        Drawn("used", "used", shown.means("used"), filled=True),
    ]
    marked = (float(total), f"{total} GPUs") if total else None
    title = "GPUs used, and asked for by waiting jobs"
    return TimeChart(title, shown.begin, shown.end, rows, marked=marked, tops=_AMOUNTS).drawn()


def _movers(rows: list[Document]) -> Document | None:
    """The largest moves up and down: two lists and the lines between them."""
    ranked = [j for j in rows if j["rank_before"]]
    ranked.sort(key=lambda j: (j["rank_to"] - j["rank_before"], j["rank_to"]))
    ups = [j for j in ranked if j["rank_to"] < j["rank_before"]][: MOVES // 2]
    downs = [j for j in ranked if j["rank_to"] > j["rank_before"]][-MOVES // 2 :]
    first = ups + downs
    if not first:
        return None
    before = sorted(first, key=lambda j: j["rank_before"])
    after = sorted(first, key=lambda j: j["rank_to"])
    lines = [(before.index(j), at, "up" if j in ups else "down") for at, j in enumerate(after)]
    return {"before": before, "after": after, "lines": charts.slopes(lines)}


def _users(d: Document) -> list[Document]:
    most = max((u["used"] + u["wanted"] for u in d["users"]), default=0)
    return [
        {**u, "bar": charts.bar([("used", u["used"]), ("wanted", u["wanted"])], most)}
        for u in d["users"]
    ]


def _table(rows: list[Document], asked: Asked) -> Document:
    """The jobs that fit the filter, sorted, one page of them."""
    text, sort = asked.get("q", "").strip(), asked.get("sort", "place")
    sort = sort if sort in SORTS else "place"
    turned = asked.get("way") == "down"
    found = [j for j in rows if text.casefold() in _text(j)] if text else list(rows)
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
        "expected": any(j["expected"] for j in rows),
        "tiers": len({j["priority_tier"] for j in rows if j["priority_tier"] is not None}) > 1,
        "sort": sort,
        "turned": turned,
        "kept": {k: v for k, v in asked.items() if k in {"range", "sort", "way"}},
        "href": {
            name: _href(asked, sort=name, way="" if turned or name != sort else "down")
            for name in SORTS
        },
    }


def _text(job: Document) -> str:
    parts = (job["job"], job["partition"], job["user"] or "", job["reason"], job["refusal"] or "")
    return "\n".join(parts).casefold()


def _href(asked: Asked, **changed: str) -> str:
    known = {k: v for k, v in asked.items() if k in {"range", "q", "sort", "way"}} | changed
    query = urlencode({k: v for k, v in known.items() if v and v != "0"})
    return f"./?{query}" if query else "./"


# -- Words -----------------------------------------------------------------------------------------


class Said(NamedTuple):
    """level: ok, notice, warning or bad. more: sentences below."""

    level: str
    text: str
    more: tuple[str, ...] = ()


_WRITING: Final = frozenset({HealthState.LEARNING, HealthState.LIVE})
_SHOWN: Final = frozenset({"bad", "warning"})
_LONG_S: Final = 86_400.0


def _state_tile(d: Document) -> Said:
    """What the daemon does, in one word."""
    first = STATES[d["state"]]
    level, word = first.level, first.word
    # what it does, and what is wrong; what holds besides is no news
    conditions = d["conditions"]
    told = conditions[:1] + [c for c in conditions[1:] if STATES[c["state"]].level in _SHOWN]
    more = [c["sentence"] for c in told]
    blocks = d["blocks"]
    off = [b for b in blocks if not b["on"]]
    if first in _WRITING and off and len(off) == len(blocks):
        until = at_clock(min(b["until"] for b in off), d["now"])
        return Said("notice", "Off block", (f"Slurm's own order is measured until {until}",))
    if off:
        more += [
            f"off block of {b['partition']} until {at_clock(b['until'], d['now'])}" for b in off
        ]
    return Said(level, word, tuple(more))


def _effect_tile(d: Document) -> Said:
    """Whether it helps, or how far the measurement is."""
    found = d["effect"]
    if found is None:
        why = "there are no off blocks to compare with (stage canary, or ladder.full_off_share)"
        return Said("notice", "Not measured", (why, "rltuned backtest estimates it beforehand"))
    pairs = found["pairs"]
    if found["low_s"] is None:
        day = d["effect_at"]
        first = f"; first answer about {_day(day)}" if day else ""
        return Said("notice", f"{pairs} of {FEWEST} comparisons", (f"measuring{first}",))
    change, low, high = (found[k] / found["off_s"] for k in ("difference_s", "low_s", "high_s"))
    sure = "" if high < 0 or low > 0 else "; chance can explain it"
    more = (
        f"95%: {low:+.0%} to {high:+.0%}, {pairs} comparisons{sure}",
        f"{span(found['on_s'])} with delays, {span(found['off_s'])} without",
    )
    level = "ok" if high < 0 else "bad" if low > 0 else "notice"
    return Said(level, f"{abs(change):.0%} {'shorter' if change < 0 else 'longer'} waits", more)


def _last_week_tile(found: Document) -> Said:
    """What the replay of last week's jobs says, at every stage."""
    more = (found["sentence"],)
    if found["at"] is None or found["verdict"] in {"", "poor"} or found["change"] is None:
        return Said("notice", "Not known" if found["at"] is None else "Cannot be said", more)
    word = word_of(found["low"], found["high"])
    if word == "no proven difference":
        return Said("notice", "No proven difference", more)
    less = "shorter" if word == "better" else "longer"
    level = "ok" if word == "better" else "warning"
    return Said(level, f"{abs(found['change']):.0%} {less} waits, simulated", more)


def _gpus_tile(d: Document) -> Said:
    """Used, free and down."""
    rows = d["gpus"]
    if not rows:
        return Said("notice", "No GPUs seen")
    total = sum(r["used"] + r["free"] + r["down"] for r in rows)
    used, down = sum(r["used"] for r in rows), sum(r["down"] for r in rows)
    more = [
        f"{r['type']}: {r['free']} of {r['used'] + r['free'] + r['down']} free"
        + (f", {r['down']} down" if r["down"] else "")
        for r in rows
    ]
    return Said("warning" if down else "ok", f"{used} of {total} used", tuple(more))


def _waiting_tile(d: Document) -> Said:
    """The jobs that wait for GPUs, and the work that they bring."""
    found = d["waiting"]
    if found is None:
        return Said("notice", "Not seen yet")
    more = []
    if found["work_s"]:
        hours = found["work_s"] / 3_600
        amount = f"{hours:.1f}" if hours < 100 else f"{hours:,.0f}"  # noqa: PLR2004
        more.append(f"backlog: {amount} h for all GPUs, by expected run times")
    if found["cannot_start"]:
        more.append(f"{found['cannot_start']} more cannot start (held, dependent ...)")
    amounts = f"{counted(found['jobs'], 'job')}, {counted(found['gpus'], 'GPU')}"
    return Said("ok", amounts if found["jobs"] else "No job waits", tuple(more))


def _longest_tile(d: Document) -> Said:
    """The longest wait, and the promises."""
    found = d["waiting"]
    if found is None:
        return Said("notice", "Not seen yet")
    more, late = [], 0
    for one in d["promises"]:
        late += one["late"]
        kept = one["jobs"] - one["late"]
        more.append(
            f"{one['class']}: {kept} of {one['jobs']} within {span(one['max_wait_s'])} "
            "since the start"
        )
    level = "warning" if late or found["longest_s"] > _LONG_S else "ok"
    longest = span(found["longest_s"]) if found["jobs"] else "None"
    return Said(level, longest, tuple(more or ["no promises are set"]))


def moves(d: Document) -> str:
    """How far the order is from Slurm's own, in one sentence."""
    found = d["moves"]
    if found is None:
        return "Not seen yet."
    if not (found["up"] or found["down"]):
        return "No job stands elsewhere than in Slurm's own order."
    would = d["state"] not in {"live", "learning"}
    tied = ""
    if found["tied"]:
        tied = (
            f" {found['tied']} jobs share the lowest number, 1: Slurm takes them by their ids. "
            "rltuned check says how many points they lack."
        )
    move = "would move" if would else "moves" if found["up"] == 1 else "move"
    return (
        f"{counted(found['up'], 'job')} {move} up, {found['down']} down, {found['same']} stay; "
        f"at most {found['most_up']} places up and {found['most_down']} down.{tied}"
    )


def _day(at: float) -> str:
    day = datetime.fromtimestamp(at).astimezone()
    return f"{day.day} {day:%B}"
