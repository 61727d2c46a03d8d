"""The ranges on a card: of all queues of what was learned from, and of nothing that came later."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from rltuned.core.features import COLUMN
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.network import TorchActor
from rltuned.lab.train.run import READ, ranges_played
from rltuned.lab.train.settings import LEARN_UNTIL
from rltuned.lab.train.sources import DatasetSource
from rltuned.policies.actor import Kind
from tests.train.worlds import random_ground

LOADS = (0.9, 1.3)


def source() -> DatasetSource:
    """120 jobs; only the last fifth, which is not learned from, asks for 20 days."""
    workload = random_ground("two", seed=5)
    learned = int(len(workload) * LEARN_UNTIL)
    jobs = [
        replace(job, time_limit_s=1_728_000.0 if number >= learned else job.time_limit_s)
        for number, job in enumerate(replace(j, partition="") for j in workload.jobs)
    ]
    limited = [replace(j, time_limit_s=min(j.time_limit_s, 864_000.0)) for j in jobs[:learned]]
    made = Scenario.of(workload.cluster, limited + jobs[learned:]).for_networks()
    return DatasetSource(made, "", "")


@pytest.mark.parametrize("kind", ["queue", "paper"])
def test_static_features_lie_within_what_was_learned_from(kind: Kind) -> None:
    torch.manual_seed(1)
    here = source()
    network = TorchActor(kind, (32, 16))
    found = ranges_played(network, [here], size=40, loads=LOADS)
    assert tuple(found) == READ[kind]
    fixed = here.scenario.sight.fixed[: int(len(here.scenario) * LEARN_UNTIL)]
    for name in ("requested_gpus", "requested_time"):
        values = fixed[:, COLUMN[name]]
        low, high = found[name]
        assert float(values.min()) <= low < high <= float(values.max()), name
    # the longest of those learned from queued in some window, and 20 days never did
    assert found["requested_time"][1] == pytest.approx(float(fixed[:, 1].max()))
    assert found["requested_time"][1] < float(here.scenario.sight.fixed[:, 1].max())
    assert found["can_schedule_now"] == (0.0, 1.0)
    assert found["submit_time"][0] == 0.0 < found["submit_time"][1]


def test_more_sources_widen_a_range_and_never_narrow_it() -> None:
    torch.manual_seed(1)
    network = TorchActor("queue", (32, 16))
    one = ranges_played(network, [source()], size=40, loads=LOADS)
    other = DatasetSource(random_ground("testbed", seed=6), "", "")
    both = ranges_played(network, [source(), other], size=40, loads=LOADS)
    for name in ("requested_gpus", "req_cpu", "req_mem"):
        assert both[name][0] <= one[name][0] + 1e-6, name
        assert both[name][1] >= one[name][1] - 1e-6, name
    assert np.isfinite([*both.values()]).all()
