"""What `policy.name = "tuned"` follows: the generation in force, or in turns with the candidate.

With [tune] promote = "canary" a candidate is on trial on the stages that write. It is a canary in
which the incumbent orders the queue in off blocks, the candidate in on blocks; all partitions have
the same blocks. Evidence, report and breakers are the canary's, under the two names. A breaker that
opens ends the trial, and so do PAIRS pairs; only a candidate that helps is promoted.

Beyond a trial, a circuit breaker that opens for longer waits takes a young generation back first.
"""

from dataclasses import dataclass
from typing import Final

from rltuned.core.ladder import Switchback
from rltuned.daemon import breaker
from rltuned.daemon.breaker import Cause, Effect
from rltuned.daemon.canary import CanaryStatus, RoleChange
from rltuned.errors import ModelError
from rltuned.journal.store import Memory
from rltuned.policies.generations import Generations
from rltuned.settings import Settings

PAIRS: Final = 42
"""Pairs of blocks after which a trial ends: two weeks of one partition. One look, at which a
candidate that changes nothing is promoted one time in forty."""
YOUNG_S: Final = 14 * 86_400.0
"""A generation that was promoted so lately is taken back when a breaker opens for longer waits."""
_HARM: Final = frozenset({Cause.WAIT, Cause.SLOWDOWN})


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

    def in_force(self, at: float) -> str:
        """Whose block it is."""
        return self.candidate if self.switchback.block("", at).on else self.incumbent


@dataclass(frozen=True, slots=True)
class Turn:
    """What should be in force now. generation: empty = none was promoted."""

    generation: str
    trial: BlockTrial | None


_NONE: Final = Turn("none can be read", None)


class Following:
    """Asked before every cycle, and after it."""

    def __init__(self, settings: Settings) -> None:
        self._store = Generations(settings.daemon.state_dir)
        self._ladder, self._tune = settings.ladder, settings.tune
        self._salts: dict[str, str] = {}
        self._tried: Turn | None = None

    def turn(self, at: float) -> Turn:
        """What should be in force at a Unix time. Raises ModelError."""
        trial = self.trial()
        if trial is not None:
            return Turn(trial.in_force(at), trial)
        return Turn(self._store.named_by("current") or "", None)

    def is_due(self, now: Turn, at: float) -> bool:
        """Whether it is another one's turn; one that cannot be loaded raises ModelError, once."""
        try:
            wanted = self.turn(at)
        except ModelError:
            if self._tried == _NONE:
                return False
            self._tried = _NONE
            raise
        found, self._tried = wanted not in {now, self._tried}, wanted
        return found

    def trial(self) -> BlockTrial | None:
        """The one that is going on; raises as turn."""
        if self._tune.promote != "canary" or not self._ladder.ladder().rung.writes:
            return None
        candidate = self._store.named_by("candidate")
        current = self._store.named_by("current") or ""
        if candidate in {None, current}:
            return None
        # the name is shown to everyone, the whole digest to the daemon's user alone
        name = str(candidate)
        if name not in self._salts:
            self._salts[name] = self._store.read(name).digest
        ladder = self._ladder
        blocks = Switchback(
            self._salts[name], ladder.canary_block_s, ladder.washout_s, together=True
        )
        return BlockTrial(name, current, blocks)

    def judge(
        self,
        memory: Memory,
        cluster: str,
        status: CanaryStatus,
        trial: BlockTrial | None,
        at: float,
    ) -> RoleChange | None:
        """Act on what a cycle of a trial showed; None = nothing is to be done. Raises ModelError: a
        generation cannot be used; JournalError: the breakers cannot be closed.
        """
        opened = status.breakers
        harmed = [name for name in status.opened if opened[name].cause in _HARM]
        if trial is not None:
            harm = opened[harmed[0]].detail if harmed else ""
            moved = self._end(trial, status.effect, harm, at)
        elif harmed and self._is_young(at):
            moved = self._back(f"{harmed[0]}: {opened[harmed[0]].detail}", at)
        else:
            moved = None
        if moved is not None and moved.what != "promoted":
            # what opened them was about an order that is gone
            for name in harmed:
                breaker.change(memory, cluster, lambda b, n=name: _without(b, n), at)  # type: ignore[misc]
        return moved

    def _end(
        self, trial: BlockTrial, effect: Effect | None, harm: str, at: float
    ) -> RoleChange | None:
        """Promote or withdraw the candidate, once that is known. harm: of an open breaker."""
        if not harm and (effect is None or effect.pairs < PAIRS):
            return None
        if harm or effect is None or not effect.helps:
            why = harm or (effect.verdict if effect is not None else "")
            self._store.withdraw(at=at, why=why)
            return RoleChange("withdrawn", trial.candidate, why)
        self._store.promote(trial.candidate, at=at, why=effect.verdict)
        return RoleChange("promoted", trial.candidate, effect.verdict)

    def _is_young(self, at: float) -> bool:
        current = self._store.named_by("current")
        lines = [x for x in self._store.log() if x.get("generation") == current]
        promoted = [x["at"] for x in lines if x.get("what") == "promoted"]
        return bool(current and promoted) and at - float(str(promoted[-1])) < YOUNG_S

    def _back(self, why: str, at: float) -> RoleChange:
        before = self._store.named_by("current") or ""
        self._store.rollback(at=at, why=why)
        return RoleChange("rolled_back", before, why)


def _without(breakers: breaker.Breakers, name: str) -> breaker.Breakers:
    return {n: b for n, b in breakers.items() if n != name}
