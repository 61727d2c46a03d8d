"""policies/network, compiled: scores of a whole queue in one go."""

from collections.abc import Callable
from typing import Final, NamedTuple, cast

import numpy as np

from rltuned.core.features import COLUMN
from rltuned.core.observation import FIXED
from rltuned.lab.kernel.compiler import Float32Array, FloatArray, IntArray, compiled, in_place
from rltuned.lab.kernel.features import FRAGMENTED, SEVERAL
from rltuned.policies.network import correction

PAPER, QUEUE, AGENT = 0, 1, 2
BLOCK = 256
_FIXED_AT = np.array([COLUMN[name] for name in FIXED])
factor: Final = cast("Callable[[float, float, float], float]", in_place(correction))
"""What a network makes of the delay that the rule asks for: reach, trust, score."""
_SIZE, _URGENCY = COLUMN["job_size"], COLUMN["urgency"]
_WAYS, _FREE_NODES = COLUMN["num_ways"], COLUMN["free_nodes"]


class Net(NamedTuple):
    """A network's weights. F inputs, H and K hidden units, O outputs; kind: see PAPER, or AGENT,
    whose scores come from elsewhere; reach, trust: see Network. w1 (F, H), b1 (H,), w2 (H, K),
    b2 (K,), w3 (K, O), b3 (O,).
    """

    kind: int
    w1: Float32Array
    b1: Float32Array
    w2: Float32Array
    b2: Float32Array
    w3: Float32Array
    b3: Float32Array
    reach: float
    trust: float


@compiled
def forward(net: Net, rows: Float32Array, count: int, flags: IntArray, scores: FloatArray) -> None:
    """Fill scores[:count] (n, 2) from the features of the queue; one output stands in both columns.

    A block of jobs at a time, so that what a layer needs stays in the nearest cache.
    """
    for first in range(0, count, BLOCK):
        last = min(first + BLOCK, count)
        _together(net, rows[first:last], last - first, flags, scores[first:last])


@compiled
def _together(
    net: Net, rows: Float32Array, count: int, flags: IntArray, scores: FloatArray
) -> None:
    seen = np.empty((len(net.w1), count), dtype=np.float32)
    _turn(net.kind, rows, count, flags, seen)
    hidden = np.empty((len(net.b1), count), dtype=np.float32)
    _dense(net.w1, net.b1, seen, hidden)
    second = np.empty((len(net.b2), count), dtype=np.float32)
    _dense(net.w2, net.b2, hidden, second)
    total = np.empty(count, dtype=np.float32)
    for out in range(len(net.b3)):
        total[:] = 0.0
        for k in range(len(second)):
            weight = net.w3[k, out]
            for at in range(count):
                total[at] += second[k, at] * weight
        last = net.b3[out]
        for at in range(count):
            scores[at, out] = total[at] + last
    if len(net.b3) == 1:
        scores[:, 1] = scores[:, 0]


@in_place
def _turn(kind: int, rows: Float32Array, count: int, flags: IntArray, seen: Float32Array) -> None:
    """What the first layer reads, one feature after the other: jobs side by side."""
    if kind == PAPER:
        fragmented, several = flags[FRAGMENTED], flags[SEVERAL]
        for at in range(count):
            for i in range(len(_FIXED_AT)):
                seen[i, at] = rows[at, _FIXED_AT[i]]
            size, urgency = np.float32(1.0) - rows[at, _SIZE], rows[at, _URGENCY]
            seen[6, at] = size if fragmented else urgency
            seen[7, at] = rows[at, _WAYS] if several else rows[at, _FREE_NODES]
        return
    for at in range(count):
        for i in range(len(seen)):
            seen[i, at] = rows[at, i]


@in_place
def _dense(
    weights: Float32Array, bias: Float32Array, seen: Float32Array, out: Float32Array
) -> None:
    """Out (K, n) = max(weights' @ seen + bias, 0) of seen (F, n).

    The innermost loop runs over jobs, four features at a time, summed in their order: the machine
    does many jobs at once, and the sums are those of the plain loop to the last bit.
    """
    features, units = weights.shape
    count, whole = seen.shape[1], features - features % 4
    for k in range(units):
        for at in range(count):
            out[k, at] = bias[k]
        for i in range(0, whole, 4):
            a, b, c, d = weights[i, k], weights[i + 1, k], weights[i + 2, k], weights[i + 3, k]
            for at in range(count):
                total = out[k, at] + a * seen[i, at]
                total = total + b * seen[i + 1, at] + c * seen[i + 2, at]
                out[k, at] = total + d * seen[i + 3, at]
        for i in range(whole, features):
            a = weights[i, k]
            for at in range(count):
                out[k, at] += a * seen[i, at]
        for at in range(count):
            out[k, at] = max(out[k, at], np.float32(0.0))


@compiled
def corrects(net: Net) -> bool:
    """Whether a network corrects a rule; else its score alone is the order."""
    return net.reach > 0.0
