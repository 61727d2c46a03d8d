"""Histories that the simulator made itself: it finds them again, compares, and learns of them."""

import math
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from rltuned.core.order import Order
from rltuned.errors import TraceError
from rltuned.lab.backtest import past as of_the_past
from rltuned.lab.backtest.past import Past, Span, past_of
from rltuned.lab.backtest.sacct_files import lines_of, read_history
from rltuned.lab.backtest.site import read_site_model
from rltuned.lab.backtest.study import (
    calibrate,
    play_natural,
    play_ours,
    play_plugged,
    protocol_of,
    run_study,
    scenario_of,
)
from rltuned.lab.replay.play import Played
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.train.predictor import fit
from rltuned.policies.baselines import BASELINES
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.settings import Settings
from tests.backtest.worlds import WEIGHTED, cluster, jobs, played, site
from tests.builders import sure
from tests.histories import EPOCH, row, rows, save_site

INTERVAL_S = 600.0
KNOBS = replace(Settings().knobs(), top_k=0, order=Order(own=0.3, share=0.0))
TERMS = Protocol("cycle", INTERVAL_S, KNOBS)


def past(folder: Path, begin: float | None = EPOCH, split: float = 0.7) -> Past:
    history = read_history(lines_of(folder / "sacct.txt"), "sacct.txt", UTC)
    return past_of(history, read_site_model(folder), Span(begin, None, split))


def played_by_slurm(known: Past) -> Played:
    return play_natural(known, scenario_of(known), INTERVAL_S)


def ours(known: Past, rule: str) -> Played:
    return play_ours(known, scenario_of(known), BASELINES[rule], TERMS)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Past:
    """A history whose waits are those of the simulator itself."""
    return past(site(tmp_path_factory.mktemp("site"), jobs(110)))


def test_the_simulator_finds_its_own_history_again_to_the_second(made: Past) -> None:
    found = calibrate(made, played_by_slurm(made))
    assert (found["whole"]["jobs"], found["whole"]["off_s"], found["verdict"]) == (110, 0, "close")
    assert found["whole"]["mean"].base > 600  # somebody did wait
    assert set(found["partitions"]) == {"gpu", "urgent"}


def test_a_limit_that_a_partition_has_today_cuts_no_run_of_before(tmp_path: Path) -> None:
    given, on = jobs(110), cluster()
    given = tuple(replace(j, time_limit_s=math.inf) if i % 2 else j for i, j in enumerate(given))
    longest = max(job.duration_s for job in given)
    lowered = tuple(replace(p, max_time_s=longest / 2) for p in on.partitions)
    history = rows(given, *played(on, given))
    known = past(save_site(tmp_path, replace(on, partitions=lowered), history))
    assert len(known.jobs) == len(given)
    assert all(job.duration_s <= job.time_limit_s for job in known.jobs)
    limits = {job.time_limit_s for job in known.jobs}
    assert {longest / 2, math.inf} < limits  # of jobs without one: the partition's, or none
    assert any(longest / 2 < limit < math.inf for limit in limits)


