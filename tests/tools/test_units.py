"""The unit file: what systemd says of it, and what it must and must not hold."""

import configparser
import re
import subprocess
from pathlib import Path

import pytest

from tests import needs
from tests.programs import executable, ran

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "systemd" / "rltuned.service"
INSTANCE = ROOT / "systemd" / "rltuned@.service"
TUNE = ROOT / "systemd" / "rltuned-tune.service"
TIMER = ROOT / "systemd" / "rltuned-tune.timer"
MAX_EXPOSURE = 2.0
"""Of 10, as `systemd-analyze security` counts; its own word for this is OK."""


@pytest.fixture
def service() -> configparser.SectionProxy:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    return parser["Service"]


def installed(unit: Path, folder: Path) -> Path:
    """The unit as it would be installed, with programs that are there."""
    needs.program("systemd-analyze")
    executable(folder / "rltuned", "#!/bin/sh\n")
    copy = folder / unit.name
    copy.write_text(unit.read_text().replace("/opt/rltuned/bin/", f"{folder}/"))
    return copy


def analyze(*argv: str) -> subprocess.CompletedProcess[str]:
    return ran("systemd-analyze", *argv, code=None)


@pytest.mark.parametrize("unit", [UNIT, INSTANCE, TUNE], ids=lambda unit: unit.name)
def test_systemd_understands_every_line(unit: Path, tmp_path: Path) -> None:
    copy = installed(unit, tmp_path)
    # a template is looked at by one of its instances
    shown = copy.with_name(copy.name.replace("@.", "@one."))
    if shown != copy:
        copy.rename(shown)
    done = analyze("verify", "--man=no", str(shown))
    ours = [line for line in done.stderr.splitlines() if "rltuned" in line]
    assert (done.returncode, ours) == (0, [])


def test_systemd_understands_the_timer(tmp_path: Path) -> None:
    installed(TUNE, tmp_path)
    copy = tmp_path / TIMER.name
    copy.write_text(TIMER.read_text())
    done = analyze("verify", "--man=no", str(copy))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", [UNIT, TUNE], ids=lambda unit: unit.name)
def test_the_services_are_well_shut_in(unit: Path, tmp_path: Path) -> None:
    copy = installed(unit, tmp_path)
    done = analyze("security", "--offline=yes", "--no-pager", str(copy))
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found is not None, done.stderr
    assert float(found[1]) <= MAX_EXPOSURE


def test_an_instance_differs_in_its_names_only() -> None:
    """One unit for one cluster, one for many: what is changed in one belongs in the other."""
    single, many = UNIT.read_text().splitlines(), INSTANCE.read_text().splitlines()
    differing = [(a, b) for a, b in zip(single, many, strict=True) if a != b]
    assert {line.partition("=")[0] for line, _ in differing if not line.startswith("#")} == {
        "Description", "ExecStart", "ExecStopPost", "StateDirectory", "RuntimeDirectory",
    }  # fmt: skip
    assert all("%i" in other for line, other in differing if not line.startswith("#"))


def test_it_survives_slurm_and_gives_back_on_stop(service: configparser.SectionProxy) -> None:
    text = UNIT.read_text()
    assert not re.search(r"^(Requires|BindsTo|PartOf|Requisite)=", text, re.MULTILINE)
    assert re.search(r"^After=.*munge\.service slurmctld\.service", text, re.MULTILINE)
    assert service["ExecStopPost"].endswith("rltuned restore --all --patience 180")
    assert service["Type"] == "notify"
    assert service["User"] == "rltuned"
    assert service["RestartPreventExitStatus"] == "2"


def test_no_sandbox_breaks_munge(service: configparser.SectionProxy) -> None:
    assert "PrivateUsers" not in service
    assert "DynamicUser" not in service
    assert "AF_UNIX" in service["RestrictAddressFamilies"]


def test_the_user_file_is_understood() -> None:
    needs.program("systemd-sysusers")
    done = ran("systemd-sysusers", "--dry-run", str(ROOT / "systemd" / "rltuned.sysusers"))
    assert "Creating user 'rltuned'" in done.stderr or not done.stderr  # it may exist already
