"""Recorded answers behind programs of Slurm's names, so that the real Commands reads them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.columns import ASK_COLUMNS, FIELD, Marks
from rltuned.slurm.pyslurm import ReaderChoice
from rltuned.slurm.run import SlurmCli
from tests.programs import executable

DATA = Path(__file__).parent / "data" / "slurm"
MARKS = Marks(record="\x1e#recorded")
RELEASES = tuple(sorted(p.name for p in DATA.iterdir()))
WITH_PYSLURM = tuple(name for name in RELEASES if (DATA / name / "pyslurm.json").exists())
"""Releases for which a pyslurm was at hand when they were recorded."""


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
    programs(folder, recording, changed)
    return SlurmBackend(SlurmCli(bin_dir=folder), lambda: recording.taken_at, marks=MARKS)


def replay_beside(
    python: Path,
    folder: Path,
    recording: Recording,
    *,
    on_reading: Callable[[ReaderChoice], None] = lambda _: None,
    now: Callable[[], float] | None = None,
) -> SlurmBackend:
    """The same backend with jobs read through pyslurm.

    Args:
        python: the interpreter that has pyslurm.
        folder, recording: as above.
        on_reading: see SlurmBackend.
        now: its clock; None = when it was recorded.
    """
    programs(folder, recording, {})
    return SlurmBackend(
        SlurmCli(bin_dir=folder),
        now or (lambda: recording.taken_at),
        marks=MARKS,
        pyslurm=python,
        on_reading=on_reading,
    )


def programs(folder: Path, recording: Recording, changed: Mapping[str, str]) -> None:
    """Programs in a folder that answer what was recorded; changed: other texts for some."""
    answers = folder / "answers"
    answers.mkdir(exist_ok=True)
    for name in ("squeue", "watch", "sinfo", "sprio", "config", "ping", "sdiag", "usage", "fields"):
        text = changed.get(name, recording.text(name))
        (answers / name).write_text(text, newline="", errors="surrogateescape")
    (answers / "asked").write_text(
        _narrowed((answers / "squeue").read_text(errors="surrogateescape")),
        newline="",
        errors="surrogateescape",
    )
    header = FIELD.join(("ARRAY_JOB_ID", "ARRAY_TASK_ID")) + f"{MARKS.record}\n"
    (answers / "throttles").write_text(header)  # no array of a recording has one
    if (recording.folder / "partitions.txt").exists():  # asked from 26.05 on
        (answers / "partitions").write_text(changed.get("partitions", recording.text("partitions")))
    none = "No reservations in the system\n"
    (answers / "reservations").write_text(changed.get("reservations", none))
    scripts = {
        "squeue": """case "$SQUEUE_FORMAT2 $*" in
            *--helpFormat*) f=fields;; *--help*) f=usage;; "arrayjobid:"*) f=throttles;;
            *"-t PD"*) f=watch;; "jobid:"*) f=asked;; *) f=squeue;;
        esac""",
        "sinfo": "f=sinfo",
        "sprio": "f=sprio",
        "sdiag": "f=sdiag",
        "scontrol": f"""case "$*" in
            --version) echo slurm-wlm {recording.folder.name}.0; exit;;
            ping) f=ping;; *partitions) f=partitions;;
            *reservations) f=reservations;; *) f=config;;
        esac""",
    }
    for name, choose in scripts.items():
        executable(folder / name, f'#!/bin/sh\n{choose}\nexec cat "{answers}/$f"\n')


def answers_of_pyslurm(folder: Path, recording: Recording) -> Path:
    """An interpreter that answers what pyslurm answered when the release was recorded."""
    python = folder / "pyslurm-python"
    executable(python, f'#!/bin/sh\nexec cat "{recording.folder / "pyslurm.json"}"\n')
    return python


def _narrowed(squeue: str) -> str:
    """The same answer with the columns alone that are asked for beside pyslurm."""
    end = f"{MARKS.record}\n"
    records = [record.split(FIELD) for record in squeue.split(end)[:-1]]
    if not records or "JOBID" not in records[0]:
        return squeue  # a test's own broken answer
    width, at = len(ASK_COLUMNS), records[0].index("JOBID")
    more = [records[0].index("EXCLUSIVE")] if "EXCLUSIVE" in records[0] else []
    more = [records[0].index("ACCRUE_TIME"), records[0].index("DEADLINE"), *more]
    return "".join(
        FIELD.join([row[at], *row[:width], *(row[i] for i in more)]) + end for row in records
    )
