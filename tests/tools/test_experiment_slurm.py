"""The parts of scripts/studies/experiment_slurm that need no Slurm."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rltuned.core.order import Order
from rltuned.lab.compare import geometric
from rltuned.settings.source import load
from rltuned.sim.trace import TraceJob
from scripts.studies.experiment_slurm import report
from scripts.studies.experiment_slurm.__main__ import plan_of
from scripts.studies.experiment_slurm.arms import (
    ARMS,
    QOS_WEIGHT,
    SHARES,
    STRICT,
    daemon_settings,
    job_set,
    natural_of,
    slurm_settings,
    submission,
    user_of,
)
from scripts.studies.experiment_slurm.lab import FastClock
from scripts.studies.experiment_slurm.play import BooksError, entries_of
from scripts.studies.experiment_slurm.report import Key, Run, StoreError
from tests.configs import settings_file

TWO = (
    TraceJob("1", 0.0, 100.0, 4, 900.0, ("p100",), 16, 48_000, user="user01"),
    TraceJob("2", 40.0, 50.0, 1, 930.0, ("m40",), 4, 12_000, user="user12"),
)
SAID = "t1|1000|1010|1112|COMPLETED|p1|daemon\nt2|1040|1100|1151|COMPLETED|m1|backup\n"


KEY = Key("fifo", 2, 7)
PLAIN = ARMS["multifactor"]


def run_of(key: Key = KEY) -> Run:
    return Run(
        key, ["1", "2"], [0.0, 40.0], [10.0, 100.0], [112.0, 151.0], ["p1", "m1"], (0.5, 1.0),
        3.0, 180.0, 2.0, {"slurm": "slurm-wlm 22.05.8"},
    )  # fmt: skip


class TestBooks:
    def test_entries_come_in_the_order_of_the_trace(self) -> None:
        found = entries_of("\n".join(reversed(SAID.splitlines())), TWO)
        assert [(e.submit_at, e.start_at, e.end_at) for e in found] == [
            (1000, 1010, 1112),
            (1040, 1100, 1151),
        ]

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            (SAID.splitlines()[0], "missing: t2"),
            (SAID + "t3|1|2|3|COMPLETED|p1|bin\n", "3 are in the books"),
            (SAID.replace("m1", "m1|x"), "8 fields"),
            (SAID.replace("1100", "Unknown"), "no times"),
            (SAID + SAID, "twice"),
            (SAID.replace("1151|COMPLETED", "1151|TIMEOUT"), "t2 TIMEOUT"),
        ],
    )
    def test_a_run_that_drops_or_breaks_a_job_is_void(self, text: str, words: str) -> None:
        with pytest.raises(BooksError, match=words):
            entries_of(text, TWO)


class TestSubmissions:
    def test_payload_is_compressed_and_the_limit_is_not(self) -> None:
        one = submission(TWO[1], 200.0)
        assert one.due_s == pytest.approx(0.2)
        assert "--wrap=exec sleep 0.2500" in one.argv
        assert "--time=16" in one.argv  # 930 s: Slurm knows whole minutes, and none is cut short
        assert "--gres=gpu:m40:1" in one.argv
        assert "--exclusive" not in one.argv

    def test_whole_nodes_are_asked_for_by_the_job(self) -> None:
        assert "--exclusive" in submission(replace(TWO[0], exclusive=True), 200.0).argv

    def test_users_of_the_trace_are_dealt_to_those_with_shares(self) -> None:
        assert {user_of(job) for job in job_set(PLAIN, 256, 1)} == set(SHARES)
        assert user_of(TWO[0]) == user_of(replace(TWO[0], user="user05")) == "games"

    def test_every_tenth_job_has_a_higher_qos(self) -> None:
        high = [j for j in job_set(PLAIN, 256, 1) if "--qos=high" in submission(j, 9.0).argv]
        assert [j.job_id for j in high] == [str(n) for n in range(10, 257, 10)]

    def test_both_variants_are_the_same_jobs(self) -> None:
        plain, whole = (job_set(arm, 64, 3) for arm in (PLAIN, ARMS["whole"]))
        assert [replace(job, exclusive=False) for job in whole] == list(plain)
        assert all(job.exclusive for job in whole)


class TestStore:
    def test_a_run_reads_back_and_is_not_run_again(self, tmp_path: Path) -> None:
        done, todo = Key("fifo", 2, 7), Key("site", 2, 7)
        assert report.read(report.write(tmp_path, run_of(done))) == run_of(done)
        assert report.missing(tmp_path, [done, todo]) == [todo]
        assert [p.name for p in tmp_path.iterdir()] == ["fifo-2-7.json"]

    def test_a_broken_file_is_named_and_not_written_over(self, tmp_path: Path) -> None:
        path = report.write(tmp_path, run_of())
        path.write_text(path.read_text()[:-20])
        with pytest.raises(StoreError, match=r"fifo-2-7\.json"):
            report.missing(tmp_path, [Key("fifo", 2, 7)])

    def test_a_file_without_all_jobs_is_refused(self, tmp_path: Path) -> None:
        path = report.write(tmp_path, run_of())
        found = json.loads(path.read_text())
        found["end_s"].pop()
        path.write_text(json.dumps(found))
        with pytest.raises(StoreError, match="2 jobs were submitted"):
            report.read(path)

    def test_the_plan_has_every_arm_on_the_seeds_of_its_cluster(self) -> None:
        plan = plan_of(list(ARMS))
        assert len(plan) == len(set(plan))
        for arm in ARMS.values():
            long = [(1024, 4)] if arm.long else []
            found = sorted((k.jobs, k.seed) for k in plan if k.arm == arm.name)
            assert found == [*((256, seed) for seed in arm.workload.seeds), *long]
        assert all(key.seed == 2 for key in plan_of(list(ARMS), (2,)) if key.jobs == 256)


class TestFigures:
    def test_by_hand(self, monkeypatch: pytest.MonkeyPatch) -> None:
        two = (TWO[0], replace(TWO[1], submit_s=100.0, duration_s=5.0))
        jobs = tuple(replace(job, user="games") for job in two)
        monkeypatch.setattr(report, "jobs_of", lambda _: jobs)
        run = replace(run_of(), submit_s=[0.0, 100.0], start_s=[10.0, 100.0], end_s=[110.0, 105.0])
        found = report.figures(run)
        assert {name: found[name] for name in report.FIGURES} == {
            "makespan_s": 110.0,
            "wait_s": 5.0,
            "wait_p95_s": 9.5,
            "wait_max_s": 10.0,
            "jct_s": 57.5,
            "bsld": pytest.approx((1.1 + 1.0) / 2),  # 5 s count as 10
            "utilisation": pytest.approx(405 / (13 * 110)),
        }

    @pytest.mark.parametrize(
        ("high", "inversions"),
        [
            ({}, 1),
            ({"gpu_types": ("k80",)}, 0),  # would not fit in that place
            ({"gpus": 5}, 0),
            ({"time_limit_s": 901.0}, 0),
        ],
    )
    def test_an_inversion_is_a_start_in_a_place_that_a_high_job_could_have(
        self, high: dict[str, Any], inversions: int
    ) -> None:
        jobs = (TWO[0], replace(TWO[0], **{"job_id": "10"} | high))
        run = replace(run_of(), submit_s=[0.0, 0.0], start_s=[1_000.0, 2_000.0])
        assert report.qos_inversions(run, jobs) == inversions
        assert report.qos_inversions(replace(run, start_s=[1_000.0, 1_500.0]), jobs) == 0

    def test_error_of_shares_counts_use_while_jobs_arrive(self) -> None:
        jobs = tuple(replace(TWO[0], gpus=1, user=user) for user in SHARES)
        run = replace(run_of(), start_s=[0.0] * 4, submit_s=[0.0, 0.0, 0.0, 100.0])
        by_share = replace(run, end_s=[40.0, 30.0, 20.0, 10.0])
        assert report.share_error(by_share, jobs) == pytest.approx(0.0)
        one_alone = replace(run, end_s=[200.0, 0.0, 0.0, 0.0])
        assert report.share_error(one_alone, jobs) == pytest.approx(0.6)

    def test_interval_over_repeats_is_students(self) -> None:
        found = geometric([20.0, 40.0], [10.0, 10.0])
        assert found.change == pytest.approx(np.sqrt(2 * 4) - 1)
        half = 12.706 * np.log(2) / 2  # sd of ln 2 and ln 4 is ln 2 / sqrt 2, over sqrt 2
        assert found.high == pytest.approx(np.sqrt(8) * np.exp(half) - 1)
        assert found.low == pytest.approx(np.sqrt(8) * np.exp(-half) - 1)

    def test_one_repeat_has_no_spread(self) -> None:
        with pytest.raises(ValueError, match="no interval is known"):
            _ = geometric([1.0], [1.0]).known


class TestReport:
    def test_tables_of_what_there_is(self, tmp_path: Path) -> None:
        counters = {
            "rltuned_cycles_total": 4.0, "rltuned_cycle_duration_seconds_sum": 2.0,
            'rltuned_changes_total{kind="priority",result="applied"}': 7.0,
        }  # fmt: skip
        for seed, wait_s in ((1, 20.0), (2, 40.0)):
            jobs = job_set(PLAIN, 8, seed)
            for arm, longer in (("multifactor", 1.0), ("priority", 0.5)):
                submit = [j.submit_s for j in jobs]
                start = [s + wait_s * longer for s in submit]
                end = [s + j.duration_s for s, j in zip(start, jobs, strict=True)]
                run = Run(
                    Key(arm, 8, seed), [j.job_id for j in jobs], submit, start, end, ["p1"] * 8,
                    (90.0, 360.0), 1.0, 180.0, 2.0, {"load": "3.1"},
                    counters if arm == "priority" else {},
                )  # fmt: skip
                report.write(tmp_path, run)
        data = tmp_path / "data"
        found = report.gather(tmp_path, data)
        lines = list(report.tables(found))
        assert any(
            line.startswith("| multifactor, weights tuned, QOS, fair share, 2 runs |")
            for line in lines
        )
        change = next(x for x in lines if x.startswith("| `priority` against `multifactor`"))
        assert change.split(" | ")[2] == "-50.0% [-50.0, -50.0]"
        report.write_data(found, data)
        rows = json.loads((data / "runs.json").read_text())
        assert [(r["arm"], r["seed"]) for r in rows] == [
            ("multifactor", 1), ("priority", 1), ("multifactor", 2), ("priority", 2)
        ]  # fmt: skip
        assert rows[1]["figures"]["wait_s"] == pytest.approx(10.0)
        (tmp_path / "priority-8-2.json").unlink()
        assert list(report.tables(report.gather(tmp_path, data))) == lines


class TestArms:
    def test_every_arm_is_compared_with_one_that_differs_by_what_it_names(self) -> None:
        for arm in ARMS.values():
            if arm.base and not arm.fifo:
                assert slurm_settings(arm) == slurm_settings(ARMS[arm.base])
                assert arm.whole == ARMS[arm.base].whole
            assert not arm.base or arm.workload is ARMS[arm.base].workload
            assert bool(arm.base) or not arm.write_mode

    def test_slurms_size_weight_has_the_simulators_slope(self) -> None:
        order = natural_of(ARMS["multifactor"])
        lines = slurm_settings(ARMS["multifactor"])
        assert int(lines["PriorityWeightJobSize"]) == 2 * order.size_weight
        assert int(lines["PriorityMaxAge"]) * 60 == order.max_age_s

    def test_a_step_of_qos_and_of_strict_shares_is_worth_the_longest_delay(self) -> None:
        order = natural_of(ARMS["multifactor"])
        points = Order().max_delay_s * order.age_weight / order.max_age_s
        assert 2 * points <= QOS_WEIGHT
        assert STRICT / (len(SHARES) + 1) >= points

    @pytest.mark.parametrize("name", [a.name for a in ARMS.values() if a.write_mode])
    def test_the_daemon_takes_its_settings(self, name: str, tmp_path: Path) -> None:
        file = settings_file(
            tmp_path,
            daemon_settings(ARMS[name], folder=str(tmp_path), conf="/slurm.conf", interval_s=2.0),
        )
        settings, arm = load(file).settings, ARMS[name]
        assert settings.limits.write_mode == arm.write_mode
        assert settings.policy.name == arm.policy
        assert (settings.policy.placement == "milp") == arm.guided
        assert settings.oversubscribe.scope == (["gpu"] if arm.guided else [])


def test_the_clock_runs_on_one_line() -> None:
    clock = FastClock(Path("fast.so"), 1_000.0, 180.0)
    assert clock.at(1_000.0) == 1_000.0
    assert clock.at(1_002.0) == 1_360.0
    assert clock.environ(slurmd=False)["FASTCLOCK_WAITS"] == "0"
