"""Times and durations as people read them."""

import pytest

from rltuned.text import escaped, hours, span, utc, when


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"), (59.9, "59s"), (60.0, "1m"), (3_599.0, "59m"), (3_600.0, "1h00m"),
        (86_399.0, "23h59m"), (86_400.0, "1d00h"), (187_200.0, "2d04h"), (-0.4, "0s"),
        (-750.0, "-12m"),
    ],
)  # fmt: skip
def test_a_duration(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_hours_and_moments() -> None:
    assert [hours(s) for s in (1_800.0, 129_600.0)] == ["0.5 h", "36 h"]
    assert when(None) == "never"
    assert when(1_700_000_000.0).startswith("2023-11-1")
    assert [when(at) for at in (1e308, float("inf"), 2.0**62)] == [
        "second 1e+308", "second inf", "second 4.61168601842739e+18",
    ]  # fmt: skip
    assert utc(1_700_000_000.0) == "2023-11-14T22:13:20+00:00"


def test_what_cannot_be_printed_is_escaped() -> None:
    assert escaped("a\x1b[31mb\nc") == "a\\x1b[31mb\\nc"
    assert escaped("a\nb", keep="\n") == "a\nb"
