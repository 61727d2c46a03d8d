"""Files that come with the program: beside a wheel's packages, or in the checkout."""

import sys
from pathlib import Path
from typing import Final

PLACES: Final = (Path(sys.prefix, "share", "rltuned"), Path(__file__).resolve().parents[1])


def shared_files(folder: str, pattern: str) -> list[Path]:
    """Files of the first place that has any; empty = this installation lacks them."""
    return next((f for place in PLACES if (f := sorted((place / folder).glob(pattern)))), [])
