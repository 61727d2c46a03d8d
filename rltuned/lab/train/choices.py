"""Choices as tensors: what an actor makes of them, ragged, so that no row is padding."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rltuned.core.observation import sampled
from rltuned.lab.kernel.compiler import IntArray
from rltuned.lab.train.batch import Batch, spans
from rltuned.lab.train.network import TorchActor, placed_by
from rltuned.policies.network import Kind


@dataclass(frozen=True, slots=True)
class Part:
    """Some moments of a batch with their rows and choices, numbered from 0, as tensors."""

    rows: Tensor
    features: Tensor
    asked: Tensor
    moment: Tensor
    place: Tensor
    moments: int
    chosen: Tensor
    of_moment: Tensor
    among: Tensor
    whose: Tensor

    def __len__(self) -> int:
        return len(self.chosen)


def part_of(batch: Batch, moments: IntArray, kind: Kind, device: str) -> Part:
    """Cut some moments out of a batch."""
    row_at, moment = spans(batch.first, moments)
    choice_at, of_moment = spans(_bounds(batch), moments)
    among_at, whose = spans(batch.candidate_first, choice_at)
    # rows of a moment stay together, so a row's new number is its old one, moved
    lengths = np.bincount(moment, minlength=len(moments))
    starts = np.cumsum(lengths) - lengths
    shift = starts - batch.first[moments]
    rows = batch.rows[row_at]
    seen = read_by(kind, rows, batch.flags[moments][moment])
    place = np.arange(len(row_at)) - starts[moment]

    def tensor(array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    return Part(
        rows=tensor(rows),
        features=tensor(seen),
        asked=tensor(batch.asked[row_at]),
        moment=tensor(moment),
        place=tensor(place),
        moments=len(moments),
        chosen=tensor(batch.choice[choice_at] + shift[of_moment]),
        of_moment=tensor(of_moment),
        among=tensor(batch.candidates[among_at] + shift[of_moment[whose]]),
        whose=tensor(whose),
    )


def choices_at(batch: Batch, moments: IntArray) -> IntArray:
    """Places of the choices of some moments, in the order of part_of."""
    return spans(_bounds(batch), moments)[0]


def _bounds(batch: Batch) -> IntArray:
    return np.append(batch.of_pass.searchsorted(np.arange(len(batch.first) - 1)), len(batch.choice))


def read_by(kind: Kind, rows: np.ndarray, flags: IntArray) -> np.ndarray:
    """(R, features) what a network reads of rows; flags: of each row's moment, (R, 2)."""
    return sampled(rows, flags[:, 0] > 0, flags[:, 1] > 0) if kind == "paper" else rows


def scores_of(actor: TorchActor, part: Part) -> Tensor:
    """(R,) what every row is chosen by: less its virtual time; see kernel/episode."""
    return placed_by(actor.layers(part.features), part.asked, actor.reach)


def log_chances(scores: Tensor, part: Part) -> tuple[Tensor, Tensor]:
    """(D,) log-probability of what was chosen, and the entropy of each choice."""
    options = scores[part.among]
    highest = torch.full_like(scores[part.chosen], -torch.inf).scatter_reduce(
        0, part.whose, options.detach(), reduce="amax"
    )
    raised = torch.exp(options - highest[part.whose])
    whole = torch.zeros_like(highest).index_add(0, part.whose, raised)
    log_whole = torch.log(whole) + highest
    mean = torch.zeros_like(highest).index_add(0, part.whose, raised * options) / whole
    return scores[part.chosen] - log_whole, log_whole - mean
