"""What one user, or some together, move of what is said to others: little.

docs/can-users-game-it.md has the figures.
"""

from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.capacity import Capacity
from rltuned.core.limits import LimitMemory
from rltuned.core.memory import key_of
from rltuned.core.pools import Sizes
from rltuned.domain.jobs import JobRun, Request, RunningJob
from rltuned.domain.units import JobId, UnixTime
from tests.builders import NOW, job, node, request, snapshot
from tests.examples import examples
from tests.scenes import DAY, HOUR, Scene, honest, honest_limits

VICTIMS = (("new", "lab"), ("u1", "bio"), ("u3", "lab"))
"""A user whom nobody knows, one of another account than the attacker, one of the same."""
MOST = 1.25


@pytest.fixture(scope="module")
def site() -> Scene:
    """24 users, 960 jobs; limits tell little."""
    scene = Scene()
    honest(scene)
    return scene


def plans(scene: Scene, limit_s: float | None) -> list[float]:
    return [scene.told(user, limit_s, account=account).plan_s for user, account in VICTIMS]


def ended(number: int, asked: Request, run_s: float) -> JobRun:
    at = UnixTime(NOW)
    ran = RunningJob(JobId(number), at, asked, (), partition="gpu", submitted_at=at)
    return JobRun(ran, UnixTime(NOW + run_s))


def assert_near(after: list[float], before: list[float]) -> None:
    for one, other in zip(after, before, strict=True):
        assert other / MOST <= one <= other * MOST


@pytest.mark.parametrize("limit_s", [DAY, 4 * HOUR])
def test_a_stranger_s_thousand_short_jobs_move_nobody_s_plan(site: Scene, limit_s: float) -> None:
    scene, before = deepcopy(site), plans(site, limit_s)
    scene.ends("evil", [60.0] * 1_000, HOUR, gap_s=0.05)
    assert_near(plans(scene, limit_s), before)


@pytest.mark.parametrize("limit_s", [DAY, None])
def test_jobs_that_use_their_minute_do_not_make_limits_count(
    site: Scene, limit_s: float | None
) -> None:
    scene, before = deepcopy(site), plans(site, limit_s)
    scene.ends("evil", [60.0] * 200, 60.0, gap_s=0.05)
    assert scene.memory.limit_share == pytest.approx(site.memory.limit_share, abs=0.02)
    after = plans(scene, limit_s)
    if limit_s is None:  # the predictor believes a kind more when many of it have ended
        assert after[1] <= before[1] * MOST
        assert after[2] >= before[2] / 1.5
    else:
        assert_near(after, before)


def test_long_limits_of_jobs_that_end_at_once_do_not_make_limits_count_less() -> None:
    scene = Scene()
    honest_limits(scene)
    share, use = scene.memory.limit_share, scene.memory.limit_use
    assert share == 1.0
    scene.ends("evil", [1.0] * 50, 30 * DAY, gap_s=0.05)
    assert scene.memory.limit_share == share
    assert scene.memory.limit_use == pytest.approx(use, rel=0.25)
    scene.ends("evil", [1.0] * 950, 30 * DAY, gap_s=0.05)
    assert scene.memory.limit_share == share
    assert scene.memory.limit_use == pytest.approx(use, rel=0.25)


@pytest.mark.parametrize(("limit_s", "most"), [(DAY, 2.0), (None, 5.0)])
@pytest.mark.parametrize("junk", [20, 50, 200])
def test_a_user_s_own_tiny_jobs_make_a_known_long_one_little_shorter(
    site: Scene, limit_s: float | None, most: float, junk: int
) -> None:
    scene = deepcopy(site)
    scene.ends("ann", [20 * HOUR] * 30, limit_s)
    before = scene.told("ann", limit_s).plan_s
    scene.ends("ann", [1.0] * junk, limit_s)
    assert scene.told("ann", limit_s).plan_s >= before / most
    scene.ends("ann", [20 * HOUR], limit_s)
    assert scene.told("ann", limit_s).plan_s >= before / most


@pytest.mark.parametrize("junk", [20, 50, 200])
@pytest.mark.parametrize("limit_s", [DAY, HOUR])
def test_tiny_jobs_of_a_new_user_make_a_long_one_little_shorter(
    site: Scene, limit_s: float, junk: int
) -> None:
    scene, before = deepcopy(site), site.told("ann", DAY).plan_s
    scene.ends("ann", [1.0] * junk, limit_s)
    assert scene.told("ann", DAY).plan_s >= before / 2
    scene.ends("ann", [20 * HOUR], DAY)
    assert scene.told("ann", DAY).plan_s >= before / 1.2


def test_short_jobs_are_believed_once_they_have_run_for_long_enough(site: Scene) -> None:
    """As they were before: what the floor keeps goes after about an hour of short jobs."""
    scene = deepcopy(site)
    scene.ends("ann", [60.0] * 10, DAY)
    doubted = scene.told("ann", DAY).plan_s
    scene.ends("ann", [60.0] * 70, DAY)
    assert scene.told("ann", DAY).plan_s < doubted / 3


