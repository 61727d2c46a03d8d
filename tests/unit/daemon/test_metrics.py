"""What a cycle and its decision leave in the log and in the registry, and the sums behind it."""

import io
import json
import math
import os
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.samples import Sample

from rltuned.core.decide import Knobs, decide
from rltuned.core.features import COLUMNS
from rltuned.core.ladder import Switchback
from rltuned.core.refusals import Refusal
from rltuned.core.select import Scope
from rltuned.daemon.breaker import Breaker, Cause, Effect
from rltuned.daemon.canary import CanaryStatus
from rltuned.daemon.logger import Log, make_log
from rltuned.daemon.metric_table import MAX_PARTITIONS, THE_REST
from rltuned.daemon.metrics import AT, Metrics
from rltuned.daemon.observers import MOST_REMARKS, Logged, log_cycle
from rltuned.daemon.report import MOST_WAITS, CycleReport, CycleStage, Failure, Skip, Sums, sums_of
from rltuned.daemon.state import HealthState
from rltuned.domain.jobs import ArrayInfo, JobRun, Ownership, PendingJob, RunNews, Side
from rltuned.domain.plan import Outcome, Result
from rltuned.domain.units import JobId, UnixTime
from rltuned.journal.journal import Journal
from rltuned.policies.actor import load_actor
from tests import needs
from tests.builders import NOW, decided, job, node, running, set_priority, snapshot, sure
from tests.fakes import ConstantOrder
from tests.loops import Bench
from tests.programs import ran
from tests.switchback_world import switchback_at


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
    of_partitions = {
        (s.labels["partition"], s.labels["state"]): s.value
        for s in _samples(metrics, "rltuned_partition_jobs")
    }
    assert of_partitions == {
        ("gpu", "pending"): 2, ("gpu", "running"): 1, ("gpu", "ranked"): 2, ("gpu", "moved"): 2,
        ("gpu", "refused"): 0, ("sla", "pending"): 1, ("sla", "running"): 0, ("sla", "ranked"): 0,
        ("sla", "moved"): 0, ("sla", "refused"): 1,
    }  # fmt: skip


def test_a_skipped_cycle_keeps_what_was_known(metrics: Metrics) -> None:
    metrics.update(live_report())
    metrics.update(
        CycleReport(
            cycle=2,
            started_at=NOW + 60,
            mode=HealthState.LIVE,
            stages={CycleStage.OBSERVE: 20.0},
            failure=Failure(Skip.BACKEND, "squeue gave no answer within 20 s", 120.0),
            reasons={HealthState.JOURNAL_UNUSABLE: "disk full"},
        )
    )
    assert value(metrics, "rltuned_cycles_skipped_total", reason="backend") == 1
    assert value(metrics, "rltuned_backoff_seconds") == 120
    assert value(metrics, "rltuned_last_success_timestamp_seconds") == NOW
    assert value(metrics, "rltuned_jobs_owned") == 1
    assert value(metrics, "rltuned_changes_planned", kind="priority") == 0


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
    metrics.loaded("fcfs")
    for partition in ("gpu", "sla"):
        metrics.show(partition)
    gpus = {
        ("rltuned_gpus", (("state", state), ("type", "p100"))) for state in ("used", "free", "down")
    }
    before = _series(metrics) | gpus
    metrics.update(live_report())
    metrics.command("squeue", 0.1, ok=False)
    metrics.command("a program nobody knows", 0.1, ok=True)
    assert _series(metrics) == before


def test_a_new_policy_replaces_the_old_one(metrics: Metrics) -> None:
    metrics.loaded("fcfs")
    metrics.loaded("model:a", digest="abc", schema="s1")
    names = [s.labels["name"] for s in _samples(metrics, "rltuned_policy_info")]
    assert names == ["model:a"]
    assert value(metrics, "rltuned_config_last_reload_successful") == 1
    metrics.not_loaded()
    assert value(metrics, "rltuned_config_last_reload_successful") == 0


def test_names_follow_the_conventions(metrics: Metrics) -> None:
    for family in metrics.registry.collect():
        assert family.name.startswith(("rltuned_", "process_"))
        assert family.documentation.endswith(".")
        for sample in family.samples:
            assert not {"job", "job_id", "user", "account"} & sample.labels.keys()


