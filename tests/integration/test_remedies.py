"""Every remedy that `rltuned check` names, tried from the state in which it is printed.

Each test brings a real cluster, a machine or the settings into the state, reads the remedy, follows
it, and sees that it is printed no more. What this machine's Slurm cannot be brought to (another
release, a clock that is off, a plugin that is not installed) is put in the way of its scontrol by
a small program. `test_every_remedy_has_a_trial` fails when a remedy has none.
"""

import json
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rltuned.cli import app, check
from rltuned.daemon import breaker
from rltuned.errors import SolverError
from rltuned.journal.journal import Journal
from tests.accounting import OWNER, PLAIN, as_user
from tests.clusters import OPERATORS, cluster
from tests.lab import SEARCH, SlurmLab
from tests.programs import executable, ran
from tests.remedies import remedies, says

pytestmark = pytest.mark.slurm

Lines = Mapping[str, str | None]
"""Of slurm.conf, by key; None = none."""
Keys = Mapping[str, object]
"""Settings of ours: `table.key` -> value."""
TRIED: set[str] = set()
TOOLS = ("squeue", "sinfo", "sprio", "scontrol", "sdiag", "sacctmgr", "sacct", "sshare")


def tries(*texts: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Marks the test that tries these remedies."""
    TRIED.update(texts)
    return lambda test: test


@dataclass
class Site:
    """A cluster, the settings beside it, and what `rltuned check` says of both."""

    lab: SlurmLab
    folder: Path
    plain: str = ""
    keys: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.plain = self.lab.conf.read_text()

    @property
    def config(self) -> Path:
        return self.folder / "rltuned.toml"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def reset(self) -> None:
        """As at first."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o755)
        self.state.mkdir(mode=0o700)
        self.settings({})
        self.slurm({})

    def slurm(self, lines: Lines) -> None:
        """Have slurmctld start with these lines changed."""
        text = self.plain
        for key, value in lines.items():
            text = re.sub(rf"(?m)^{re.escape(key)}=.*\n", "", text)
            text = text if value is None else f"{key}={value}\n{text}"
        if text != self.lab.conf.read_text():
            self.lab.stop_controller()
            self.lab.conf.write_text(text)
            self.lab.start_controller()

    def settings(self, keys: Keys) -> None:
        """Write our settings: those of every test, and these."""
        usual = {
            "daemon.state_dir": str(self.state),
            "daemon.pause_file": str(self.state / "PAUSE"),
            "policy.name": "sjf",
            "slurm.conf": str(self.lab.conf),
            "http.port": 0,
        }
        self.keys = {**usual, **keys}
        tables: dict[str, list[str]] = {}
        for name, value in self.keys.items():
            table, _, key = name.partition(".")
            if value is not None:
                tables.setdefault(table, []).append(f"{key} = {json.dumps(value)}")
        rows = [line for table, lines in tables.items() for line in (f"[{table}]", *lines)]
        self.config.write_text("\n".join(rows) + "\n")
        self.config.chmod(0o644)

    def tools(self, *, without: str = "", **scripts: str) -> str:
        """A folder of Slurm's programs, some of them missing or behind a script.

        scripts: the script's text; {} = the real program.
        """
        place = self.folder / "bin"
        place.mkdir(mode=0o755, exist_ok=True)
        for name in TOOLS:
            real = shutil.which(name, path=self.lab.search)
            (place / name).unlink(missing_ok=True)
            if real is None or name == without:
                continue
            script = scripts.get(name, 'exec {} "$@"').replace("{}", real)
            executable(place / name, f"#!/bin/sh\n{script}\n")
        return str(place)

    def check(self, user: str = "") -> list[dict[str, str]]:
        """What is not in order."""
        words = ["check", "--json", "--config", str(self.config)]
        if user:
            done = ran(
                *as_user(user),
                sys.executable,
                "-m",
                "rltuned",
                *words,
                code=None,
                cwd="/",
                env={"PATH": self.lab.search, "PYTHONDONTWRITEBYTECODE": "1"},
            )
            out, wrong = done.stdout, done.stderr
        else:
            result = CliRunner().invoke(app, words)
            out, wrong = result.stdout, f"{result.stderr} {result.exception!r}"
        assert out.startswith("["), wrong
        rows: list[dict[str, str]] = json.loads(out)
        return [row for row in rows if row["status"] != "ok"]

    def prints(self, remedy: str, user: str = "") -> str:
        """The remedy as it is printed now; empty = it is not."""
        found = [row["remedy"] for row in self.check(user) if says(remedy, row["remedy"])]
        return found[0] if found else ""

    def rltuned(self, *words: str) -> str:
        """Another command of ours, which succeeds."""
        done = CliRunner().invoke(app, [*words, "--config", str(self.config)])
        assert done.exit_code == 0, done.output
        return done.stdout


@pytest.fixture(scope="module")
def labs() -> Iterator[Callable[[str], Site]]:
    """Clusters by kind, each started when it is needed first."""
    made: dict[str, Site] = {}
    with ExitStack() as stack:

        def get(kind: str) -> Site:
            if kind not in made:
                lab = stack.enter_context(_lab(kind))
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rltfix-")))
                folder.chmod(0o755)
                made[kind] = Site(lab, folder / "site")
            return made[kind]

        yield get


def _lab(kind: str) -> AbstractContextManager[SlurmLab]:
    if kind == "slurmuser":
        return cluster(slurm_user=OWNER)
    if kind == "accounts":
        return cluster("add account lab", OPERATORS, accounting=True)
    return cluster(backup=kind == "backup")


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", SEARCH)


@pytest.fixture
def site(labs: Callable[[str], Site]) -> Site:
    """A cluster without slurmdbd, as at first."""
    found = labs("ordinary")
    found.reset()
    return found


@pytest.fixture
def accounted(labs: Callable[[str], Site]) -> Site:
    """A cluster with slurmdbd, as at first."""
    found = labs("accounts")
    found.reset()
    return found


@dataclass(frozen=True)
class Trial:
    """A state of slurm.conf, of our settings and of what scontrol says, and what is changed.

    scontrol: what `sed` does to its answers. number: takes what the remedy names into `follow`.
    """

    remedy: str
    lines: Lines = field(default_factory=dict)
    keys: Keys = field(default_factory=dict)
    scontrol: str = ""
    follow: Lines = field(default_factory=dict)
    follow_keys: Keys = field(default_factory=dict)


NO_ROOM = (
    "set PriorityWeightPartition={} in slurm.conf, with PriorityJobFactor=1 or more in every "
    "partition; or lower [order] max_delay_s"
)
MULTIFACTOR = {"PriorityType": "priority/multifactor"}
BASIC = {"PriorityType": "priority/basic"}
BUILTIN = {"SchedulerType": "sched/builtin"}
BACKFILL = {"SchedulerType": "sched/backfill"}
PLUGIN = r"s#^\(PrioritySiteFactorPlugin *= \).*#\1site_factor/example#"
RELEASE = r"s#^\(SLURM_VERSION *= \).*#\1{}#"
FREE = "bf_continue,bf_min_prio_reserve=100"
ORDINARY = [
    Trial(
        "correct what they name in the slurm.conf of this host",
        {"ControlMachine": "gone"},
        follow={"ControlMachine": None},
    ),
    Trial("set PriorityType=priority/multifactor", BASIC, follow=MULTIFACTOR),
    Trial(
        "set PriorityType=priority/multifactor or priority/basic",
        scontrol="s#priority/multifactor#priority/ours#",
    ),
    Trial("use write_mode = priority, or unset PrioritySiteFactorPlugin", scontrol=PLUGIN),
    Trial(
        "take INCR_ONLY out of PriorityFlags",
        {"PriorityFlags": "INCR_ONLY"},
        follow={"PriorityFlags": None},
    ),
    Trial("set SchedulerType=sched/backfill", BUILTIN, follow=BACKFILL),
    Trial(
        "add bf_continue to SchedulerParameters",
        {"SchedulerParameters": "bf_interval=5"},
        follow={"SchedulerParameters": "bf_interval=5,bf_continue"},
    ),
    Trial(
        "unset bf_min_prio_reserve, or take the jobs that need it out of [scope]",
        {"SchedulerParameters": FREE},
        follow={"SchedulerParameters": "bf_continue"},
    ),
    Trial(
        "unset bf_max_job_user, or raise it above 10 in SchedulerParameters",
        {"SchedulerParameters": "bf_continue,bf_max_job_user=10"},
        follow={"SchedulerParameters": "bf_continue"},
    ),
    Trial(
        "unset bf_window, or give it the minutes of the longest time limit",
        {"SchedulerParameters": "bf_continue,bf_window=60"},
        follow={"SchedulerParameters": "bf_continue,bf_window=1440"},
    ),
    Trial(
        "set DefMemPerCPU (or DefMemPerGPU) in slurm.conf",
        {"DefMemPerCPU": None},
        follow={"DefMemPerCPU": "500"},
    ),
    Trial(
        "set DefMemPerCPU (or DefMemPerGPU) in slurm.conf",
        {"DefMemPerCPU": None},
        follow={"DefMemPerGPU": "4000"},
    ),
    Trial(
        "raise rl_bucket_size, or lower [limits] max_changes to fit",
        {"SlurmctldParameters": "rl_enable,rl_bucket_size=30"},
        scontrol=RELEASE.format("24.11.5"),
        follow={"SlurmctldParameters": "rl_enable,rl_bucket_size=600"},
    ),
    Trial(
        "raise rl_bucket_size, or lower [limits] max_changes to fit",
        {"SlurmctldParameters": "rl_enable,rl_bucket_size=30"},
        scontrol=RELEASE.format("24.11.5"),
        follow_keys={"limits.max_changes": 30},
    ),
    Trial("report this", scontrol=RELEASE.format("odd")),
    Trial("compare the releases", scontrol="s#^slurm-wlm .*#odd#"),
    Trial("synchronise both clocks (chrony, ntpd)", scontrol="1s#[0-9]*$#1700000000#"),
    Trial("compare by hand", scontrol="1s#[0-9]*$#unknown#"),
    Trial(
        "install the commands of slurmctld's release here, or set [slurm] bin_dir",
        scontrol="s#^slurm-wlm .*#slurm-wlm 99.05.1#",
    ),
    Trial(
        "install the commands of slurmctld's release here, or set [slurm] bin_dir",
        scontrol="s#^slurm-wlm .*#slurm-wlm 21.08.1#",
    ),
    Trial(
        "set DefaultTime or MaxTime for the partition in slurm.conf",
        {"PartitionName": "gpu Nodes=ALL Default=YES"},
        follow={"PartitionName": "gpu Nodes=ALL Default=YES DefaultTime=60"},
    ),
    Trial(
        "choose another [policy] name",
        keys={"policy.name": "model:nowhere"},
        follow_keys={"policy.name": "sjf"},
    ),
    Trial(
        "install the models, or choose a [policy] name",
        keys={"policy.name": "model:rltune", "policy.models_dir": "/no/models"},
        follow_keys={"policy.name": "sjf"},
    ),
    Trial(
        "write_mode = auto compares delays alone",
        keys={"ladder.stage": "canary", "limits.write_mode": "priority"},
        follow_keys={"limits.write_mode": "auto"},
    ),
    Trial(
        "set PriorityType=priority/multifactor, or write_mode = auto",
        BASIC,
        {"limits.write_mode": "site_factor"},
        follow_keys={"limits.write_mode": "auto"},
    ),
    Trial(
        "set PriorityType=priority/multifactor, or write_mode = auto",
        BASIC,
        {"limits.write_mode": "site_factor"},
        follow=MULTIFACTOR,
    ),
    Trial(
        "set PriorityType=priority/multifactor, or take SLA partitions and exclusions out of "
        "[scope]",
        BASIC,
        {"scope.sla_partitions": ["sla"]},
        follow=MULTIFACTOR,
    ),
    Trial(
        "set PriorityType=priority/multifactor, or take SLA partitions and exclusions out of "
        "[scope]",
        BASIC,
        {"scope.sla_partitions": ["sla"]},
        follow_keys={"scope.sla_partitions": []},
    ),
    Trial(
        "correct the name in {}; partitions with nodes: {}",
        keys={"scope.sla_partitions": ["slow"]},
        follow_keys={"scope.sla_partitions": ["sla"]},
    ),
    Trial(
        "set write_mode = auto",
        keys={"limits.write_mode": "priority"},
        follow_keys={"limits.write_mode": "auto"},
    ),
    Trial(
        "if that is usual here, raise the bound under [load]: at 100 % cycles are skipped",
        keys={"load.max_server_threads": 1},
        follow_keys={"load.max_server_threads": 100},
    ),
    Trial(
        "lower journal.max_mib, or move daemon.state_dir: a full disk ends all writing",
        keys={"journal.max_mib": 1_048_576},
        follow_keys={"journal.max_mib": 50},
    ),
]
ACCOUNTED = [
    Trial(
        "unset PrioritySiteFactorPlugin, or set write_mode = priority",
        scontrol=PLUGIN,
        follow_keys={"limits.write_mode": "priority"},
    ),
    Trial("unset PrioritySiteFactorPlugin, or set write_mode = priority", scontrol=PLUGIN),
    Trial(
        "set PriorityWeightAge to {} or more",
        {"PriorityWeightAge": "0"},
        follow={"PriorityWeightAge": "{}"},
    ),
    Trial(
        "multiply all PriorityWeight* by {} or more",
        {"PriorityWeightAge": "10"},
        follow={"PriorityWeightAge": "{}0"},
    ),
    Trial(
        "set PriorityMaxAge to twice [order] max_delay_s or more, and scale PriorityWeightAge with "
        "it; or lower max_delay_s",
        follow={"PriorityMaxAge": "14-0", "PriorityWeightAge": "140000"},
    ),
    Trial(
        "set PriorityMaxAge to twice [order] max_delay_s or more, and scale PriorityWeightAge with "
        "it; or lower max_delay_s",
        follow_keys={"order.max_delay_s": 43_200.0},
    ),
    Trial(
        "raise PriorityWeightPartition above {}, or lower max_delay_s",
        follow={"PriorityWeightPartition": "{}9"},
    ),
    Trial(NO_ROOM, follow={"PriorityWeightPartition": "{}"}),
    Trial(NO_ROOM, follow_keys={"order.max_delay_s": 100.0}),
    Trial(
        "bring all PriorityJobFactor nearer to each other, or lower [order] max_delay_s",
        {"PriorityWeightAge": "100000000"},
        follow={"PartitionName": "gpu Nodes=ALL Default=YES MaxTime=UNLIMITED DefaultTime=60"},
    ),
]


def follow(site: Site, trial: Trial) -> None:
    site.slurm(trial.lines)
    keys = dict(trial.keys)
    if trial.scontrol:
        keys["slurm.bin_dir"] = site.tools(scontrol=f"{{}} \"$@\" | sed -e '{trial.scontrol}'")
    site.settings(keys)
    out = site.prints(trial.remedy)
    assert out, site.check()
    number = re.search(r"(?:to |by |above |PriorityWeightPartition=)(\d+)", out)
    named = number[1] if number else ""
    changed = {k: v and v.replace("{}", named) for k, v in trial.follow.items()}
    site.slurm({**trial.lines, **changed})
    if not (trial.follow_keys or trial.follow):
        keys.pop("slurm.bin_dir", None)
    site.settings({**keys, **trial.follow_keys})
    assert not site.prints(trial.remedy), site.check()


@tries(*(trial.remedy for trial in ORDINARY))
@pytest.mark.parametrize("trial", ORDINARY, ids=lambda trial: trial.remedy[:40])
def test_a_remedy_that_is_followed_ends_the_state_that_it_is_reported_in(
    site: Site, trial: Trial
) -> None:
    follow(site, trial)


@tries(*(trial.remedy for trial in ACCOUNTED))
@pytest.mark.parametrize("trial", ACCOUNTED, ids=lambda trial: trial.remedy[:40])
def test_so_does_one_of_a_site_with_slurmdbd(accounted: Site, trial: Trial) -> None:
    follow(accounted, trial)


# -- what is not a line of slurm.conf or of our settings -----------------------------------------


@tries("start slurmctld, or set [slurm] bin_dir and conf in rltuned.toml")
def test_slurmctld_is_started_or_the_right_slurm_conf_named(site: Site) -> None:
    remedy = "start slurmctld, or set [slurm] bin_dir and conf in rltuned.toml"
    site.lab.stop_controller()
    try:
        assert site.prints(remedy)
    finally:
        site.lab.start_controller()
    assert not site.prints(remedy)
    other = site.folder / "slurm.conf"
    other.write_text(re.sub("(?m)^(SlurmctldPort)=.*", r"\1=1", site.plain))
    site.settings({"slurm.conf": str(other)})
    assert site.prints(remedy)
    site.settings({})
    assert not site.prints(remedy)


@tries(
    "install Slurm's commands (Debian: slurm-client), or set [slurm] bin_dir",
    "install Slurm's commands whole (Debian: slurm-client)",
    "without sdiag rltuned does not back off by load",
    "run squeue, sinfo and sprio by hand as this user; see [slurm] bin_dir, timeout_s",
)
@pytest.mark.parametrize(
    ("remedy", "without", "scripts"),
    [
        ("install Slurm's commands (Debian: slurm-client), or set [slurm] bin_dir", "squeue", {}),
        ("install Slurm's commands whole (Debian: slurm-client)", "sacctmgr", {}),
        ("without sdiag rltuned does not back off by load", "sdiag", {}),
        (
            "run squeue, sinfo and sprio by hand as this user; see [slurm] bin_dir, timeout_s",
            "",
            {"sinfo": "exit 3"},
        ),
    ],
)
def test_programs_that_are_missing_or_fail(
    accounted: Site, remedy: str, without: str, scripts: dict[str, str]
) -> None:
    place = accounted.tools(without=without, **scripts)
    accounted.settings({"slurm.bin_dir": place})
    assert accounted.prints(remedy), accounted.check()
    if scripts:  # by hand it fails as well
        assert subprocess.run([f"{place}/sinfo"], check=False, timeout=300).returncode == 3
    accounted.tools()
    assert not accounted.prints(remedy)


@tries(
    "build the pyslurm of slurmctld's release for the interpreter slurm.pyslurm_python "
    "(docs/compatibility.md), or take slurm.pyslurm_python out",
    "see the check of the queue",
)
def test_a_pyslurm_that_cannot_read(site: Site) -> None:
    remedy = (
        "build the pyslurm of slurmctld's release for the interpreter slurm.pyslurm_python "
        "(docs/compatibility.md), or take slurm.pyslurm_python out"
    )
    python = site.folder / "python"
    keys = {"slurm.pyslurm_python": str(python)}
    site.settings(keys)
    assert site.prints(remedy)
    year, month = re.findall(r"\d+", site.lab.run("squeue", "--version"))[:2]
    release = f"{year}.{int(month)}.0"
    error = json.dumps({"protocol": 2, "error": "rpc", "detail": "away", "pyslurm": release})
    executable(python, f"#!/bin/sh\necho '{error}'\n")
    assert site.prints("see the check of the queue")
    queue = [row["detail"] for row in site.check() if row["name"] == "queue"]
    assert queue == ["pyslurm: away"]
    python.write_text('#!/bin/sh\necho \'{"protocol": 2, "pyslurm": "0.1"}\'\n')
    assert site.prints(remedy)
    site.settings({})
    assert not [row for row in site.check() if row["name"] in {"reader", "queue"}]


@tries(
    "list the partitions or QOS that may pre-empt under [scope] as left alone",
    "watch some cycles of `rltuned run --dry-run` before going live",
)
def test_remedies_that_do_not_end_the_state(site: Site) -> None:
    """Both states stay, and are rightly printed; what the remedy is for comes about."""
    site.slurm({"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"})
    assert site.prints("list the partitions or QOS that may pre-empt under [scope] as left alone")
    keys: dict[str, object] = {"scope.sla_partitions": ["sla"], "scope.min_age_s": 0}
    site.settings(keys)
    blocker = site.lab.sbatch("-wm1", "-n4", "-psla")  # which no other job pre-empts
    site.lab.wait_for(lambda: site.lab.state(blocker) == "R", "the node is busy")
    jobs = [site.lab.sbatch("-wm1", "-n4", f"-p{name}", "-t30") for name in ("gpu", "sla")]
    try:
        reply = {job: site.rltuned("explain", str(job), "--json") for job in jobs}
    finally:
        site.lab.clear()
    assert [json.loads(reply[job])["refusal"] for job in jobs] == [None, "sla_partition"]
    script = f"{{}} \"$@\" | sed -e '{RELEASE.format('21.08.1')}'"
    site.settings({"slurm.bin_dir": site.tools(scontrol=script)})
    assert site.prints("watch some cycles of `rltuned run --dry-run` before going live")
    site.rltuned("run", "--dry-run", "--once")


@tries("mkdir -p {} && chown -R {}: {} && chmod 0700 {}", "chmod go-w {}", "chown root {}")
@pytest.mark.parametrize("state", ["absent", "file", "writable", "tools", "foreign"])
def test_commands_are_right_as_they_stand(site: Site, state: str) -> None:
    if state == "absent":
        site.state.rmdir()
    elif state == "file":
        site.state.chmod(0o755)
        (site.state / "journal.sqlite").touch()
        (site.state / "journal.sqlite").chmod(0o666)
        shutil.chown(site.state / "journal.sqlite", PLAIN)
    else:
        place = Path(site.tools())
        site.settings({"slurm.bin_dir": str(place)})
        spoilt = site.state if state == "writable" else place
        shutil.chown(spoilt, PLAIN if state == "foreign" else "root")
        spoilt.chmod(0o777 if state != "foreign" else 0o755)
    commands = ("mkdir -p {} && chown -R {}: {} && chmod 0700 {}", "chmod go-w {}", "chown root {}")
    steps = 0
    while out := [command for remedy in commands if (command := site.prints(remedy))]:
        subprocess.run(["sh", "-c", out[0]], check=True, timeout=300)
        steps += 1
        assert steps < 4, site.check()
    assert steps
    assert not [row for row in site.check() if row["name"] in {"journal", "trust"}]


@tries(
    "stop the daemon, rltuned restore --all --as-shown, put the journal's files away",
    "make room there, or set daemon.state_dir to another folder",
)
def test_a_journal_that_cannot_be_used(site: Site) -> None:
    lost = "stop the daemon, rltuned restore --all --as-shown, put the journal's files away"
    file = site.state / "journal.sqlite"
    with closing(Journal(site.state)) as journal:
        journal.remember("a", 1, 1.0)
    whole = file.read_bytes()
    file.write_bytes(whole[:4096] + bytes(len(whole) - 4096))
    assert site.prints(lost), site.check()
    done = CliRunner().invoke(app, ["restore", "--all", "--as-shown", "--config", str(site.config)])
    assert done.exit_code == 3
    file.rename(site.folder / "put away")
    assert not [row for row in site.check() if row["name"] in {"journal", "breakers"}]
    with closing(sqlite3.connect(file)) as newer:
        newer.execute("PRAGMA user_version = 99")
    assert site.prints("make room there, or set daemon.state_dir to another folder"), site.check()
    other = site.folder / "other"
    other.mkdir(mode=0o700)
    site.settings({"daemon.state_dir": str(other)})
    assert not [row for row in site.check() if row["name"] in {"journal", "breakers"}]


@tries(
    "choose another http.port",
    "remove the file to go on",
)
def test_endpoint_and_pause(site: Site) -> None:
    taken = "choose another http.port"
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        site.settings({"http.port": server.getsockname()[1]})
        assert site.prints(taken)
        site.settings({"http.port": 0})
        assert not site.prints(taken)
    site.settings({"ladder.stage": "full"})
    (site.state / "PAUSE").touch()
    assert site.prints("remove the file to go on")
    (site.state / "PAUSE").unlink()
    assert not site.prints("remove the file to go on")


@tries(
    "rm {}: another one is drawn, and what was learned is lost",
    "chmod 0600 {}",
    "install rltuned again, or set enabled = false",
)
def test_what_run_times_are_predicted_with(site: Site) -> None:
    drawn_again = "rm {}: another one is drawn, and what was learned is lost"
    salt = site.state / "salt"
    salt.touch(mode=0o600)
    salt.write_bytes(b"short")
    assert site.prints(drawn_again), site.check()
    salt.chmod(0o640)
    private = site.prints("chmod 0600 {}")
    assert private, site.check()
    subprocess.run(["sh", "-c", private], check=True, timeout=300)
    assert not site.prints("chmod 0600 {}")
    salt.unlink()
    assert not site.prints(drawn_again)
    unfit = "install rltuned again, or set enabled = false"
    site.settings({"predictor.model": "absent"})
    assert site.prints(unfit), site.check()
    site.settings({"predictor.model": "absent", "predictor.enabled": False})
    assert not site.prints(unfit)


@tries(
    "rltuned breaker show says why; rltuned breaker reset when it is fixed",
    "rltuned restore --all, then move the journal away",
)
def test_breakers(site: Site) -> None:
    is_open = "rltuned breaker show says why; rltuned breaker reset when it is fixed"
    with closing(Journal(site.state)) as journal:
        breaker.change(
            journal,
            "rltlab",
            lambda known: breaker.count_errors(known, {"gpu": "refused"}, 1, 1.0),
            1.0,
        )
    assert site.prints(is_open)
    shown = CliRunner().invoke(app, ["breaker", "show", "--config", str(site.config)])
    assert "gpu: open" in shown.output
    site.rltuned("breaker", "reset")
    assert not site.prints(is_open)
    spoilt = "rltuned restore --all, then move the journal away"
    with closing(Journal(site.state)) as journal:
        journal.remember("breakers", {"rltlab": 7}, 2.0)
    assert site.prints(spoilt)
    site.rltuned("restore", "--all")
    site.state.rename(site.folder / "put away")
    site.state.mkdir(mode=0o700)
    assert not site.prints(spoilt)


@tries(
    "reinstall pulp: CBC comes with it",
    "install rltuned again, with everything that it depends on",
    "use one of Python 3.11 to 3.14; others were not tried",
)
def test_what_is_not_installed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an installation would bring is taken away inside this process, and brought back."""

    def no_solver(*_: object) -> None:
        raise SolverError("no solver")

    def no_package(name: str) -> str:
        raise PackageNotFoundError(name)

    states: tuple[tuple[str, Any, str, object, dict[str, object]], ...] = (
        ("reinstall pulp: CBC comes with it", check, "probe", no_solver,
         {"policy.placement": "milp"}),
        ("install rltuned again, with everything that it depends on", check, "version",
         no_package, {}),
        ("use one of Python 3.11 to 3.14; others were not tried", check, "PYTHONS",
         ((3, 99), (3, 99)), {}),
    )  # fmt: skip
    for remedy, module, name, broken, keys in states:
        site.settings(keys)
        with monkeypatch.context() as patch:
            patch.setattr(module, name, broken)
            assert site.prints(remedy), site.check()
        assert not site.prints(remedy), site.check()


@tries(
    "run rltuned on one machine only, or set [ha] lease_dir on each of them",
    "set [ha] host to this machine's name in SlurmctldHost",
    "make lease_dir a folder of the user who runs rltuned, mode 0700, on all hosts",
)
def test_two_controllers(labs: Callable[[str], Site]) -> None:
    site = labs("backup")
    site.reset()
    assert site.prints("run rltuned on one machine only, or set [ha] lease_dir on each of them")
    lease = site.folder / "lease"
    lease.mkdir(mode=0o777)
    lease.chmod(0o777)
    site.settings({"ha.lease_dir": str(lease), "ha.host": "elsewhere"})
    assert site.prints("set [ha] host to this machine's name in SlurmctldHost")
    keys = {"ha.lease_dir": str(lease), "ha.host": site.lab.host}
    site.settings(keys)
    mode = "make lease_dir a folder of the user who runs rltuned, mode 0700, on all hosts"
    assert site.prints(mode)
    lease.chmod(0o700)
    assert not [row for row in site.check() if row["name"] == "ha"], site.check()


# -- what the queue says -------------------------------------------------------------------------


def waiting(lab: SlurmLab, *jobs: tuple[str, ...]) -> None:
    """Jobs that wait for one node, which is busy."""
    blocker = lab.sbatch("-wm1", "-n4", "-t90")
    lab.wait_for(lambda: lab.state(blocker) == "R", "the node is busy")
    numbers = {str(lab.sbatch("-wm1", "-n4", *words)) for words in jobs}
    lab.wait_for(
        lambda: numbers <= set(lab.run("sprio", "-h", "-o", "%i").split()), "sprio shows them"
    )


@pytest.fixture
def busy(accounted: Site) -> Iterator[Site]:
    """A cluster with slurmdbd and a QOS besides the usual one, without jobs at the end."""
    lab = accounted.lab
    lab.run("sacctmgr", "-i", "add", "qos", "high", "priority=40")
    lab.run("sacctmgr", "-i", "modify", "user", "root", "set", "qos+=high")
    yield accounted
    lab.clear()
    lab.run("sacctmgr", "-i", "modify", "user", "root", "set", "qos-=high")
    lab.run("sacctmgr", "-i", "remove", "qos", "high")


DEPTH = "raise bf_max_job_test in SchedulerParameters, as far as slurmctld has time for it"


@tries(DEPTH)
def test_the_depth_of_the_scheduler(site: Site) -> None:
    site.slurm({"SchedulerParameters": "bf_continue,bf_max_job_test=1"})
    waiting(site.lab, ("-t10",), ("-t20",))
    try:
        assert site.prints(DEPTH), site.check()
        site.slurm({"SchedulerParameters": "bf_continue,bf_max_job_test=500"})
        assert not site.prints(DEPTH), site.check()
    finally:
        site.lab.clear()


QOS = "raise PriorityWeightQOS above {}, or lower max_delay_s below {}"


@tries(QOS)
def test_delays_that_can_cross_a_qos(busy: Site) -> None:
    busy.slurm({"PriorityWeightQOS": "100"})
    waiting(busy.lab, ("-t10", "--qos=normal"), ("-t20", "--qos=high"))
    found = re.search(r"above (\d+), or lower max_delay_s below (\d+)", busy.prints(QOS))
    assert found is not None, busy.check()
    busy.slurm({"PriorityWeightQOS": str(int(found[1]) + 1)})
    assert not busy.prints(QOS), busy.check()
    busy.slurm({"PriorityWeightQOS": "100"})
    busy.settings({"order.max_delay_s": float(found[2]) - 1})
    assert not busy.prints(QOS), busy.check()


ROOM = (
    "give all jobs {} points more: raise PriorityWeightPartition by so much, with the "
    "same PriorityJobFactor, 1 or more, in every partition; where they differ, by so much "
    "times the highest over the lowest"
)


@tries(ROOM)
def test_priorities_without_room_for_delays(busy: Site) -> None:
    """Followed to the letter, no priority is clamped at 1, and no delay is shortened."""
    lines = re.findall(r"(?m)^PartitionName=(.*)$", busy.plain)
    plain = re.sub(r"PriorityJobFactor=\d+", "", "\nPartitionName=".join(lines))
    weight = {"PriorityWeightPartition": "0", "PriorityWeightAge": "100000"}
    busy.slurm({**weight, "PartitionName": plain})
    waiting(busy.lab, ("-t7-0",), *[("-t1",)] * 3)
    found = re.search(r"all jobs (\d+) points", busy.prints(ROOM))
    assert found is not None, busy.check()
    raised = "\n".join(f"{line} PriorityJobFactor=1" for line in plain.split("\n"))
    weight["PriorityWeightPartition"] = found[1]
    busy.slurm({**weight, "PartitionName": raised})
    assert not busy.prints(ROOM), busy.check()
    busy.settings({"scope.min_age_s": 0, "limits.hysteresis": 0.0, "policy.name": "sjf"})
    busy.rltuned("run", "--stage", "full", "--once")
    rows = busy.lab.run("sprio", "-h", "-o", "%Y").split()
    assert len(rows) == 4
    assert min(map(int, rows)) > 1


# -- who asks ------------------------------------------------------------------------------------


@tries(
    "sacctmgr -i add user {} account=root adminlevel=Operator",
    "sacctmgr -i modify user {} set adminlevel=Operator",
    "start slurmdbd, which does not answer, and run this check again",
    "run rltuned as an account with AdminLevel=Operator",
    "run rltuned as an account of its own with AdminLevel=Operator",
    "runuser -u {} -- rltuned check",
)
def test_rights_by_slurmdbd(accounted: Site) -> None:
    lab = accounted.lab
    accounted.slurm({"PrivateData": "jobs"})
    shutil.chown(accounted.state, PLAIN)
    own = "run rltuned as an account of its own with AdminLevel=Operator"
    assert accounted.prints(own)
    assert (
        accounted.prints("runuser -u {} -- rltuned check") == f"runuser -u {PLAIN} -- rltuned check"
    )
    assert not accounted.prints("runuser -u {} -- rltuned check", PLAIN)
    for remedy in (
        "sacctmgr -i add user {} account=root adminlevel=Operator",
        "sacctmgr -i modify user {} set adminlevel=Operator",
    ):
        command = accounted.prints(remedy, PLAIN)
        assert command, accounted.check(PLAIN)
        assert accounted.prints("run rltuned as an account with AdminLevel=Operator", PLAIN)
        lab.stop_slurmdbd()
        assert accounted.prints(
            "start slurmdbd, which does not answer, and run this check again", PLAIN
        ), accounted.check(PLAIN)
        lab.start_slurmdbd()
        lab.wait_for(
            lambda: "Cluster" in lab.run("sacctmgr", "show", "cluster", check=False), "slurmdbd"
        )
        lab.run("sh", "-c", command)
        left = [row["name"] for row in accounted.check(PLAIN)]
        assert not {"rights", "private_data"} & set(left)
        lab.run("sacctmgr", "-i", "modify", "user", PLAIN, "set", "adminlevel=None")
    lab.run("sacctmgr", "-i", "remove", "user", PLAIN)


@tries(
    "run the service as {} (User={} in a drop-in, docs/install.md), and this check as well: "
    "runuser -u {} -- rltuned check"
)
def test_without_slurmdbd_slurm_user_writes(labs: Callable[[str], Site]) -> None:
    """SlurmUser is no root here: it starts the daemon as the drop-in's User= would."""
    site = labs("slurmuser")
    site.reset()
    shutil.chown(site.state, PLAIN)
    remedy = (
        "run the service as {} (User={} in a drop-in, docs/install.md), and this check as well: "
        "runuser -u {} -- rltuned check"
    )
    out = site.prints(remedy, PLAIN)
    assert out.count(OWNER) == 3, site.check(PLAIN)
    shutil.rmtree(site.state)
    site.state.mkdir(mode=0o700)
    shutil.chown(site.state, OWNER)
    assert not [row for row in site.check(OWNER) if row["status"] == "fail"]
    site.settings(
        {"scope.min_age_s": 0, "limits.hysteresis": 0.0, "order.own": 0.3, "order.share": 0}
    )
    site.lab.sbatch("-wm1", "-n4", "-t90")
    jobs = [site.lab.sbatch("-wm1", "-n4", f"-t{minutes}") for minutes in (80, 20)]

    def factors() -> dict[int, int]:
        rows = site.lab.run("sprio", "-h", "-o", "%i %S").splitlines()
        return {int(job): int(number) for job, number in map(str.split, rows)}

    site.lab.wait_for(lambda: set(factors()) == set(jobs), "two wait, and sprio shows them")
    done = ran(
        *as_user(OWNER),
        sys.executable,
        "-m",
        "rltuned",
        "run",
        "--live",
        "--once",
        "--config",
        str(site.config),
        cwd="/",
        env={"PATH": site.lab.search, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert "applied=" in done.stderr
    found = factors()
    assert found[jobs[1]] > found[jobs[0]]


def test_every_remedy_has_a_trial() -> None:
    assert remedies() == TRIED
