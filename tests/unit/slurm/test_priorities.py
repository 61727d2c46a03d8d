"""How slurmctld turns waiting into priority, from recorded answers and spoilt ones."""

from pathlib import Path

import pytest

from rltuned.domain.priority import PrioritySystem
from rltuned.errors import SnapshotError
from rltuned.slurm.columns import FIELD, JOB_COLUMNS
from rltuned.slurm.site import parse_config, read_system
from tests.recorded import DATA, MARKS, RELEASES, Recording, replay

END = f"{MARKS.record}\n"
WITH_SLURMDBD = {"AccountingStorageType": "accounting_storage/slurmdbd"}


def config(release: str = "22.05") -> dict[str, str]:
    return parse_config(Recording(DATA / release).text("config"))


@pytest.mark.parametrize("release", RELEASES)
def test_age_counts_only_with_slurmdbd(release: str) -> None:
    without = PrioritySystem("multifactor", False, 10_000, 86_400.0, 60.0)
    assert read_system(config(release)) == without
    assert without.slope == 0
    found = read_system(config(release) | WITH_SLURMDBD)
    assert found == PrioritySystem("multifactor", True, 10_000, 86_400.0, 60.0)
    assert found.slope == pytest.approx(10_000 / 86_400)


def test_basic_prints_no_weights() -> None:
    assert read_system({"PriorityType": "priority/basic"}) == PrioritySystem()


@pytest.mark.parametrize(("out", "found"), [("site_factor/ours",) * 2, ("site_factor/none", "")])
def test_who_else_sets_site_factors(out: str, found: str) -> None:
    system = read_system(config() | {"PrioritySiteFactorPlugin": out})
    assert system.site_factor_plugin == found


@pytest.mark.parametrize(
    ("spoilt", "why"),
    [
        ({"PriorityType": "priority/ours"}, "'priority/ours' is not known"),
        ({"PriorityType": ""}, "'' is not known"),
        ({"PriorityWeightAge": "many"}, "PriorityWeightAge: 'many' is no number"),
        ({"PriorityWeightAge": "-1"}, "impossible numbers"),
        ({"PriorityMaxAge": "soon"}, "PriorityMaxAge: 'soon' is no time limit"),
        ({"PriorityMaxAge": "00:00:00"}, "PriorityMaxAge|impossible numbers"),
        ({"PriorityCalcPeriod": ""}, "PriorityCalcPeriod: '' is no time"),
    ],
)
def test_unknown_is_not_zero(spoilt: dict[str, str], why: str) -> None:
    with pytest.raises(SnapshotError, match=why):
        read_system(config() | spoilt)


@pytest.mark.parametrize("key", ["PriorityType", "PriorityWeightAge", "PriorityMaxAge"])
def test_a_missing_key_is_named(key: str) -> None:
    lacking = {k: v for k, v in config().items() if k != key}
    with pytest.raises(SnapshotError, match=f"no {key} in the answer"):
        read_system(lacking)


@pytest.mark.parametrize("release", RELEASES)
def test_a_snapshot_tells_it_and_from_when_age_counts(tmp_path: Path, release: str) -> None:
    recording = Recording(DATA / release)
    seen = replay(tmp_path, recording).observe()
    assert seen.priorities == read_system(config(release))
    assert any(j.accrue_at is None for j in seen.pending)  # held, or dependent
    assert {j.accrue_at for j in seen.pending if j.accrue_at} == {
        j.eligible_at for j in seen.pending if j.accrue_at
    }
    assert all(j.base == j.priority for j in seen.pending if j.live and not j.held_by)
    assert any(j.base for j in seen.pending)


def test_age_that_began_later_than_waiting(tmp_path: Path) -> None:
    recording = Recording(DATA / "22.05")
    job = next(j for j in replay(tmp_path, recording).observe().pending if j.accrue_at)
    rows = [row.split(FIELD) for row in recording.text("squeue").split(END)]
    number, accrue = JOB_COLUMNS.index("jobid"), JOB_COLUMNS.index("accruetime")
    for row in rows[1:-1]:
        if row[number] == str(job.job_id):  # under MaxJobsAccruePerUser
            row[accrue] = str(int(job.waits_since) + 87)
    later = replay(tmp_path, recording, squeue=END.join(map(FIELD.join, rows))).observe()
    found = next(j for j in later.pending if j.job_id == job.job_id)
    assert found.ages_since == job.waits_since + 87
    assert found.waits_since == job.waits_since
