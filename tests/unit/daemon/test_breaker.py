"""The circuit breakers: what opens one, that it stays open, and who closes it."""

from pathlib import Path
from threading import Thread

import pytest

from rltuned.core.evidence import LIMIT, Evidence
from rltuned.daemon import breaker
from rltuned.daemon.breaker import Breaker, Cause
from rltuned.daemon.journal import Journal
from rltuned.domain.plan import HELD, Outcome, Result
from rltuned.errors import JournalError
from tests.builders import NOW, job, set_priority

MOST = 3


def outcomes(*results: Result, partition: str = "gpu") -> dict[str, str]:
    """One change to a job of each user."""
    jobs = [job(i, partition=partition, user=f"u{i}") for i in range(1, len(results) + 1)]
    told = [Outcome(set_priority(j, 9), r, "no") for j, r in zip(jobs, results, strict=True)]
    return breaker.failing(jobs, told)


A, F, G, R = Result.APPLIED, Result.FAILED, Result.GONE, Result.REFUSED


@pytest.mark.parametrize(
    ("results", "fails"),
    [
        ((A, A), False),
        ((R, A), False),
        ((R, F, A), True),
        ((G, G), False),
        ((F, G), False),
        ((F, F, G), True),
        ((F,), False),
    ],
)
def test_a_partition_fails_when_most_of_its_changes_are_not_taken(
    results: tuple[Result, ...], fails: bool
) -> None:
    assert bool(outcomes(*results).get("gpu")) is fails


def test_what_was_not_sent_says_nothing() -> None:
    withheld = Result.WITHHELD
    assert outcomes(withheld, withheld) == {}
    assert outcomes(R, withheld) == outcomes(R)


def test_a_job_of_two_partitions_counts_in_both() -> None:
    both = [job(n, partitions=("gpu", "long"), user=f"u{n}") for n in (1, 2)]
    failed = [Outcome(set_priority(j, 9), F, "reads back 7") for j in both]
    said = "changes not taken, of 2 of 2 users: reads back 7"
    assert breaker.failing(both, failed) == dict.fromkeys(("gpu", "long"), said)


def test_users_are_counted_and_not_their_changes() -> None:
    many = [job(n, user="mallory") for n in range(1, 21)]
    failed = [Outcome(set_priority(j, 9), F, "reads back 7") for j in many]
    assert breaker.failing(many, failed) == {"gpu": ""}
    honest = job(21, user="alice")
    assert breaker.failing([*many, honest], [*failed, Outcome(set_priority(honest, 9), A)]) == {
        "gpu": ""
    }


def test_a_job_that_is_held_by_now_says_nothing_and_a_lack_of_rights_everything() -> None:
    one = job(1)
    held = Outcome(set_priority(one, 9), R, HELD)
    assert breaker.failing([one], [held]) == {}
    refused = Outcome(set_priority(one, 9), R, "slurm_update error: Access/permission denied")
    assert "1 of 1 users" in breaker.failing([one], [refused])["gpu"]


def test_evidence_of_two_models_is_never_pooled() -> None:
    state: breaker.Breakers = {"gpu": Breaker(evidence={Cause.WAIT: Evidence(LIMIT - 1)})}
    state = breaker.weigh(state, "gpu", Cause.WAIT, 0.9, margin=0.0, at=NOW, model="one")
    one = state["gpu"].evidence
    assert not state["gpu"].is_open
    assert one[Cause.WAIT].value < 2
    state = breaker.weigh(state, "gpu", Cause.WAIT, 0.9, margin=0.0, at=NOW, model="two")
    assert state["gpu"].evidence == one
    state = breaker.weigh(state, "gpu", Cause.WAIT, 0.9, margin=0.0, at=NOW, model="one")
    assert state["gpu"].evidence[Cause.WAIT].value > one[Cause.WAIT].value, "it is kept by model"
    state = breaker.weigh(state, "gpu", Cause.WAIT, 0.9, margin=0.0, at=NOW, model="")
    assert state["gpu"].is_open


