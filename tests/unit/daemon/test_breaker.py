"""What opens a circuit breaker and who closes it; the effect; what becomes of a candidate."""

import sys
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from rltuned.core.ladder import Evidence
from rltuned.core.select import select
from rltuned.daemon import breaker
from rltuned.daemon.breaker import (
    BREAKERS,
    FEWEST,
    Breaker,
    Breakers,
    Cause,
    Effect,
    Pair,
    PairFigure,
)
from rltuned.daemon.canary import CanaryStatus, sides_of
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.following import PAIRS, YOUNG_S, BlockTrial, Following
from rltuned.daemon.wiring import build_rig, in_force
from rltuned.domain.jobs import Side
from rltuned.domain.plan import HELD, Outcome, Result
from rltuned.domain.units import JobId
from rltuned.journal.journal import Journal
from rltuned.policies.generations import TUNED, Generations, TunedOrder
from rltuned.settings import Flag, Loaded, Settings, from_flags
from rltuned.sim.backend import demo_backend
from tests.builders import NOW, job, set_priority, snapshot, sure
from tests.switchback_world import MARGIN, World

MOST = 3


def outcomes(*results: Result, partition: str = "gpu") -> dict[str, str]:
    """One change to a job of each user."""
    jobs = [job(i, partition=partition, user=f"u{i}") for i in range(1, len(results) + 1)]
    reply = [Outcome(set_priority(j, 9), r, "no") for j, r in zip(jobs, results, strict=True)]
    return breaker.failing(jobs, reply)


A, F, G, R = Result.APPLIED, Result.FAILED, Result.GONE, Result.REFUSED


@pytest.mark.parametrize(
    ("results", "fails"),
    [
        ((A, A), False),
        ((R, A), False),
        ((R, F, A), True),
        ((G, G), False),
        ((F, G), False),
        ((F, F, G), True),
        ((F,), False),
    ],
)
def test_a_partition_fails_when_most_changes_do(results: tuple[Result, ...], fails: bool) -> None:
    assert bool(outcomes(*results).get("gpu")) is fails


def test_what_was_not_sent_says_nothing() -> None:
    withheld = Result.WITHHELD
    assert outcomes(withheld, withheld) == {}
    assert outcomes(R, withheld) == outcomes(R)


def test_a_job_of_two_partitions_counts_in_both() -> None:
    both = [job(n, partitions=("gpu", "long"), user=f"u{n}") for n in (1, 2)]
    failed = [Outcome(set_priority(j, 9), F, "reads back 7") for j in both]
    out = "changes not taken, of 2 of 2 users: reads back 7"
    assert breaker.failing(both, failed) == dict.fromkeys(("gpu", "long"), out)


def test_a_job_that_is_held_by_now_says_nothing_and_a_lack_of_rights_everything() -> None:
    one = job(1)
    held = Outcome(set_priority(one, 9), R, HELD)
    assert breaker.failing([one], [held]) == {}
    refused = Outcome(set_priority(one, 9), R, "slurm_update error: Access/permission denied")
    assert "1 of 1 users" in breaker.failing([one], [refused])["gpu"]


def pair(on_s: float, off_s: float, partition: str = "gpu") -> Pair:
    """Three users, and slowdowns that are all alike."""
    on, off = (dict.fromkeys("abc", wait_s) for wait_s in (on_s, off_s))
    return Pair(
        partition,
        PairFigure(on, off),
        PairFigure(dict.fromkeys("abc", 1.0), dict.fromkeys("abc", 1.0)),
    )


def weighed(state: breaker.Breakers, *pairs: Pair, model: str = "one") -> dict[str, Breaker]:
    for one in pairs:
        state = breaker.weigh(state, one, margin=0.0, at=NOW, model=model)
    return dict(state)


def test_errors_in_a_row_open_it_and_one_good_cycle_in_between_does_not() -> None:
    bad, good = outcomes(F, F), outcomes(A, A)
    state: Breakers = {}
    for failures in (bad, bad, good, bad, bad):
        state = breaker.count_errors(state, failures, MOST, NOW)
    assert not state["gpu"].is_open
    state = breaker.count_errors(state, bad, MOST, NOW)
    assert state["gpu"].cause is Cause.ERRORS
    assert "3 cycles in a row: changes not taken, of 2 of 2 users: no" in state["gpu"].detail
    assert breaker.count_errors(state, good, MOST, NOW + 60) == state  # it stays open


