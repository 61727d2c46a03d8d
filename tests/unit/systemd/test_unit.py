"""The unit file: what systemd says of it, and what it must and must not hold."""

import configparser
import re
import subprocess
from pathlib import Path

import pytest

from tests import needs

ROOT = Path(__file__).resolve().parents[3]
UNIT = ROOT / "systemd" / "rltuned.service"
MAX_EXPOSURE = 2.0
"""Of 10, as `systemd-analyze security` counts; its own word for this is OK."""


@pytest.fixture
def service() -> configparser.SectionProxy:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    return parser["Service"]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The unit as it would be installed, with a program that is there."""
    needs.program("systemd-analyze")
    program = tmp_path / "rltuned"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/rltuned/bin/rltuned", str(program)))
    return copy


def test_systemd_understands_every_line(installed: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(installed)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    ours = [line for line in done.stderr.splitlines() if "rltuned" in line]
    assert (done.returncode, ours) == (0, [])


def test_the_service_is_well_shut_in(installed: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(installed)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found is not None, done.stderr
    assert float(found[1]) <= MAX_EXPOSURE


def test_it_survives_slurm_and_gives_back_on_stop(service: configparser.SectionProxy) -> None:
    text = UNIT.read_text()
    assert not re.search(r"^(Requires|BindsTo|PartOf|Requisite)=", text, re.MULTILINE)
    assert re.search(r"^After=.*munge\.service slurmctld\.service", text, re.MULTILINE)
    assert service["ExecStopPost"].endswith("rltuned restore --all")
    assert service["Type"] == "notify"
    assert service["User"] == "rltuned"
    assert service["RestartPreventExitStatus"] == "2"


def test_no_sandbox_breaks_munge(service: configparser.SectionProxy) -> None:
    assert "PrivateUsers" not in service
    assert "DynamicUser" not in service
    assert "AF_UNIX" in service["RestrictAddressFamilies"]


def test_the_user_file_is_understood() -> None:
    needs.program("systemd-sysusers")
    done = subprocess.run(
        ["systemd-sysusers", "--dry-run", str(ROOT / "systemd" / "rltuned.sysusers")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0
    assert "Creating user 'rltuned'" in done.stderr or not done.stderr  # it may exist already
