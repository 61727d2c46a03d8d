"""Texts that users choose: only digests of them are kept, and an odd one costs only its key."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rltuned.domain.kinds import NO_KINDS, WIDTHS, Digester, Kinds
from rltuned.domain.snapshot import Snapshot
from rltuned.journal.cycles import decode_snapshot, encode_snapshot
from rltuned.slurm.accounting import ended_jobs
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.columns import FIELD
from rltuned.slurm.run import Commands, SlurmCli
from tests.programs import executable
from tests.recorded import DATA, MARKS, Recording, answers_of_pyslurm, programs, replay

DIGESTER = Digester(bytes(range(32)))
PLAIN = ("train_001", "/home/a/train.sh --seed 3", "/home/a")
ODD = (
    "", "(null)", "|", "a|b\n1|2", "x" * 10_000, "\n\n", FIELD * 3, f"{FIELD}1{FIELD}PD",
    "\x1e\n", "a\x1e#nearly\n9\x1f9", "\udcff\udcfe", "ä€🙂" * 200, "\x1b[31m",
    "JobId=1 Priority=9",
)  # fmt: skip


def shown(texts: tuple[str, str, str]) -> str:
    """As squeue prints them: cut to the width in bytes, or filled up to it."""
    wide = []
    for kind, text in zip(("name", "command", "work_dir"), texts, strict=True):
        raw = text.encode("utf-8", "surrogateescape")[: WIDTHS[kind]]
        wide.append(raw.ljust(WIDTHS[kind]).decode("utf-8", "surrogateescape"))
    return "".join(MARKS.text + text for text in wide)


def observe(folder: Path, release: str, *odd: str, pyslurm: bool = False) -> Snapshot:
    """The recorded queue, every job of which bears these texts; without any: PLAIN."""
    recording = Recording(DATA / release)
    texts = (odd[0], odd[0], odd[0]) if odd else PLAIN
    programs(folder, recording, {})
    for name in ("squeue", "asked"):
        answer = folder / "answers" / name
        out = answer.read_bytes().decode("utf-8", "surrogateescape")
        end = f"{MARKS.record}\n"
        head, *rows = out.split(end)[:-1]
        rows = [head + shown(("NAME", "COMMAND", "WORK_DIR")), *(r + shown(texts) for r in rows)]
        answer.write_text("".join(r + end for r in rows), errors="surrogateescape", newline="")
    return SlurmBackend(
        SlurmCli(bin_dir=folder),
        lambda: recording.taken_at,
        marks=MARKS,
        digester=DIGESTER,
        pyslurm=answers_of_pyslurm(folder, recording) if pyslurm else None,
    ).observe()


def stripped(seen: Snapshot) -> Snapshot:
    return replace(
        seen,
        pending=tuple(replace(j, kinds=NO_KINDS) for j in seen.pending),
        running=tuple(replace(j, kinds=NO_KINDS) for j in seen.running),
    )


def kinds_of(seen: Snapshot) -> set[Kinds]:
    return {job.kinds for job in seen.pending} | {job.kinds for job in seen.running}


@pytest.mark.parametrize("release", ["22.05", "24.11", "26.05"])
def test_every_job_has_the_kinds_of_its_texts_and_else_nothing_changes(
    tmp_path: Path, release: str
) -> None:
    seen = observe(tmp_path, release)
    expected = DIGESTER.kinds(("name", "command", "work_dir"), *PLAIN)
    assert kinds_of(seen) == {expected}
    assert len({expected.name, expected.command, expected.work_dir, 0}) == 4
    (other := tmp_path / "plain").mkdir()
    assert stripped(seen) == replay(other, Recording(DATA / release)).observe()


def test_pyslurm_and_squeue_give_the_same_kinds(tmp_path: Path) -> None:
    (other := tmp_path / "text").mkdir()
    through = observe(tmp_path, "26.05", pyslurm=True)
    assert kinds_of(through) == kinds_of(observe(other, "26.05"))


@pytest.mark.parametrize("text", ODD)
def test_an_odd_text_costs_nothing_but_its_key(tmp_path: Path, text: str) -> None:
    seen = observe(tmp_path, "22.05", text)
    (other := tmp_path / "plain").mkdir()
    assert stripped(seen) == replay(other, Recording(DATA / "22.05")).observe()
    assert len(kinds_of(seen)) == 1


def test_a_snapshot_keeps_the_kinds(tmp_path: Path) -> None:
    seen = observe(tmp_path, "22.05")
    assert decode_snapshot(encode_snapshot(seen))[0] == seen


# -- sacct ----------------------------------------------------------------------------------------

BEGAN, DAY_S = 1_795_000_000, 86_400


def row(number: int = 7, **changed: str) -> dict[str, str]:
    return {
        "JobIDRaw": str(number),
        "JobID": str(number),
        "Submit": str(BEGAN),
        "Eligible": str(BEGAN),
        "Start": str(BEGAN + 10),
        "End": str(BEGAN + 70),
        "State": "COMPLETED",
        "TimelimitRaw": "60",
        "ReqTRES": "cpu=2,mem=1G,node=1,gres/gpu=2",
        "AllocTRES": "cpu=2,mem=1G,node=1,gres/gpu=2",
        "NodeList": "n1",
        "Partition": "gpu",
        "User": "u",
        "Account": "a",
        "QOS": "normal",
        "Priority": "5",
        "Flags": "SchedMain",
        "Reservation": "",
        "Constraints": "",
        "ElapsedRaw": "60",
        "JobName": "train_002",
        "WorkDir": "/home/a",
        "SubmitLine": "sbatch -n2 train.sh",
    } | changed


def sacct(folder: Path, *rows: dict[str, str]) -> SlurmCli:
    """A sacct that says these rows, with the delimiter and the columns that it is asked for."""
    (folder / "rows").write_text(json.dumps(rows))
    script = f"""#!{sys.executable} -SI
