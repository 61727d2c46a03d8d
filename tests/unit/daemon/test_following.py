"""Candidate and incumbent in turns: who is withdrawn, who is promoted, and what goes back."""

import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
from rltuned.daemon.breaker import BREAKERS, Breaker, Breakers, Cause, Pair, PairFigure

from rltuned.core.select import select
from rltuned.daemon import breaker
from rltuned.daemon.canary import CanaryStatus, sides_of
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.following import PAIRS, YOUNG_S, Following, RoleChange, Turn
from rltuned.daemon.wiring import build_rig, in_force
from rltuned.domain.jobs import Side
from rltuned.domain.units import JobId
from rltuned.policies.generations import TUNED, Generations, TunedOrder
from rltuned.settings import Flag, Loaded, Settings, from_flags
from rltuned.sim.backend import demo_backend
from tests.builders import job, snapshot, sure
from tests.switchback_world import MARGIN, World

RULE = TunedOrder(policy="delay", own=0.3, share=0.75, max_delay_s=86_400.0)
CLUSTER = "c"
NOW = 1_700_000_000.0


class Held:
    """A journal's named values, in memory."""

    def __init__(self) -> None:
        self.values: dict[str, object] = {}

    def recall(self, name: str) -> object:
        return self.values.get(name)

    def alter(self, name: str, change: Callable[[object], object], at: float) -> None:
        assert at > 0
        self.values[name] = change(self.values.get(name))


def settings(folder: Path, promote: str = "canary", stage: str = "full") -> Settings:
    return from_flags(
        (
            Flag("daemon.state_dir", folder, "test"),
            Flag("tune.promote", promote, "test"),
            Flag("ladder.stage", stage, "test"),
        )
    ).settings


@pytest.fixture
def store(tmp_path: Path) -> Generations:
    """With one generation in force, and a candidate."""
    found = Generations(tmp_path)
    found.promote(found.add(RULE, {}).name, at=NOW - 60 * 86_400.0)
    found.propose(found.add(RULE, {}).name, at=NOW)
    return found


def names(store: Generations) -> tuple[str | None, str | None]:
    return store.named_by("current"), store.named_by("candidate")


def test_without_a_trial_the_generation_in_force_is_followed(store: Generations) -> None:
    folder = store.folder.parent
    current, _ = names(store)
    for known in (
        settings(folder, "never"),
        settings(folder, "auto"),
        settings(folder, stage="shadow"),
    ):
        assert Following(known).turn(NOW) == Turn(current or "", None)
    store.withdraw(at=NOW)
    assert Following(settings(folder)).turn(NOW) == Turn(current or "", None)
    store.rollback(at=NOW)
    assert Following(settings(folder)).turn(NOW) == Turn("", None)


def test_on_trial_both_have_half_of_the_time_and_change_with_the_blocks(
    store: Generations,
) -> None:
    following = Following(settings(store.folder.parent))
    trial = sure(following.trial())
    turns = [following.turn(NOW + hour * 3_600.0).generation for hour in range(8 * 42)]
    assert {*turns} == {*names(store)}
    assert 0.4 < turns.count(trial.candidate) / len(turns) < 0.6
    changes = sum(a != b for a, b in pairwise(turns))
    assert 42 <= changes <= 84  # one within each pair, and some between two
    # the same for every partition, so that one order at a time is in force
    blocks = trial.switchback
    assert blocks.block("a", NOW) == blocks.block("b", NOW)


def test_on_trial_the_canary_s_off_blocks_are_the_incumbent_s(store: Generations) -> None:
    """Its delays are written, and its jobs are the canary's other side."""
    known = settings(store.folder.parent)
    named = known.policy.model_copy(update={"name": TUNED})
    loaded = in_force(Loaded(known.model_copy(update={"policy": named})), NOW)
    rig = build_rig(loaded, demo_backend(0, SystemClock()))
    rules = rig.knobs.rules
    assert rig.trial is not None
    assert rules.switchback == rig.trial.switchback
    assert rig.model == rig.trial.model
    hours = [NOW + hour * 3_600.0 for hour in range(16)]
    sides = []
    for at in hours:
        seen = snapshot(job(1, submitted_at=at, priority=1_000), taken_at=at)
        found = select(seen, replace(rules, min_age_s=0.0))
        assert [int(one.job_id) for one in found.chosen] == [1]
        sides.append(sides_of(seen, None, rules, writes=True)[JobId(1)])
    turns = [rig.trial.in_force(at) == rig.trial.candidate for at in hours]
    assert [side is Side.ON for side in sides] == turns
    assert set(turns) == {True, False}


