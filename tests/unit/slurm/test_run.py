"""The one door to other programs, tried with small scripts in their place."""

import os
import resource
from pathlib import Path

import pytest

from rltuned.errors import BackendError
from rltuned.run import LINE_BYTES, Call, run
from rltuned.slurm.run import WHOLE_BYTES, Commands, SlurmCli
from rltuned.text import one_line
from tests.programs import executable
from tests.waits import ended, wait_for


def commands(folder: Path, script: str, **knobs: object) -> tuple[Commands, list[Call]]:
    seen: list[Call] = []
    executable(folder / "squeue", f"#!/bin/sh\n{script}\n")
    cli = SlurmCli(bin_dir=folder, **{"timeout_s": 10.0, **knobs})  # type: ignore[arg-type]
    return Commands(cli, seen.append), seen


def test_a_call_carries_both_outputs_and_is_counted(tmp_path: Path) -> None:
    asked, seen = commands(tmp_path, r"""printf '%s|%s\n' "$1" "$2"; printf 'a\377\303\251' >&2""")
    call = asked.call("squeue", "a b", "$(id)")
    assert (call.stdout, call.stderr, call.exit_code) == ("a b|$(id)\n", "a\\xffé", 0)
    assert list(call.lines()) == ["a b|$(id)"]
    assert seen == [call]


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
    assert commands(tmp_path, script)[0].call("squeue", *words).remarks == remarks


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("printf 'one\\n\\n two \\033[2J' >&2; exit 3", r"squeue ended with 3: one; two \?\[2J$"),
        ("echo 'Slurmctld(primary) is DOWN'; exit 1", "squeue ended with 1: Slurmctld.* is DOWN"),
        ("kill -SEGV $$", "squeue ended with -11: no message"),
        ("yes", "squeue answered more than 100000 bytes"),
        ("yes >&2", "squeue answered more than 100000 bytes"),
        ("head -c 100001 /dev/zero", "squeue answered more than 100000 bytes"),
        ("exec sleep 600", "squeue gave no answer within 0.5 s"),
    ],
)
def test_a_failure_is_named_on_one_line(tmp_path: Path, script: str, says: str) -> None:
    knobs = {"max_answer_bytes": 100_000, "timeout_s": 0.5 if "sleep" in script else 30.0}
    asked, seen = commands(tmp_path, script, **knobs)
    with pytest.raises(BackendError, match=f"^{says}"):
        asked.ask("squeue")
    with pytest.raises(BackendError, match=f"^{says}"):
        list(seen[0].lines())
    assert not seen[0].ok


def test_a_program_that_is_missing_or_cannot_be_started(tmp_path: Path) -> None:
    asked, seen = commands(tmp_path, "true")
    with pytest.raises(BackendError, match=r"sinfo is not installed in .*"):
        asked.ask("sinfo")
    (tmp_path / "squeue").write_bytes(b"\0\0not a program")
    with pytest.raises(BackendError, match="squeue cannot be started"):
        asked.ask("squeue")
    assert [(call.program, call.ok) for call in seen] == [("sinfo", False), ("squeue", False)]


@pytest.mark.parametrize(
    ("script", "printed", "code"),
    [
        ("sleep 600 & echo $! >{pid}; echo partly; wait", "partly\n", None),
        ("echo $$ >{pid}; trap '' TERM INT HUP; while :; do sleep 1; done", "", None),
        ("echo $$ >{pid}; exec >&- 2>&-; sleep 600", "", None),
        ("sleep 600 & echo $! >{pid}; echo done; exit 4", "done\n", 4),
    ],
    ids=["waits for its child", "ignores signals", "closes its files", "leaves a child"],
)
def test_the_whole_group_is_ended(
    tmp_path: Path, script: str, printed: str, code: int | None
) -> None:
    pid = tmp_path / "child"
    asked, _ = commands(tmp_path, script.replace("{pid}", str(pid)), timeout_s=0.5)
    call = asked.call("squeue")
    assert (call.exit_code, call.stdout) == (code, printed)
    assert bool(call.failure) == (code is None)
    assert ended(int(pid.read_text()))


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("cat", "x" * 1_000_000),
        ("dd bs=4096 count=1 of=/dev/null 2>&-; yes | head -c 1000000", "y\n" * 500_000),
        ("exec <&-; echo done", "done\n"),
    ],
    ids=["answers at length", "answers before it has read all", "does not read"],
)
def test_feed_and_answer_do_not_block_each_other(tmp_path: Path, script: str, says: str) -> None:
    call = commands(tmp_path, script)[0].call("squeue", feed="x" * 1_000_000)
    assert (call.stdout, call.exit_code) == (says, 0)