def test_of_a_huge_waiting_array_a_part_is_played_and_the_rest_counted(
    tmp_path: Path, made: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = site(tmp_path, jobs(110))
    text = (folder / "sacct.txt").read_text()
    monkeypatch.setattr(of_the_past, "MOST_TASKS", 30)
    for tasks, played_tasks in ((20, 20), (4_000_001, 31)):
        waiting = text.splitlines()[-1].split("|")
        waiting[:2] = ["9000", f"9000_[0-{tasks - 1}%10]"]
        waiting[4:7] = ["Unknown", "Unknown", "PENDING"]
        (folder / "sacct.txt").write_text(f"{text}{'|'.join(waiting)}\n")
        known = past(folder)
        assert len(known.jobs) - len(made.jobs) == played_tasks
        assert known.left_out["tasks of waiting arrays beyond 30"] == tasks - played_tasks


def test_other_weights_than_the_real_ones_are_found_out(tmp_path: Path) -> None:
    known = past(site(tmp_path, jobs(110), replace(WEIGHTED, kind="fcfs")))
    small = replace(known.site.natural, age_weight=0, size_weight=100_000, favor_small=True)
    other = replace(known, site=replace(known.site, natural=small))
    found = calibrate(other, played_by_slurm(other))["whole"]
    assert found["off_s"] > 60
    assert found["mean"].change < -0.05  # small jobs first: the mean wait is shorter than in truth
    assert found["met"] < 1.0


def test_without_a_beginning_the_record_begins_at_the_first_end(tmp_path: Path) -> None:
    known = past(site(tmp_path, jobs(110)), begin=None)
    records = read_history(lines_of(tmp_path / "sacct.txt"), "sacct.txt", UTC).records
    assert known.begin == min(r.end_s for r in records if r.end_s is not None)
    assert known.ran.any()
    base = played_by_slurm(known)
    assert (base.start_s[known.ran] <= 0).all()  # who ran then runs from the beginning on
    assert (base.start_s[known.held] >= 0).all()


def test_an_order_that_changes_nothing_changes_no_wait(made: Past) -> None:
    """A policy that delays nobody has nothing to write at all."""
    own = ours(made, "fcfs")
    assert np.array_equal(own.start_s[made.scored], played_by_slurm(made).start_s[made.scored])
    assert own.cycles
    assert not own.writes.any()


@pytest.mark.parametrize("kind", ["multifactor", "fcfs"])
@pytest.mark.parametrize("rule", ["delay", "fit_first"])
@pytest.mark.parametrize("begin", [EPOCH, None])
def test_it_plays_what_the_daemon_decides(
    tmp_path: Path, kind: Literal["multifactor", "fcfs"], rule: str, begin: float | None
) -> None:
    """The plain world with the daemon's own decision is switched on at the same moment."""
    known = past(site(tmp_path, jobs(110), replace(WEIGHTED, kind=kind)), begin, split=0.4)
    order = replace(known.site.natural, kind=kind)
    known = replace(known, site=replace(known.site, natural=order))
    fast, plain = ours(known, rule), play_plugged(known, BASELINES[rule], TERMS)
    assert fast.writes.any()
    assert np.array_equal(fast.writes, plain.writes)
    assert np.array_equal(fast.start_s[known.scored], plain.start_s[known.scored])
    assert [c[:3] for c in fast.cycles] == [c[:3] for c in plain.cycles]
    assert [c[3] for c in fast.cycles] == pytest.approx([c[3] for c in plain.cycles])


def test_plays_do_not_touch_each_other(made: Past) -> None:
    base, scenario = played_by_slurm(made), scenario_of(made)
    once, again = (play_ours(made, scenario, BASELINES["saf"], TERMS) for _ in range(2))
    assert np.array_equal(once.start_s, again.start_s, equal_nan=True)
    early = (made.arrived_s < made.split_s) & (base.start_s < made.split_s)
    assert np.array_equal(once.start_s[early], base.start_s[early])
    assert sum(c[2] for c in once.cycles) > 0


def test_the_future_is_not_known(made: Past) -> None:
    """Another run time of a job changes nothing before the earlier of its two ends."""
    late = max(i for i, job in enumerate(made.jobs) if job.duration_s > 600 and made.scored[i])
    shorter = replace(made.jobs[late], duration_s=made.jobs[late].duration_s - 300)
    other = replace(made, jobs=(*made.jobs[:late], shorter, *made.jobs[late + 1 :]))
    one, two = ours(made, "saf"), ours(other, "saf")
    earlier = one.start_s < min(one.end_s[late], two.end_s[late])
    assert np.array_equal(one.start_s[earlier], two.start_s[earlier])


def test_a_study_says_who_wins_and_who_loses(tmp_path: Path) -> None:
    known = past(site(tmp_path, jobs(110)), split=0.4)
    found = run_study(known, {"saf": BASELINES["saf"]}, TERMS, names=False)
    outcome, later = found.outcomes["saf"], known.later
    wait = outcome["metrics"]["wait_s"]
    assert wait.base == pytest.approx((found.base.start_s - known.arrived_s)[later].mean())
    assert wait.own == pytest.approx((found.own["saf"].start_s - known.arrived_s)[later].mean())
    assert sure(wait.low) <= (wait.change or 0.0) <= (wait.high or 0.0)
    assert 0 < outcome["better"] + outcome["worse"] <= 1
    for kind in ("partition", "GPUs"):
        assert sum(group["jobs"] for group in outcome["groups"][kind].values()) == later.sum()
    assert outcome["moved"]["changes"] == sum(row[2] for row in found.own["saf"].cycles)
    assert all(person["name"].startswith("user ") for person in outcome["worst"])


def test_what_else_multifactor_has_comes_from_the_recorded_priorities(tmp_path: Path) -> None:
    """Jobs of one user had 50,000 points of fair share that no played factor explains."""
    given = jobs(110)
    folder = site(tmp_path, given)
    favoured = given[0].user
    own = tuple(50_000 if j.user == favoured else 0 for j in given)
    natural = replace(WEIGHTED, own=own)
    starts, ends = played(cluster(), given, natural)
    lines = []
    for i, job in enumerate(given):
        request = job.request()
        size = (1 / 2 + request.total.cpus / 32) / 2
        reply = natural.priority(
            number=i + 1,
            waited_s=starts[i] - job.submit_s,
            size_share=size,
            partition_share=1.0 if job.partition == "urgent" else 1 / 5,
        )
        lines.append(row(job, starts[i], ends[i], number=i + 1, priority=reply))
    (folder / "sacct.txt").write_text("\n".join(lines) + "\n")
    config = (folder / "config.txt").read_text()
    line = next(x for x in config.splitlines() if x.startswith("PriorityWeightFairShare"))
    (folder / "config.txt").write_text(config.replace(line, "PriorityWeightFairShare = 50000"))
    known = past(folder)
    assert known.use_recorded
    base = played_by_slurm(known)
    found = calibrate(known, base)["whole"]
    assert found["off_s"] < 0.01 * found["mean"].base
    without = replace(known, site=replace(known.site, natural=replace(natural, own=())))
    base = played_by_slurm(without)
    assert calibrate(without, base)["whole"]["off_s"] > found["off_s"]


def test_jobs_that_do_not_fit_are_counted(tmp_path: Path) -> None:
    given = jobs(110)
    wide = tuple(replace(j, gpus=64) if i in {50, 60} else j for i, j in enumerate(given))
    folder = site(tmp_path, given)
    starts = np.array([j.submit_s for j in wide])
    lines = [
        row(j, s, s + j.duration_s, number=i)
        for i, (j, s) in enumerate(zip(wide, starts, strict=True))
    ]
    (folder / "sacct.txt").write_text("\n".join(lines) + "\n")
    known = past(folder)
    ((why, count),) = known.left_out.items()
    assert "does not fit this cluster" in why
    assert count == 2


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda f: (f / "sacct.txt").write_text("\n"), "empty"),
        (lambda f: _keep(f, 40), "too few, at least 30 are needed"),
        (lambda f: _replace(f, "sacct.txt", "gres/gpu=", "gres/fpga="), "AccountingStorageTRES"),
        (lambda f: _replace(f, "sacct.txt", "|gpu|", "|old|"), "does not fit this cluster"),
        (lambda f: _replace(f, "nodes.txt", "gpu:t4:4", "(null)"), "no node has GPUs"),
        (
            lambda f: _replace(f, "nodes.txt", "gpu,urgent", "gone"),
            "'gone' is not in partitions.txt",
        ),
        (lambda f: (f / "nodes.txt").unlink(), r"nodes.txt: cannot be read: No such file"),
        (
            lambda f: _replace(f, "config.txt", "PriorityMaxAge", "Old"),
            "no PriorityMaxAge in the answer",
        ),
        (
            lambda f: _replace(f, "config.txt", "PriorityWeightJobSize", "Old"),
            "PriorityWeightJobSize is missing",
        ),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, spoil: object, why: str) -> None:
    folder = site(tmp_path, tuple(replace(j, partition="gpu") for j in jobs(110)))
    assert callable(spoil)
    spoil(folder)
    with pytest.raises(TraceError, match=why):
        past(folder)


