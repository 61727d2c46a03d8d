"""Who acts, by `scontrol ping`: as 22.05, 24.11 and 26.05 print it where there are two."""

from pathlib import Path

import pytest

from rltuned.errors import BackendError
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.run import SlurmCli
from rltuned.slurm.site import parse_ping
from tests.programs import executable

STARS = "*****************************************"
RESTORE = f"{STARS}\n** RESTORE SLURMCTLD DAEMON TO SERVICE **\n{STARS}\n"
BOTH = "Slurmctld(primary) at head1 is UP\nSlurmctld(backup) at head2 is UP\n"


def pinging(folder: Path, text: str, code: int = 0) -> SlurmBackend:
    executable(folder / "scontrol", f"#!/bin/sh\ncat <<'END'\n{text}END\nexit {code}\n")
    return SlurmBackend(SlurmCli(bin_dir=folder), lambda: 0.0)


def test_lines_become_controllers() -> None:
    assert parse_ping(BOTH) == {"head1": True, "head2": True}
    three = parse_ping(BOTH + "Slurmctld(backup2) at head-3.lan is DOWN\n" + RESTORE)
    assert [*three.items()][2] == ("head-3.lan", False)


@pytest.mark.parametrize(
    ("text", "acting"),
    [
        (BOTH, "head1"),
        (BOTH.replace("head1 is UP", "head1 is DOWN") + RESTORE, "head2"),
        (BOTH.replace("head2 is UP", "head2 is DOWN") + RESTORE, "head1"),
        ("Slurmctld(primary) at head is UP\n", "head"),
    ],
)
def test_the_first_that_answers_acts(tmp_path: Path, text: str, acting: str) -> None:
    assert pinging(tmp_path, text, int("DOWN" in text)).acting() == acting


@pytest.mark.parametrize("text", [BOTH.replace("UP", "DOWN") + RESTORE, "", "scontrol: garbled\n"])
def test_when_none_answers_it_is_not_guessed(tmp_path: Path, text: str) -> None:
    with pytest.raises(BackendError, match="no slurmctld answers"):
        pinging(tmp_path, text, 1).acting()
