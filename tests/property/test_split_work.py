"""The same work counts the same, as one array, as several, or as jobs."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.order import Policy
from rltuned.daemon.report import Sums, sums_of
from rltuned.domain.jobs import ArrayInfo, PendingJob
from rltuned.domain.snapshot import Context
from rltuned.domain.units import JobId, UnixTime
from rltuned.lab.replay.protocol import policy_of
from rltuned.policies.baselines import BASELINES
from tests.builders import NOW, job, node, running, snapshot, sure
from tests.examples import examples

Work = tuple[int, float, str, int]
"""GPUs, limit, user, and how many equal jobs of it."""
NODES = [node(f"n{i}", gpus=8, cpus=64) for i in range(4)]
CONTEXT = Context(limit_use=0.5)

work = st.tuples(
    st.sampled_from((0, 1, 2, 8)),
    st.sampled_from((600.0, 3_600.0, 86_400.0)),
    st.sampled_from(("ann", "bob", "eve", "")),
    st.integers(1, 30),
)
cuts = st.lists(st.integers(1, 30), max_size=4)


def split(queue: Sequence[Work], how: Sequence[Sequence[int]]) -> list[PendingJob]:
    """Each work in arrays of the sizes given, the rest of it as jobs; ids tell whose they are."""
    jobs = []
    for at, ((gpus, limit_s, user, count), sizes) in enumerate(zip(queue, how, strict=True)):
        number, left = 1_000 * (at + 1), count
        for size in (*sizes, *[1] * count):
            tasks = min(size, left)
            if not tasks:
                break
            number, left = number + 1, left - tasks
            info = ArrayInfo(JobId(number), tasks) if size > 1 else None
            # one without a user is a user of its own, so it has one here
            name = user or f"nobody-{at}"
            jobs.append(
                job(number, gpus=gpus, time_limit_s=limit_s, user=name, array=info,
                    submitted_at=NOW - 60.0 * (at + 1))
            )  # fmt: skip
    return jobs


def decided(jobs: Sequence[PendingJob], policy: Policy) -> Decision:
    return decide(snapshot(*jobs, nodes=NODES), policy, Knobs(top_k=0), context=CONTEXT)


def delays_of(decision: Decision) -> dict[int, set[float]]:
    """By work, the delays of what stands for it."""
    found: dict[int, set[float]] = {}
    for entry in decision.entries:
        found.setdefault(entry.job.job_id // 1_000, set()).add(round(entry.delay_s, 6))
    return found


def sums(decision: Decision) -> Sums:
    return sure(sums_of(decision.snapshot, decision, None))


@examples(120)
@given(st.data(), st.sampled_from(("delay", "sjf", "saf", "fit_first", "default")))
def test_the_same_work_has_the_same_delays_however_it_is_split(
    data: st.DataObject, policy: str
) -> None:
    queue = data.draw(st.lists(work, min_size=1, max_size=6))
    as_arrays = [data.draw(cuts) for _ in queue]
    order = policy_of(policy)
    assert not isinstance(order, str)
    one = decided(split(queue, as_arrays), order)
    other = decided(split(queue, [[]] * len(queue)), order)
    ours, theirs = delays_of(one), delays_of(other)
    assert ours.keys() == theirs.keys()
    for at, values in ours.items():
        for value in values | theirs[at]:
            assert value == pytest.approx(min(theirs[at]), rel=0.01, abs=1.0)
    assert sure(one.neutral).delay_s == pytest.approx(sure(other.neutral).delay_s, rel=0.01)
    mine, wanted = sums(one), sums(other)
    assert mine.backlog_s == pytest.approx(wanted.backlog_s, rel=0.01)
    assert mine.work_s == pytest.approx(wanted.work_s, rel=0.01)
    assert (mine.waiting, mine.wanted) == (wanted.waiting, wanted.wanted)


def test_a_job_that_overtakes_a_hundred_jobs_overtakes_an_array_of_a_hundred_tasks() -> None:
    hundred: Work = (8, 3_600.0, "ann", 100)
    newcomer = job(9_000, gpus=1, time_limit_s=600.0, user="bob", submitted_at=NOW - 60.0)
    for sizes in ([], [100], [60, 40]):
        came = UnixTime(NOW - 7_200.0)
        jobs = [
            replace(one, submitted_at=came, eligible_at=came) for one in split([hundred], [sizes])
        ]
        decision = decided([*jobs, newcomer], BASELINES["delay"])
        assert decision.entries[0].job.job_id == 9_000, sizes


def test_of_a_throttled_array_as_many_tasks_count_as_may_start() -> None:
    """Four at a time and one runs: it counts as three jobs, in however many records it stands."""
    rest = job(1, gpus=2, time_limit_s=3_600.0, user="bob")
    runs = [running(500, node_name="n1", array_job_id=JobId(7))]

    def seen(*jobs: PendingJob) -> Decision:
        all_jobs = snapshot(rest, *jobs, runs=runs, nodes=NODES)
        return decide(all_jobs, BASELINES["delay"], Knobs(top_k=0), context=CONTEXT)

    def part(number: int, tasks: int) -> PendingJob:
        info = ArrayInfo(JobId(7), tasks, throttle=4)
        return job(number, gpus=8, time_limit_s=3_600.0, user="ann", array=info)

    three = [job(n, gpus=8, time_limit_s=3_600.0, user="ann") for n in (7, 8, 9)]
    wanted = seen(*three)
    for jobs in ([part(7, 200)], [part(7, 2), part(8, 200)], [part(7, 200), part(8, 200)]):
        found = seen(*jobs)
        assert found.matrix.backlog_s.tolist()[0] == wanted.matrix.backlog_s.tolist()[0]
        assert found.entries[0].delay_s == pytest.approx(wanted.entries[0].delay_s)
        assert sums(found).backlog_s == pytest.approx(sums(wanted).backlog_s)
        assert sums(found).waiting == sums(wanted).waiting == 4
