"""Classes that are quick to make are as frozen as others."""

import copy
import pickle
from dataclasses import FrozenInstanceError, fields, replace

import pytest

from rltuned.frozen import many
from tests.builders import job as pending_job


@pytest.mark.parametrize("name", ["job_id", "priority", "unreadable"])
def test_no_field_can_be_set_or_deleted(name: str) -> None:
    job = pending_job(7)
    with pytest.raises(FrozenInstanceError):
        setattr(job, name, 1)
    with pytest.raises(FrozenInstanceError):
        delattr(job, name)
    assert job == pending_job(7)


def test_copies_are_equal_and_frozen() -> None:
    job = pending_job(7)
    thawed = pickle.loads(pickle.dumps(job))  # noqa: S301 - made here
    copies = (replace(job), copy.copy(job), copy.deepcopy(job), thawed)
    for other in copies:
        assert (other, hash(other), type(other)) == (job, hash(job), type(job))
        with pytest.raises(FrozenInstanceError):
            setattr(other, "priority", 1)  # noqa: B010 - mypy refuses the short form


def test_a_value_that_its_class_refuses_makes_no_object() -> None:
    with pytest.raises(ValueError, match="negative priority"):
        replace(pending_job(7), priority=-1)
    assert len(fields(pending_job(7))) > 30
    with pytest.raises(TypeError, match="frozen classes with slots"):
        many(frozen=False, slots=True)
