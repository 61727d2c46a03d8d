"""Whatever users, Slurm and death do to jobs between cycles and within them, a delay counts once,
a restore leaves none or names it, and what somebody else has written stays.

Looks may lack any of the jobs, ids are used again, a requeued job hides its number, the folder may
be an older copy of itself, and another instance may order another partition.
"""

import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from rltuned.core.decide import Knobs, decide
from rltuned.core.order import Order
from rltuned.core.select import Scope
from rltuned.daemon.apply import PlanApplier
from rltuned.daemon.lease import Lease
from rltuned.daemon.report import CycleStage
from rltuned.daemon.restore import UNDONE, restore, unknown_numbers
from rltuned.domain.jobs import ArrayInfo, PendingJob, RunningJob
from rltuned.domain.plan import SITE_FACTOR, Action, Outcome, Plan
from rltuned.domain.priority import NeutralDelay, PrioritySystem
from rltuned.domain.snapshot import Context, RememberedBy, Snapshot, Unreadable, nothing
from rltuned.domain.units import JobId, UnixTime
from rltuned.journal.cycles import CycleObservation, CycleRow
from rltuned.journal.journal import Journal
from rltuned.policies.plugins import policy_named
from rltuned.slurm.writer import judge
from tests.builders import NOW, job, running, snapshot
from tests.examples import examples
from tests.fakes import FakeClock

SYSTEM = PrioritySystem("multifactor", ages=True, age_weight=1_209_600, max_age_s=14 * 86_400.0)
"""A point a second."""
CONTEXT = Context(neutral=NeutralDelay(3_600.0, NOW, 3_600.0, NOW))
DELAY, ORDER = policy_named("delay"), Order(share=0.0)
LIMITS_S = (60.0, 7_200.0, 86_400.0)
STEP_S, BEGIN_S, STILL = 60.0, 120.0, 130
"""Between two steps; from a requeue until a job may start; points that a number may lie apart."""
THEIRS = 777
"""What an administrator writes."""
JOBS, CYCLES = st.integers(0, 5), st.integers(0, 3)


class DiedError(Exception):
    """The daemon was killed."""


def untimed(stage: CycleStage) -> AbstractContextManager[None]:  # noqa: ARG001 - the port's
    return nullcontext()


@dataclass
class SmallSlurm:
    """Slurm as far as site factors go: it sets those of held jobs, and shows none.

    Attributes:
        clock: the machine's.
        waiting: pending jobs by id, with the site factor that they have.
        runs: running jobs, as they waited.
        held: ids.
        hold_next: held between the next write and its look back.
        lacks: ids that the next answers lack.
        dies: so many writes before the daemon is killed; None = it lives.
    """

    clock: FakeClock
    waiting: dict[int, PendingJob] = field(default_factory=dict)
    runs: dict[int, PendingJob] = field(default_factory=dict)
    held: set[int] = field(default_factory=set)
    hold_next: set[int] = field(default_factory=set)
    lacks: set[int] = field(default_factory=set)
    dies: int | None = None

    def shown(self, one: PendingJob) -> PendingJob:
        if one.job_id in self.held:
            return replace(one, site_factor=None, base=None, live=False, priority=0, held_by="user")
        if (one.eligible_at or 0.0) > self.clock.now():
            return replace(one, site_factor=None, base=None, live=False)
        return one

    def observe(self, remembered: RememberedBy = nothing) -> Snapshot:
        runs = [run_of(one) for one in self.runs.values() if one.job_id not in self.lacks]
        waits = [self.shown(one) for one in self.waiting.values() if one.job_id not in self.lacks]
        seen = snapshot(*waits, runs=runs, priorities=SYSTEM)
        now = self.clock.now()
        return replace(seen, taken_at=UnixTime(now)).marked(remembered(seen.cluster, now))

    def look(self) -> Snapshot:
        """As a restore sees it, which asks slurmctld how many jobs there are."""
        seen = self.observe()
        lacking = Unreadable("job", "", "slurmctld counts more")
        return replace(seen, unreadable=(lacking,)) if self.lacks & self.waiting.keys() else seen

    def apply(self, plan: Plan) -> tuple[Outcome, ...]:
        for number, action in enumerate(plan.actions):
            if number == self.dies:
                raise DiedError
            one = self._addressed(action)
            if one is not None:
                assert action.field is SITE_FACTOR
                self.waiting[one.job_id] = with_factor(one, action.new)
        self.held |= self.hold_next & self.waiting.keys()
        self.hold_next.clear()
        if self.dies is not None:
            raise DiedError
        return tuple(self._judged(action) for action in plan.actions)

    def _judged(self, action: Action) -> Outcome:
        assert action.field is SITE_FACTOR
        one = self._addressed(action)
        return judge(action, None if one is None else self.shown(one), "")

    def _addressed(self, action: Action) -> PendingJob | None:
        one = self.waiting.get(action.target.job_id)
        return one if one is not None and one.submitted_at == action.target.submitted_at else None


