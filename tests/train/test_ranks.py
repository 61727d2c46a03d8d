"""Several ranks do what one does with all the windows."""

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from rltuned.errors import SettingsError
from rltuned.train.learner import Learner
from rltuned.train.ppo import train
from rltuned.train.ranks import ALONE, Ranks, join_ranks
from tests.train.worlds import GROUND, SMALL

SETTINGS = replace(SMALL, network="context", batches=6, epochs=2)
ROOT = Path(__file__).parents[2]


def learned(ranks: Ranks) -> dict[str, torch.Tensor]:
    learner = Learner(SETTINGS)
    train(learner, [GROUND], SETTINGS, lambda _: 0.0, ranks=ranks)
    return {k: v.clone() for k, v in learner.actor.state_dict().items()}


def main(out: str) -> None:
    ranks = join_ranks()
    assert ranks.world == int(os.environ["WORLD_SIZE"])
    tensors = learned(ranks)
    save_file(tensors, f"{out}/{ranks.rank}.safetensors")
    torch.distributed.destroy_process_group()


def test_two_ranks_give_the_same_update_as_one_with_all_the_windows(tmp_path: Path) -> None:
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
    command = [sys.executable, "-W", "ignore", "-m", "tests.train.test_ranks", str(tmp_path)]
    running = [
        subprocess.Popen(command, env=env | {"RANK": str(rank)}, cwd=ROOT) for rank in range(2)
    ]
    alone = learned(ALONE)
    assert [process.wait(100) for process in running] == [0, 0]
    first, second = (load_file(tmp_path / f"{rank}.safetensors") for rank in range(2))
    moved = Learner(SETTINGS).actor.state_dict()
    for name, tensor in alone.items():
        torch.testing.assert_close(first[name], second[name], atol=0, rtol=0)
        # Adam divides by the size of a gradient, so those near 0 show the order of a sum
        torch.testing.assert_close(first[name], tensor, atol=1e-4, rtol=1e-4)
    assert any((alone[n] - moved[n]).abs().max() > 1e-3 for n in alone)


def test_shares_come_back_in_order() -> None:
    parts = [Ranks(r, 3).share(range(8)) for r in range(3)]
    assert parts == [[0, 3, 6], [1, 4, 7], [2, 5]]
    assert ALONE.gather([1, 2]) == [1, 2]
    assert ALONE.total(2.5) == 2.5


def test_a_missing_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SettingsError, match="RANK is not set"):
        join_ranks()


if __name__ == "__main__":
    np.seterr(all="raise")
    main(sys.argv[1])
