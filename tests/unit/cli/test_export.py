"""`rltuned export`: what a site installs itself, from a checkout and from a wheel."""

import json
import sys
import tomllib
from pathlib import Path

import pytest

from rltuned.errors import SettingsError
from tests.unit.cli.runner import run

ROOT = Path(__file__).resolve().parents[3]
KINDS = {
    "units": "systemd",
    "dashboards": "deploy/grafana/dashboards",
    "alerts": "deploy/prometheus",
    "examples": "deploy",
}
"""What may be exported, and its folder in a checkout."""


def exported(kind: str, folder: Path, *options: str) -> dict[str, str]:
    done = run("export", kind, str(folder), *options)
    assert done.exit_code == 0, done.output
    files = [Path(line) for line in done.stdout.splitlines()]
    return {file.name: file.read_text() for file in files}


def test_units_run_this_installation(tmp_path: Path) -> None:
    found = exported("units", tmp_path / "new" / "folder")
    program = f"{sys.prefix}/bin/rltuned"
    assert f"ExecStart={program} run\n" in found["rltuned.service"]
    assert f"ExecStopPost={program} restore --all" in found["rltuned@.service"]
    assert "/opt/rltuned/bin/rltuned" not in "".join(found.values())
    assert found["rltuned.sysusers"] == (ROOT / "systemd/rltuned.sysusers").read_text()


def test_dashboards_and_alerts(tmp_path: Path) -> None:
    boards = exported("dashboards", tmp_path)
    assert {json.loads(text)["title"] for text in boards.values()} >= {"rltuned / Overview"}
    rules = exported("alerts", tmp_path, "--runbook-url", "https://wiki.example/rltuned")
    assert rules.keys() == {"alerts.yml", "recording.yml"}
    assert "runbook_url: https://wiki.example/rltuned#rltuneddown\n" in rules["alerts.yml"]
    assert "file:///" not in rules["alerts.yml"]


def test_nothing_is_replaced_without_being_asked_to(tmp_path: Path) -> None:
    exported("examples", tmp_path)
    settings = tmp_path / "rltuned.example.toml"
    settings.write_text("# my own\n")
    with pytest.raises(SettingsError, match=r"rltuned\.example\.toml: is there already; --force"):
        run("export", "examples", str(tmp_path))
    assert settings.read_text() == "# my own\n"
    assert "[daemon]" in exported("examples", tmp_path, "--force")[settings.name]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="file: cannot be written: "):
        run("export", "units", str(tmp_path / "file"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_wheel_brings_every_file(kind: str, tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["data-files"][f"share/rltuned/{KINDS[kind]}"]
    brought = {file.name for pattern in patterns for file in ROOT.glob(pattern)}
    assert exported(kind, tmp_path).keys() <= brought