def test_a_record_of_the_site_that_cannot_be_read_costs_itself(tmp_path: Path) -> None:
    folder = site(tmp_path, tuple(replace(j, partition="gpu") for j in jobs(110)))
    nodes = folder / "nodes.txt"
    odd = nodes.read_text().splitlines()[0].replace("a1", "a9").replace("CPUTot=16", "CPUTot=?")
    nodes.write_text(f"{odd}\n{nodes.read_text()}")
    _replace(folder, "nodes.txt", "urgent", "gone")
    known = past(folder)
    (bad, unknown) = known.site.left_out
    assert bad.startswith(f"{nodes}:1: node a9: ")
    assert "'gone' is not in partitions.txt" in unknown
    assert len(known.site.cluster.nodes) == 2


def _keep(folder: Path, count: int) -> None:
    path = folder / "sacct.txt"
    path.write_text("\n".join(path.read_text().splitlines()[:count]) + "\n")


def _replace(folder: Path, name: str, old: str, new: str) -> None:
    path = folder / name
    path.write_text(path.read_text().replace(old, new))


SHIPPED = load_predictor(shipped_predictor())
RLTUNE = Path(__file__).resolve().parents[2] / "models" / "rltune"


@pytest.fixture(scope="module")
def fitted_on(tmp_path_factory: pytest.TempPathFactory) -> Past:
    """Nobody waits: starts are submits. That is enough to learn run times from."""
    given = jobs(700, load=0.5)
    starts = np.array([j.submit_s for j in given])
    ends = starts + np.array([j.duration_s for j in given])
    folder = save_site(tmp_path_factory.mktemp("site"), cluster(), rows(given, starts, ends))
    reply = read_history(lines_of(folder / "sacct.txt"), "sacct.txt", UTC)
    return past_of(reply, read_site_model(folder), Span(float(EPOCH)))


