"""What an interval says: in one word, in figures; and Student's t, of which numpy has none."""

from typing import Final, Literal

Word = Literal["better", "no proven difference", "worse"]
STUDENT: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""The 97.5% point of Student's t by the degrees of freedom, from one on."""


def t95(freedom: int) -> float:
    """Student's t that 95% lie within; beyond the table to 0.005. Raises ValueError: none is
    free.
    """
    if freedom < 1:
        raise ValueError("a spread needs two repeats")
    if freedom <= len(STUDENT):
        return STUDENT[freedom - 1]
    return 1.96 + 2.372 / freedom + 2.823 / freedom**2


def word_of(low: float | None, high: float | None) -> Word:
    """What the 95% interval of a change, or of a difference, says where less is better."""
    if low is None or high is None or low <= 0.0 <= high:
        return "no proven difference"
    return "better" if high < 0.0 else "worse"


def percent(
    change: float, low: float | None = None, high: float | None = None, *, digits: int = 1
) -> str:
    """`-12.3% [-20.1%, -4.0%]`; without an interval where there is none."""
    text, *ends = (f"{x:+.{digits}%}" for x in (change, low, high) if x is not None)
    return f"{text} [{', '.join(ends)}]" if ends else text
