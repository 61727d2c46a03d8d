"""The lease, what one daemon hands to the next, and the fence: no write on an old view."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rltuned.daemon.kept_settings import keep_settings, last_settings
from rltuned.daemon.lease import FILE, HANDOVER_FILE, Handover, Lease, published, unpack
from rltuned.domain.plan import PRIORITY, Action, Plan, Result, target_of
from rltuned.errors import JournalError
from rltuned.journal.journal import Journal
from rltuned.settings.keys import Settings
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.run import Fence, SlurmCli
from tests.builders import NOW, snapshot, sure
from tests.examples import examples
from tests.loops import Clocks, rescued
from tests.recorded import DATA, MARKS, Recording, replay

LEASE_S = 180.0
MARGIN_S = 20.0


def side(
    folder: Path, host: str, clocks: Clocks | None = None, word: str = ""
) -> tuple[Lease, Clocks]:
    clocks = clocks or Clocks()
    return Lease(folder, host, LEASE_S, MARGIN_S, clocks, word=word or f"of {host}"), clocks


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


def test_who_only_gives_back_stops_when_another_host_holds_it(shared: Path) -> None:
    a, _ = side(shared, "head1")
    b, clocks = side(shared, "head2")
    restoring = side(shared, "head1")[0]
    assert restoring.elsewhere() == ""
    a.claim("head1")
    assert restoring.elsewhere() == ""
    b.claim("head2")
    clocks.run(LEASE_S + 1)
    assert b.claim("head2") == ""
    assert restoring.elsewhere() == "not sent: head2 holds the lease"
    b.close()
    assert restoring.elsewhere() == ""
    (shared / FILE).write_text("garbage")
    assert restoring.elsewhere().startswith("not sent: ")


@pytest.mark.parametrize("way", ["run", "sleep"])
def test_a_holder_that_was_stopped_does_not_write(shared: Path, way: str) -> None:
    a, clocks = side(shared, "head1")
    a.claim("head1")
    getattr(clocks, way)(LEASE_S - MARGIN_S + 1)
    assert a.lost() == "not sent: the lease was renewed 161 s ago"
    assert a.claim("head1") == "", "nobody took it meanwhile"
    assert a.lost() == ""


@pytest.mark.parametrize("text", ["{", '{"term": 1}', "[]", '{"term":-1,"holder":"","beat":0}'])
def test_a_file_that_is_no_lease_lets_nobody_write(shared: Path, text: str) -> None:
    a, _ = side(shared, "head1")
    (shared / FILE).write_text(text)
    (shared / FILE).chmod(0o600)
    assert "is not a lease; when no other daemon runs, remove it" in a.claim("head1")
    assert (shared / FILE).read_text() == text


def test_places_that_cannot_be_trusted_or_used(shared: Path) -> None:
    a, _ = side(shared, "head1")
    (shared / FILE).symlink_to(shared / "elsewhere")
    assert "symbolic links" in a.claim("head1")
    (shared / FILE).unlink()
    (shared / FILE).touch()
    (shared / FILE).chmod(0o666)
    assert "others may write" in a.claim("head1")
    (shared / FILE).chmod(0o600)
    shared.chmod(0o777)
    assert "chmod go-w" in a.claim("head1")
    shared.chmod(0o700)
    assert a.claim("head1") == ""
    gone, _ = side(shared / "nowhere", "head1")
    assert "No such file" in gone.claim("head1")
    (shared / FILE).unlink()
    assert "has taken the lease" in a.lost(), "a file that was taken away frees nobody to write"


class TwoDaemons(RuleBasedStateMachine):
    """Each has clocks that run at a rate of their own, sleeps, is paused, thinks it is acting."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="rltlease-"))
        self.sides = [side(self.folder, name) for name in ("head1", "head2")]

    @rule(which=st.integers(0, 1), acting=st.sampled_from(["head1", "head2"]))
    def cycle(self, which: int, acting: str) -> None:
        self.sides[which][0].claim(acting)

    @rule(seconds=st.floats(0.1, 400), fast=st.floats(0.99, 1.01))
    def time_goes_by(self, seconds: float, fast: float) -> None:
        for (_, clocks), rate in zip(self.sides, (1.0, fast), strict=True):
            clocks.run(seconds * rate)

    @rule(which=st.integers(0, 1), seconds=st.floats(0.1, 1000))
    def the_other_runs_while_one_is_paused(self, which: int, seconds: float) -> None:
        self.sides[1 - which][1].run(seconds)

    @rule(which=st.integers(0, 1), seconds=st.floats(-1e6, 1e6))
    def a_wall_clock_is_set(self, which: int, seconds: float) -> None:
        self.sides[which][1].wall_s += seconds

    @rule(which=st.integers(0, 1))
    def a_daemon_ends(self, which: int) -> None:
        self.sides[which][0].close()

    @rule(which=st.integers(0, 1))
    def a_daemon_is_killed_and_started(self, which: int) -> None:
        old, clocks = self.sides[which]
        self.sides[which] = side(self.folder, old.host, clocks)

    @invariant()
    def never_two_writers(self) -> None:
        assert [it.lost() for it, _ in self.sides].count("") <= 1

    def teardown(self) -> None:
        shutil.rmtree(self.folder)


