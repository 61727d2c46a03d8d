"""What Slurm's level Operator lets rltuned do, by a real slurmdbd, and what a plain user sees.

docs/security.md says what is measured here; the test holds the two together.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rltuned.cli.asking import answered
from rltuned.settings import load
from tests.accounting import OPERATOR, OWNER, PLAIN, as_user
from tests.configs import write_settings
from tests.lab import SEARCH, SlurmLab
from tests.needs import skip_or_fail
from tests.programs import ran

pytestmark = pytest.mark.slurm

FULL = ("--gres=gpu:p100:4", "-n16", "-N1")
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text()


@dataclass
class Queue:
    """Two jobs of OWNER run, three wait; one of PLAIN waits too."""

    lab: SlurmLab
    running: list[int]
    waiting: list[int]
    of_plain: int

    def priority(self, job: int) -> int:
        return int(self.lab.run("squeue", "-h", "-o", "%Q", "-j", str(job)))

    def order(self) -> list[int]:
        """The waiting jobs of OWNER, highest priority first."""
        return sorted(self.waiting, key=self.priority, reverse=True)


def sbatch(lab: SlurmLab, user: str, *options: str) -> int:
    words = ("sbatch", "--parsable", "--output=/dev/null", "--chdir=/", *options)
    return int(lab.run(*as_user(user), *words, "--wrap=sleep 600").split(";")[0])


@pytest.fixture
def jobs(accounts: SlurmLab) -> Queue:
    running = [sbatch(accounts, OWNER, *FULL, "--time=200") for _ in range(2)]
    accounts.wait_for(lambda: all(accounts.state(j) == "R" for j in running), "two run")
    waiting = [
        sbatch(accounts, OWNER, *FULL, f"--time={m}", "--nice=5", "--exclusive", "-Jsecretname")
        for m in (300, 200, 100)
    ]
    return Queue(accounts, running, waiting, sbatch(accounts, PLAIN, *FULL, "--time=20"))


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user may look into; pytest keeps its own for root."""
    with tempfile.TemporaryDirectory(prefix="rltrights-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def config(accounts: SlurmLab, place: Path) -> Callable[..., Path]:
    """Writes the settings of a user, whose state folder is its own."""

    def write(user: str, write_mode: str = "priority") -> Path:
        state = place / user
        runtime = place / f"run-{user}"  # as /run/rltuned, which all users reach
        for folder, mode in ((state, 0o700), (runtime, 0o755)):
            folder.mkdir(mode=mode, exist_ok=True)
            folder.chmod(mode)
            shutil.chown(folder, user, user)
        path = write_settings(
            place / f"{user}.toml",
            accounts.conf,
            state,
            daemon={"pause_file": f"{runtime}/PAUSE"},
            limits={"write_mode": write_mode},
        )
        path.chmod(0o644)
        return path

    return write


def rltuned(user: str, config: Path, *args: str) -> "subprocess.CompletedProcess[str]":
    argv = [*as_user(user), sys.executable, "-m", "rltuned", *args, "--config", str(config)]
    return ran(
        *argv,
        code=None,
        cwd="/",
        env={"PATH": SEARCH, "PYTHONDONTWRITEBYTECODE": "1"},
    )


@pytest.mark.parametrize("write_mode", ["priority", "site_factor"])
def test_an_operator_can_do_all_that_is_needed(
    jobs: Queue, config: Callable[..., Path], write_mode: str
) -> None:
    path = config(OPERATOR, write_mode)
    checked = rltuned(OPERATOR, path, "check")
    assert checked.returncode == 0, checked.stdout
    assert f"{OPERATOR} (5) is Operator" in checked.stdout
    assert jobs.order() == jobs.waiting
    done = rltuned(OPERATOR, path, "run", "--live", "--once")
    assert done.returncode == 0, done.stderr
    assert jobs.order() == jobs.waiting[::-1]
    given = rltuned(OPERATOR, path, "restore", "--all")
    assert given.returncode == 0, given.stdout
    # they differ by age alone, which an update counts again for one job, Slurm for all in a minute
    jobs.lab.wait_for(lambda: jobs.order() == jobs.waiting, "Slurm's own order")
    nice = jobs.lab.run("squeue", "-h", "-O", "Nice:|", "-j", str(jobs.waiting[0])).strip(" |\n")
    assert nice == "5"


def test_rights_that_were_lost_for_a_moment_cost_no_job_its_original(
    jobs: Queue, config: Callable[..., Path]
) -> None:
    """In review every number was added again: PrivateData=jobs had hidden the jobs from a look."""
    lab, path = jobs.lab, config(OPERATOR, "site_factor")

    def numbers() -> dict[int, int]:
        lines = lab.run("sprio", "-h", "-o", "%i %S").splitlines()
        return {int(job): int(number) for job, number in map(str.split, lines)}

    def level(name: str, *, sees: bool) -> None:
        lab.run("sacctmgr", "-i", "modify", "user", OPERATOR, "set", f"adminlevel={name}")
        ask = (*as_user(OPERATOR), "squeue", "-h", "-o", "%i")
        lab.wait_for(lambda: bool(lab.run(*ask).split()) is sees, f"the level {name}")

    assert rltuned(OPERATOR, path, "run", "--live", "--once").returncode == 0
    written = numbers()
    assert any(written.values())
    lab.wait_for(lambda: "Jobs pending:   4" in lab.run("sdiag"), "slurmctld has counted them")
    level("None", sees=False)
    try:
        rltuned(OPERATOR, path, "run", "--live", "--cycles", "2", "--interval", "1")
        left = rltuned(OPERATOR, path, "restore", "--all", "--patience", "0")
        assert left.returncode == 3, left.stdout + left.stderr
        assert "and squeue shows 0" in left.stdout
    finally:
        level("Operator", sees=True)
    rltuned(OPERATOR, path, "run", "--live", "--cycles", "2", "--interval", "1")
    after = numbers()
    assert all(abs(after[job] - number) < abs(number) for job, number in written.items() if number)
    given = rltuned(OPERATOR, path, "restore", "--all")
    assert given.returncode == 0, given.stdout + given.stderr
    assert not any(numbers().values())


MAY = {
    "set a priority, a site factor, a nice": "scontrol update JobId={wait} Priority=7",
    "set OverSubscribe": "scontrol update JobId={wait} OverSubscribe=yes",
    "release a job": "scontrol release {wait}",
    "lengthen a time limit": "scontrol update JobId={wait} TimeLimit=500",
    "move a job to another partition": "scontrol update JobId={wait} Partition=sla",
    "hold a job": "scontrol hold {last}",
    "cancel a job": "scancel {wait}",
    "requeue a running job": "scontrol requeue {run}",
    "reserve nodes": "scontrol create reservation ReservationName=x StartTime=now+1hour "
    "Duration=10 Users=root Nodes=m1",
    "reset the statistics of sdiag": "sdiag -r",
    "add an account": "sacctmgr -i add account spare",
}
OF_JOBS = [act for act, words in MAY.items() if "JobId=" in words or "scontrol release" in words]
"""Of others' jobs: a plain user may do none of it."""
MAY_NOT = {
    "set an AdminComment": "scontrol update JobId={last} AdminComment=x",
    "change a partition": "scontrol update PartitionName=gpu State=DOWN",
    "drain a node": "scontrol update NodeName=m1 State=DRAIN Reason=x",
    "reconfigure slurmctld": "scontrol reconfigure",
    "change slurmctld's log level": "scontrol setdebug info",
    "stop slurmctld": "scontrol shutdown",
    "submit as another user": f"sbatch --uid={OWNER} --wrap=id",
    "change an admin level": f"sacctmgr -i modify user {PLAIN} set adminlevel=operator",
    "add a QOS": "sacctmgr -i add qos spare",
}


def test_what_an_operator_may_do_and_what_not(jobs: Queue) -> None:
    lab = jobs.lab
    places = {"wait": jobs.waiting[0], "last": jobs.waiting[2], "run": jobs.running[0]}

    def tried(words: str, user: str = OPERATOR) -> bool:
        argv = [*as_user(user), *words.format(**places).split()]
        done = ran(*argv, code=None, env=lab.environ(), cwd="/")
        return done.returncode == 0

    try:
        assert not [act for act in OF_JOBS if tried(MAY[act], PLAIN)]
        assert {act: tried(words) for act, words in MAY.items()} == dict.fromkeys(MAY, True)
        assert {a: tried(words) for a, words in MAY_NOT.items()} == dict.fromkeys(MAY_NOT, False)
        assert lab.controller_up()
    finally:
        lab.run("scontrol", "delete", "ReservationName=x", check=False)
        lab.run("sacctmgr", "-i", "delete", "account", "spare", check=False)
    table = PAGE.split("## What Operator may do")[1].split("\n## ")[0]
    acts: dict[str, list[str]] = {"": [], " also": [], " not": []}
    for kind, found in re.findall(r"^- \*\*It may(| also| not)\*\*: ([^.]+)\.$", table, re.M):
        acts[kind] += " ".join(found.split()).split("; ")
    yes, no = sorted(acts[""] + acts[" also"]), sorted(acts[" not"])
    assert (yes, no) == (sorted(MAY), sorted(MAY_NOT))


def test_a_plain_user_who_goes_live_changes_nothing(
    jobs: Queue, config: Callable[..., Path]
) -> None:
    before = [jobs.priority(j) for j in jobs.waiting]
    done = rltuned(PLAIN, config(PLAIN), "run", "--live", "--once")
    assert "Traceback" not in done.stderr
    assert (
        max(abs(a - b) for a, b in zip(before, map(jobs.priority, jobs.waiting), strict=True)) < 3
    )


def test_explain_shows_a_user_only_what_squeue_shows_them(
    jobs: Queue, config: Callable[..., Path]
) -> None:
    mine, others = jobs.of_plain, jobs.waiting[0]
    path = config(PLAIN)
    seen = jobs.lab.run(*as_user(PLAIN), "squeue", "-h", "-a", "-o", "%A").split()
    assert seen == [str(mine)]
    own = json.loads(rltuned(PLAIN, path, "explain", str(mine), "--json").stdout)
    assert (own["job_id"], own["ranked_jobs"]) == (mine, 1)
    hidden = rltuned(PLAIN, path, "explain", str(others))
    assert hidden.returncode == 1
    assert f"shows no pending or running job {others}" in hidden.stderr
    assert hidden.stdout == ""
    running = rltuned(PLAIN, path, "explain", str(jobs.running[0]))
    assert running.returncode == 1
    planned = json.loads(rltuned(PLAIN, path, "plan", "--json").stdout)
    assert [j["job_id"] for j in planned["jobs"]] == [mine]
    # an operator sees all, as in squeue
    whole = rltuned(OPERATOR, config(OPERATOR), "explain", str(others), "--json")
    assert whole.returncode == 0, whole.stderr
    assert json.loads(whole.stdout)["job_id"] == others


def test_rpcs_per_cycle(jobs: Queue, config: Callable[..., Path]) -> None:
    """docs/operations.md gives these numbers."""
    path = config(OPERATOR)

    def by_user() -> int:
        text = jobs.lab.run("sdiag").split("statistics by user")[1]
        found = re.search(rf"^\s*{OPERATOR}\s.*?count:(\d+)", text, re.MULTILINE)
        return int(found[1]) if found else 0

    def by_type() -> dict[str, int]:
        text = jobs.lab.run("sdiag").split("by message type")[1].split("\n\n")[0]
        return {m[1]: int(m[2]) for m in re.finditer(r"(REQUEST_\w+).*?count:(\d+)", text)}

    def cost(*args: str) -> int:
        before = by_user()
        done = rltuned(OPERATOR, path, "run", *args)
        assert done.returncode == 0, done.stderr
        return by_user() - before

    once, six = cost("--dry-run", "--cycles", "1"), cost("--dry-run", "--cycles", "6")
    assert six - once == 5 * 7, "seven RPCs a cycle"
    # 26.05 is also asked for its partitions: sinfo does not show which are exclusive
    of_site = 5 if "Exclusive=" in jobs.lab.scontrol("show", "partitions") else 4
    assert once == 7 + of_site, "and four or five for the site, every five minutes"
    types = by_type()
    changed = cost("--live", "--cycles", "1")
    after = by_type()
    sent = after["REQUEST_UPDATE_JOB"] - types.get("REQUEST_UPDATE_JOB", 0)
    assert sent >= 2
    assert changed == once + sent + 2, "one for each change, and two for the look back"
    assert rltuned(OPERATOR, path, "restore", "--all").returncode == 0


# -- A user who may not read the journal ----------------------------------------------------------


def without_rights(config: Path, *args: str) -> "subprocess.CompletedProcess[str]":
    """As PLAIN, who may read no file of others."""
    who = ("setpriv", f"--reuid={PLAIN}", f"--regid={PLAIN}", "--clear-groups")
    command = [*who, sys.executable, "-m", "rltuned", *args, "--config", str(config)]
    env = {"PATH": SEARCH, "PYTHONDONTWRITEBYTECODE": "1"}
    done = ran(*command, code=None, cwd="/", env=env)
    # as Python says it of a package, and of a module in it; and setpriv of Python itself
    unreachable = ("No module named rltuned\n", "No module named 'rltuned", "failed to execute")
    if any(why in done.stderr for why in unreachable):
        skip_or_fail("the checkout lies where users may not read")
    return done


def test_a_user_gets_the_numbers_that_the_daemon_holds(
    jobs: Queue, config: Callable[..., Path]
) -> None:
    """Without the journal its own numbers look like Slurm's, and the delay was added once more."""
    path = config(OPERATOR, "site_factor")
    mine, other = str(jobs.of_plain), str(jobs.waiting[0])
    daemon = subprocess.Popen(
        [*as_user(OPERATOR), sys.executable, "-m", "rltuned", "run", "--live", "--interval", "2",
         "--config", str(path)],
        cwd="/", env={"PATH": SEARCH}, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        jobs.lab.wait_for(lambda: "planned_priority" in job_of(path, mine), "a decision")
        jobs.lab.wait_for(lambda: job_of(path, mine)["changed_by_rltuned"], "a number")
        jobs.lab.wait_for(lambda: job_of(path, mine)["expected_start"], "a forecast")
        told = json.loads(without_rights(path, "explain", mine, "--json").stdout)
        root = json.loads(rltuned(OPERATOR, path, "explain", mine, "--json").stdout)
        assert abs(told["planned_priority"] - jobs.priority(jobs.of_plain)) <= 2
        for key in ("changed_by_rltuned", "rank_after", "ranked_jobs", "expected_start"):
            assert told[key] == root[key], key
        assert told["planned_priority"] == root["planned_priority"]
        words = without_rights(path, "explain", mine)
        assert "expected to start" in words.stdout.splitlines()[0]
        assert re.search(r"sets its priority to \d+\.|Its priority stays \d+", words.stdout)
        assert not words.stderr
        status = without_rights(path, "status").stdout
        assert "journal: private" in status
        assert "last cycle: " in status
        others = without_rights(path, "explain", other)
        assert "it shows jobs to their own users over its socket" in others.stderr
        assert (others.returncode, others.stdout) == (1, "")  # PrivateData hides it, too
        plan = json.loads(without_rights(path, "plan", "--json").stdout)
        assert [one["job_id"] for one in plan["jobs"]] == [jobs.of_plain]
        short = ("explain", mine, "--limit", "0:10:00", "--json")
        told, again = (json.loads(without_rights(path, *short).stdout) for _ in range(2))
        assert (again["what_if"], again["expected_start"] is None) == (None, False)
        assert "each user may ask every 10 s" in again["what_if_why"]
        told = told["what_if"]
        root = json.loads(rltuned(OPERATOR, path, *short).stdout)["what_if"]
        assert (told["limit_s"], told["line_jobs"]) == (600.0, 4)
        assert told["line_place"] == root["line_place"]
        # of two cycles, some seconds apart
        assert abs(told["expected_start"]["median_s"] - root["expected_start"]["median_s"]) <= 90
        others = without_rights(path, "explain", other, "--gpus", "1")
        assert "it shows jobs to their own users over its socket" in others.stderr
        assert (others.returncode, others.stdout) == (1, "")
    finally:
        daemon.terminate()
        assert daemon.wait(30) == 0
    for asked in (["explain", mine], ["explain", mine, "-p", "sjf"], ["plan"]):
        alone = without_rights(path, *asked)
        assert (alone.returncode, alone.stdout) == (1, "")
        assert "the journal is private" in alone.stderr
    assert without_rights(path, "explain", mine, "--limit", "soon").returncode == 2


def job_of(config: Path, name: str) -> dict[str, Any]:
    """What the daemon answers to root."""
    return answered(load(config).settings, f"/job.json?job={name}", "job") or {}
