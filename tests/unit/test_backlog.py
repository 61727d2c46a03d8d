"""The unit of the queue: sizes, backlogs and places, by hand and against the plain sums."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.backlog import USE_GUESS, leader
from rltuned.core.capacity import Capacity
from rltuned.core.decide import Knobs, decide
from rltuned.core.features import encode
from rltuned.core.limits import LimitMemory
from rltuned.core.pools import Pools, Sizes, pools_of, shared
from rltuned.domain.jobs import PendingJob, Request
from rltuned.domain.snapshot import NO_CONTEXT, Context, RunTime, Snapshot
from rltuned.domain.units import GpuType
from rltuned.policies.baselines import BASELINES
from tests.builders import NOW, job, node, request, snapshot
from tests.examples import examples

HOUR, DAY = 3_600.0, 86_400.0


FULL = Context(limit_use=1.0)
"""Jobs are expected to run for as long as they may."""


def backlog_s(seen: Snapshot, context: Context = FULL) -> dict[int, float]:
    matrix = encode(seen.pending, seen, context)
    return {int(j.job_id): b for j, b in zip(matrix.jobs, matrix.backlog_s.tolist(), strict=True)}


def place(seen: Snapshot) -> dict[int, float]:
    matrix = encode(seen.pending, seen, FULL)
    found = matrix.pools.places(matrix.area).tolist()
    return {int(j.job_id): q for j, q in zip(matrix.jobs, found, strict=True)}


def test_the_backlog_is_the_work_that_waits_over_the_gpus() -> None:
    jobs = (job(1, gpus=2, time_limit_s=HOUR), job(2, gpus=4, time_limit_s=2 * HOUR))
    assert backlog_s(snapshot(*jobs)) == {1: 2.5 * HOUR, 2: 2.5 * HOUR}
    assert place(snapshot(*jobs)) == {1: 0.25, 2: 0.75}


def test_equal_jobs_share_the_middle() -> None:
    jobs = [job(n, gpus=1, time_limit_s=HOUR) for n in (1, 2, 3)]
    assert set(place(snapshot(*jobs)).values()) == {0.5}


def test_without_a_prediction_a_job_is_expected_to_use_what_jobs_here_use() -> None:
    one = job(1, gpus=4, time_limit_s=HOUR)
    assert backlog_s(snapshot(one), Context(limit_use=0.2)) == {1: 0.2 * HOUR}
    assert backlog_s(snapshot(one), NO_CONTEXT) == {1: USE_GUESS * HOUR}
    told = RunTime(HOUR, 600.0, 60.0, 600.0, 900.0, 3)
    assert backlog_s(snapshot(one), Context(run_times={one.job_id: told})) == {1: 600.0}


def test_what_jobs_use_of_their_limits_is_by_gpu_time() -> None:
    known = LimitMemory()
    assert known.use is None
    known.note(None, 10 * HOUR, 20 * HOUR, 8.0)
    for _ in range(200):  # as many short ones as a user likes
        known.note(1, 60.0, 60.0, 1.0)
    assert known.use == pytest.approx(0.5)


def test_no_user_says_alone_how_much_of_limits_is_used() -> None:
    known = LimitMemory()
    for user in range(10):
        for _ in range(20):
            known.note(user, 5 * HOUR, 10 * HOUR, 2.0)
    assert known.use == pytest.approx(0.5)
    for _ in range(50):
        known.note(99, 1.0, 30 * DAY, 64.0)
    assert known.use == pytest.approx(0.5)
    again = LimitMemory()
    again.restore(known.arrays())
    assert again.use == known.use
    again.note(100, HOUR, 2 * HOUR, 1.0)
    assert again.use == pytest.approx(0.5)


def test_a_user_who_ran_nearly_all_of_a_site_says_how_much_of_limits_is_used() -> None:
    known = LimitMemory()
    for _ in range(20):
        known.note(1, 9 * HOUR, 10 * HOUR, 8.0)
    assert known.use == pytest.approx(0.9)
    known.note(2, 1.0, 10 * HOUR, 1.0)
    assert known.use == pytest.approx(0.9, rel=0.01)


def test_only_usable_nodes_count() -> None:
    nodes = [node("p1", gpus=4), node("p2", gpus=4, schedulable=False)]
    one = job(1, gpus=4, time_limit_s=HOUR)
    assert backlog_s(snapshot(one, nodes=nodes)) == {1: HOUR}
    down = [node("p1", gpus=4, schedulable=False)]
    assert backlog_s(snapshot(one, nodes=down)) == {1: 0.0}


def test_partitions_that_share_no_node_have_backlogs_and_places_of_their_own() -> None:
    nodes = [node("p1", partitions=("a",)), node("p2", partitions=("b",))]
    jobs = [
        job(1, gpus=4, time_limit_s=HOUR, partition="a"),
        job(2, gpus=4, time_limit_s=8 * HOUR, partition="b"),
        job(3, gpus=4, time_limit_s=9 * HOUR, partition="b"),
    ]
    seen = snapshot(*jobs, nodes=nodes)
    assert backlog_s(seen) == {1: HOUR, 2: 17 * HOUR, 3: 17 * HOUR}
    assert place(seen) == {1: 0.5, 2: 0.25, 3: 0.75}


def test_where_partitions_overlap_no_work_counts_twice() -> None:
    """Partition `all` has both nodes, `one` has the first alone: half of what waits in `all` waits
    on the node of `one`."""
    nodes = [node("p1", partitions=("one", "all")), node("p2", partitions=("all",))]
    jobs = [
        job(1, gpus=4, time_limit_s=4 * HOUR, partition="all"),
        job(2, gpus=4, time_limit_s=2 * HOUR, partition="one"),
    ]
    seen = snapshot(*jobs, nodes=nodes)
    assert backlog_s(seen) == {1: 3 * HOUR, 2: 4 * HOUR}
    assert place(seen) == {1: 0.75, 2: 0.25}


def test_a_job_of_one_gpu_type_waits_for_that_type_alone() -> None:
    nodes = [node("p1", gpu_type="p100"), node("v1", gpu_type="v100")]
    typed = request(gpus=4, time_limit_s=HOUR, gpu_types=(GpuType("p100"),))
    jobs = [job(1, asks=typed), job(2, gpus=4, time_limit_s=2 * HOUR)]
    # half of job 2's work waits on the node of job 1
    assert backlog_s(snapshot(*jobs, nodes=nodes)) == {1: 2 * HOUR, 2: 1.5 * HOUR}


@pytest.mark.parametrize(
    ("asks", "size"),
    [
        (request(gpus=2), 2),
        (request(gpus=0, cpus=8), 2),
        (request(gpus=1, cpus=1, exclusive=True), 4),
        (request(gpus=0, cpus=1, nodes=2, exclusive=True), 8),
        (request(gpus=1, cpus=16), 4),
        (request(gpus=1, cpus=12), 3),
        (request(gpus=1, cpus=8), 1),  # half of the node: as many GPUs stay usable
        (request(gpus=1, cpus=1, mem_mib=64_000), 4),
        (request(gpus=0, cpus=1, mem_mib=48_000), 3),
        (request(gpus=8, cpus=8, nodes=2), 8),
    ],
)
def test_size_is_what_a_job_takes_away(asks: Request, size: float) -> None:
    nodes = [node(f"n{i}", gpus=4, cpus=16, mem_mib=64_000) for i in (1, 2)]
    seen = snapshot(job(1, asks=asks), nodes=nodes)
    assert Sizes(Capacity.of(seen)).of(asks, ("gpu",)) == pytest.approx(size)
    assert encode(seen.pending, seen).size.tolist() == [pytest.approx(size)]


def test_on_nodes_without_gpus_a_node_is_one_unit() -> None:
    nodes = [node(f"c{i}", gpus=0, cpus=16, mem_mib=64_000) for i in (1, 2)]
    capacity = Capacity.of(snapshot(job(1), nodes=nodes))
    assert Sizes(capacity).of(request(gpus=0, cpus=32), ("gpu",)) == 2.0
    assert Sizes(capacity).of(request(gpus=0, cpus=1, nodes=2, exclusive=True), ("gpu",)) == 2.0


areas = st.floats(1.0, 1e7)
users = st.sampled_from(["", "ann", "bob", "eve"])
queues = st.lists(st.tuples(areas, st.integers(0, 2), users), min_size=1, max_size=14)


@examples(150)
@given(queues, st.lists(st.lists(st.sampled_from([0.0, 4.0, 8.0]), min_size=3, max_size=3),
                        min_size=3, max_size=3))  # fmt: skip
def test_backlogs_and_places_are_the_plain_sums(
    queue: list[tuple[float, int, str]], units: list[list[float]]
) -> None:
    overlap, gpus = shared(np.array(units))
    area = np.array([a for a, _, _ in queue])
    pool = np.array([p for _, p, _ in queue])
    names = [name or f"stranger {at}" for at, (_, _, name) in enumerate(queue)]
    known = any(name for _, _, name in queue)
    numbers = {name: at for at, name in enumerate(dict.fromkeys(names))}
    user = np.array([numbers[name] for name in names])
    pools = Pools(pool, user, len(numbers) if known else 0, overlap, gpus, np.ones(len(queue)))
    found_s, found = pools.backlogs_s(area), pools.places(area)
    for i, own in enumerate(pool):
        part = {j: overlap[own, pool[j]] for j in range(len(queue))}
        work = {j: part[j] * area[j] for j in part}
        expected_s = plain(work, names, i, known=known) / gpus[own] if gpus[own] else 0.0
        assert found_s[i] == pytest.approx(expected_s)
        beside = {j: float(part[j] > 0) for j in part}
        low = {j: one * ((area[j] < area[i]) + 0.5 * (area[j] == area[i]))
               for j, one in beside.items()}  # fmt: skip
        total = plain(beside, names, i, known=known)
        factor = weight_of(beside, names, i, known=known)
        before = sum(low[j] * factor(names[j]) for j in low)
        assert found[i] == pytest.approx(before / total if total else 0.0)


def weight_of(
    amounts: Mapping[int, float], names: Sequence[str], viewer: int, *, known: bool
) -> Callable[[str], float]:
    """What each user's jobs count in the eyes of one job."""
    by_user: dict[str, float] = {}
    for j, amount in amounts.items():
        by_user[names[j]] = by_user.get(names[j], 0.0) + amount
    first = max(by_user, key=lambda name: by_user[name])
    others = sum(by_user.values()) - by_user[first]
    bounded = known and others > 0 and by_user[first] > others and names[viewer] != first
    return lambda name: others / by_user[first] if bounded and name == first else 1.0


