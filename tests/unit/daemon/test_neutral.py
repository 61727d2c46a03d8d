"""The neutral delay and the time of a first write outlive the process, and go to a standby."""

from dataclasses import replace
from pathlib import Path

import pytest

from rltuned.daemon.apply import NEUTRAL, context_by
from rltuned.daemon.lease import pack, unpack
from rltuned.domain.priority import NeutralDelay
from rltuned.errors import JournalError
from rltuned.journal.cycles import recorded
from rltuned.journal.journal import Journal
from rltuned.journal.store import FILE_NAME
from tests.builders import NOW, snapshot, sure
from tests.loops import Bench

FOUND = NeutralDelay(600.0, NOW, 640.0, NOW + 3_600.0)
CLUSTER = snapshot().cluster


def keep(journal: Journal, cluster: str, delay: NeutralDelay) -> None:
    NEUTRAL.alter(journal, lambda every: every | {cluster: delay}, NOW)


def recalled(journal: Journal, cluster: str) -> NeutralDelay | None:
    return NEUTRAL.read(journal).get(cluster)


def test_each_cluster_has_its_own(tmp_path: Path) -> None:
    journal, other = Journal(tmp_path), replace(FOUND, delay_s=5.0)
    assert recalled(journal, CLUSTER) is None
    keep(journal, CLUSTER, FOUND)
    keep(journal, "beside", other)
    journal.close()
    again = Journal(tmp_path)
    assert (recalled(again, CLUSTER), recalled(again, "beside")) == (FOUND, other)


@pytest.mark.parametrize("kept", [[], {CLUSTER: {"delay_s": 1.0}}, {CLUSTER: 600.0}])
def test_what_cannot_be_read_is_not_guessed(tmp_path: Path, kept: object) -> None:
    journal = Journal(tmp_path)
    journal.remember("neutral_delays", kept, NOW)
    with pytest.raises(JournalError, match="neutral delays in the journal"):
        context_by(journal, CLUSTER)


def test_another_host_goes_on_with_it(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = Journal(tmp_path / "one"), Journal(tmp_path / "two")
    keep(one, CLUSTER, FOUND)
    keep(two, CLUSTER, replace(FOUND, delay_s=7.0))  # its own dry runs
    unpack(two, pack(one, CLUSTER, "head1", 1))
    assert context_by(two, CLUSTER).neutral == FOUND


@pytest.mark.parametrize("live", [True, False])
def test_the_next_cycle_sees_what_the_last_one_found(tmp_path: Path, live: bool) -> None:
    bench = Bench(tmp_path, live=live)
    bench.loop().cycle()
    first = bench.received.reports[-1].decision
    bench.loop().cycle()  # a restart: nothing but the journal is left
    second = bench.received.reports[-1].decision
    assert first is not None
    assert second is not None
    assert first.context.neutral is None
    assert second.context.neutral == sure(first.neutral)
    seen = [(r.snapshot, r.context) for r in recorded(tmp_path / FILE_NAME)]
    assert seen == [(d.snapshot, d.context) for d in (first, second)]  # what a replay decides from


def test_while_the_journal_cannot_be_read_memory_serves(tmp_path: Path) -> None:
    bench = Bench(tmp_path, live=False)
    loop = bench.loop()
    loop.cycle()
    loop._journal.close()
    (tmp_path / FILE_NAME).write_bytes(b"no journal")
    loop.cycle()
    report = bench.received.reports[-1]
    assert report.journal_error
    assert report.context.neutral == bench.received.reports[0].decision.neutral  # type: ignore[union-attr]