def tried(
    store: Generations, world: World, seed: int, pairs: int = PAIRS + 10
) -> tuple[RoleChange | None, int, Held]:
    """What becomes of a candidate under which waits are multiplied by the world's harm."""
    following, memory = Following(settings(store.folder.parent)), Held()
    trial = sure(following.trial())
    made = world.pairs(np.random.default_rng(seed))
    for number, (on, off) in enumerate(islice(made, pairs), 1):
        pair = Pair("gpu", PairFigure(on, off), PairFigure({}, {}))

        def alter(before: Breakers, pair: Pair = pair) -> Breakers:
            return breaker.weigh(before, pair, margin=MARGIN, at=NOW, model=trial.model)

        known = breaker.change(memory, CLUSTER, alter, NOW)
        opened = tuple(name for name, one in known.items() if one.is_open)
        status = CanaryStatus(
            breakers=known,
            opened=opened,
            pairs=(pair,),
            effect=breaker.effect(known, trial.model),
        )
        moved = following.judge(memory, CLUSTER, status, trial, NOW)
        if moved is not None:
            return moved, number, memory
    return None, pairs, memory


def test_a_candidate_that_does_harm_is_withdrawn_and_its_breaker_closed(
    store: Generations, capsys: pytest.CaptureFixture[str]
) -> None:
    current, candidate = names(store)
    blocks = []
    for seed in range(10):
        moved, pairs, memory = tried(store, World(harm=3.0), seed)
        assert moved is not None
        assert (moved.what, moved.generation) == ("withdrawn", candidate)
        assert names(store) == (current, None)
        assert not any(b.is_open for b in BREAKERS.read(memory).get(CLUSTER, {}).values())
        blocks.append(2 * pairs)
        store.propose(str(candidate), at=NOW)
    with capsys.disabled():
        words = f"waits three times as long: withdrawn after {sorted(blocks)} blocks of 4 h"
        sys.stdout.write(f"\n{words}\n")
    assert max(blocks) <= 2 * PAIRS


def test_a_candidate_that_helps_is_promoted(store: Generations) -> None:
    current, candidate = names(store)
    moved, pairs, _ = tried(store, World(harm=0.3, jobs=30.0), 1)
    assert moved is not None
    assert moved.what == "promoted"
    assert "it helps" in moved.detail
    assert pairs == PAIRS
    assert store.named_by("current") == candidate
    assert store.named_by("previous") == current
    assert store.named_by("candidate") is None
    assert "it helps" in str(store.log()[-1]["why"])


def test_a_candidate_that_changes_nothing_is_seldom_promoted(store: Generations) -> None:
    current, candidate = names(store)
    promoted = 0
    for seed in range(60):
        moved, pairs, _ = tried(store, World(), seed)
        if sure(moved).what == "promoted":
            promoted += 1
            store.promote(str(current), at=NOW)
        else:
            assert pairs <= PAIRS
        store.propose(str(candidate), at=NOW)
    assert promoted <= 4  # one look at 2.5%


@pytest.mark.parametrize(
    ("cause", "age_s", "back"),
    [
        (Cause.WAIT, 86_400.0, True),
        (Cause.SLOWDOWN, 86_400.0, True),
        (Cause.ERRORS, 86_400.0, False),
        (Cause.WAIT, YOUNG_S + 1.0, False),
    ],
)
def test_a_young_generation_goes_when_a_breaker_opens_for_longer_waits(
    store: Generations, cause: Cause, age_s: float, back: bool
) -> None:
    before, young = names(store)
    store.promote(at=NOW - age_s)
    following, memory = Following(settings(store.folder.parent, "never")), Held()
    opened = Breaker().opened(cause, "a longer wait", NOW)
    known = breaker.change(memory, CLUSTER, lambda _before: {"gpu": opened}, NOW)
    status = CanaryStatus(breakers=known, opened=("gpu",))
    moved = following.judge(memory, CLUSTER, status, None, NOW)
    left = BREAKERS.read(memory).get(CLUSTER, {})
    if back:
        assert moved == RoleChange("rolled_back", str(young), "gpu: a longer wait")
        assert names(store) == (before, None)
        assert not left  # the one before may order again
    else:
        assert moved is None
        assert store.named_by("current") == young
        assert left["gpu"].is_open
