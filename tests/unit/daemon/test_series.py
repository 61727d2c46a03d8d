"""The last day, week and month in buckets, and the charts that are drawn of them."""

import re

from rltuned.daemon.web.series import RANGES, Series
from rltuned.report.charts import Drawn, TimeChart, bar, ceiling, slopes, spark
from rltuned.text import span

HOUR_S = 3_600.0
NOW = 1_700_000_000.0


def looks(*waits_s: float, off: float = 0.0, used: int = 8) -> dict[str, object]:
    return {
        "used": used, "free": 2, "down": 0, "wanted": 20, "waiting": 5, "longest_s": 60,
        "waits_s": list(waits_s), "started": len(waits_s), "off": off,
    }  # fmt: skip


def series() -> Series:
    found = Series()
    for minute in range(12 * 60):
        at = NOW - 12 * HOUR_S + 60.0 * minute
        off = 1.0 if minute < 240 else 0.0
        found.add(at, looks(60.0, 120.0, 3_600.0, off=off) if minute % 10 == 0 else looks(off=off))
    return found


def test_every_range_holds_the_same_jobs() -> None:
    found = series()
    for name in RANGES:
        shown = found.shown(name, NOW)
        assert shown.started == 3 * 72
        assert {v for _, v in shown.means("used", "free")} == {10.0}
        assert {v for _, v in shown.waits_s(0.5)} == {120.0}
        assert {v for _, v in shown.waits_s(0.9)} == {3_600.0}


def test_off_blocks_are_spans_and_gaps_are_gaps() -> None:
    found = series()
    off = found.shown("24h", NOW).off()
    ((begin, end),) = off
    assert abs(end - begin - 4 * HOUR_S) <= 600.0
    found.add(NOW + 5 * HOUR_S, looks())
    assert None in [v for _, v in found.shown("24h", NOW + 5 * HOUR_S).means("used")]


def test_what_is_too_old_or_was_not_seen_is_left_out() -> None:
    found = series()
    before = found.shown("24h", NOW).started
    found.add(NOW - 11 * HOUR_S, looks(1.0))
    found.add(NOW, {})
    assert found.shown("24h", NOW).started == before
    assert found.shown("24h", NOW + 30 * HOUR_S).buckets == []


def test_a_range_begins_with_what_was_seen_first() -> None:
    found = Series()
    found.add(NOW - 600.0, looks())
    assert found.shown("24h", NOW).begin == NOW - 6 * RANGES["24h"][1]
    assert series().shown("24h", NOW).begin == NOW - 12 * HOUR_S - (NOW - 12 * HOUR_S) % 600.0
    assert Series().shown("7d", NOW).begin == NOW - 7 * 24 * HOUR_S


def test_a_chart_says_in_words_what_it_draws() -> None:
    rows = [Drawn("wait <b>", "used", [(0.0, 60.0), (10.0, None), (20.0, 7_200.0)])]
    chart = TimeChart("T", 0.0, 20.0, rows, shaded=[(5.0, 15.0)], shade_name="off", say=span,
                      tops=(HOUR_S, 4 * HOUR_S))  # fmt: skip
    text = chart.drawn()
    assert 'aria-label="T: wait &lt;b&gt; 2h00m at last, between 1m and 2h00m"' in text
    assert "<li>4h00m<li>2h00m<li>0s" in text
    assert "<rect class=shade x=250 y=0 width=500" in text
    assert len(re.findall("<polyline", text)) == 2
    assert "style=" not in text
    assert TimeChart("T", 0.0, 1.0, [Drawn("x", "used", [(0.0, None)])]).drawn() == ""
    alone = TimeChart("T", 0.0, 20.0, [Drawn("x", "used", [(10.0, 4.0)], filled=True)]).drawn()
    assert 'points="496,100 496,20 500,20 500,100"' in alone, "one look has a width"


def test_small_charts() -> None:
    assert [ceiling(v) for v in (0.0, 7.0, 13.0, 240.0, 1_000.0)] == [1e-9, 10, 20, 250, 1_000]
    assert ceiling(50.0, (60.0, 600.0)) == 60.0
    assert spark([1.0], "x") == ""
    assert 'aria-label="x"' in spark([1.0, None, 2.0, 3.0], "x")
    assert "class=up x1=0 x2=100 y1=39 y2=13" in slopes([(1, 0, "up")])
    assert "class=up x1=0 x2=100 y1=13 y2=13" in slopes([(0, 0, "up")]), "others moved as well"
    assert "x=25 width=75" in bar([("used", 1), ("wanted", 3)], 4)
    assert "width=0 " in bar([("used", 1)], 0)
