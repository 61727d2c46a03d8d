"""OverSubscribe guidance on a real Slurm: what isolation leaves idle gets used."""

from collections.abc import Callable

import pytest

from rltuned.domain.plan import SetOverSubscribe
from tests.guidance import JOBS, cycle, guided, play
from tests.lab import SlurmLab

pytestmark = pytest.mark.slurm


def test_guidance_uses_what_isolation_leaves_idle(
    slurm: SlurmLab, record_property: Callable[[str, object], None]
) -> None:
    alone = play(slurm, frozenset())
    assert (alone.at_once, alone.flagged) == (2, 0)
    slurm.clear()
    shared = play(slurm, frozenset({"gpu"}))
    record_property("alone", alone)
    record_property("shared", shared)
    assert shared.flagged >= JOBS - 2
    assert shared.at_once > 2
    assert shared.makespan_s < alone.makespan_s


def test_a_void_partition_is_left_alone_and_says_so(slurm: SlurmLab) -> None:
    for node in ("k1", "k2"):
        slurm.sbatch("-pwhole", f"-w{node}", "--gres=gpu:k80:1", "-t2")
    waiting = [slurm.sbatch("-pwhole", "--exclusive", "--gres=gpu:k80:1", "-t2") for _ in range(2)]
    slurm.wait_for(lambda: slurm.state(waiting[0]) == "PD", 20, "they wait")
    backend, knobs = guided(slurm, frozenset({"whole"}))
    decision, flagged = cycle(backend, knobs)
    assert flagged == 0
    assert not any(isinstance(a, SetOverSubscribe) for a in decision.plan.actions)
    assert any("void" in note for note in decision.notes)
