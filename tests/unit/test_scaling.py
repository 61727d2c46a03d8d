"""The benchmark of whole cycles runs the daemon's own loop, and loses no second of it."""

import json

from rltuned.daemon.apply import Writer
from rltuned.slurm.talk import CallRecord
from scripts.benchmarks.scaling import (
    BOUNDS_S,
    MOST_GROWTH,
    Cycle,
    Size,
    _in_child,
    figures,
    owning,
    row,
)
from scripts.benchmarks.stages import INSIDE, Stages

EVERY = {stage for _, _, stage in INSIDE} | {"other"}
WRITING = {"apply:scontrol", "apply:squeue", "apply:sprio"}
COMMANDS = {"observe:squeue", "observe:sinfo", "observe:sprio", "observe:sdiag"}


def test_a_cycle_is_parted_into_its_stages() -> None:
    # more than the first cycle, which does not count, may write
    (row,) = json.loads(_in_child(Size(1_200, 8), "saf", 1))
    cycle = Cycle(**row)
    assert cycle.applied > 0
    assert set(cycle.stages_wall_s) == EVERY | COMMANDS | WRITING
    assert 0 < sum(cycle.stages_wall_s.values()) <= cycle.wall_s  # no second counts twice
    assert set(cycle.stages_cpu_s) == EVERY
    assert cycle.peak_mib > 1


def test_what_is_watched_is_given_back() -> None:
    own = Writer.mark
    with Stages().watching():
        assert Writer.mark is not own
    assert Writer.mark is own


def test_a_command_is_its_own_stage() -> None:
    stages = Stages()
    with stages.timed("apply"):
        stages.called(CallRecord("scontrol", 5.0, ok=True))
    with stages.timed("parse"):
        stages.called(CallRecord("squeue", 7.0, ok=True))
    assert stages.wall_s["apply:scontrol"] == 5.0
    assert stages.wall_s["observe:squeue"] == 7.0
    assert stages.wall_s["apply"] < 0 > stages.wall_s["parse"]  # nobody really waited


def test_figures_stand_beside_their_bound() -> None:
    cycles = [Cycle(w, 0.5, 0.0, 0.0, {}, {}, 0, 1.0) for w in (3.0, 1.0, 2.0)]
    size = Size(10_000, 1_000)
    found = {f.name: f.value for f in figures(size, cycles)}
    assert found == {
        f"cycle_{size}": 2.0, f"cycle_{size}_slowest": 3.0, f"cycle_{size}_processor": 0.5
    }  # fmt: skip
    assert figures(Size(1, 1), cycles) == []
    assert BOUNDS_S[10_000, 1_000] == 3.0
    assert row(size, cycles).startswith(
        "| 10,000 | 1,000 | 2.00 (1.00 to 3.00) | 0.50 | 1 | 0.00 |"
    )


def test_growth_with_what_is_owned_is_told() -> None:
    whole, journal, cycle = owning(Size(60, 10), 4)
    assert (whole.name, whole.reference) == ("owning_60_pending_10_nodes_growth", MOST_GROWTH)
    assert min(whole.value, journal.value, cycle.value) > 0.0
