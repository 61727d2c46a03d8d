"""When waiting jobs start: the present queue played forward, many times, with run times drawn.

A play knows at each moment what Slurm knows: free nodes, the order, time limits. Its passes reserve
as Slurm's backfill does, for the first jobs of each partition that do not fit; drawn ends free
nodes, limits make reservations. Jobs that still arrive come as on one of the last days, and stand
where their delay puts them.
"""

import math
from bisect import insort
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rltuned.core.capacity import Capacity, allowed
from rltuned.core.cluster import Amounts, capped
from rltuned.core.lanes import (
    HeldShares,
    Lane,
    RunningShares,
    carries,
    lane_of,
    moved,
    place,
    taken_by,
)
from rltuned.core.placement import OVERDUE_S
from rltuned.core.pools import numbered
from rltuned.domain.cluster import Node
from rltuned.domain.jobs import PendingJob
from rltuned.domain.snapshot import RunTime, Snapshot
from rltuned.domain.units import JobId

# The jobs that came lately, for forecasts: those that still come do so as on one of these days.


DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job that came within the last days. ago_s: so long ago."""

    job: PendingJob
    ago_s: float
    run_time: RunTime | None


@dataclass(frozen=True, slots=True)
class Arrivals:
    """All that came within the last window_s; 0 = not known, and none come."""

    jobs: tuple[Arrival, ...] = ()
    window_s: float = 0.0


NO_ARRIVALS: Final = Arrivals()


def days_of(arrivals: Arrivals, day_s: float, first: int) -> list[list[tuple[float, int]]]:
    """Whole days of the window, or all of a shorter one: (seconds since its begin, job) each."""
    if day_s <= 0.0:
        return []
    found: list[list[tuple[float, int]]] = [[] for _ in range(int(arrivals.window_s // day_s))]
    for number, one in enumerate(arrivals.jobs, start=first):
        back = int(one.ago_s // day_s)
        if 0 <= back < len(found):
            found[back].append(((back + 1) * day_s - one.ago_s, number))
    return [sorted(day) for day in found]


# How much longer jobs run: draws from what is predicted, given how long each has run already.


FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

LEVELS: Final = np.array([0.0, 0.1, 0.5, 0.9, 1.0])
"""Shares of runs that are shorter than the KNOTS of a job."""
TAIL: Final = 0.5
"""The shortest and, without a limit, the longest run lie beyond the 10 and 90% quantiles by so much
of their distance from the median, in logarithms."""
GUESS: Final = (0.05, 0.4)
"""Of the limit, the 10 and 50% quantile where nothing is predicted; 90% is the limit."""
UNKNOWN_S: Final = (60.0, 3_600.0, 86_400.0)
"""The same quantiles without a limit."""
KIN_SHARE: Final = 0.5
HEAVY: Final = 1.5
"""Exponent of the tail of jobs that have run longer than any that is known."""


def knots(found: RunTime | None, limit_s: float) -> tuple[float, ...]:
    """ln(1 + s) of a job's run time at LEVELS; a limit ends the longest run."""
    limited = math.isfinite(limit_s)
    if found is not None:
        low, median, high = found.low_s, found.median_s, found.high_s
    elif limited:
        low, median, high = GUESS[0] * limit_s, GUESS[1] * limit_s, limit_s
    else:
        low, median, high = UNKNOWN_S
    a, b, c = (math.log1p(min(s, limit_s)) for s in (low, median, high))
    most = math.log1p(limit_s) if limited else c + TAIL * (c - b)
    return max(0.0, a - TAIL * (b - a)), a, b, c, most


