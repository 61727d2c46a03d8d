"""What writes GPU types to jobs believes no silence of squeue."""

from pathlib import Path

import pytest

from rltuned.cli.group_types import TypeChange, write_all
from rltuned.errors import BackendError
from rltuned.slurm.commands import Commands, SlurmCli

CHANGES = (TypeChange("1", "1", "a|b", "a"), TypeChange("2", "2", "a|b", "b"))


def commands(folder: Path, squeue: str) -> Commands:
    """Programs that stand in for Slurm's; scontrol notes what it is asked."""
    for name, text in (("squeue", squeue), ("scontrol", f'echo "$@" >> {folder}/asked')):
        program = folder / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    return Commands(SlurmCli(bin_dir=folder))


@pytest.mark.parametrize("undo", [False, True])
def test_without_an_answer_nothing_is_written_and_nothing_counts_as_done(
    tmp_path: Path, undo: bool
) -> None:
    away = commands(tmp_path, "echo 'slurm_load_jobs error: Unable to contact' >&2; exit 1")
    with pytest.raises(BackendError, match="Unable to contact"):
        write_all(CHANGES, away, undo=undo)
    assert not (tmp_path / "asked").exists()


def test_a_write_that_squeue_does_not_show_is_not_done(tmp_path: Path) -> None:
    stays = commands(tmp_path, "echo '1 a|b'; echo '2 b'; echo '3 (null)'")
    found = write_all(CHANGES, stays, undo=False)
    assert found == [("1", False, "constraint a|b"), ("2", True, "constraint b")]
    assert (tmp_path / "asked").read_text() == "update JobId=1 Features=a\n"


def test_a_job_that_left_needs_no_undo_and_another_constraint_is_kept(tmp_path: Path) -> None:
    seen = commands(tmp_path, "echo '2 c'")
    assert write_all(CHANGES, seen, undo=True) == [
        ("1", True, "left alone: it does not wait any more"),
        ("2", False, "left alone: its constraint is c"),
    ]
    assert not (tmp_path / "asked").exists()
