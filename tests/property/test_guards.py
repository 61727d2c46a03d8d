"""The guards: there always is an order within all of them, and it is the nearest one."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rltuned.core.canary import Canary
from rltuned.core.decide import Decision, Entry, Knobs, decide
from rltuned.core.guards import (
    Guard,
    Guards,
    IntArray,
    Windows,
    natural_value,
    places,
    project,
    windows,
)
from rltuned.core.joint import Tuning
from rltuned.core.lineup import by_number
from rltuned.core.planning import Limits, WriteMode
from rltuned.core.select import Rules
from rltuned.core.starvation import Bound, overdue
from rltuned.core.steering import Steer
from rltuned.domain.jobs import Ownership, PendingJob
from rltuned.domain.plan import SetPriority, SetSiteFactor
from rltuned.domain.snapshot import Snapshot
from rltuned.solver import cbc
from tests.builders import NOW, job, snapshot
from tests.fakes import ConstantOrder
from tests.property import worlds
from tests.property.test_planning import carried_out

USERS = ("ann", "bob", "eve")


@st.composite
def any_windows(draw: st.DrawFn, most: int = 40) -> tuple[np.ndarray, Windows]:
    """A wanted order, and windows that hold each job's natural place and are else as they like."""
    count = draw(st.integers(0, most))
    natural = np.array(draw(st.permutations(range(count))), dtype=np.int64)
    wanted = np.array(draw(st.permutations(range(count))), dtype=np.int64)
    early = [draw(st.integers(0, int(n))) for n in natural]
    late = [draw(st.integers(int(n), count - 1)) for n in natural]
    return wanted, Windows(natural, np.array(early, int), np.array(late, int), {})


@given(any_windows())
def test_whatever_the_windows_everybody_gets_a_place_within_his(
    case: tuple[np.ndarray, Windows],
) -> None:
    wanted, allowed = case
    order = project(wanted, allowed)
    assert sorted(order.tolist()) == list(range(len(wanted)))
    assert allowed.hold(places(order))
    assert (project(order, allowed) == order).all()


@given(any_windows(most=6))
def test_no_order_within_the_windows_is_nearer_to_the_wanted_one(
    case: tuple[np.ndarray, Windows],
) -> None:
    wanted, allowed = case
    rank = places(wanted)
    best = min(
        (o for o in permutations(range(len(wanted))) if allowed.hold(places(np.array(o, int)))),
        key=lambda o: [int(rank[j]) for j in o],
    )
    assert project(wanted, allowed).tolist() == list(best)


@st.composite
def queues(draw: st.DrawFn) -> tuple[PendingJob, ...]:
    count = draw(st.integers(1, 30))
    return tuple(
        job(i, priority=draw(st.integers(1, 12)), user=draw(st.sampled_from(USERS)))
        for i in range(1, count + 1)
    )


@given(
    queues(),
    st.randoms(use_true_random=False),
    st.none() | st.integers(0, 12),
    st.integers(0, 12),
    st.sampled_from((0.0, 0.1, 0.25, 0.5, 1.0)),
)
def test_no_job_is_moved_too_far_and_no_user_loses_too_much_of_the_head(
    jobs: tuple[PendingJob, ...],
    shuffler: object,
    most: int | None,
    head: int,
    floor: float,
) -> None:
    wanted = list(range(len(jobs)))
    shuffler.shuffle(wanted)  # type: ignore[attr-defined]
    allowed = windows(jobs, Guards(most, head, floor))
    order = project(np.array(wanted, dtype=np.int64), allowed).tolist()
    natural = sorted(range(len(jobs)), key=lambda i: -jobs[i].priority)
    if most is not None:
        assert all(abs(order.index(i) - natural.index(i)) <= most for i in range(len(jobs)))
    for user in USERS:
        had = sum(jobs[i].user == user for i in natural[:head])
        has = sum(jobs[i].user == user for i in order[:head])
        assert has >= floor * had - 1e-9
        assert has or not had or not floor
    if floor == 1.0:
        assert set(order[:head]) == set(natural[:head])


def test_a_job_moves_exactly_as_far_as_it_may() -> None:
    jobs = tuple(job(i, priority=100 - i) for i in range(1, 7))
    last_first = np.arange(5, -1, -1)
    order = project(last_first, windows(jobs, Guards(max_displacement=2)))
    assert order.tolist() == [2, 3, 0, 1, 5, 4]
    assert project(last_first, windows(jobs, Guards(max_displacement=0))).tolist() == [*range(6)]
    assert project(last_first, windows(jobs, Guards())).tolist() == last_first.tolist()