def test_a_pair_with_one_block_empty_or_with_one_user_is_no_evidence() -> None:
    nothing = PairFigure({}, {})
    assert weighed({}, Pair("gpu", PairFigure({"a": 1.0}, {}), nothing)) == {}
    alone = weighed({}, Pair("gpu", PairFigure({"a": 9.0}, {"a": 1.0}), nothing))
    assert alone["gpu"].harm == {}


def open_one(folder: Path, cluster: str = "c", partition: str = "gpu") -> None:
    def alter(old: breaker.Breakers) -> breaker.Breakers:
        state = {**old, partition: Breaker().opened(Cause.ERRORS, "why", NOW)}
        return {**state, "calm": Breaker(errors=2, harm={Cause.WAIT: Evidence(7.5, 3)})}

    journal = Journal(folder)
    breaker.change(journal, cluster, alter, NOW)
    journal.close()


def test_a_person_and_the_daemon_at_once_lose_nothing_of_each_other(tmp_path: Path) -> None:
    """The daemon weighs a block while `rltuned breaker reset` runs in another process."""
    open_one(tmp_path)
    daemon = Journal(tmp_path)
    closed: list[list[tuple[str, str]]] = []

    def close_it() -> None:
        person = Journal(tmp_path)
        closed.append(breaker.reset(person, "gpu", NOW + 1))
        person.close()

    reset = Thread(target=close_it)

    def weigh(old: breaker.Breakers) -> breaker.Breakers:
        reset.start()
        reset.join(timeout=0.2)  # it cannot end before we have
        assert not closed
        return {**old, "long": Breaker(errors=1)}

    breaker.change(daemon, "c", weigh, NOW)
    reset.join()
    assert closed == [[("c", "gpu")]]
    left = breaker.breakers(daemon, "c")
    assert set(left) == {"calm", "long"}
    assert left["long"].errors == 1


def effect(pairs: Iterable[tuple[float, float]]) -> Effect:
    return sum((Effect.of(*pair) for pair in pairs), Effect())


def test_figures_by_hand() -> None:
    found = effect([(100.0, 130.0)] * 5) + effect([(100.0, 110.0)] * 5)
    assert found.interval_s == pytest.approx((-20.0, -27.54, -12.46), abs=0.02)
    assert found.verdict == (
        "it helps: mean wait 100 s in on blocks, 120 s in off blocks of 10 pairs, -20 s, "
        "95 % interval -28 to -12 s"
    )
    assert found.document()["low_s"] == pytest.approx(-27.54, abs=0.02)
    few = effect([(1.0, 2.0)] * (FEWEST - 1))
    assert few.interval_s is None
    assert few.verdict == f"{FEWEST - 1} of {FEWEST} pairs of blocks are measured"
    assert Effect().document()["on_s"] is None


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Neighbouring blocks wait alike; delays do nothing."""
    rng = np.random.default_rng(2)
    missed = 0
    for _ in range(400):
        level = np.cumsum(rng.normal(0.0, 0.2, 120)) / 3
        waits = rng.lognormal(5.0 + level, 0.7).reshape(-1, 2)
        pairs = [tuple(pair) if rng.random() < 0.5 else tuple(pair[::-1]) for pair in waits]
        found = sure(effect(pairs).interval_s)
        missed += not found[1] <= 0 <= found[2]
    assert missed / 400 < 0.08


RULE = TunedOrder(policy="delay", own=0.3, share=0.75, max_delay_s=86_400.0)
CLUSTER = "c"


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


def trial_of(store: Generations) -> BlockTrial:
    return sure(Following(settings(store.folder.parent)).turn(NOW)[1])


def test_without_a_trial_the_generation_in_force_is_followed(store: Generations) -> None:
    folder = store.folder.parent
    current, _ = names(store)
    for promote, stage in (("never", "full"), ("auto", "full"), ("canary", "shadow")):
        assert Following(settings(folder, promote, stage)).turn(NOW) == (current, None)
    store.withdraw(at=NOW)
    assert Following(settings(folder)).turn(NOW) == (current, None)
    store.rollback(at=NOW)
    assert Following(settings(folder)).turn(NOW) == ("", None)


def test_on_trial_both_have_half_of_the_time_and_change_with_blocks(store: Generations) -> None:
    following, trial = Following(settings(store.folder.parent)), trial_of(store)
    turns = [following.turn(NOW + hour * 3_600.0)[0] for hour in range(8 * 42)]
    assert {*turns} == {*names(store)}
    assert 0.4 < turns.count(trial.candidate) / len(turns) < 0.6
    changes = sum(a != b for a, b in pairwise(turns))
    assert 42 <= changes <= 84  # one within each pair, and some between two
    # the same for every partition, so that one order at a time is in force
    blocks = trial.switchback
    assert blocks.block("a", NOW) == blocks.block("b", NOW)
    # what users see, the name, does not tell the blocks
    assert blocks.salt == store.read(trial.candidate).digest


def test_on_trial_the_canary_s_off_blocks_are_the_incumbent_s(store: Generations) -> None:
    """Its delays are written, and its jobs are the canary's other side."""
    known = settings(store.folder.parent)
    named = known.policy.model_copy(update={"name": TUNED})
    loaded = in_force(Loaded(known.model_copy(update={"policy": named})), NOW)
    rig = build_rig(loaded, demo_backend(0, SystemClock()))
    rules, trial = rig.knobs.rules, sure(rig.trial)
    assert (rules.switchback, rig.model) == (trial.switchback, trial.model)
    for at in (NOW + hour * 3_600.0 for hour in range(16)):
        seen = snapshot(job(1, submitted_at=at, priority=1_000), taken_at=at)
        found = select(seen, replace(rules, min_age_s=0.0))
        assert [int(one.job_id) for one in found.chosen] == [1]
        side = sides_of(seen, None, rules, writes=True)[JobId(1)]
        is_on = sure(rig.following).turn(at)[0] == trial.candidate
        assert side is (Side.ON if is_on else Side.OFF)