def test_environment_is_scrubbed(tmp_path: Path) -> None:
    commands(tmp_path, "env")
    around = {
        "PATH": os.environ["PATH"], "SLURM_JOB_ID": "7", "SQUEUE_FORMAT": "%i",
        "SLURM_CONF": "/elsewhere", "LD_PRELOAD": "x.so",
    }  # fmt: skip
    cli = SlurmCli(bin_dir=tmp_path)
    env = Commands(cli, environ=around).ask("squeue")
    assert not [name for name in around if name != "PATH" and name in env]
    assert "SLURM_TIME_FORMAT=%s" in env
    assert "SLURM_BITSTR_LEN=0" in env
    given = SlurmCli(bin_dir=tmp_path, conf=Path("/etc/slurm/slurm.conf"))
    assert "SLURM_CONF=/etc/slurm/slurm.conf" in Commands(given, environ=around).ask("squeue")
    own = Commands(cli, environ=around).call("squeue", environ={"SQUEUE_FORMAT2": "x"})
    assert "SQUEUE_FORMAT2=x" in own.stdout


def test_one_line_is_bounded() -> None:
    assert len(one_line("x" * 1000)) == 300
    assert one_line("") == ""


def test_lines_come_whole_however_they_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rltuned.run._PIECE", 2)
    asked, _ = commands(tmp_path, r"printf 'a\n\nbc\nx\303\251\n\n'")
    assert list(asked.call("squeue").lines()) == ["a", "", "bc", "xé", ""]
    asked, _ = commands(tmp_path, "printf 'a\\nbcd'")
    assert list(asked.call("squeue").lines()) == ["a", "bcd"]


def test_a_line_and_what_is_held_whole_have_bounds_of_their_own(tmp_path: Path) -> None:
    asked, _ = commands(tmp_path, f"head -c {3 * LINE_BYTES} /dev/zero")
    with pytest.raises(BackendError, match=f"squeue: more than {LINE_BYTES} bytes without an end"):
        list(asked.call("squeue").lines())
    asked, _ = commands(tmp_path, f"head -c {WHOLE_BYTES + 1} /dev/zero", max_answer_bytes=10**9)
    with pytest.raises(BackendError, match=f"squeue answered more than {WHOLE_BYTES} bytes"):
        asked.ask("squeue")
    assert len(asked.call("squeue").stdout) == WHOLE_BYTES + 1


def open_files() -> set[int]:
    return {int(path.name) for path in Path("/proc/self/fd").iterdir() if path.exists()}


def test_one_that_is_stopped_ends_at_once_and_no_file_stays_open() -> None:
    before = open_files()
    call = run(["/bin/sleep", "600"], {}, 600.0, 1_000, stopped=lambda: True)
    assert call.failure
    assert call.seconds < 300
    del call
    assert open_files() == before


def test_no_file_stays_open_where_there_are_too_many() -> None:
    before, (soft, hard) = open_files(), resource.getrlimit(resource.RLIMIT_NOFILE)
    free = [number for number in range(soft) if number not in before]
    for limit in free[:5]:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                run(["/bin/true"], {}, 600.0, 1_000)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert open_files() == before


def test_what_left_its_session_fills_no_memory(tmp_path: Path) -> None:
    done = tmp_path / "done"
    late = f"sleep 1; head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2; touch {done}"
    call = run(["/bin/sh", "-c", f"setsid sh -c '{late}' & sleep 0.5"], {}, 600.0, 10_000_000)
    wait_for(done.exists, "the end of what left")
    assert os.fstat(call.out).st_size == 0
