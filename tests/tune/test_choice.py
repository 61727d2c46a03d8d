"""The choice that a night and a backtest share, and the advice that a backtest makes of it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.order import DEFAULT, Order
from rltuned.errors import TraceError
from rltuned.lab.backtest.past import Past, Span
from rltuned.lab.backtest.play import as_daemon
from rltuned.lab.cli.site_files import history_file, read_record, zone_of
from rltuned.lab.compare import JobScores
from rltuned.lab.tune import candidates
from rltuned.lab.tune.advice import CHOSEN, CURRENT, FCFS, PLAIN, Advice, advise
from rltuned.lab.tune.candidates import Course, Entrant, Family, TrainingPeriod, pick
from rltuned.lab.tune.night import training_before
from rltuned.lab.tune.promise import Promise
from rltuned.policies.baselines import BASELINES
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.settings import Settings
from tests.browser import check_page
from tests.configs import settings_file
from tests.examples import examples
from tests.histories import EPOCH
from tests.tune.record import saved
from tests.unit.cli.runner import run

PLAIN_SETTINGS = Settings()
DAEMON = replace(as_daemon(PLAIN_SETTINGS), interval_s=600.0)
POLICY = BASELINES["delay"]
BREAKS = 3.0
"""Times the longest wait of Slurm's own order, and more."""
Factor = Callable[[Entrant, bool], float]
"""What an order makes of every wait; whether on the part after the switch."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("choice"))


@pytest.fixture(scope="module")
def past(folder: Path) -> Past:
    nothing: Callable[[str, float], None] = lambda _what, _part: None  # noqa: E731
    return read_record(folder, history_file(folder), zone_of("UTC"), Span(EPOCH), nothing)[1]


def play_by(patch: pytest.MonkeyPatch, past: Past, factor: Factor) -> list[tuple[float, float]]:
    """Waits are those of Slurm's own order, times a factor; returns the pairs that are played."""
    played: list[tuple[float, float]] = []

    def play(course: Course, entrant: Entrant, _copy: int = 0) -> JobScores:
        played.append((entrant.own, entrant.share))
        times = factor(entrant, course.past.split_s == past.split_s)
        wait_s = course.natural.wait_s * times
        return JobScores(wait_s, 1.0 + wait_s / 600.0)

    patch.setattr(Course, "play", play)
    return played


@pytest.fixture(scope="module")
def training(past: Past) -> TrainingPeriod:
    """Its two courses, with Slurm's own order played on both."""
    _, switch_s, end_s = training_before(past, past.split_s)
    incumbent = Entrant(Family("delay", (POLICY,), None), POLICY, 0.1, 0.75, 604_800.0)
    return TrainingPeriod(past.switched_on(switch_s), end_s, incumbent, Promise(), DAEMON)


GRID = [(own, share) for own in candidates.OWNS for share in candidates.SHARES]
ANY = st.floats(0.5, 1.0) | st.just(BREAKS)


@examples(25)
@given(first=ANY, others=st.lists(ANY, min_size=len(GRID), max_size=len(GRID)))
def test_the_choice_keeps_the_promise_and_nothing_that_was_played_to_the_end_is_better(
    past: Past, training: TrainingPeriod, first: float, others: list[float]
) -> None:
    times = {(0.0, 0.0): first, **dict(zip(GRID, others, strict=True))}
    with pytest.MonkeyPatch.context() as patch:
        played = play_by(patch, past, lambda e, _late: times[e.own, e.share])
        training._own = {
            id(c): c.play(training.incumbent) for c in (training.whole, training.short)
        }
        choice = training.choose(training.incumbent.family)
    assert {(0.0, 0.0), (training.incumbent.own, training.incumbent.share), *GRID} <= set(played)
    now = times[training.incumbent.own, training.incumbent.share]
    kept = [t for t in times.values() if t <= max(now, 1.0)]
    chosen = times[choice.entrant.own, choice.entrant.share]
    assert bool(choice.broken) == (not kept)
    if kept:
        assert chosen == min(kept)
    picked = pick([choice], training.incumbent)
    assert (picked is None) == (choice.entrant.same_as(training.incumbent) or chosen >= now)


def test_first_come_first_served_is_one_order_whatever_the_policy_and_the_bound() -> None:
    one = Entrant(Family("delay", (POLICY,), None), POLICY, 0.0, 0.0, 1.0)
    other = replace(one, policy=BASELINES["saf"], max_delay_s=2.0)
    assert one.same_as(other)
    assert not one.same_as(replace(one, own=0.1))
    assert not replace(one, own=0.1).same_as(one)


def advised(past: Past, order: Order = DEFAULT) -> Advice:
    known = load_predictor(shipped_predictor())
    return advise(
        past, POLICY, order, lambda _began: known, known, promise=Promise(), daemon=DAEMON
    )


def is_chosen(entrant: Entrant) -> bool:
    return (entrant.own, entrant.share) == (0.3, 2.0)


