"""Random queues and clusters."""

import math

from hypothesis import strategies as st

from rltuned.domain.cluster import Node
from rltuned.domain.jobs import PendingJob, Request
from rltuned.domain.priority import NeutralDelay
from rltuned.domain.snapshot import Context, RunTime, Snapshot
from tests.builders import NOW, job, node, request, snapshot

TYPES = ("a100", "k80", "m40")
PARTITIONS = ("gpu", "long", "sla")


@st.composite
def nodes(draw: st.DrawFn) -> tuple[Node, ...]:
    count = draw(st.integers(1, 6))
    return tuple(_node(draw, f"n{i}") for i in range(count))


def _node(draw: st.DrawFn, name: str) -> Node:
    gpus, cpus = draw(st.integers(0, 8)), draw(st.integers(1, 32))
    return node(
        name,
        gpu_type=draw(st.sampled_from(TYPES)),
        gpus=gpus,
        free_gpus=draw(st.integers(0, gpus)),
        cpus=cpus,
        free_cpus=draw(st.integers(0, cpus) | st.just(cpus)),
        free_mem_mib=draw(st.sampled_from((0, 8_000, 64_000))),
        schedulable=draw(st.integers(0, 9)) > 0,
        partitions=draw(st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=2, unique=True)),
    )


requests: st.SearchStrategy[Request] = st.builds(
    request,
    gpus=st.integers(0, 12),
    cpus=st.integers(0, 24),
    mem_mib=st.sampled_from((0, 1_000, 16_000, 100_000)),
    time_limit_s=st.sampled_from((None, 60.0, 3_600.0, 86_400.0, math.inf)),
    gpu_types=st.lists(st.sampled_from(TYPES), max_size=2, unique=True),
    nodes=st.none() | st.integers(1, 4),
    exclusive=st.booleans(),
)


@st.composite
def jobs(draw: st.DrawFn, job_id: int, *, plain: bool = False) -> PendingJob:
    """plain: nothing about it keeps it from being ours to order."""
    if plain:
        return job(
            job_id,
            asks=draw(requests),
            submitted_at=NOW - draw(st.integers(60, 100_000)),
            priority=draw(st.integers(1, 30) | st.integers(1, 5_000)),
            site_factor=draw(st.sampled_from((0, 0, -3, 12))),
            partition=draw(st.sampled_from(PARTITIONS[:2])),
        )
    held = draw(st.integers(0, 9)) == 0
    age_s = draw(st.integers(0, 100_000))
    return job(
        job_id,
        asks=draw(requests),
        submitted_at=NOW - age_s,
        priority=0 if held else draw(st.integers(1, 30) | st.integers(1, 5_000)),
        site_factor=draw(st.sampled_from((0, 0, -3, 12, None))),
        partitions=draw(st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=2, unique=True)),
        dependency=draw(st.sampled_from(("", "", "", "afterok:9"))),
        held_by="user" if held else "",
        uneven=draw(st.integers(0, 9)) == 0,
    )


_RUN_TIME = st.builds(RunTime, *[st.floats(0, 1e7)] * 5, ends=st.integers(0, 99))
_NEUTRAL = st.builds(NeutralDelay, *[st.floats(0, 1e9)] * 4)
contexts = st.builds(
    Context,
    demoted=st.sampled_from(((), PARTITIONS[:1])),
    neutral=st.none() | _NEUTRAL,
    run_times=st.dictionaries(st.integers(1, 9), _RUN_TIME),
    limit_use=st.none() | st.floats(0, 1),
)


@st.composite
def snapshots(draw: st.DrawFn, max_jobs: int = 14) -> Snapshot:
    """Half of them are queues of jobs that are nearly all ours; of the other kind few are."""
    full = draw(st.booleans())
    count = draw(st.integers(max_jobs // 2 if full else 0, max_jobs))
    strangers = draw(st.integers(0, 2)) if full else count
    pending = tuple(draw(jobs(i, plain=i > strangers)) for i in range(1, count + 1))
    return snapshot(*pending, nodes=draw(nodes()))