def plain(amounts: Mapping[int, float], names: Sequence[str], viewer: int, *, known: bool) -> float:
    factor = weight_of(amounts, names, viewer, known=known)
    return sum(amount * factor(names[j]) for j, amount in amounts.items())


def test_no_user_counts_for_more_than_all_others() -> None:
    assert leader(np.array([3.0, 10.0, 4.0])) == (1, 0.7)
    assert leader(np.array([3.0, 6.0, 4.0])) == (1, 1.0)
    assert leader(np.array([5.0])) == (0, 1.0), "alone"
    assert leader(np.zeros(0)) == (-1, 1.0)
    assert leader(np.zeros(3))[1] == 1.0


def victims() -> list[PendingJob]:
    """Twenty jobs of ten users, from ten minutes to 30 hours."""
    return [
        job(
            n,
            gpus=1 + n % 4,
            user=f"u{n % 10}",
            time_limit_s=600.0 * 1.3**n,
            submitted_at=NOW - 10 * n,
        )
        for n in range(1, 21)
    ]


def flood(count: int, **asks: object) -> list[PendingJob]:
    return [job(1_000 + n, user="eve", **asks) for n in range(count)]  # type: ignore[arg-type]


def delays_of(*jobs: PendingJob) -> dict[int, float]:
    nodes = [node(f"n{i}", gpus=8, cpus=64) for i in range(8)]
    found = decide(snapshot(*jobs, nodes=nodes), BASELINES["delay"], Knobs(top_k=0), context=FULL)
    return {int(e.job.job_id): e.delay_s for e in found.entries}


