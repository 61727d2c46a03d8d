"""What `rltuned check` says of the controllers: how many, which acts, whether we may ever write."""

from pathlib import Path

import pytest

from rltuned.cli.check_slurm import facts_of, queue_checks
from rltuned.settings import load
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.config_checks import Check, Status
from tests.configs import settings_file
from tests.recorded import DATA, Recording, replay

RECORDED = Recording(DATA / "24.11")
ONE = "Slurmctld(primary) at head1 is UP\n"
TWO = "Slurmctld(primary) at head1 is DOWN\nSlurmctld(backup) at head2 is UP\n"


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o700)
    return folder


def found(tmp_path: Path, ping: str, settings: str = "", **changed: str) -> dict[str, Check]:
    config = settings_file(tmp_path, settings)
    programs = tmp_path / "bin"
    programs.mkdir(exist_ok=True)
    slurm: SlurmBackend = replay(programs, RECORDED, ping=ping, **changed)
    facts = facts_of(load(config), slurm, priority=None)
    named = ("ha", "load", "rate_limit")
    return {c.name: c for c in queue_checks(facts) if c.name in named}


def test_one_controller_needs_nothing(tmp_path: Path) -> None:
    checks = found(tmp_path, ONE)
    assert checks["ha"] == Check("ha", Status.OK, "one slurmctld, on head1")
    assert checks["load"].status is Status.OK
    assert checks["load"].detail == "1 server threads, backfill cycle 0.01 s"


def test_two_controllers_without_a_lease_are_worth_a_warning(tmp_path: Path) -> None:
    ha = found(tmp_path, TWO)["ha"]
    assert ha.status is Status.WARN
    assert (
        ha.detail == "2 slurmctld (head1, head2; the slurmctld on head2 acts) and no [ha] lease_dir"
    )


def test_a_daemon_beside_neither_would_never_write(tmp_path: Path, shared: Path) -> None:
    lease = f'[ha]\nlease_dir = "{shared}"\n'
    ha = found(tmp_path, TWO, lease + 'host = "login1"')["ha"]
    assert ha.status is Status.FAIL
    assert "this machine is login1, SlurmctldHost are head1, head2" in ha.detail
    ha = found(tmp_path, TWO, lease + 'host = "head1"')["ha"]
    assert ha == Check("ha", Status.OK, "the slurmctld on head2 acts; this is head1")


def test_a_lease_that_cannot_be_used_fails(tmp_path: Path, shared: Path) -> None:
    lease = f'[ha]\nlease_dir = "{shared}"\nhost = "head1"'
    shared.chmod(0o777)
    ha = found(tmp_path, TWO, lease)["ha"]
    assert ha.status is Status.FAIL
    assert "chmod go-w" in ha.detail
    assert "mode 0700, on all hosts" in ha.remedy


def test_a_figure_near_its_bound_is_reported_before_it_counts(tmp_path: Path) -> None:
    near = found(tmp_path, ONE, "[load]\nmax_backfill_s = 0.008")["load"]
    assert near.status is Status.WARN
    assert near.detail == "of its bound: backfill_cycle 65%"
    assert "load" not in found(tmp_path, ONE, "[load]\nmax_server_threads = 0\nmax_backfill_s = 0")
    garbled = found(tmp_path, ONE, sdiag="Terminated\n")["load"]
    assert garbled.status is Status.WARN
    assert "sdiag" in garbled.detail


def test_without_an_answer_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert found(tmp_path, "garbled\n") == {}
