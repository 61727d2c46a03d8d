"""The trust ladder: how far rltuned is trusted, and on what terms.

observe looks. shadow decides as well, and logs what it would write. canary writes in blocks of
time, and compares them with blocks without delays. full writes. Up by the settings only; down by
the settings, or by a partition's circuit breaker (daemon/breaker.py).
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final


class Rung(StrEnum):
    """A stage. The value is the word in the settings and the metric label."""

    OBSERVE = "observe"
    SHADOW = "shadow"
    CANARY = "canary"
    FULL = "full"

    @property
    def writes(self) -> bool:
        return self in {Rung.CANARY, Rung.FULL}


@dataclass(frozen=True, slots=True)
class Ladder:
    """The knobs. margin: of longer waits in on blocks. max_errors: cycles until a breaker opens."""

    rung: Rung = Rung.FULL
    margin: float = 0.05
    max_errors: int = 5


# The switchback: blocks of time in which a partition's delays are on or off, drawn by a coin.
#
# Time is cut into pairs of blocks. Of a pair that is measured one block is on and one is off; a
# coin says which comes first. The coin is a hash of a secret, so no user knows a pair before it
# begins.


MOST_APART_S: Final = 900.0
"""Between two cycles; after more a switch may have been missed, and the blocks are no evidence."""
_BYTES: Final = 6
"""Of the hash; as many as a float can hold without rounding up to 1."""
_HALF: Final = 0.5


@dataclass(frozen=True, slots=True)
class Block:
    """One block of one partition, in Unix seconds. pair: its number. measured: its pair has one
    block on and one off. counts_from: jobs that became eligible before it are no evidence. ends_at:
    when the next block begins.
    """

    pair: int
    on: bool
    measured: bool
    pair_begins_at: float
    pair_ends_at: float
    counts_from: float
    ends_at: float


@dataclass(frozen=True, slots=True)
class Switchback:
    """When delays are on. salt: the secret of the coin. washout_s: first part of a block, which is
    no evidence. off_share: 0 to 1/2; at 1/2 every pair is measured. together: all partitions have
    the same blocks, and in off blocks another order writes its delays.
    """

    salt: str = ""
    block_s: float = 4 * 3_600.0
    washout_s: float = 3_600.0
    off_share: float = _HALF
    together: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.washout_s < self.block_s:
            raise ValueError(f"a washout of {self.washout_s} s in blocks of {self.block_s} s")
        if not 0 <= self.off_share <= _HALF:
            raise ValueError(f"a share of {self.off_share} off blocks is outside 0..1/2")

    def block(self, partition: str, at: float) -> Block:
        partition = "" if self.together else partition
        # partitions begin at different times, so that their writes do not come all at once
        shift_s = _drawn(self.salt, "shift", partition, 0) * 2 * self.block_s
        return _block(self, partition, shift_s, int((at - shift_s) // self.block_s))

    def off(self, partitions: Iterable[str], at: float) -> str | None:
        """The first of a job's partitions without delays now; None = delays are written."""
        if self.together:
            return None
        return next((name for name in partitions if not self.block(name, at).on), None)


@lru_cache(maxsize=4_096)
def _block(terms: Switchback, partition: str, shift_s: float, number: int) -> Block:
    pair, second = divmod(number, 2)
    measured = _drawn(terms.salt, "pair", partition, pair) < 2 * terms.off_share
    on_in_second = _drawn(terms.salt, "coin", partition, pair) < _HALF
    begins_at = shift_s + number * terms.block_s
    pair_begins_at = begins_at - second * terms.block_s
    return Block(
        pair=pair,
        on=not measured or on_in_second == bool(second),
        measured=measured,
        pair_begins_at=pair_begins_at,
        pair_ends_at=pair_begins_at + 2 * terms.block_s,
        counts_from=begins_at + terms.washout_s,
        ends_at=begins_at + terms.block_s,
    )


@lru_cache(maxsize=4_096)
def _drawn(salt: str, what: str, partition: str, number: int) -> float:
    """Evenly spread over [0, 1)."""
    identity = f"{salt}\0{what}\0{number}\0{partition}".encode()
    return int.from_bytes(hashlib.sha256(identity).digest()[:_BYTES]) / 256**_BYTES


# Whether jobs do worse while delays are on: a test that may be looked at at any time.
#
# A pair of blocks gives one number d in [-1, 1]: how much worse the users did in the on block. A
# coin decided which block was on, so if delays do nothing the mean of d is 0 in every pair, however
# heavy the tails of waits are and however much neighbouring blocks have in common.
#
# d is bet upon. A bet that begins with pair k is worth the product of 1 + STAKE x (d - margin) over
# the pairs from k on, and evidence is the mean of these bets with weight 1 / (k (k + 1)), those
# that have not begun counting 1. On average it cannot grow unless d exceeds the margin, so by
# Ville's inequality it ever reaches LIMIT with a chance of at most 1 / LIMIT. As a bet begins at
# every pair, good weeks do not hide bad ones that follow. docs/adr/0010.


LIMIT: Final = 1_000.0
"""Evidence at which delays are held to do harm."""
STAKE: Final = 0.5
"""Of what could be lost in a pair; any fixed one is valid, this one finds harm soon (ADR 0010)."""
MAX_MARGIN: Final = 0.5


def difference(on: Mapping[str, float], off: Mapping[str, float]) -> float | None:
    """How much worse users did in the on block than in the off block; None = too few users.

    (a - b) / (a + b) of the means over users a and b, without the user whose absence brings it
    nearest to 0 (0 when its sign depends on one user). So one user, whatever their jobs do, makes
    it no larger than the others do. It changes its sign with on and off, and nothing else. on, off:
    by user, the mean in the block; >= 0, better when smaller.
    """
    total_on, total_off = sum(on.values()), sum(off.values())
    found = []
    for user in on.keys() | off.keys():
        left_on, left_off = len(on) - (user in on), len(off) - (user in off)
        if not (left_on and left_off):
            return None
        ours = max(0.0, total_on - on.get(user, 0.0)) / left_on
        theirs = max(0.0, total_off - off.get(user, 0.0)) / left_off
        found.append((ours - theirs) / (ours + theirs) if ours + theirs else 0.0)
    if not found:
        return None
    return max(min(found), 0.0) + min(max(found), 0.0)


@dataclass(frozen=True, slots=True)
class Evidence:
    """How strongly the pairs so far speak for harm. bets: worth of those that have begun."""

    bets: float = 0.0
    pairs: int = 0

    def __post_init__(self) -> None:
        if not (self.bets >= 0.0 and self.pairs >= 0):
            raise ValueError(f"impossible evidence: {self}")

    @property
    def value(self) -> float:
        """The e-value: so many to one. 1 = nothing is known."""
        return self.bets + 1.0 / (self.pairs + 1)

    @property
    def is_enough(self) -> bool:
        return self.value >= LIMIT

    def after(self, found: float, margin: float) -> "Evidence":
        """With one more pair. found: its difference. margin: share by which waits may be longer."""
        pairs = self.pairs + 1
        begun = self.bets + 1.0 / (pairs * (pairs + 1))
        return Evidence(begun * (1.0 + STAKE * (found - margin / (2.0 + margin))), pairs)