def test_a_guard_counts_the_jobs_that_it_kept_from_where_they_were_wanted() -> None:
    jobs = tuple(job(i, priority=100 - i, user="ann" if i < 3 else "bob") for i in range(1, 7))
    allowed = windows(jobs, Guards(max_displacement=3, user_head=2, user_floor=0.5))
    assert allowed.bound(places(np.arange(5, -1, -1))) == {
        Guard.DISPLACEMENT: 2,
        Guard.USER_FLOOR: 1,
        Guard.STARVATION: 0,
        Guard.DEADLINE: 0,
    }


@pytest.mark.parametrize(
    ("field", "original", "value"),
    [
        (None, None, 900),
        ("priority", 500, 500),
        ("priority", None, 900),
        ("site_factor", 30, 830),
        ("site_factor", None, 800),
    ],
)
def test_the_natural_value_is_what_slurm_would_go_by_without_us(
    field: str | None, original: int | None, value: int
) -> None:
    owned = None if field is None else Ownership(field, 900, original=original)
    assert natural_value(job(1, priority=900, site_factor=100, owned=owned)) == value


@pytest.mark.parametrize(
    "bad", [{"max_displacement": -1}, {"user_head": -1}, {"user_floor": 1.5}, {"user_floor": -0.1}]
)
def test_guards_that_make_no_sense_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        Guards(**bad)  # type: ignore[arg-type]


def test_a_long_queue_is_projected_in_one_go() -> None:
    jobs = tuple(job(i, priority=100_000 - i) for i in range(1, 3_001))
    allowed = windows(jobs, Guards(max_displacement=200, user_head=50, user_floor=0.5))
    order = project(np.arange(2_999, -1, -1), allowed)
    assert allowed.hold(places(order))


MODES: tuple[WriteMode, ...] = ("priority", "site_factor")


@st.composite
def regimes(draw: st.DrawFn) -> Knobs:
    """Any settings of all guards together."""
    mode = draw(st.sampled_from(MODES))
    rules = Rules(
        sla_partitions=frozenset({"sla"}),
        excluded_users=frozenset(draw(st.lists(st.sampled_from(("alice", "bob")), max_size=1))),
        needs_site_factor=mode == "site_factor",
        max_writes_per_hour=draw(st.none() | st.integers(0, 3)),
        canary=draw(st.none() | st.builds(Canary, st.sampled_from((0.2, 0.5, 0.8)))),
    )
    limits = Limits(
        write_mode=mode,
        max_changes=draw(st.integers(0, 8) | st.just(500)),
        hysteresis=draw(st.sampled_from((0.0, 0.02, 0.3))),
        band=draw(st.none() | st.just((5_000, 9_000))),
        guards=Guards(draw(st.none() | st.integers(0, 6)), draw(st.integers(0, 8)), 0.5),
    )
    bounds = st.builds(Bound, st.sampled_from((0.0, 20_000.0)), st.sampled_from((1.0, 3.0)))
    return Knobs(
        rules=rules,
        limits=limits,
        placement=draw(st.sampled_from(("pack", "milp"))),
        tuning=Tuning(steer=Steer(on=draw(st.booleans()))),
        starvation=draw(st.none() | bounds),
    )


WAYS = (("gpu",), ("gpu",), ("gpu",), ("long",), ("gpu", "long"), ("sla",), ("gpu", "sla"))


