"""One rule says who may change what is read or run here."""

import os
from pathlib import Path

import pytest

from rltuned.trusted import flaw_of, flaws_on

STRANGER = 54_321
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A file in two folders, all of them ours alone."""
    folder = tmp_path / "outer" / "inner"
    folder.mkdir(parents=True, mode=0o755)
    path = folder / "file"
    path.touch(0o644)
    return path


def reasons(path: Path, *also: int) -> list[tuple[str, bool]]:
    return [(flaw.path.name, flaw.by_group) for flaw in flaws_on(path, also=also)]


def test_what_only_we_and_root_can_change_has_no_flaw(place: Path) -> None:
    assert flaws_on(place) == ()
    assert flaws_on(Path("/etc/passwd")) == ()
    assert flaws_on(place.parent / "missing" / "deep") == ()


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_every_folder_on_the_way_counts(place: Path, depth: int) -> None:
    at = [place, *place.parents][depth]
    at.chmod(0o777)
    assert reasons(place) == [(at.name, False)]
    assert "others may write to it (mode 0777); fix with: chmod go-w" in str(flaws_on(place)[0])


def test_a_sticky_folder_is_trusted_on_the_way_but_not_as_the_place_itself(place: Path) -> None:
    place.parent.chmod(0o1777)
    assert flaws_on(place) == ()
    assert reasons(place.parent) == [("inner", False)]
    assert reasons(place.parent / "missing") == [("inner", False)], "anybody can make it"


@root_only
def test_a_foreign_owner_or_group_is_a_flaw_and_one_that_is_named_is_not(place: Path) -> None:
    os.chown(place, STRANGER, 0)
    os.chown(place.parent, 0, STRANGER)
    place.parent.chmod(0o775)
    assert reasons(place) == [("inner", True), ("file", False)]
    assert f"belongs to uid {STRANGER}" in str(flaws_on(place)[1])
    assert reasons(place, STRANGER) == [("inner", True)]
    os.chown(place.parent, 0, 0)
    assert reasons(place, STRANGER) == [], "our own group may write"


@root_only
def test_a_sticky_folder_of_another_user_is_not_trusted(place: Path) -> None:
    place.parent.chmod(0o1777)
    os.chown(place.parent, STRANGER, 0)
    assert reasons(place) == [("inner", False)]


def test_links_are_followed_and_both_sides_count(place: Path, tmp_path: Path) -> None:
    bad, link = tmp_path / "bad", tmp_path / "bad" / "link"
    bad.mkdir()
    link.symlink_to(place.parent)
    assert flaws_on(link / "file") == ()
    bad.chmod(0o777)
    assert reasons(link / "file") == [("bad", False)]
    bad.chmod(0o755)
    place.parent.chmod(0o777)
    assert reasons(link / "file") == [("inner", False)]
    assert reasons(bad / ".." / "bad" / "link" / "file") == [("inner", False)]


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        flaws_on(tmp_path / "a" / "x")


def test_the_status_of_the_open_file_is_what_counts(place: Path) -> None:
    with place.open() as file:
        place.chmod(0o666)
        flaw = flaw_of(place, os.fstat(file.fileno()))
    assert flaw is not None
    assert str(flaw).startswith(f"{place}: others may write")
