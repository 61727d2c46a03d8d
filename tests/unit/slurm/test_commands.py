"""The one door to other programs, tried with small scripts in Slurm's place."""

import os
from pathlib import Path

import pytest

from rltuned.errors import BackendError
from rltuned.slurm.commands import WHOLE_BYTES, Commands, SlurmCli
from rltuned.slurm.talk import LINE_CHARACTERS, CallRecord, one_line
from tests.programs import executable
from tests.waits import ended


def place(folder: Path, script: str, name: str = "squeue") -> Path:
    executable(folder / name, f"#!/bin/sh\n{script}\n")
    return folder


def commands(folder: Path, script: str, **knobs: object) -> tuple[Commands, list[CallRecord]]:
    seen: list[CallRecord] = []
    cli = SlurmCli(bin_dir=place(folder, script), **{"timeout_s": 10.0, **knobs})  # type: ignore[arg-type]
    return Commands(cli, seen.append), seen


def test_answer_carries_both_outputs_and_is_counted(tmp_path: Path) -> None:
    run, seen = commands(tmp_path, 'echo "$1|$2"; echo beside >&2')
    answer = run.ask("squeue", "a b", "$(id)")
    assert (answer.stdout, answer.stderr, answer.exit_code) == ("a b|$(id)\n", "beside\n", 0)
    assert [(r.program, r.ok, r.timed_out) for r in seen] == [("squeue", True, False)]


@pytest.mark.parametrize(
    ("script", "words", "remarks"),
    [
        ("echo one >&2; echo two >&2; echo; echo one >&2", (), ("one", "two")),
        ("echo one >&2; exit 1", (), ()),
        ("printf 'a\\033[2Jb\\n' >&2", (), ("a?[2Jb",)),
        ("echo loaded >&2; echo x: error: old >&2", ("-v",), ("x: error: old",)),
        ("seq 500 >&2", (), tuple(map(str, range(1, 21)))),
    ],
)
def test_what_is_said_beside_a_good_answer_is_handed_on(
    tmp_path: Path, script: str, words: tuple[str, ...], remarks: tuple[str, ...]
) -> None:
    run, seen = commands(tmp_path, script)
    run.call("squeue", *words)
    assert [call.remarks for call in seen] == [remarks]


def test_failure_names_command_code_and_message_on_one_line(tmp_path: Path) -> None:
    run, seen = commands(tmp_path, "printf 'one\\n\\n two \\033[2J' >&2; exit 3")
    with pytest.raises(BackendError, match=r"^squeue ended with 3: one; two \?\[2J$"):
        run.ask("squeue")
    assert [r.ok for r in seen] == [False]


def test_missing_program_is_named(tmp_path: Path) -> None:
    run, seen = commands(tmp_path, "true")
    with pytest.raises(BackendError, match=r"sinfo is not installed in .*"):
        run.ask("sinfo")
    assert [(r.program, r.ok) for r in seen] == [("sinfo", False)]


def test_program_that_cannot_be_started(tmp_path: Path) -> None:
    run, _ = commands(tmp_path, "true")
    (tmp_path / "squeue").write_bytes(b"\0\0not a program")
    with pytest.raises(BackendError, match="squeue cannot be started"):
        run.ask("squeue")


@pytest.mark.parametrize(
    ("script", "printed"),
    [
        ("sleep 600 & echo $! >{pid}; echo partly; wait", "partly\n"),
        ("sleep 600 & echo $! >{pid}; exit 0", ""),
        ("echo $$ >{pid}; trap '' TERM INT HUP; while :; do sleep 1; done", ""),
        ("echo $$ >{pid}; exec >&- 2>&-; sleep 600", ""),
    ],
    ids=["waits for its child", "leaves the pipe to it", "ignores signals", "closes its pipes"],
)
def test_timeout_ends_the_whole_group(tmp_path: Path, script: str, printed: str) -> None:
    pid = tmp_path / "child"
    run, seen = commands(tmp_path, script.replace("{pid}", str(pid)), timeout_s=0.5)
    answer = run.call("squeue")
    assert (answer.failure, answer.stdout) == ("squeue gave no answer within 0.5 s", printed)
    assert seen[0].timed_out
    assert ended(int(pid.read_text()))


def test_endless_output_is_cut_off(tmp_path: Path) -> None:
    run, _ = commands(tmp_path, "yes", max_answer_bytes=100_000)
    with pytest.raises(BackendError, match="answered more than 100000 bytes"):
        run.ask("squeue")


