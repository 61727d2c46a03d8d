"""Orders that are kept from cycle to cycle are those of a sort, whatever happened in between."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.lab.kernel import sorting

MOST = 30
queue = st.lists(st.integers(0, MOST - 1), unique=True, max_size=MOST)


@pytest.fixture(scope="module", autouse=True)
def in_python() -> Iterator[None]:
    """The functions as they are written: compiled, they can be called by compiled ones alone."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ascending", "in_submit_order", "resorted", "_parted", "_stands_before"):
            patch.setattr(sorting, name, getattr(sorting, name).py_func)
        yield


@given(st.lists(queue, min_size=1, max_size=8))
def test_the_queue_in_submit_order(cycles: list[list[int]]) -> None:
    listed = sorting.nothing_listed(MOST)
    for jobs in cycles:
        found = sorting.in_submit_order(listed, np.array(jobs, dtype=np.int64))
        assert found.tolist() == sorted(jobs)


keys = st.lists(st.integers(0, 9), min_size=MOST, max_size=MOST)
changed = st.dictionaries(st.integers(0, MOST - 1), st.integers(0, 9), max_size=3)


@given(keys, st.lists(st.tuples(queue, changed, st.integers(0, 1)), min_size=1, max_size=8))
def test_an_order_by_keys_is_that_of_a_stable_sort(
    first: list[int], cycles: list[tuple[list[int], dict[int, int], int]]
) -> None:
    """Jobs come and go, some get another key, and a second order is kept beside."""
    known, key = sorting.nothing_sorted(MOST, 2), np.array(first, dtype=np.float64)
    for queued, changes, which in cycles:
        for job, value in changes.items():
            key[job] = value
        jobs = np.sort(np.array(queued, dtype=np.int64))
        found = sorting.resorted(known, which, jobs, key[jobs])
        assert found.tolist() == np.argsort(key[jobs], kind="stable").tolist()


def test_what_stands_is_not_sorted_again() -> None:
    """Of a long order one key falls and another rises: only those two are taken out."""
    key = np.arange(1_000, dtype=np.float64)
    known, jobs = sorting.nothing_sorted(1_000, 1), np.arange(1_000)
    sorting.resorted(known, 0, jobs, key)
    key[500], key[200] = 10.5, 900.5
    stands, aside = sorting._parted(known, 0, jobs, key)
    assert (len(stands), sorted(aside.tolist())) == (998, [200, 500])
