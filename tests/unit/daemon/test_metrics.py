"""What a cycle leaves in the registry, and that the whole is conventional."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.samples import Sample
from rltuned.daemon.breaker import Breaker, Cause, Effect
from rltuned.daemon.metric_table import MAX_PARTITIONS, THE_REST

from rltuned.core.decide import Knobs, decide
from rltuned.core.ladder import Rung, Switchback
from rltuned.core.refusals import Refusal
from rltuned.core.select import Scope
from rltuned.daemon.canary import CanaryStatus
from rltuned.daemon.metrics import AT, Metrics
from rltuned.daemon.report import CycleReport, CycleStage, Skip
from rltuned.daemon.state import HealthState
from rltuned.domain.jobs import JobRun, Ownership, RunNews, Side
from rltuned.domain.plan import Outcome, Result
from rltuned.domain.units import UnixTime
from tests import needs
from tests.builders import NOW, job, running, snapshot
from tests.fakes import ConstantOrder
from tests.programs import ran

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(CollectorRegistry())


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_what_is_scraped_bears_its_cluster(metrics: Metrics) -> None:
    assert 'cluster="' not in generate_latest(metrics.exposed).decode()
    metrics.update(live_report())
    lines = generate_latest(metrics.exposed).decode().splitlines()
    assert all('cluster="test"' in line for line in lines if not line.startswith("#"))
    assert 'rltuned_jobs_owned{cluster="test"} 1.0' in lines
    assert value(metrics, "rltuned_jobs_owned") == 1  # the source stays as it is


def live_report(cycle: int = 1) -> CycleReport:
    """Three pending jobs, one of them SLA and one ours; two writes, one of which was refused."""
    seen = snapshot(
        job(1, priority=300),
        job(2, priority=200, owned=Ownership("priority", 200, 0)),
        job(3, partition="sla"),
        runs=[running(100)],
        others=4,
    )
    rules = Scope(sla_partitions=frozenset({"sla"}))
    decision = decide(seen, ConstantOrder((2, 1)), Knobs(rules))
    results = (Result.APPLIED, Result.REFUSED)
    return CycleReport(
        cycle=cycle,
        started_at=NOW,
        mode=HealthState.LIVE,
        interval_s=60.0,
        stages={CycleStage.OBSERVE: 0.2, CycleStage.DECIDE: 0.01, CycleStage.APPLY: 0.3},
        snapshot=seen,
        decision=decision,
        outcomes=tuple(Outcome(a, r) for a, r in zip(decision.plan.actions, results, strict=True)),
        reverted={"priority": 1},
    )


def test_a_live_cycle(metrics: Metrics) -> None:
    metrics.update(live_report())
    assert value(metrics, "rltuned_cycles_total") == 1
    assert value(metrics, "rltuned_jobs_owned") == 1
    assert value(metrics, "rltuned_jobs_refused", reason="sla_partition") == 1
    assert value(metrics, "rltuned_jobs_refused", reason="held") == 0
    assert value(metrics, "rltuned_changes_planned", kind="priority") == 2
    for result in ("applied", "refused"):
        assert value(metrics, "rltuned_changes_total", kind="priority", result=result) == 1
    assert value(metrics, "rltuned_changes_reverted_total", kind="priority") == 1
    assert value(metrics, "rltuned_last_success_timestamp_seconds") == NOW
    assert value(metrics, "rltuned_cycle_duration_seconds_sum", stage="observe") == 0.2


def test_a_skipped_cycle_keeps_what_was_known(metrics: Metrics) -> None:
    metrics.update(live_report())
    metrics.update(
        CycleReport(
            cycle=2,
            started_at=NOW + 60,
            mode=HealthState.LIVE,
            interval_s=60.0,
            stages={CycleStage.OBSERVE: 20.0},
            backoff_s=120.0,
            skip=Skip.BACKEND,
            detail="squeue gave no answer within 20 s",
            reasons={HealthState.JOURNAL_UNUSABLE: "disk full"},
        )
    )
    assert value(metrics, "rltuned_cycles_skipped_total", reason="backend") == 1
    assert value(metrics, "rltuned_backoff_seconds") == 120
    assert value(metrics, "rltuned_last_success_timestamp_seconds") == NOW
    assert value(metrics, "rltuned_jobs_owned") == 1
    assert value(metrics, "rltuned_changes_planned", kind="priority") == 0


def test_the_queue_by_partition(metrics: Metrics) -> None:
    metrics.update(live_report())
    found = {
        (s.labels["partition"], s.labels["state"]): s.value
        for s in _samples(metrics, "rltuned_partition_jobs")
    }
    assert found == {
        ("gpu", "pending"): 2, ("gpu", "running"): 1, ("gpu", "ranked"): 2, ("gpu", "moved"): 2,
        ("gpu", "refused"): 0, ("sla", "pending"): 1, ("sla", "running"): 0, ("sla", "ranked"): 0,
        ("sla", "moved"): 0, ("sla", "refused"): 1,
    }  # fmt: skip


def test_every_label_value_is_born_at_zero(metrics: Metrics) -> None:
    for reason in Refusal:
        assert value(metrics, "rltuned_jobs_refused", reason=reason.value) == 0
    for kind in ("priority", "site_factor", "release", "oversubscribe"):
        for result in Result:
            labels = {"kind": kind, "result": result.value}
            assert value(metrics, "rltuned_changes_total", **labels) == 0
    for skip in Skip:
        assert value(metrics, "rltuned_cycles_skipped_total", reason=skip.value) == 0
    for command in ("squeue", "sinfo", "sprio", "scontrol"):
        assert value(metrics, "rltuned_slurm_command_duration_seconds_count", command=command) == 0


def test_no_new_series_appear_in_operation(metrics: Metrics) -> None:
    metrics.loaded("fcfs", at=NOW)
    for partition in ("gpu", "sla"):
        metrics.show(partition)
    before = _series(metrics)
    metrics.update(live_report())
    metrics.command("squeue", 0.1, ok=False)
    metrics.command("a program nobody knows", 0.1, ok=True)
    assert _series(metrics) == before


def test_commands(metrics: Metrics) -> None:
    metrics.command("squeue", 0.25, ok=True)
    metrics.command("squeue", 20.0, ok=False)
    assert value(metrics, "rltuned_slurm_command_duration_seconds_count", command="squeue") == 2
    assert value(metrics, "rltuned_slurm_command_errors_total", command="squeue") == 1
    assert value(metrics, "rltuned_slurm_command_duration_seconds_sum", command="squeue") == 20.25


def test_a_new_policy_replaces_the_old_one(metrics: Metrics) -> None:
    metrics.loaded("fcfs", at=NOW)
    metrics.loaded("model:a", digest="abc", schema="s1", at=NOW + 1)
    names = [s.labels["name"] for s in _samples(metrics, "rltuned_policy_info")]
    assert names == ["model:a"]
    assert value(metrics, "rltuned_config_last_reload_successful") == 1
    metrics.not_loaded()
    assert value(metrics, "rltuned_config_last_reload_successful") == 0
    assert value(metrics, "rltuned_config_last_reload_success_timestamp_seconds") == NOW + 1


def test_names_follow_the_conventions(metrics: Metrics) -> None:
    for family in metrics.registry.collect():
        assert family.name.startswith(("rltuned_", "process_"))
        assert family.documentation.endswith(".")
        for sample in family.samples:
            assert not {"job", "job_id", "user", "account"} & sample.labels.keys()


@pytest.mark.prometheus
def test_promtool_finds_nothing_to_complain_about(metrics: Metrics) -> None:
    needs.program("promtool")
    metrics.loaded("fcfs", at=NOW)
    metrics.update(live_report())
    done = ran("promtool", "check", "metrics", input=generate_latest(metrics.registry).decode())
    assert (done.stdout, done.stderr) == ("", "")


def _samples(metrics: Metrics, name: str) -> list[Sample]:
    return [s for f in metrics.registry.collect() for s in f.samples if s.name == name]


def _series(metrics: Metrics) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    return {
        (s.name, tuple(sorted(s.labels.items())))
        for f in metrics.registry.collect()
        for s in f.samples
    }


def test_how_jobs_fare_by_partition_and_delays(metrics: Metrics) -> None:
    job = running(started_at=NOW, submitted_at=UnixTime(NOW - 620.0))
    runs = JobRun(job, side=Side.ON), JobRun(job, UnixTime(NOW + 310.0), side=Side.ON)
    verdict = CanaryStatus(
        runs=RunNews(runs[:1], runs[1:]),
        breakers={"gpu": Breaker(opened_at=NOW, cause=Cause.WAIT)},
        opened=("gpu",),
        blocks={"gpu": replace(Switchback().block("gpu", NOW), on=False)},
        effect=Effect(20, 2_000.0, 2_400.0, 20_000.0),
    )
    metrics.update(replace(live_report(), mode=HealthState.SHADOW, verdict=verdict))
    on = {"partition": "gpu", "delays": "on"}
    assert value(metrics, "rltuned_job_wait_seconds_sum", **on) == 620
    assert value(metrics, "rltuned_job_bounded_slowdown_ratio_sum", **on) == 3.0
    assert value(metrics, "rltuned_job_wait_seconds_count", partition="gpu", delays="off") == 0
    assert value(metrics, "rltuned_breaker_open", partition="gpu") == 1
    assert value(metrics, "rltuned_breaker_opened_total", cause="wait") == 1
    assert value(metrics, "rltuned_canary_delays_on", partition="gpu") == 0
    assert value(metrics, "rltuned_canary_pairs") == 20
    at = [value(metrics, "rltuned_canary_wait_difference_seconds", at=at) for at in AT]
    assert at == pytest.approx([-20.0, -31.8, -8.2], abs=0.1)
    metrics.update(replace(live_report(), verdict=CanaryStatus()))
    assert math.isnan(value(metrics, "rltuned_canary_delays_on", partition="gpu") or 0.0)
    assert math.isnan(value(metrics, "rltuned_canary_pairs") or 0.0)
    assert value(metrics, "rltuned_breaker_open", partition="gpu") == 0
    assert value(metrics, "rltuned_canary_evidence_ratio", partition="gpu", figure="wait") == 1


def test_more_partitions_than_can_be_shown_share_one_series(metrics: Metrics) -> None:
    for number in range(MAX_PARTITIONS + 9):
        one = JobRun(running(partition=f"p{number}", submitted_at=UnixTime(NOW - 2e3)))
        metrics.update(replace(live_report(), snapshot=None, verdict=CanaryStatus(RunNews((one,)))))
    names = {s.labels["partition"] for s in _samples(metrics, "rltuned_breaker_open")}
    assert len(names) == MAX_PARTITIONS
    labels = {"partition": THE_REST, "delays": "other"}
    assert value(metrics, "rltuned_job_wait_seconds_count", **labels) == 9


def test_the_stage(metrics: Metrics) -> None:
    metrics.loaded("fcfs", at=NOW, stage=Rung.CANARY)
    assert value(metrics, "rltuned_stage", stage="canary") == 1
    assert value(metrics, "rltuned_stage", stage="observe") == 0
