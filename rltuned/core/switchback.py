"""The switchback: blocks of time in which a partition's delays are on or off, drawn by a coin.

Time is cut into pairs of blocks. Of a pair that is measured one block is on and one is off; a coin
says which comes first. The coin is a hash of a secret, so no user knows a pair before it begins.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

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
