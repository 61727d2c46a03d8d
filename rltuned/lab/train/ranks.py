"""One process or several: who plays which windows, and whose gradients count.

Every rank plays its share of the windows, all of them see all episodes, each computes the gradient
of its share of a minibatch, and the sums are added up. So N ranks do what one rank does with the
same windows, up to the order of a sum.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from rltuned.errors import ModelError, SettingsError

Item = TypeVar("Item")
MEETING_S: Final = 600.0
"""So long a rank waits for the others where all of them meet. A round of a training takes seconds;
the first one of a new machine may compile for some minutes."""


def _meet(what: Callable[..., Any], *args: Any, **more: Any) -> None:
    """What all ranks do together. Raises ModelError: one of them is gone, or too late."""
    try:
        what(*args, **more)
    except RuntimeError as error:  # torch has no narrower one for all of them
        reason = str(error).strip().splitlines()[0]
        raise ModelError(f"another rank of this training is gone: {reason}") from error


class Ranks(NamedTuple):
    """This process among all of them."""

    rank: int = 0
    world: int = 1

    def share(self, items: Sequence[Item]) -> list[Item]:
        """Every world-th item, beginning with the own one."""
        return list(items[self.rank :: self.world])

    def gather(self, own: Sequence[Item]) -> list[Item]:
        """All items in the order in which share() dealt them out. Raises ModelError: see _meet."""
        dealt: list[list[Item]] = [list(own)] * self.world
        if self.world > 1:
            _meet(dist.all_gather_object, dealt, list(own))
        longest = max(map(len, dealt))
        return [part[i] for i in range(longest) for part in dealt if i < len(part)]

    def total(self, values: Sequence[float]) -> list[float]:
        """Sums over the ranks of each of some numbers. Raises ModelError: see _meet."""
        whole = torch.tensor(values, dtype=torch.float64)
        if self.world > 1:
            _meet(dist.all_reduce, whole)
        found: list[float] = whole.tolist()
        return found

    def add_gradients(self, modules: Iterable[nn.Module]) -> None:
        """Replace each gradient by its sum over the ranks. Raises ModelError: see _meet."""
        for parameter in (p for m in modules for p in m.parameters() if self.world > 1):
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            _meet(dist.all_reduce, parameter.grad)

    def align(self, modules: Iterable[nn.Module]) -> None:
        """Give every rank the first one's parameters. Raises ModelError: see _meet."""
        for parameter in (p for m in modules for p in m.parameters() if self.world > 1):
            _meet(dist.broadcast, parameter.data, 0)


ALONE: Final = Ranks()


def join_ranks(meeting_s: float = MEETING_S) -> Ranks:
    """Meet the other ranks of `torchrun` or `srun`. Raises SettingsError: they are not named in the
    environment; ModelError: one of them does not come within meeting_s.
    """
    for name, slurm in (("RANK", "SLURM_PROCID"), ("WORLD_SIZE", "SLURM_NTASKS")):
        if slurm in os.environ:
            os.environ.setdefault(name, os.environ[slurm])
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        if name not in os.environ:
            raise SettingsError(
                f"--distributed: {name} is not set; start with torchrun, or with srun and "
                "MASTER_ADDR and MASTER_PORT exported"
            )
    _meet(dist.init_process_group, "gloo", timeout=timedelta(seconds=meeting_s))
    return Ranks(dist.get_rank(), dist.get_world_size())
