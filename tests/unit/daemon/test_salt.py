"""The salt: drawn once, for the daemon alone, and what is wrong with one is reported."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from rltuned.cli import app
from rltuned.errors import JournalError
from rltuned.journal.store import SALT_FILE as FILE_NAME
from rltuned.journal.store import keep_salt, read_salt
from tests.configs import settings_file


def test_it_is_drawn_once_and_no_other_user_can_read_it(tmp_path: Path) -> None:
    assert read_salt(tmp_path) is None
    salt = keep_salt(tmp_path)
    assert keep_salt(tmp_path) == read_salt(tmp_path) == salt
    assert len(salt) == 32
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600
    assert [p.name for p in tmp_path.iterdir()] == [FILE_NAME]


@pytest.mark.parametrize("content", [b"", b"short", bytes(33)])
def test_a_damaged_one_is_never_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(JournalError, match=f"salt: {len(content)} bytes instead of 32"):
        keep_salt(tmp_path)
    assert path.read_bytes() == content


def test_one_that_others_may_read_or_that_is_no_file_is_refused(tmp_path: Path) -> None:
    keep_salt(tmp_path)
    (tmp_path / FILE_NAME).chmod(0o640)
    says = r"other users may read it \(mode 0640\); fix with: chmod 0600"
    with pytest.raises(JournalError, match=says):
        read_salt(tmp_path)
    (tmp_path / FILE_NAME).unlink()
    (tmp_path / FILE_NAME).mkdir()
    with pytest.raises(JournalError, match="salt: cannot be read: Is a directory"):
        read_salt(tmp_path)
    with pytest.raises(JournalError, match="cannot be written"):
        keep_salt(tmp_path / "absent")


def test_check_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    config = settings_file(
        tmp_path, f'[daemon]\nstate_dir = "{tmp_path}"\n[http]\nenabled = false\n'
    )

    def line() -> str:
        out = CliRunner().invoke(app, ["check", "--no-slurm", "--config", str(config)]).output
        return next(row for row in out.splitlines() if "kinds:" in row)

    assert line() == (
        "ok    kinds: jobs are likened by salted digests of name, command, work_dir, submit_line; "
        "the salt is drawn when the daemon starts"
    )
    (tmp_path / FILE_NAME).write_bytes(b"x")
    (tmp_path / FILE_NAME).chmod(0o600)
    assert line().startswith(f"FAIL  kinds: {tmp_path}/salt: 1 bytes instead of 32")
    config.write_text(config.read_text() + "[predictor]\nkinds = []\n")
    assert line() == "ok    kinds: switched off"
