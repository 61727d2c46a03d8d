"""What one daemon holds goes to the one that takes over, and nobody holds it twice."""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from rltuned.daemon.kept_settings import keep_settings, last_settings
from rltuned.daemon.lease import HANDOVER_FILE, Lease, published, unpack
from rltuned.daemon.report import Skip
from rltuned.daemon.restore import restore
from rltuned.daemon.state import HealthState
from rltuned.daemon.wiring import Rig
from rltuned.domain.plan import Result
from rltuned.errors import BackendError, JournalError
from rltuned.journal.journal import Journal
from rltuned.settings.keys import Settings
from tests.builders import NOW, snapshot, sure
from tests.fakes import ConstantOrder, FakeBackend, FakeClock, dealt
from tests.loops import Bench, Clocks, rescued

CLUSTER = snapshot().cluster


@dataclass
class Ping:
    """Says which slurmctld acts."""

    acting: str = "head1"

    def __call__(self) -> str:
        if not self.acting:
            raise BackendError("scontrol ping: no slurmctld answers")
        return self.acting


@dataclass
class Beside(Bench):
    """A daemon beside one of two controllers."""

    host: str = "head1"
    shared: Path = Path()
    ping: Ping = field(default_factory=Ping)

    def __post_init__(self) -> None:
        self.clocks = Clocks()
        self.lease = Lease(self.shared, self.host, 180.0, 20.0, self.clocks, word=self.host)

    def rig(self) -> Rig:
        return replace(super().rig(), lease=self.lease, acting=self.ping)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Beside, Beside]:
    """Both see one world, one shared folder and the same answer to scontrol ping."""
    for name in ("shared", "head1", "head2"):
        (tmp_path / name).mkdir(mode=0o700)
    one = Beside(tmp_path / "head1", shared=tmp_path / "shared")
    two = Beside(
        tmp_path / "head2",
        host="head2",
        shared=one.shared,
        world=one.world,
        ping=one.ping,
        policy=ConstantOrder((2, 3, 1)),
    )
    return one, two


def test_the_one_that_takes_over_goes_on_with_what_the_other_wrote(
    pair: tuple[Beside, Beside],
) -> None:
    one, two = pair
    one.loop().run(1)
    assert one.priorities() == dealt(3, 2, 1)
    loop = two.loop()
    loop.run(1)
    assert two.received.reports[-1].mode is HealthState.STANDBY
    assert "head1 acts, and this is head2" in two.received.reports[-1].why(HealthState.STANDBY)

    one.ping.acting = "head2"
    one.loop().run(1)
    assert one.received.reports[-1].mode is HealthState.STANDBY
    loop.run(1)
    assert (
        two.received.reports[-1].why(HealthState.STANDBY)
        == "took over from head1; the next cycle writes"
    )
    loop.run(1)
    last = two.received.reports[-1]
    assert last.mode is HealthState.LIVE
    assert last.results() == {Result.APPLIED: 2}
    assert two.priorities() == dealt(2, 3, 1)
    assert last.owned() == 3
    owned = Journal(two.folder).owned(CLUSTER)
    originals = {key[0]: o.original for key, o in owned.items()}
    assert originals == {1: 300, 2: 200, 3: 100}, "Slurm's own, from before both"


def test_a_successor_does_not_count_as_its_own_what_was_given_back(
    pair: tuple[Beside, Beside],
) -> None:
    one, two = pair
    loop = one.loop()
    loop.run(1)
    loop._journal.let_go()  # the daemon has ended
    one.lease.close()
    journal = Journal(one.folder)
    assert one.lease.before_restore(journal) == ""
    restore(one.world, journal, FakeClock())
    one.lease.after_restore(journal)
    theirs = Journal(two.folder)
    assert two.lease.take("head2", theirs, CLUSTER).startswith("took over from head1")
    assert theirs.claims(CLUSTER) == ()


def test_the_breakers_and_other_states_go_along(pair: tuple[Beside, Beside]) -> None:
    one, two = pair
    journal = Journal(one.folder)
    journal.remember("breaker", {"open": ["gpu"]}, 1.0)
    one.loop().run(1)
    one.ping.acting = "head2"
    one.loop().run(1)
    two.loop().run(1)
    assert Journal(two.folder).recall("breaker") == {"open": ["gpu"]}