@pytest.mark.prometheus
def test_promtool_finds_nothing_to_complain_about(metrics: Metrics) -> None:
    needs.program("promtool")
    metrics.loaded("fcfs")
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
    at = [value(metrics, "rltuned_canary_wait_difference_seconds", at=at) for at in AT]
    assert at == pytest.approx([-20.0, -31.8, -8.2], abs=0.1)
    metrics.update(replace(live_report(), verdict=CanaryStatus()))
    assert math.isnan(value(metrics, "rltuned_canary_delays_on", partition="gpu") or 0.0)
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


def known(metrics: Metrics, name: str, **labels: str) -> float:
    found = metrics.registry.get_sample_value(name, labels)
    assert found is not None, name
    return found


def update(metrics: Metrics, *ids: int) -> None:
    """Jobs of falling priority, of which the policy wants the order given."""
    jobs = [job(number, priority=1_000 - number) for number in sorted(ids)]
    metrics.update(decided(decide(snapshot(*jobs), ConstantOrder(ids), Knobs(Scope()))))


def test_moves_by_direction(metrics: Metrics) -> None:
    update(metrics, 4, 1, 2, 3)
    assert known(metrics, "rltuned_rank_displacement_places_count", direction="up") == 1
    assert known(metrics, "rltuned_rank_displacement_places_sum", direction="up") == 3
    assert known(metrics, "rltuned_rank_displacement_places_count", direction="down") == 3


def test_what_is_not_known_is_no_number(metrics: Metrics) -> None:
    metrics.loaded("model:a", ranges={"requested_gpus": (0.0, 1.0)})
    update(metrics)
    assert math.isnan(known(metrics, "rltuned_delay_seconds", at="median"))
    for feature in COLUMNS:
        outside = known(metrics, "rltuned_feature_outside_training_ratio", feature=feature)
        assert math.isnan(outside)


def test_drift_against_the_ranges_of_the_card(metrics: Metrics) -> None:
    metrics.loaded("model:a", ranges={"requested_gpus": (0.0, 1.0), "req_cpu": (0.99, 1.0)})
    update(metrics, 1, 2)
    name = "rltuned_feature_outside_training_ratio"
    assert known(metrics, name, feature="requested_gpus") == 0
    assert known(metrics, name, feature="req_cpu") == 1
    assert math.isnan(known(metrics, name, feature="req_mem"))
    metrics.loaded("model:a", ranges={})
    assert math.isnan(known(metrics, name, feature="req_cpu"))


MODELS = Path(__file__).resolve().parents[3] / "models"


@pytest.mark.parametrize("model", ["rltune", "rltune-paper", "warmstart-saf"])
def test_a_shipped_card_with_ranges_makes_drift_known(model: str) -> None:
    actor = load_actor(MODELS / model)
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.loaded(actor.name, ranges=actor.ranges)
    metrics.update(decided(decide(snapshot(job(1), job(2), job(3)), actor, Knobs())))
    assert actor.ranges
    for feature in actor.ranges:
        name = "rltuned_feature_outside_training_ratio"
        share = registry.get_sample_value(name, {"feature": feature})
        assert share is not None, feature
        assert math.isfinite(share), feature
        assert 0 <= share <= 1, feature


QUEUE = (
    job(1, gpus=2, submitted_at=NOW - 7_200.0),
    job(2, gpus=1, partition="long", array=ArrayInfo(JobId(2), 5)),
    job(3, gpus=4, priority=0, submitted_at=NOW - 99_999.0),
)
"""One job, an array of five, and a held job, which wants nothing yet."""
NODES = (node("p1", gpus=4, free_gpus=1), node("p2", gpus=4, free_gpus=3, schedulable=False))


def sums_found() -> Sums:
    seen = snapshot(*QUEUE, nodes=NODES)
    return sure(sums_of(seen, decide(seen, ConstantOrder((1, 2, 3)), Knobs(Scope())), None))


def test_gpus_are_used_free_or_down() -> None:
    sums = sums_found()
    assert {state: sums.in_state(state) for state in ("used", "free", "down")} == {
        "used": 4,
        "free": 1,
        "down": 3,
    }


def test_what_waits_is_counted_by_task_and_without_held_jobs() -> None:
    sums = sums_found()
    assert sums.wanted == {"gpu": 2, "long": 5}
    assert (sums.waiting, sums.longest_s) == (6, 7_200.0)
    assert sums.backlog_s["gpu"] > 0
    assert sure(sums.work_s) > 0


