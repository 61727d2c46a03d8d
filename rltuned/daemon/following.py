"""What `policy.name = "tuned"` follows: the generation in force, or in turns with the candidate.

With [tune] promote = "canary" a candidate is on trial on the stages that write: blocks of time, the
same in all partitions, in which it orders the queue, alternate with blocks of the incumbent. Jobs
count by the block in which they became eligible, as in the canary; the evidence belongs to the two
names. A candidate that does harm is withdrawn; one that helps is promoted; one of which neither is
known after MOST pairs is withdrawn.

Beyond a trial, a circuit breaker that opens for longer waits takes a young generation back first.
"""

from dataclasses import dataclass
from typing import Final

from rltuned.core.switchback import Switchback
from rltuned.daemon.canary import breaker
from rltuned.daemon.canary.breaker import Cause
from rltuned.daemon.canary.monitor import CanaryStatus
from rltuned.errors import ModelError
from rltuned.journal.named_values import Memory
from rltuned.policies.generations import Generations
from rltuned.settings import Settings

LOOKS: Final = (21, 42, 84)
"""Pairs of blocks after which a trial is looked at: a week of one partition, two, and four."""
MOST: Final = LOOKS[-1]
DOUBT: Final = 20.0
"""Evidence of harm, so many to one, at which a trial ends: a good candidate is lost in one of
twenty, and the incumbent is no loss. A breaker wants a thousand."""
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


@dataclass(frozen=True, slots=True)
class RoleChange:
    """What a trial or a breaker has done. what: promoted, withdrawn or rolled_back."""

    what: str
    generation: str
    detail: str


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
            self._salts[name], ladder.canary_block_s, ladder.canary_washout_s, together=True
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
        """Act on what a cycle of a trial taught; None = nothing is to be done. Raises ModelError: a
        generation cannot be used; JournalError: the breakers cannot be closed.
        """
        opened = status.breakers
        harmed = [name for name in status.opened if opened[name].cause in _HARM]
        if trial is not None:
            moved = self._weigh(trial, status, _harm_of(trial, opened, harmed), at)
        elif harmed and self._is_young(at):
            moved = self._back(f"{harmed[0]}: {opened[harmed[0]].detail}", at)
        else:
            moved = None
        if moved is not None and moved.what != "promoted":
            # what opened them was about an order that is gone
            for name in harmed:
                breaker.change(memory, cluster, lambda b, n=name: _without(b, n), at)  # type: ignore[misc]
        return moved

    def _weigh(
        self, trial: BlockTrial, status: CanaryStatus, harm: str, at: float
    ) -> RoleChange | None:
        if harm:
            self._store.withdraw(at=at, why=harm)
            return RoleChange("withdrawn", trial.candidate, harm)
        effect = status.effect
        pairs = 0 if effect is None else effect.pairs
        fresh = sum(pair.wait.means is not None for pair in status.pairs)
        if effect is None or not any(pairs - fresh < look <= pairs for look in LOOKS):
            return None
        found = effect.interval_s
        if found is not None and found[2] < 0:
            self._store.promote(trial.candidate, at=at, why=effect.verdict)
            return RoleChange("promoted", trial.candidate, effect.verdict)
        if pairs >= MOST:
            self._store.withdraw(at=at, why=effect.verdict)
            return RoleChange("withdrawn", trial.candidate, effect.verdict)
        return None

    def _is_young(self, at: float) -> bool:
        current = self._store.named_by("current")
        lines = [x for x in self._store.log() if x.get("generation") == current]
        promoted = [x["at"] for x in lines if x.get("what") == "promoted"]
        return bool(current and promoted) and at - float(str(promoted[-1])) < YOUNG_S

    def _back(self, why: str, at: float) -> RoleChange:
        before = self._store.named_by("current") or ""
        self._store.rollback(at=at, why=why)
        return RoleChange("rolled_back", before, why)


def _harm_of(trial: BlockTrial, breakers: breaker.Breakers, opened: list[str]) -> str:
    """What speaks against the candidate; empty = nothing does."""
    if opened:
        return breakers[opened[0]].detail
    for name, one in breakers.items():
        for cause, evidence in one.harm.items():
            if one.model == trial.model and evidence.value >= DOUBT:
                odds = f"{evidence.value:.0f} to 1 after {evidence.pairs} pairs of blocks"
                return f"{name}: a longer {cause} under the candidate: {odds}"
    return ""


def _without(breakers: breaker.Breakers, name: str) -> breaker.Breakers:
    return {n: b for n, b in breakers.items() if n != name}
