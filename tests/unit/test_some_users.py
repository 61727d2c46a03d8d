"""What some users together can move of how far limits count: no more than their part of all users.

docs/can-users-game-it.md has the figures.
"""

from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.limits import LimitMemory
from tests.examples import examples
from tests.scenes import DAY, Scene, honest, honest_limits

BEYOND = 0.1
MINUTE = 60.0


@pytest.fixture(scope="module", params=[honest, honest_limits])
def site(request: pytest.FixtureRequest) -> Scene:
    """24 users with 40 ended jobs each; limits tell little, or nearly all."""
    scene = Scene()
    request.param(scene)
    return scene


@pytest.mark.parametrize("accounts", [1, 2, 10])
@pytest.mark.parametrize(("run_s", "limit_s"), [(MINUTE, MINUTE), (1.0, 30 * DAY)])
def test_accounts_with_a_hundred_tiny_jobs_each_move_the_share_of_limits_little(
    site: Scene, accounts: int, run_s: float, limit_s: float
) -> None:
    """Two of them made it 0.91 in place of 0.50 before, and plans of jobs without a limit x7 to
    x20."""
    scene = deepcopy(site)
    for number in range(accounts):
        scene.ends(f"evil{number}", [run_s] * 100, limit_s, gap_s=0.05)
    assert scene.memory.limit_share == pytest.approx(site.memory.limit_share, abs=BEYOND + 1e-9)
    for user in ("u1", "u3"):
        before = site.told(user, None).plan_s
        assert before / 3.0 <= scene.told(user, None).plan_s <= before * 3.0


def share_of(correlation: float) -> float:
    return 0.5 + 0.5 * min(max((correlation - 0.5) / 0.25, 0.0), 1.0)


def correlation(jobs: np.ndarray) -> float:
    logs = np.log1p(jobs)
    return 0.0 if np.ptp(logs, axis=0).min() < 1e-4 else float(np.corrcoef(logs.T)[0, 1])


runs = st.floats(1.0, 5e5)
job = st.tuples(runs, st.floats(60.0, 2e6))


@examples(60)
@given(
    st.integers(0, 2**31),
    st.sampled_from((0.1, 1.0, 3.0)),
    st.lists(st.lists(job, min_size=1, max_size=4), min_size=1, max_size=12),
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
