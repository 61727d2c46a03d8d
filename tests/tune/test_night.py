"""A whole night on a record that the simulator made itself, the command, and the journal's part."""

import json
import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rltuned.daemon.clock import SystemClock
from rltuned.domain.jobs import ArrayInfo
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId, UnixTime
from rltuned.errors import RltunedError, TooLittleError
from rltuned.journal.cycles import CycleObservation
from rltuned.journal.journal import Journal
from rltuned.lab.backtest.past import Span, read_record
from rltuned.lab.compare import DAY_S, JobScores
from rltuned.lab.replay.play import load
from rltuned.lab.tune import night
from rltuned.lab.tune.journal_history import history_of
from rltuned.lab.tune.search import Candidate, Period
from rltuned.policies.baselines import BASELINES
from rltuned.policies.generations import Generations, TunedOrder, read_state
from rltuned.sim.trace import TraceJob
from rltuned.slurm.accounting import SacctAnswer
from tests.backtest.worlds import cluster, played
from tests.browser import check_page
from tests.builders import NOW, request, running, sight, snapshot, sure
from tests.builders import job as a_job
from tests.configs import settings_file
from tests.histories import EPOCH
from tests.tune.record import BY_AGE, jobs, saved
from tests.unit.cli.runner import run

LOOSE = "longest = 4.0\n"
"""For a world as small as this one the default is narrow."""
MINUTES = ("--minutes", "3")


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """The kernel: a night's minutes are for the night."""
    load()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return settings_file(
        tmp_path,
        f'[policy]\nname = "tuned"\n[daemon]\nstate_dir = "{tmp_path / "state"}"\n'
        "interval_s = 600.0\n[order]\nown = 0.0\nshare = 0.0\n[tune]\n",
    )


def tuned(config: Path, site: Path, *more: str, code: int = 0) -> Any:
    options = ("--config", str(config), "--site", str(site), "--test-period", "8d", *MINUTES)
    result = run("tune", *options, "--json", *more)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few plays, a predictor of few steps and no network: the rule `delay` alone, own 1."""
    monkeypatch.setattr("rltuned.lab.train.predictor.STEPS", 60)
    monkeypatch.setattr(night, "FEWEST_ENDED", 500)
    monkeypatch.setattr("rltuned.lab.tune.search.OWNS", (1.0,))
    monkeypatch.setattr("rltuned.lab.tune.search.SHARES", (0.0,))
    monkeypatch.setattr("rltuned.lab.tune.search.LONGEST_DELAYS_S", (DAY_S,))
    monkeypatch.setattr("rltuned.lab.tune.search.TRUSTS", (0.0,))
    monkeypatch.setattr("rltuned.lab.tune.search.NETWORK", "none")


@pytest.mark.usefixtures("quick")
def test_a_night_ends_in_time(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock stands but for a play of the training period, which takes a minute; the night has
    three."""
    now_s, play = 0.0, Period.play

    def slow(period: Period, *given: Any) -> JobScores:
        nonlocal now_s
        now_s += 60.0
        return play(period, *given)

    monkeypatch.setattr(Period, "play", slow)
    monkeypatch.setattr(SystemClock, "monotonic", lambda _: now_s)
    found = tuned(config, saved(tmp_path), "--dry-run")
    assert found["verdict"] == "kept"
    assert found["left_out"]["further orders"] == "no time was left"
    # the order in force in the last week, on the short and the whole training period, and on the
    # test period
    assert now_s <= 60.0 * 7


@pytest.mark.usefixtures("quick")
def test_a_better_order_is_proposed_promoted_and_kept(tmp_path: Path, config: Path) -> None:
    """First come, first served is in force; informative limits make `delay` much better."""
    site = saved(tmp_path)
    store = Generations(tmp_path / "state")
    before = config.read_text()
    config.write_text(before + LOOSE)
    dry = tuned(config, site, "--dry-run", "--report", str(tmp_path / "page"))
    assert dry["verdict"] == "proposed"
    assert dry["calibration"]["verdict"] == "close"
    assert dry["record"]["users"] == 7
    assert dry["generation"] is None
    assert store.names() == []
    assert not (tmp_path / "state").exists()
    page = (tmp_path / "page" / "index.html").read_text()
    check_page(page, tmp_path)
    assert "Proposed: " in page
    assert "Slurm's own order" in page

    found = tuned(config, site)
    assert found["verdict"] == "proposed"
    made = store.read("candidate")
    assert made.name == found["generation"]
    assert made.manifest.own == 1.0
    assert store.named_by("current") is None
    won = next(c for c in found["candidates"] if c["passes"])
    assert won["period"] == "test"
    assert won["objective"]["high"] < 0
    assert won["wait_s"] < found["incumbent"]["wait_s"]
    assert won["longest"] <= 4.0
    state = read_state(tmp_path / "state")
    assert (state["verdict"], state["failed"]) == ("proposed", 0)
    assert (store.folder / "last-night" / "index.html").exists()

    config.write_text(before + LOOSE + 'promote = "auto"\n')
    assert tuned(config, site)["verdict"] == "promoted"
    in_force = store.read("current")
    again = tuned(config, site)
    assert again["verdict"] == "kept"
    assert again["incumbent"]["own"] == 1.0
    assert store.read("current") == in_force

    store.rollback(at=0.0)
    found = tuned(config, site)
    assert found["verdict"] == "proposed"
    assert "a generation was promoted within the last week" in found["why"]


