"""A queue under multifactor whose priorities are counted by hand, over many cycles."""

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from rltuned.core.decide import Decision, Knobs, Policy, decide
from rltuned.core.order import Order
from rltuned.domain.jobs import Ownership, PendingJob
from rltuned.domain.plan import SITE_FACTOR
from rltuned.domain.priority import NeutralDelay
from rltuned.domain.snapshot import Context, Snapshot
from rltuned.domain.units import JobId
from tests.builders import NOW, job, snapshot
from tests.property import worlds
from tests.property.tables import DAY, SLOPE, SYSTEM

QOS_GAP = 1_000_000
ROOM = 200_000
SLA = "sla"

orders = st.builds(
    Order,
    own=st.sampled_from((0.0, 0.3, 1.0, 50.0)),
    share=st.sampled_from((0.0, 0.75, 4.0)),
    clip=st.sampled_from((0.1, 1.0, 4.0)),
    max_delay_s=st.sampled_from((600.0, DAY, 7 * DAY)),
)


@dataclass
class Site:
    """A Slurm of one partition under multifactor: base, age and site factor, counted at will."""

    jobs: list[PendingJob]
    bases: dict[JobId, int]
    now: float = NOW
    neutral: NeutralDelay | None = None

    def priority(self, one: PendingJob) -> int:
        age = SLOPE * SYSTEM.age_s(self.now - one.ages_since)
        return max(1, int(self.bases[one.job_id] + age) + (one.site_factor or 0))

    def seen(self) -> Snapshot:
        pending = [replace(j, priority=self.priority(j)) for j in self.jobs]
        return snapshot(*pending, taken_at=self.now, priorities=SYSTEM)

    def decided(self, policy: Policy, knobs: Knobs) -> Decision:
        return decide(self.seen(), policy, knobs, context=Context(neutral=self.neutral))

    def carry_out(self, decision: Decision) -> None:
        writes = {a.target.job_id: a for a in decision.plan.actions}
        for i, one in enumerate(self.jobs):
            action = writes.get(one.job_id)
            if action is not None and action.field is SITE_FACTOR:
                original = action.old if one.owned is None else one.owned.original
                owned = Ownership("site_factor", action.new, original=original, written_at=self.now)
                self.jobs[i] = replace(one, site_factor=action.new, owned=owned)
        self.neutral = decision.neutral

    def in_force_s(self, one: PendingJob) -> float:
        neutral = 0.0 if self.neutral is None else self.neutral.delay_s
        return (int(SLOPE * neutral + 1e-6) - (one.site_factor or 0)) / SLOPE


@st.composite
def sites(draw: st.DrawFn, *, with_qos: bool = False, with_sla: bool = False) -> Site:
    count = draw(st.integers(2, 9))
    made, bases = [], {}
    for number in range(1, count + 1):
        sla = with_sla and draw(st.integers(0, 3)) == 0
        one = job(
            number,
            asks=draw(worlds.requests),
            submitted_at=NOW - draw(st.integers(20, 300_000)),
            partition=SLA if sla else "gpu",
            qos=draw(st.sampled_from(("normal", "high"))) if with_qos else "normal",
        )
        made.append(one)
        bases[one.job_id] = ROOM + (QOS_GAP if one.qos == "high" else 0)
    return Site(made, bases)
