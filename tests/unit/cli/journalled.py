"""A journal of live cycles on a fake world, for the commands that read it."""

from pathlib import Path
from typing import Any

from rltuned.core.decide import Knobs
from rltuned.core.numbers import Writing
from rltuned.core.order import Order
from rltuned.core.select import Scope
from rltuned.daemon.loop import Loop
from rltuned.daemon.systemd import SignalFlags
from rltuned.daemon.wiring import Rig
from rltuned.domain.snapshot import Snapshot
from rltuned.journal.journal import Journal
from rltuned.policies.baselines import BASELINES
from tests.builders import basic, job, snapshot
from tests.fakes import FakeBackend, FakeClock
from tests.loops import Received

FIRST = basic(900.0)
"""What sjf writes for job 3: three tenths of its 50 minutes."""
KNOBS = Knobs(
    Scope(sla_partitions=frozenset({"sla"})),
    order=Order(own=0.3, share=0.0),
    writing=Writing(hysteresis=0.0),
)


def world() -> Snapshot:
    """The shortest job stands last."""
    return snapshot(
        job(1, priority=300, time_limit_s=9_000.0),
        job(2, priority=200, time_limit_s=6_000.0),
        job(3, priority=100, time_limit_s=3_000.0),
        job(4, priority=50, partition="sla"),
    )


def rig_of(
    backend: Any, folder: Path, *, policy: Any = None, knobs: Knobs = KNOBS, **more: Any
) -> Rig:
    return Rig(
        backend=backend,
        policy=policy or BASELINES["sjf"],
        knobs=knobs,
        dry_run=False,
        interval_s=60.0,
        pause_file=folder / "PAUSE",
        **more,
    )


def live(folder: Path, cycles: int = 1, **named: Any) -> FakeBackend:
    """Let the loop run on a fake world with a journal in the folder."""
    backend = FakeBackend(world())
    journal = Journal(folder)
    rig = rig_of(backend, folder, **named)
    loop = Loop(rig, FakeClock(), journal, Received(), orders=SignalFlags(), reload=lambda: rig)
    assert loop.run(cycles) == 0
    journal.close()
    return backend
