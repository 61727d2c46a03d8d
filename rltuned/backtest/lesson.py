"""What a lesson gives back."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Report = Callable[[float], None]
"""Told how much of the time is used, 0..1."""


@dataclass(frozen=True, slots=True)
class Taught:
    """What came of it: the bundle (None = nothing), and a sentence for the report."""

    bundle: Path | None
    said: str