def test_a_flood_of_wide_jobs_at_most_doubles_the_backlog_of_others() -> None:
    calm = delays_of(*victims())
    flooded = delays_of(
        *victims(), *flood(500, asks=request(gpus=64, nodes=8, time_limit_s=7 * DAY))
    )
    worst = max(flooded[n] / calm[n] for n in calm)
    assert worst <= 2.0 + 1e-9
    assert min(d for n, d in flooded.items() if n >= 1_000) > max(flooded[n] for n in calm)


def test_a_flood_of_tiny_jobs_moves_places_by_at_most_a_half() -> None:
    seen = snapshot(*victims())
    calm = place(seen)
    flooded = place(snapshot(*victims(), *flood(10_000, gpus=1, time_limit_s=60.0)))
    for n, q in calm.items():
        assert q <= flooded[n] <= 0.5 + 0.5 * q + 1e-9


def test_a_user_alone_and_the_same_with_one_small_job_of_another_are_delayed_alike() -> None:
    """Numbers must not jump when a second user comes or goes."""
    own = [job(n, user="ann", time_limit_s=n * HOUR, submitted_at=NOW - n) for n in range(1, 30)]
    alone = delays_of(*own)
    beside = delays_of(*own, job(99, user="bob", time_limit_s=60.0))
    for n, delay_s in alone.items():
        assert beside[n] == pytest.approx(delay_s, rel=0.2)


def test_for_equal_requests_of_one_user_a_shorter_limit_costs_no_more() -> None:
    limits = [360.0, 420.0, 480.0]
    guesses = [700.0, 640.0, 660.0]  # a network's, which err

    def found(user: str) -> list[float]:
        jobs = [job(n, user=user, time_limit_s=limits[n - 1]) for n in (1, 2, 3)]
        told = {
            j.job_id: RunTime(g, g / 3, 60.0, g / 3, g, 0)
            for j, g in zip(jobs, guesses, strict=True)
        }
        context = Context(run_times=told)
        decision = decide(snapshot(*jobs), BASELINES["delay"], Knobs(top_k=0), context=context)
        by_id = {int(e.job.job_id): e.delay_s for e in decision.entries}
        return [by_id[n] for n in (1, 2, 3)]

    named = found("ann")
    assert named == sorted(named)
    assert found("") != sorted(found("")), "jobs of no known user are compared with none"


def test_pools_are_those_of_the_nodes_that_slurm_starts_jobs_on() -> None:
    nodes = [node("p1", gpus=4), node("p2", gpus=8, schedulable=False)]
    seen = snapshot(job(1, gpus=1), job(2, gpus=0, cpus=1), nodes=nodes)
    pools = pools_of(seen.pending, Capacity.of(seen), {})
    assert pools.gpus.tolist()[0] == 4.0
    assert pools.overlap[0, 1] == 1.0