def runs_s(table: Sequence[tuple[float, ...]], ran_s: FloatArray, draws: FloatArray) -> FloatArray:
    """(n,) whole run times at draws (n,) in (0, 1), none shorter than ran_s (n,)."""
    x = np.array(table).reshape(-1, len(LEVELS))
    begun = _level(x, np.log1p(ran_s))
    level = begun + (1.0 - begun) * draws
    at = np.clip(np.searchsorted(LEVELS, level, side="right") - 1, 0, len(LEVELS) - 2)
    rows = np.arange(x.shape[0])
    low, high = x[rows, at], x[rows, at + 1]
    part = (level - LEVELS[at]) / (LEVELS[at + 1] - LEVELS[at])
    found = np.expm1(low + part * (high - low))
    older = (ran_s + 1.0) * (1.0 - draws) ** (-1.0 / HEAVY)
    # whole seconds: what is rounded otherwise would end apart
    whole: FloatArray = np.rint(np.where(begun >= 1.0, older, found))
    return np.maximum(whole, ran_s)


def _level(x: FloatArray, ran: FloatArray) -> FloatArray:
    """(n,) share of runs that are shorter than ln(1 + s) = ran (n,); 1 = all are."""
    at = np.clip((x <= ran[:, None]).sum(axis=1) - 1, 0, len(LEVELS) - 2)
    rows = np.arange(x.shape[0])
    low, wide = x[rows, at], x[rows, at + 1] - x[rows, at]
    part = np.clip((ran - low) / np.maximum(wide, 1e-9), 0.0, 1.0)
    found: FloatArray = LEVELS[at] + part * (LEVELS[at + 1] - LEVELS[at])
    return np.where(ran <= 0.0, 0.0, found)


def alike(rng: np.random.Generator, users: IntArray, of_users: FloatArray) -> FloatArray:
    """(n,) draws in (0, 1). Half of the jobs have that of their user, of_users (U,): what is off
    for one job of a user is off for its kin.
    """
    own = rng.random(len(users))
    return np.where(rng.random(len(users)) < KIN_SHARE, of_users[users], own)


DRAWS: Final = 24
FEWEST: Final = 6
"""Plays that an interval needs at least, however little time there is."""
PASS_S: Final = 30.0
COARSE: Final = 0.02
"""Slurm looks at the queue every PASS_S. What lies far ahead is looked at in steps of such a share
of its distance, which is far less than what run times leave open."""
HORIZON_S: Final = 90 * 86_400.0
QUANTILES: Final = (0.1, 0.5, 0.9)
RESERVED: Final = 5
"""Jobs of a partition for which a pass reserves: with 20 forecasts are no nearer and take thrice as
long."""
MOST_RESERVED: Final = 50
"""Of all partitions together: where a hundred share their nodes 500 take minutes."""
_CROWD: Final = 2_000
"""With so many in line, those that arrive behind every job of the forecast are left out."""


@dataclass(frozen=True, slots=True)
class PlayedJob:
    """A waiting job. key_s: when it became eligible plus its delay, in seconds from now."""

    job: PendingJob
    key_s: float
    run_time: RunTime | None


def play_forward(
    snapshot: Snapshot,
    line: Sequence[PlayedJob],
    running: Mapping[JobId, RunTime],
    arrivals: Arrivals = NO_ARRIVALS,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    late: Callable[[], bool] = lambda: False,
) -> FloatArray:
    """(k, n) seconds until each job of the line starts; inf = not within HORIZON_S.

    line: in order. running: what is predicted of running jobs. late: asked after each play; True =
    FEWEST are enough.
    """
    rng = np.random.default_rng(seed)
    ground = _Ground(snapshot, line, running, arrivals)
    found = []
    for number in range(1, draws + 1):
        found.append(_Play(ground, rng).run())
        if number >= FEWEST and late():
            break
    return np.array(found).reshape(len(found), len(line))


def quantiles(starts_s: FloatArray) -> FloatArray:
    """(3, n) of QUANTILES of (k, n) plays; inf = not within HORIZON_S."""
    found: FloatArray = np.quantile(
        np.minimum(starts_s, 2 * HORIZON_S), QUANTILES, axis=0, method="median_unbiased"
    )
    return np.where(found > HORIZON_S, math.inf, found)


