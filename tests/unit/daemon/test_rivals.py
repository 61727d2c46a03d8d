"""Another daemon is seen by its numbers; an administrator's hand is not taken for one."""

from dataclasses import replace
from pathlib import Path

import pytest

from rltuned.core.numbers import Writing
from rltuned.daemon.report import Mode
from rltuned.daemon.rivals import FEWEST, LOOKS, Rivals, foreign
from rltuned.domain.jobs import Ownership, PendingJob
from rltuned.domain.priority import PrioritySystem
from tests.builders import job, snapshot
from tests.fakes import ConstantOrder, FakeBackend
from tests.unit.daemon.test_loop import Bench

AGED = PrioritySystem("multifactor", ages=True, age_weight=604_800)
"""One point for every second."""
ORDINARY = tuple(job(n, priority=1_000 + n) for n in range(1, 61))


def moved(jobs: tuple[PendingJob, ...], count: int, step: int = 7) -> tuple[PendingJob, ...]:
    """The first of them with another site factor each."""
    return tuple(
        replace(j, site_factor=step * (i + 1)) if i < count else j for i, j in enumerate(jobs)
    )


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (ORDINARY, False),
        (moved(ORDINARY, FEWEST - 1), False),  # a few by hand
        (moved(ORDINARY, FEWEST), True),
        (tuple(replace(j, site_factor=500) for j in ORDINARY), False),  # a plugin's one level
        (tuple(replace(j, priority=0) for j in moved(ORDINARY, 30)), False),  # all held
        (tuple(replace(j, fixed=True) for j in ORDINARY[:FEWEST]), True),
        (tuple(replace(j, fixed=True) for j in ORDINARY[:9]) + ORDINARY[9:], False),
        (moved(tuple(job(n) for n in range(1, 201)), 19), False),  # less than a tenth of the queue
        (moved(tuple(job(n) for n in range(1, 201)), 20), True),
    ],
)
def test_many_different_numbers_that_nobody_of_ours_wrote(
    seen: tuple[PendingJob, ...], expected: bool
) -> None:
    assert bool(Rivals().judge(snapshot(*seen))) is expected


def test_it_is_said_for_good_only_after_some_looks_in_a_row() -> None:
    rivals, odd = Rivals(), snapshot(*moved(ORDINARY, 20))
    assert all(rivals.judge(odd) for _ in range(LOOKS - 1))
    assert rivals.judge(snapshot(*ORDINARY)) == ""  # requeued jobs were taken up again
    said = [rivals.judge(odd) for _ in range(LOOKS)]
    assert ["another rltuned" in why for why in said] == [False] * (LOOKS - 1) + [True]
    assert rivals.judge(snapshot(*ORDINARY)) == said[-1]


@pytest.mark.parametrize(
    ("owned", "expected"),
    [
        (Ownership("site_factor", 7, original=0), None),
        (Ownership("site_factor", 6, original=0, earlier=(7,)), None),  # backfill put it back
        (Ownership("site_factor", 6, original=0), 7),
        (Ownership("priority", 1_000, original=5), None),
        (Ownership("priority", 77, original=5), 1_000),
    ],
)
def test_what_is_foreign(owned: Ownership, expected: int | None) -> None:
    assert foreign(job(1, priority=1_000, site_factor=7, owned=owned)) == expected


def test_the_second_daemon_observes_and_the_first_goes_on(tmp_path: Path) -> None:
    queue = [replace(j, priority=100_000 + j.priority) for j in ORDINARY]
    world = FakeBackend(snapshot(*queue, priorities=AGED))
    modes: dict[str, list[Mode]] = {"first": [], "second": []}
    by_site_factor = Writing("site_factor", hysteresis=0.0)
    loops = {}
    for name, order in (("first", range(1, 61)), ("second", range(30, 91))):
        (tmp_path / name).mkdir(mode=0o700)
        bench = Bench(tmp_path / name, policy=ConstantOrder(tuple(order)), world=world)
        bench.writing = by_site_factor
        loops[name] = bench.loop()
    for name, loop in [*loops.items()] * 4:
        modes[name].append(loop.cycle().mode)
    assert set(modes["first"]) == {Mode.LIVE}
    assert set(modes["second"]) == {Mode.OBSERVE}
    assert any(j.site_factor for j in world.world.pending)
    assert "another rltuned" in loops["second"].cycle().rival
