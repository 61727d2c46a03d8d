"""How fast it is: every figure beside the paper's or a bound of the project's own.

Figures are medians on the machine at hand; the ratio is value / reference, so below 1 is better
where less is better, and above 1 where more is.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

PAPER: Final = "RLTune, SoCC 2025"


def peak_mib() -> float:
    """Of this program; getrusage has that of the process that started it as well."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1_024


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of `make bench`.

    Attributes:
        name: what was measured.
        value: the figure, in `unit`.
        unit: with the direction that is better.
        reference: what it stands beside, in the same unit.
        source: where the reference comes from.
        better: whether a lower or a higher value is better.
    """

    name: str
    value: float
    unit: str
    reference: float
    source: str
    better: Literal["lower", "higher"] = "lower"

    @property
    def ratio(self) -> float:
        return self.value / self.reference

    def document(self) -> dict[str, str | float]:
        """Its fields and the ratio, for JSON."""
        return asdict(self) | {"ratio": self.ratio}
