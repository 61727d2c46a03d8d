"""The kinds of jobs that a memory of run times knows: rows of running numbers under salted digests.

The table has a fixed size. When it is full, kinds of which no job has ended make room, then of the
users who have the most kinds those whose last submission lies furthest back: no user takes the room
of others. Nothing in it names a user or a job.
"""

import math
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

import numpy as np

from rltuned.core import run_times as runs
from rltuned.core.capacity import BoolArray

KINDS_MOST: Final = 150_000
"""24 MiB of numbers, and as much for their digests; twice that while room is made."""
KEPT_SHARE: Final = 0.75
"""Of the kinds, what a full table keeps."""
NOBODY: Final = 0
"""In place of a user's digest, where kinds are shared or the user is not known."""
_LONG_AGO: Final = 1_000.0
"""After so many shares of others, nothing of a user's share is left."""


class KindTable:
    """stats: (most, FIELDS) of core/run_times, a row for each kind."""

    def __init__(self, most: int, salt: bytes) -> None:
        """Empty. salt: of the digests, at most 64 bytes."""
        self.stats = np.zeros((most, runs.FIELDS))
        self._salt = salt
        self._owners = np.zeros(most, dtype=np.int64)
        self._rows: dict[int, int] = {}
        self._clock = 0.0  # of new kinds: later than any share of one that was forgotten

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def is_full(self) -> bool:
        """Whether the kinds of one more job might not fit."""
        return len(self._rows) + runs.SLOTS > len(self.stats)

    def digest(self, key: str, kind: tuple[object, ...]) -> int:
        text = "\0".join((key, *map(str, kind)))
        made = blake2b(text.encode("utf-8", "replace"), digest_size=8, key=self._salt)
        return int.from_bytes(made.digest(), "big", signed=True)

    def user(self, name: str) -> int:
        """What stands for a user."""
        return self.digest("user", (name,)) if name else NOBODY

    def row(self, digest: int, owner: int) -> int:
        """Of a kind; a new one is its owner's and empty."""
        row = self._rows.get(digest)
        if row is None:
            row = self._rows[digest] = len(self._rows)
            self._owners[row] = owner
            self.stats[row, runs.CLOCK] = self._clock
        return row

    def make_room(self, in_use: BoolArray) -> runs.IntArray:
        """Forget kinds. in_use: (most,) those of jobs that wait or run, which their user keeps the
        longest. Returns (most + 1,): the new rows of old ones, -1 = forgotten.
        """
        self._clock = self._later()
        used = np.array(list(self._rows.values()))
        digests = np.array(list(self._rows), dtype=np.int64)
        recent, owners = self.stats[used, runs.SUBMITTED], self._owners[used]
        recent[in_use[used]] = math.inf
        rank = _places_within(owners, recent)
        rank[(self.stats[used, runs.COUNT] == 0) & ~in_use[used]] = len(used)
        kept = np.sort(np.argsort(rank, kind="stable")[: int(len(used) * KEPT_SHARE)])
        place = np.full(len(self.stats) + 1, -1, dtype=np.int64)
        place[used[kept]] = np.arange(len(kept))
        stats, owned = np.zeros_like(self.stats), np.zeros_like(self._owners)
        stats[: len(kept)], owned[: len(kept)] = self.stats[used[kept]], owners[kept]
        self.stats, self._owners = stats, owned
        self._rows = dict(zip(digests[kept].tolist(), range(len(kept)), strict=True))
        return place

    def _later(self) -> float:
        return float(self.stats[:, runs.CLOCK].max(initial=0.0)) + _LONG_AGO

    def arrays(self) -> dict[str, np.ndarray]:
        """What `restore` takes, without what runs: that is counted when it is seen again."""
        rows = list(self._rows.values())
        stats = self.stats[rows]
        stats[:, runs.RUNNING : runs.RUNNING + 2] = 0.0
        digests = np.array(list(self._rows), dtype=np.int64)
        return {"digests": digests, "owners": self._owners[rows], "stats": stats}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take over what `arrays` gave. Raises ValueError: another release or size."""
        names, none = ("digests", "owners", "stats"), np.zeros(0)
        digests, owners, stats = found = [arrays.get(name, none) for name in names]
        fits = stats.shape == (len(digests), runs.FIELDS) and owners.shape == digests.shape
        fits = fits and len(np.unique(digests)) == len(digests) <= len(self.stats)
        if not fits or not np.isfinite(stats).all():
            shown = (f"{n} {one.shape}" for n, one in zip(names, found, strict=True))
            raise ValueError(f"arrays of another shape, or not finite: {', '.join(shown)}")
        self._rows = {digest: row for row, digest in enumerate(digests.tolist())}
        self.stats[: len(digests)], self._owners[: len(digests)] = stats, owners
        self._clock = self._later()


def _places_within(owners: runs.IntArray, recent: runs.FloatArray) -> runs.IntArray:
    """(n,) the place of each among those of its owner, the most recent first."""
    order = np.lexsort((-recent, owners))
    begins = np.flatnonzero(np.append(True, np.diff(owners[order]) != 0))
    sizes = np.diff(begins, append=len(owners))
    found = np.empty(len(owners), dtype=np.int64)
    found[order] = np.arange(len(owners)) - np.repeat(begins, sizes)
    return found
