"""PPO of a night over several processes, which are started as torchrun would start them."""

import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from typer.testing import CliRunner

from rltuned.backtest import fit_order
from rltuned.backtest.past import Past, Span
from rltuned.cli import app
from rltuned.cli.site_files import history_file, read_record, zone_of
from rltuned.errors import ModelError, SettingsError
from rltuned.policies.actor import load_actor
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.train.ranks import Ranks, join_ranks, leave
from rltuned.train.run import Job, perform
from tests.backtest.worlds import WEIGHTED, jobs, site
from tests.histories import EPOCH

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "models" / "rltune"
LOST = 9
"""Exit code of a first rank whose helper is gone."""
WITHIN_S = 300.0


def past_of(folder: Path) -> Past:
    made = site(folder / "site", jobs(700, load=1.1), replace(WEIGHTED, size_weight=0))
    _, found = read_record(
        made, history_file(made), zone_of("UTC"), Span(EPOCH), lambda _what, _part: None
    )
    return found.switched_on(float(np.quantile(found.arrived_s, 0.9)))


def dies(*_given: object, **_named: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dies_in_training(job: Job, *, ranks: Ranks, **_named: object) -> None:
    perform(job, ranks=ranks, on_epoch=dies)


def night(folder: Path, minutes: float, lost: str) -> None:
    """What a rank does: the first trains, the others join in. lost: who dies, and when."""
    ranks = join_ranks(WITHIN_S)
    who, _, when = lost.partition(" ")
    if who == str(ranks.rank):
        setattr(fit_order, "perform", dies if when == "before" else dies_in_training)  # noqa: B010
    if ranks.rank:
        fit_order.join_in(ranks)
    else:
        past = past_of(folder)
        try:
            bundle, text = fit_order.fit_order(
                past.known(), past, MODEL, load_predictor(shipped_predictor()), folder / "made",
                minutes=minutes, seed=1, report=lambda _part: None, ranks=ranks,
            )  # fmt: skip
        except ModelError as error:
            print(error)  # noqa: T201 - for the test that started this
            raise SystemExit(LOST) from error
        assert bundle is not None, text
        print(text)  # noqa: T201
        fit_order.let_go(ranks)
    leave()


def run(folder: Path, minutes: float, lost: str = "none") -> tuple[list[int], str]:
    """Exit codes of two ranks, and what they printed."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = door.getsockname()[1]
    env = os.environ | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": "2",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
    }
    words = (__name__, str(folder), str(minutes), lost)
    command = [sys.executable, "-W", "ignore", "-m", *words]
    running = [
        subprocess.Popen(
            command,
            env=env | {"RANK": str(rank)},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        shown = "".join(process.communicate(timeout=WITHIN_S)[0] for process in running)
    finally:
        for process in running:
            process.kill()
    return [process.returncode for process in running], shown


def test_two_ranks_train_what_one_exports(tmp_path: Path) -> None:
    codes, shown = run(tmp_path, 5.0)
    assert codes == [0, 0], shown
    assert "by PPO for 2 epochs" in shown
    card = load_actor(tmp_path / "made").card
    assert "begun from rltune" in card.training.method
    assert card.training.machine.endswith("2 ranks")


def test_all_ranks_stop_when_the_first_one_s_time_is_up(tmp_path: Path) -> None:
    codes, shown = run(tmp_path, 1e-6)
    assert codes == [0, 0], shown
    assert "by PPO for 1 epochs" in shown
    load_actor(tmp_path / "made")


@pytest.mark.parametrize(
    ("lost", "wanted"),
    [
        ("1 before", [LOST, -signal.SIGKILL]),
        ("1 training", [LOST, -signal.SIGKILL]),
        ("0 training", [-signal.SIGKILL, 1]),
    ],
)
def test_a_rank_that_dies_ends_the_training_of_all(
    tmp_path: Path, lost: str, wanted: list[int]
) -> None:
    codes, shown = run(tmp_path, 5.0, lost)
    assert codes == wanted, shown
    assert "another rank of this training is gone" in shown
    assert not (tmp_path / "made").exists()


def test_a_rank_that_was_not_started_as_one_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SettingsError, match="RANK is not set; start with torchrun, or with srun"):
        CliRunner().invoke(app, ["tune", "--distributed"], catch_exceptions=False)


@pytest.mark.parametrize("world", ["1", "2"])
def test_the_first_rank_goes_on_alone_after_it_left(world: str) -> None:
    assert Ranks(0, int(world)).from_first("own") == "own"


if __name__ == "__main__":
    np.seterr(all="raise")
    with patch.multiple(fit_order, EPOCHS=2, BATCHES=10):
        night(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
