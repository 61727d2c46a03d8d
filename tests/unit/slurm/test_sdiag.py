"""slurmctld's own figures, from where on they are too high, and which controller acts."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from rltuned.domain.units import JobId
from rltuned.errors import BackendError, SnapshotError
from rltuned.run import Call
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.run import Commands, SlurmCli
from rltuned.slurm.site import (
    Bounds,
    Figure,
    JobCounts,
    Load,
    clock_off_s,
    parse_counts,
    parse_sdiag,
    pressures,
)
from tests.programs import executable
from tests.recorded import DATA, RELEASES, Recording, replay

CALM = Load(1, 0, 0, rpc_count=100, rpc_total_s=1.0, backfill_s=0.01)


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_is_read(release: str, tmp_path: Path) -> None:
    recording = Recording(DATA / release)
    text = recording.text("sdiag")
    load = replay(tmp_path, recording).load()
    assert replace(load, clock_off_s=None) == parse_sdiag(text)
    assert load.clock_off_s == clock_off_s(text, recording.taken_at, recording.taken_at)
    assert load.clock_off_s is not None
    by_type = text.split("by message type\n")[1].split("\n\n")[0]
    assert load.rpc_count == sum(int(r.split("count:")[1].split()[0]) for r in by_type.split("\n"))
    assert 0 < load.rpc_total_s < 1
    assert 0 < load.backfill_s < 1
    assert load.server_threads >= 1
    assert (load.agent_queue, load.dbd_queue) == (0, 0)


@pytest.mark.parametrize(
    ("at", "off_s"),
    [(1_000, 0.0), (1_003, 0.0), (999, -0.5), (990, -9.5), (1_010, 5.0), (8_200, 7_195.0)],
)
def test_clocks_differ_by_as_much_as_the_answer_leaves_no_doubt_of(at: int, off_s: float) -> None:
    text = f"***\nsdiag output at Sat Nov 21 10:42:38 2026 ({at})\n"
    assert clock_off_s(text, 1_000.5, 1_005.0) == off_s
    assert clock_off_s("no moment", 1_000.5, 1_005.0) is None


def test_each_figure_is_the_one_it_is_named_after() -> None:
    # the backfill's cycle is not that of the main scheduler
    later = parse_sdiag(Recording(DATA / "24.11").text("sdiag"))
    assert later.backfill_s == pytest.approx(0.005202)
    text = Recording(DATA / "22.05").text("sdiag")
    for was, now, want in (
        ("Server thread count:  3", "Server thread count:  77", {"server_threads": 77}),
        ("DBD Agent queue size: 0", "DBD Agent queue size: 9000", {"dbd_queue": 9000}),
        ("\nAgent queue size:     0", "\nAgent queue size:     31", {"agent_queue": 31}),
    ):
        assert text.count(was) == 1
        load = parse_sdiag(text.replace(was, now))
        assert load == replace(parse_sdiag(text), **want)


@pytest.mark.parametrize("release", RELEASES)
def test_what_is_cut_off_or_foreign_is_no_answer(release: str) -> None:
    text = Recording(DATA / release).text("sdiag")
    for bad in (
        "",
        text[:200],
        text.replace("Agent queue size", "Agent tail"),
        text.split("Remote")[0],
    ):
        with pytest.raises(SnapshotError, match="sdiag"):
            parse_sdiag(bad)


def test_the_mean_counts_only_what_came_since() -> None:
    later = replace(CALM, rpc_count=110, rpc_total_s=6.0)
    assert later.rpc_mean_s(CALM) == pytest.approx(0.5)
    assert CALM.rpc_mean_s(None) is None
    assert CALM.rpc_mean_s(CALM) is None
    assert CALM.rpc_mean_s(later) is None, "the statistics were reset"


def test_shares_of_the_bounds() -> None:
    load = Load(50, 5, 10, 1, 1.0, 30.0)
    shares = pressures(load, 0.1, Bounds(100, 50, 5, 0.2, 0.0))
    assert shares == {
        Figure.SERVER_THREADS: 0.5,
        Figure.AGENT_QUEUE: 0.1,
        Figure.DBD_QUEUE: 2.0,
        Figure.RPC: 0.5,
    }
    assert Figure.RPC not in pressures(load, None, Bounds())


def test_a_rate_limit_is_counted_from_what_scontrol_says(tmp_path: Path) -> None:
    out = "scontrol: RPC rate limited 1 time(s). Sleeping then trying again."  # 24.11 and 26.05
    said = f"{out}\n{out}\nInvalid job id specified for job 99"
    executable(tmp_path / "scontrol", f'#!/bin/sh\necho "{said}" >&2\nexit 1\n')
    calls: list[Call] = []
    Commands(SlurmCli(bin_dir=tmp_path), calls.append).call("scontrol", "-v", feed="x\n")
    assert [c.limited for c in calls] == [2]


def counted(pending: int, ended: int, counted_at: float, at: float) -> JobCounts:
    return JobCounts(pending, 3, ended, counted_at, at)


def test_an_answer_with_fewer_jobs_than_are_counted_is_not_whole() -> None:
    before, now = counted(12, 40, 970, 1_000), counted(12, 42, 1_050, 1_060)
    assert now.lacking([before], 13) == "", "two have ended since, and may still be in the count"
    why = now.lacking([before], 12)
    assert why == "slurmctld counts 15 jobs that wait or run, and squeue shows 12"
    assert now.lacking([now], 0) == "", "what has ended is not known at the first look"
    assert counted(12, 1, 0, 2_000).lacking([now], 0) == "", "the statistics began again"


class Draining:
    """A cluster on which jobs end and none come, as squeue and sdiag show it."""

    def __init__(self, folder: Path) -> None:
        self.recording = Recording(DATA / "22.05")
        self.backend = replay(folder, self.recording)
        shown = self.backend.observe()
        tasks = sum(j.array.tasks if j.array else 1 for j in shown.pending)
        self.left = tasks + len(shown.running) + shown.others
        self.sdiag = folder / "answers" / "sdiag"

    def looks(self, at: int, counted_at: int, counted: int, ended: int) -> str:
        """Why a look at this moment is not whole."""
        text = self.recording.text("sdiag")
        for name, number in (
            ("Jobs completed:", ended), ("Jobs canceled: ", 0), ("Jobs failed:   ", 0),
            ("Jobs pending:  ", counted), ("Jobs running:  ", 0),
        ):  # fmt: skip
            text = re.sub(rf"{name} \d+", f"{name} {number}", text)
        for name, moment in (("sdiag output at", at), ("Job states ts:", counted_at)):
            text = re.sub(rf"({name} .*)\(\d+\)", rf"\g<1>({moment})", text)
        self.sdiag.write_text(text)
        self.backend.load()
        return self.backend.observe().hidden(JobId(0))


@pytest.mark.parametrize("apart_s", [1, 7, 10, 29, 60])
def test_jobs_that_end_between_two_counts_are_no_doubt(tmp_path: Path, apart_s: int) -> None:
    """In review every other look was in doubt where cycles are shorter than 30 s."""
    cluster = Draining(tmp_path)
    for at in range(1_000, 1_300, apart_s):
        counted_at, ended = at - at % 30, at
        found = cluster.looks(at, counted_at, cluster.left + (at - counted_at), ended)
        assert found == "" or at < 1_045, at  # there is a look before a count from then on
    assert "slurmctld counts" in cluster.looks(1_320, 1_319, cluster.left + 200, 1_320)


def test_an_old_count_says_nothing_of_a_new_look(tmp_path: Path) -> None:
    """In review every look was in doubt from the moment on at which sdiag was not answered."""
    cluster = Draining(tmp_path)
    assert cluster.looks(1_000, 999, cluster.left, 0) == ""
    assert "slurmctld counts" in cluster.looks(1_060, 1_059, cluster.left + 9, 0)
    (tmp_path / "sdiag").unlink()
    with pytest.raises(BackendError, match="sdiag is not installed"):
        cluster.backend.load()
    assert cluster.backend.observe().hidden(JobId(0)) == ""


@pytest.mark.parametrize("release", RELEASES)
def test_the_counts_of_jobs_are_read(release: str) -> None:
    text = (DATA / release / "sdiag.txt").read_text()
    found = parse_counts(text)
    assert found is not None
    assert f"Jobs pending:   {found.pending}\n" in text
    assert found.at - 60 < found.counted_at <= found.at
    for name in ("Jobs pending", "Job states ts", "sdiag output"):
        assert parse_counts(text.replace(name, "Other")) is None


STARS = "*****************************************"
RESTORE = f"{STARS}\n** RESTORE SLURMCTLD DAEMON TO SERVICE **\n{STARS}\n"
BOTH = "Slurmctld(primary) at head1 is UP\nSlurmctld(backup) at head2 is UP\n"


def pinging(folder: Path, text: str, code: int = 0) -> SlurmBackend:
    executable(folder / "scontrol", f"#!/bin/sh\ncat <<'END'\n{text}END\nexit {code}\n")
    return SlurmBackend(SlurmCli(bin_dir=folder), lambda: 0.0)


@pytest.mark.parametrize(
    ("text", "acting"),
    [
        (BOTH, "head1"),
        (BOTH.replace("head1 is UP", "head1 is DOWN") + RESTORE, "head2"),
        (BOTH.replace("head2 is UP", "head2 is DOWN") + RESTORE, "head1"),
        ("Slurmctld(primary) at head is UP\n", "head"),
        ("Slurmctld(backup2) at head-3.lan is UP\n", "head-3.lan"),
        (BOTH.replace("UP", "DOWN") + RESTORE, ""),
        ("", ""),
        ("scontrol: garbled\n", ""),
    ],
)
def test_the_first_that_answers_acts_and_where_none_does_it_is_not_guessed(
    tmp_path: Path, text: str, acting: str
) -> None:
    backend = pinging(tmp_path, text, int(not acting or "DOWN" in text))
    if acting:
        assert backend.acting() == acting
        return
    with pytest.raises(BackendError, match="no slurmctld answers"):
        backend.acting()
