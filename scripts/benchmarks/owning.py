"""Whether a cycle takes longer the more jobs rltuned owns: many cycles, each with many writes."""

from statistics import median
from typing import Final

from scripts.benchmarks import Figure
from scripts.benchmarks.scaling import Size, measured

SIZE: Final = Size(10_000, 1_000)
CYCLES: Final = 50
SPAN: Final = 10
"""Cycles at each end whose median counts."""
MOST: Final = 1.1
POLICY: Final = "sjf"
JOURNAL: Final = "journal"


def measure(size: Size = SIZE, cycles: int = CYCLES) -> list[Figure]:
    """Processor seconds of the last cycles over those of the first, whole and in the journal.

    Raises:
        BackendError: a cycle came to no result.
    """
    found = measured(size, POLICY, cycles)
    writes = sum(c.applied for c in found) / len(found)
    source = f"our own bound; {cycles} cycles with {writes:.0f} writes each"
    whole, journal = [c.cpu_s for c in found], [c.stages_cpu_s[JOURNAL] for c in found]
    return [
        Figure(f"owning_{size}_growth", _growth(whole), "", MOST, source),
        Figure(f"owning_{size}_journal_growth", _growth(journal), "", MOST, source),
        Figure(f"owning_{size}_cycle", median(whole), "s", 3.0, source),
    ]


def _growth(seconds: list[float]) -> float:
    span = min(SPAN, len(seconds) // 2)
    return median(seconds[-span:]) / median(seconds[:span])
