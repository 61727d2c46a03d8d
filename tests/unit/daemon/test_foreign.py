"""Another daemon is seen by its numbers; an administrator's hand is not taken for one."""

from dataclasses import replace
from pathlib import Path

import pytest

from rltuned.core.numbers import Writing
from rltuned.daemon.foreign import DIFFERENT, foreign, rival
from rltuned.daemon.state import HealthState
from rltuned.domain.jobs import Ownership, PendingJob
from rltuned.domain.plan import SITE_FACTOR
from rltuned.domain.priority import HIGHEST_BASIC, PrioritySystem
from tests.builders import job, snapshot
from tests.fakes import ConstantOrder, FakeBackend
from tests.loops import Bench

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
        (moved(ORDINARY, DIFFERENT - 1), False),  # a few by hand
        (moved(ORDINARY, DIFFERENT), True),
        (tuple(replace(j, site_factor=500) for j in ORDINARY), False),  # a plugin's one level
        (tuple(replace(j, priority=0) for j in moved(ORDINARY, 30)), False),  # all held
        (tuple(replace(j, fixed=True) for j in ORDINARY[:DIFFERENT]), True),
        (tuple(replace(j, fixed=True) for j in ORDINARY[:9]) + ORDINARY[9:], False),
        (moved(tuple(job(n) for n in range(1, 201)), 19), False),  # less than a tenth of the queue
        (moved(tuple(job(n) for n in range(1, 201)), 20), True),
    ],
)
def test_many_different_numbers_that_nobody_of_ours_wrote(
    seen: tuple[PendingJob, ...], expected: bool
) -> None:
    assert bool(rival(snapshot(*seen, priorities=AGED), ())) is expected


def test_one_user_among_others_is_no_rival() -> None:
    """Users may lower numbers of their own jobs, as many as they like."""
    own = [replace(j, user="mallory") for j in moved(ORDINARY, 30)[:30]]
    others = [replace(j, user="ann") for j in moved(ORDINARY, 60)[30:]]
    untouched = [replace(j, site_factor=0) for j in others]
    assert not rival(snapshot(*own, *untouched, priorities=AGED), ())
    assert rival(snapshot(*own, others[0], *untouched[1:], priorities=AGED), ())
    assert rival(snapshot(*own, priorities=AGED), ())  # no other user waits


BASIC = tuple(job(n, priority=HIGHEST_BASIC - n) for n in range(1, 61))
"""As priority/basic deals them out."""


def above(jobs: tuple[PendingJob, ...], count: int, each: int = 1) -> tuple[PendingJob, ...]:
    """The first of them with rltuned's numbers, `each` of them with the same one."""
    return tuple(
        replace(j, priority=HIGHEST_BASIC + 40_000 - i // each) if i < count else j
        for i, j in enumerate(jobs)
    )


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (BASIC, False),
        (above(BASIC, DIFFERENT - 1), False),  # a few by hand
        (above(BASIC, DIFFERENT), True),
        (above(BASIC, 60, each=6), True),  # jobs of the same minute
        (above(BASIC, 60, each=7), False),  # a few levels for many
        (tuple(replace(j, priority=j.priority + 99_000, nice=-99_000) for j in BASIC), False),
        (tuple(replace(j, priority=j.priority - 50_000, nice=50_000) for j in BASIC), False),
        (tuple(replace(j, priority=j.priority - 99, nice=99) for j in above(BASIC, 20)), True),
    ],
)
def test_under_basic_rltuneds_numbers_lie_above_slurms_own(
    seen: tuple[PendingJob, ...], expected: bool
) -> None:
    basic = snapshot(*seen, priorities=PrioritySystem("basic"))
    assert bool(rival(basic, ())) is expected
    ours = tuple(
        replace(j, owned=Ownership("priority", j.priority + j.nice, original=1)) for j in seen
    )
    assert rival(replace(basic, pending=ours), ()) == ""


def test_under_basic_a_number_of_ours_that_another_one_replaced_is_foreign() -> None:
    owned = Ownership("priority", HIGHEST_BASIC + 7, original=HIGHEST_BASIC - 1)
    ours = tuple(replace(j, owned=owned) for j in above(BASIC, 60))
    assert rival(snapshot(*ours, priorities=PrioritySystem("basic")), ())


@pytest.mark.parametrize(
    ("owned", "expected"),
    [
        (Ownership("site_factor", 7, original=0), None),
        (Ownership("site_factor", 6, original=0, earlier=(7,)), None),  # backfill put it back
        (Ownership("site_factor", 6, original=0), 7),
        (Ownership("priority", 1_000, original=5), None),
    ],
)
def test_what_is_foreign(owned: Ownership, expected: int | None) -> None:
    number = foreign(job(1, priority=1_000, site_factor=7, owned=owned), "multifactor")
    assert number == (None if expected is None else (SITE_FACTOR, expected))


def test_the_second_daemon_observes_and_the_first_goes_on(tmp_path: Path) -> None:
    queue = [replace(j, priority=100_000 + j.priority) for j in ORDINARY]
    world = FakeBackend(snapshot(*queue, priorities=AGED))
    modes: dict[str, list[HealthState]] = {"first": [], "second": []}
    by_site_factor = Writing("site_factor", hysteresis=0.0)
    loops = {}
    for name, order in (("first", range(1, 61)), ("second", range(30, 91))):
        (tmp_path / name).mkdir(mode=0o700)
        bench = Bench(tmp_path / name, policy=ConstantOrder(tuple(order)), world=world)
        bench.writing = by_site_factor
        loops[name] = bench.loop()
    for name, loop in [*loops.items()] * 4:
        modes[name].append(loop.cycle().mode)
    assert set(modes["first"]) == {HealthState.LIVE}
    assert set(modes["second"]) == {HealthState.OBSERVE}
    assert any(j.site_factor for j in world.world.pending)
    assert "another rltuned" in loops["second"].cycle().why(HealthState.RIVAL_SUSPECTED)
