"""PPO's loss on some moments of a batch, in torch: ragged queues end to end, and the choices among
them.

A part is cut so that a core's cache holds it. Rows, choices and candidates are found by where each
moment's begin, so no queue is padded.

Source: PPO, Schulman et al. 2017.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from rltuned.lab.kernel.compiler import FloatArray, IntArray
from rltuned.lab.train.network import placed_by, read_by, spans
from rltuned.lab.train.rollout import Batch
from rltuned.policies.actor import Kind

ROWS_AT_ONCE: Final = 8192
"""What a network makes of so many rows stays in a core's cache."""


@dataclass(frozen=True, slots=True)
class Aim:
    """What an update goes by. before: (D,) log-probabilities as played; goal: (Q,) advantages;
    clip: of the probability ratio; bonus: of the entropy; among: so many choices share the loss.
    """

    before: FloatArray
    goal: FloatArray
    clip: float
    bonus: float
    among: float = 1.0


@dataclass(frozen=True, slots=True)
class Part:
    """Some moments of a batch. numbers: (m,) which; at: (r,) their rows in the batch, end to end;
    begins: (m+1,) where those of each begin; rows: (r, QUEUE_FEATURES); features: (r, F) what the
    actor reads.
    """

    numbers: IntArray
    at: IntArray
    begins: IntArray
    rows: Tensor
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
    at, begins = spans(batch.first, moments)
    rows = batch.rows[at]
    seen = read_by(kind, rows, batch.flags[moments].repeat(np.diff(begins), axis=0))
    return Part(
        numbers=moments,
        at=at,
        begins=begins,
        rows=torch.from_numpy(rows).to(device),
        features=torch.from_numpy(seen).to(device),
    )


def chances(
    batch: Batch, part: Part, logits: Tensor, reach: float
) -> tuple[IntArray, Tensor, Tensor]:
    """(c,) the choices of some moments, their log-probabilities, and the entropies of what each was
    chosen from. logits: (r, outputs) of the rows.
    """
    device, numbers = logits.device, part.numbers
    asked = torch.from_numpy(batch.asked[part.at]).to(device)
    scores = placed_by(logits.double(), asked.double(), reach)
    choices, its = spans(batch.choice_first, numbers)
    among, begins = spans(batch.candidate_first, choices)
    # a row of the batch -> a row of this part
    shift = (part.begins[:-1] - batch.first[numbers]).repeat(np.diff(its))
    chosen = torch.from_numpy(batch.choice[choices] + shift).to(device)
    rows = torch.from_numpy(batch.candidates[among] + shift.repeat(np.diff(begins))).to(device)
    of = torch.arange(len(choices), device=device).repeat_interleave(
        torch.from_numpy(np.diff(begins)).to(device)
    )
    offered, none = scores[rows], scores.new_zeros(len(choices))
    highest = none.scatter_reduce(0, of, offered.detach(), "amax", include_self=False)
    shares = torch.exp(offered - highest[of])
    whole = none.index_add(0, of, shares)
    log_whole = whole.log() + highest
    mean = none.index_add(0, of, shares * offered) / whole
    return choices, scores[chosen] - log_whole, log_whole - mean


def losses(batch: Batch, part: Part, logits: Tensor, aim: Aim, reach: float) -> Tensor:
    """(4,) sums over some moments' choices, each over aim.among: PPO's loss, the entropies, KL, and
    who was clipped.
    """
    choices, chance, entropy = chances(batch, part, logits, reach)
    goal = torch.from_numpy(aim.goal[batch.of_pass[choices]]).to(logits.device)
    change = chance - torch.from_numpy(aim.before[choices]).to(logits.device)
    ratio = change.exp()
    gain = torch.minimum(ratio * goal, ratio.clamp(1 - aim.clip, 1 + aim.clip) * goal)
    clipped = (ratio - 1).abs() > aim.clip
    sums = (-gain.sum(), entropy.sum(), (ratio - 1 - change).sum(), clipped.sum())
    return torch.stack(sums) / aim.among