def test_submissions_that_never_ran_take_no_history() -> None:
    """Before: 25,000 of them left no other user a kind of the 150,000. Here in small."""
    scene = Scene(most=3_000)
    honest(scene, users=6, jobs=10)
    known = [scene.told(f"u{n}", DAY).ends for n in range(6)]
    assert min(known) == 10
    scene.comes_and_goes("evil", 1_000)
    assert [scene.told(f"u{n}", DAY).ends for n in range(6)] == known


def test_runs_of_one_user_take_no_history_of_others() -> None:
    """Each with a limit and a name of its own, so that each makes kinds."""
    scene = Scene(most=3_000)
    honest(scene, users=6, jobs=10)
    known = [scene.told(f"u{n}", DAY).ends for n in range(6)]
    for number in range(600):
        scene.ends("evil", [1.0], 60.0 + number, name=f"n{number}")
    assert [scene.told(f"u{n}", DAY).ends for n in range(6)] == known


def test_what_a_job_takes_away_is_what_it_weighs_and_is_described_by() -> None:
    """An exclusive job of one GPU on a node of four weighs as one of four GPUs."""
    found = []
    for asked in (request(exclusive=True), request(gpus=4)):
        memory = Scene().memory
        memory.size_of = Sizes(Capacity.of(snapshot(nodes=[node("p1", gpus=4)]))).of
        memory.end([ended(1, asked, 0.5 * HOUR)])
        memory.end([ended(2, request(), 0.1 * HOUR)])
        one = job(3, asks=asked)
        memory.submit([one])
        found.append((memory.limit_use, memory._jobs[key_of(one)].inputs[2]))
    assert found[0] == found[1]
    assert found[0][0] == pytest.approx((4 * 0.5 + 0.1) / 5)


def test_the_one_who_is_left_out_is_written_and_read_again(site: Scene) -> None:
    scene = deepcopy(site)
    scene.ends("evil", [60.0] * 200, 60.0, gap_s=0.05)
    again = scene.restored()
    assert again.memory.limit_share == scene.memory.limit_share
    assert again.memory.limit_use == scene.memory.limit_use
    assert again.told("u1", DAY) == scene.told("u1", DAY)


BEYOND = 0.1
MINUTE = 60.0


@pytest.fixture(scope="module", params=[honest, honest_limits])
def either_site(request: pytest.FixtureRequest) -> Scene:
    """24 users with 40 ended jobs each; limits tell little, or nearly all."""
    scene = Scene()
    request.param(scene)
    return scene


@pytest.mark.parametrize("accounts", [1, 2, 10])
@pytest.mark.parametrize(("run_s", "limit_s"), [(MINUTE, MINUTE), (1.0, 30 * DAY)])
def test_accounts_with_a_hundred_tiny_jobs_each_move_the_share_of_limits_little(
    either_site: Scene, accounts: int, run_s: float, limit_s: float
) -> None:
    scene = deepcopy(either_site)
    for number in range(accounts):
        scene.ends(f"evil{number}", [run_s] * 100, limit_s, gap_s=0.05)
    assert scene.memory.limit_share == pytest.approx(
        either_site.memory.limit_share, abs=BEYOND + 1e-9
    )
    for user in ("u1", "u3"):
        before = either_site.told(user, None).plan_s
        assert before / 3.0 <= scene.told(user, None).plan_s <= before * 3.0


def share_of(correlation: float) -> float:
    return 0.5 + 0.5 * min(max((correlation - 0.5) / 0.25, 0.0), 1.0)


def correlation(jobs: np.ndarray) -> float:
    logs = np.log1p(jobs)
    return 0.0 if np.ptp(logs, axis=0).min() < 1e-4 else float(np.corrcoef(logs.T)[0, 1])


runs = st.floats(1.0, 5e5)
ended_job = st.tuples(runs, st.floats(60.0, 2e6))


@examples(60)
@given(
    st.integers(0, 2**31),
    st.sampled_from((0.1, 1.0, 3.0)),
    st.lists(st.lists(ended_job, min_size=1, max_size=4), min_size=1, max_size=12),
)
def test_k_of_n_users_move_it_by_no_more_than_their_part(
    seed: int, spread: float, attackers: list[list[tuple[float, float]]]
) -> None:
    """Whatever they end, and however often: each says at most that limits tell all, or nothing."""
    draw, users = np.random.default_rng(seed), 15
    known, mine = LimitMemory(), []
    for user in range(users):
        run_s = draw.lognormal(8.0, 1.5, 25)
        jobs = np.column_stack([run_s, run_s * draw.lognormal(1.0, spread, 25)])
        mine.append(correlation(jobs))
        for ran_s, limit_s in jobs.tolist():
            known.note(user, ran_s, min(limit_s, 20 * DAY), 1.0)
    for number, some in enumerate(attackers):
        for _ in range(40):
            for ran_s, limit_s in some:
                known.note(100 + number, ran_s, limit_s, 1.0)
    n, k = users, len(attackers)
    slack = 0.05  # limits above 20 days are cut, and the oldest jobs count a little less
    low, high = ((sum(mine) + said * k) / (n + k) for said in (-1.0, 1.0))
    few = sum(mine) / n  # attackers with too few ends have no say
    assert share_of(min(low, few) - slack) - BEYOND <= known.share
    assert known.share <= share_of(max(high, few) + slack) + BEYOND