def misled(given: Sequence[TraceJob], days: float) -> tuple[TraceJob, ...]:
    """The same, but on the last days the short jobs have the long limits."""
    turn_s = given[-1].submit_s - days * DAY_S
    slack_s = [2 * DAY_S if job.duration_s < 900.0 else 600.0 for job in given]
    return tuple(
        replace(job, time_limit_s=60.0 * math.ceil((job.duration_s + more_s) / 60.0))
        if job.submit_s > turn_s
        else job
        for job, more_s in zip(given, slack_s, strict=True)
    )


@pytest.mark.parametrize(("ahead_s", "verdict"), [(3_600.0, "proposed"), (1e9, "promoted")])
def test_a_clock_that_was_far_ahead_puts_no_promotion_off(
    tmp_path: Path, ahead_s: float, verdict: str
) -> None:
    store, won = Generations(tmp_path), Candidate(BASELINES["delay"], 0.1, 0.75, DAY_S, None)
    rule = TunedOrder(policy="delay", own=0.3, share=0.75, max_delay_s=DAY_S)
    store.promote(store.add(rule, {}).name, at=NOW + ahead_s)
    found = {"why": [], "candidates": [{"passes": True, "objective": {"change": -0.1}}]}
    said = night.conclude(store, found, won, None, promote="auto", at=NOW)
    assert said["verdict"] == verdict


@pytest.mark.usefixtures("quick")
def test_a_generation_is_left_when_the_world_turns(tmp_path: Path, config: Path) -> None:
    """First come, first served is that order; `delay` by the limits is in force, and was better."""
    config.write_text(config.read_text() + LOOSE + "[predictor]\nenabled = false\n")
    assert tuned(config, saved(tmp_path))["verdict"] == "proposed"
    store = Generations(tmp_path / "state")
    store.promote(at=1.0)
    found = tuned(config, saved(tmp_path / "later", given=misled(jobs(), 9.0)))
    assert found["verdict"] == "proposed", found["why"]
    (passed,) = [c for c in found["candidates"] if c["passes"]]
    assert passed["own"] == passed["share"] == 0.0
    (lesson,) = [c for c in found["candidates"] if c["order"] == passed["order"] and c != passed]
    assert lesson["objective"]["change"] > 0
    assert store.read("candidate").manifest.own == 0.0


@pytest.mark.usefixtures("quick")
def test_a_simulator_that_is_far_off_tunes_nothing(tmp_path: Path, config: Path) -> None:
    """The same jobs, started by dice."""
    given = jobs()
    submit_s = np.array([j.submit_s for j in given])
    dice = np.random.default_rng(1).exponential(40_000.0, len(given)).round()
    site = saved(tmp_path, submit_s + dice)
    found = tuned(config, site, code=3)
    assert found["verdict"] == "nothing"
    assert "does not behave as this Slurm did" in found["why"][0]
    state = read_state(tmp_path / "state")
    assert (state["verdict"], state["failed"]) == ("nothing", 0)


def test_too_few_jobs_tune_nothing_and_their_week_is_replayed(tmp_path: Path, config: Path) -> None:
    """Whatever becomes of the night: an observing site asks whether it would help here."""
    config.write_text(config.read_text().replace("own = 0.0", "own = 1.0"))
    site = saved(tmp_path, given=jobs()[:900])
    found = tuned(config, site, "--dry-run", code=3)
    assert "at least 1000 are needed" in found["why"][0]
    assert read_state(tmp_path / "state") == {}
    week = tuned(config, site, code=3)["last_week"]
    assert read_state(tmp_path / "state")["last_week"] == week
    assert week["verdict"] == "close"
    assert -1 < week["low"] < week["change"] < week["high"] < 0
    last_s = jobs()[899].submit_s
    count = sum(job.submit_s >= last_s - 7 * DAY_S for job in jobs()[:900])
    assert f"Last week's {count} jobs" in week["sentence"]
    assert f"mean wait {week['change']:+.1%}" in week["sentence"]
    week = tuned(config, saved(tmp_path / "few", given=jobs()[:40]), code=3)["last_week"]
    assert week["change"] is None
    assert "at least 30 are needed" in week["sentence"]


