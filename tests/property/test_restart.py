"""A daemon that is started again at any time decides what it would have decided anyway."""

import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.numbers import Writing
from rltuned.core.order import Order
from rltuned.core.select import Scope
from rltuned.daemon.loop import Loop
from rltuned.daemon.systemd import SignalFlags
from rltuned.daemon.wiring import Rig
from rltuned.domain.jobs import PendingJob
from rltuned.domain.priority import PrioritySystem
from rltuned.journal.cycles import recorded
from rltuned.journal.journal import Journal
from rltuned.journal.store import FILE_NAME
from tests.builders import snapshot
from tests.examples import examples
from tests.fakes import FakeBackend, FakeClock
from tests.loops import Received
from tests.property import worlds
from tests.property.tables import SYSTEM, ByTable, policies

PAUSES_S = (60.0, 5_000.0, 90_000.0)
ROOM = 1_000_000
"""Points that every job has, so that no delay lacks room."""

writings = st.sampled_from(
    (
        Writing(max_changes=2),
        Writing(hysteresis=0.0, min_step_s=0.0),
        Writing("priority", max_changes=3),
    )
)
queues = st.lists(st.integers(0, 3), min_size=2, max_size=8).flatmap(
    lambda sizes: st.tuples(*(worlds.jobs(i + 1, plain=True) for i in range(len(sizes))))
)


class Site:
    """A small Slurm and a daemon beside it, with one state folder."""

    def __init__(
        self, folder: Path, queue: tuple[PendingJob, ...], system: PrioritySystem, rig: Rig
    ) -> None:
        roomy = (replace(j, priority=j.priority + ROOM, site_factor=0) for j in queue)
        self.folder, self.clock, self.received = folder, FakeClock(), Received()
        world = snapshot(*roomy, priorities=system)
        self.rig = replace(rig, backend=FakeBackend(world, clock=self.clock))
        self.loop = self.started()

    def started(self) -> Loop:
        """A process that knows nothing but what the folder holds."""
        journal = Journal(self.folder)
        self.journal = journal
        return Loop(
            self.rig,
            self.clock,
            journal,
            self.received,
            orders=SignalFlags(),
            reload=lambda: self.rig,
        )

    def restart(self) -> None:
        self.journal.close()
        self.loop = self.started()

    def cycle(self, pause_s: float) -> Decision:
        self.loop.cycle()
        self.clock.advance(pause_s)
        decision = self.received.reports[-1].decision
        assert decision is not None, self.received.reports[-1].failure
        return decision


@examples(30)
@given(
    queues,
    policies,
    writings,
    st.sampled_from((SYSTEM, PrioritySystem())),
    st.lists(st.tuples(st.sampled_from(PAUSES_S), st.booleans()), min_size=2, max_size=12),
)
def test_restarts_change_no_decision_and_a_replay_gives_the_same_plans(
    queue: tuple[PendingJob, ...],
    policy: ByTable,
    writing: Writing,
    system: PrioritySystem,
    steps: list[tuple[float, bool]],
) -> None:
    knobs = Knobs(Scope(), Order(own=1.0, share=0.0), writing, top_k=0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rig = Rig(FakeBackend(snapshot()), policy, knobs, False, 60.0, folder / "PAUSE")
        sites = []
        for part in ("through", "restarted"):
            (folder / part).mkdir()
            sites.append(Site(folder / part, queue, system, rig))
        through, restarted = sites
        decided = []
        for pause_s, again in steps:
            if again:
                restarted.restart()
            one, other = through.cycle(pause_s), restarted.cycle(pause_s)
            assert one.plan == other.plan
            assert one.neutral == other.neutral
            assert one.delays.delay_s.tolist() == other.delays.delay_s.tolist()
            decided.append(other)
        for site in sites:
            with closing(site.journal):
                kept = list(recorded(site.folder / FILE_NAME))
        replayed = [decide(r.snapshot, policy, knobs, context=r.context) for r in kept]
        assert [d.plan for d in replayed] == [d.plan for d in decided]
        assert [d.neutral for d in replayed] == [d.neutral for d in decided]
