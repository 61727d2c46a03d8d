"""What a job shows that no row of the journal explains: what a requeued one may bring back."""

import pytest

from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import OVERSUBSCRIBE, PRIORITY, SITE_FACTOR, Field
from rltuned.journal.owned import carried
from tests.builders import job


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