def with_factor(one: PendingJob, factor: int) -> PendingJob:
    return replace(one, site_factor=factor, priority=(one.base or 0) + factor)


def run_of(one: PendingJob) -> RunningJob:
    return replace(running(one.job_id), submitted_at=one.submitted_at)


def knobs_of(partitions: Collection[str]) -> Knobs:
    """partitions: that an instance orders; empty = all."""
    return Knobs(Scope(min_age_s=0.0, partitions=frozenset(partitions)), ORDER)


def wanted(one: PendingJob) -> int:
    """The site factor that the job has from its delay, if it is looked at for the first time."""
    fresh = snapshot(with_factor(replace(one, eligible_at=one.submitted_at), 0), priorities=SYSTEM)
    seen = replace(fresh, taken_at=UnixTime(one.submitted_at + 600))
    plan = decide(seen, DELAY, knobs_of(()), context=CONTEXT).plan
    numbers = [a.new for a in plan.actions if a.field is SITE_FACTOR]
    return numbers[0] if numbers else 0


class UndoMachine(RuleBasedStateMachine):
    """A daemon beside a small Slurm."""

    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.TemporaryDirectory()
        self.slurm = SmallSlurm(FakeClock())
        self.folder, self.copy = (Path(self.place.name) / name for name in ("state", "copy"))
        self.folder.mkdir(mode=0o700)
        self.newest = self.cycles = 0
        self.ended = list[int]()
        self.theirs = set[int]()
        self.seen = set[int]()  # records that a look of the daemon has shown
        self.is_old = False  # the folder has been an older copy
        self.partitions: tuple[str, ...] = ()  # all
        self.lease: Lease | None = None
        self.start_daemon()

    def partition_of(self, number: int) -> str:  # noqa: ARG002 - of another machine
        return "gpu"

    def teardown(self) -> None:
        self.undo_plan()
        self.journal.close()
        self.place.cleanup()

    def start_daemon(self) -> None:
        self.journal = Journal(self.folder)
        self.applier = PlanApplier(self.journal, self.slurm.clock)
        if self.is_old:  # a first look that lacks jobs as well would know of nothing
            self.slurm.lacks.clear()
            self.slurm.dies = None
            self.cycle()

    def one_of(self, jobs: Iterable[int], number: int) -> int | None:
        listed = sorted(jobs)
        return listed[number % len(listed)] if listed else None

    @rule(
        limit_s=st.sampled_from(LIMITS_S),
        tasks=st.sampled_from((0, 0, 3)),
        used=st.booleans(),
        cycles=CYCLES,
    )
    def submit(self, limit_s: float, tasks: int, used: bool, cycles: int) -> None:
        """used: with the id of a job that has ended, if there is one."""
        self.newest += 1
        number = self.ended.pop() if used and self.ended else self.newest
        now = UnixTime(self.slurm.clock.now())
        array = ArrayInfo(JobId(number), tasks, listed=f"0-{tasks - 1}") if tasks else None
        where = self.partition_of(number)
        new = job(
            number, gpus=4, time_limit_s=limit_s, submitted_at=now, array=array, partition=where
        )
        new = replace(new, base=200_000, rest=4_000, live=True, eligible_at=now)
        self.slurm.waiting[number] = with_factor(new, 0)
        self.go_on(cycles)

    @rule(number=JOBS, cycles=CYCLES)
    def end_job(self, number: int, cycles: int) -> None:
        one = self.one_of(self.slurm.runs, number)
        if one is not None:
            self.slurm.runs.pop(one)
            self.theirs.discard(one)
            self.ended.append(one)
            self.slurm.clock.advance(STEP_S)
        self.go_on(cycles)

    @rule(numbers=st.sets(JOBS), cycles=st.integers(1, 3))
    def answers_lack(self, numbers: set[int], cycles: int) -> None:
        """Any of the jobs, whether it waits or runs."""
        everyone = self.slurm.waiting.keys() | self.slurm.runs.keys()
        self.slurm.lacks = {one for n in numbers if (one := self.one_of(everyone, n)) is not None}
        self.go_on(cycles)

    @rule(cycles=CYCLES)
    def answers_are_whole(self, cycles: int) -> None:
        self.slurm.lacks.clear()
        self.go_on(cycles)

    @rule(number=JOBS, cycles=CYCLES)
    def hold(self, number: int, cycles: int) -> None:
        one = self.one_of(self.slurm.waiting, number)
        self.slurm.held |= {one} if one is not None else set()
        self.go_on(cycles)

    @rule(number=JOBS, cycles=CYCLES)
    def hold_within_the_next_cycle(self, number: int, cycles: int) -> None:
        one = self.one_of(self.slurm.waiting, number)
        self.slurm.hold_next |= {one} if one is not None else set()
        self.go_on(cycles)

    @rule(number=JOBS, cycles=CYCLES)
    def release(self, number: int, cycles: int) -> None:
        one = self.one_of(self.slurm.held, number)
        self.slurm.held -= {one}
        self.go_on(cycles)

    @rule(number=JOBS, cycles=CYCLES)
    def start_job(self, number: int, cycles: int) -> None:
        one = self.one_of(self.slurm.waiting.keys() - self.slurm.held, number)
        array = None if one is None else self.slurm.waiting[one].array
        if one is not None and (array is None or array.array_job_id != one):
            self.slurm.runs[one] = self.slurm.waiting.pop(one)
        self.go_on(cycles)

    @rule(number=JOBS, stops=st.booleans(), cycles=CYCLES)
    def requeue(self, number: int, stops: bool, cycles: int) -> None:
        """stops: the service, while the number is hidden."""
        one = self.one_of(self.slurm.runs, number)
        if one is not None:
            now = UnixTime(self.slurm.clock.now())
            back = replace(self.slurm.runs.pop(one), submitted_at=now, owned=None)
            self.slurm.waiting[one] = replace(back, eligible_at=UnixTime(now + BEGIN_S))
        if stops:
            self.stop()
        self.go_on(cycles)

    @rule(number=JOBS, starts=st.booleans(), cycles=CYCLES)
    def part_a_task(self, number: int, starts: bool, cycles: int) -> None:
        whole = {n: j for n, j in self.slurm.waiting.items() if j.array and j.array.tasks > 1}
        one = self.one_of(whole, number)
        if one is None:
            return
        self.newest += 1
        array, head = whole[one].array, JobId(one)
        assert array is not None
        last = array.tasks - 1
        task = ArrayInfo(head, 1, listed=f"{last}")
        listed = f"0-{last - 1}" if last > 1 else "0"
        self.slurm.waiting[one] = replace(whole[one], array=ArrayInfo(head, last, listed=listed))
        self.slurm.waiting[self.newest] = replace(
            whole[one], job_id=JobId(self.newest), address=f"{one}_{last}", array=task
        )
        for kept in (self.slurm.held, self.theirs):
            if one in kept:
                kept.add(self.newest)
        if starts and self.newest not in self.slurm.held:
            self.slurm.runs[self.newest] = self.slurm.waiting.pop(self.newest)
        self.go_on(cycles)

    @rule(number=JOBS, cycles=CYCLES)
    def somebody_writes(self, number: int, cycles: int) -> None:
        one = self.one_of(self.slurm.waiting, number)
        if one is not None:
            self.slurm.waiting[one] = with_factor(self.slurm.waiting[one], THEIRS)
            self.theirs.add(one)
        self.go_on(cycles)

    def go_on(self, cycles: int) -> None:
        for _ in range(cycles):
            self.cycle()

    @rule()
    def cycle(self) -> None:
        self.slurm.clock.advance(STEP_S)
        self.cycles += 1
        seen = self.slurm.observe(self.applier.remembered)
        self.seen |= {int(one.job_id) for one in seen.pending}
        self.applier.look(seen)
        plan = decide(seen, DELAY, knobs_of(self.partitions), context=CONTEXT).plan
        now = self.slurm.clock.now()
        self.journal.keep(CycleObservation(self.cycles, now, "live", seen))
        doubt = self.applier.doubt(seen, self.cycles, self.partitions, self.lease)
        if not doubt:
            self.applier.write(self.slurm, plan, seen, self.cycles, untimed, lease=self.lease)
        mode = "numbers_unexplained" if doubt else "live"
        self.journal.record(
            CycleRow(self.cycles, now, seen.cluster, mode, "", "delay", 0, 0, 0, 0, 0.0)
        )
        self.check()

    @rule(writes=st.integers(0, 2))
    def cycle_and_die(self, writes: int) -> None:
        self.slurm.dies = writes
        try:
            self.cycle()
        except DiedError:
            self.restart()
        self.slurm.dies = None

    @rule()
    def restart(self) -> None:
        self.journal.close()
        self.start_daemon()

    @rule()
    def stop(self) -> None:
        """The service's last act, at whatever time: what is left has its name."""
        left = self.given_back()
        assert left.keys() <= self.named, "restore ends with 0 beside numbers of rltuned"

    @rule()
    def undo_plan(self) -> None:
        """As an administrator does it who wants nothing left: no job is held by then."""
        self.slurm.held.clear()
        self.slurm.lacks.clear()
        self.slurm.clock.advance(BEGIN_S + STEP_S)
        left = self.given_back()
        assert left.keys() <= (self.named if self.is_old else set())

    def is_unheard_of(self, number: int) -> bool:
        """A task that left its array while no look showed it has no name that a restore could say:
        docs/reliability.md.
        """
        return number in self.slurm.lacks and number not in self.seen

    def shows(self, number: int) -> bool:
        is_seen = number not in self.slurm.lacks
        return is_seen and self.slurm.shown(self.slurm.waiting[number]).site_factor is not None

    def given_back(self) -> dict[int, int]:
        """What is left by job that is not somebody else's; `named` has what a restore names."""
        before = {n: j.site_factor or 0 for n, j in self.slurm.waiting.items()}
        items = restore(self.slurm, self.journal, self.slurm.clock)
        seen = self.slurm.look()
        odd = unknown_numbers(self.journal, seen, items, self.partitions)
        self.named = {int(r.claim.target.job_id) for r in items if r.fate in UNDONE}
        self.named |= {int(key[0]) for key in odd}
        left = {n: j.site_factor or 0 for n, j in self.slurm.waiting.items()}
        for number in self.theirs & left.keys():
            assert left[number] == THEIRS or before[number] != THEIRS, "somebody else's"
        own = {
            n: f - (THEIRS if n in self.theirs else 0)
            for n, f in left.items()
            if not self.partitions or self.slurm.waiting[n].partitions[0] in self.partitions
        }
        own = {n: factor for n, factor in own.items() if not self.is_unheard_of(n)}
        for number in left.keys() - own.keys():
            assert left[number] == before[number], "the other instance's"
        # an older folder knows of nothing that Slurm does not show
        return {
            n: factor for n, factor in own.items() if factor and (self.shows(n) or not self.is_old)
        }

    def check(self) -> None:
        """A job has the number that is not rltuned's, alone or with that of its delay."""
        for number, one in self.slurm.waiting.items():
            beyond = (one.site_factor or 0) - (THEIRS if number in self.theirs else 0)
            assert beyond == 0 or abs(beyond - wanted(one)) <= STILL


