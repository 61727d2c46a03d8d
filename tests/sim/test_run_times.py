"""What is predicted of run times: the daemon's memory beside the kernel's, and no look ahead."""

import io
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.features import LIMIT_FULL_S
from rltuned.core.memory import KINDS_MOST, RunTimeMemory
from rltuned.core.run_times import FIELDS, FLOOR, HIGH, INPUTS, KEYS, LOG_FULL, LOW, MEAN, plan_s
from rltuned.domain.jobs import JobRun, PendingJob, RunningJob
from rltuned.domain.kinds import Kinds
from rltuned.domain.snapshot import RunTime
from rltuned.domain.units import JobId, UnixTime
from rltuned.lab.kernel.run_times import replay
from rltuned.lab.replay.orders import known_of, layers_of, play, runs_of
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.replay.trace_file import scale
from rltuned.policies.baselines import BASELINES
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.sim.cluster import preset
from rltuned.sim.limits import Habits
from rltuned.sim.synth import SHAPES, jobs_of
from rltuned.sim.trace import Trace, TraceJob
from rltuned.sim.world import AGE_ONLY, Rules
from tests.examples import examples

SHIPPED = load_predictor(shipped_predictor())
EPOCH = 1_700_000_000.0
LIMITS_S = (600.0, 86_400.0, LIMIT_FULL_S, LIMIT_FULL_S + 1.0, math.inf)


def expected(memory: RunTimeMemory, job: PendingJob) -> RunTime | None:
    return memory.predicted([job]).get(job.job_id)


@st.composite
def histories(draw: st.DrawFn) -> list[TraceJob]:
    """A few users whose jobs overlap, with and without names, limits and accounts."""
    count, now, found = draw(st.integers(2, 40)), EPOCH, []
    for number in range(count):
        now += draw(st.sampled_from([0.0, 1.0, 50.0, 700.0, 20_000.0]))
        user = draw(st.sampled_from(["", "ann", "bob"]))
        found.append(
            TraceJob(
                job_id=str(number + 1),
                submit_s=now,
                duration_s=draw(st.sampled_from([1.0, 30.0, 400.0, 9_000.0, 90_000.0])),
                gpus=draw(st.sampled_from([0, 1, 8])),
                time_limit_s=draw(st.sampled_from(LIMITS_S)),
                partition="gpu",
                user=user,
                account=draw(st.sampled_from(["", "lab"])) if user else "",
                name=draw(st.sampled_from(["", "train", "eval"])) if user else "",
            )
        )
    return found


def pending(job: TraceJob) -> PendingJob:
    return PendingJob(
        job_id=JobId(int(job.job_id)),
        address=job.job_id,
        submitted_at=UnixTime(job.submit_s),
        request=job.request(),
        priority=1,
        partitions=("gpu",),
        user=job.user,
        account=job.account,
        kinds=Kinds(name=hash(job.name) if job.name else 0),
    )


def running(job: TraceJob, started_at: float) -> RunningJob:
    seen = pending(job)
    return RunningJob(
        seen.job_id, UnixTime(started_at), seen.request, (), "gpu", seen.user, seen.account,
        seen.submitted_at, kinds=seen.kinds,
    )  # fmt: skip


def ended(job: TraceJob, started_at: float, run_s: float) -> JobRun:
    return JobRun(running(job, started_at), UnixTime(started_at + run_s))


def remembered(
    jobs: Sequence[TraceJob], wait_s: float
) -> tuple[RunTimeMemory, dict[int, RunTime | None]]:
    """A memory that was shown every event, and what it predicted at each job's start."""
    memory, shown = RunTimeMemory(SHIPPED.logits), dict[int, RunTime | None]()
    events = []
    for at, (job, run_s) in enumerate(zip(jobs, runs_of(jobs).tolist(), strict=True)):
        start = job.submit_s + wait_s
        events += [(start + run_s, 0, at), (start, 1, at), (job.submit_s, 2, at)]
    for now, what, at in sorted(events):
        job = jobs[at]
        if now > jobs[-1].submit_s:
            break
        start = job.submit_s + wait_s
        if what == 0:
            memory.end([ended(job, start, now - start)])
        elif what == 1:
            shown[at] = expected(memory, pending(job))
            memory.start([running(job, now)])
        else:
            memory.submit([pending(job)])
    return memory, shown


@examples(60)
@given(jobs=histories(), wait_s=st.sampled_from([0.5, 100.0, 5_000.0]))
def test_the_daemon_s_memory_and_the_kernel_s_say_the_same(
    jobs: list[TraceJob], wait_s: float
) -> None:
    known = known_of(jobs, layers_of(SHIPPED))
    submit_s, runs_s = np.array([j.submit_s for j in jobs]), runs_of(jobs)
    shift = np.zeros(len(jobs))
    start_s = submit_s + wait_s
    inputs = np.zeros((len(jobs), INPUTS), dtype=np.float32)
    replay(known, submit_s, start_s, start_s + runs_s, inputs, shift)
    _, shown = remembered(jobs, wait_s)
    for at, found in shown.items():
        limit_s = min(jobs[at].time_limit_s, LIMIT_FULL_S)
        summary = known.predicted[at] + shift[at]
        assert found is not None
        mean_s = max(math.exp(summary[MEAN]), known.predicted[at, FLOOR])
        assert found.mean_s == approx_s(min(mean_s, limit_s))
        assert found.plan_s == approx_s(plan_s(known.predicted[at], shift[at], limit_s))
        for name, place in (("low_s", LOW), ("high_s", HIGH)):
            x = min(max(summary[place], 0.0), math.log1p(limit_s), LOG_FULL)
            assert getattr(found, name) == approx_s(math.expm1(x))


