"""Known orders are learned from a rule, from accounting data and from a journal, and nothing later
than a start is read.
"""

import dataclasses
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from rltuned.core.order import Order, clip_s
from rltuned.domain.cluster import Resources
from rltuned.domain.jobs import Ownership, PendingJob, Request, RunningJob
from rltuned.domain.snapshot import Context, Snapshot
from rltuned.domain.units import GpuType, UnixTime
from rltuned.errors import TraceError
from rltuned.journal.cycles import CycleObservation, recorded
from rltuned.journal.journal import Journal
from rltuned.journal.store import FILE_NAME
from rltuned.lab.backtest.sacct_files import lines_of, read_history
from rltuned.lab.cli.train import app
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.imitation import (
    COLUMNS,
    FEWEST_STARTS,
    FITTING,
    OrderedQueues,
    Started,
    agreement,
    choices_of,
    choices_of_journal,
    fit,
    moments_of,
    pairwise_loss,
    random_snapshot,
    rule_orders,
    started_of,
)
from rltuned.lab.train.network import TorchActor
from rltuned.lab.train.rollout import MULTIFACTOR, play_rule
from rltuned.lab.train.settings import Fitting
from rltuned.policies.actor import load_actor
from rltuned.policies.baselines import BASELINES
from rltuned.sim.backend import snapshot_of
from rltuned.sim.cluster import parse_cluster, preset
from rltuned.sim.dispatch import Pending
from rltuned.sim.synth import synthesize
from rltuned.sim.world import World
from tests.builders import NOW, job, running, sight, snapshot
from tests.train.worlds import CLUSTER, single_jobs

QUICK, SMALL = Fitting(epochs=15), 64


@pytest.mark.parametrize(("name", "least"), [("saf", 0.93), ("sjf", 0.93), ("fcfs", 0.92)])
def test_a_known_rule_is_recovered_as_far_as_the_bounds_allow(name: str, least: float) -> None:
    rule = BASELINES[name]
    network, losses = fit(rule_orders(rule, 200, 1, SMALL), QUICK)
    unseen = rule_orders(rule, 60, 2, SMALL)
    _, mean, lowest = agreement(network, unseen)
    assert mean >= least
    by_rule = agreement(TorchActor("queue", (4, 4), QUICK.reach), unseen)[1]
    assert mean > by_rule or by_rule > 0.95, "the rule itself orders by area"
    assert lowest <= mean
    assert losses[-1] < losses[0]