def test_only_what_had_ended_by_the_switch_teaches(fitted_on: Past) -> None:
    learned, _ = fitted_on.known()
    assert learned
    assert all(j.submit_s + j.duration_s <= fitted_on.split_s for j in learned)
    early = [j for j in fitted_on.jobs if j.submit_s < fitted_on.split_s]
    assert len(learned) < len(early)  # somebody still ran


def test_the_predictor_learns_from_the_real_starts_of_the_site(fitted_on: Past) -> None:
    """A run that ended later teaches later: here every job waited for an hour."""
    late = replace(fitted_on, wait_s=fitted_on.wait_s + 3_600.0)
    jobs, start_s = late.known()
    fitted = fit(jobs, start_s=start_s, begin=SHIPPED, seed=1)
    assert fitted.examples <= len(jobs)
    one, other = (
        sure(protocol_of(past, Settings(), _silent)[0].predictor).to_bytes()
        for past in (fitted_on, late)
    )
    assert other == fitted.predictor.to_bytes()
    assert len({one, other, SHIPPED.to_bytes()}) == 3


def test_nothing_is_learned_of_too_little(fitted_on: Past) -> None:
    few = replace(fitted_on, split_s=fitted_on.jobs[100].submit_s)
    protocol, text = protocol_of(few, Settings(), _silent)
    assert sure(protocol.predictor).to_bytes() == SHIPPED.to_bytes()
    assert "200 are needed" in text


def _silent(_what: str, _part: float) -> None: ...
