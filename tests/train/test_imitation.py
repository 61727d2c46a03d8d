"""Known orders are learned from a rule, from accounting data and from a journal, and nothing later
than a start is read.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from rltuned.core.order import Order, clip_s
from rltuned.domain.jobs import Ownership
from rltuned.domain.snapshot import Context, Snapshot
from rltuned.domain.units import UnixTime
from rltuned.errors import TraceError
from rltuned.journal.cycles import CycleObservation, recorded
from rltuned.journal.journal import Journal
from rltuned.journal.store import FILE_NAME
from rltuned.lab.cli.train import app
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train import imitation
from rltuned.lab.train.network import TorchActor
from rltuned.lab.train.rollout import MULTIFACTOR
from rltuned.lab.train.settings import Fitting
from rltuned.policies.actor import load_actor
from rltuned.policies.baselines import BASELINES
from rltuned.sim.backend import snapshot_of
from rltuned.sim.cluster import parse_cluster, preset
from rltuned.sim.synth import synthesize
from rltuned.sim.world import Pending, World
from rltuned.slurm.accounting import SacctRecord
from tests.builders import NOW, job, running, sight, snapshot
from tests.train.worlds import CLUSTER, play_rule, single_jobs

QUICK, SMALL = Fitting(epochs=15), 64


# A rule's order


@pytest.mark.parametrize(("name", "least"), [("saf", 0.93), ("sjf", 0.93), ("fcfs", 0.92)])
def test_a_known_rule_is_recovered_as_far_as_the_bounds_allow(name: str, least: float) -> None:
    rule = BASELINES[name]
    network, losses = imitation.fit(imitation.rule_orders(rule, 200, 1, SMALL), QUICK)
    unseen = imitation.rule_orders(rule, 60, 2, SMALL)
    _, mean, lowest = imitation.agreement(network, unseen)
    assert mean >= least
    by_rule = imitation.agreement(TorchActor("queue", (4, 4), QUICK.reach), unseen)[1]
    assert mean > by_rule or by_rule > 0.95, "the rule itself orders by area"
    assert lowest <= mean
    assert losses[-1] < losses[0]


def test_the_same_settings_give_the_same_weights() -> None:
    orders = imitation.rule_orders(BASELINES["sjf"], 32, 1, SMALL)
    first, second = (
        imitation.fit(orders, replace(QUICK, epochs=2))[0].state_dict() for _ in range(2)
    )
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_loss_is_the_mean_over_the_known_pairs() -> None:
    scores = torch.tensor([[2.0, 1.0, 0.0, 9.0]])
    masks = torch.tensor([[True, True, True, False]])
    ranks = torch.tensor([[1, 0, 2, 3]])
    wanted = np.mean([np.log1p(np.exp(-d)) for d in (1.0 - 2.0, 1.0 - 0.0, 2.0 - 0.0)])
    assert float(imitation.pairwise_loss(scores, masks, ranks)) == pytest.approx(wanted)
    # of a choice only the pairs of the chosen one count
    first = np.mean([np.log1p(np.exp(-d)) for d in (1.0 - 2.0, 1.0 - 0.0)])
    assert float(imitation.pairwise_loss(scores, masks, ranks, known=1)) == pytest.approx(first)


def test_agreement_counts_pairs() -> None:
    class Rows(torch.nn.Module):
        reach = 1.0

        def forward(self, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return values[..., :1].masked_fill(~mask[..., None], -1e9)

    asked = torch.zeros(1, 4, 4)
    asked[0, :, 0] = torch.tensor([3.0, 1.0, 2.0, 7.0])  # they waited so long
    mask, ranks = torch.tensor([[True, True, True, False]]), torch.tensor([[0, 1, 2, 3]])
    orders = imitation.OrderedQueues(torch.zeros(1, 4, 8), asked, mask, ranks)
    # of the pairs (0,1) (0,2) (1,2) the last one is turned round
    assert imitation.agreement(Rows(), orders) == pytest.approx((2 / 3, 2 / 3, 2 / 3))  # type: ignore[arg-type]
    # of a choice only the pairs of the chosen one count
    assert imitation.agreement(Rows(), replace(orders, known=1))[0] == 1.0  # type: ignore[arg-type]


def test_generated_queues_are_valid_eligible_and_varied() -> None:
    draw = np.random.default_rng(5)
    worlds = [imitation.random_snapshot(draw, 40) for _ in range(30)]
    assert len({len(w.pending) for w in worlds}) > 5
    assert any(w.running for w in worlds)
    assert {j.request.total.gpus for w in worlds for j in w.pending} >= {0, 1, 2, 8}
    assert all(j.eligible_at == j.submitted_at < w.taken_at for w in worlds for j in w.pending)


# A site's accounting data


EPOCH = 1_700_000_000
ORDER = Order(share=0.0)
"""So that a rule's order never changes."""
WORKLOAD = Scenario.of(parse_cluster(CLUSTER, "one", "one"), single_jobs(900))
MIXED = Scenario.of(
    preset("testbed"), synthesize("testbed-1024", jobs=2_000, seed=3, limits="weak").jobs
)


