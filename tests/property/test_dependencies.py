"""Dependencies as squeue prints them: any text is read, and a group outlives its edges."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core import groups
from rltuned.core.groups import follow, forecasts, foresee
from rltuned.domain.jobs import Dependency, GroupJob, GroupStore, JobPhase, PendingJob
from rltuned.domain.units import JobId
from rltuned.slurm.values import parse_dependency
from tests.builders import NOW, job, running, snapshot
from tests.examples import examples

SHREDS = (
    "afterok", "afterany", "after", "aftercorr", "afternotok", "afterburstbuffer", "singleton",
    "expand", "AFTEROK", ":", ":", ":1", ":2", ":61", ":99999999999", "_3", "_*", "_[1-4]", "+5",
    "@other", "(unfulfilled)", "(failed)", "(", ")", ",", ",", "?", "(null)", " ", "-", "\n", "\0",
)  # fmt: skip


def check(text: str) -> None:
    """Whatever it says, circles and all, it is read and becomes a group without an error."""
    found = parse_dependency(text)
    assert all(0 < parent < 10**10 and kind for parent, kind in found.parents)
    assert not found.whole or not text or (found.parents and "?" not in text)
    two = (job(1, dependency=text), job(2, dependency=text))
    store = follow(GroupStore(), snapshot(*two), {j.job_id: found for j in two}, {})
    assert {p for j in store.jobs.values() for p in j.parents} <= {p for p, _ in found.parents}
    assert not any(n in j.parents for n, j in store.jobs.items())
    forecasts(store, NOW)


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    check(text)


@examples(100)
@given(st.integers(0, 2**32))
def test_what_is_nearly_a_dependency_is_read(seed: int) -> None:
    draws = np.random.default_rng(seed)
    for _ in range(100):  # 10,000 in all
        check("".join(draws.choice(SHREDS, size=draws.integers(1, 12))))


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), max_size=12))
def test_circles_are_found(pairs: list[tuple[int, int]]) -> None:
    jobs = {
        n: GroupJob({p: "afterok" for c, p in pairs if c == n}, run_s=60.0) for n in range(1, 6)
    }
    found = foresee(jobs, NOW)
    seen: set[int] = set()
    if found.level:
        for node, one in found.jobs.items():
            assert set(one.parents) <= seen
            seen.add(node)
    else:
        assert not found.whole
        assert not found.critical


def as_slurm_shows(edges: dict[int, set[int]], at: dict[int, str], now: float) -> list[PendingJob]:
    shown = []
    for node, parents in edges.items():
        left = sorted(p for p in parents if at[p] != "ended")
        text = ",".join(f"afterok:{p}(unfulfilled)" for p in left)
        if at[node] == "waiting":
            shown.append(job(node, dependency=text, submitted_at=now - 600))
    return shown


@given(st.data(), st.integers(2, 7))
def test_edges_outlive_their_parents(data: st.DataObject, size: int) -> None:
    edges = {
        n: data.draw(st.sets(st.integers(1, n - 1))) if n > 1 else set[int]()
        for n in range(1, size + 1)
    }
    at = dict.fromkeys(edges, "waiting")
    store, now = GroupStore(), NOW
    connected = {n for n in edges if edges[n]} | {p for those in edges.values() for p in those}
    while set(at.values()) != {"ended"}:
        pending = as_slurm_shows(edges, at, now)
        runs = [running(n, started_at=now - 60) for n, phase in at.items() if phase == "running"]
        waits = {j.job_id: parse_dependency(j.dependency) for j in pending if j.dependency}
        store = follow(store, snapshot(*pending, runs=runs, taken_at=now), waits, {})
        assert {n: set(j.parents) for n, j in store.jobs.items()} == {
            n: edges[n] for n in connected
        }
        assert {n: j.phase.value for n, j in store.jobs.items()} == {n: at[n] for n in connected}
        free = [n for n in at if at[n] == "waiting" and all(at[p] == "ended" for p in edges[n])]
        steps = [(n, "running") for n in free] + [(n, "ended") for n in at if at[n] == "running"]
        node, phase = data.draw(st.sampled_from(steps))
        at[node], now = phase, now + 60


def test_what_a_dependency_says() -> None:
    one = parse_dependency("afterok:61(unfulfilled),afterany:59_*(unfulfilled)")
    assert one == Dependency(((59, "afterany"), (61, "afterok")))  # type: ignore[arg-type]
    assert parse_dependency("afterok:61:62,after:63").parents == (
        (61, "afterok"), (62, "afterok"), (63, "after"),
    )  # fmt: skip
    for text, parents in {
        "afterok:61(unfulfilled)?afterok:62(unfulfilled)": [61, 62],
        "afternotok:61(unfulfilled)": [61],
        "after:61+5(unfulfilled)": [61],
        "singleton(unfulfilled)": [],
        "afterok:61@other": [61],
        "of an unknown kind": [],
    }.items():
        found = parse_dependency(text)
        assert not found.whole, text
        assert [p for p, _ in found.parents] == parents, text
    assert parse_dependency("") == Dependency()


def test_of_very_many_parents_none_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (":".join(["afterok", *map(str, range(1, n + 1))]) for n in (256, 257))
    assert len(parse_dependency(few).parents) == 256
    for text in (many, "afterok" + ":1(unfulfilled)" * 1_000):
        assert parse_dependency(text) == Dependency((), whole=False)
    monkeypatch.setattr(groups, "MOST_LOOKED_AT", 3)
    waits = {JobId(n): parse_dependency(f"afterok:{n - 1}:{n - 2}") for n in (3, 4, 5)}
    store = follow(GroupStore(), snapshot(*(job(n) for n in range(1, 6))), waits, {})
    assert {n: len(one.parents) for n, one in store.jobs.items()} == {1: 0, 2: 0, 3: 2}


def test_a_removed_edge_goes_and_a_group_of_one_with_it() -> None:
    waits = {job(2).job_id: parse_dependency("afterok:1(unfulfilled)")}
    store = follow(GroupStore(), snapshot(job(1), job(2, dependency="x"), taken_at=NOW), waits, {})
    assert set(store.jobs) == {1, 2}
    assert follow(store, snapshot(job(1), job(2), taken_at=NOW + 60), {}, {}).jobs == {}


def test_the_expected_end_and_how_long_a_group_is_kept() -> None:
    waits = {job(2).job_id: parse_dependency("afterok:1(unfulfilled)")}
    first = running(1, started_at=NOW - 600, time_limit_s=3_600.0)
    store = follow(GroupStore(), snapshot(job(2), runs=[first], taken_at=NOW), waits, {})
    expected = foresee(store.jobs, NOW)
    assert expected.end_at == NOW + 3_000 + 3_600
    assert expected.critical == {1, 2}
    store = follow(store, snapshot(runs=[running(2, started_at=NOW)], taken_at=NOW + 60), {}, {})
    store = follow(store, snapshot(taken_at=NOW + 600), {}, {})
    assert {j.phase for j in store.jobs.values()} == {JobPhase.ENDED}
    late = follow(replace(store, seen_at=NOW), snapshot(taken_at=NOW + 8 * 86_400), {}, {})
    assert late.jobs == {}


def test_too_many_edges_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MOST_EDGES", 3)
    chains = {n: parse_dependency(f"afterok:{n - 1}") for n in (2, 3, 12, 13)}
    jobs = [job(n) for n in (1, 2, 3, 11, 12, 13)]
    store = follow(GroupStore(), snapshot(*jobs), {JobId(n): one for n, one in chains.items()}, {})
    assert set(store.jobs) == {1, 2, 3}
