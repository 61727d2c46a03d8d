"""A cluster with one busy node, a journal, and cycles by hand."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.ladder import Switchback
from rltuned.core.numbers import WriteMode, Writing
from rltuned.core.order import Order, Policy
from rltuned.core.select import Scope
from rltuned.daemon.apply import PlanApplier
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.report import CycleStage
from rltuned.daemon.restore import Fate, Restored, restore
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import Outcome, Result
from rltuned.domain.priority import NeutralDelay
from rltuned.domain.snapshot import Context
from rltuned.journal.journal import Journal
from rltuned.policies.baselines import BASELINES
from tests.builders import marked_by
from tests.clusters import world_of
from tests.lab import SlurmLab

EXACT = Writing(hysteresis=0.0, min_step_s=0.0)
LENGTH = Order(own=1.0, share=0.0)
ON_ONE_NODE = ("-wm1", "-n4")
SCRIPT = (Path(__file__).resolve().parents[2] / "deploy" / "job_submit.lua").read_text()


@contextmanager
def no_stopwatch(stage: CycleStage) -> Iterator[None]:
    del stage
    yield


@dataclass
class Site:
    """A cluster with one busy node, a journal, cycles by hand. exact: every delay is written."""

    lab: SlurmLab
    journal: Journal
    mode: WriteMode
    neutral: NeutralDelay | None = None
    switchback: Switchback | None = None
    order: Order = LENGTH
    partitions: frozenset[str] = frozenset()
    exact: bool = False
    cycles: int = 0

    def __post_init__(self) -> None:
        self.world = world_of(self.lab)
        self.lab.clear()
        self.lab.runs(*ON_ONE_NODE, "-t1:00:00")

    def submit(self, *options: str) -> int:
        return self.lab.sbatch(*ON_ONE_NODE, *options)

    def limits(self, *minutes: int, options: Sequence[str] = ()) -> list[int]:
        return [self.submit(f"-t{m}", *options) for m in minutes]

    def pending(self) -> dict[int, PendingJob]:
        return {int(j.job_id): j for j in self.world.observe().pending}

    def first_to_last(self) -> list[int]:
        found = self.pending()
        return sorted(found, key=lambda j: (-found[j].priority, found[j].submitted_at))

    def numbers(self) -> dict[int, int]:
        """Site factor of every job, or its priority where that is written."""
        found = self.pending()
        by_factor = self.mode == "site_factor"
        return {n: (j.site_factor or 0) if by_factor else j.priority for n, j in found.items()}

    def assert_as_before(self, numbers: Mapping[int, int]) -> None:
        """These jobs have the same numbers; under priority/multifactor age goes on in them."""
        found = self.numbers()
        assert {job: found[job] for job in numbers} == numbers

    def cycle(self, policy: Policy = BASELINES["sjf"]) -> Decision:
        """One cycle of which every write is applied."""
        decision, outcomes = self.attempt(policy)
        assert {o.result for o in outcomes} <= {Result.APPLIED}, outcomes
        return decision

    def attempt(self, policy: Policy = BASELINES["sjf"]) -> tuple[Decision, tuple[Outcome, ...]]:
        """One cycle, and what came of its writes."""
        self.cycles += 1
        clock = SystemClock()
        seen = marked_by(self.journal, self.world.observe())
        knobs = Knobs(
            rules=Scope(min_age_s=0.0, switchback=self.switchback, partitions=self.partitions),
            order=self.order,
            writing=replace(EXACT if self.exact else Writing(), mode=self.mode),
        )
        decision = decide(seen, policy, knobs, context=Context(neutral=self.neutral))
        outcomes = PlanApplier(self.journal, clock).write(
            self.world, decision.plan, seen, self.cycles, no_stopwatch
        )
        self.neutral = decision.neutral
        return decision, outcomes

    def restored(self) -> tuple[Restored, ...]:
        found = restore(self.world, self.journal, SystemClock())
        print(*found, sep="\n")  # noqa: T201 - pytest shows it when a test fails
        return found

    def undo_plan(self) -> set[Fate]:
        return {item.fate for item in self.restored()}