def test_the_settings_of_a_host_stay_there(pair: tuple[Beside, Beside]) -> None:
    one, two = pair
    theirs = Settings.model_validate({"ha": {"lease_dir": one.shared, "host": "head1"}})
    ours = Settings.model_validate({"ha": {"lease_dir": one.shared, "host": "head2"}})
    keep_settings(Journal(one.folder), theirs, NOW)
    keep_settings(Journal(two.folder), ours, NOW)
    one.loop().run(1)
    one.ping.acting = "head2"
    one.loop().run(1)
    two.loop().run(2)
    assert two.received.reports[-1].mode is HealthState.LIVE
    assert last_settings(two.folder) == rescued(ours)
    given = sure(published(one.shared))
    older = {"name": "settings", "value": theirs.model_dump_json(), "at": NOW}
    unpack(Journal(two.folder), given.model_copy(update={"states": (older,)}))
    assert last_settings(two.folder) == rescued(ours)


def test_it_is_published_before_it_is_written(pair: tuple[Beside, Beside]) -> None:
    one, _ = pair
    seen: list[int] = []
    apply = one.world.apply

    @dataclass
    class Watching(FakeBackend):
        def apply(self, plan):  # type: ignore[no-untyped-def]
            given = published(one.shared)
            seen.append(len(given.owned) if given else 0)
            return apply(plan)

    one.world = Watching(one.world.world)
    one.loop().run(1)
    assert seen == [3]


def test_one_who_lost_the_lease_overwrites_nothing(pair: tuple[Beside, Beside]) -> None:
    one, two = pair
    one.loop().run(1)
    journal = Journal(one.folder)
    journal.remember("breaker", 1, 1.0)  # so that there is something new to publish
    one.lease.close()
    assert two.lease.claim("head2") == ""
    two.lease.publish(Journal(two.folder), CLUSTER)
    with pytest.raises(JournalError, match="does not hold the lease"):
        one.lease.publish(journal, CLUSTER)
    one.lease._term = 1  # it was stopped, and does not know yet
    with pytest.raises(JournalError, match="taken by another"):
        one.lease.publish(journal, CLUSTER)
    left = sure(published(one.shared))
    assert left.holder == "head2"


def test_where_it_cannot_be_published_nothing_is_written(pair: tuple[Beside, Beside]) -> None:
    one, _ = pair
    (one.shared / f".{HANDOVER_FILE}-{os.uname().nodename}-{os.getpid()}").mkdir()
    one.loop().run(1)
    report = one.received.reports[-1]
    assert report.mode is HealthState.OBSERVE
    assert HANDOVER_FILE in report.journal_error
    assert one.world.plans == []


@pytest.mark.parametrize("text", ["{", "[]", '{"holder": "x", "term": 0, "cluster": "c"}'])
def test_a_handover_that_cannot_be_read_lets_nobody_write(
    pair: tuple[Beside, Beside], text: str
) -> None:
    one, _ = pair
    (one.shared / HANDOVER_FILE).write_text(text)
    (one.shared / HANDOVER_FILE).chmod(0o600)
    one.loop().run(1)
    assert one.received.reports[-1].mode is HealthState.OBSERVE
    assert "is not a handover" in one.received.reports[-1].journal_error
    assert one.world.plans == []


def test_files_of_others_are_not_believed(pair: tuple[Beside, Beside]) -> None:
    one, two = pair
    one.loop().run(1)
    (one.shared / HANDOVER_FILE).chmod(0o666)
    with pytest.raises(JournalError, match="others may write"):
        published(one.shared)
    (one.shared / HANDOVER_FILE).unlink()
    (one.shared / HANDOVER_FILE).symlink_to(one.shared / "rltuned.lease")
    with pytest.raises(JournalError, match="symbolic links"):
        two.lease.before_restore(Journal(two.folder))


def test_without_a_controller_the_cycle_is_skipped(pair: tuple[Beside, Beside]) -> None:
    one, _ = pair
    one.ping.acting = ""
    one.loop().run(1)
    assert one.received.reports[-1].skip is Skip.BACKEND
    assert one.world.plans == []
