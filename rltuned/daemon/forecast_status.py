"""How the daemon's forecast of starts stands, for metrics, log and pages."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ForecastStatus:
    """For metrics and the status page. at: Unix time of the last one; None = none yet. jobs: with
    an expected start. coverage, error_s: of the last past ones, see core/hindsight. past: how many.
    """

    at: float | None = None
    jobs: int = 0
    coverage: float | None = None
    error_s: float | None = None
    past: int = 0
    seconds: float = 0.0
    trouble: str = ""

    def document(self) -> dict[str, Any]:
        return asdict(self)
