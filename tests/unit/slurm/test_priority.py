"""How slurmctld turns waiting into priority, and what sprio says of a job."""

from dataclasses import replace
from pathlib import Path

import pytest

from rltuned.domain.jobs import PendingJob
from rltuned.domain.priority import PrioritySystem
from rltuned.domain.units import JobId
from rltuned.errors import SnapshotError
from rltuned.slurm.columns import FIELD, JOB_COLUMNS, PriorityRow
from rltuned.slurm.priority import Factors, read_line, standing_of
from rltuned.slurm.site import SlurmSite, parse_config, read_site, read_system
from tests.builders import job
from tests.recorded import DATA, MARKS, RELEASES, Recording, replay

CONFIG = Recording(DATA / "22.05").text("config")
SITE = read_site(parse_config(CONFIG))
BOTH = job(5, priority=582, partitions=("gpu", "short"), site_factor=None)


def lines(*rows: str) -> dict[JobId, Factors]:
    """As sprio -o prints them: the columns of PriorityRow."""
    found: dict[JobId, Factors] = {}
    for row in rows:
        number, factors = read_line(PriorityRow._make(row.split("|")))
        found[number] = found[number].beside(factors) if number in found else factors
    return found


def seen(of: PendingJob, *rows: str, site: SlurmSite = SITE) -> PendingJob:
    known = {name: getattr(of, name) for name in ("partitions", "priority", "nice", "held_by")}
    return replace(of, **standing_of(known, lines(*rows).get(of.job_id), site))


def test_its_standing_is_the_best_of_its_partitions() -> None:
    found = seen(BOTH, "5|582|0|0|0|254|333|0|0||0", "5|1248|0|0|0|254|1000|0|0||0")
    assert (found.priority, found.uneven, found.live, found.sticky) == (1248, True, True, False)
    found = seen(BOTH, "5|1748|500|0|0|254|1000|0|0||0", "5|1082|500|0|0|254|333|0|0||0")
    assert (found.priority, found.site_factor, found.uneven) == (1748, 500, True)
    # partitions that weigh the same are one standing; where sprio does not show it, it is not known
    found = seen(BOTH, *["5|582|0|0|0|254|333|0|0||0"] * 2)
    assert (found.priority, found.uneven) == (582, False)
    basic = replace(SITE, priorities=PrioritySystem())
    assert [seen(BOTH).uneven, seen(job(5)).uneven, seen(BOTH, site=basic).uneven] == [
        True, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "rows",
    [
        # 22.05 and 24.11, frozen at 777
        ("5|333|-2147483648|0|0|0|333|0|0||0", "5|1000|-2147483645|0|0|0|1000|0|0||0"),
        ("5|777|0|0|0|0|0|0|0||0", "5|777|0|0|0|0|0|0|0||0"),
    ],
)
def test_a_number_that_somebody_set_is_seen_as_such(rows: tuple[str, ...]) -> None:
    found = seen(replace(BOTH, priority=777), *rows)
    assert (found.priority, found.fixed, found.live) == (777, True, False)
    assert found.site_factor in {None, 0}  # 22.05 shows garbage


def test_a_held_job_will_be_ruled_by_multifactor_once_it_is_freed() -> None:
    held = job(5, priority=0, held_by="user", site_factor=None)
    assert seen(held).live
    assert not seen(held, site=replace(SITE, priorities=PrioritySystem())).live
    assert not seen(job(5, priority=0, reason="BadConstraints")).live


@pytest.mark.parametrize("flags", ["INCR_ONLY", "CALCULATE_RUNNING,INCR_ONLY"])
def test_priorities_that_never_go_down_are_reported(flags: str) -> None:
    site = read_site({**parse_config(CONFIG), "PriorityFlags": flags})
    assert site.increase_only
    assert seen(BOTH, "5|582|0|0|0|254|333|0|0||0", site=site).sticky
    assert seen(job(5), "5|582|0|0|0|254|333|0|0||0", site=site).sticky
    assert not seen(job(5), "5|582|0|0|0|254|333|0|0||0").sticky
    assert not SITE.increase_only


def test_what_slurm_gives_a_job_besides_the_site_factor() -> None:
    one = job(5, priority=1, nice=100)
    assert seen(one, "5|482|0|0|0|254|333|0|0||100").base == 482
    assert seen(one, "5|982|500|20|30|254|333|0|0||100").rest == 932
    assert seen(one, "5|982|500|0|0|254|333|0|0||100").base == 482  # the sum was 482.3
    # Slurm gives at least 1: the parts tell more than their sum
    assert seen(one, "5|1|-9000|0|0|254|333|0|0||100").base == 487
    assert seen(one, "5|1|0|0|0|254|333|0|7|cpu=16,gres/gpu=40|9000").base == 254 + 333 + 63 - 9000
    # of several partitions the one in which it stands best
    assert seen(BOTH, "5|582|0|0|0|254|333|0|0||0", "5|1248|0|0|0|254|1000|0|0||0").base == 1248
    assert seen(BOTH, "5|1248|0|0|0|254|1000|0|0||0", "5|582|0|0|0|254|333|0|0||0").base == 1248
    assert seen(job(5, priority=777), "5|777|0|0|0|0|0|0|0||0").base is None
    assert seen(job(5, priority=777)).base is None


@pytest.mark.parametrize("factors", ["0|cpu=16,gres/gpu=40", "40|", "0|gres/gpu=0.5,cpu=3"])
def test_a_job_that_only_tres_or_its_association_lifts_is_ruled_by_multifactor(
    factors: str,
) -> None:
    found = seen(job(5, priority=56), f"5|56|0|0|0|0|0|0|{factors}|0")
    assert (found.live, found.fixed) == (True, False)


@pytest.mark.parametrize("row", ["5|56|0|0|0|0|0|0|0|many|0", "5|56|0|0|0|0|0|0|||0"])
def test_a_factor_that_cannot_be_read_is_not_zero(row: str) -> None:
    with pytest.raises(ValueError, match=r"no list of TRES|no number"):
        lines(row)


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


def test_basic_prints_no_weights_and_a_plugin_is_named() -> None:
    assert read_system({"PriorityType": "priority/basic"}) == PrioritySystem()
    for out, found in (("site_factor/ours", "site_factor/ours"), ("site_factor/none", "")):
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