def test_large_feed_and_large_answer_do_not_block_each_other(tmp_path: Path) -> None:
    run, _ = commands(tmp_path, "cat")
    text = "update JobId=1 Priority=2\n" * 40_000
    assert run.call("squeue", feed=text).stdout == text


@pytest.mark.timeout(60)  # a write that blocks would wait for ever
def test_program_that_answers_before_it_has_read_all_of_its_feed(tmp_path: Path) -> None:
    script = "dd bs=4096 count=1 of=/dev/null; yes | head -c 1000000; exec cat >/dev/null"
    run, _ = commands(tmp_path, script)
    answer = run.call("squeue", feed="x" * 1_000_000)
    assert (len(answer.stdout), answer.exit_code, answer.failure) == (1_000_000, 0, "")


def test_program_that_does_not_read_its_feed(tmp_path: Path) -> None:
    run, _ = commands(tmp_path, "exec <&-; echo done")
    answer = run.call("squeue", feed="x" * 1_000_000)
    assert (answer.stdout, answer.exit_code, answer.failure) == ("done\n", 0, "")


def test_bytes_that_are_not_utf8_stay_distinct_and_storable(tmp_path: Path) -> None:
    run, _ = commands(tmp_path, r"printf 'a\377b\376 \303\251'")
    text = run.ask("squeue").stdout
    assert text == "a\\xffb\\xfe é"
    text.encode("utf-8")


def test_environment_is_scrubbed(tmp_path: Path) -> None:
    place(tmp_path, "env")
    around = {
        "PATH": os.environ["PATH"],
        "SLURM_JOB_ID": "7",
        "SQUEUE_FORMAT": "%i",
        "SLURM_CONF": "/elsewhere",
        "LD_PRELOAD": "x.so",
    }
    env = Commands(SlurmCli(bin_dir=tmp_path), environ=around).ask("squeue").stdout
    assert "SLURM_JOB_ID" not in env
    assert "SQUEUE_FORMAT" not in env
    assert "LD_PRELOAD" not in env
    assert "SLURM_CONF" not in env
    assert "SLURM_TIME_FORMAT=%s" in env
    assert "SLURM_BITSTR_LEN=0" in env
    given = SlurmCli(bin_dir=tmp_path, conf=Path("/etc/slurm/slurm.conf"))
    env = Commands(given, environ=around).ask("squeue").stdout
    assert "SLURM_CONF=/etc/slurm/slurm.conf" in env


@pytest.mark.parametrize("bad", [{"timeout_s": 0}, {"chunk": 0}, {"chunk": 201}])
def test_knobs_out_of_range(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"must be|chunk"):
        SlurmCli(**bad)  # type: ignore[arg-type]


def test_one_line_is_bounded() -> None:
    assert len(one_line("x" * 1000)) == 300
    assert one_line("") == ""


def test_what_a_failing_command_says_on_standard_output_counts_too(tmp_path: Path) -> None:
    run, _ = commands(tmp_path, "echo 'Slurmctld(primary) at vm is DOWN'; exit 1")
    with pytest.raises(BackendError, match=r"ended with 1: Slurmctld.* is DOWN"):
        run.ask("squeue")


def test_lines_come_whole_however_they_are_cut(tmp_path: Path) -> None:
    run, _ = commands(
        tmp_path, "printf 'a\\n\\nb'; sleep 0.2; printf 'c\\n\\303'; sleep 0.2; printf '\\251'"
    )
    assert list(run.stream("squeue").lines()) == ["a", "", "bc", "é"]


def test_a_line_without_end_is_refused(tmp_path: Path) -> None:
    run, _ = commands(tmp_path, "yes | tr -d '\\n'")
    with pytest.raises(BackendError, match=f"squeue: a line of more than {LINE_CHARACTERS}"):
        list(run.stream("squeue").lines())


def test_what_is_held_whole_has_a_bound_of_its_own(tmp_path: Path) -> None:
    run, _ = commands(tmp_path, f"head -c {WHOLE_BYTES + 1} /dev/zero", max_answer_bytes=10**9)
    with pytest.raises(BackendError, match=f"squeue answered more than {WHOLE_BYTES} bytes"):
        run.ask("squeue")
    assert sum(map(len, run.stream("squeue"))) == WHOLE_BYTES + 1


def test_complaints_count_once_among_what_was_answered(tmp_path: Path) -> None:
    script = "head -c 4000 /dev/zero >&2; for i in 1 2 3 4 5 6 7 8 9; do printf x; sleep 0.03; done"
    run, _ = commands(tmp_path, script, max_answer_bytes=20_000)
    assert run.ask("squeue").stdout == 9 * "x"
