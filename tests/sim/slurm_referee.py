"""Slurm's two passes, replayed second by second with sets and lists: the referee of the kernel.

Nothing is skipped: every second is looked at, every pass walks the whole queue. Jobs ask for so
many GPUs on each of so many nodes, or for whole nodes; the order is fixed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rltuned.core.slurm_plan import Parameters
from rltuned.sim.world import AGE_ONLY


@dataclass
class Asked:
    """A job. gpus: on each of `count` nodes. limit_s: any number of seconds."""

    number: int
    submit_s: int
    runs_s: int
    limit_s: int
    partition: int
    count: int
    gpus: int
    exclusive: bool
    user: str
    account: str
    key: float
    start_s: int | None = None
    nodes: tuple[int, ...] = ()
    expected_s: int | None = None
    """When the last pass reserved for it."""

    @property
    def planned_s(self) -> int:
        return math.ceil(self.limit_s / 60) * 60

    @property
    def runs_until(self) -> int:
        return (self.start_s or 0) + min(self.runs_s, self.limit_s)

    @property
    def planned_until(self) -> int:
        return (self.start_s or 0) + self.planned_s


@dataclass
class Referee:
    """A cluster: GPUs of each node, and the nodes of each partition."""

    gpus: Sequence[int]
    members: Sequence[frozenset[int]]
    jobs: list[Asked]
    rules: Parameters
    spread: bool
    waiting: list[Asked] = field(default_factory=list)
    running: list[Asked] = field(default_factory=list)
    changed: bool = False
    plan: list[tuple[int, int, frozenset[int]]] = field(default_factory=list)
    """Without a gap, from when to when which nodes are reserved."""
    records: int = 1
    until_s: int = 0

    def play(self, seconds: int) -> list[Asked]:
        """All jobs with their starts and nodes, after so many seconds at most."""
        now = 0
        while now < seconds and any(job.start_s is None for job in self.jobs):
            ended = [job for job in self.running if job.runs_until == now]
            came = [job for job in self.jobs if job.submit_s == now]
            self.running = [job for job in self.running if job not in ended]
            self.waiting += came
            happened = bool(ended or came)
            self.changed |= happened
            whole = self.rules.sched_interval > 0 and now % self.rules.sched_interval == 0
            if happened or whole:
                self.main_pass(now, whole)
            if self.changed and self.rules.bf_interval > 0 and now % self.rules.bf_interval == 0:
                self.changed = False
                self.backfill_pass(now)
            now += 1
        return self.jobs

    def free_at(self, gone: Sequence[Asked] = ()) -> list[int]:
        free = list(self.gpus)
        for job in self.running:
            for node in job.nodes if job not in gone else ():
                free[node] -= self.gpus[node] if job.exclusive else job.gpus
        return free

    def placed(
        self, job: Asked, allowed: frozenset[int], free: Sequence[int], spread: bool
    ) -> tuple[int, ...]:
        """The nodes it would take; none = it does not fit."""
        fits = [
            node
            for node in sorted(allowed)
            if free[node] >= job.gpus and (not job.exclusive or free[node] == self.gpus[node])
        ]
        fits.sort(key=lambda node: (-free[node] if spread else free[node], node))
        return tuple(fits[: job.count]) if len(fits) >= job.count else ()

    def start(self, job: Asked, nodes: tuple[int, ...], now: int) -> None:
        job.start_s, job.nodes = now, nodes
        self.waiting.remove(job)
        self.running.append(job)
        self.changed = True

    def priority(self, job: Asked, now: int) -> int:
        """Where a second of age is a point."""
        age = AGE_ONLY.age_weight * min(1.0, (now - job.submit_s) / AGE_ONLY.max_age_s)
        return math.floor(AGE_ONLY.base + age)

    def in_order(self) -> list[Asked]:
        return sorted(self.waiting, key=lambda job: (job.key, job.number))

    def main_pass(self, now: int, whole: bool) -> None:
        shut: set[int] = set()
        blocked: frozenset[int] = frozenset()
        for place, job in enumerate(self.in_order()):
            if not whole and place == self.rules.default_queue_depth:
                break
            if job.partition in shut:
                continue
            allowed = self.members[job.partition] - blocked
            nodes = self.placed(job, allowed, self.free_at(), self.spread)
            if nodes:
                self.start(job, nodes, now)
            elif now - job.submit_s >= self.rules.bf_min_age_reserve:
                shut.add(job.partition)
                blocked |= self.members[job.partition]

    def backfill_pass(self, now: int) -> None:
        rules = self.rules
        step = rules.bf_resolution
        self.until_s = (now + 60 * rules.bf_window) // step * step
        self.plan = [(now // step * step, self.until_s, frozenset())]
        self.records = 1
        seen: list[Asked] = []
        reserved = [0] * len(self.members)
        tested = started = 0
        for job in self.in_order():
            if tested >= rules.bf_max_job_test:
                break
            alike = (
                (rules.bf_max_job_user, [o for o in seen if o.user == job.user]),
                (rules.bf_max_job_part, [o for o in seen if o.partition == job.partition]),
                (
                    rules.bf_max_job_user_part,
                    [o for o in seen if (o.user, o.partition) == (job.user, job.partition)],
                ),
                (
                    rules.bf_max_job_assoc,
                    [
                        o
                        for o in seen
                        if (o.user, o.account, o.partition)
                        == (job.user, job.account, job.partition)
                    ],
                ),
            )
            if any(most and len(others) >= most for most, others in alike):
                continue
            seen.append(job)
            most = rules.bf_job_part_count_reserve
            now_only = (
                now - job.submit_s < rules.bf_min_age_reserve
                or self.priority(job, now) < rules.bf_min_prio_reserve
                or 0 < most <= reserved[job.partition]
            )
            was_tested, came_of_it = self.test(job, now, now_only)
            tested += was_tested
            if came_of_it == "full":
                break
            reserved[job.partition] += came_of_it == "reserved"
            if came_of_it == "started":
                started += 1
                if started == rules.bf_max_job_start:
                    break

    def look(self, job: Asked, from_s: int) -> tuple[frozenset[int], int | None]:
        """The nodes of its partition that no record up to its end holds, and when to look next."""
        ours = allowed = self.members[job.partition]
        later = None
        for place, (begin, end, held) in enumerate(self.plan):
            behind = self.plan[place + 1 :]
            if end <= from_s:
                continue
            if behind and later is None and not ours - behind[0][2] <= allowed - held:
                later = end
            if begin > from_s + job.planned_s:
                if later is None and len(behind) > 1 and self.rules.looks_on:
                    later = behind[0][1]
                break
            allowed -= held
        return allowed, later

    def hold(self, begin: int, end: int, nodes: frozenset[int]) -> None:
        """Reserve them from begin to end, and join records that are alike."""
        marks = {at for record in self.plan for at in record[:2]}
        inside = {at for at in (begin, end) if self.plan[0][0] < at < self.until_s}
        self.records += len(inside - marks)
        cells: list[tuple[int, int, frozenset[int]]] = []
        for first, last in pairwise(sorted(marks | inside)):
            held = next(h for b, e, h in self.plan if b <= first < e)
            held |= nodes if begin <= first and last <= end else frozenset()
            if cells and cells[-1][2] == held:
                cells[-1] = (cells[-1][0], last, held)
            else:
                cells.append((first, last, held))
        self.plan = cells or self.plan

    def test(  # noqa: C901 - one piece, as Slurm's
        self, job: Asked, now: int, now_only: bool
    ) -> tuple[bool, str]:
        rules, from_s, tested = self.rules, now, False
        while from_s <= self.until_s:
            allowed, later = self.look(job, from_s)
            found = None
            if len(allowed) >= job.count:
                tested = True
                found = self.first_fit(job, allowed, from_s, only_free=now_only)
            if found is not None and found[0] == now:
                self.start(job, self.placed(job, allowed, self.free_at(), self.spread), now)
                return tested, "started"
            if now_only:
                return tested, ""
            if found is None or (later is not None and found[0] > later):
                if later is None:
                    return tested, ""
                from_s = later
                continue
            at, chosen = found
            if at > now + 60 * rules.bf_window:
                return tested, ""
            if self.records >= (rules.bf_node_space_size or rules.bf_max_job_test):
                return tested, "full"
            step = rules.bf_resolution
            begin, end = at // step * step, (at + job.planned_s) // step * step
            if rules.ends_up:
                end = -(-(at + job.planned_s) // step) * step
            end = max(end, begin + step)
            if any(b < end and e > begin and nodes & chosen for b, e, nodes in self.plan):
                from_s = at if at > from_s else from_s + step
                continue
            self.hold(begin, end, frozenset(chosen))
            job.expected_s = at
            return tested, "reserved"
        return tested, ""

    def first_fit(  # noqa: C901 - one piece, as Slurm's
        self, job: Asked, allowed: frozenset[int], from_s: int, *, only_free: bool
    ) -> tuple[int, set[int]] | None:
        """When it fits the allowed nodes by time limits, and on which, from from_s on."""
        idle_first = not self.rules.bf_busy_nodes
        nodes = self.placed(job, allowed, self.free_at(), idle_first)
        if nodes:
            return from_s, set(nodes)
        # of those that end together the one that started last goes first
        line = [] if only_free else self.running[::-1]
        line.sort(key=lambda one: one.planned_until)
        gone: list[Asked] = []
        window = 30
        mark = None
        while line:
            last = None
            while line:
                one = line.pop(0)
                if not allowed & set(one.nodes):
                    continue
                if mark is None:
                    mark = one.planned_until - one.planned_until % window + window
                gone.append(one)
                last = one.planned_until
                if line and line[0].planned_until > mark + window:
                    break
            if mark is None or last is None:
                return None
            linear = self.rules.bf_window_linear
            window = window + linear if linear else 2 * window
            while line and line[0].planned_until > mark + window:
                window = window + linear if linear else 2 * window
            nodes = self.placed(job, allowed, self.free_at(gone), idle_first)
            if nodes:
                if self.rules.own_ends:
                    own = [one.planned_until for one in gone if {*nodes} & {*one.nodes}]
                    last = max(own, default=0)
                return max(from_s, last), set(nodes)
        return None