def test_the_work_of_jobs_that_are_left_alone_waits_too() -> None:
    """As all of them are in an off block: the backlog does not change with the coin."""
    seen = snapshot(*QUEUE, nodes=NODES)
    every = sums_found()
    for scope in (
        Scope(switchback=switchback_at(NOW, on=False)),
        Scope(excluded_users=frozenset({"alice"})),
        Scope(partitions=frozenset({"long"})),
    ):
        sums = sure(sums_of(seen, decide(seen, ConstantOrder((1, 2, 3)), Knobs(scope)), None))
        assert sums.work_s == pytest.approx(every.work_s)
        assert sums.backlog_s == pytest.approx(every.backlog_s)


@pytest.mark.parametrize(("runs", "tasks"), [(0, 2), (1, 1), (2, 0), (3, 0)])
def test_of_a_throttled_array_the_tasks_count_that_may_start(runs: int, tasks: int) -> None:
    array = job(2, partition="long", gpus=2, array=ArrayInfo(JobId(2), 500, throttle=2))
    begun = [running(100 + n, array_job_id=JobId(2)) for n in range(runs)]
    sums = sure(sums_of(snapshot(array, runs=begun, nodes=NODES), None, None))
    assert (sums.waiting, sums.wanted["long"]) == (tasks, 2 * tasks)


