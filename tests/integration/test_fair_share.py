"""`Priority=` under multifactor with fair share on a real Slurm: what the base is worth now."""

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from rltuned.core.decide import Knobs, decide
from rltuned.core.numbers import Writing, base_now
from rltuned.core.order import Order
from rltuned.core.refusals import Refusal
from rltuned.core.select import Scope
from rltuned.daemon.apply import PlanApplier
from rltuned.daemon.clock import SystemClock
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import Result
from rltuned.domain.snapshot import Snapshot
from rltuned.journal.journal import Journal
from rltuned.policies.baselines import BASELINES
from rltuned.slurm.backend import SlurmBackend
from tests import accounting
from tests.builders import marked_by, sure
from tests.clusters import cluster, world_of
from tests.integration.site import no_stopwatch
from tests.lab import SlurmLab

pytestmark = pytest.mark.slurm

USERS = ("games", "news", "mail", "backup")
WEIGHTS = ("PriorityWeightAge=1000", "PriorityMaxAge=1-0", "PriorityWeightFairShare=50000")
"""A point is 86 s of age: within PriorityCalcPeriod, a minute at least, age moves by one point."""
KNOBS = Knobs(
    rules=Scope(min_age_s=0.0), order=Order(own=1.0, share=0.0), writing=Writing(mode="priority")
)
RECALCULATED_S = 300.0


@pytest.fixture(scope="module")
def lab() -> Iterator[SlurmLab]:
    rows = [(f"add account of_{user}", f"add user {user} account=of_{user}") for user in USERS]
    with cluster(*chain(*rows), accounting=True, extra=WEIGHTS) as started:
        yield started


@pytest.fixture(autouse=True)
def _empty(lab: SlurmLab) -> None:
    lab.clear()


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with closing(Journal(tmp_path)) as made:
        yield made


def block(lab: SlurmLab) -> int:
    """A job of the first user that takes the node."""
    blocker = submit(lab, USERS[0], "-t60")
    lab.wait_for(lambda: lab.state(blocker) == "R", "the node is busy")
    return blocker


def submit(lab: SlurmLab, user: str, *options: str) -> int:
    words = ("--parsable", "--output=/dev/null", "--chdir=/", "-wm1", "-n4", *options)
    out = lab.run(*accounting.as_user(user), "sbatch", *words, "--wrap=sleep 600")
    return int(out)


def shown(world: SlurmBackend) -> dict[int, PendingJob]:
    return {int(j.job_id): j for j in world.observe().pending}


def wait_for_sprio(lab: SlurmLab, world: SlurmBackend, ours: set[int]) -> None:
    def all_live() -> bool:
        found = shown(world)
        return all(j in found and found[j].live for j in ours)

    lab.wait_for(all_live, "sprio shows the jobs")


def cycle(world: SlurmBackend, journal: Journal, ours: set[int], number: int) -> Snapshot:
    """One cycle that knows of these jobs alone, so that their twins stay as Slurm has them."""
    seen = marked_by(journal, world.observe())
    seen = replace(seen, pending=tuple(j for j in seen.pending if int(j.job_id) in ours))
    decision = decide(seen, BASELINES["sjf"], KNOBS)
    outcomes = PlanApplier(journal, SystemClock()).write(
        world, decision.plan, seen, number, no_stopwatch
    )
    assert {o.result for o in outcomes} <= {Result.APPLIED}, outcomes
    return seen


def test_the_base_of_a_frozen_job_follows_its_twin_when_usage_changes(
    lab: SlurmLab, journal: Journal
) -> None:
    world = world_of(lab, fair_shares=True)
    block(lab)
    limits = dict(zip(USERS, (10, 100, 400, 900), strict=True))
    twins = {submit(lab, u, f"-t{t}"): submit(lab, u, "-t30") for u, t in limits.items()}
    wait_for_sprio(lab, world, set(twins) | set(twins.values()))
    before = shown(world)
    cycle(world, journal, set(twins), 1)
    frozen = [j for j in twins if shown(world)[j].fixed]
    assert len(frozen) == 4

    def moved() -> bool:
        now = shown(world)
        return all(abs(now[t].priority - before[t].priority) > 1_000 for t in twins.values())

    lab.wait_for(moved, "usage counts", RECALCULATED_S)
    later = shown(world)
    assert len({later[t].priority for t in twins.values()}) > 1
    world = world_of(lab, fair_shares=True)  # sshare is new
    seen = cycle(world, journal, set(twins), 2)
    for job in seen.pending:
        base = base_now(job, seen.priorities, seen.taken_at)
        assert base == pytest.approx(shown(world)[twins[int(job.job_id)]].priority, abs=3)
    after = shown(world)
    assert all(abs(after[j].priority - later[j].priority) > 1_000 for j in frozen)


def test_a_job_that_sshare_does_not_know_keeps_its_number(lab: SlurmLab, journal: Journal) -> None:
    world = world_of(lab, fair_shares=True)
    block(lab)
    ours = {submit(lab, "news", "-t60"), submit(lab, "news", "-t10"), submit(lab, "news", "-t90")}
    stranger = submit(lab, "man", "-t900")
    wait_for_sprio(lab, world, {*ours, stranger})
    cycle(world, journal, {*ours, stranger}, 1)
    number = shown(world)[stranger].priority
    assert not shown(world)[stranger].live  # sprio leaves out what is fixed
    seen = cycle(world, journal, {*ours, stranger}, 2)
    refused = dict(decide(seen, BASELINES["sjf"], KNOBS).refused)
    assert refused == {stranger: Refusal.BASE_UNKNOWN}
    assert shown(world)[stranger].priority == number


def test_age_starts_again_when_a_frozen_job_is_requeued(lab: SlurmLab, journal: Journal) -> None:
    world = world_of(lab, fair_shares=True)
    blocker = block(lab)
    ours = {submit(lab, "news", "-t400"), submit(lab, "news", "-t10")}
    wait_for_sprio(lab, world, ours)
    first = cycle(world, journal, ours, 1)
    rests = {int(j.job_id): j.rest for j in first.pending}
    lab.run("scancel", str(blocker))
    lab.wait_for(lambda: "R" in {lab.state(j) for j in ours}, "one starts")
    (started,) = [j for j in ours if lab.state(j) == "R"]
    cycle(world, journal, ours, 2)
    at = time.time()
    lab.scontrol("requeue", str(started))
    lab.wait_for(lambda: started in shown(world), "it is back")
    cycle(world, journal, ours, 3)
    (job,) = [j for j in cycle(world, journal, ours, 4).pending if j.job_id == started]
    rest, system = rests[started], first.priorities
    assert sure(job.owned).rest == rest
    assert job.ages_since >= at - 1
    fresh = sure(rest) + sure(job.fair)
    assert base_now(job, system, at) == pytest.approx(fresh, abs=1)
    assert base_now(job, system, job.ages_since + 43_200) == pytest.approx(fresh + 500, abs=1)


def test_the_number_that_a_job_has_fixes_nothing(lab: SlurmLab) -> None:
    """Slurm takes `Priority=` of the present number for no change. Such a write is never sent."""
    world = world_of(lab)
    block(lab)
    waiting = submit(lab, "news")
    number = shown(world)[waiting].priority
    lab.scontrol("update", f"JobId={waiting}", f"Priority={number}")
    assert not shown(world)[waiting].fixed
    lab.scontrol("update", f"JobId={waiting}", f"Priority={number + 1}")
    assert shown(world)[waiting].fixed
