"""Every field that is written: from scontrol's line to what a restore leaves of it."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rltuned.core.decide import undo_plan
from rltuned.daemon.lease import Handover, pack, unpack
from rltuned.daemon.restore import Fate, restore
from rltuned.daemon.words import what
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import (
    FIELDS,
    KINDS,
    OVERSUBSCRIBE,
    PRIORITY,
    SITE_FACTOR,
    Field,
    Plan,
    Result,
    target_of,
)
from rltuned.domain.units import UnixTime
from rltuned.journal.cycles import changes_of
from rltuned.journal.journal import Journal
from rltuned.journal.owned import carried
from rltuned.journal.store import FILE_NAME, reading
from rltuned.sim.backend import SimBackend
from rltuned.sim.world import World
from rltuned.slurm.values import asked_job
from rltuned.slurm.writer import command_lines, judge
from tests.builders import NOW, job, marked_by, noted, snapshot
from tests.fakes import FakeBackend, FakeClock
from tests.fields import AT, CASES, Case
from tests.sim.worlds import cluster
from tests.sim.worlds import job as sim_job

CLUSTER = "test"
each = pytest.mark.parametrize("case", CASES, ids=lambda case: case.action.field.name)
each_owned = pytest.mark.parametrize(
    "case", [c for c in CASES if c.restored], ids=lambda case: case.action.field.name
)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with closing(Journal(tmp_path)) as made:
        yield made


def wrote(case: Case, journal: Journal) -> FakeBackend:
    """A world that the write was made in, as the daemon does it."""
    world = FakeBackend(snapshot(case.before))
    noted(journal, case.action, by=world.apply)
    return world


def test_every_field_has_a_case() -> None:
    assert [case.action.field for case in CASES] == list(FIELDS)
    assert list(KINDS) == list(dict.fromkeys(case.kind for case in CASES))


@each
def test_its_words(case: Case) -> None:
    assert tuple(command_lines(case.action, "1")) == case.lines
    job = {"job_id": 1, "submitted_at": AT.submitted_at, "address": "1"}
    expected = {"action": case.document["action"], **job, **case.document}
    assert list(case.action.document().items()) == list(expected.items())
    assert case.action.done() == case.done
    assert case.action.field.kind == case.kind


@each
def test_it_is_read_back(case: Case) -> None:
    assert judge(case.action, case.after, "").result is Result.APPLIED
    assert judge(case.action, case.before, "").result is Result.FAILED


@each
def test_what_slurm_does_not_take_is_no_action(case: Case) -> None:
    for value in case.refused:
        with pytest.raises(ValueError, match=r"job 1: .* cannot be set"):
            replace(case.action, new=value)


@each
def test_the_diary_of_it(case: Case, journal: Journal, tmp_path: Path) -> None:
    wrote(case, journal)
    with reading(tmp_path / FILE_NAME) as db:
        row = db.execute("SELECT field, old, new, nice FROM diary").fetchone()
        (change,) = changes_of(db, asked_job("1"))
    assert row == case.stored
    assert what(change) == case.history


@each_owned
def test_it_is_restored(case: Case, journal: Journal) -> None:
    world = wrote(case, journal)
    assert world.job(1) == case.after
    (item,) = restore(world, journal, FakeClock())
    assert (item.fate, item.claim.field) == (Fate.RESTORED, case.action.field)
    assert world.job(1) == case.restored
    assert journal.claims(CLUSTER) == ()


@each_owned
def test_a_stage_that_writes_nothing_undoes_it(case: Case, journal: Journal) -> None:
    world = wrote(case, journal)
    plan = undo_plan(marked_by(journal, world.observe()))
    assert [o.result for o in world.apply(plan)] == [Result.APPLIED]
    assert world.job(1) == case.restored


@each_owned
def test_a_value_of_another_user_is_left_alone(case: Case, journal: Journal) -> None:
    world = wrote(case, journal)
    field, other = case.action.field, case.before
    value: dict[str, Any] = {field.name: 4_711}
    world.put(other if field.words else replace(case.after, **value))
    (item,) = restore(world, journal, FakeClock())
    assert (item.fate, len(world.plans)) == (Fate.CHANGED, 1)


@each_owned
def test_a_requeued_job_brings_it_back(case: Case, journal: Journal) -> None:
    wrote(case, journal)
    journal.close_gone(CLUSTER, ())
    assert journal.claims(CLUSTER) == ()
    back = replace(case.after, submitted_at=UnixTime(NOW + 60))
    if case.action.field is PRIORITY:
        back = replace(back, site_factor=None)  # as sprio hides it
    assert journal.reclaim(CLUSTER, [back], NOW + 60) == [(back.job_id, back.submitted_at)]
    (claim,) = journal.claims(CLUSTER)
    assert (claim.field, claim.value) == (case.action.field, case.action.new)
    assert claim.original == case.action.old


@each_owned
def test_it_is_handed_over(case: Case, journal: Journal, tmp_path: Path) -> None:
    wrote(case, journal)
    (tmp_path / "next").mkdir()
    given = pack(journal, CLUSTER, "a", 1).model_dump_json()
    with closing(Journal(tmp_path / "next")) as heir:
        unpack(heir, Handover.model_validate_json(given))
        assert heir.claims(CLUSTER) == journal.claims(CLUSTER)


@each
def test_the_simulated_slurm_does_it_or_refuses(case: Case) -> None:
    sim = SimBackend(World(cluster(("n", 4)), [sim_job("a", 0, 100, 4), sim_job("b", 1, 10, 4)]))
    sim.advance(5)
    (waiting,) = sim.observe().pending
    (outcome,) = sim.apply(Plan((replace(case.action, target=target_of(waiting)),)))
    assert outcome.result is (Result.APPLIED if case.simulated else Result.REFUSED)


@pytest.mark.parametrize(
    ("seen", "values"),
    [
        (job(priority=77, fixed=True), ((PRIORITY, 77),)),
        (job(priority=77, site_factor=None), ((PRIORITY, 77),)),
        (job(priority=77, site_factor=-5), ((SITE_FACTOR, -5),)),
        (job(priority=77, site_factor=0), ()),
        (job(priority=1, site_factor=-5), ((SITE_FACTOR, -5),)),
        (job(priority=0, fixed=True), ()),  # held: nothing of rltuned's is in force
        (job(priority=0, site_factor=0, oversubscribe="YES"), ((OVERSUBSCRIBE, "YES"),)),
    ],
)
def test_numbers_and_flags_that_are_not_slurms_own(
    seen: PendingJob, values: tuple[tuple[Field, int | str], ...]
) -> None:
    assert tuple(carried(seen)) == values