def test_a_setting_that_holds_after_the_switch_is_advised_with_its_lines(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    play_by(monkeypatch, past, lambda e, _late: 0.8 if is_chosen(e) else 1.0)
    found = advised(past)
    assert list(found.orders) == [FCFS, PLAIN, CHOSEN]
    assert found.sentence.startswith("Another setting is better here")
    assert "mean wait -20.0% [" in found.sentence
    assert found.lines[:3] == ("[order]", "own = 0.3", "share = 2")
    assert found.why == ()


def test_a_lead_that_is_gone_after_the_switch_changes_nothing(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    play_by(monkeypatch, past, lambda e, late: 0.8 if is_chosen(e) and not late else 1.0)
    found = advised(past)
    assert found.sentence.startswith("The default stays (own = 0.1, share = 0.75)")
    assert "does not hold after it" in found.sentence
    assert found.lines == ()
    assert "no better" in found.why[0]


def test_where_nothing_leads_the_setting_stays(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    play_by(monkeypatch, past, lambda _e, _late: 0.9)
    found = advised(past, replace(DEFAULT, own=0.2))
    assert list(found.orders) == [FCFS, PLAIN, CURRENT]
    assert found.sentence.startswith("Your setting stays (own = 0.2, share = 0.75)")
    assert "no other setting" in found.sentence
    assert found.lines == ()


@pytest.mark.parametrize("is_first_before", [True, False])
def test_where_first_come_first_served_is_best_it_says_so(
    past: Past, monkeypatch: pytest.MonkeyPatch, *, is_first_before: bool
) -> None:
    """Also where it shows after the switch alone."""
    play_by(
        monkeypatch,
        past,
        lambda e, late: 0.7 if e.is_first_come and (late or is_first_before) else 0.9,
    )
    found = advised(past)
    assert found.sentence.startswith("Plain first come, first served is best here")
    assert found.lines == ("[order]", "own = 0", "share = 0")


def test_the_default_is_found_again_and_its_lines_are_written(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Own 5 is in force."""
    default = (DEFAULT.own, DEFAULT.share, DEFAULT.max_delay_s)
    play_by(
        monkeypatch,
        past,
        lambda e, _late: 0.7 if (e.own, e.share, e.max_delay_s) == default else 0.9,
    )
    found = advised(past, replace(DEFAULT, own=5.0))
    assert found.sentence.startswith("The default is best here")
    assert found.lines == ("[order]", "own = 0.1", "share = 0.75")


def test_too_few_jobs_before_the_switch_give_a_sentence(past: Past) -> None:
    early = float(np.sort(past.arrived_s)[40])
    found = advised(past.switched_on(early))
    assert "second half of the part before the switch; at least 30 are needed" in found.sentence
    assert found.orders == {}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """First come, first served is in force; a small grid."""
    monkeypatch.setattr(candidates, "OWNS", (0.3,))
    monkeypatch.setattr(candidates, "SHARES", (2.0,))
    return settings_file(
        tmp_path,
        "[daemon]\ninterval_s = 600.0\n[order]\nown = 0.0\nshare = 0.0\n"
        "[tune]\nmax_p99_ratio = 2.0\n",
    )


def backtested(config: Path, folder: Path, *more: str) -> str:
    result = run("backtest", "--config", str(config), "--site", str(folder), "-p", "delay", *more)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_ends_with_what_to_write(config: Path, folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page"
    words = backtested(config, folder, "--report", str(page)).splitlines()
    reply: dict[str, Any] = json.loads((page / "results.json").read_text())["choice"]
    assert list(reply["orders"]) == [FCFS, PLAIN, CHOSEN]
    assert reply["lines"][:3] == ["[order]", "own = 0.3", "share = 2"]
    assert [x.strip() for x in words[-len(reply["lines"]) :]] == reply["lines"]
    assert words[-len(reply["lines"]) - 1] == reply["sentence"]
    assert reply["chosen_with"].startswith("a predictor of run times fitted to ")
    own = reply["orders"][CHOSEN]["against_fcfs"]["wait"]
    assert own["low"] < own["change"] < own["high"] < 0
    text = (page / "index.html").read_text()
    check_page(text, tmp_path)
    assert reply["sentence"] in text
    assert f"{own['change']:+.1%}" in text


def test_the_choice_can_be_left_out(config: Path, folder: Path) -> None:
    assert json.loads(backtested(config, folder, "--no-choose", "--json"))["choice"] is None


def test_a_tuned_site_is_sent_to_its_nights(config: Path, folder: Path) -> None:
    config.write_text(config.read_text() + '[policy]\nname = "tuned"\n')
    reply = json.loads(backtested(config, folder, "--json"))["choice"]
    assert "`rltuned tune` chooses and tests it" in reply["sentence"]
    assert reply["orders"] == {}


@pytest.mark.parametrize("count", [0, 1])
def test_a_record_without_jobs_or_with_one_is_refused(
    config: Path, folder: Path, tmp_path: Path, count: int
) -> None:
    rows = (folder / "sacct.txt").read_text().splitlines()[:count]
    (tmp_path / "sacct.txt").write_text("".join(f"{row}\n" for row in rows))
    why = ("empty", "no job is left to play: 1 ended")[count]
    with pytest.raises(TraceError, match=why):
        backtested(config, folder, "--history", str(tmp_path / "sacct.txt"))
