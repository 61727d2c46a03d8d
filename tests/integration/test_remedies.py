"""What `rltuned check` prints on a real cluster, and its remedies that write, followed.

A remedy that is a command, or that gives a number for slurm.conf, is followed to the letter. Of the
others one table has the state in which they are printed; tests/unit/slurm/test_checks.py has those
that follow from lines of slurm.conf alone.
"""

import json
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rltuned.cli import app, check
from rltuned.daemon import breaker
from rltuned.errors import SolverError
from rltuned.journal.journal import Journal
from tests.accounting import PLAIN, as_user
from tests.clusters import OPERATORS, cluster
from tests.lab import SEARCH, SlurmLab
from tests.programs import executable, ran

pytestmark = pytest.mark.slurm

TOOLS = ("squeue", "sinfo", "sprio", "scontrol", "sdiag", "sacctmgr", "sacct", "sshare")


@dataclass
class Site:
    """A cluster, the settings beside it, and what `rltuned check` says of both."""

    lab: SlurmLab
    folder: Path
    plain: str = ""

    def __post_init__(self) -> None:
        self.plain = self.lab.conf.read_text()
        self.config, self.state = self.folder / "rltuned.toml", self.folder / "state"

    def reset(self) -> "Site":
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o755)
        self.state.mkdir(mode=0o700)
        self.settings({})
        self.slurm({})
        return self

    def slurm(self, lines: Mapping[str, str | None]) -> None:
        """Have slurmctld start with these lines changed; None takes a key out."""
        text = self.plain
        for key, value in lines.items():
            text = re.sub(rf"(?m)^{re.escape(key)}=.*\n", "", text)
            text = text if value is None else f"{key}={value}\n{text}"
        if text != self.lab.conf.read_text():
            self.lab.stop_controller()
            self.lab.conf.write_text(text)
            self.lab.start_controller()

    def settings(self, keys: Mapping[str, object]) -> None:
        """Write our settings: those of every test, and these (`table.key` -> value)."""
        usual = {
            "daemon.state_dir": str(self.state),
            "daemon.pause_file": str(self.state / "PAUSE"),
            "policy.name": "sjf",
            "slurm.conf": str(self.lab.conf),
            "http.port": 0,
        }
        self.config.write_text(
            "\n".join(f"{name} = {json.dumps(value)}" for name, value in {**usual, **keys}.items())
        )
        self.config.chmod(0o644)

    def tools(self, **scripts: str) -> str:
        """A folder of Slurm's programs, some behind a script, in which {} is the real one."""
        place = self.folder / "bin"
        place.mkdir(mode=0o755, exist_ok=True)
        for name in TOOLS:
            script = scripts.get(name, 'exec {} "$@"')
            real = str(shutil.which(name, path=self.lab.search))
            executable(place / name, f"#!/bin/sh\n{script.replace('{}', real)}\n")
        return str(place)

    def problems(self, user: str = "") -> dict[str, str]:
        """Check -> remedy of what is not in order; of one name the remedies by lines."""
        words = ("check", "--json", "--config", str(self.config))
        if user:
            command = (*as_user(user), sys.executable, "-m", "rltuned", *words)
            env = {"PATH": self.lab.search, "PYTHONDONTWRITEBYTECODE": "1"}
            done = ran(*command, code=None, cwd="/", env=env)
            out, wrong = done.stdout, done.stderr
        else:
            result = CliRunner().invoke(app, words)
            out, wrong = result.stdout, f"{result.stderr} {result.exception!r}"
        assert out.startswith("["), wrong
        found: dict[str, str] = {}
        for row in json.loads(out):
            if row["status"] != "ok":
                found[row["name"]] = f"{found.get(row['name'], '')}{row['remedy']}\n"
        return found

    def rltuned(self, *words: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, [*words, "--config", str(self.config)])
        assert done.exit_code == code, done.output
        return done.stdout


@pytest.fixture(scope="module")
def with_slurmdbd() -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="rltfix-") as name:
        Path(name).chmod(0o755)
        with cluster("add account lab", OPERATORS, accounting=True) as lab:
            yield Site(lab, Path(name) / "site")