def record(key: int, start_s: float, **changes: Any) -> SacctRecord:
    """A job that was submitted and eligible at 0, and asked for two GPUs on a node for a minute."""
    plain = SacctRecord(
        key=str(key), submit_s=0.0, eligible_s=0.0, start_s=start_s, end_s=start_s + 5, state="",
        limit_s=60.0, gpus=2, gpu_types=(), cpus=2, mem_mib=0, nodes=1, alloc_gpus=2, alloc_cpus=2,
        partition="gpu", user="", account="", qos="", where="", priority=None, main=True,
    )  # fmt: skip
    return replace(plain, **changes)


def virtual_s(rule: str, window: Scenario) -> np.ndarray:
    """(n,) by which a site orders its queue, smaller first; multifactor's points as seconds."""
    matrix = window.matrix()
    if rule == "multifactor":
        share = matrix.gpus / window.prepared.cluster_gpus
        each_s = MULTIFACTOR.max_age_s / MULTIFACTOR.age_weight
        return window.submit_s - each_s * MULTIFACTOR.size_weight * share
    bound_s = np.minimum(clip_s(matrix.length_s, matrix.size, ORDER), ORDER.max_delay_s)
    found: np.ndarray = window.submit_s + np.minimum(
        ORDER.own * BASELINES[rule].own(matrix), bound_s
    )
    return found


def history_of(rule: str, workload: Scenario = WORKLOAD, load: float = 1.3) -> list[SacctRecord]:
    """What a site that orders its queue by a rule's delays would have in its accounting data."""
    window = workload.cut(0, len(workload), load=load)
    submit_s, starts, key = window.submit_s, play_rule(window, rule, ORDER), virtual_s(rule, window)
    ends, found = starts + window.prepared.jobs.runs_s, []
    for i in np.lexsort((np.arange(len(starts)), starts)).tolist():
        asked, at = window.prepared.requests[i], float(starts[i])
        # sacct's Flags tell backfill apart; here: somebody better was left waiting
        better = ((submit_s <= at) & (starts > at) & (key < key[i])).any()
        found.append(
            record(
                i + 1, at, submit_s=float(submit_s[i]), eligible_s=float(submit_s[i]),
                end_s=float(ends[i]), limit_s=asked.time_limit_s, gpus=asked.total.gpus,
                gpu_types=asked.gpu_types, cpus=asked.total.cpus, mem_mib=asked.total.mem_mib,
                nodes=asked.nodes, main=not better,
            )
        )  # fmt: skip
    return found


@pytest.mark.parametrize("rule", ["fcfs", "sjf", "saf", "multifactor"])
def test_a_known_scheduler_is_recovered(rule: str) -> None:
    history = history_of(rule, MIXED, 1.2)
    earlier, later = imitation.choices_of(imitation.in_history(history, 13), ORDER).split(0.8)
    assert len(later) > 50
    assert imitation.agreement(imitation.fit(earlier, imitation.FITTING)[0], later)[0] >= 0.95


def test_who_could_not_have_had_the_place_is_no_rival() -> None:
    def rivals(chosen: dict[str, Any], other: dict[str, Any]) -> int:
        history = []
        for k in range(imitation.FEWEST_STARTS):
            history += [record(1, 10.0 * k, **chosen), record(2, 1e6, **other)]
        # the last of them were all left waiting, so the first moment has each of them as a rival
        try:
            return int(imitation.choices_of(imitation.in_history(history, 8)).masks[0].sum()) - 1
        except TraceError:
            return 0

    typed, other, plain = {"gpu_types": ("a100",)}, {"gpu_types": ("t4",)}, dict[str, Any]()
    assert rivals(typed, typed) > 0
    assert rivals(typed, other) == 0
    assert rivals(typed, plain) > 0
    assert rivals(plain, typed) == 0
    assert rivals({"nodes": 2}, plain) == 0
    assert rivals(plain, {"gpus": 1, "cpus": 3}) == 0


