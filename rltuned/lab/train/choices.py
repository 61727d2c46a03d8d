"""Choices of a batch: what an actor makes of them, ragged, so that no row is padding."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from rltuned.core.observation import sampled
from rltuned.lab.kernel.compiler import FloatArray, IntArray
from rltuned.lab.kernel.learning import Aim, Choices, rows_of, weigh
from rltuned.lab.train.batch import Batch
from rltuned.policies.network import Kind

ROWS_AT_ONCE: Final = 8192
"""What a network makes of so many rows stays in a core's cache."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some moments of a batch. numbers: (m,) which; rows: (r, QUEUE_FEATURES) of all of them, end
    to end; begins: (m+1,) where those of each begin; features: (r, F) what the actor reads.
    """

    numbers: IntArray
    rows: Tensor
    begins: IntArray
    features: Tensor


def parts_of(batch: Batch, moments: IntArray, kind: Kind, device: str) -> Iterator[Part]:
    """Some moments, in their order, about ROWS_AT_ONCE rows at a time on a CPU."""
    rows = np.cumsum(np.diff(batch.first)[moments])
    at_once = ROWS_AT_ONCE if device == "cpu" else len(batch.rows)
    for some in np.split(moments, np.flatnonzero(np.diff(rows // at_once)) + 1):
        if len(some):
            yield part_of(batch, some, kind, device)


def part_of(batch: Batch, moments: IntArray, kind: Kind, device: str) -> Part:
    """Cut some moments out of a batch."""
    rows, begins = rows_of(batch.rows, batch.first, moments)
    seen = read_by(kind, rows, batch.flags[moments].repeat(np.diff(begins), axis=0))
    return Part(
        numbers=moments,
        rows=torch.from_numpy(rows).to(device),
        begins=begins,
        features=torch.from_numpy(seen).to(device),
    )


def read_by(kind: Kind, rows: np.ndarray, flags: IntArray) -> np.ndarray:
    """(R, features) what a network reads of rows; flags: of each row's moment, (R, 2)."""
    return sampled(rows, flags[:, 0] > 0, flags[:, 1] > 0) if kind == "paper" else rows


def weighed(
    batch: Batch, part: Part, logits: Tensor, aim: Aim, chance: FloatArray
) -> tuple[FloatArray, Tensor]:
    """See kernel/learning.weigh: the sums, and the slope (r, outputs) by an actor's logits."""
    told = Choices(
        batch.asked,
        batch.first,
        batch.choice_first,
        batch.choice,
        batch.candidates,
        batch.candidate_first,
    )
    seen = logits.detach().cpu().numpy()
    slope = np.empty_like(seen)
    sums = weigh(told, aim, part.numbers, seen, chance, slope)
    return sums, torch.from_numpy(slope).to(logits.device)
