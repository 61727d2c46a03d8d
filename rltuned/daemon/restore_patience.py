"""Going on with a restore until it is done, asked to stop, or out of patience."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from rltuned.domain.fields import Field
from rltuned.domain.ports import Clock
from rltuned.errors import BackendError, SnapshotError
from rltuned.journal.ownership import TRIED_AGAIN, UNDONE, Fate, Restored

PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
"""Before the next try while Slurm does not answer or does not take more. The pause doubles from
the first to the longest, and is the first again after every change that Slurm took."""
UNSEEN_S: Final = 15.0
"""So long it asks for what Slurm may show soon, as the site factor of a job just released."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long a restore goes on. patience_s: it ends when Slurm has taken nothing for so long; inf
    = until it is asked to stop. tell: called with one line that says how far it is. unnoted: with
    why the journal does not know of what was restored.
    """

    patience_s: float = 0.0
    tell: Callable[[str], None] = lambda _: None
    unnoted: Callable[[str], None] = lambda _: None


ONE_TRY: Final = Effort()


@dataclass(slots=True)
class _Tally:
    """All that is known after some passes. gained: the last one came to something new."""

    found: dict[tuple[object, Field], Restored] = field(default_factory=dict)
    error: Exception | None = None
    seen: bool = False
    gained: bool = False
    changed: bool = False

    def add(self, one_pass: Callable[[], list[Restored]]) -> None:
        before = dict(self.found)
        self.error = None
        try:
            self.found.update({(r.claim.key, r.claim.field): r for r in one_pass()})
            self.seen = True
        except (BackendError, SnapshotError) as error:
            self.error = error
        self.changed = self.found != before
        self.gained = self._settled(self.found) > self._settled(before)

    @staticmethod
    def _settled(found: dict[tuple[object, Field], Restored]) -> int:
        return sum(item.fate not in UNDONE for item in found.values())

    @property
    def fates(self) -> set[Fate]:
        return {item.fate for item in self.found.values()}

    @property
    def done(self) -> bool:
        """Whether another pass can come to nothing else: what Slurm refuses twice, it refuses."""
        if self.error is not None or self.fates & TRIED_AGAIN:
            return False
        return not self.changed or not self.fates & UNDONE

    @property
    def stalled(self) -> bool:
        """Whether Slurm did not answer, or did not take something."""
        return self.error is not None or Fate.FAILED in self.fates

    def is_over(self, idle_s: float, patience_s: float) -> bool:
        """Whether to end, so long after the last gain."""
        if self.done:
            unseen = any(item.soon for item in self.found.values())
            return not unseen or idle_s >= min(UNSEEN_S, patience_s)
        return self.stalled and idle_s >= patience_s

    def __str__(self) -> str:
        left = [item for item in self.found.values() if item.fate in UNDONE]
        why = next((item.detail for item in left if item.fate in {Fate.FAILED, Fate.UNKNOWN}), "")
        given = sum(item.fate is Fate.RESTORED for item in self.found.values())
        counted = f"{given} of {len(self.found)} restored, {len(left)} left"
        parts = [counted if self.seen else "", str(self.error or why)]
        return "; ".join(part for part in parts if part)


def persist(
    one_pass: Callable[[], list[Restored]], clock: Clock, effort: Effort
) -> tuple[Restored, ...]:
    """Repeat a pass until nothing is left. Raises BackendError, SnapshotError: none succeeded."""
    tally, since_s, pause_s = _Tally(), clock.monotonic(), PAUSE_S
    while True:
        tally.add(one_pass)
        if tally.gained:
            since_s, pause_s = clock.monotonic(), PAUSE_S
        if tally.is_over(clock.monotonic() - since_s, effort.patience_s):
            break
        if tally.done:
            pause_s = PAUSE_S
        elif not tally.stalled:  # the next need not wait
            pause_s = 0.0
        effort.tell(f"{tally}; next try in {pause_s:.0f} s" if pause_s else str(tally))
        if clock.wait(pause_s):
            break
        pause_s = min(max(PAUSE_S, 2 * pause_s), LONGEST_PAUSE_S)
    if tally.error is not None and not tally.seen:
        raise tally.error
    return tuple(tally.found.values())
