"""What cannot be written is refused before the work."""

from pathlib import Path

import pytest

from rltuned.errors import TraceError
from rltuned.lab.cli.options import check_file, check_folder


def test_a_file(tmp_path: Path) -> None:
    check_file(None)
    check_file(tmp_path / "new")
    with pytest.raises(TraceError, match=f"^{tmp_path}: cannot be written: it is a folder$"):
        check_file(tmp_path)
    with pytest.raises(TraceError, match="cannot be written: no folder"):
        check_file(tmp_path / "no" / "such")


def test_a_folder(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    check_folder(None)
    check_folder(tmp_path)
    check_folder(tmp_path / "new" / "in" / "new", new=True)
    with pytest.raises(TraceError, match=f"^{tmp_path}: exists already"):
        check_folder(tmp_path, new=True)
    for below in (file, file / "in" / "it"):
        with pytest.raises(TraceError, match=f"^{below}: cannot be made: {file} is no folder$"):
            check_folder(below)