def tried(
    store: Generations, world: World, seed: int, pairs: int = PAIRS + 10
) -> tuple[dict[str, str], int, Journal]:
    """What becomes of a candidate under which waits are multiplied by the world's harm."""
    following, memory = Following(settings(store.folder.parent)), Journal(store.folder.parent)
    trial = trial_of(store)
    made = world.pairs(np.random.default_rng(seed))
    for number, (on, off) in enumerate(islice(made, pairs), 1):
        pair = Pair("gpu", PairFigure(on, off), PairFigure({}, {}))

        def alter(before: Breakers, pair: Pair = pair) -> Breakers:
            return breaker.weigh(before, pair, margin=MARGIN, at=NOW, model=trial.model)

        known = breaker.change(memory, CLUSTER, alter, NOW)
        opened = tuple(name for name, one in known.items() if one.is_open)
        status = CanaryStatus(
            breakers=known, opened=opened, pairs=(pair,), effect=breaker.effect(known, trial.model)
        )
        moved = following.judge(memory, CLUSTER, status, trial, NOW)
        if moved is not None:
            return moved, number, memory
    return {}, pairs, memory


def test_a_candidate_that_does_harm_is_withdrawn_and_its_breaker_closed(
    store: Generations, capsys: pytest.CaptureFixture[str]
) -> None:
    current, candidate = names(store)
    blocks = []
    for seed in range(10):
        moved, pairs, memory = tried(store, World(harm=3.0), seed)
        assert (moved["what"], moved["generation"]) == ("withdrawn", candidate)
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
    assert moved["what"] == "promoted"
    assert "it helps" in moved["detail"]
    assert pairs == PAIRS
    assert names(store) == (candidate, None)
    assert store.named_by("previous") == current
    assert "it helps" in str(store.log()[-1]["why"])


def test_a_candidate_that_changes_nothing_is_seldom_promoted(store: Generations) -> None:
    current, candidate = names(store)
    promoted = 0
    for seed in range(60):
        moved, pairs, _ = tried(store, World(), seed)
        assert pairs <= PAIRS
        if moved["what"] == "promoted":
            promoted += 1
            store.promote(str(current), at=NOW)
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
    following, memory = (
        Following(settings(store.folder.parent, "never")),
        Journal(store.folder.parent),
    )
    opened = Breaker().opened(cause, "a longer wait", NOW)
    known = breaker.change(memory, CLUSTER, lambda _before: {"gpu": opened}, NOW)
    status = CanaryStatus(breakers=known, opened=("gpu",))
    moved = following.judge(memory, CLUSTER, status, None, NOW)
    left = BREAKERS.read(memory).get(CLUSTER, {})
    if back:
        assert moved == {
            "what": "rolled_back", "generation": young, "detail": "gpu: a longer wait"
        }  # fmt: skip
        assert names(store) == (before, None)
        assert not left  # the one before may order again
    else:
        assert moved is None
        assert store.named_by("current") == young
        assert left["gpu"].is_open