@pytest.mark.parametrize("name", ["tuned", "model:mine", "delay"])
def test_a_broken_night_is_a_failed_one(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Also where no model loads, else the alert on failed nights stays silent."""

    def broken(*_args: Any, **_more: Any) -> None:
        raise OSError("killed")

    monkeypatch.setattr("rltuned.lab.tune.night.last_week", broken)
    site, state_dir = saved(tmp_path), tmp_path / "state"
    (state_dir / "models").mkdir(parents=True)
    if name == "tuned":
        (state_dir / "models" / "current").symlink_to("gone")
    config.write_text(config.read_text().replace('"tuned"', f'"{name}"'))
    for nights in (1, 2, 3):
        with pytest.raises(OSError if name == "delay" else RltunedError):
            raise sure(run("tune", "--config", str(config), "--site", str(site)).exception)
        state = read_state(state_dir)
        assert (state["verdict"], state["failed"]) == ("failed", nights)


def test_the_test_period_is_the_last_part_and_nothing_of_it_was_learned(tmp_path: Path) -> None:
    site = saved(tmp_path)
    _, past = read_record(site, Span(EPOCH))
    switch_s, end_s, test_s = night.split_of(past, 8.0)
    longest = max(j.duration_s for j in past.jobs)
    assert switch_s < end_s == pytest.approx(test_s - min(2 * DAY_S, longest))
    learned, start_s = past.switched_on(end_s).known()
    assert (start_s > [j.submit_s for j in learned]).any(), "some of them waited"
    assert (start_s + [j.duration_s for j in learned] <= end_s).all()
    with pytest.raises(TooLittleError, match="before the test period"):
        night.split_of(past, 20.0)


@pytest.mark.usefixtures("quick")
def test_a_site_without_accounting_is_tuned_on_the_journal_alone(
    tmp_path: Path, config: Path
) -> None:
    """The journal of a daemon that looked at each of these jobs at its beginning and its end."""
    site, count, runs = saved(tmp_path), 700, []
    (site / "sacct.txt").unlink()
    starts, ends = played(cluster(), jobs(), BY_AGE)
    for number, job in enumerate(jobs()[:count]):
        asks = request(gpus=job.gpus, cpus=2, mem_mib=0, time_limit_s=job.time_limit_s)
        start, came = EPOCH + starts[number], UnixTime(EPOCH + job.submit_s)
        one = running(number + 1, started_at=start, submitted_at=came)
        runs.append((start, EPOCH + ends[number], replace(one, request=asks, user=job.user)))
    moments = {t + d for start, end, _ in runs for t, d in ((start, 0), (end, -1), (end, 1))}
    with closing(Journal(site)) as journal:
        for cycle, now in enumerate(sorted(moments), 1):
            there = [job for start, end, job in runs if start <= now < end]
            look = snapshot(runs=there, taken_at=now, cluster="known")
            journal.keep(sight(look, cycle=cycle, at=now, mode="live"))
    record = tuned(config, site, "--test-period", "2d", "--dry-run")["record"]
    assert (record["rows"], record["jobs"], record["left_out"]) == (count, count, {})


def shown(*looks: Snapshot, cluster: str = "test") -> SacctAnswer:
    looked = (CycleObservation(n, 0.0, "live", look) for n, look in enumerate(looks))
    return history_of(looked, cluster, Span())[0]


def looked_run(number: int, **more: Any) -> Any:
    given = {"started_at": NOW - 30, "submitted_at": UnixTime(NOW - 90)} | more
    return running(number, **given)


LOOKS = (
    snapshot(runs=[looked_run(1), looked_run(2)]),
    snapshot(runs=[looked_run(2)], taken_at=NOW + 60),
    snapshot(runs=[looked_run(3, started_at=NOW + 90)], taken_at=NOW + 120),
)


def test_without_accounting_the_looks_are_the_history() -> None:
    waits = a_job(9, submitted_at=NOW + 100, array=ArrayInfo(JobId(9), tasks=5))
    answer = shown(*LOOKS[:-1], replace(LOOKS[-1], pending=(waits,)))
    found = {r.key: r for r in answer.records}
    assert answer.left_out == {}
    assert [found[k].end_s for k in "1239"] == [NOW + 30, NOW + 90, None, None]
    assert found["1"].start_s == NOW - 30
    assert found["1"].submit_s == NOW - 90
    assert (found["1"].gpus, found["1"].alloc_gpus, found["1"].where) == (1, 1, "p1")
    assert (found["9"].start_s, found["9"].tasks, found["9"].eligible_s) == (None, 5, NOW + 100)
    assert shown(*LOOKS, cluster="other").records == []
    again = shown(LOOKS[0], snapshot(a_job(1, submitted_at=NOW + 10), taken_at=NOW + 60))
    assert [(r.key, r.end_s) for r in again.records] == [("2", NOW + 30), ("1", None)]
    assert again.left_out == {"its end is not known": 1}, "a requeued run is no end"


def test_what_is_not_known_well_enough_is_counted_and_not_guessed() -> None:
    """Job 1 waits and is gone; 2 ends while nobody looks; of 4 the submission is not shown."""
    answer = shown(
        snapshot(a_job(1), runs=[looked_run(2), looked_run(4, submitted_at=None)]),
        snapshot(runs=[looked_run(2)], taken_at=NOW + 60),
        snapshot(taken_at=NOW + 9_000),
    )
    assert answer.records == []
    assert sorted(answer.left_out.values()) == [1, 1, 1]
