"""What the last night of `rltuned tune` left for the daemon to show, beside the generations.

tune.json is what became of the night; it is written at its beginning as well, so that one that was
killed counts as failed. last-week.json is what the order in force would have done for the jobs of
the last seven days.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from rltuned.files import write_whole
from rltuned.policies.files import named
from rltuned.policies.generations import FOLDER
from rltuned.stats import percent, word_of
from rltuned.text import counted, span

Verdict = Literal["kept", "proposed", "promoted", "nothing", "failed"]
VERDICTS: Final[tuple[Verdict, ...]] = ("kept", "proposed", "promoted", "nothing", "failed")
"""nothing: the record allows none. failed: the night did not come to its end."""
OLD_S: Final = 3 * 86_400.0
"""A replay that is older than this is no longer news of this site."""


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


class LastWeek(BaseModel):
    """last-week.json: jobs that came from begin to until, in Unix seconds, and their waits under
    Slurm's own order and under the order that is in force.

    at: when it was replayed. why: it could not be; the figures are None then. verdict: how far the
    simulator behaves as this Slurm did: close, rough, poor. change, low, high: of the mean wait.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    at: float
    why: str = ""
    begin: float | None = None
    until: float | None = None
    jobs: int | None = None
    order: str = ""
    verdict: str = ""
    slurm_wait_s: float | None = None
    wait_s: float | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    slurm_longest_s: float | None = None
    longest_s: float | None = None

    def sentence(self, now: float) -> str:
        """For people, at a Unix time."""
        old = now - self.at > OLD_S
        ago = f"Replayed {span(max(0.0, now - self.at))} ago"
        return f"{self._found()} {ago}{': is rltuned-tune.timer running?' if old else '.'}"

    def _found(self) -> str:
        if self.why:
            return f"Last week's jobs could not be replayed: {self.why}."
        jobs = f"last week's {counted(self.jobs or 0, 'job')}"
        if self.verdict == "poor":
            return (
                f"The simulator plays {jobs} otherwise than this Slurm did, so it says nothing of "
                "rltuned's order; `rltuned backtest` shows what is not played."
            )
        if self.change is None:
            return f"None of {jobs} would have waited, in Slurm's own order or in rltuned's."
        whose = f"{jobs.capitalize()} would have waited"
        if word_of(self.low, self.high) == "no proven difference":
            told = (
                f"{whose} as long in rltuned's order as in Slurm's own, as far as can be seen: "
                f"{percent(self.change, self.low, self.high)}"
            )
        else:
            ends = ", ".join(f"{x:.0%}" for x in sorted((abs(self.low or 0), abs(self.high or 0))))
            less = "less" if self.change < 0 else "more"
            told = (
                f"{whose} {abs(self.change):.0%} [{ends}] {less} in rltuned's order than in "
                "Slurm's own"
            )
        return (
            f"{told}; {span(self.wait_s or 0.0)} in the mean, not {span(self.slurm_wait_s or 0.0)}"
            f", and {span(self.longest_s or 0.0)} at most, not {span(self.slurm_longest_s or 0.0)} "
            f"(simulated; the calibration is {self.verdict})."
        )


State = TypeVar("State", TuneState, LastWeek)
FILES: Final[dict[type[BaseModel], str]] = {TuneState: "tune.json", LastWeek: "last-week.json"}


def read_state(state_dir: Path, kind: type[State]) -> State | None:
    """Of the last night; None = there is none, or it cannot be read."""
    try:
        return kind.model_validate_json((state_dir / FOLDER / FILES[kind]).read_bytes())
    except (OSError, ValidationError):
        return None


def write_state(state_dir: Path, state: TuneState | LastWeek) -> None:
    """Put it in the place of the last one, whole or not at all. Raises ModelError."""
    place = state_dir / FOLDER / FILES[type(state)]
    with named(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, (state.model_dump_json(indent=1) + "\n").encode(), 0o644)


def would_it_help(state_dir: Path, now: float) -> dict[str, object]:
    """The replay of last week with its sentence, at a Unix time; else a sentence on how to have
    one.
    """
    week = read_state(state_dir, LastWeek)
    if week is not None:
        return week.model_dump() | {"sentence": week.sentence(now)}
    if find_spec("numba") is not None:
        how = (
            "`rltuned tune` replays last week's jobs under this order (minutes, it writes nothing "
            "to Slurm); `systemctl enable --now rltuned-tune.timer` does it every night."
        )
    else:
        how = (
            "Install rltuned-train (or `pip install 'rltuned[train]'`) on this machine and enable "
            "rltuned-tune.timer: it replays last week's jobs under this order every night."
        )
    return {"at": None, "sentence": how}
