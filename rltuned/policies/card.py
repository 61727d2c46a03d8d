"""The paper of a model: what it is, what it was trained on, how well it did.

A bundle is a folder with `actor.safetensors` (weights and nothing else), `card.json` (this) and
`parity.npz` (inputs with the scores that the trained network gave). No file of it can carry code.
"""

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from rltuned.core.observation import MAX_QUEUE_SIZE, OBSERVED

CARD_FILE: Final = "card.json"
WEIGHTS_FILE: Final = "actor.safetensors"
PARITY_FILE: Final = "parity.npz"
FORMAT: Final = 1


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Architecture(_Strict):
    """Enough to build the network before its weights are read."""

    kind: Literal["paper"]
    features: Literal[8] = OBSERVED
    hidden: tuple[int, int] = Field(description="widths of the two hidden layers")
    max_jobs: Literal[256] = MAX_QUEUE_SIZE


class Training(_Strict):
    """How the weights came to be; enough to make them again."""

    method: str
    teacher: str
    command: str
    seed: int
    settings: dict[str, int | float | str]
    data: str
    data_licence: str
    seconds: float
    machine: str


class Card(_Strict):
    """card.json."""

    format: Literal[1]
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")
    summary: str
    schema_id: str
    architecture: Architecture
    files_sha256: dict[str, str]
    rltuned_version: str
    git_commit: str
    torch_version: str
    training: Training
    results: dict[str, float]
    caveats: list[str]
