"""policies/network, compiled: scores of a whole queue in one go."""

import numpy as np

from rltuned.core.features import COLUMN
from rltuned.core.observation import FIXED
from rltuned.sim.engine.arrays import FloatArray, IntArray, compiled
from rltuned.train.rollout.look import FRAGMENTED, SEVERAL
from rltuned.train.rollout.state import Float32Array, Net

PAPER, CONTEXT = 0, 1
_FIXED_AT = np.array([COLUMN[name] for name in FIXED])
_SIZE, _URGENCY = COLUMN["job_size"], COLUMN["urgency"]
_WAYS, _FREE_NODES = COLUMN["num_ways"], COLUMN["free_nodes"]


@compiled
def forward(net: Net, rows: Float32Array, count: int, flags: IntArray, scores: FloatArray) -> None:
    """Fill scores[:count] from the features of the queue."""
    inputs = len(net.w1)
    hidden = np.empty((count, len(net.b1)), dtype=np.float32)
    seen = np.empty(inputs, dtype=np.float32)
    for at in range(count):
        if net.kind == PAPER:
            sampled(rows[at], flags, seen)
            _dense(net.w1, net.b1, seen, hidden[at])
        else:
            _dense(net.w1, net.b1, rows[at], hidden[at])
    bias = net.b2.copy()
    if net.kind == CONTEXT:
        _pool(net, hidden, bias)
    second = np.empty(len(bias), dtype=np.float32)
    for at in range(count):
        _dense(net.w2, bias, hidden[at], second)
        total = np.float32(0.0)
        for k in range(len(second)):
            total += second[k] * net.w3[k]
        scores[at] = total + net.b3[0]


@compiled
def sampled(row: Float32Array, flags: IntArray, seen: Float32Array) -> None:
    """The paper's eight features out of all of them: core/observation.sample_features."""
    for i in range(len(_FIXED_AT)):
        seen[i] = row[_FIXED_AT[i]]
    seen[6] = np.float32(1.0) - row[_SIZE] if flags[FRAGMENTED] else row[_URGENCY]
    seen[7] = row[_WAYS] if flags[SEVERAL] else row[_FREE_NODES]


@compiled
def _dense(
    weights: Float32Array, bias: Float32Array, seen: Float32Array, out: Float32Array
) -> None:
    """Out = max(seen @ weights + bias, 0)."""
    out[:] = bias
    for i in range(len(weights)):
        value, row = seen[i], weights[i]
        if value != 0.0:
            for k in range(len(out)):
                out[k] += value * row[k]
    for k in range(len(out)):
        out[k] = max(out[k], np.float32(0.0))


@compiled
def _pool(net: Net, hidden: Float32Array, bias: Float32Array) -> None:
    """Add what mean and maximum over the queue contribute to the second layer."""
    width = hidden.shape[1]
    for k in range(width):
        mean, most = np.float32(0.0), np.float32(0.0)
        for at in range(len(hidden)):
            mean += hidden[at, k]
            most = max(most, hidden[at, k])
        mean /= np.float32(len(hidden))
        for j in range(len(bias)):
            bias[j] += mean * net.pooled[k, j] + most * net.pooled[width + k, j]