import json, sys
said = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
names, mark = said["--format"].split(","), said["--delimiter"]
for row in json.load(open("{folder}/rows")):
    text = mark.join(row[name] for name in names).replace("<mark>", mark) + chr(10)
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
"""
    executable(folder / "sacct", script)
    return SlurmCli(bin_dir=folder)


def ended(folder: Path, *rows: dict[str, str]) -> list[tuple[int, float, Kinds]]:
    commands = Commands(sacct(folder, *rows))
    runs = ended_jobs(commands, BEGAN - 10, BEGAN + 1000, DIGESTER)
    return [(run.job.job_id, run.run_s, run.job.kinds) for run in runs]


def test_an_ended_job_of_sacct_has_the_same_kinds_as_in_squeue(tmp_path: Path) -> None:
    squeue = DIGESTER.kinds(("name", "command", "work_dir"), *PLAIN)
    ((job_id, run_s, kinds),) = ended(tmp_path, row())
    assert (job_id, run_s) == (7, 60.0)
    assert (kinds.name, kinds.work_dir, kinds.command) == (squeue.name, squeue.work_dir, 0)
    assert kinds.submit_line == DIGESTER.kinds(("submit_line",), "sbatch -n8 train.sh").submit_line


@pytest.mark.parametrize("text", ODD)
def test_an_odd_text_in_sacct_costs_nothing_but_its_key(tmp_path: Path, text: str) -> None:
    odd = row(8, JobName=text, WorkDir=text, SubmitLine=text)
    assert [job[:2] for job in ended(tmp_path, row(7), odd, row(9))] == [
        (7, 60.0),
        (8, 60.0),
        (9, 60.0),
    ]


SPOKEN = f"9<mark>{BEGAN}<mark>forged<mark><mark>x<mark>x<mark>x<mark>9"


@pytest.mark.parametrize("name", ["JobName", "SubmitLine", "Account", "Constraints"])
@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"\n{SPOKEN}\n", [7]),  # another's row: job 9 has two
        (f"x<mark>x<mark>x<mark>8\n{SPOKEN}\n8<mark>{BEGAN}<mark>", [7]),
        (f"\n9<mark>{BEGAN}<mark>", [7]),
        (f"\n10<mark>{BEGAN}<mark>forged<mark><mark>x<mark>x<mark>x<mark>10\n", [7, 9]),
        ("<mark>", [7, 9]),
        ("<mark>" * 9, [7, 9]),
        ("x\n" * 700_000, [7, 9]),
        (SPOKEN, [7, 9]),  # in the middle of a line
    ],
)
def test_who_knows_the_mark_of_a_sacct_changes_no_job_of_another(
    tmp_path: Path, name: str, text: str, left: list[int]
) -> None:
    """He can make a job one that is left alone, and no more."""
    told = [row(7), row(8, **{name: f"x{text}"}), row(9)]
    commands = Commands(sacct(tmp_path, *told))
    runs = ended_jobs(commands, BEGAN - 10, BEGAN + 1000, DIGESTER)
    (true,) = ended_jobs(Commands(sacct(tmp_path, row(7))), BEGAN - 10, BEGAN + 1000, DIGESTER)
    found = {int(run.job.job_id): replace(run.job, job_id=true.job.job_id) for run in runs}
    others = {number: job for number, job in found.items() if number != 8}
    assert others == dict.fromkeys(left, true.job)


@pytest.mark.parametrize(
    ("changed", "taught"),
    [
        ({"State": "TIMEOUT"}, True),
        ({"State": "FAILED"}, True),
        ({"State": "CANCELLED by 0"}, True),
        ({"State": "CANCELLED by 0", "Start": "Unknown", "NodeList": "None assigned"}, False),
        ({"State": "NODE_FAIL"}, False),
        ({"State": "PREEMPTED"}, False),
        ({"State": "REQUEUED"}, False),
        ({"State": "RUNNING", "End": "Unknown"}, False),
        ({"End": str(BEGAN + 10), "ElapsedRaw": "0"}, True),
        ({"TimelimitRaw": "1", "Submit": str(BEGAN - DAY_S), "Start": str(BEGAN - DAY_S)}, False),
        ({"JobIDRaw": "7.batch", "JobID": "7.batch"}, False),
    ],
)
def test_only_runs_that_ended_by_themselves_teach(
    tmp_path: Path, changed: dict[str, str], taught: bool
) -> None:
    more = {"ElapsedRaw": str(DAY_S + 70)} if "Submit" in changed else {}
    assert bool(ended(tmp_path, row(7, **(changed | more)))) is taught


def test_suspended_time_does_not_count(tmp_path: Path) -> None:
    assert ended(tmp_path, row(ElapsedRaw="45"))[0][1] == 45.0