def test_the_same_settings_give_the_same_weights() -> None:
    few = dataclasses.replace(QUICK, epochs=2)
    orders = rule_orders(BASELINES["sjf"], 32, 1, SMALL)
    first, second = (fit(orders, few)[0].state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_loss_is_the_mean_over_the_known_pairs() -> None:
    scores = torch.tensor([[2.0, 1.0, 0.0, 9.0]])
    masks = torch.tensor([[True, True, True, False]])
    ranks = torch.tensor([[1, 0, 2, 3]])
    wanted = np.mean([np.log1p(np.exp(-d)) for d in (1.0 - 2.0, 1.0 - 0.0, 2.0 - 0.0)])
    assert float(pairwise_loss(scores, masks, ranks)) == pytest.approx(wanted)
    # of a choice only the pairs of the chosen one count
    first = np.mean([np.log1p(np.exp(-d)) for d in (1.0 - 2.0, 1.0 - 0.0)])
    assert float(pairwise_loss(scores, masks, ranks, known=1)) == pytest.approx(first)


def test_queues_keep_their_order_and_their_padding() -> None:
    rows, asked = np.ones((3, 8), np.float32), np.ones((3, 4), np.float32)
    orders = OrderedQueues.chosen([(rows, asked, 1), (rows[:2], asked[:2], 0)])
    assert orders.masks.sum(dim=1).tolist() == [3, 2]
    assert orders.ranks[0, :3].tolist() == [1, 0, 2]
    assert orders.known == 1
    earlier, later = orders.split(0.5)
    assert (len(earlier), len(later)) == (1, 1)
    assert later.masks.sum() == 2


def test_agreement_counts_pairs() -> None:
    class Rows(torch.nn.Module):
        reach = 1.0

        def forward(self, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return values[..., :1].masked_fill(~mask[..., None], -1e9)

    asked = torch.zeros(1, 4, 4)
    asked[0, :, 0] = torch.tensor([3.0, 1.0, 2.0, 7.0])  # they waited so long
    mask, ranks = torch.tensor([[True, True, True, False]]), torch.tensor([[0, 1, 2, 3]])
    orders = OrderedQueues(torch.zeros(1, 4, 8), asked, mask, ranks)
    # of the pairs (0,1) (0,2) (1,2) the last one is turned round
    assert agreement(Rows(), orders) == pytest.approx((2 / 3, 2 / 3, 2 / 3))  # type: ignore[arg-type]
    # of a choice only the pairs of the chosen one count
    first = dataclasses.replace(orders, known=1)
    assert agreement(Rows(), first)[0] == 1.0  # type: ignore[arg-type]


def test_generated_queues_are_valid_eligible_and_varied() -> None:
    draw = np.random.default_rng(5)
    worlds = [random_snapshot(draw, 40) for _ in range(30)]
    assert len({len(w.pending) for w in worlds}) > 5
    assert any(w.running for w in worlds)
    assert {j.request.total.gpus for w in worlds for j in w.pending} >= {0, 1, 2, 8}
    assert all(j.eligible_at == j.submitted_at < w.taken_at for w in worlds for j in w.pending)


def test_a_queue_of_a_rule_without_delays_is_the_order_of_submission() -> None:
    queues = rule_orders(BASELINES["fcfs"], 3, 1, SMALL)
    for asked, mask, ranks in zip(queues.asked, queues.masks, queues.ranks, strict=True):
        waits = asked[mask][:, 0]
        assert (waits[ranks[mask].argsort()].diff() <= 0).all()


EPOCH = 1_700_000_000
ORDER = Order(share=0.0)
"""So that a rule's order never changes."""


WORKLOAD = Scenario.of(parse_cluster(CLUSTER, "one", "one"), single_jobs(900))


MIXED = Scenario.of(
    preset("testbed"),
    synthesize("testbed-1024", jobs=2_000, seed=3, limits="weak").jobs,
)


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


def history_of(rule: str, workload: Scenario = WORKLOAD, load: float = 1.3) -> list[Started]:
    """What a site that orders its queue by a rule's delays would have in its accounting data."""
    count = len(workload)
    window = workload.cut(0, count, load=load)
    starts = play_rule(window, rule, ORDER)
    ends = starts + window.prepared.jobs.runs_s
    order = np.lexsort((np.arange(count), starts))
    key = virtual_s(rule, window)
    waiting_better = [
        ((window.submit_s <= starts[i]) & (starts > starts[i]) & (key < key[i])).any()
        for i in range(count)
    ]
    return [
        Started(
            job_id=int(i) + 1,
            submit_s=float(window.submit_s[i]),
            eligible_s=float(window.submit_s[i]),
            start_s=float(starts[i]),
            end_s=float(ends[i]),
            request=window.prepared.requests[i],
            # sacct's Flags tell backfill apart; here: somebody better was left waiting
            by_main=not waiting_better[i],
        )
        for i in order.tolist()
    ]


@pytest.mark.parametrize("rule", ["fcfs", "sjf", "saf", "multifactor"])
def test_a_known_scheduler_is_recovered(rule: str) -> None:
    history = history_of(rule, MIXED, 1.2)
    earlier, later = choices_of(history, 13, order=ORDER).split(0.8)
    assert len(later) > 50
    assert agreement(fit(earlier, FITTING)[0], later)[0] >= 0.95


def test_who_could_not_have_had_the_place_is_no_rival() -> None:
    a100, t4 = GpuType("a100"), GpuType("t4")
    two = Resources(2, 2, 0)

    def job(number: int, start_s: float, request: Request) -> Started:
        return Started(number, 0.0, 0.0, start_s, start_s + 5, request)

    def rivals(chosen: Request, other: Request) -> int:
        history = []
        for k in range(FEWEST_STARTS):
            history += [job(2 * k + 1, 10.0 * k, chosen), job(2 * k + 2, 1e6, other)]
        # the last of them were all left waiting, so the first moment has each of them as a rival
        try:
            return int(choices_of(history, 8).masks[0].sum()) - 1
        except TraceError:
            return 0

    typed = Request(two, 60.0, (a100,), 1)
    assert rivals(typed, typed) > 0
    assert rivals(typed, Request(two, 60.0, (t4,), 1)) == 0
    assert rivals(typed, Request(two, 60.0, (), 1)) > 0
    assert rivals(Request(two, 60.0, (), 1), typed) == 0
    assert rivals(Request(two, 60.0, (), 2), Request(two, 60.0, (), 1)) == 0
    assert rivals(Request(two, 60.0, (), 1), Request(Resources(1, 3, 0), 60.0, (), 1)) == 0


def test_nothing_later_than_the_start_is_read() -> None:
    history = history_of("fcfs")[:450]
    moment = history[300].start_s
    before = [j for j in history if j.start_s <= moment]
    rest = [j for j in history if j.start_s > moment]
    shuffled = [replace(j, start_s=j.start_s + 7e5, end_s=j.end_s + 9e5) for j in rest]
    longer = [replace(j, end_s=j.end_s + 1e6) if j.end_s > moment else j for j in before]
    one = choices_of([*before, *rest], 16)
    other = choices_of([*longer, *shuffled], 16)
    count = sum(j.by_main for j in before) // 2
    assert torch.equal(one.values[:count], other.values[:count])
    assert torch.equal(one.ranks[:count], other.ranks[:count])


def test_too_short_a_history() -> None:
    with pytest.raises(TraceError, match="had rivals"):
        choices_of(history_of("fcfs")[:40], 16)


def accounting_of(history: list[Started]) -> str:
    rows = ["JobIDRaw|Submit|Eligible|Start|End|Partition|ReqTRES|TimelimitRaw|Flags"]
    for j in history:
        flag = "SchedMain" if j.by_main else "SchedBackfill"
        limit = int((j.request.time_limit_s or 0) // 60)
        rows.append(
            f"{j.job_id}|{EPOCH + j.submit_s:.0f}|{EPOCH + j.eligible_s:.0f}|"
            f"{EPOCH + j.start_s:.0f}|{EPOCH + j.end_s:.0f}|gpu|"
            f"billing=1,cpu=4,gres/gpu=1,gres/gpu:a100=1,node=1|{limit}|{flag}"
        )
    rows.append("9999|100|100|Unknown|Unknown|gpu|cpu=1|UNLIMITED|")
    return "\n".join(rows) + "\n"


def test_the_command_learns_from_accounting_data(tmp_path: Path) -> None:
    data = tmp_path / "sacct.txt"
    data.write_text(accounting_of(history_of("fcfs")))
    reply = read_history(lines_of(data), str(data), UTC, required=COLUMNS)
    jobs = started_of(reply.records)
    assert sum(reply.left_out.values()) + len(reply.records) - len(jobs) == 1
    assert jobs[0].request.total.gpus == 1
    assert jobs[0].request.gpu_types == ("a100",)
    out = tmp_path / "site"
    given = ["imitate", str(data), "--gpus", "16", "--out", str(out)]
    result = CliRunner().invoke(app, given, catch_exceptions=False)
    assert result.exit_code == 0
    # under the default order less than above: the paper network does not see the backlog
    assert load_actor(out).card.results["held_out_pairwise_agreement"] >= 0.75


def test_bad_accounting_data_names_line_and_field(tmp_path: Path) -> None:
    data = tmp_path / "sacct.txt"
    good = accounting_of(history_of("fcfs")[:2])
    data.write_text(good.replace("|Flags", ""))
    with pytest.raises(TraceError, match="no column 'Flags'"):
        read_history(lines_of(data), str(data), UTC, required=COLUMNS)
    lines = good.splitlines()
    lines[2] = lines[2].replace(lines[2].split("|")[1], "yesterday", 1)
    data.write_text("\n".join(lines))
    reply = read_history(lines_of(data), str(data), UTC, required=COLUMNS)
    assert reply.lines["cannot be read: Submit is no time"] == [3]
    assert len(started_of(reply.records)) == 1
    with pytest.raises(TraceError, match="cannot be read"):
        read_history(lines_of(tmp_path / "absent"), "absent", UTC, required=COLUMNS)


def test_a_rule_is_learned_and_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    out = tmp_path / "saf"
    given = ["imitate", "saf", "--out", str(out), "--queues", "16", "--epochs", "1"]
    assert CliRunner().invoke(app, given, catch_exceptions=False).exit_code == 0
    assert load_actor(out).card.training.teacher == "saf"
    result = CliRunner().invoke(app, ["imitate", "nothing", "--out", str(tmp_path / "x")])
    assert "nothing: no rule" in str(result.exception)


LOOK_S = 60.0


@cache
def looks() -> tuple[Snapshot, ...]:
    """What a daemon that only watches sees of a Slurm whose priorities delay a job by its limit."""

    def virtual_s(waits: Pending) -> float:
        return waits.job.submit_s + 0.1 * (waits.request.time_limit_s or 0.0)

    def order(world: World) -> list[Pending]:
        return sorted(world.pending.values(), key=lambda p: (virtual_s(p), p.number))

    jobs = [replace(j, submit_s=NOW + j.submit_s * 0.6) for j in single_jobs(900)]
    world = World(parse_cluster(CLUSTER, "one", "one"), jobs, order=order)
    seen = []
    now = NOW
    while now < jobs[-1].submit_s:
        now += LOOK_S
        world.advance(now)
        rank = {p.number: place for place, p in enumerate(order(world))}
        shown = snapshot_of(world)
        pending = tuple(replace(j, priority=10_000 - rank[j.job_id]) for j in shown.pending)
        seen.append(replace(shown, pending=pending))
    return tuple(seen)


def records(seen: Iterable[Snapshot]) -> list[CycleObservation]:
    return [
        CycleObservation(cycle, 0.0, "dry_run", each) for cycle, each in enumerate(seen, start=1)
    ]


def journal_of(folder: Path, seen: Iterable[Snapshot]) -> Path:
    journal = Journal(folder)
    for record in records(seen):
        at = record.snapshot.taken_at
        journal.keep(sight(record.snapshot, cycle=record.cycle, at=at, mode=record.mode))
    journal.close()
    return folder / FILE_NAME


def test_a_known_scheduler_is_recovered_from_a_journal(tmp_path: Path) -> None:
    path = journal_of(tmp_path, looks())
    earlier, later = choices_of_journal(recorded(path), order=ORDER).split(0.7)
    network, _ = fit(earlier, FITTING)
    assert len(later) > 50
    assert agreement(network, later)[0] >= 0.95


def test_nothing_later_than_a_look_is_seen() -> None:
    """Who started is read off the second look, and of what it says else nothing matters."""
    seen = looks()
    for before, later in pairwise(seen[300:330]):
        other = replace(
            later,
            pending=tuple(_changed(j) for j in later.pending),
            running=tuple(_ended_otherwise(j) for j in later.running),
            nodes=before.nodes,
        )
        one = list(moments_of(records([before, later])))
        two = list(moments_of(records([before, other])))
        assert one == two
        assert all(moment.seen.snapshot is before for moment in one)


def _changed(waits: PendingJob) -> PendingJob:
    return replace(waits, priority=waits.priority + 77, reason="JobHeldAdmin", user="mallory")


def _ended_otherwise(runs: RunningJob) -> RunningJob:
    return replace(runs, request=replace(runs.request, time_limit_s=1.0), shares=())


FIRST = snapshot(
    job(1, priority=400), job(2, priority=300), job(3, priority=200, gpus=2), job(4, priority=100)
)


def after(*started: int, gone: tuple[int, ...] = (), seconds: float = 60.0) -> Snapshot:
    left = tuple(j for j in FIRST.pending if j.job_id not in {*started, *gone})
    runs = [
        running(i, started_at=NOW + 5, submitted_at=next(
            j.submitted_at for j in FIRST.pending if j.job_id == i
        ))
        for i in started
    ]  # fmt: skip
    return snapshot(*left, runs=runs, taken_at=NOW + seconds)


def preferences(*seen: Snapshot) -> list[tuple[int, set[int]]]:
    return [
        (int(m.queue[m.chosen].job_id), {int(m.queue[r].job_id) for r in m.rivals})
        for m in moments_of(records(seen))
    ]


def test_the_started_is_preferred_to_who_would_have_fitted() -> None:
    assert preferences(FIRST, after(1)) == [(1, {2, 4})]
    assert preferences(FIRST, after(1, 2)) == [(1, {4}), (2, {4})]
    assert preferences(FIRST, after(3)) == []  # backfill: 1 and 2 stood before it
    assert preferences(FIRST, after(1, gone=(2,))) == [(1, {4})]
    assert preferences(FIRST, after(1, 2, 3, 4)) == []


def test_looks_that_do_not_show_one_decision_are_left_out() -> None:
    assert preferences(FIRST, after(1, seconds=301.0)) == []
    assert preferences(FIRST, replace(after(1), cluster="other")) == []
    assert preferences(after(1), FIRST) == []


def test_what_rltuned_wrote_to_teaches_nothing() -> None:
    ours = Ownership("priority", 400, original=100)
    pending = tuple(replace(j, owned=ours if j.job_id == 1 else None) for j in FIRST.pending)
    marked = replace(FIRST, pending=pending)
    assert preferences(marked, after(1)) == []
    assert preferences(marked, after(2)) == [(2, {4})]


def test_a_partition_that_was_taken_from_rltuned_teaches() -> None:
    first = CycleObservation(1, 0.0, "live", FIRST, Context(demoted=("gpu",)))
    pairs = [first, CycleObservation(2, 0.0, "live", after(1))]
    assert [moment.chosen for moment in moments_of(pairs)] == [0]


def test_a_requeued_job_is_not_taken_for_a_start() -> None:
    before = snapshot(job(1, submitted_at=NOW - 5, priority=9), job(2, priority=1))
    again = running(1, started_at=NOW + 5, submitted_at=UnixTime(NOW - 600))
    later = snapshot(job(2, priority=1), runs=[again], taken_at=NOW + 60)
    assert preferences(before, later) == []


def test_too_short_a_journal(tmp_path: Path) -> None:
    path = journal_of(tmp_path, looks()[:30])
    with pytest.raises(TraceError, match="had rivals; 50 are needed"):
        choices_of_journal(recorded(path))


def test_the_command_learns_from_a_journal(tmp_path: Path) -> None:
    path = journal_of(tmp_path, looks())
    out = tmp_path / "site"
    given = ["imitate", str(path), "--out", str(out), "--epochs", "3"]
    result = CliRunner().invoke(app, given, catch_exceptions=False)
    assert result.exit_code == 0
    assert load_actor(out).card.results["held_out_pairwise_agreement"] > 0.5
    assert f"{len(looks())} snapshots" in result.stdout
    assert CliRunner().invoke(app, ["journal", *given[1:]]).exit_code != 0