class _Ground:
    """What all plays share. Jobs in line come first, then those that arrive."""

    def __init__(
        self,
        snapshot: Snapshot,
        line: Sequence[PlayedJob],
        running: Mapping[JobId, RunTime],
        arrivals: Arrivals,
    ) -> None:
        self.capacity = Capacity.of(snapshot)
        now, self.count = float(snapshot.taken_at), len(line)
        every: list[PlayedJob | Arrival] = [*line, *arrivals.jobs]
        jobs = [one.job for one in every]
        self.lanes = self._lanes_of(jobs, snapshot.nodes)
        self.kept = self.capacity.kept
        self.open_to = [self.kept.open_to(job) for job in jobs] if self.kept else []
        self._narrower: dict[tuple[int, int], Lane] = {}
        self.limits_s = [_limit_s(job.request.time_limit_s) for job in jobs]
        self.knots = [
            knots(one.run_time, limit_s) for one, limit_s in zip(every, self.limits_s, strict=True)
        ]
        self.keys_s = [one.key_s for one in line]
        self.delays_s = _delays_s(line, jobs, self.knots, now)
        self.day_s = min(arrivals.window_s, DAY_S)
        self.days = days_of(arrivals, self.day_s, self.count)
        held = [(run, taken_by(run.shares, self.capacity)) for run in snapshot.running]
        self.runs = [(run, taken) for run, taken in held if taken is not None]
        self.run_ends_s = [max(run.latest_end() - now, OVERDUE_S) for run, _ in self.runs]
        self.ran_s = np.array([max(0.0, now - run.started_at) for run, _ in self.runs])
        users, count = numbered([*(job.user for job in jobs), *(run.user for run, _ in self.runs)])
        users = users if count else np.arange(len(users))
        self.users, self.run_users = users[: len(jobs)], users[len(jobs) :]
        self.user_count = int(users.max(initial=0)) + 1
        self.run_knots = [
            knots(running.get(run.job_id), _limit_s(run.request.time_limit_s))
            for run, _ in self.runs
        ]

    def _lanes_of(self, jobs: Sequence[PendingJob], nodes: Sequence[Node]) -> dict[int, Lane]:
        """By job those that the nodes could ever carry; equal jobs have one lane."""
        known: dict[object, Lane | None] = {}
        found: dict[int, Lane] = {}
        for at, job in enumerate(jobs):
            asks = job.request
            key = (
                job.partitions, asks.total, asks.nodes, asks.gpu_types, asks.exclusive,
                job.required_nodes, job.excluded_nodes, asks.outside,
            )  # fmt: skip
            if key not in known:
                accepts = allowed(asks.outside, nodes) if asks.outside else None
                known[key] = lane_of(job, self.capacity, len(known), accepts)
            lane = known[key]
            if lane is not None:
                found[at] = lane
        return found

    def left_of(self, lane: Lane, some: int) -> Lane:
        """A lane where a set of `kept` keeps nodes from it."""
        key = lane.number, some
        if some and key not in self._narrower:
            member, part = lane.member & ~self.kept.nodes(some), self.kept.parts(some)
            number = -1 - len(self._narrower)
            self._narrower[key] = replace(lane, number=number, member=member, part=part)
        return self._narrower[key] if some else lane


def _limit_s(limit_s: float | None) -> float:
    return math.inf if limit_s is None else limit_s


