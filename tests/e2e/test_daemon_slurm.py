"""The real process against a real Slurm: it watches, reorders, restores, and keeps no name."""

import json
import re
import signal
import sqlite3
import sys
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rltuned.journal.cycles import recorded
from rltuned.journal.store import FILE_NAME, SALT_FILE
from tests.builders import sure
from tests.configs import write_settings
from tests.e2e.process import Daemon
from tests.e2e.queue import FULL, priority, queue, waiting
from tests.lab import SlurmLab
from tests.programs import process, ran, rltuned

pytestmark = pytest.mark.slurm


def factors(slurm: SlurmLab) -> dict[int, int]:
    """Site factor of every job that sprio shows."""
    lines = slurm.run("sprio", "-h", "-o", "%i %S").splitlines()
    return {int(job): int(factor) for job, factor in map(str.split, lines)}


def test_a_dry_run_changes_nothing(slurm: SlurmLab, config: Path, tmp_path: Path) -> None:
    waiting(slurm)
    before = queue(slurm)
    with Daemon(tmp_path, "--dry-run", "--config", str(config)) as daemon:
        daemon.wait_for_log("proposed=", times=3)
        assert "old=" in daemon.log()
        assert "rank_before=" in daemon.log()
        daemon.signal(signal.SIGTERM)
        assert daemon.ends() == 0
    after = queue(slurm)
    assert {j: row[1:] for j, row in after.items()} == {j: row[1:] for j, row in before.items()}
    # age moves Slurm's own numbers, of all waiting jobs alike
    moved = {int(after[j][0]) - int(before[j][0]) for j in after if after[j][2] == "PD"}
    assert max(moved) - min(moved) <= 1
    done = rltuned("restore", "--all", config=config)
    assert done.stdout == "nothing to restore\n"


@pytest.mark.parametrize("policy", ["delay", "model:rltune"])
def test_a_cycle_needs_no_extra(slurm: SlurmLab, config: Path, policy: str) -> None:
    # far apart: predictions follow the hour, and what is near the neutral delay is not written
    waiting(slurm, minutes=(3_000, 200, 10))
    blocked = "import sys; sys.modules['torch'] = sys.modules['numba'] = None; "
    program = f"{blocked}from rltuned.cli import main; main()"
    flags = ("--once", "--dry-run", "--policy", policy, "--config", str(config))
    done = ran(sys.executable, "-c", program, "run", *flags)
    assert "proposed=2" in done.stderr or "proposed=3" in done.stderr, done.stderr


