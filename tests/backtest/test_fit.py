"""Learning from the earlier part: only from what had ended, and within the stated time."""

from dataclasses import replace
from datetime import UTC
from pathlib import Path

import numpy as np
import pytest

from rltuned.lab.backtest.fit import fit_site
from rltuned.lab.backtest.past import Past, Span, past_of
from rltuned.lab.backtest.sacct_files import lines_of, read_history
from rltuned.lab.backtest.site import read_site_model
from rltuned.lab.train.predictor import fit
from rltuned.policies.actor import load_actor
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from tests.backtest.worlds import cluster, jobs
from tests.builders import sure
from tests.histories import EPOCH, rows, save_site

SHIPPED = load_predictor(shipped_predictor())
RLTUNE = Path(__file__).resolve().parents[2] / "models" / "rltune"


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Past:
    """Nobody waits: starts are submits. That is enough to learn run times from."""
    given = jobs(700, load=0.5)
    starts = np.array([j.submit_s for j in given])
    ends = starts + np.array([j.duration_s for j in given])
    folder = save_site(tmp_path_factory.mktemp("site"), cluster(), rows(given, starts, ends))
    reply = read_history(lines_of(folder / "sacct.txt"), "sacct.txt", UTC)
    return past_of(reply, read_site_model(folder), Span(float(EPOCH)))


def test_only_what_had_ended_by_the_switch_teaches(known: Past) -> None:
    learned, _ = known.known()
    assert learned
    assert all(j.submit_s + j.duration_s <= known.split_s for j in learned)
    early = [j for j in known.jobs if j.submit_s < known.split_s]
    assert len(learned) < len(early)  # somebody still ran


def test_a_run_that_ended_later_teaches_later(known: Past, tmp_path: Path) -> None:
    """The predictor is fitted by the real starts: here every job waited for an hour."""
    late = replace(known, wait_s=known.wait_s + 3_600.0)
    found = [
        fit_site("predictor", past, RLTUNE, SHIPPED, tmp_path / "no", minutes=1, seed=1)[1]
        for past in (known, late)
    ]
    jobs, start_s = late.known()
    expected = fit(jobs, start_s=start_s, begin=SHIPPED, seed=1).predictor.to_bytes()
    assert sure(found[1]).predictor.to_bytes() == expected
    assert sure(found[0]).predictor.to_bytes() != expected


def test_nothing_is_learned_when_nothing_is_asked_for_or_there_is_too_little(
    known: Past, tmp_path: Path
) -> None:
    out = tmp_path / "trained"
    assert fit_site("none", known, RLTUNE, SHIPPED, out, minutes=1, seed=1)[0] is None
    few = replace(known, split_s=known.jobs[100].submit_s)
    *found, text = fit_site("predictor", few, RLTUNE, SHIPPED, out, minutes=1, seed=1)
    assert found == [None, None]
    assert "200 are needed" in text
    assert not out.exists()


def test_the_predictor_learns_from_the_site(known: Past, tmp_path: Path) -> None:
    out = tmp_path / "trained"
    bundle, fitted, text = fit_site("predictor", known, RLTUNE, SHIPPED, out, minutes=1, seed=1)
    assert bundle is None
    assert fitted is not None
    assert fitted.examples <= len(known.known()[0])
    assert any(
        (fitted.predictor.weights[name] != weight).any() for name, weight in SHIPPED.weights.items()
    )
    assert "orders themselves are the shipped ones" in text
    assert not out.exists()


def test_ppo_ends_when_its_time_is_up_and_is_exported(known: Past, tmp_path: Path) -> None:
    out = tmp_path / "trained"
    reply: list[float] = []
    bundle, _, text = fit_site(
        "full", known, RLTUNE, SHIPPED, out, minutes=1e-6, seed=1, report=reply.append
    )
    assert reply == [1.0]  # one epoch, which began before the time was up
    assert bundle == out
    assert "for 1 epochs" in text
    actor = load_actor(out)
    assert actor.card.training.settings["epochs"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["trained"]
