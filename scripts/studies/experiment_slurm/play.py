"""One run: a Slurm of its own, the submissions at their times, rltuned beside it, the books."""

import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from rltuned.sim.trace import TraceJob
from scripts.studies.experiment_slurm import arms
from scripts.studies.experiment_slurm.arms import ARMS, Arm, name_of
from scripts.studies.experiment_slurm.lab import FastLab
from scripts.studies.experiment_slurm.report import Key, Run
from tests.e2e.process import Daemon
from tests.lab import SlurmLab

MEMORY = "/dev/shm"  # noqa: S108 - only for folders of our own in it
PREFIX, OWNER = "rltexp-", "owner"
POLL_S = 4.0
LONGEST_REAL_S = 3 * 3_600.0
BOOKS_S = 60.0
DAEMON_S = 300.0
"""Importing torch takes long on a busy machine."""
SHOWN = (
    "rltuned_cycles_total", "rltuned_cycles_skipped_total", "rltuned_changes_total",
    "rltuned_changes_reverted_total", "rltuned_breaker_opened_total",
    "rltuned_joint_placements_total",
    "rltuned_cycle_duration_seconds_sum", "rltuned_cycle_duration_seconds_count",
)  # fmt: skip
FIELDS = ("JobName", "Submit", "Start", "End", "State", "NodeList", "User")
SACCT = (
    "sacct", "-X", "-D", "-n", "-P", "-a", "-S", "2020-01-01", "-E", "2037-12-31",
    f"--format={','.join(FIELDS)}",
)  # fmt: skip
"""With SLURM_TIME_FORMAT=%s: times in Unix seconds. -D shows every try of a requeued job."""


class BooksError(RuntimeError):
    """The accounting does not show every job once, and completed."""


class PlayError(RuntimeError):
    """The run cannot be used."""


class Entry(NamedTuple):
    """One job in the books; Unix seconds of the faster clock."""

    submit_at: int
    start_at: int
    end_at: int
    state: str
    nodes: str
    user: str


def entries_of(text: str, jobs: Sequence[TraceJob]) -> list[Entry]:
    """sacct's answer in the trace's order. Raises BooksError: a line that does not read, or a job
    that is missing, is there twice, is not of the trace, or did not end as COMPLETED.
    """
    found: dict[str, Entry] = {}
    for line in text.splitlines():
        cells = line.split("|")
        if len(cells) != len(FIELDS):
            raise BooksError(f"sacct: {len(cells)} fields, not {len(FIELDS)}: {line!r}")
        name, submit, start, end, state, nodes, user = cells
        if not (submit.isdigit() and start.isdigit() and end.isdigit()):
            raise BooksError(f"sacct: job {name} has no times: {line!r}")
        if name in found:
            raise BooksError(f"sacct: job {name} is there twice: it was requeued")
        found[name] = Entry(int(submit), int(start), int(end), state, nodes, user)
    names = [name_of(job) for job in jobs]
    absent = [n for n in names if n not in found]
    if absent or len(found) != len(names):
        raise BooksError(
            f"{len(names)} jobs were submitted, {len(found)} are in the books; "
            f"missing: {', '.join(absent[:5]) or 'none'}"
        )
    bad = [f"{n} {found[n].state}" for n in names if found[n].state != "COMPLETED"]
    if bad:
        raise BooksError(f"{len(bad)} jobs did not complete: {', '.join(bad[:5])}")
    return [found[n] for n in names]


@dataclass(frozen=True)
class Pace:
    """speed: seconds of the faster clock per real second; interval_s: real, between cycles."""

    speed: float
    interval_s: float


def play(key: Key, pace: Pace, built: Path, say: Callable[[str], None]) -> Run:
    """Play one arm on one job set to its end. built: folder for what is compiled; say: progress, a
    line at a time. Raises PlayError: the run is void.
    """
    arm = ARMS[key.arm]
    jobs = arms.job_set(arm, key.jobs, key.seed)
    began = time.monotonic()
    with ExitStack() as stack:
        folder = stack.enter_context(_scratch())
        lab = FastLab(
            folder=folder / "slurm", nodes=arm.workload.nodes, partitions=(arms.PARTITION,),
            accounting=True, speed=pace.speed, built=built, settings=arms.slurm_settings(arm),
        )  # fmt: skip
        stack.enter_context(lab)
        for words in arms.accounting_commands():
            lab.run("sacctmgr", "-i", *words)
        daemon = stack.enter_context(_daemon(arm, lab, folder, pace)) if arm.write_mode else None
        first = _submit_all(lab, jobs, pace.speed, daemon, say)
        _wait_until_done(lab, daemon, say)
        entries = _books(lab, jobs)
        counters = (_counters(daemon) if daemon else {}) | {"rpcs": _rpcs(lab)}
        slurm = lab.run("squeue", "--version").strip()
        clock = lab.fast_clock
    late = [e.submit_at - clock.at(first) - j.submit_s for e, j in zip(entries, jobs, strict=True)]
    zero = entries[0].submit_at
    return Run(
        key, [j.job_id for j in jobs],
        [float(e.submit_at - zero) for e in entries], [float(e.start_at - zero) for e in entries],
        [float(e.end_at - zero) for e in entries], [e.nodes for e in entries],
        (round(sum(late) / len(late), 2), round(max(late), 2)), round(time.monotonic() - began, 1),
        pace.speed, pace.interval_s, {**facts(), "slurm": slurm}, counters,
    )  # fmt: skip


