"""Which values of each feature a training saw: what the daemon's drift figures compare with."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from torch import Tensor

from rltuned.core.features import COLUMN, COLUMNS
from rltuned.core.observation import FIXED
from rltuned.lab.replay.prepared import net_of
from rltuned.lab.train.course import LEARN_UNTIL, DatasetSource
from rltuned.lab.train.episodes import Recorder, play_sampled
from rltuned.lab.train.network import TorchActor, network_of
from rltuned.lab.train.trial import windows_between
from rltuned.policies.network import Kind

Ranges = dict[str, tuple[float, float]]

SAMPLED: Final = ("job_size", "urgency", "num_ways", "free_nodes")
"""The paper's two last slots hold two of these at a time."""
READ: Final[dict[Kind, tuple[str, ...]]] = {"queue": COLUMNS, "paper": (*FIXED, *SAMPLED)}
"""Features by the kind of network that reads them."""
WINDOWS: Final = 48
"""Over all sources together, one each at least."""


def ranges_shown(kind: Kind, values: Tensor, masks: Tensor) -> Ranges:
    """Smallest and largest value by feature, but for those whose meaning changes; empty: no job.
    values: (k, 256, features). masks: (k, 256), True on real jobs.
    """
    names = {"queue": COLUMNS, "paper": FIXED}.get(kind, ())
    seen = values[masks].numpy()
    if not len(seen):
        return {}
    return {
        name: (float(seen[:, i].min()), float(seen[:, i].max())) for i, name in enumerate(names)
    }


def ranges_played(
    actor: TorchActor,
    sources: Sequence[DatasetSource],
    *,
    size: int,
    loads: Sequence[float],
) -> Ranges:
    """The same over every whole queue of windows, even in the first LEARN_UNTIL of each source."""
    names = READ[actor.kind]
    each = -(-WINDOWS // len(sources))
    net, recorder = net_of(network_of(actor)), Recorder()
    low = np.full(len(COLUMNS), np.inf)
    high = np.full(len(COLUMNS), -np.inf)
    for source in sources:
        part = (0.0, LEARN_UNTIL)
        found = windows_between(source.scenario, part, count=each, size=size, loads=loads)
        for number, window in enumerate(found):
            rows = play_sampled(window, net, number, recorder)[1].rows[:, : len(COLUMNS)]
            low = np.minimum(low, rows.min(axis=0, initial=np.inf))
            high = np.maximum(high, rows.max(axis=0, initial=-np.inf))
    at = [(name, COLUMN[name]) for name in names]
    return {name: (float(low[i]), float(high[i])) for name, i in at if low[i] <= high[i]}
