"""The circuit breakers: what opens one, that it stays open, and who closes it."""

from pathlib import Path
from threading import Thread

import pytest
from rltuned.daemon.breaker import Breaker, Cause, Pair, PairFigure

from rltuned.core.ladder import Evidence
from rltuned.daemon import breaker
from rltuned.domain.plan import HELD, Outcome, Result
from rltuned.errors import JournalError
from rltuned.journal.journal import Journal
from tests.builders import NOW, job, set_priority

MOST = 3


def outcomes(*results: Result, partition: str = "gpu") -> dict[str, str]:
    """One change to a job of each user."""
    jobs = [job(i, partition=partition, user=f"u{i}") for i in range(1, len(results) + 1)]
    reply = [Outcome(set_priority(j, 9), r, "no") for j, r in zip(jobs, results, strict=True)]
    return breaker.failing(jobs, reply)


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
    out = "changes not taken, of 2 of 2 users: reads back 7"
    assert breaker.failing(both, failed) == dict.fromkeys(("gpu", "long"), out)


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


def pair(on_s: float, off_s: float, partition: str = "gpu") -> Pair:
    """Three users, and slowdowns that are all alike."""
    on, off = (dict.fromkeys("abc", wait_s) for wait_s in (on_s, off_s))
    return Pair(
        partition,
        PairFigure(on, off),
        PairFigure(dict.fromkeys("abc", 1.0), dict.fromkeys("abc", 1.0)),
    )


def weighed(state: breaker.Breakers, *pairs: Pair, model: str = "one") -> dict[str, Breaker]:
    for one in pairs:
        state = breaker.weigh(state, one, margin=0.0, at=NOW, model=model)
    return dict(state)


def test_evidence_of_two_models_is_never_pooled() -> None:
    state = weighed({}, *[pair(900.0, 300.0)] * 5)
    one = state["gpu"]
    assert one.harm[Cause.WAIT].value > 1.5
    assert (one.harm[Cause.WAIT].pairs, one.waits.pairs) == (5, 5)
    state = weighed(state, pair(900.0, 300.0), model="two")
    assert (state["gpu"].model, state["gpu"].waits.pairs) == ("two", 1)
    assert state["gpu"].harm[Cause.WAIT].pairs == 1
    assert breaker.effect(state, "one").pairs == 0
    again = weighed(state, pair(900.0, 300.0))
    assert again["gpu"].harm[Cause.WAIT].pairs == 1, "what was dropped does not come back"


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
    state = weighed({}, *[pair(300.0, 300.0)] * 50)
    assert state["gpu"].harm[Cause.WAIT].value == pytest.approx(1.0)
    state = weighed(state, *[pair(900.0, 300.0)] * 20)
    assert not state["gpu"].is_open
    state = weighed(state, *[pair(900.0, 300.0)] * 100)
    assert (state["gpu"].cause, state["gpu"].opened_at) == (Cause.WAIT, NOW)
    assert "a longer wait in on blocks: 1" in state["gpu"].detail
    assert weighed(state, pair(900.0, 300.0)) == state


def test_a_pair_with_one_block_empty_or_with_one_user_is_no_evidence() -> None:
    nothing = PairFigure({}, {})
    assert weighed({}, Pair("gpu", PairFigure({"a": 1.0}, {}), nothing)) == {}
    alone = weighed({}, Pair("gpu", PairFigure({"a": 9.0}, {"a": 1.0}), nothing))
    assert alone["gpu"].harm == {}


def test_evidence_that_a_lot_among_jobs_gave_is_dropped_and_the_breaker_stays(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path)
    old = {"opened_at": NOW, "cause": "wait", "evidence": {"wait": {"value": 7.5}}, "others": {}}
    journal.remember("breakers", {"c": {"gpu": old}}, NOW)
    assert breaker.breakers(journal, "c") == {"gpu": Breaker(NOW, Cause.WAIT)}


def open_one(folder: Path, cluster: str = "c", partition: str = "gpu") -> None:
    def alter(old: breaker.Breakers) -> breaker.Breakers:
        state = {**old, partition: Breaker().opened(Cause.ERRORS, "why", NOW)}
        return {**state, "calm": Breaker(errors=2, harm={Cause.WAIT: Evidence(7.5, 3)})}

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
    assert breaker.breakers(journal, "c")["calm"].harm == {Cause.WAIT: Evidence(7.5, 3)}
    assert breaker.reset(journal, "nobody", NOW) == []
    assert breaker.reset(journal, "gpu", NOW) == [("c", "gpu")]
    assert breaker.demoted(Journal(tmp_path), "c") == ()
    assert breaker.demoted(Journal(tmp_path), "other") == ("long",)
    assert breaker.reset(journal, None, NOW) == [("other", "long")]


def test_nothing_is_written_while_nothing_changes(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    breaker.change(journal, "c", lambda old: old, NOW)
    assert not journal.path.exists()


@pytest.mark.parametrize(
    "bad", [{"c": {"gpu": {"errors": "many"}}}, [1], {"c": {"gpu": {"opened_at": "now"}}}]
)
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
