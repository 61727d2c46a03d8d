"""The choice that a night and a backtest share, and its arithmetic."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.lab.backtest.past import Past, Span, read_record
from rltuned.lab.backtest.study import as_daemon
from rltuned.lab.cli.backtest import chosen_setting
from rltuned.lab.compare import DAY_S, JobScores, Stretches, compared
from rltuned.lab.tune import search as searching
from rltuned.lab.tune.search import (
    Candidate,
    Period,
    Tried,
    best_of,
    next_step,
    policies_of,
    search,
    training_before,
)
from rltuned.policies.actor import Actor
from rltuned.policies.baselines import BASELINES
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import MODELS_DIR, shipped_predictor
from rltuned.settings import Settings
from rltuned.settings.source import Flag, from_flags
from tests.browser import check_page
from tests.configs import settings_file
from tests.examples import examples
from tests.histories import EPOCH
from tests.tune.record import saved
from tests.unit.cli.runner import run

DAEMON = replace(as_daemon(Settings()), interval_s=600.0)
RULE = Candidate(BASELINES["delay"], 0.1, 0.75, 7 * DAY_S, None)
PRICE, BREAKS = 1.5, 3.0
"""Times the longest wait of Slurm's own order."""
Factor = Callable[[Candidate, bool], float]
"""What an order makes of every wait; whether on the part after the switch."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("choice"))


@pytest.fixture(scope="module")
def past(folder: Path) -> Past:
    return read_record(folder, Span(EPOCH))[1]


def play_by(patch: pytest.MonkeyPatch, past: Past, factor: Factor) -> None:
    """Waits are those of Slurm's own order, times a factor; above BREAKS / 2 the longest alone is
    BREAKS times as long, and the others are half of that."""

    def play(period: Period, candidate: Candidate, _copy: int = 0) -> JobScores:
        times = factor(candidate, period.past.split_s == past.split_s)
        wait_s = period.natural.wait_s * min(times, 1.0)
        if times > 1.0:
            wait_s = wait_s * (times - 1.0)
            wait_s[np.argmax(wait_s)] = BREAKS * period.natural.longest_s
        return JobScores(wait_s, 1.0 + wait_s / 600.0)

    patch.setattr(Period, "play", play)


def searched(past: Past, factor: Callable[[Candidate], float], **more: Any) -> list[Tried]:
    """On the part before the switch; first come, first served is in force."""
    _, switch_s, end_s = training_before(past, past.split_s)
    began = past.switched_on(switch_s)
    with pytest.MonkeyPatch.context() as patch:
        play_by(patch, past, lambda one, _late: factor(one) if one.key else 1.0)
        return search(began, end_s, RULE.first_come(), price=PRICE, daemon=DAEMON, **more)


@examples(25)
@given(st.lists(st.floats(0.5, 1.0) | st.floats(1.3, 1.9), min_size=4, max_size=4))
def test_what_is_chosen_keeps_the_price_and_no_share_that_keeps_it_is_better(
    past: Past, by_share: list[float]
) -> None:
    """The other numbers change nothing. Above 1 the price is broken, for what is then the gain."""
    times = dict(zip(searching.SHARES, by_share, strict=True))
    found = searched(past, lambda c: times[c.share] if c.share else 1.0)
    kept, best = [t for t in by_share if t < 1.0], best_of(found)
    if best is None:
        assert min(kept, default=1.0) > 0.9
    else:
        assert not best.over_price
        assert times[best.candidate.share] == min(kept)
    broken = [t - 1.0 for t in by_share if t > 1.0]
    if words := next_step(found):
        assert "tune.longest = 3 would allow" in words[0]
    elif broken:
        assert min(broken) > 0.85 * min([1.0, *kept])


def test_each_number_is_changed_from_the_best_so_far_and_trust_0_is_the_rule(past: Past) -> None:
    policies = policies_of(RULE.policy, MODELS_DIR)
    assert [policy.trust for policy in policies] == [None, 0.35, 0.7, 1.0]
    site = replace(load_predictor(shipped_predictor()), digest="")
    wanted = {"share": 2.0, "own": 0.03, "max_delay_s": DAY_S, "predictor": site}

    def factor(one: Candidate) -> float:
        met = sum(bool(getattr(one, name) == value) for name, value in wanted.items())
        return 1.0 - 0.1 * (met + (one.policy.trust == 0.35))

    best = best_of(searched(past, factor, policies=policies, predictors=[None, site]))
    assert best is not None
    assert {name: getattr(best.candidate, name) for name in wanted} == wanted
    assert best.candidate.policy.trust == 0.35
    assert isinstance(best.candidate.policy, Actor)
    assert best.candidate.is_refitted
    assert best.longest == pytest.approx(0.5)


def test_where_the_time_is_over_what_was_played_counts(past: Past) -> None:
    left = iter([True] * 3)
    assert searched(past, lambda _: 0.9, may_play=lambda: next(left, False)) == []
    assert next(left, None) is None
    _, switch_s, end_s = training_before(past, past.split_s)
    assert switch_s < end_s < past.split_s


def test_first_come_first_served_is_one_order_whatever_the_policy_and_the_bound() -> None:
    other = replace(RULE, policy=BASELINES["saf"], max_delay_s=2.0)
    assert RULE.first_come().key == other.first_come().key != replace(RULE, own=0.1).key
    assert RULE.key != other.key


def is_default(one: Candidate) -> bool:
    return (one.own, one.share, one.max_delay_s) == (0.1, 0.75, 7 * DAY_S)


HOLDS: Factor = lambda one, _late: 0.8 if one.share == 2.0 else 1.0  # noqa: E731
GONE: Factor = lambda one, late: 0.8 if one.share == 2.0 and not late else 1.0  # noqa: E731
NO_LEAD: Factor = lambda _one, _late: 0.9  # noqa: E731
FIRST_LATE: Factor = lambda one, late: 0.9 if one.key or not late else 0.7  # noqa: E731
DEFAULT: Factor = lambda one, _late: 0.7 if is_default(one) else 0.9  # noqa: E731


@pytest.mark.parametrize(
    ("own", "factor", "says", "lines"),
    [
        (0.1, HOLDS, "share 2, max_delay 7 days is better here", ["own = 0.1", "share = 2"]),
        (0.1, GONE, "stays: no gain of 1% is proven", []),
        (0.1, NO_LEAD, "stays: no order that keeps the price leads", []),
        (0.1, FIRST_LATE, "own 0, share 0", ["own = 0", "share = 0"]),
        (5.0, DEFAULT, "is better here", ["own = 0.1", "share = 0.75"]),
    ],
)
def test_what_a_backtest_advises_and_the_lines_to_write(
    past: Past,
    monkeypatch: pytest.MonkeyPatch,
    *,
    own: float,
    factor: Factor,
    says: str,
    lines: list[str],
) -> None:
    play_by(monkeypatch, past, factor)
    found = chosen_setting(from_flags((Flag("order.own", own, "test"),)), past)
    assert says in found["sentence"]
    assert [line for line in found["lines"] if line.startswith(("own", "share"))] == lines
    if factor is HOLDS:
        (tested,) = [one for one in found["candidates"] if one["period"] == "test"]
        assert tested["wait"]["change"] == pytest.approx(-0.2, abs=0.01)
        assert tested["wait"]["low"] <= tested["wait"]["change"] <= tested["wait"]["high"] < 0


def test_too_few_jobs_before_the_switch_give_a_sentence(past: Past) -> None:
    early = past.switched_on(float(np.sort(past.arrived_s)[40]))
    found = chosen_setting(from_flags(()), early)
    assert "in the training period; at least 30 are needed" in found["sentence"]
    assert (found["lines"], found["candidates"]) == ([], [])


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """First come, first served is in force; a small grid."""
    monkeypatch.setattr(searching, "OWNS", (0.3,))
    monkeypatch.setattr(searching, "SHARES", (2.0,))
    monkeypatch.setattr(searching, "TRUSTS", ())
    return settings_file(
        tmp_path,
        '[policy]\nname = "delay"\n'
        "[daemon]\ninterval_s = 600.0\n[order]\nown = 0.0\nshare = 0.0\n[tune]\nlongest = 2.0\n",
    )


def backtested(config: Path, folder: Path, *more: str) -> str:
    result = run("backtest", "--config", str(config), "--site", str(folder), "-p", "delay", *more)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_ends_with_what_to_write(config: Path, folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page"
    played = ("--backfill", "easy")  # as the record was made
    words = backtested(config, folder, *played, "--report", str(page)).splitlines()
    reply: dict[str, Any] = json.loads((page / "results.json").read_text())["choice"]
    won = next(one for one in reply["candidates"] if one["passes"])
    at = reply["lines"].index("[order]")
    assert reply["lines"][at + 1 : at + 3] == [f"own = {won['own']:g}", f"share = {won['share']:g}"]
    assert words[words.index(reply["sentence"]) + 1].strip() == reply["lines"][0]
    text = (page / "index.html").read_text()
    check_page(text, tmp_path)
    assert reply["sentence"] in text


@pytest.mark.parametrize(("name", "more"), [("tuned", ()), ("delay", ("--no-choose",))])
def test_the_choice_can_be_left_out(
    config: Path, folder: Path, name: str, more: tuple[str, ...]
) -> None:
    config.write_text(config.read_text().replace('"delay"', f'"{name}"'))
    reply = json.loads(backtested(config, folder, "--json", *more))["choice"]
    assert reply is None or "`rltuned tune` chooses and tests" in reply["sentence"]
    assert (reply is None) == (name == "delay")


def test_what_passes_gains_one_percent_for_certain_and_keeps_the_price() -> None:
    draw = np.random.default_rng(3)
    wait_s = draw.exponential(3_600.0, 14 * 40)
    days = np.repeat(np.arange(14), 40)

    def doubts(factor: float, count: int = 14, over_price: str = "") -> list[str]:
        blocks = Stretches(days * count // 14, count, DAY_S)
        base, own = (JobScores(w, 1.0 + w / 600.0) for w in (wait_s, factor * wait_s))
        return Tried(RULE, own, compared(base, own, blocks), 1.0, over_price).doubts

    assert doubts(0.9) == []
    assert doubts(0.9, over_price="a price") == ["a price"]
    assert "no gain of 1%" in doubts(0.995)[0]
    assert "no gain of 1%" in doubts(1.1)[0]
    assert "of 5 days there is no interval" in doubts(0.5, 5)[0]