@pytest.fixture
def site(with_slurmdbd: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A cluster with slurmdbd, as at first."""
    monkeypatch.setenv("PATH", SEARCH)
    return with_slurmdbd.reset()


CANARY = {"ladder.stage": "canary", "limits.write_mode": "priority"}
STATES: list[tuple[Mapping[str, object], dict[str, str], str, str]] = [
    ({"policy.name": "model:nowhere"}, {}, "policy", "choose another [policy] name"),
    ({"policy.name": "model:rltune", "policy.models_dir": "/no"}, {}, "policy", "install the mod"),
    (CANARY, {}, "canary", "write_mode = auto compares delays alone"),
    ({"scope.sla_partitions": ["slow"]}, {}, "scope", "correct the name"),
    ({"load.max_server_threads": 1}, {}, "load", "raise the bound under [load]"),
    ({}, {"sdiag": "exit 1"}, "load", "without sdiag"),
    ({}, {"sinfo": "exit 3"}, "queue", "run squeue, sinfo and sprio by hand"),
    ({"slurm.conf": "/no/slurm.conf"}, {}, "slurm", "start slurmctld"),
    ({"predictor.model": "absent"}, {}, "predictor", "or set enabled = false"),
]
"""Settings, what a program does, the check, of its remedy."""


@pytest.mark.parametrize("state", STATES, ids=lambda state: state[3])
def test_what_is_wrong_is_said_and_what_is_right_is_not(
    site: Site, state: tuple[Mapping[str, object], dict[str, str], str, str]
) -> None:
    keys, programs, name, words = state
    site.settings({**keys, **({"slurm.bin_dir": site.tools(**programs)} if programs else {})})
    assert words in site.problems().get(name, ""), site.problems()
    site.settings({})
    assert words not in site.problems().get(name, "")


FOLLOWED: list[tuple[dict[str, str | None], str, dict[str, str | None]]] = [
    ({"ControlMachine": "gone"}, "what they name in the slurm.conf", {"ControlMachine": None}),
    ({"PriorityWeightAge": "0"}, r"PriorityWeightAge to (\d+)", {"PriorityWeightAge": "{}"}),
    ({"PriorityWeightAge": "10"}, r"multiply all .* by (\d+)", {"PriorityWeightAge": "{}0"}),
    ({}, "set PriorityMaxAge", {"PriorityMaxAge": "14-0", "PriorityWeightAge": "140000"}),
    ({}, r"raise PriorityWeightPartition above (\d+)", {"PriorityWeightPartition": "{}9"}),
    ({}, r"set PriorityWeightPartition=(\d+)", {"PriorityWeightPartition": "{}"}),
    (
        {"PartitionName": "gpu Nodes=ALL Default=YES"},
        "set DefaultTime or MaxTime",
        {"PartitionName": "gpu Nodes=ALL Default=YES DefaultTime=60"},
    ),
]
"""Lines of slurm.conf, the remedy with its number, and the lines by which it is followed."""


@pytest.mark.parametrize(("lines", "remedy", "follow"), FOLLOWED, ids=lambda given: str(given)[:30])
def test_a_line_of_slurm_conf_that_is_followed_is_asked_for_no_more(
    site: Site,
    lines: dict[str, str | None],
    remedy: str,
    follow: dict[str, str | None],
) -> None:
    site.slurm(lines)
    said = "".join(site.problems().values())
    found = re.search(remedy, said)
    assert found, said
    number = found[1] if found.groups() else ""
    site.slurm(
        {**lines, **{key: text and text.replace("{}", number) for key, text in follow.items()}}
    )
    said = "".join(site.problems().values())
    assert not re.search(remedy, said), said


def test_points_for_delays_are_as_many_as_are_needed(site: Site) -> None:
    """Followed to the letter, no priority is clamped at 1, and no delay is shortened."""
    lines, lab = re.findall(r"(?m)^PartitionName=(.*)$", site.plain), site.lab
    plain = re.sub(r"PriorityJobFactor=\d+", "", "\nPartitionName=".join(lines))
    weight = {"PriorityWeightPartition": "0", "PriorityWeightAge": "100000"}
    site.slurm({**weight, "PartitionName": plain})
    lab.runs("-wm1", "-n4", "-t90")
    jobs = {str(lab.sbatch("-wm1", "-n4", limit)) for limit in ("-t7-0", "-t1", "-t1", "-t1")}
    lab.wait_for(lambda: jobs <= {*lab.run("sprio", "-h", "-o", "%i").split()}, "sprio has them")
    try:
        said = "".join(site.problems().values())
        found = re.search(r"give all jobs (\d+) points more", said)
        assert found is not None, said
        raised = "\n".join(f"{line} PriorityJobFactor=1" for line in plain.split("\n"))
        weight["PriorityWeightPartition"] = found[1]
        site.slurm({**weight, "PartitionName": raised})
        assert "points more" not in "".join(site.problems().values())
        site.settings({"scope.min_age_s": 0, "limits.hysteresis": 0.0})
        site.rltuned("run", "--stage", "full", "--once")
        rows = [int(row) for row in lab.run("sprio", "-h", "-o", "%Y").split()]
        assert (len(rows), min(rows) > 1) == (4, True)
    finally:
        lab.clear()


@pytest.mark.parametrize("state", ["absent", "file", "writable", "tools", "foreign", "salt"])
def test_commands_are_right_as_they_stand(site: Site, state: str) -> None:
    if state == "absent":
        site.state.rmdir()
    elif state in {"file", "salt"}:
        file = site.state / ("salt" if state == "salt" else "journal.sqlite")
        file.write_bytes(b"short" if state == "salt" else b"")
        file.chmod(0o666 if state == "file" else 0o640)
        if state == "file":
            site.state.chmod(0o755)
            shutil.chown(file, PLAIN)
    else:
        place = Path(site.tools())
        site.settings({"slurm.bin_dir": str(place)})
        spoilt = site.state if state == "writable" else place
        shutil.chown(spoilt, PLAIN if state == "foreign" else "root")
        spoilt.chmod(0o777 if state != "foreign" else 0o755)
    steps = 0
    while said := "".join(site.problems().get(name, "") for name in ("journal", "trust", "kinds")):
        command = said.split("\n")[0].partition(": another one is drawn")[0]
        assert command.startswith(("mkdir -p ", "chmod ", "chown root ", "rm "))
        subprocess.run(["sh", "-c", command], check=True, timeout=300)
        steps += 1
        assert steps < 4, said
    assert steps


def test_a_journal_and_breakers_that_cannot_be_used(site: Site) -> None:
    file = site.state / "journal.sqlite"
    with closing(Journal(site.state)) as journal:
        breaker.change(
            journal,
            "rltlab",
            lambda known: breaker.count_errors(known, {"gpu": "refused"}, 1, 1.0),
            1.0,
        )
    assert "rltuned breaker reset when it is fixed" in site.problems()["breakers"]
    assert "gpu: open" in site.rltuned("breaker", "show", code=1)
    site.rltuned("breaker", "reset")
    assert "breakers" not in site.problems()
    with closing(Journal(site.state)) as journal:
        journal.remember("breakers", {"rltlab": 7}, 2.0)
    assert "rltuned restore --all, then move" in site.problems()["breakers"]
    site.rltuned("restore", "--all")
    whole = file.read_bytes()
    file.write_bytes(whole[:4096] + bytes(len(whole) - 4096))
    assert "restore --all --as-shown, put the" in site.problems()["journal"]
    site.rltuned("restore", "--all", "--as-shown", code=3)
    file.rename(site.folder / "put away")
    assert not {"journal", "breakers"} & site.problems().keys()
    with closing(sqlite3.connect(file)) as newer:
        newer.execute("PRAGMA user_version = 99")
    assert "set daemon.state_dir to another folder" in site.problems()["journal"]


def test_what_the_machine_lacks(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def no(error: Exception) -> object:
        def fails(*_: object) -> None:
            raise error

        return fails

    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        site.settings(
            {
                "http.port": server.getsockname()[1],
                "policy.placement": "milp",
                "ladder.stage": "full",
            }
        )
        (site.state / "PAUSE").touch()
        monkeypatch.setattr(check, "probe", no(SolverError("no solver")))
        monkeypatch.setattr(check, "PYTHONS", ((3, 99), (3, 99)))
        found = site.problems()
        assert "choose another http.port" in found["http"]
        assert "remove the file to go on" in found["mode"]
        assert "reinstall pulp" in found["solver"]
        assert "use one of Python" in found["runtime"]
        monkeypatch.setattr(check, "version", no(PackageNotFoundError("numpy")))
        assert "install rltuned again" in site.problems()["runtime"]


def test_two_controllers(tmp_path: Path) -> None:
    with cluster(backup=True) as lab:
        site = Site(lab, tmp_path / "site").reset()
        assert "set [ha] lease_dir on each of them" in site.problems()["ha"]
        lease = site.folder / "lease"
        lease.mkdir()
        lease.chmod(0o777)
        site.settings({"ha.lease_dir": str(lease), "ha.host": "elsewhere"})
        assert "machine's name in SlurmctldHost" in site.problems()["ha"]
        site.settings({"ha.lease_dir": str(lease), "ha.host": lab.host})
        assert "make lease_dir a folder of the user" in site.problems()["ha"]
        lease.chmod(0o700)
        assert "ha" not in site.problems()


def test_rights_by_slurmdbd(site: Site) -> None:
    lab = site.lab
    site.slurm({"PrivateData": "jobs"})
    shutil.chown(site.state, PLAIN)
    assert "an account of its own with AdminLevel=Operator" in site.problems()["rights"]
    assert site.problems()["user"] == f"runuser -u {PLAIN} -- rltuned check\n"
    for command in (
        f"sacctmgr -i add user {PLAIN} account=root adminlevel=Operator",
        f"sacctmgr -i modify user {PLAIN} set adminlevel=Operator",
    ):
        found = site.problems(PLAIN)
        assert found["rights"] == f"{command}\n"
        assert "with AdminLevel=Operator" in found["private_data"]
        assert "user" not in found
        lab.stop_slurmdbd()
        assert "start slurmdbd" in site.problems(PLAIN)["rights"]
        lab.start_slurmdbd()
        lab.wait_for(
            lambda: "Cluster" in lab.run("sacctmgr", "show", "cluster", check=False), "slurmdbd"
        )
        lab.run("sh", "-c", command)
        assert not {"rights", "private_data"} & site.problems(PLAIN).keys()
        lab.run("sacctmgr", "-i", "modify", "user", PLAIN, "set", "adminlevel=None")
    lab.run("sacctmgr", "-i", "remove", "user", PLAIN)
