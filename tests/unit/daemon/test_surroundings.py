"""What the daemon looks at besides its own files, and what stops it."""

import os
from pathlib import Path

import pytest

from rltuned.daemon.surroundings import doubts, refuse_untrusted
from rltuned.errors import SettingsError
from rltuned.settings import Flag, Loaded
from rltuned.settings.source import from_flags

STRANGER = 54_321
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def loaded(folder: Path, **paths: Path) -> Loaded:
    """Settings whose places are all in one folder of ours."""
    state, pause = folder / "state", folder / "run"
    for place in (state, pause):
        place.mkdir(exist_ok=True)
    keys = {"daemon.state_dir": state, "daemon.pause_file": pause / "PAUSE"} | {
        name.replace("__", "."): path for name, path in paths.items()
    }
    return from_flags(tuple(Flag(key, str(path), "a test") for key, path in keys.items()))


def test_a_place_of_ours_raises_no_doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    assert refuse_untrusted(loaded(tmp_path, slurm__conf=tmp_path / "slurm.conf")) == ()


def test_an_earlier_folder_of_path_counts_and_so_does_one_that_is_not_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = tmp_path / "early"
    early.mkdir()
    early.chmod(0o777)
    monkeypatch.setenv("PATH", f"{early}:/usr/bin")
    with pytest.raises(SettingsError, match=rf"slurm\.bin_dir: {early}: others may write"):
        refuse_untrusted(loaded(tmp_path))
    monkeypatch.setenv("PATH", "bin:/usr/bin")
    with pytest.raises(SettingsError, match="not absolute"):
        refuse_untrusted(loaded(tmp_path))


def test_in_a_sticky_folder_others_can_pause_but_not_end_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    settings = loaded(tmp_path)
    (tmp_path / "run").chmod(0o1777)
    assert [d.key for d in refuse_untrusted(settings)] == ["daemon.pause_file"]
    (tmp_path / "run").chmod(0o777)
    with pytest.raises(SettingsError, match=r"daemon\.pause_file"):
        refuse_untrusted(settings)


@root_only
def test_a_group_is_worth_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    staff = tmp_path / "staff"
    staff.mkdir()
    os.chown(staff, 0, STRANGER)
    staff.chmod(0o2775)
    monkeypatch.setenv("PATH", f"{staff}:/usr/bin")
    (doubt,) = {str(d): d for d in refuse_untrusted(loaded(tmp_path))}.values()
    assert doubt.flaw.path == staff
    assert not doubt.fatal


def test_a_dry_run_does_not_mind_whose_state_folder_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    settings = loaded(tmp_path)
    (tmp_path / "state").chmod(0o777)
    with pytest.raises(SettingsError, match=r"daemon\.state_dir"):
        refuse_untrusted(settings)
    assert [d.key for d in refuse_untrusted(settings, dry_run=True)] == ["daemon.state_dir"]
    assert len(doubts(settings)) == 1
