"""What `policy.name = "tuned"` follows: the generation in force, or in turns with the candidate.

With [tune] promote = "canary" a candidate is on trial on the stages that write: in the canary's on
blocks it orders the queue, in its off blocks the incumbent does, in all partitions together.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from rltuned.core.ladder import Switchback
from rltuned.daemon import breaker
from rltuned.daemon.breaker import Cause, Effect
from rltuned.daemon.canary import CanaryStatus
from rltuned.errors import ModelError
from rltuned.journal.journal import Journal
from rltuned.policies.files import read
from rltuned.policies.generations import MANIFEST, Generations
from rltuned.settings import Settings

PAIRS: Final = 42
"""Pairs of blocks after which a trial ends: two weeks of one partition. One look, at which a
candidate that changes nothing is promoted one time in forty."""
YOUNG_S: Final = 14 * 86_400.0
"""A generation that was promoted so lately is taken back when a breaker opens for longer waits."""


@dataclass(frozen=True, slots=True)
class BlockTrial:
    """Two generations in turns. incumbent: empty = what the settings say without one."""

    candidate: str
    incumbent: str
    switchback: Switchback

    @property
    def model(self) -> str:
        """What the evidence is about."""
        return f"{self.candidate} instead of {self.incumbent or 'none'}"


Turn = tuple[str, BlockTrial | None]
"""The generation that should be in force now, empty = none was promoted; and the trial it is in."""


class Following:
    """Asked before every cycle, and after it."""

    def __init__(self, settings: Settings) -> None:
        self._store = Generations(settings.daemon.state_dir)
        self._ladder, self._promote = settings.ladder, settings.tune.promote
        self._tried: object = self  # nothing yet

    def turn(self, at: float) -> Turn:
        """What should be in force at a Unix time. Raises ModelError."""
        current = self._store.named_by("current") or ""
        candidate = self._store.named_by("candidate") or current
        writes = self._ladder.ladder().rung.writes
        if self._promote != "canary" or not writes or candidate == current:
            return current, None
        # the name is shown to everyone, the whole digest to the daemon's user alone
        salt = hashlib.sha256(read(self._store.folder / candidate / MANIFEST)).hexdigest()
        ladder = self._ladder
        blocks = Switchback(salt, ladder.canary_block_s, ladder.washout_s, together=True)
        is_on = blocks.block("", at).on
        return candidate if is_on else current, BlockTrial(candidate, current, blocks)

    def is_due(self, now: Turn, at: float) -> bool:
        """Whether another one should be loaded than the one in force now. It is tried once, also
        where it cannot be read.
        """
        wanted: Turn | None = None
        with suppress(ModelError):
            wanted = self.turn(at)
        is_new, self._tried = wanted not in {now, self._tried}, wanted
        return is_new

    def judge(
        self,
        journal: Journal,
        cluster: str,
        status: CanaryStatus,
        trial: BlockTrial | None,
        at: float,
    ) -> dict[str, str] | None:
        """Act on what a cycle showed: what (promoted, withdrawn, rolled_back), generation and
        detail, or None. Raises ModelError: a generation cannot be used; JournalError: the breakers
        cannot be closed.
        """
        opened, effect = status.breakers, status.effect or Effect()
        harmed = {n for n in status.opened if opened[n].cause in {Cause.WAIT, Cause.SLOWDOWN}}
        why = "; ".join(f"{name}: {opened[name].detail}" for name in sorted(harmed))
        what, generation = "withdrawn", "" if trial is None else trial.candidate
        if trial is None:
            what, generation = "rolled_back", self._store.named_by("current") or ""
            if not harmed or at - self._store.promoted_at(generation) >= YOUNG_S:
                return None
            self._store.rollback(at=at, why=why)
        elif not harmed and effect.pairs < PAIRS:
            return None
        elif not harmed and effect.helps:
            what, why = "promoted", effect.verdict
            self._store.promote(generation, at=at, why=why)
        else:
            why = why or effect.verdict
            self._store.withdraw(at=at, why=why)
        if harmed:  # what opened them was about an order that is gone
            breaker.change(
                journal, cluster, lambda was: {n: b for n, b in was.items() if n not in harmed}, at
            )
        return {"what": what, "generation": generation, "detail": why}
