"""Several ranks do what one does with all the windows."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from rltuned.errors import ModelError, SettingsError
from rltuned.lab.train.ppo import Learner, train
from rltuned.lab.train.ranks import ALONE, Ranks, join_ranks
from tests import two_ranks
from tests.train.worlds import SMALL, WORKLOAD

SETTINGS = replace(SMALL, network="queue", batches=6, epochs=2)
LOST = 9
"""Exit code of a rank that says that the other one is gone."""


def learned(ranks: Ranks) -> dict[str, torch.Tensor]:
    learner = Learner(SETTINGS)
    train(learner, [WORKLOAD], lambda _: (0.0, None, None), ranks=ranks)
    return {k: v.clone() for k, v in learner.actor.state_dict().items()}


def stand_still(ranks: Ranks) -> None:
    """The second rank stops before the first meeting."""
    if ranks.rank:
        os.kill(os.getpid(), signal.SIGSTOP)
    try:
        ranks.gather([ranks.rank])
    except ModelError as error:
        print(error)  # noqa: T201 - for the test that started this
        raise SystemExit(LOST) from error
    finally:
        # torch may abort a process that ends within its groups
        torch.distributed.destroy_process_group()


def main(out: str) -> None:
    np.seterr(all="raise")
    folder, _, still = out.partition(" ")
    if still:
        two_ranks.meet(Path(folder))
        stand_still(join_ranks(5.0))
    ranks = join_ranks()
    assert ranks.world == int(os.environ["WORLD_SIZE"])
    tensors = learned(ranks)
    save_file(tensors, f"{out}/{ranks.rank}.safetensors")
    torch.distributed.destroy_process_group()


def test_two_ranks_give_the_same_update_as_one_with_all_the_windows(tmp_path: Path) -> None:
    running = two_ranks.start(tmp_path, main, str(tmp_path))
    alone = learned(ALONE)
    for process in running:
        process.communicate(timeout=600)
    assert [process.returncode for process in running] == [0, 0]
    first, second = (load_file(tmp_path / f"{rank}.safetensors") for rank in range(2))
    moved = Learner(SETTINGS).actor.state_dict()
    for name, tensor in alone.items():
        torch.testing.assert_close(first[name], second[name], atol=0, rtol=0)
        # Adam divides by the size of a gradient, so those near 0 show the order of a sum
        torch.testing.assert_close(first[name], tensor, atol=1e-4, rtol=1e-4)
    assert any((alone[n] - moved[n]).abs().max() > 1e-3 for n in alone)


def test_no_rank_waits_long_for_one_that_stands_still_before_the_training(
    tmp_path: Path,
) -> None:
    first, second = two_ranks.start(tmp_path, main, f"{tmp_path} still")
    try:
        shown, _ = first.communicate(timeout=600)
        assert first.returncode == LOST, shown
        assert "another rank of this training is gone" in shown
        second.send_signal(signal.SIGCONT)
        shown, _ = second.communicate(timeout=600)
        assert second.returncode == LOST, shown
        assert "another rank of this training is gone" in shown
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()


def test_shares_come_back_in_order() -> None:
    parts = [Ranks(r, 3).share(range(8)) for r in range(3)]
    assert parts == [[0, 3, 6], [1, 4, 7], [2, 5]]
    assert ALONE.gather([1, 2]) == [1, 2]
    assert ALONE.total([2.5]) == [2.5]


def test_a_missing_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SettingsError, match="RANK is not set"):
        join_ranks()