def test_a_cycle_keeps_its_sums_and_no_name(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.loop().run(2)
    with closing(Journal(tmp_path)) as journal:
        last = journal.past("test", 0.0)[-1]
    assert last.mode == "live"
    assert last.sums["waiting"] == 3
    assert len(last.sums["waits_s"]) <= MOST_WAITS
    assert "alice" not in json.dumps(last.sums)


PRIVATE = "private"
"""Part of every text that a user has chosen."""


def test_lines_for_journald_begin_with_their_priority(tmp_path: Path) -> None:
    def lines(form: Literal["json", "console"], say: Callable[[Log], None], at: str) -> list[str]:
        with (tmp_path / "log").open("w+") as file:
            status = os.fstat(file.fileno())
            stream = at or f"{status.st_dev}:{status.st_ino}"
            say(make_log(form, "debug", file, {"JOURNAL_STREAM": stream}))
        return (tmp_path / "log").read_text().splitlines()

    def levels(log: Log) -> None:
        for level in ("debug", "info", "warning", "error"):
            getattr(log, level)("something")

    assert [line[:3] for line in lines("console", levels, "")] == ["<7>", "<6>", "<4>", "<3>"]
    (line,) = lines("json", lambda log: log.warning("note", note="a\nb"), "")
    assert (line[:4], json.loads(line[3:])["note"]) == ("<4>{", "a\nb")
    failed = ValueError("on purpose")
    traceback = lines("console", lambda log: log.error("unexpected_error", exc_info=failed), "")
    assert len(traceback) > 1
    assert all(line.startswith("<3>") for line in traceback)
    for named in ("1:2", "nonsense"):  # it is another stream
        assert lines("json", lambda log: log.info("stopped"), named)[0].startswith("{")


def test_a_line_that_cannot_be_written_is_dropped() -> None:
    with open("/dev/full", "w", buffering=1) as full:  # noqa: PTH123
        log = make_log("console", "info", full)
        log.info("stopped")
        log.error("unexpected_error", exc_info=ValueError("on purpose"))
        with suppress(OSError):
            full.close()


@pytest.mark.parametrize("mode", [*HealthState])
def test_no_user_account_or_qos_in_any_line(mode: HealthState) -> None:
    jobs = [
        replace(job(n, priority=400 - n), user=PRIVATE, account=PRIVATE, qos=PRIVATE)
        for n in (1, 2, 3)
    ]
    seen = snapshot(*jobs, runs=[running(9)])
    rules = Scope(excluded_users=frozenset({f"{PRIVATE}-other"}))
    decision = decide(seen, ConstantOrder((3, 2, 1)), Knobs(rules))
    assert decision.plan.actions
    results = [*Result] * len(decision.plan.actions)
    report = CycleReport(
        cycle=1,
        started_at=NOW,
        mode=mode,
        stages={CycleStage.OBSERVE: 0.1},
        snapshot=seen,
        decision=decision,
        outcomes=tuple(Outcome(a, r) for a, r in zip(decision.plan.actions, results, strict=False)),
    )
    out = io.StringIO()
    log = make_log("json", "debug", out, {})
    log_cycle(log, report)
    log_cycle(log, replace(report, failure=Failure(Skip.POLICY, "no scores")))
    assert out.getvalue().count("\n") >= 2
    assert PRIVATE not in out.getvalue()


PENDING = 318
"""As in the review, where the shadow logged 63 kB a cycle."""


def shadow(cycle: int, jobs: list[PendingJob], results: Mapping[Any, Outcome] | None = None) -> Any:
    """A cycle whose policy turns the queue around."""
    seen = snapshot(*jobs, taken_at=NOW + 60 * cycle)
    order = tuple(sorted((j.job_id for j in jobs), reverse=True))
    decision = decide(seen, ConstantOrder(order), Knobs(Scope()))
    outcomes = tuple(
        Outcome(a, results[a.target.job_id].result, results[a.target.job_id].detail)
        for a in decision.plan.actions
        if results and a.target.job_id in results
    )
    return CycleReport(
        cycle=cycle,
        started_at=NOW + 60 * cycle,
        mode=HealthState.LIVE if results else HealthState.SHADOW,
        stages={CycleStage.OBSERVE: 0.1},
        snapshot=seen,
        decision=decision,
        outcomes=outcomes,
    )


def queue_at(cycle: int, numbers: range) -> list[PendingJob]:
    """Their priorities grow with age, so that every number is another one in every cycle."""
    return [job(n, priority=10_000 - 10 * n + cycle) for n in numbers]


def lines_of(printed: Logged, report: CycleReport) -> list[dict[str, Any]]:
    out = io.StringIO()
    log_cycle(make_log("json", "info", out, {}), report, printed)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_proposal_is_logged_when_it_changes() -> None:
    printed = Logged()
    counts, sizes = [], []
    for cycle in range(5):
        lines = lines_of(printed, shadow(cycle, queue_at(cycle, range(1, PENDING + 1))))
        counts.append(sum(line["event"] == "proposal" for line in lines))
        sizes.append(len(json.dumps(lines)))
    assert counts[0] > PENDING * 0.9
    assert counts[1:] == [0, 0, 0, 0]
    assert sizes[1] < sizes[0] / 50
    # the first job starts: all move up by one, and nothing was decided again
    after = lines_of(printed, shadow(5, queue_at(5, range(2, PENDING + 1))))
    assert sum(line["event"] == "proposal" for line in after) <= 2
    # a job comes, and takes a place of its own
    lines = lines_of(printed, shadow(6, queue_at(6, range(2, PENDING + 2))))
    assert PENDING + 1 in [line["job"] for line in lines if line["event"] == "proposal"]
    assert sum(line["event"] == "proposal" for line in lines) < PENDING / 3, "256 changes a cycle"


def test_a_change_that_fails_is_logged_once_per_job_and_reason() -> None:
    printed, jobs = Logged(), queue_at(0, range(1, PENDING + 1))

    def failed(cycle: int, words: Mapping[Any, str]) -> list[dict[str, Any]]:
        results = {
            j.job_id: Outcome(set_priority(j, 9), Result.REFUSED, words.get(j.job_id, "no rights"))
            for j in jobs
        }
        lines = lines_of(printed, shadow(cycle, jobs, results))
        assert lines[-1]["refused"] > PENDING * 0.9, "the cycle's line counts them all"
        return [line for line in lines if line["event"] == "change_failed"]

    (first,) = failed(0, {})
    assert first["jobs"] > PENDING * 0.9
    assert failed(1, {}) == []
    (other,) = failed(2, {7: "it is held"})
    assert (other["job"], other["jobs"], other["detail"]) == (7, 1, "it is held")
    (again,) = failed(3, {})
    assert (again["job"], again["detail"]) == (7, "no rights")
    words = {j.job_id: f"Priority is {j.job_id}" for j in jobs}
    assert len(failed(4, words)) == 1, "numbers make no other reason"
    assert failed(5, {n: f"{text}0" for n, text in words.items()}) == []


def test_a_remark_is_new_once_for_each_command_and_not_for_its_numbers() -> None:
    known = Logged()
    assert known.remarks("squeue", ["node n1 is odd", "old"]) == ["node n1 is odd", "old"]
    assert known.remarks("squeue", ["node n2 is odd", "old"]) == []
    assert known.remarks("sinfo", ["old"]) == ["old"]
    many = known.remarks("sinfo", ["x" * n for n in range(1, 2 * MOST_REMARKS)])
    assert len(many) == MOST_REMARKS - 3