TestTwoDaemons = TwoDaemons.TestCase
TestTwoDaemons.settings = examples(60, stateful_step_count=30)


def test_two_daemons_that_name_the_same_host_do_not_both_hold_it(shared: Path) -> None:
    """In review `[ha] host` was the same in both settings files, and both wrote."""
    a, _ = side(shared, "head1")
    b, clocks = side(shared, "head1", word="another")
    assert a.claim("head1") == ""
    assert b.claim("head1") == "head1 (another daemon of this name) holds the lease"
    assert (a.lost(), b.lost()) == ("", "not sent: this daemon does not hold the lease")
    assert b.elsewhere() == "", "a restore on that host is of either"
    clocks.run(LEASE_S + 1)
    assert b.claim("head1") == ""
    assert a.lost() == "not sent: head1 has taken the lease"


CLUSTER = snapshot().cluster


Side = tuple[Lease, Journal]


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Side, Side]:
    """Two daemons with journals of their own; the first has the lease."""
    for name in ("shared", "head1", "head2"):
        (tmp_path / name).mkdir(mode=0o700)
    one, two = (
        (side(tmp_path / "shared", h)[0], Journal(tmp_path / h)) for h in ("head1", "head2")
    )
    assert one[0].take("head1", one[1], CLUSTER) == ""
    return one, two


ROW = {"cluster": "c", "job_id": 1, "submitted_at": 1.0, "field": "site_factor", "address": "1",
       "original": 0, "nice": None, "rest": None, "newest_id": None, "writes": "[[0, 7, 1.0]]",
       "past": "[]", "guessed": 0, "at": 1.0, "gone": 0, "ended_at": None}  # fmt: skip
DAMAGED: list[dict[str, Any]] = [
    {"states": [("breaker", "{", 1.0)]},
    {"states": [("breaker", "[" * 100_000, 1.0)]},
    {"owned": [{**ROW, "writes": "[" * 100_000}]},
    {"owned": [{**ROW, "job_id": "one"}]},
    {"owned": [{"job_id": 1}]},
    {"owned": [{**ROW, "field": "colour"}]},
]


@pytest.mark.parametrize("part", DAMAGED)
def test_what_is_damaged_is_not_taken_over(tmp_path: Path, part: dict[str, Any]) -> None:
    """Every later look at it ended without a result."""
    given = Handover.model_construct(**{"holder": "b", "term": 1, "cluster": "c", **part})
    journal = Journal(tmp_path)
    unpack(journal, Handover(holder="b", term=1, cluster="c", owned=(ROW,)))
    with pytest.raises(JournalError):
        unpack(journal, given)
    assert (journal.recall("breaker"), len(journal.claims("c"))) == (None, 1)


def test_breakers_go_along_and_the_settings_of_a_host_stay_there(pair: tuple[Side, Side]) -> None:
    (one, journal), (two, theirs) = pair
    settings = [Settings.model_validate({"ha": {"host": host}}) for host in ("head1", "head2")]
    keep_settings(journal, settings[0], NOW)
    keep_settings(theirs, settings[1], NOW)
    journal.remember("breaker", {"open": ["gpu"]}, 1.0)
    one.publish(journal, CLUSTER)
    one.close()
    assert two.take("head2", theirs, CLUSTER).startswith("took over from head1")
    assert theirs.recall("breaker") == {"open": ["gpu"]}
    assert two.take("head2", theirs, CLUSTER) == ""
    older = ("settings", settings[0].model_dump_json(), NOW)
    unpack(theirs, Handover(holder="head1", term=1, cluster=CLUSTER, states=(older,)))
    assert last_settings(theirs.path.parent) == rescued(settings[1])


def test_one_who_lost_the_lease_overwrites_nothing(pair: tuple[Side, Side]) -> None:
    (one, journal), (two, theirs) = pair
    journal.remember("breaker", 1, 1.0)  # so that there is something new to publish
    one.close()
    assert two.take("head2", theirs, CLUSTER) != ""
    with pytest.raises(JournalError, match="does not hold the lease"):
        one.publish(journal, CLUSTER)
    one._term = 1  # it was stopped, and does not know yet
    with pytest.raises(JournalError, match="taken by another"):
        one.publish(journal, CLUSTER)
    assert sure(published(one.folder)).holder == "head2"


def spoil(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o600)


