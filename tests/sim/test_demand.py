"""The kernel's backlogs and places, in one pass for each pool, are those of core/backlog."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core import backlog
from rltuned.lab.kernel import demand
from rltuned.lab.kernel.demand import NO_DEMAND

MOST = 16
areas = st.floats(0.0, 1e6) | st.sampled_from((0.0, 1.0, 2.0))
job = st.tuples(areas, st.integers(0, 2), st.integers(0, 3))
part = st.sampled_from((0.0, 0.25, 1.0))
counts = st.integers(0, 10**6).map(float)
pools = st.tuples(st.lists(part, min_size=9, max_size=9), st.lists(counts, min_size=3, max_size=3))


@pytest.fixture(scope="module", autouse=True)
def in_python() -> Iterator[None]:
    """The functions as they are written: compiled, they can be called by compiled ones alone."""
    names = (
        "users_among", "backlog_of", "_backlog_of_pool", "places_of", "_places_in_pool",
        "_most_jobs", "ascending",
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setattr(demand, name, getattr(demand, name).py_func)
        patch.setattr(demand, "leader", backlog.leader)
        yield


@given(st.lists(job, max_size=MOST), pools, st.sampled_from((0, 4, 1_000)))
def test_one_pass_says_what_the_core_says(
    jobs: list[tuple[float, int, int]], cluster: tuple[list[float], list[float]], users: int
) -> None:
    area, pool, user = (np.array(one) for one in zip(*jobs, strict=True)) if jobs else [()] * 3
    area, pool = np.array(area, dtype=np.float64), np.array(pool, dtype=np.int64)
    user, gpus = np.array(user, dtype=np.int64), np.array(cluster[1])
    overlap = np.array(cluster[0]).reshape(3, 3)
    asked = NO_DEMAND._replace(pool=pool, user=user, users=users, overlap=overlap, gpus=gpus)
    every = np.arange(len(jobs))
    core_s = backlog.backlogs_s(area, pool, overlap, gpus, user, users)
    assert demand.backlog_of(asked, every, area).tolist() == core_s.tolist()
    order = np.argsort(area, kind="stable")
    core = backlog.places(area, order, np.ones(len(jobs)), pool, overlap, user, users)
    assert demand.places_of(asked, every, area).tolist() == core.tolist()
