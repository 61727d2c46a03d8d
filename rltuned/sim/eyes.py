"""What a network sees of a prepared trace, and the network itself, as the kernel's arrays."""

import numpy as np

from rltuned.kernel.compiler import FloatArray
from rltuned.kernel.features import Features, StaticFeatures
from rltuned.kernel.network import CONTEXT, PAPER, Net
from rltuned.kernel.ranking import NO_EYES, Eyes
from rltuned.policies.network import LAYERS, Network
from rltuned.sim.prepared import Prepared

KINDS = {"paper": PAPER, "context": CONTEXT}


def eyes_on(
    sight: StaticFeatures,
    prepared: Prepared,
    net: Net | None = None,
    asked_s: FloatArray = NO_EYES.asked_s,
) -> Eyes:
    """Eyes with work space; net None: they only see what fits. asked_s: see Eyes."""
    return Eyes(
        sight=sight,
        features=room_for(sight, prepared),
        net=NO_EYES.net if net is None else net,
        asked_s=asked_s,
        flags=np.zeros(2, dtype=np.int64),
        scores=np.empty(len(sight.fixed)),
    )


def room_for(sight: StaticFeatures, prepared: Prepared) -> Features:
    """Room for the features of a queue of all jobs."""
    kinds, hardware = len(prepared.shapes.gpus), prepared.hardware
    return Features(
        survey=np.zeros((kinds, 5)),
        surveyed=np.full(kinds, -1),
        sums=np.zeros((len(hardware.near), sight.wanted.shape[1], 3)),
        back=np.zeros(hardware.of_type.shape),
        rows=np.empty(sight.fixed.shape, dtype=np.float32),
    )


def net_of(network: Network) -> Net:
    """A network's weights in the form that the compiled forward reads."""
    first, second, head = LAYERS[network.kind]
    w, hidden = network.weights, len(network.weights[f"{first}.bias"])
    whole = w[f"{second}.weight"].T  # of the context network: own, mean, most, stacked
    return Net(
        kind=KINDS[network.kind],
        w1=np.ascontiguousarray(w[f"{first}.weight"].T),
        b1=w[f"{first}.bias"],
        w2=np.ascontiguousarray(whole[:hidden]),
        pooled=np.ascontiguousarray(whole[hidden:]).reshape(-1, whole.shape[1]),
        b2=w[f"{second}.bias"],
        w3=np.ascontiguousarray(w[f"{head}.weight"][0]),
        b3=w[f"{head}.bias"],
        reach=network.reach,
    )