class OldFolderMachine(UndoMachine):
    """The same, and the state folder may be an older copy of itself."""

    @rule()
    def copy_the_folder(self) -> None:
        shutil.rmtree(self.copy, ignore_errors=True)
        shutil.copytree(self.folder, self.copy)

    @rule()
    def put_the_copy_back(self) -> None:
        if not self.copy.exists():
            return
        self.journal.close()
        shutil.rmtree(self.folder)
        shutil.copytree(self.copy, self.folder)
        self.is_old = True
        self.start_daemon()


class TwoInstancesMachine(UndoMachine):
    """Two daemons with folders of their own, each of which orders a partition."""

    def __init__(self) -> None:
        super().__init__()
        self.partitions = ("gpu",)
        folder = Path(self.place.name) / "other"
        folder.mkdir(mode=0o700)
        journal = Journal(folder)
        applier = PlanApplier(journal, self.slurm.clock)
        self.beside = (folder, journal, applier, ("cpu",))

    def partition_of(self, number: int) -> str:
        return ("gpu", "cpu")[number % 2]

    @contextmanager
    def other(self) -> Iterator[None]:
        """What is done in between, the other instance does."""
        first = (self.folder, self.journal, self.applier, self.partitions)
        self.folder, self.journal, self.applier, self.partitions = self.beside
        try:
            yield
        finally:
            self.beside = (self.folder, self.journal, self.applier, self.partitions)
            self.folder, self.journal, self.applier, self.partitions = first

    def teardown(self) -> None:
        with self.other():
            self.undo_plan()
            self.journal.close()
        super().teardown()

    @rule(cycles=st.integers(1, 3))
    def the_other_cycles(self, cycles: int) -> None:
        with self.other():
            self.go_on(cycles)

    @rule(writes=st.integers(0, 2))
    def the_other_dies(self, writes: int) -> None:
        with self.other():
            self.cycle_and_die(writes)

    @rule()
    def the_other_stops(self) -> None:
        with self.other():
            self.stop()