def _delays_s(
    line: Sequence[PlayedJob],
    jobs: Sequence[PendingJob],
    table: Sequence[tuple[float, ...]],
    now: float,
) -> list[float]:
    """(m,) of the jobs that arrive: the place by GPU time that a job has in the line is that of its
    delay among the delays there.
    """
    if not line:
        return [0.0] * len(jobs)
    own = np.sort([max(0.0, one.key_s + now - one.job.waits_since) for one in line])
    area = np.array(
        [
            math.expm1(row[2]) * max(job.request.size.gpus, 1)
            for row, job in zip(table, jobs, strict=True)
        ]
    )
    known, came = np.sort(area[: len(line)]), area[len(line) :]
    place = np.searchsorted(known, came) + np.searchsorted(known, came, side="right") - 1
    found: list[float] = np.interp(place / 2, np.arange(len(own)), own).tolist()
    return found


class _Play:
    """The queue played forward once."""

    def __init__(self, ground: _Ground, rng: np.random.Generator) -> None:
        self._ground, self._rng = ground, rng
        kin = rng.random(ground.user_count)
        self._run_s = self._drawn(ground.knots, ground.users, kin, np.zeros(len(ground.knots)))
        self._starts_s = np.full(ground.count, math.inf)
        self._total, self._free = ground.capacity.total, ground.capacity.free
        self._running = RunningShares(self._total, 4 * len(ground.runs))
        run_s = self._drawn(ground.run_knots, ground.run_users, kin, ground.ran_s)
        self._ends = [
            (min(end_s, limit_s), self._running.start(taken, limit_s))
            for end_s, limit_s, (_, taken) in zip(
                (run_s - ground.ran_s).tolist(), ground.run_ends_s, ground.runs, strict=True
            )
        ]
        self._ends_s = {
            run.job_id: end_s
            for (end_s, _), (run, _) in zip(self._ends, ground.runs, strict=True)
            if ground.kept
        }
        heapify(self._ends)
        lanes = ground.lanes
        self._waiting = [(key_s, at) for at, key_s in enumerate(ground.keys_s) if at in lanes]
        self._in_lane = Counter(lanes[at].number for _, at in self._waiting)
        self._left = len(self._waiting)
        self._full: set[int] = set()  # lanes for which there is no room now
        self._day, self._coming = 0, list[tuple[float, int]]()

    def _drawn(
        self, table: Sequence[tuple[float, ...]], users: IntArray, kin: FloatArray, ran: FloatArray
    ) -> FloatArray:
        return runs_s(table, ran, alike(self._rng, users, kin))

    def run(self) -> FloatArray:
        """(n,) seconds until each job in line starts."""
        now = 0.0
        while self._left and now <= HORIZON_S:
            self._end_until(now)
            self._arrive_until(now)
            if not self._full.issuperset(self._in_lane):
                self._pass(now)
            following = self._ends[0][0] if self._ends else math.inf
            following = min(following, self._next_arrival_s())
            if self._ground.kept:
                following = min(following, self._ground.kept.next_end_s(now))
            now = max(following, now + max(PASS_S, COARSE * now))
        return self._starts_s

    def _end_until(self, now: float) -> None:
        ended = []
        while self._ends and self._ends[0][0] <= now:
            ended.append(self._running.end(heappop(self._ends)[1]))
        if ended:
            self._free = capped(moved(self._free, ended, 1), self._total)
            self._full.clear()

    def _next_arrival_s(self) -> float:
        """When the next job comes; a day is drawn when the last one is over."""
        ground = self._ground
        while not self._coming and ground.days and self._day * ground.day_s <= HORIZON_S:
            day = ground.days[int(self._rng.integers(len(ground.days)))]
            begin_s = self._day * ground.day_s
            self._coming = [(begin_s + at_s, job) for at_s, job in reversed(day)]
            self._day += 1
        return self._coming[-1][0] if self._coming else math.inf

    def _arrive_until(self, now: float) -> None:
        ground = self._ground
        while self._next_arrival_s() <= now:
            came_s, job = self._coming.pop()
            key_s = came_s + ground.delays_s[job - ground.count]
            behind = len(self._waiting) >= _CROWD and key_s > self._waiting[-1][0]
            if job in ground.lanes and not behind:
                insort(self._waiting, (key_s, job))
                self._in_lane[ground.lanes[job].number] += 1

    def _pass(self, now: float) -> None:
        """One pass of Slurm's over the queue."""
        reserved = _Reservations(self._running, self._free, now)
        still = []
        # where a lane has room while nothing starts, and from which limit on its jobs may not
        room: dict[int, bool] = {}
        refused: dict[int, float] = {}
        met: dict[float, int] = {}
        going = self._ground.kept.going(now, self._ends_s)
        for entry in self._waiting:
            held, limit_s = None, self._ground.limits_s[entry[1]]
            lane = self._lane(entry[1], limit_s, now, met, going)
            may = lane.number not in refused or limit_s < refused[lane.number]
            if may and lane.number not in self._full:
                if lane.number not in room:
                    room[lane.number] = carries(lane, self._total, self._free)
                if not room[lane.number]:
                    self._full.add(lane.number)
                else:
                    held = reserved.place(lane, limit_s)
                    if held is None:
                        refused[lane.number] = limit_s
            if held is None:
                reserved.add(lane, limit_s)
                still.append(entry)
            else:
                self._start(entry[1], lane, held, now)
                reserved.free = self._free
                room.clear()
        self._waiting = still

    def _lane(
        self, job: int, limit_s: float, now: float, met: dict[float, int], going: int
    ) -> Lane:
        """The lane of a job by what is kept from it now. met: reservations by limit, in this pass;
        going: running jobs.
        """
        ground = self._ground
        if not ground.kept:
            return ground.lanes[job]
        if limit_s not in met:
            met[limit_s] = going | ground.kept.met(now, limit_s)
        return ground.left_of(ground.lanes[job], met[limit_s] & ~ground.open_to[job])

    def _start(self, job: int, lane: Lane, held: HeldShares, now: float) -> None:
        self._free = moved(self._free, [held], -1)
        rows = self._running.start(held, now + self._ground.limits_s[job])
        heappush(self._ends, (now + float(self._run_s[job]), rows))
        self._in_lane[lane.base] -= 1
        if not self._in_lane[lane.base]:
            del self._in_lane[lane.base]
        if job < self._ground.count:
            self._starts_s[job] = now
            self._left -= 1


