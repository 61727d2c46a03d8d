"""Known schedulers are recovered from what they started, and nothing later than that is read."""

from dataclasses import replace
from datetime import UTC
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from rltuned.core.order import Order, clip_s
from rltuned.domain.cluster import Resources
from rltuned.domain.jobs import Request
from rltuned.domain.units import GpuType
from rltuned.errors import TraceError
from rltuned.lab.backtest.sacct_files import lines_of, read_history
from rltuned.lab.cli.train import app
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.imitation import (
    COLUMNS,
    FEWEST_STARTS,
    FITTING,
    Started,
    agreement,
    choices_of,
    fit,
    started_of,
)
from rltuned.lab.train.rollout import MULTIFACTOR, play_rule
from rltuned.policies.actor import load_actor
from rltuned.policies.baselines import BASELINES
from rltuned.sim.cluster import parse_cluster, preset
from rltuned.sim.synth import synthesize
from tests.train.worlds import CLUSTER, single_jobs

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
