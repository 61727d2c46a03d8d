"""Recorded answers behind programs of Slurm's names, so that the real Commands reads them."""

import json
from dataclasses import dataclass
from pathlib import Path

from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.columns import Marks
from rltuned.slurm.commands import SlurmCli

DATA = Path(__file__).parent / "data" / "slurm"
MARKS = Marks(record="\x1e#recorded")
RELEASES = tuple(sorted(p.name for p in DATA.iterdir()))


@dataclass(frozen=True)
class Recording:
    """One release's answers and the job ids of the zoo in them."""

    folder: Path

    @property
    def ids(self) -> dict[str, int]:
        found: dict[str, int] = json.loads((self.folder / "zoo.json").read_text())["ids"]
        return found

    @property
    def taken_at(self) -> float:
        return float(json.loads((self.folder / "zoo.json").read_text())["taken_at"])

    def text(self, name: str) -> str:
        return (self.folder / f"{name}.txt").read_bytes().decode()


def replay(folder: Path, recording: Recording, **changed: str) -> SlurmBackend:
    """A backend whose squeue, sinfo, sprio and scontrol answer what was recorded.

    Args:
        folder: where the programs are put.
        recording: the answers.
        changed: other texts for some of them ("squeue", "sinfo", "sprio", "config" ...).
    """
    answers = folder / "answers"
    answers.mkdir(exist_ok=True)
    for name in ("squeue", "watch", "sinfo", "sprio", "config", "ping", "sdiag", "usage", "fields"):
        text = changed.get(name, recording.text(name))
        (answers / name).write_text(text, newline="", errors="surrogateescape")
    if (recording.folder / "partitions.txt").exists():  # asked from 26.05 on
        (answers / "partitions").write_text(changed.get("partitions", recording.text("partitions")))
    scripts = {
        "squeue": """case "$*" in
            *--helpFormat*) f=fields;; *--help*) f=usage;; *"-t PD"*) f=watch;; *) f=squeue;;
        esac""",
        "sinfo": "f=sinfo",
        "sprio": "f=sprio",
        "sdiag": "f=sdiag",
        "scontrol": 'case "$*" in ping) f=ping;; *partitions) f=partitions;; *) f=config;; esac',
    }
    for name, choose in scripts.items():
        program = folder / name
        program.write_text(f'#!/bin/sh\n{choose}\nexec cat "{answers}/$f"\n')
        program.chmod(0o755)
    return SlurmBackend(SlurmCli(bin_dir=folder), lambda: recording.taken_at, marks=MARKS)