class _Reservations:
    """What a pass reserves for the jobs that cannot start, in order, as Slurm's backfill does: the
    earliest time at which a job's nodes are free to the end of its limit, whatever is reserved
    before it. They are made when a later job asks for room.
    """

    def __init__(self, running: RunningShares, free: Amounts, now: float) -> None:
        self.free, self._running, self._now = free, running, now
        self._count = Counter[str]()
        self._asked: list[tuple[Lane, float]] = []
        self._made: list[tuple[float, float, HeldShares]] = []

    def add(self, lane: Lane, limit_s: float) -> None:
        """A job of the lane cannot start now."""
        count = self._count
        if count[lane.partition] < RESERVED and count.total() < MOST_RESERVED:
            count[lane.partition] += 1
            self._asked.append((lane, limit_s))

    def place(self, lane: Lane, limit_s: float) -> HeldShares | None:
        """Where a job starts now beside them; None = nowhere."""
        for asked, its_limit_s in self._asked:
            self._reserve(asked, its_limit_s)
        self._asked.clear()
        return self._beside(lane, self.free, self._now, limit_s)

    def _reserve(self, lane: Lane, limit_s: float) -> None:
        for at_s, free in self._running.openings(lane, self.free, self._now):
            held = self._beside(lane, free, at_s, limit_s)
            if held is not None:
                self._made.append((at_s, at_s + limit_s, held))
                return

    def _beside(self, lane: Lane, free: Amounts, at_s: float, limit_s: float) -> HeldShares | None:
        held = [h for begin_s, end_s, h in self._made if begin_s < at_s + limit_s and at_s < end_s]
        return place(lane, self._running.total, moved(free, held, -1) if held else free)