def test_errors_in_a_row_open_it_and_one_good_cycle_in_between_does_not() -> None:
    bad, good = outcomes(F, F), outcomes(A, A)
    state = breaker.NONE
    for failures in (bad, bad, good, bad, bad):
        state = breaker.count_errors(state, failures, MOST, NOW)
    assert not state["gpu"].is_open
    state = breaker.count_errors(state, bad, MOST, NOW)
    assert state["gpu"].cause is Cause.ERRORS
    assert "3 cycles in a row: changes not taken, of 2 of 2 users: no" in state["gpu"].detail
    assert breaker.count_errors(state, good, MOST, NOW + 60) == state  # it stays open


def test_enough_evidence_opens_it_and_less_is_kept() -> None:
    state = {"gpu": Breaker(evidence={Cause.WAIT: Evidence(LIMIT - 1)})}
    calm = breaker.weigh(state, "gpu", Cause.WAIT, 0.5, margin=0.0, at=NOW)
    assert calm == state
    state = breaker.weigh(state, "gpu", Cause.SLOWDOWN, 0.9, margin=0.0, at=NOW)
    assert not state["gpu"].is_open
    state = breaker.weigh(state, "gpu", Cause.WAIT, 0.9, margin=0.0, at=NOW)
    assert (state["gpu"].cause, state["gpu"].opened_at) == (Cause.WAIT, NOW)
    assert breaker.weigh(state, "gpu", Cause.SLOWDOWN, 0.9, margin=0.0, at=NOW + 1) == state


def open_one(folder: Path, cluster: str = "c", partition: str = "gpu") -> None:
    def alter(old: breaker.Breakers) -> breaker.Breakers:
        state = {**old, partition: Breaker().opened(Cause.ERRORS, "why", NOW)}
        return {**state, "calm": Breaker(errors=2, evidence={Cause.WAIT: Evidence(7.5)})}

    journal = Journal(folder)
    breaker.change(journal, cluster, alter, NOW)
    journal.close()


def test_it_survives_a_restart_and_only_a_person_closes_it(tmp_path: Path) -> None:
    assert breaker.demoted(Journal(tmp_path), "c") == ()
    open_one(tmp_path)
    open_one(tmp_path, "other", "long")
    journal = Journal(tmp_path)
    assert breaker.demoted(journal, "c") == ("gpu",)
    assert breaker.breakers(journal, "c")["gpu"] == Breaker(NOW, Cause.ERRORS, "why")
    assert breaker.breakers(journal, "c")["calm"].evidence == {Cause.WAIT: Evidence(7.5)}
    assert breaker.reset(journal, "nobody", NOW) == []
    assert breaker.reset(journal, "gpu", NOW) == [("c", "gpu")]
    assert breaker.demoted(Journal(tmp_path), "c") == ()
    assert breaker.demoted(Journal(tmp_path), "other") == ("long",)
    assert breaker.reset(journal, None, NOW) == [("other", "long")]


def test_nothing_is_written_while_nothing_changes(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    breaker.change(journal, "c", lambda old: old, NOW)
    assert not journal.path.exists()


@pytest.mark.parametrize("bad", [{"c": {"gpu": {"errors": "many"}}}, [1], {"c": {"gpu": {"x": 1}}}])
def test_a_state_that_cannot_be_read_is_an_error(tmp_path: Path, bad: object) -> None:
    journal = Journal(tmp_path)
    journal.remember("breakers", bad, NOW)
    with pytest.raises(JournalError, match="circuit breakers"):
        breaker.demoted(journal, "c")


def test_a_person_and_the_daemon_at_once_lose_nothing_of_each_other(tmp_path: Path) -> None:
    """The daemon weighs a block while `rltuned breaker reset` runs in another process."""
    open_one(tmp_path)
    daemon = Journal(tmp_path)
    closed: list[list[tuple[str, str]]] = []

    def close_it() -> None:
        person = Journal(tmp_path)
        closed.append(breaker.reset(person, "gpu", NOW + 1))
        person.close()

    reset = Thread(target=close_it)

    def weigh(old: breaker.Breakers) -> breaker.Breakers:
        reset.start()
        reset.join(timeout=0.2)  # it cannot end before we have
        assert not closed
        return {**old, "long": Breaker(errors=1)}

    breaker.change(daemon, "c", weigh, NOW)
    reset.join()
    assert closed == [[("c", "gpu")]]
    left = breaker.breakers(daemon, "c")
    assert set(left) == {"calm", "long"}
    assert left["long"].errors == 1
