"""What the last night of `rltuned tune` came to: tune.json beside the generations.

The night writes it, the daemon shows it. It is written at a night's beginning as well, so that one
that was killed counts as failed.
"""

import json
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from rltuned.durable import write_whole
from rltuned.policies.files import named
from rltuned.policies.generations import FOLDER

FILE: Final = "tune.json"
Verdict = Literal["kept", "proposed", "promoted", "nothing", "failed"]
VERDICTS: Final[tuple[Verdict, ...]] = ("kept", "proposed", "promoted", "nothing", "failed")
"""nothing: the record allows none. failed: the night did not come to its end."""


class TuneState(BaseModel):
    """tune.json.

    at, ended_at: Unix seconds of the last night's beginning, and of the last end with a verdict.
    failed: nights in a row without one. sentence: for people. candidate: generation that was
    proposed or promoted; change, low, high: of its objective on the test period, -0.1 = ten percent
    less.
    promoted_at: of the last promotion by a night.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    verdict: Verdict = "nothing"
    sentence: str = ""
    at: float = 0.0
    ended_at: float = 0.0
    failed: int = 0
    candidate: str = ""
    change: float | None = None
    low: float | None = None
    high: float | None = None
    promoted_at: float = 0.0


def read_state(state_dir: Path) -> TuneState | None:
    """The last night; None = there was none, or it cannot be read."""
    try:
        return TuneState.model_validate_json((state_dir / FOLDER / FILE).read_bytes())
    except (OSError, ValidationError):
        return None


def write_state(state_dir: Path, state: TuneState) -> None:
    """Put it in the place of the last one, whole or not at all. Raises ModelError."""
    place = state_dir / FOLDER / FILE
    with named(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, (json.dumps(state.model_dump(), indent=1) + "\n").encode(), 0o644)