@pytest.mark.parametrize(
    ("spoilt", "says"),
    [
        (lambda file: spoil(file, "{"), "is not a handover"),
        (lambda file: spoil(file, "[]"), "is not a handover"),
        (lambda file: spoil(file, '{"holder": "x", "term": 0, "cluster": "c"}'), "not a handover"),
        (lambda file: file.chmod(0o666), "others may write"),
        (lambda file: (file.unlink(), file.symlink_to(file.with_name(FILE))), "symbolic links"),
    ],
)
def test_a_handover_that_cannot_be_believed_lets_nobody_write(
    pair: tuple[Side, Side], spoilt: Callable[[Path], object], says: str
) -> None:
    spoilt(pair[0][0].folder / HANDOVER_FILE)
    for lease, journal in pair:
        with pytest.raises(JournalError, match=says):
            lease.take(lease.host, journal, CLUSTER)
        with pytest.raises(JournalError, match=says):
            lease.before_restore(journal)


def test_what_cannot_be_handed_over_is_not_written(pair: tuple[Side, Side]) -> None:
    (one, journal), _ = pair
    (one.folder / f".{HANDOVER_FILE}-{os.uname().nodename}-{os.getpid()}").mkdir()
    journal.remember("breaker", 1, 1.0)
    with pytest.raises(JournalError, match=HANDOVER_FILE):
        one.take("head1", journal, CLUSTER)


RECORDED = Recording(DATA / "22.05")


@pytest.mark.parametrize(
    ("later_s", "ago_s"),
    [
        (None, None),
        ({"awake_s": 119}, 0),
        ({"awake_s": 300}, 300),
        ({"boot_s": 300}, 300),
        ({"wall_s": 300}, 300),
        ({"awake_s": 200, "boot_s": 200, "wall_s": -3_800}, 200),  # set back
    ],
)
def test_what_was_seen_long_ago_by_any_clock_is_not_written_by(
    later_s: dict[str, float] | None, ago_s: int
) -> None:
    clocks = Clocks()
    fence = Fence(clocks, 120)
    if later_s is None:
        assert "not looked at yet" in fence.shut()
        return
    fence.look()
    for name, seconds in later_s.items():
        setattr(clocks, name, getattr(clocks, name) + seconds)
    assert (f"{ago_s} s ago" in fence.shut()) if ago_s else fence.shut() == ""
    fence.look()
    assert fence.shut() == ""


def test_it_is_asked_before_every_batch_and_what_is_withheld_was_not_sent(tmp_path: Path) -> None:
    replay(tmp_path, RECORDED)
    sent = tmp_path / "sent"
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(
        f'#!/bin/sh\n[ "$1" = show ] && exec cat {tmp_path}/answers/config\ncat >>"{sent}"\n'
    )
    clocks = Clocks()

    class Slow(Fence):
        """Each batch takes 50 s."""

        def shut(self) -> str:
            clocks.run(50)
            return super().shut()

    cli = SlurmCli(bin_dir=tmp_path, chunk=1)
    it = SlurmBackend(cli, lambda: RECORDED.taken_at, marks=MARKS, fence=Slow(clocks, 120))
    jobs = [j for j in it.observe().pending if j.priority and not j.held_by][:4]
    plan = Plan(tuple(Action(PRIORITY, target_of(j), j.priority, 5, 0) for j in jobs))
    outcomes = it.apply(plan)
    assert len(sent.read_text().splitlines()) == 2
    assert [o.result for o in outcomes[2:]] == [Result.WITHHELD] * 2
    assert "seen 150 s ago" in outcomes[2].detail
    assert "seen 150 s ago" in outcomes[3].detail, "once shut it stays shut for this plan"


def test_after_a_rate_limit_the_rest_of_the_plan_waits(tmp_path: Path) -> None:
    replay(tmp_path, RECORDED)
    (tmp_path / "scontrol").write_text(
        f'#!/bin/sh\n[ "$1" = -v ] || exec cat {tmp_path}/answers/config\n'
        f'cat >>"{tmp_path}/sent"\n'
        'echo "scontrol: RPC rate limited 1 time(s). Sleeping then trying again." >&2\n'
    )
    it = SlurmBackend(SlurmCli(bin_dir=tmp_path, chunk=1), lambda: RECORDED.taken_at, marks=MARKS)
    jobs = [j for j in it.observe().pending if j.priority and not j.held_by][:3]
    outcomes = it.apply(Plan(tuple(Action(PRIORITY, target_of(j), j.priority, 5, 0) for j in jobs)))
    assert len((tmp_path / "sent").read_text().splitlines()) == 1
    assert [o.result for o in outcomes[1:]] == [Result.WITHHELD] * 2
    assert "limits the rate" in outcomes[1].detail
    assert it.load().rate_limited == 1
    assert it.load().rate_limited == 0