def approx_s(seconds: float) -> object:
    """What a memory rounds it to, and what float32 may add."""
    return pytest.approx(max(seconds, 1.0), rel=1e-3, abs=0.51)


@examples(40)
@given(jobs=histories(), share=st.floats(0.0, 1.0))
def test_what_jobs_will_run_moves_nothing_before_they_end(
    jobs: list[TraceJob], share: float
) -> None:
    """The future shuffled: the same predictions until then."""
    now = jobs[0].submit_s + share * (jobs[-1].submit_s - jobs[0].submit_s)
    later = [
        replace(j, duration_s=j.duration_s * 3 + 1e6, time_limit_s=math.inf)
        if j.submit_s + min(j.duration_s, j.time_limit_s) > now and math.isinf(j.time_limit_s)
        else j
        for j in jobs
    ]
    tables = []
    for history in (jobs, later):
        known = known_of(history, layers_of(SHIPPED))
        submit_s = np.array([j.submit_s for j in history])
        inputs = np.zeros((len(jobs), INPUTS), dtype=np.float32)
        ends = submit_s + runs_of(history)
        replay(known, submit_s, submit_s, ends, inputs, np.zeros(len(jobs)))
        tables.append(known.predicted[submit_s <= now])
    np.testing.assert_array_equal(tables[0], tables[1])


def test_a_memory_comes_back_and_forgets_the_oldest_kinds() -> None:
    jobs = [
        TraceJob(
            str(i), EPOCH + 60.0 * i, 30.0 * 2 ** (i % 5), 1, time_limit_s=120.0 * 2 ** (i % 5),
            user=f"u{i % 50}", name=f"{i:x}",
        )
        for i in range(400)
    ]  # fmt: skip
    memory = RunTimeMemory(SHIPPED.logits, salt=b"salt", most=300)
    for job in jobs:
        memory.submit([pending(job)])
        memory.end([ended(job, job.submit_s, job.duration_s)])
        assert len(memory) <= 300
    assert memory.ends == 400
    assert memory.error < 3.0
    data = memory.to_bytes()
    assert b"u49" not in data
    arrays = dict(np.load(io.BytesIO(data)))
    again = RunTimeMemory(SHIPPED.logits, salt=b"salt", most=300)
    again.restore(arrays)
    new = pending(replace(jobs[-1], job_id="999", submit_s=EPOCH + 60.0 * 400))
    for one in (memory, again):
        one.submit([new])
    assert expected(again, new) == expected(memory, new)
    assert expected(again, new).ends > 0  # type: ignore[union-attr]
    other = RunTimeMemory(SHIPPED.logits, salt=b"another", most=300)
    other.restore(arrays)
    other.submit([new])
    assert expected(other, new).ends == 0  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="shape"):
        RunTimeMemory(SHIPPED.logits, most=10).restore(arrays)
    assert expected(memory, new).plan_s == jobs[-1].time_limit_s  # type: ignore[union-attr]
    for damaged in ({"limits": np.zeros(2)}, {"limits": arrays["limits"] * np.nan}):
        with pytest.raises(ValueError, match="shape"):
            again.restore(arrays | damaged)
    del arrays["limits"]  # a file of an older release
    with pytest.raises(ValueError, match="shape"):
        again.restore(arrays)
    with pytest.raises(ValueError, match="shape"):
        again.restore(arrays | {"stats": arrays["stats"][:, :9]})


def test_jobs_that_leave_without_an_end_teach_nothing() -> None:
    memory = RunTimeMemory(SHIPPED.logits)
    jobs = [TraceJob(str(i), EPOCH + i, 30.0, 1, user="ann") for i in range(3)]
    memory.submit([pending(j) for j in jobs])
    memory.start([running(jobs[0], EPOCH + 5)])
    memory.keep({(1, EPOCH + 1)})
    assert expected(memory, pending(jobs[0])) is None
    assert expected(memory, pending(jobs[1])) is not None
    assert memory.ends == 0
    assert math.isnan(memory.error)


def test_the_same_end_teaches_once() -> None:
    memory = RunTimeMemory(SHIPPED.logits)
    job = TraceJob("1", EPOCH, 30.0, 1, user="ann")
    memory.end([ended(job, EPOCH + 1, 30.0), ended(job, EPOCH + 1, 30.0)])
    assert memory.ends == 1


def test_keys_that_are_switched_off_are_not_kept() -> None:
    bare = RunTimeMemory(SHIPPED.logits, keys=("all", "gpus"))
    bare.submit([pending(TraceJob("1", EPOCH, 30.0, 1, user="ann", name="x"))])
    assert len(bare) == 2
    assert len(KEYS) == 17
    assert FIELDS * 8 * KINDS_MOST < 25 * 2**20


def test_predictions_shorten_waits_where_scripts_are_submitted_again() -> None:
    """Weak limits, and users who repeat their scripts: `delay` with predictions waits less."""
    made = jobs_of(
        SHAPES["helios-like"], jobs=3_000, seed=5, limits="weak", habits=Habits(script_share=0.9)
    )
    cluster = preset("philly-192")
    fitting = tuple(j for j in made if j.gpus <= 32)
    jobs = scale(Trace(fitting), 1.0, cluster.gpus).jobs
    assert len({j.name for j in jobs}) < len(jobs) / 3
    waits = []
    for predictor in (None, SHIPPED):
        scenario = Scenario.of(cluster, jobs, Rules(natural=AGE_ONLY))
        played = play(BASELINES["delay"], scenario, Protocol("cycle", predictor=predictor))
        waits.append(float((played.start_s - scenario.submit_s).mean()))
    assert waits[1] < 0.9 * waits[0]
