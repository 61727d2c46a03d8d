"""PPO of a night over several processes, which are started as torchrun would start them."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from typer.testing import CliRunner

from rltuned.cli import app
from rltuned.errors import ModelError, SettingsError
from rltuned.lab.backtest import fit_order
from rltuned.lab.backtest.past import Past, Span
from rltuned.lab.cli.site_files import history_file, read_record, zone_of
from rltuned.lab.train.learner import PpoSettings
from rltuned.lab.train.ranks import Ranks, join_ranks, leave
from rltuned.lab.train.run import Job, perform
from rltuned.policies.actor import load_actor
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from tests import two_ranks
from tests.backtest.worlds import WEIGHTED, jobs, site
from tests.builders import sure
from tests.histories import EPOCH

MODEL = two_ranks.ROOT / "models" / "rltune"
LOST = 9
"""Exit code of a first rank whose helper is gone."""
WITHIN_S = 300.0
LATE_S = 8.0
"""That a rank of these tests waits for one that stands still."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site whose record all ranks of all tests read."""
    by_age = replace(WEIGHTED, size_weight=0)
    return site(tmp_path_factory.mktemp("site"), jobs(700, load=1.1), by_age)


def past_of(made: Path) -> Past:
    _, found = read_record(
        made, history_file(made), zone_of("UTC"), Span(EPOCH), lambda _what, _part: None
    )
    return found.switched_on(float(np.quantile(found.arrived_s, 0.9)))


def lose_at(number: signal.Signals, when: str) -> None:
    """Have this process get the signal before, while or after it trains."""

    def end(*_given: object, **_named: object) -> None:
        os.kill(os.getpid(), number)

    def end_in_training(job: Job[PpoSettings], *, ranks: Ranks, **_named: object) -> None:
        perform(job, ranks=ranks, on_epoch=end)

    def end_after(job: Job[PpoSettings], **named: Any) -> None:
        perform(job, **named)
        end()

    stages = {"before": end, "training": end_in_training, "after": end_after}
    setattr(fit_order, "perform", stages[when])  # noqa: B010


def night(made: Path, folder: Path, minutes: float, lost: str) -> None:
    """What a rank does: the first trains, the others join in. lost: who, by which signal, when."""
    who, signalled, when = lost.split()
    two_ranks.meet(folder)
    ranks = join_ranks(2 * WITHIN_S, LATE_S if signalled == "SIGSTOP" else WITHIN_S)
    if who == str(ranks.rank):
        lose_at(signal.Signals[signalled], when)
    if ranks.rank:
        fit_order.join_in(ranks)
    else:
        past = past_of(made)
        try:
            bundle, text = fit_order.fit_order(
                past, MODEL, load_predictor(shipped_predictor()), folder / "made",
                minutes=minutes, seed=1, report=lambda _part: None, ranks=ranks,
            )  # fmt: skip
        except ModelError as error:
            print(error)  # noqa: T201 - for the test that started this
            raise SystemExit(LOST) from error
        assert bundle is not None, text
        print(text)  # noqa: T201
        print("let go:", fit_order.let_go(ranks))  # noqa: T201
    leave()


def main(made: str, folder: str, minutes: str, lost: str) -> None:
    np.seterr(all="raise")
    with patch.multiple(fit_order, EPOCHS=2, BATCHES=10):
        night(Path(made), Path(folder), float(minutes), lost)


def run(
    made: Path, folder: Path, minutes: float, lost: str = "nobody - -"
) -> tuple[list[int | None], str]:
    """Exit codes of two ranks, and what they printed. One that stands still goes on at the end."""
    running = two_ranks.start(folder, main, str(made), str(folder), str(minutes), lost)
    try:
        shown = running[0].communicate(timeout=WITHIN_S)[0]
        running[1].send_signal(signal.SIGCONT)
        shown += running[1].communicate(timeout=WITHIN_S)[0]
    finally:
        for process in running:
            process.kill()
            process.communicate()
    return [process.returncode for process in running], shown


def test_two_ranks_train_what_one_exports(made: Path, tmp_path: Path) -> None:
    codes, shown = run(made, tmp_path, 5.0)
    assert codes == [0, 0], shown
    assert "by PPO for 2 epochs" in shown
    card = load_actor(tmp_path / "made").card
    assert "begun from rltune" in card.training.method
    assert card.training.machine.endswith("2 ranks")


def test_all_ranks_stop_when_the_first_one_s_time_is_up(made: Path, tmp_path: Path) -> None:
    codes, shown = run(made, tmp_path, 1e-6)
    assert codes == [0, 0], shown
    assert "by PPO for 1 epochs" in shown
    load_actor(tmp_path / "made")


@pytest.mark.parametrize(
    ("lost", "wanted"),
    [
        ("1 SIGKILL before", [LOST, -signal.SIGKILL]),
        ("1 SIGKILL training", [LOST, -signal.SIGKILL]),
        ("0 SIGKILL training", [-signal.SIGKILL, 1]),
        ("1 SIGSTOP before", [LOST, 1]),
        ("1 SIGSTOP training", [LOST, 1]),
    ],
)
def test_a_rank_that_dies_or_stands_still_ends_the_training_of_all(
    made: Path, tmp_path: Path, lost: str, wanted: list[int]
) -> None:
    codes, shown = run(made, tmp_path, 5.0, lost)
    assert codes == wanted, shown
    assert "another rank of this training is gone" in shown
    assert not (tmp_path / "made").exists()


def test_a_rank_that_dies_after_the_training_costs_the_night_nothing(
    made: Path, tmp_path: Path
) -> None:
    codes, shown = run(made, tmp_path, 5.0, "1 SIGKILL after")
    assert codes == [0, -signal.SIGKILL], shown
    assert "let go: another rank of this training is gone" in shown
    load_actor(tmp_path / "made")


def test_a_rank_that_was_not_started_as_one_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SettingsError, match="RANK is not set; start with torchrun, or with srun"):
        CliRunner().invoke(app, ["tune", "--distributed"], catch_exceptions=False)


def test_the_first_rank_trains_alone_after_it_left(made: Path, tmp_path: Path) -> None:
    past = past_of(made)
    with patch.multiple(fit_order, EPOCHS=1, BATCHES=5):
        bundle, _ = fit_order.fit_order(
            past, MODEL, load_predictor(shipped_predictor()), tmp_path / "made",
            minutes=5.0, seed=1, report=lambda _part: None, ranks=Ranks(0, 2),
        )  # fmt: skip
    assert "ranks" not in load_actor(sure(bundle)).card.training.machine
    assert fit_order.let_go(Ranks(0, 2)) == ""
