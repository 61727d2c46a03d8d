"""The lease: never two holders, whatever the clocks do, and no write on a lease that ran out."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rltuned.daemon.lease import FILE, Lease
from tests.examples import examples
from tests.loops import Clocks

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


def test_only_the_one_beside_the_acting_controller_gets_it(shared: Path) -> None:
    a, _ = side(shared, "head1")
    b, _ = side(shared, "head2")
    assert b.claim("head1") == "the slurmctld on head1 acts, and this is head2"
    assert a.claim("head1") == ""
    assert (a.lost(), b.lost()) == ("", "not sent: this daemon does not hold the lease")
    assert (shared / FILE).stat().st_mode & 0o777 == 0o600


def test_a_dead_holder_is_waited_for_as_long_as_its_lease(shared: Path) -> None:
    a, _ = side(shared, "head1")
    b, clocks = side(shared, "head2")
    a.claim("head1")
    assert b.claim("head2") == "head1 holds the lease"
    clocks.run(LEASE_S)
    assert b.claim("head2") == "head1 holds the lease"
    clocks.run(1)
    assert b.claim("head2") == ""


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


def test_a_paused_machine_whose_clocks_stood_still_sees_that_it_was_taken(shared: Path) -> None:
    a, _ = side(shared, "head1")  # its clocks do not move: a virtual machine was paused
    b, clocks = side(shared, "head2")
    a.claim("head1")
    b.claim("head2")
    clocks.run(LEASE_S + 1)
    assert b.claim("head2") == ""
    assert a.lost() == "not sent: head2 has taken the lease"
    assert a.claim("head1") == "head2 holds the lease"


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
