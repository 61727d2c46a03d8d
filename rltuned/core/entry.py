"""One chosen job in a decision, and the sentence that says why it stands where it stands."""

from dataclasses import dataclass
from math import isinf

from rltuned.core.placement import Placement
from rltuned.core.sla import SlaClass
from rltuned.domain.jobs import PendingJob
from rltuned.text import span


@dataclass(frozen=True, slots=True)
class Entry:
    """One chosen job in a decision; placement is None beyond the top K.

    Ranks count from 1 among all jobs that Slurm could start, as core/standing: rank_before by
    Slurm's own priorities, without rltuned's; rank_wished by those that rltuned proposes. The place
    in force is Decision.standing's. in_force_s: the delay that its present number stands for.
    current, proposed, settled: its priority now, by its delay, and after this plan. changes: this
    plan writes its number. wait_s, fits: how long it has waited, and whether it could start now.
    length: "short" or "long" by its limit beside the median; or "".
    """

    job: PendingJob
    delay_s: float
    upper_s: float
    in_force_s: float
    rank_before: int
    rank_wished: int
    current: int
    proposed: int
    settled: int
    changes: bool
    placement: Placement | None
    sla: SlaClass | None
    wait_s: float
    fits: bool
    length: str

    @property
    def moves(self) -> str:
        """How far it goes from Slurm's own order."""
        places = self.rank_before - self.rank_wished
        if not places:
            return f"keeps place {self.rank_wished}"
        way, count = ("up", places) if places > 0 else ("down", -places)
        return f"moves {way} {count} place{'' if count == 1 else 's'}"

    @property
    def what(self) -> str:
        """How long and how wide it is: `short (7m), 1 GPU`; "short" where that moves it up."""
        limit_s, gpus = self.job.request.time_limit_s, self.job.request.size.gpus
        limit = "unknown" if limit_s is None else "no limit" if isinf(limit_s) else span(limit_s)
        places = self.rank_before - self.rank_wished
        told = (places > 0 and self.length == "short") or (places < 0 and self.length == "long")
        length = f"{self.length} ({limit})" if told else f"limit {limit}"
        return f"{length}, {gpus} GPU{'' if gpus == 1 else 's'}"

    @property
    def bound(self) -> str:
        """Which jobs may still overtake it because of rltuned, without a time of a zone."""
        left_s = self.delay_s - self.wait_s
        if left_s <= 0:
            return "no job that arrives from now on may overtake it"
        return f"may be overtaken by jobs that arrive within {span(left_s)} from now"

    @property
    def why(self) -> str:
        """A sentence for people."""
        fits = "fits now" if self.fits else "does not fit now"
        return f"{self.moves}: {self.what}, waited {span(self.wait_s)}, {fits}; {self.bound}"
