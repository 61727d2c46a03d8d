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
from rltuned.lab.backtest.study import as_daemon
from rltuned.lab.cli.site_files import history_file, read_record, zone_of
from rltuned.lab.compare import JobScores
from rltuned.lab.tune import search as searching
from rltuned.lab.tune.advice import CHOSEN, CURRENT, FCFS, PLAIN, Advice, advise
from rltuned.lab.tune.night import price_words, training_before
from rltuned.lab.tune.search import Alternatives, Candidate, Period, Searched, search
from rltuned.policies.actor import load_actor
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
PRICE = 1.5
BREAKS = 3.0
"""Times the longest wait of Slurm's own order."""
Factor = Callable[[Candidate, bool], float]
"""What an order makes of every wait; whether on the part after the switch."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("choice"))


@pytest.fixture(scope="module")
def past(folder: Path) -> Past:
    nothing: Callable[[str, float], None] = lambda _what, _part: None  # noqa: E731
    return read_record(folder, history_file(folder), zone_of("UTC"), Span(EPOCH), nothing)[1]


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


def searched(past: Past, factor: Callable[[Candidate], float]) -> Searched:
    """On the part before the switch; first come, first served is in force."""
    _, switch_s, end_s = training_before(past, past.split_s)
    incumbent = Candidate(POLICY, 0.0, 0.0, 604_800.0, None)
    with pytest.MonkeyPatch.context() as patch:
        play_by(patch, past, lambda c, _late: 1.0 if c.is_first_come else factor(c))
        return search(
            past.switched_on(switch_s), end_s, incumbent, Alternatives(), price=PRICE, daemon=DAEMON
        )


@examples(25)
@given(st.lists(st.floats(0.5, 1.0) | st.floats(1.3, 1.9), min_size=4, max_size=4))
def test_what_is_chosen_keeps_the_price_and_no_share_that_keeps_it_is_better(
    past: Past, by_share: list[float]
) -> None:
    """The other numbers change nothing. Above 1 the price is broken, for what is then the gain."""
    times = dict(zip(searching.SHARES, by_share, strict=True))
    found = searched(past, lambda c: times[c.share] if c.share else 1.0)
    kept = [t for t in by_share if t < 1.0]
    if found.best is None:
        assert min(kept, default=1.0) > 0.9
    else:
        assert found.best.keeps
        assert times[found.best.candidate.share] == min(kept)
    more = found.next_step
    broken = [t - 1.0 for t in by_share if t > 1.0]
    if more is not None:
        assert not more.keeps
        assert more.longest == pytest.approx(BREAKS)
        assert "tune.longest = 3 would allow" in price_words(found, PRICE)[-1]
    elif broken:
        assert min(broken) > 0.85 * min([1.0, *kept])


def test_each_number_is_changed_from_the_best_so_far(past: Past) -> None:
    best = {"share": 2.0, "own": 0.03, "max_delay_s": 86_400.0}
    found = searched(
        past, lambda c: 1.0 - 0.1 * sum(getattr(c, name) == value for name, value in best.items())
    )
    chosen = found.best
    assert chosen is not None
    assert {name: getattr(chosen.candidate, name) for name in best} == best
    assert "is 0.70 times" in price_words(found, PRICE)[0]


def test_trust_and_predictor_are_changed_and_trust_0_is_the_rule(past: Past) -> None:
    policies = searching.policies_of(Path("models", "rltune"))
    assert [(p.trust, b is None) for p, b in policies] == [
        (None, True), (0.35, False), (0.7, False), (1.0, False)
    ]  # fmt: skip
    site = load_predictor(shipped_predictor())
    _, switch_s, end_s = training_before(past, past.split_s)
    incumbent = Candidate(POLICY, 0.1, 0.75, 604_800.0, None)
    with pytest.MonkeyPatch.context() as patch:
        play_by(
            patch,
            past,
            lambda c, _late: 1.0 - 0.1 * (c.policy.trust == 0.35) - 0.1 * c.is_refitted,
        )
        found = search(
            past.switched_on(switch_s), end_s, incumbent,
            Alternatives(policies, [(None, False), (site, True)]), price=PRICE, daemon=DAEMON,
        )  # fmt: skip
    chosen = found.best
    assert chosen is not None
    assert (chosen.candidate.policy.trust, chosen.candidate.predictor) == (0.35, site)
    assert chosen.candidate.bundle == Path("models", "rltune")


def test_where_the_time_is_over_what_was_played_counts(past: Past) -> None:
    left = iter([True] * 3)
    _, switch_s, end_s = training_before(past, past.split_s)
    incumbent = Candidate(POLICY, 0.1, 0.75, 604_800.0, None)
    with pytest.MonkeyPatch.context() as patch:
        play_by(patch, past, lambda _c, _late: 0.9)
        found = search(
            past.switched_on(switch_s), end_s, incumbent, Alternatives(), price=PRICE,
            daemon=DAEMON, may_play=lambda _name: next(left, False),
        )  # fmt: skip
    assert (found.is_cut, found.plays, found.tried, found.best) == (True, 3, [], None)


def test_first_come_first_served_is_one_order_whatever_the_policy_and_the_bound() -> None:
    one = Candidate(POLICY, 0.0, 0.0, 1.0, None)
    other = replace(one, policy=BASELINES["saf"], max_delay_s=2.0)
    assert one.same_as(other)
    assert not one.same_as(replace(one, own=0.1))
    assert not replace(one, own=0.1).same_as(one)


def advised(past: Past, order: Order = DEFAULT) -> Advice:
    known = load_predictor(shipped_predictor())
    default = load_actor(Path("models", "rltune"), PLAIN_SETTINGS.policy.trust)
    return advise(
        past, [(default, None)], order, lambda _began: known, known, price=PRICE, daemon=DAEMON
    )


def is_chosen(candidate: Candidate) -> bool:
    return candidate.share == 2.0


def test_a_setting_that_holds_after_the_switch_is_advised_with_its_lines(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    play_by(monkeypatch, past, lambda e, _late: 0.8 if is_chosen(e) else 1.0)
    found = advised(past)
    assert list(found.orders) == [FCFS, PLAIN, CHOSEN]
    assert found.sentence.startswith("Another setting is better here")
    assert "mean wait -20.0% [" in found.sentence
    assert found.lines == ("[order]", "own = 0.1", "share = 2")
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
    monkeypatch.setattr(searching, "OWNS", (0.3,))
    monkeypatch.setattr(searching, "SHARES", (2.0,))
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
    config.write_text(config.read_text().replace('"delay"', '"tuned"'))
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