@st.composite
def crowds(draw: st.DrawFn) -> Snapshot:
    """Queues of which most is ours, by a seed: drawn job by job they come out all but empty."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    pending = tuple(
        job(
            i,
            asks=draw(worlds.requests),
            submitted_at=NOW - int(rng.integers(1_000, 100_000)),
            priority=int(rng.integers(1, rng.choice((30, 5_000)))),
            site_factor=int(rng.choice((0, 0, -3, 12))),
            partitions=list(WAYS[int(rng.integers(len(WAYS)))]),
            user=str(rng.choice(("alice", "bob", "eve"))),
            held_by="user" if rng.random() < 0.05 else "",
            recent_writes=int(rng.choice((0, 0, 0, 1, 3))),
        )
        for i in range(1, int(rng.integers(8, 15)))
    )
    return snapshot(*pending, nodes=draw(worlds.nodes()))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    crowds(),
    st.sampled_from(((), (), ("long",))),
    regimes(),
    st.permutations(range(15)),
)
def test_all_guards_hold_at_once_or_nothing_is_moved(
    world: Snapshot,
    demoted: tuple[str, ...],
    knobs: Knobs,
    wanted: list[int],
) -> None:
    world = replace(world, demoted=demoted)
    decision = decide(world, ConstantOrder(tuple(wanted)), knobs, cbc())
    moves = [a for a in decision.plan.actions if isinstance(a, SetPriority | SetSiteFactor)]
    moved = {int(a.target.job_id) for a in moves}
    by_id = {int(j.job_id): j for j in world.pending}

    assert len(decision.plan.actions) <= knobs.limits.max_changes
    for action in decision.plan.actions:
        _is_ours_to_move(by_id[int(action.target.job_id)], demoted, knobs.rules)
    after = carried_out(world, decision.plan.actions)
    numbers = {int(j.job_id): j.priority for j in after.pending}
    assert all(numbers[j] >= 1 for j in moved)
    if knobs.limits.band is not None:
        assert all(5_000 <= numbers[j] <= 9_000 for j in moved)
    chosen = [e.job for e in decision.entries]
    late = overdue(in_submit_order(chosen), world, knobs.starvation)
    assert _stands_no_worse(chosen, numbers, knobs.limits.guards, late)
    if decision.held_back:
        assert not moves
        assert any("nothing is moved" in note for note in decision.notes)


def _is_ours_to_move(one: PendingJob, demoted: tuple[str, ...], rules: Rules) -> None:
    assert not {"sla", *demoted} & set(one.partitions)
    assert one.user not in rules.excluded_users
    assert rules.max_writes_per_hour is None or one.recent_writes < rules.max_writes_per_hour
    assert rules.canary is None or rules.canary.treats(one)


def in_submit_order(jobs: list[PendingJob]) -> list[PendingJob]:
    return sorted(jobs, key=lambda j: (j.submitted_at, j.job_id))


def _stands_no_worse(
    chosen: list[PendingJob], numbers: dict[int, int], guards: Guards, late: IntArray
) -> bool:
    jobs = in_submit_order(chosen)
    allowed = windows(jobs, guards, late)
    now = places(by_number(np.array([j.priority for j in jobs], dtype=np.int64)))
    then = places(by_number(np.array([numbers[int(j.job_id)] for j in jobs], dtype=np.int64)))
    return allowed.no_worse(then, now) and (allowed.hold(then) or not allowed.hold(now))


def remembered(world: Snapshot, decision: Decision) -> Snapshot:
    """The world that took the plan, as the journal will mark it."""
    after = carried_out(world, decision.plan.actions)
    fields = {a.target.job_id: a for a in decision.plan.actions}
    pending = []
    for one in after.pending:
        action = fields.get(one.job_id)
        if isinstance(action, SetPriority | SetSiteFactor):
            first = action.old if one.owned is None else one.owned.original
            name = "priority" if isinstance(action, SetPriority) else "site_factor"
            owned = Ownership(name, action.new, original=first, earlier=(action.old,))
            one = replace(one, owned=owned)  # noqa: PLW2901
        pending.append(one)
    return replace(after, pending=tuple(pending))


@given(
    worlds.snapshots(),
    st.sampled_from(MODES),
    st.integers(0, 4),
    st.lists(st.permutations(range(15)), min_size=1, max_size=4),
)
def test_policies_that_change_their_mind_carry_nobody_further_and_then_rest(
    world: Snapshot, mode: WriteMode, most: int, wanted: list[list[int]]
) -> None:
    rules = Rules(sla_partitions=frozenset({"sla"}), needs_site_factor=mode == "site_factor")
    limits = Limits(mode, hysteresis=0.0, guards=Guards(most, 5, 0.5))
    knobs = Knobs(rules=rules, limits=limits)
    first = decide(world, ConstantOrder(tuple(wanted[0])), knobs)
    natural = {e.job.job_id: i for i, e in enumerate(sorted(first.entries, key=by_natural))}
    for order in wanted:
        decision = decide(world, ConstantOrder(tuple(order)), knobs)
        for place, entry in enumerate(decision.entries):
            assert abs(place - natural[entry.job.job_id]) <= most
        world = remembered(world, decision)
    again = decide(world, ConstantOrder(tuple(wanted[-1])), knobs)
    assert again.plan.is_empty


def by_natural(entry: Entry) -> tuple[int, float, int]:
    return -natural_value(entry.job), entry.job.submitted_at, entry.job.job_id


@pytest.mark.parametrize("spread", [10_000, 1_500])
def test_under_a_change_cap_a_guarded_order_is_reached_in_steps(spread: int) -> None:
    rng = np.random.default_rng(3)
    numbers = rng.choice(spread, 400, replace=spread == 1_500) + 1  # with and without ties
    world = snapshot(*(job(i, priority=int(n)) for i, n in enumerate(numbers, start=1)))
    policy = ConstantOrder(tuple(rng.permutation(401).tolist()))
    limits = Limits(hysteresis=0.0, max_changes=60, guards=Guards(80, 32, 0.25))
    knobs = Knobs(limits=limits)
    wanted = [e.job.job_id for e in decide(world, policy, knobs).entries]
    for _ in range(20):
        decision = decide(world, policy, knobs)
        assert len(decision.plan.actions) <= 60
        world = remembered(world, decision)
        if decision.plan.is_empty:
            break
    now = sorted(world.pending, key=lambda j: -j.priority)
    assert [j.job_id for j in now] == wanted