def facts() -> dict[str, str]:
    """Commit, version, processors, and how many processes wanted one in the last 15 minutes."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=Path(__file__).parent,
        capture_output=True, text=True, check=False,
    ).stdout.strip()  # fmt: skip
    cores = str(len(os.sched_getaffinity(0)))
    return {
        "commit": commit or "unknown", "rltuned": version("rltuned"),
        "cores": cores, "machine": platform.machine(),
        "load": f"{os.getloadavg()[2]:.1f}",
    }  # fmt: skip


@contextmanager
def _scratch() -> Iterator[Path]:
    """In memory where there is such a place: disks are shared by all arms and slow at syncing."""
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    folder.chmod(0o755)
    (folder / OWNER).write_text(str(os.getpid()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep() -> None:
    """End what a run left behind that was killed outright: its database outlives it."""
    for place in {Path(MEMORY), Path(tempfile.gettempdir())}:
        for owner in place.glob(f"{PREFIX}*/{OWNER}"):
            if not Path("/proc", owner.read_text()).exists():
                SlurmLab(folder=owner.parent / "slurm").stop()
                shutil.rmtree(owner.parent, ignore_errors=True)


@contextmanager
def _daemon(arm: Arm, lab: FastLab, folder: Path, pace: Pace) -> Iterator[Daemon]:
    """rltuned as an administrator starts it, under the same faster clock."""
    home = folder / "rltuned"
    home.mkdir()
    config = home / "rltuned.toml"
    config.write_text(
        arms.daemon_settings(arm, folder=str(home), conf=str(lab.conf), interval_s=pace.interval_s)
    )
    config.chmod(0o600)
    environ = {**lab.fast_clock.environ(slurmd=False), "OMP_NUM_THREADS": "1"}
    with Daemon(home, "--stage", "full", "--config", str(config), environ=environ) as daemon:
        daemon.wait_for(lambda: "/metrics" in daemon.log(), "rltuned is up", DAEMON_S)
        yield daemon
        daemon.signal(signal.SIGTERM)
        if daemon.ends(60) != 0:
            raise PlayError(f"rltuned ended badly: {daemon.log()[-2000:]}")


def _submit_all(
    lab: FastLab, jobs: tuple[TraceJob, ...], speed: float, daemon: Daemon | None,
    say: Callable[[str], None],
) -> float:  # fmt: skip
    """Submit each job when it is due; the real Unix time that counts as the first's."""
    environ = {"PATH": lab.search, "SLURM_CONF": str(lab.conf), "LC_ALL": "C"}
    began, first = time.monotonic(), time.time()
    for number, one in enumerate(arms.submission(job, speed) for job in jobs):
        time.sleep(max(0.0, began + one.due_s - time.monotonic()))
        done = subprocess.run(
            one.argv, env=environ, cwd="/", capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode:
            raise PlayError(f"job {one.job.job_id} was refused: {done.stderr.strip()}")
        _alive(daemon)
        if number % 64 == 0:
            say(f"submitted {number + 1} of {len(jobs)}")
    return first


def _wait_until_done(lab: FastLab, daemon: Daemon | None, say: Callable[[str], None]) -> None:
    end, reported = time.monotonic() + LONGEST_REAL_S, 0.0
    while True:
        states = lab.run("squeue", "-h", "-a", "-o", "%t").split()
        if not states:
            return
        _alive(daemon)
        if time.monotonic() > end:
            raise PlayError(f"{len(states)} jobs are left after {LONGEST_REAL_S:g} s")
        if time.monotonic() - reported > 60:  # noqa: PLR2004 - a line a minute
            reported = time.monotonic()
            say(f"all submitted; {states.count('PD')} pending, {states.count('R')} running")
        time.sleep(POLL_S)


def _alive(daemon: Daemon | None) -> None:
    if daemon is not None and not Path(f"/proc/{daemon.pid}/fd").exists():
        raise PlayError(f"rltuned has ended: {daemon.log()[-2000:]}")


def _books(lab: FastLab, jobs: tuple[TraceJob, ...]) -> list[Entry]:
    """slurmctld hands its records over with some delay: ask until every job is there."""
    end = time.monotonic() + BOOKS_S
    environ = {**lab.environ(), "SLURM_TIME_FORMAT": "%s"}
    while True:
        # slurmdbd is soon too late on a fast clock; what sacct says then is in the log of the run
        answer = subprocess.run(
            SACCT, env=environ, stdout=subprocess.PIPE, text=True, timeout=60, check=False
        ).stdout
        try:
            return entries_of(answer, jobs)
        except BooksError:
            if time.monotonic() > end:
                raise
        time.sleep(POLL_S)


def _counters(daemon: Daemon) -> dict[str, float]:
    """rltuned's own count of what it did."""
    found = {}
    for line in daemon.get("/metrics").splitlines():
        name, _, value = line.rpartition(" ")
        if name.split("{")[0] in SHOWN:
            found[name] = float(value)
    if not found:
        raise PlayError("rltuned shows none of its counters")
    return found


def _rpcs(lab: FastLab) -> float:
    """What root asked slurmctld: rltuned's requests and this script's own squeue."""
    found = re.search(r"^\s+root\s.*?count:(\d+)", lab.run("sdiag"), re.MULTILINE)
    if found is None:
        raise PlayError("sdiag counts no request of root")
    return float(found[1])


def report(key: Key, words: str) -> None:
    """Progress of a run on standard error."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {key.name}: {words}\n")
    sys.stderr.flush()