class TwoControllersMachine(UndoMachine):
    """Two daemons, each beside a slurmctld; the one beside the acting one has the lease."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = Path(self.place.name) / "shared"
        other = Path(self.place.name) / "other"
        for folder in (self.shared, other):
            folder.mkdir(mode=0o700)
        journal = Journal(other)
        applier = PlanApplier(journal, self.slurm.clock)
        self.lease = self.lease_of("head1")
        self.beside = (other, journal, applier, self.lease_of("head2"))
        assert self.lease.take("head1", self.journal, "test") == ""

    def lease_of(self, host: str) -> Lease:
        clock = self.slurm.clock
        return Lease(self.shared, host, 180.0, 20.0, lambda: (clock.monotonic(),) * 3, word=host)

    def change_places(self) -> None:
        """What is done from now on, the other daemon does."""
        assert self.lease is not None
        first = (self.folder, self.journal, self.applier, self.lease)
        self.folder, self.journal, self.applier, self.lease = self.beside
        self.beside = first

    @rule(is_killed=st.booleans(), cycles=CYCLES)
    def the_backup_takes_over(self, is_killed: bool, cycles: int) -> None:
        """is_killed: the other daemon, with its lease."""
        self.change_places()
        _, journal, _, lease = self.beside
        assert self.lease is not None
        host = self.lease.host
        if not is_killed:
            assert lease.take(host, journal, "test") != ""
        for _ in range(3):  # it sees the other's, waits for it, and goes on with what it had
            if self.lease.take(host, self.journal, "test") == "":
                break
            self.slurm.clock.advance(190.0)
        assert self.lease.take(host, self.journal, "test") == ""
        assert lease.take(host, journal, "test") != ""
        assert journal.is_clean()
        self.go_on(cycles)

    def teardown(self) -> None:
        self.beside[1].close()
        super().teardown()


TestUndo, TestOldFolder = UndoMachine.TestCase, OldFolderMachine.TestCase
TestTwoInstances = TwoInstancesMachine.TestCase
TestUndo.settings = examples(80, 800, stateful_step_count=40)
TestOldFolder.settings = examples(40, 400, stateful_step_count=40)
TestTwoInstances.settings = examples(40, 400, stateful_step_count=40)
TestTwoControllers = TwoControllersMachine.TestCase
TestTwoControllers.settings = examples(40, 400, stateful_step_count=40)


def test_a_requeued_task_has_its_own_number_and_not_that_of_its_array() -> None:
    """Somebody else's number was on it when it left the array; the machine found it in 2,000."""
    state = UndoMachine()
    state.go_on(2)
    state.submit(cycles=1, limit_s=60.0, tasks=3, used=False)
    state.somebody_writes(cycles=0, number=0)
    state.part_a_task(cycles=0, number=0, starts=False)
    state.hold(cycles=1, number=0)
    state.start_job(cycles=0, number=0)
    state.requeue(cycles=2, number=0, stops=False)
    state.stop()
    state.teardown()


def test_a_task_parted_in_the_last_cycle_is_known_to_the_other_host() -> None:
    """Its answers lack the task from then on; the machine found it in 400."""
    state = TwoControllersMachine()
    state.submit(cycles=1, limit_s=60.0, tasks=3, used=False)
    state.part_a_task(cycles=1, number=0, starts=False)
    state.the_backup_takes_over(cycles=0, is_killed=False)
    state.answers_lack(cycles=1, numbers={0, 1})
    state.stop()
    state.teardown()