def test_live_reorders_and_restore_undoes(slurm: SlurmLab, config: Path, tmp_path: Path) -> None:
    long, middle, short = waiting(slurm)
    urgent = slurm.sbatch(*FULL, "-psla", "--time=100", "--nice=5")
    held = slurm.sbatch(*FULL, "--hold", "--time=10")
    untouched = queue(slurm)[urgent]
    with Daemon(tmp_path, "--live", "--config", str(config)) as daemon:
        daemon.wait_for_log("applied=")
        assert daemon.metric('rltuned_changes_total{kind="site_factor",result="applied"}') >= 2
        assert daemon.metric('rltuned_slurm_command_duration_seconds_count{command="squeue"}') >= 1
        daemon.wait_for(lambda: daemon.metric("rltuned_jobs_owned") >= 2, "jobs are ours")
        assert priority(slurm, short) > priority(slurm, middle) > priority(slurm, long)
        assert queue(slurm)[urgent][1:] == untouched[1:]
        assert priority(slurm, held) == 0
        daemon.signal(signal.SIGTERM)
        assert daemon.ends() == 0
    done = rltuned("restore", "--all", config=config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"job {long}: restored: site factor" in done.stdout
    # multifactor moves them again: all equal but for their age, so the oldest is first again
    assert priority(slurm, long) >= priority(slurm, middle) >= priority(slurm, short)
    assert {queue(slurm)[j][1] for j in (long, middle, short)} == {"5"}
    again = rltuned("restore", "--all", config=config)
    assert (again.returncode, again.stdout) == (0, "nothing to restore\n")


def test_the_job_that_was_moved_up_starts_first(slurm: SlurmLab, config: Path) -> None:
    long, _, short = waiting(slurm)
    done = rltuned("run", "--live", "--once", config=config)
    assert done.returncode == 0, done.stderr
    running = slurm.run("squeue", "-h", "-t", "R", "-w", "p1", "-o", "%A").split()
    slurm.run("scancel", *running)
    slurm.wait_for(lambda: slurm.state(short) == "R", "the short job starts")
    assert slurm.state(long) == "PD"


def test_restore_leaves_changed_and_held_jobs_alone(slurm: SlurmLab, config: Path) -> None:
    long, middle, short = waiting(slurm)
    assert rltuned("run", "--live", "--once", config=config).returncode == 0
    slurm.scontrol("update", f"JobId={short}", "SiteFactor=9")
    slurm.scontrol("hold", str(long))
    done = rltuned("restore", "--all", config=config)
    assert done.returncode == 3, done.stdout
    assert f"job {short}: changed by another user: site factor is 9" in done.stdout
    assert f"job {long}: unknown: Slurm does not show its site factor now" in done.stdout
    assert priority(slurm, long) == 0
    slurm.scontrol("release", str(long))
    slurm.wait_for(
        lambda: str(long) in slurm.run("sprio", "-h", "-o", "%i").split(), "its site factor"
    )
    done = rltuned("restore", "--all", config=config)
    assert done.returncode == 3, "a number that no daemon has seen: the folder may be an older copy"
    assert f"job {long}: restored: site factor" in done.stdout
    assert f"journal.sqlite: {short} (site factor 9)" in done.stderr
    assert rltuned("run", "--once", "--stage", "observe", config=config).returncode == 0
    done = rltuned("restore", "--all", config=config)
    assert done.returncode == 0, done.stdout
    assert factors(slurm) == {long: 0, middle: 0, short: 9}


def test_the_command_that_restore_names_frees_a_held_job_of_its_factor(
    slurm: SlurmLab, config: Path
) -> None:
    long, *_ = waiting(slurm)
    assert rltuned("run", "--live", "--once", config=config).returncode == 0
    assert factors(slurm)[long] != 0
    slurm.scontrol("hold", str(long))
    done = rltuned("restore", "--all", config=config)
    (line,) = (row for row in done.stdout.splitlines() if row.startswith(f"job {long}: unknown"))
    found = sure(re.search(r"scontrol (update JobId=\S+ SiteFactor=-?\d+) restores it", line))
    slurm.scontrol(*found[1].split())
    assert priority(slurm, long) == 0
    slurm.scontrol("release", str(long))
    slurm.wait_for(
        lambda: str(long) in slurm.run("sprio", "-h", "-o", "%i").split(), "its site factor"
    )
    assert factors(slurm)[long] == 0


def test_plan_explain_and_check(slurm: SlurmLab, config: Path) -> None:
    _, _, short = waiting(slurm, nices=(5, 15, 25))
    urgent = slurm.sbatch(*FULL, "-psla", "--time=100")

    def reply(job_id: int) -> dict[str, Any]:
        answer = rltuned("explain", str(job_id), "--json", config=config)
        found: dict[str, Any] = json.loads(answer.stdout)
        return found

    before = queue(slurm)
    done = rltuned("plan", "--json", config=config)
    plan = json.loads(done.stdout)
    jobs = {job["job_id"]: job for job in plan["jobs"]}
    assert jobs[short]["rank_wished"] == 2  # behind the job of sla, whose tier is higher
    assert jobs[urgent]["refusal"] == "sla_partition"
    assert plan["counts"]["changes"] >= 2
    done = rltuned("explain", str(urgent), config=config)
    assert "SLA partition" in done.stdout
    assert "Changes so far: unknown" in done.stdout  # no cycle has made a journal yet
    assert rltuned("run", "--live", "--once", config=config).returncode == 0
    slurm.wait_for(lambda: reply(short)["starts"]["slurm_expects_at"], "backfill plans it")
    near = reply(short)
    assert near["starts"]["slurm_expects_at"] > near["submitted_at"]
    assert [c["new"] for c in near["history"]] == [factors(slurm)[short]]
    assert rltuned("restore", "--all", config=config).returncode == 0
    done = rltuned("check", config=config)
    assert done.returncode == 0, done.stdout
    assert "ok    slurm: the slurmctld on" in done.stdout
    assert queue(slurm).keys() == before.keys()


def test_a_number_that_an_administrator_set_stands(slurm: SlurmLab, config: Path) -> None:
    long, middle, short = waiting(slurm, nices=(5, 15, 25))
    slurm.run("scontrol", "update", f"JobId={long}", "Priority=77777")
    done = rltuned("plan", "--json", config=config)
    refused = {j["job_id"]: j["refusal"] for j in json.loads(done.stdout)["jobs"]}
    assert refused[long] == "fixed"
    done = rltuned("run", "--live", "--once", config=config)
    assert done.returncode == 0, done.stderr
    assert priority(slurm, long) == 77777
    assert priority(slurm, short) > priority(slurm, middle)
    # and one that we wrote to, and that somebody else then took over
    slurm.run("scontrol", "update", f"JobId={short}", "Priority=3")
    done = rltuned("run", "--live", "--once", config=config)
    assert (priority(slurm, short), priority(slurm, long)) == (3, 77777)
    done = rltuned("restore", "--all", config=config)
    assert done.returncode == 0, done.stdout
    assert (priority(slurm, short), priority(slurm, long)) == (3, 77777)


PRIVATE = "nobodysbusiness"


def left(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, and the journal's bodies unpacked."""
    found = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with closing(sqlite3.connect(folder / FILE_NAME)) as db:
        for number, (body,) in enumerate(db.execute("SELECT body FROM snapshots")):
            found[f"snapshot {number}"] = zlib.decompress(body)
    return found


def test_no_name_is_left_and_like_names_have_one_digest(
    slurm: SlurmLab, config: Path, tmp_path: Path
) -> None:
    state, private = tmp_path / "state", slurm.root / PRIVATE
    state.mkdir(mode=0o700)
    private.mkdir(exist_ok=True)
    text = config.read_text().replace(f'state_dir = "{tmp_path}"', f'state_dir = "{state}"')
    config.write_text(text + 'jobs = true\nusers = true\n[ladder]\nstage = "shadow"\n')
    waiting(slurm)
    script = private / f"{PRIVATE}.sh"
    script.write_text("#!/bin/sh\nsleep 600\n")
    words = ("sbatch", "--parsable", "--output=/dev/null", *FULL, f"--chdir={private}", "--time=5")
    ids = [
        int(slurm.run(*words, f"--job-name={PRIVATE}_{n:03}", str(script), PRIVATE)) for n in (1, 2)
    ]
    with Daemon(tmp_path, "--config", str(config)) as daemon:
        daemon.wait_for_log("proposed=", times=3)
        shown = [daemon.get(path) for path in ("/metrics", "/", "/status.json")]
        out = rltuned("status", "--json", config=config)
        log = daemon.log()
    assert any(f"{ids[0]}" in text for text in shown)
    for name, content in left(state).items():
        assert PRIVATE.encode() not in content, name
    assert all(PRIVATE not in text for text in (*shown, log, str(out)))
    last = list(recorded(state / FILE_NAME))[-1].snapshot
    kinds = [job.kinds for job in last.pending if job.job_id in ids]
    assert len(kinds) == 2
    assert kinds[0] == kinds[1]
    assert 0 not in (kinds[0].name, kinds[0].command, kinds[0].work_dir)
    assert (state / SALT_FILE).stat().st_mode & 0o777 == 0o600
    assert "kinds" not in json.loads(shown[2])["jobs"][0]


def test_a_damaged_salt_costs_the_kinds_alone(
    slurm: SlurmLab, config: Path, tmp_path: Path
) -> None:
    waiting(slurm)
    (tmp_path / SALT_FILE).write_bytes(b"short")
    (tmp_path / SALT_FILE).chmod(0o600)
    with Daemon(tmp_path, "--config", str(config)) as daemon:
        daemon.wait_for_log("proposed=", times=2)
        assert "no_kinds" in daemon.log()
    last = list(recorded(tmp_path / FILE_NAME))[-1].snapshot
    assert {job.kinds.name for job in last.pending} == {0}
    assert (tmp_path / SALT_FILE).read_bytes() == b"short"


def test_busy_then_not(slurm: SlurmLab, config: Path, tmp_path: Path) -> None:
    long, _, short = waiting(slurm)
    slurm.run("scontrol", "update", f"JobId={short}", "Name=secretname")
    own = config.read_text()
    config.write_text(own + "[load]\nmax_server_threads = 1\n")  # the one that answers sdiag
    before = queue(slurm).keys()
    with Daemon(tmp_path, "--live", "--config", str(config)) as daemon:
        daemon.wait_for_log("reason=busy", times=2)
        assert "server_threads is" in daemon.log()
        assert daemon.metric('rltuned_cycles_skipped_total{reason="busy"}') >= 2
        assert daemon.metric("rltuned_interval_stretch_ratio") >= 2
        assert daemon.metric('rltuned_slurm_command_duration_seconds_count{command="squeue"}') == 0
        assert priority(slurm, long) >= priority(slurm, short)
        config.write_text(own + "[load]\n")
        daemon.signal(signal.SIGHUP)
        daemon.wait_for_log("applied=")
        daemon.wait_for(
            lambda: daemon.metric("rltuned_interval_stretch_ratio") == 1, "it is calm again"
        )
        page = daemon.get("/metrics")
        assert not any(
            word in page for word in ("secretname", f'job="{short}"', f'job_id="{short}"', "root")
        )
        daemon.signal(signal.SIGTERM)
        assert daemon.ends() == 0
    assert priority(slurm, short) > priority(slurm, long)
    assert "secretname" not in daemon.log()
    assert queue(slurm).keys() == before


def priorities(lab: SlurmLab) -> dict[int, int]:
    rows = lab.run("squeue", "-h", "-t", "PD", "-o", "%A %Q").split("\n")
    return {int(job): int(number) for job, number in (row.split() for row in rows if row)}


def test_a_preview_is_what_the_daemon_writes(slurm: SlurmLab, tmp_path: Path) -> None:
    """No job is known to have ended here, so both go by time limits: in review the daemon took a
    guess of the shipped predictor for a plan, and turned the order round.
    """
    config = write_settings(
        tmp_path / "rltuned.toml",
        slurm.conf,
        scope={"min_age_s": 0.0},
        limits={"hysteresis": 0.0},
        predictor={"enabled": True},
    )
    slurm.runs("-wm1", "-n4", "-t60")
    waiting = [slurm.sbatch("-wm1", "-n4", f"-t{limit}") for limit in (600, 2, 60, 1200, 10)]
    slurm.wait_for(lambda: len(priorities(slurm)) == len(waiting), "the queue")
    preview = json.loads(process("plan", "--json", config=config, code=0).stdout)
    planned = {one["job_id"]: one["planned_priority"] for one in preview["jobs"]}
    assert planned.keys() == set(waiting)
    process("run", "--once", "--live", config=config, code=0)
    written = priorities(slurm)
    assert max(abs(written[job] - planned[job]) for job in waiting) <= 3  # a cycle later
    by_limit = [waiting[at] for at in (1, 4, 2, 0, 3)]
    assert sorted(waiting, key=lambda job: -written[job]) == by_limit
    again = json.loads(process("plan", "--json", config=config, code=0).stdout)
    ranks = {one["job_id"]: (one["rank_now"], one["rank_wished"]) for one in again["jobs"]}
    assert [ranks[job] for job in by_limit] == [(n, n) for n in range(1, 6)]
    process("restore", "--all", config=config, code=0)
