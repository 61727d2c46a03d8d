"""The paper of a model: what it is, what it was trained on, how well it did.

A bundle is a folder with `actor.safetensors` (weights and nothing else), `card.json` (this) and
`parity.npz` (inputs with the scores that the trained network gave). No file of it can carry code.
"""

from typing import Final, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from rltuned.core.observation import MAX_QUEUE_SIZE, OBSERVED
from rltuned.policies.network import INPUTS, Kind
from rltuned.stats import Word, percent

CARD_FILE: Final = "card.json"
WEIGHTS_FILE: Final = "actor.safetensors"
PARITY_FILE: Final = "parity.npz"
FORMAT: Final = 2
BUNDLE_NAME: Final = "[a-z0-9][a-z0-9._-]{0,63}"
MAX_HIDDEN: Final = 4_096
MAX_REACH: Final = 5.0


HIDDEN_LAYERS: Final = 2


class Architecture(BaseModel, extra="forbid", frozen=True):
    """Enough to build the network before its weights are read. max_jobs: rows of the windows in
    parity.npz; a queue may be longer.
    """

    kind: Kind
    features: int = OBSERVED
    predicted: bool = Field(default=False, description="reads predicted run times, as `queue` does")
    hidden: tuple[int, ...] = Field(description="widths of the hidden layers")
    reach: float = Field(
        gt=0.0,
        le=MAX_REACH,
        description="ln of the largest factor on the delays of the rule `delay`",
    )
    max_jobs: Literal[256] = MAX_QUEUE_SIZE

    @field_validator("hidden")
    @classmethod
    def _bounded(cls, hidden: tuple[int, ...]) -> tuple[int, ...]:
        if not all(1 <= width <= MAX_HIDDEN for width in hidden):
            raise ValueError(f"widths must be 1 to {MAX_HIDDEN}")
        return hidden

    @model_validator(mode="after")
    def _reads_what_it_can(self) -> "Architecture":
        if self.features != INPUTS[self.kind]:
            raise ValueError(f"{self.kind} does not read {self.features} features")
        if self.predicted != (self.kind == "queue"):
            raise ValueError(f"{self.kind} does{' not' * self.predicted} read predictions")
        if len(self.hidden) != HIDDEN_LAYERS:
            raise ValueError(f"{self.kind} has {HIDDEN_LAYERS} hidden layers")
        return self


class Training(BaseModel, extra="forbid", frozen=True):
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


class Verdict(BaseModel, extra="forbid", frozen=True):
    """The model against the rule `delay`; of a training on windows that neither trained nor chose
    anything. change: of the figure, geometric mean of the ratios less 1, -0.05 = 5% less, and its
    95% interval over windows.
    """

    word: Word
    change: float
    low: float | None
    high: float | None
    windows: int
    figure: str = "wait, slowdown and tail"

    def __str__(self) -> str:
        """For people."""
        than = " than" if self.word != "no proven difference" else " from"
        figures = percent(self.change, self.low, self.high)
        where = f"on {self.windows} windows"
        return f"{self.word}{than} the rule delay: {self.figure} {figures} {where}"


class Card(BaseModel, extra="forbid", frozen=True):
    """card.json."""

    format: Literal[2]
    name: str = Field(pattern=f"^{BUNDLE_NAME}$")
    summary: str
    schema_id: str
    architecture: Architecture
    files_sha256: dict[str, str]
    rltuned_version: str
    git_commit: str
    torch_version: str
    training: Training
    results: dict[str, float]
    verdict: Verdict | None = Field(default=None, description="null: not judged")
    caveats: list[str]
    ranges: dict[str, tuple[float, float]] = Field(
        default_factory=dict,
        description="smallest and largest value of each feature in sample windows of the training",
    )