def test_nothing_later_than_the_start_is_read() -> None:
    history = history_of("fcfs")[:450]
    moment = history[300].start_s or 0.0
    before = [j for j in history if (j.start_s or 0.0) <= moment]
    rest = history[len(before) :]
    shuffled = [replace(j, start_s=(j.start_s or 0) + 7e5, end_s=9e8) for j in rest]
    longer = [replace(j, end_s=9e8) if (j.end_s or 0) > moment else j for j in before]
    one = imitation.choices_of(imitation.in_history([*before, *rest], 16))
    other = imitation.choices_of(imitation.in_history([*longer, *shuffled], 16))
    count = sum(j.main for j in before) // 2
    assert torch.equal(one.values[:count], other.values[:count])
    assert torch.equal(one.ranks[:count], other.ranks[:count])


def test_the_command_learns_from_accounting_data(tmp_path: Path) -> None:
    rows = ["JobIDRaw|Submit|Eligible|Start|End|Partition|ReqTRES|TimelimitRaw|Flags"]
    for j in history_of("fcfs"):
        flag, limit = "SchedMain" if j.main else "SchedBackfill", int(j.limit_s // 60)
        times = (
            f"{EPOCH + (at or 0.0):.0f}" for at in (j.submit_s, j.eligible_s, j.start_s, j.end_s)
        )
        asked = "billing=1,cpu=4,gres/gpu=1,gres/gpu:a100=1,node=1"
        rows.append(f"{j.key}|{'|'.join(times)}|gpu|{asked}|{limit}|{flag}")
    rows.append("9999|100|100|Unknown|Unknown|gpu|cpu=1|UNLIMITED|")
    data, out = tmp_path / "sacct.txt", tmp_path / "site"
    data.write_text("\n".join(rows) + "\n")
    given = ["imitate", str(data), "--gpus", "16", "--out", str(out)]
    result = CliRunner().invoke(app, given, catch_exceptions=False)
    assert result.exit_code == 0
    # under the default order less than above: the paper network does not see the backlog
    assert load_actor(out).card.results["held_out_pairwise_agreement"] >= 0.75
    data.write_text("\n".join(rows[:40]).replace("|Flags", ""))
    again = CliRunner().invoke(app, [*given[:-1], str(tmp_path / "other")])
    assert "no column 'Flags'" in str(again.exception)
    data.write_text("\n".join(rows[:40]))
    again = CliRunner().invoke(app, [*given[:-1], str(tmp_path / "other")])
    assert "had rivals; 50 are needed" in str(again.exception)


def test_a_rule_is_learned_and_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    out = tmp_path / "saf"
    given = ["imitate", "saf", "--out", str(out), "--queues", "16", "--epochs", "1"]
    assert CliRunner().invoke(app, given, catch_exceptions=False).exit_code == 0
    assert load_actor(out).card.training.teacher == "saf"
    result = CliRunner().invoke(app, ["imitate", "nothing", "--out", str(tmp_path / "x")])
    assert "nothing: no rule" in str(result.exception)


# A daemon's journal


@cache
def looks() -> tuple[Snapshot, ...]:
    """What a daemon that only watches sees of a Slurm whose priorities delay a job by its limit."""

    def order(world: World) -> list[Pending]:
        def virtual_s(waits: Pending) -> float:
            return waits.job.submit_s + 0.1 * (waits.request.time_limit_s or 0.0)

        return sorted(world.pending.values(), key=lambda p: (virtual_s(p), p.number))

    jobs = [replace(j, submit_s=NOW + j.submit_s * 0.6) for j in single_jobs(900)]
    world = World(parse_cluster(CLUSTER, "one", "one"), jobs, order=order)
    seen = []
    for now in np.arange(NOW + 60.0, jobs[-1].submit_s + 60.0, 60.0).tolist():
        world.advance(now)
        rank = {p.number: place for place, p in enumerate(order(world))}
        shown = snapshot_of(world)
        pending = tuple(replace(j, priority=10_000 - rank[j.job_id]) for j in shown.pending)
        seen.append(replace(shown, pending=pending))
    return tuple(seen)


def records(seen: Iterable[Snapshot]) -> list[CycleObservation]:
    return [CycleObservation(cycle, 0.0, "dry_run", each) for cycle, each in enumerate(seen, 1)]


def journal_of(folder: Path, seen: Iterable[Snapshot]) -> Path:
    journal = Journal(folder)
    for one in records(seen):
        at = one.snapshot.taken_at
        journal.keep(sight(one.snapshot, cycle=one.cycle, at=at, mode=one.mode))
    journal.close()
    return folder / FILE_NAME


def test_a_known_scheduler_is_recovered_from_a_journal(tmp_path: Path) -> None:
    path = journal_of(tmp_path, looks())
    earlier, later = imitation.choices_of(imitation.in_journal(recorded(path)), ORDER).split(0.7)
    assert len(later) > 50
    assert imitation.agreement(imitation.fit(earlier, imitation.FITTING)[0], later)[0] >= 0.95
    out = tmp_path / "site"
    given = ["imitate", str(path), "--out", str(out), "--epochs", "3"]
    result = CliRunner().invoke(app, given, catch_exceptions=False)
    assert load_actor(out).card.results["held_out_pairwise_agreement"] > 0.5
    assert f"{len(looks())} snapshots" in result.stdout


def test_nothing_later_than_a_look_is_seen() -> None:
    """Who started is read off the second look, and of what it says else nothing matters."""
    for before, later in pairwise(looks()[300:330]):
        other = replace(
            later,
            pending=tuple(
                replace(j, priority=j.priority + 77, reason="JobHeldAdmin", user="mallory")
                for j in later.pending
            ),
            running=tuple(
                replace(j, request=replace(j.request, time_limit_s=1.0), shares=())
                for j in later.running
            ),
            nodes=before.nodes,
        )
        one = list(imitation.in_journal(records([before, later])))
        assert one == list(imitation.in_journal(records([before, other])))
        assert all(moment[0] is before for moment in one)


FIRST = snapshot(
    job(1, priority=400), job(2, priority=300), job(3, priority=200, gpus=2), job(4, priority=100)
)


def after(*started: int, gone: tuple[int, ...] = (), seconds: float = 60.0) -> Snapshot:
    left = tuple(j for j in FIRST.pending if j.job_id not in {*started, *gone})
    known = {int(j.job_id): j.submitted_at for j in FIRST.pending}
    runs = [running(i, started_at=NOW + 5, submitted_at=known[i]) for i in started]
    return snapshot(*left, runs=runs, taken_at=NOW + seconds)


def preferences(*seen: Snapshot) -> list[tuple[int, set[int]]]:
    return [
        (int(queue[chosen].job_id), {int(queue[r].job_id) for r in rivals})
        for _, _, queue, chosen, rivals in imitation.in_journal(records(seen))
    ]


def test_the_started_is_preferred_to_who_would_have_fitted() -> None:
    assert preferences(FIRST, after(1)) == [(1, {2, 4})]
    assert preferences(FIRST, after(1, 2)) == [(1, {4}), (2, {4})]
    assert preferences(FIRST, after(3)) == []  # backfill: 1 and 2 stood before it
    assert preferences(FIRST, after(1, gone=(2,))) == [(1, {4})]
    assert preferences(FIRST, after(1, 2, 3, 4)) == []
    # looks that do not show one decision
    assert preferences(FIRST, after(1, seconds=301.0)) == []
    assert preferences(FIRST, replace(after(1), cluster="other")) == []
    assert preferences(after(1), FIRST) == []


def test_what_rltuned_wrote_to_teaches_nothing() -> None:
    ours = Ownership("priority", 400, original=100)
    pending = tuple(replace(j, owned=ours if j.job_id == 1 else None) for j in FIRST.pending)
    marked = replace(FIRST, pending=pending)
    assert preferences(marked, after(1)) == []
    assert preferences(marked, after(2)) == [(2, {4})]
    # a partition that was taken from rltuned teaches
    first = CycleObservation(1, 0.0, "live", FIRST, Context(demoted=("gpu",)))
    moments = imitation.in_journal([first, CycleObservation(2, 0.0, "live", after(1))])
    assert [chosen for _, _, _, chosen, _ in moments] == [0]


def test_a_requeued_job_is_not_taken_for_a_start() -> None:
    before = snapshot(job(1, submitted_at=NOW - 5, priority=9), job(2, priority=1))
    again = running(1, started_at=NOW + 5, submitted_at=UnixTime(NOW - 600))
    later = snapshot(job(2, priority=1), runs=[again], taken_at=NOW + 60)
    assert preferences(before, later) == []
