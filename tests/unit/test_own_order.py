"""What is called "before": Slurm's own order, without the numbers that rltuned has written."""

from dataclasses import replace
from pathlib import Path

import pytest

from rltuned.core.decide import Entry
from rltuned.core.planning import own_priority
from rltuned.core.refusals import counted
from rltuned.domain.jobs import Ownership
from rltuned.domain.priority import PrioritySystem
from tests.builders import NOW, job, sure
from tests.loops import Bench

MULTIFACTOR = PrioritySystem("multifactor", ages=True, age_weight=60_480)


def entry(**changed: object) -> Entry:
    known = Entry(
        job(7, submitted_at=NOW - 60.0, time_limit_s=420.0), delay_s=600.0, upper_s=900.0,
        in_force_s=600.0, rank_before=14, rank_wished=2, current=1, proposed=2, settled=2,
        changes=True, placement=None, sla=None, wait_s=60.0, fits=True, length="short",
    )  # fmt: skip
    return replace(known, **changed)  # type: ignore[arg-type]


def test_a_job_that_was_lifted_stays_lifted_until_it_starts(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.loop().run(3)
    last = sure(bench.received.reports[-1].decision)
    assert not last.plan.actions
    assert {e.job.job_id: (e.rank_before, e.rank_wished) for e in last.entries} == {
        3: (3, 1),
        2: (2, 2),
        1: (1, 3),
    }


@pytest.mark.parametrize(
    ("seen", "own"),
    [
        (job(1, priority=1_000), 1_000),
        (job(1, priority=1_041, site_factor=41, owned=Ownership("site_factor", 41, original=0)),
         1_000),
        (job(1, priority=960, site_factor=-41, owned=Ownership("site_factor", -41, original=5),
             base=1_001), 1_006),
        (job(1, priority=5_000, owned=Ownership("priority", 5_000, original=900, rest=700)), 760),
        (job(1, priority=77, owned=Ownership("priority", 5_000, original=900)),
         77),
    ],
)  # fmt: skip
def test_rltuned_is_taken_out_of_a_priority(seen: object, own: int) -> None:
    assert own_priority(seen, MULTIFACTOR, NOW) == own  # type: ignore[arg-type]


def test_the_reason_names_the_move_and_the_bound() -> None:
    up = entry()
    assert up.why == (
        "moves up 12 places: short (7m), 1 GPU, waited 1m, fits now; may be overtaken by jobs "
        "that arrive within 9m from now"
    )
    down = entry(rank_before=2, rank_wished=3, length="long", fits=False)
    assert down.why.startswith("moves down 1 place: long (7m), 1 GPU, waited 1m, does not fit now")
    passed = entry(rank_before=2, rank_wished=3, length="short")
    assert passed.what == "limit 7m, 1 GPU"  # a short job that shorter ones pass
    still = entry(rank_before=2, delay_s=0.0, length="short")
    assert still.moves == "keeps place 2"
    assert still.what == "limit 7m, 1 GPU"
    assert still.bound == "no job that arrives from now on may overtake it"


def test_reasons_of_several_jobs_are_words() -> None:
    counts = {"too_young": 26, "held_user": 3}
    assert counted(counts) == "26 submitted moments ago, 3 held by their user"
