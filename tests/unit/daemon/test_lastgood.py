"""The settings that the daemon last ran with come back as they were, or not at all."""

import signal
from contextlib import closing
from pathlib import Path

import pytest

from rltuned.cli.restore import _settings
from rltuned.daemon.kept_settings import keep_settings, last_settings
from rltuned.errors import SettingsError
from rltuned.journal.journal import Journal
from rltuned.journal.store import SETTINGS
from rltuned.settings import Flag, Settings, load
from rltuned.settings.keys import Rescue
from tests.builders import NOW, sure
from tests.configs import settings_file
from tests.e2e.process import Daemon
from tests.loops import rescued

EXAMPLE = Path(__file__).resolve().parents[3] / "deploy" / "rltuned.example.toml"


@pytest.mark.parametrize(
    "settings",
    [
        Settings(),
        load(
            EXAMPLE,
            (
                Flag("scope.sla_partitions", ["sla"], "-"),
                Flag("order.own", 0.5, "-"),
                Flag("slurm.conf", "/etc/slurm/other.conf", "-"),
            ),
        ).settings,
    ],
)
def test_they_come_back_as_they_were(tmp_path: Path, settings: Settings) -> None:
    with closing(Journal(tmp_path)) as journal:
        keep_settings(journal, settings, NOW)
    assert last_settings(tmp_path) == rescued(settings)


def test_nothing_is_made_up(tmp_path: Path) -> None:
    assert last_settings(tmp_path) is None
    assert last_settings(tmp_path / "absent") is None
    with closing(Journal(tmp_path)) as journal:
        journal.remember(SETTINGS, {"daemon": {"of_another_release": 1}}, NOW)
    assert last_settings(tmp_path) is None


def test_a_journal_that_cannot_be_used_stops_no_start(tmp_path: Path) -> None:
    keep_settings(Journal(tmp_path / "absent"), Settings(), NOW)


def test_they_stand_in_for_a_spoilt_file_in_the_service_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spoilt = settings_file(tmp_path, "[daemon]\ninterval_ss = 1\n")
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    with pytest.raises(SettingsError, match="interval_ss"):
        _settings(spoilt)
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    with pytest.raises(SettingsError, match="interval_ss"):
        _settings(spoilt)
    with closing(Journal(tmp_path)) as journal:
        keep_settings(journal, Settings(), NOW)
    assert _settings(spoilt) == Rescue()
    unclear = settings_file(tmp_path, '[scope]\npartitions = 7\n[order]\nown = "much"\n')
    assert _settings(unclear).scope.partitions == [], "an error of the scope keeps nothing back"
    assert "restoring by the settings that the daemon last ran with" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ('[policy]\nname = "model:none"\n', "no model folder"),
        ('[predictor]\nmodel = "none"\n', "no such folder"),
        ("[daemon]\nstate_dir = '{other}'\n", "the journal in use is in {state}; restart"),
    ],
)
def test_a_reload_that_is_refused_leaves_those_in_force(
    tmp_path: Path, changed: str, why: str
) -> None:
    state, other, path = tmp_path / "state", tmp_path / "other", tmp_path / "rltuned.toml"
    for folder in (state, other):
        folder.mkdir(mode=0o700)
    daemon_keys = f"[daemon]\nstate_dir = '{state}'\n"
    common = "[http]\nport = 0\n[slurm]\nbin_dir = '{tmp_path}'\ntimeout_s = {timeout_s}\n"
    path.write_text(daemon_keys + common.format(tmp_path=tmp_path, timeout_s=7))
    with Daemon(tmp_path, "--config", str(path)) as daemon:
        daemon.wait_for_log("loaded")
        changed = changed.format(other=other)
        kept = "" if "state_dir" in changed else daemon_keys
        path.write_text(kept + changed + common.format(tmp_path=tmp_path, timeout_s=9))
        daemon.signal(signal.SIGHUP)
        daemon.wait_for_log("reload_failed")
        assert why.format(state=state) in daemon.log()
        daemon.signal(signal.SIGTERM)
        assert daemon.ends() == 0
    found = sure(last_settings(state))
    assert (found.daemon.state_dir, found.slurm.timeout_s) == (state, 7.0)
