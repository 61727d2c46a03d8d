"""`rltuned config init` and what `rltuned check` says of the controllers."""

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from rltuned.cli.check_slurm import facts_of
from rltuned.cli.config import _checked, fitted
from rltuned.cli.facts import Facts
from rltuned.domain.cluster import Partition
from rltuned.errors import BackendError, SettingsError
from rltuned.settings import Loaded, Settings, load
from tests.builders import snapshot
from tests.configs import settings_file
from tests.pages import ROOT, differs, session
from tests.recorded import DATA, RELEASES, Recording, replay
from tests.unit.cli.runner import run

CONFIG = {"SLURM_VERSION": "24.11.5", "PriorityType": "priority/multifactor"}


def written(tmp_path: Path, text: str) -> Settings:
    """The settings that a text stands for, read as the daemon reads them."""
    path = tmp_path / "fitted.toml"
    path.write_text(text)
    path.chmod(0o644)
    return load(path).settings


def fit(found: Facts | None, path: Path | None = None, **keys: object) -> str:
    named = {key.replace("__", "."): value for key, value in keys.items()}
    return fitted(found, path, named, "written by a test")


def found_in(*partitions: str, controllers: int = 1, **more: str) -> Facts:
    seen = replace(snapshot(), cluster="c1", partitions=tuple(map(Partition, partitions)))
    answers = dict.fromkeys([f"head{n}" for n in range(controllers)], True)
    config = {**CONFIG, **more}
    return facts_of(Loaded(Settings()), None, seen=seen, controllers=answers, config=config)


def test_a_cluster(tmp_path: Path) -> None:
    settings = written(tmp_path, text := fit(found_in("gpu", "sla")))
    assert settings.ladder.stage == "observe"
    assert settings.limits.write_mode == "auto"
    assert settings.scope.sla_partitions == [], "which partition is SLA is never guessed"
    assert "# Cluster c1, Slurm 24.11.5." in text
    assert "Here: gpu, sla." in text
    assert "# sla_partitions = []" in text


def test_the_page_of_the_installation_shows_what_is_written() -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    step = next(s for s in session(page) if s.command == "cat /etc/rltuned/rltuned.toml")
    text = fitted(found_in("gpu", "sla"), None, {}, "written by `rltuned config init` 0.3.0")
    assert differs(step.shown, text) == ""


def test_a_file_is_whole_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "rltuned.toml"
    result = run("config", "init", str(path), "--offline")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, f"{path}: written")
    assert run("config", "check", str(path)).stdout == f"{path}: ok\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [p.name for p in tmp_path.iterdir()] == ["rltuned.toml"], "no draft is left"


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "rltuned.toml"
    for there in ("", "[daemon]\ninterval_s = 5\n"):
        path.write_text(there)
        with pytest.raises(SettingsError, match="exists and is not overwritten"):
            run("config", "init", str(path), "--offline")
        assert path.read_text() == there
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere.toml")
    with pytest.raises(SettingsError, match="exists and is not overwritten"):
        run("config", "init", str(path), "--offline")
    assert not (tmp_path / "elsewhere.toml").exists()


def test_a_file_that_appears_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    """The look beforehand is for the words; the link is what holds."""
    path = settings_file(tmp_path, "mine")
    with pytest.raises(SettingsError, match="exists and is not overwritten"):
        _checked("# ours\n", tmp_path, path)
    assert (path.read_text(), len(list(tmp_path.iterdir()))) == ("mine", 1)


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"there is no folder .*sudo mkdir"):
        run("config", "init", str(tmp_path / "none" / "rltuned.toml"), "--offline")
    with pytest.raises(SettingsError, match=r"/proc/rltuned\.toml: cannot be written"):
        run("config", "init", "/proc/rltuned.toml", "--offline")


def test_offline_is_a_file_for_any_cluster(tmp_path: Path) -> None:
    result = run("config", "init", "-", "--offline")
    assert "No cluster was asked" in result.stdout
    assert written(tmp_path, result.stdout) == Settings()


def test_slurm_that_is_away(tmp_path: Path) -> None:
    path = tmp_path / "rltuned.toml"
    with pytest.raises(BackendError, match=r"cannot be read: .*--slurm-conf, .* by --offline"):
        run("config", "init", str(path), "--bin-dir", str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_policy_that_does_not_exist(tmp_path: Path) -> None:
    path = tmp_path / "rltuned.toml"
    with pytest.raises(SettingsError, match=r"--policy: policy\.name: no policy 'sav'"):
        run("config", "init", str(path), "--offline", "--policy", "sav")
    assert not path.exists()
    assert run("config", "init", str(path), "--offline", "--policy", "saf").exit_code == 0
    assert load(path).settings.policy.name == "saf"


@pytest.mark.parametrize("release", RELEASES)
def test_recorded_clusters(release: str, tmp_path: Path) -> None:
    recording = Recording(DATA / release)
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    found = facts_of(Loaded(Settings()), replay(bin_dir, recording))
    text = fit(found, slurm__bin_dir=bin_dir)
    settings = written(tmp_path, text)
    assert settings.limits.write_mode == "auto"
    assert settings.slurm.bin_dir == bin_dir
    assert f"Slurm {release}" in text
    assert 'partitions = ["closed", "gpu", "short", "sla", "whole"]' in text


def test_write_mode_follows_the_site(tmp_path: Path) -> None:
    def mode(found: Facts) -> str:
        return written(tmp_path, fit(found)).limits.write_mode

    assert mode(found_in()) == mode(found_in(PriorityType="priority/basic")) == "auto"
    assert mode(found_in(PrioritySiteFactorPlugin="site_factor/ours")) == "priority"


def test_a_rate_limit_bounds_the_changes(tmp_path: Path) -> None:
    found = found_in(SlurmctldParameters="rl_enable,rl_bucket_size=50")
    assert written(tmp_path, fit(found)).limits.max_changes == 39


def test_an_instance_gets_places_of_its_own(tmp_path: Path) -> None:
    settings = written(tmp_path, fit(None, Path("/etc/rltuned/west.toml")))
    assert settings.daemon.state_dir == Path("/var/lib/rltuned/west")
    assert settings.daemon.pause_file == Path("/run/rltuned/west/PAUSE")
    assert written(tmp_path, fit(None, Path("/etc/rltuned/rltuned.toml"))) == Settings()


def test_two_controllers_are_reported() -> None:
    assert "# lease_dir =" in fit(found_in(controllers=2))
    assert "lease_dir" not in fit(found_in(controllers=1))


def test_names_cannot_break_out_of_their_comment(tmp_path: Path) -> None:
    evil = 'x\n[ladder]\nstage = "full"\x1b[31m"'
    settings = written(tmp_path, fit(found_in(evil)))
    assert settings.ladder.stage == "observe"
