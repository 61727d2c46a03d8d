"""A real Slurm of our own on one machine: slurmctld, several slurmd, fake typed GPUs, own munge.

Nothing here touches a Slurm that the machine may already run: every daemon gets its own ports,
folders and munge socket, and is stopped by the process id that we were given when we started it.

    python -m tests.lab up --dir .run/slurm      start one and leave it running
    python -m tests.lab env --dir .run/slurm     print `export SLURM_CONF=...` for a shell
    python -m tests.lab down --dir .run/slurm    stop it
"""

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.accounting import Accounting
from tests.waits import PATIENCE_S, looks

PROGRAMS = ("munged", "slurmctld", "slurmd", "scontrol", "squeue", "sinfo", "sprio", "sbatch")
OTHER = os.environ.get("RLTUNED_TEST_SLURM", "")
"""A folder with another release's programs (scripts/other-slurm.sh); empty = this machine's own."""
SEARCH = f"{OTHER}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".removeprefix(":")
BACKUP = "backup1"
FAILOVER_S = 4
"""SlurmctldTimeout with a backup. A heartbeat comes at a quarter of it in whole seconds: below 4
that is 0, and slurmctld replaces the file without a pause."""


class LabError(RuntimeError):
    """The test cluster could not be started, or did not do in time what was asked."""


@dataclass(frozen=True)
class NodeSpec:
    """A line of slurm.conf and one of gres.conf: `names` is a hostlist of `count` nodes."""

    names: tuple[str, ...]
    cpus: int
    mem_mib: int
    gpu_type: str
    gpus: int
    features: str = ""
    shards: int = 0
    more_gpus: tuple[tuple[str, int], ...] = ()

    @property
    def gpu_types(self) -> tuple[tuple[str, int], ...]:
        return ((self.gpu_type, self.gpus), *self.more_gpus)


TESTBED = (
    NodeSpec(("p1", "p2"), cpus=16, mem_mib=64000, gpu_type="p100", gpus=4, features="pascal"),
    NodeSpec(("k1", "k2"), cpus=8, mem_mib=32000, gpu_type="k80", gpus=2, features="kepler"),
    NodeSpec(("m1",), cpus=4, mem_mib=16000, gpu_type="m40", gpus=1, features="maxwell"),
)
"""The paper's machines: 13 GPUs of three types."""

PARTITIONS = (
    "PartitionName=gpu Nodes=ALL Default=YES MaxTime=UNLIMITED DefaultTime=60 PriorityJobFactor=10",
    "PartitionName=sla Nodes=ALL MaxTime=1-0 PriorityTier=2 PriorityJobFactor=20",
    "PartitionName=short Nodes=p[1-2] MaxTime=10 DefaultTime=5 PriorityJobFactor=30",
    "PartitionName=whole Nodes=k[1-2] MaxTime=1-0 OverSubscribe=EXCLUSIVE",
    "PartitionName=closed Nodes=m1 MaxTime=1-0 State=DOWN",
)

SCHEDULER = (
    "bf_continue,sched_interval=2,bf_interval=2,bf_resolution=1,batch_sched_delay=1,"
    "default_queue_depth=1000,bf_max_job_test=1000"
)


@dataclass
class SlurmLab:
    """One cluster of our own. Use as a context manager, or start() and stop().

    Args:
        folder: where everything lives; None makes a temporary one, removed by stop().
        nodes, partitions, extra: what slurm.conf says beyond the common part.
        accounting: with slurmdbd and a database of its own, so that users have admin levels.
        cluster: its name.
        beside: another cluster, whose munge and slurmdbd it uses; it is stopped before that one.
        backup: a second SlurmctldHost named BACKUP on 127.0.0.2; start_backup() starts it.
        slurm_user: who slurmctld becomes.
        search: where the programs are; another release's may be put first.
        keep: leave the daemons running when this process ends (for `make slurm-up`).
    """

    folder: Path | None = None
    nodes: tuple[NodeSpec, ...] = TESTBED
    partitions: tuple[str, ...] = PARTITIONS
    extra: tuple[str, ...] = ()
    scheduler: str = SCHEDULER
    priority_type: str = "priority/multifactor"
    search: str = SEARCH
    keep: bool = False
    accounting: bool = False
    cluster: str = "rltlab"
    beside: "SlurmLab | None" = None
    backup: bool = False
    slurm_user: str = "root"
    _own_folder: bool = False
    _children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _database: Accounting | None = None

    # -- life ---------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def root(self) -> Path:
        if self.folder is None:
            raise LabError("the lab is not started")
        return self.folder

    @property
    def conf(self) -> Path:
        return self.root / "slurm.conf"

    @property
    def host(self) -> str:
        """This machine's name, as slurm.conf has it."""
        return socket.gethostname().split(".")[0]

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(name for spec in self.nodes for name in spec.names)

    def environ(self) -> dict[str, str]:
        """The environment for commands against this cluster; nothing of a surrounding Slurm job."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SBATCH"))}
        database = self._database.environ if self._database else {}
        own = {"SLURM_CONF": str(self.conf), "PATH": self.search, "LC_ALL": "C"}
        return {**kept, **database, **own}

    def start(self) -> None:
        """Write the configuration and start every daemon; stops what it started when it fails."""
        if self.folder is None:
            self.folder = Path(tempfile.mkdtemp(prefix="rltlab-"))
            self._own_folder = True
        self.folder = self.folder.resolve()
        try:
            try:
                self._start_all()
            except LabError:
                # somebody may have taken one of the free ports in between: once more with others
                self._stop_all()
                self._start_all()
        except BaseException:
            self.stop()
            raise

    def _start_all(self) -> None:
        self._prepare()
        shutil.rmtree(self.root / "state")  # jobs of an earlier `up` are not ours to revive
        (self.root / "state").mkdir()
        for name in ("state", "log", "pid"):
            shutil.chown(self.root / name, self.slurm_user)
        if self.beside is None:
            self.start_munge()
        self._start_accounting()
        self.start_controller()
        for name in self.node_names:
            self.start_node(name)
        self.wait_for(self._all_nodes_up, "all nodes up")

    def stop(self) -> None:
        """End every process of this cluster by its id; remove a temporary folder."""
        if self.folder is None:
            return
        self._stop_all()
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _stop_all(self) -> None:
        names = [p.stem for p in sorted((self.root / "pid").glob("*.pid"))]
        last = ("slurmctld", "slurmdbd", "mariadbd", "munged")
        for name in [n for n in names if n not in last] + [n for n in last if n in names]:
            self._end(name)
        self._end_strays()

    def start_controller(self) -> None:
        self._spawn("slurmctld", ["slurmctld", "-D", "-i"])
        self.wait_for(self.controller_up, "slurmctld answers")

    def stop_controller(self) -> None:
        self._end("slurmctld")

    def kill_controller(self) -> None:
        """End the primary as a crash would: nothing is handed over.

        Slurm saves its jobs some seconds after a change; one that dies before has lost them. And
        a backup of 24.11 or newer never acts without the heartbeat file, which the primary takes
        away for a moment with every beat: it is killed right after one.
        """
        since = time.time()
        if jobs := self.run("squeue", "-h", "-o", "%A").split():
            self.scontrol("update", f"JobId={jobs[0]}", "Comment=a-change-to-be-saved")
            self._wait_for_file("job_state", since)
        if self.backup:
            self._wait_for_file("heartbeat", time.time())
        _signal(self.pid("slurmctld"), signal.SIGKILL)
        self._end("slurmctld")

    def _wait_for_file(self, name: str, since: float) -> None:
        file = self.root / "state" / name
        self.wait_for(lambda: file.exists() and file.stat().st_mtime >= since, name)

    def start_backup(self) -> None:
        """The second slurmctld, in name and address spaces of its own, as on another machine."""
        hosts, conf = self.root / "hosts", self.root / "slurm-backup.conf"
        hosts.write_text(f"127.0.0.1 localhost {self.host}\n127.0.0.2 {BACKUP}\n")
        conf.write_text(self.conf.read_text().replace("/slurmctld.", "/slurmctld-backup."))
        begin = 'hostname "$1" && mount --bind "$2" /etc/hosts && exec slurmctld -f "$3" -D -i'
        words = ["unshare", "--uts", "--mount", "sh", "-c", begin, "sh", BACKUP]
        self._spawn("slurmctld-backup", [*words, str(hosts), str(conf)])
        up = f"{BACKUP} is UP"
        self.wait_for(lambda: up in self.run("scontrol", "ping", check=False), "backup")

    def stop_backup(self) -> None:
        self._end("slurmctld-backup")

    def stop_munge(self) -> None:
        self._end("munged")

    def start_munge(self) -> None:
        folder = self.root / "munge"
        files = {"socket": "s", "key-file": "key", "pid-file": "pid", "seed-file": "seed"}
        words = [f"--{option}={folder}/{name}" for option, name in files.items()]
        words += [f"--log-file={self.root}/log/munged.log", "--num-threads=2"]
        self._spawn("munged", ["munged", "--foreground", "--force", *words])
        # the socket is there a moment before munged answers, and slurmctld asks only once
        self.wait_for((folder / "s").exists, "munge socket")

    def stop_slurmdbd(self) -> None:
        self._end("slurmdbd")

    def start_slurmdbd(self) -> None:
        self._spawn("slurmdbd", ["slurmdbd", "-D"])

    def start_node(self, name: str) -> None:
        self._spawn(f"slurmd-{name}", ["slurmd", "-D", "-N", name])

    def stop_node(self, name: str) -> None:
        self._end(f"slurmd-{name}")

    def pid(self, name: str) -> int:
        """Process id of `slurmctld`, `munged` or `slurmd-NODE`."""
        return int((self.root / "pid" / f"{name}.pid").read_text())

    # -- work ---------------------------------------------------------------------------------

    def run(
        self, *argv: str, text: str | None = None, check: bool = True, timeout_s: float = PATIENCE_S
    ) -> str:
        """Run one Slurm command; its standard output (and its error when check is False)."""
        done = subprocess.run(
            argv,
            input=text,
            env=self.environ(),
            cwd=self.root,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
        if check and done.returncode != 0:
            raise LabError(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout if check else done.stdout + done.stderr

    def sbatch(self, *options: str, wrap: str = "sleep 600") -> int:
        """Submit a job (output thrown away); its id."""
        printed = self.run(
            "sbatch", "--parsable", "--output=/dev/null", "--chdir=/", *options, f"--wrap={wrap}"
        )
        return int(printed.strip().split(";")[0])

    def runs(self, *options: str, **given: str) -> int:
        """The same, of one that runs now."""
        job = self.sbatch(*options, **given)
        self.wait_for(lambda: self.state(job) == "R", f"job {job} runs")
        return job

    def reconfigure(self, text: str | None = None) -> None:
        """Have slurm.conf read again, with this text. On 26.05 slurmctld starts again for it, and
        may be away; slurmd may still read, so the file is exchanged whole.
        """
        if text is not None:
            new = self.conf.with_suffix(".new")
            new.write_text(text)
            new.replace(self.conf)

        def taken() -> bool:
            return not self.run("scontrol", "reconfigure", check=False).strip()

        self.wait_for(taken, "slurmctld takes its configuration")
        self.wait_for(self.controller_up, "slurmctld answers")

    def scontrol(self, *words: str) -> str:
        return self.run("scontrol", *words)

    def state(self, job_id: int | str) -> str:
        """Slurm's compact state of a job (`PD`, `R` ...), empty once Slurm has forgotten it."""
        printed = self.run("squeue", "-h", "-t", "all", "-o", "%t", "-j", str(job_id), check=False)
        return "" if "rror" in printed else printed.strip().split("\n")[0]

    def clear(self) -> None:
        """Cancel every job and wait until none is left; all nodes back in service."""
        self.run("scancel", "--state=PENDING", "--user=root", check=False)
        ids = self.run("squeue", "-h", "-a", "-o", "%A").split()
        for start in range(0, len(ids), 200):
            self.run("scancel", "--signal=KILL", *ids[start : start + 200], check=False)
            self.run("scancel", *ids[start : start + 200], check=False)
        self.wait_for(lambda: not self.run("squeue", "-h", "-a").strip(), "an empty queue")
        for name in self.node_names:
            self.run("scontrol", "update", f"NodeName={name}", "State=RESUME", check=False)

    def wait_for(self, seen: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> None:
        """Ask until it is so; LabError after `seconds`."""
        for _ in looks(seconds):
            if seen():
                return
            for name, child in self._children.items():
                if child.poll() is not None:
                    raise LabError(f"{name} ended with {child.returncode}\n{self._log_tail(name)}")
        raise LabError(f"not seen within {seconds:g} s: {what}\n{self._log_tail()}")

    def controller_up(self) -> bool:
        try:
            return " is UP" in self.run("scontrol", "ping", check=False, timeout_s=5)
        except subprocess.TimeoutExpired:
            return False

    # -- inside -------------------------------------------------------------------------------

    def _all_nodes_up(self) -> bool:
        states = self.run("sinfo", "-h", "-a", "-N", "-o", "%N %T", check=False).split("\n")
        seen = dict(line.split() for line in states if line.strip())
        return all(seen.get(name) in {"idle", "mixed", "allocated"} for name in self.node_names)

    def _prepare(self) -> None:
        for name in ("pid", "log", "state", "spool", "dev", "munge"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o755)
        (self.root / "munge").chmod(0o755)  # other users are clients too; the key is not theirs
        sock = (self.beside or self).root / "munge" / "s"
        if len(str(sock)) > 100:
            raise LabError(f"folder name too long for a socket: {self.root}")
        (self.root / "munge" / "key").write_bytes(os.urandom(128))
        (self.root / "munge" / "key").chmod(0o600)
        for index in range(max(sum(n for _, n in spec.gpu_types) for spec in self.nodes)):
            (self.root / "dev" / f"gpu{index}").touch()
        self.conf.write_text(self._slurm_conf(sock))
        (self.root / "gres.conf").write_text(self._gres_conf())
        if "slurm-wlm 22." not in (version := self.run("squeue", "--version")):
            # newer daemons look for control groups even where nothing uses them
            plugin = "cgroup/v1" if "slurm-wlm 23." in version else "disabled"
            (self.root / "cgroup.conf").write_text(f"CgroupPlugin={plugin}\n")

    def _slurm_conf(self, sock: Path) -> str:
        ports = _free_ports(2 + len(self.node_names))
        host = self.host
        node_ports = dict(zip(self.node_names, ports[2:], strict=True))
        self._database = Accounting(self.root, ports[1], sock, host) if self.accounting else None
        if self.beside is not None:
            self._database = self.beside._database
        backup = (
            f"SlurmctldHost={BACKUP}(127.0.0.2)",
            "CommunicationParameters=NoCtldInAddrAny",
            "DebugFlags=NO_CONF_HASH",
        )
        gres = "gpu,shard" if any(spec.shards for spec in self.nodes) else "gpu"
        lines = [
            f"ClusterName={self.cluster}",
            f"SlurmctldHost={host}(127.0.0.1)",
            *(backup if self.backup else ()),
            *(self._database.slurm_conf() if self._database else ()),
            f"SlurmctldPort={ports[0]}",
            f"SlurmUser={self.slurm_user}",
            "SlurmdUser=root",
            "AuthType=auth/munge",
            f"AuthInfo=socket={sock}",
            f"StateSaveLocation={self.root}/state",
            f"SlurmdSpoolDir={self.root}/spool/%n",
            f"SlurmctldPidFile={self.root}/pid/slurmctld.own",
            f"SlurmdPidFile={self.root}/pid/slurmd-%n.own",
            f"SlurmctldLogFile={self.root}/log/slurmctld.log",
            f"SlurmdLogFile={self.root}/log/slurmd-%n.log",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "MpiDefault=none",
            "SwitchType=switch/none",
            "JobAcctGatherType=jobacct_gather/none",
            "ReturnToService=2",
            "SlurmdParameters=config_overrides",
            f"SlurmctldTimeout={FAILOVER_S if self.backup else 60}",
            "SlurmdTimeout=300",
            "MessageTimeout=10",
            "KillWait=1",
            "MinJobAge=5",
            "Licenses=matlab:2,foo:1",
            "SchedulerType=sched/backfill",
            f"SchedulerParameters={self.scheduler}",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core_Memory",
            "DefMemPerCPU=500",
            f"PriorityType={self.priority_type}",
            "PriorityWeightAge=10000",
            "PriorityMaxAge=1-0",
            "PriorityWeightJobSize=1000",
            "PriorityWeightPartition=1000",
            "PriorityCalcPeriod=1",
            f"GresTypes={gres}",
            *self.extra,
            *(self._node_line(s, n, host, node_ports[n]) for s in self.nodes for n in s.names),
            *self.partitions,
        ]
        return "\n".join(lines) + "\n"

    def _node_line(self, spec: NodeSpec, name: str, host: str, port: int) -> str:
        gres = ",".join(f"gpu:{kind}:{count}" for kind, count in spec.gpu_types)
        gres += f",shard:{spec.shards}" if spec.shards else ""
        feature = f" Feature={spec.features}" if spec.features else ""
        return (
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
            f"CPUs={spec.cpus} RealMemory={spec.mem_mib} Gres={gres}{feature}"
        )

    def _gres_conf(self) -> str:
        lines = []
        for spec in self.nodes:
            names = ",".join(spec.names)
            first = 0
            for kind, count in spec.gpu_types:
                files = f"{self.root}/dev/gpu[{first}-{first + count - 1}]"
                lines.append(f"NodeName={names} Name=gpu Type={kind} File={files}")
                first += count
            if spec.shards:
                lines.append(f"NodeName={names} Name=shard Count={spec.shards}")
        return "\n".join(lines) + "\n"

    def _start_accounting(self) -> None:
        if self._database is None:
            return
        if self.beside is None:
            self._database.prepare()
            self._database.start(self._spawn, self.wait_for)
        self.wait_for(
            lambda: "Cluster" in self.run("sacctmgr", "show", "cluster", check=False), "slurmdbd"
        )
        self.run("sacctmgr", "-i", "add", "cluster", self.cluster)

    def _spawn(self, name: str, argv: list[str]) -> None:
        program = shutil.which(argv[0], path=self.search)
        if program is None:
            raise LabError(f"{argv[0]} is not installed")
        # A test process that is killed outright takes its daemons with it.
        prefix = [] if self.keep else ["setpriv", "--pdeathsig", "TERM"]
        with (self.root / "log" / f"{name}.out").open("ab") as out:
            child = subprocess.Popen(
                [*prefix, program, *argv[1:]],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self.environ(),
                cwd=self.root,
                start_new_session=True,
            )
        self._children[name] = child
        (self.root / "pid" / f"{name}.pid").write_text(f"{child.pid}\n")

    def _end(self, name: str) -> None:
        file = self.root / "pid" / f"{name}.pid"
        child = self._children.pop(name, None)
        if not file.exists():
            return
        pid = int(file.read_text())
        file.unlink()
        if child is not None:
            child.terminate()
            try:
                child.wait(timeout=8)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait(timeout=8)
        elif self._is_ours(pid):  # of an earlier `up`: look for it until it has gone
            _signal(pid, signal.SIGTERM)
            end = time.monotonic() + 8
            while self._is_ours(pid) and time.monotonic() < end:  # a zombie has no environment left
                time.sleep(0.05)
            if self._is_ours(pid):
                _signal(pid, signal.SIGKILL)

    def _is_ours(self, pid: int) -> bool:
        """Whether the process carries this lab's SLURM_CONF: ids are re-used, names are shared."""
        return f"SLURM_CONF={self.conf}".encode() in _words(pid, "environ")

    def _end_strays(self) -> None:
        """Jobs outlive their slurmd: ours are those whose environment names our conf and a job.

        Newer slurmstepd wipe their environment; they are known by our log file, which they hold.
        """
        for entry in Path("/proc").iterdir():
            other = entry.name.isdigit() and int(entry.name) != os.getpid()
            if other and self._is_of_a_job(int(entry.name)):
                _signal(int(entry.name), signal.SIGKILL)

    def _is_of_a_job(self, pid: int) -> bool:
        """Whether it is a step or a job's own process; a person's shell may name our conf too."""
        is_step = _words(pid, "comm") == [b"slurmstepd\n"]
        jobs = [word for word in _words(pid, "environ") if word.startswith(b"SLURM_JOB_ID=")]
        if self._is_ours(pid):
            return bool(jobs) or is_step
        try:
            files = [fd.readlink() for fd in Path(f"/proc/{pid}/fd").iterdir()] if is_step else []
        except OSError:  # it ended while we looked
            return False
        return any(f"{self.root}/log/" in str(file) for file in files)

    def _log_tail(self, *names: str) -> str:
        """The ends of these daemons' logs; of the controllers' when none is named."""
        files = [
            self.root / "log" / f"{name}.{kind}"
            for name in names or ("slurmctld", "slurmctld-backup")
            for kind in ("log", "out")
        ]
        return "\n".join(
            f"{file.name}: {file.read_text(errors='replace')[-1500:]}"
            for file in files
            if file.exists()
        )


def missing() -> str:
    """Why this machine cannot run a lab; empty when it can."""
    if os.geteuid() != 0:
        return "a Slurm of our own needs root (slurmd starts jobs under user ids)"
    absent = [name for name in (*PROGRAMS, "setpriv") if shutil.which(name, path=SEARCH) is None]
    if absent:
        return f"not installed: {', '.join(absent)} (Debian: slurmctld slurmd slurm-client munge)"
    return ""


def _words(pid: int, name: str) -> list[bytes]:
    """Of a file of a process."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().split(b"\0")
    except OSError:  # it ended while we looked
        return []


def _free_ports(count: int) -> list[int]:
    holders = [socket.socket() for _ in range(count)]
    try:
        for holder in holders:
            holder.bind(("127.0.0.1", 0))
        return [int(holder.getsockname()[1]) for holder in holders]
    finally:
        for holder in holders:
            holder.close()


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def main(argv: Sequence[str] | None = None) -> int:
    """The command line of `make slurm-up` and `make slurm-down`."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab", description="A real Slurm of our own, for tests and tries."
    )
    parser.add_argument("verb", choices=["up", "down", "env"])
    parser.add_argument("--dir", type=Path, default=Path(".run/slurm"))
    given = parser.parse_args(argv)
    folder: Path = given.dir.resolve()
    it, out = SlurmLab(folder=folder, keep=True), sys.stdout.write
    usage = (
        f"export SLURM_CONF={folder / 'slurm.conf'}\n"
        "# then: sinfo -N -l; sbatch -n1 --gres=gpu:1 --wrap 'sleep 60'; squeue\n"
    )
    if given.verb == "up" and (why := missing()):
        sys.stderr.write(why + "\n")
        return 1
    if given.verb != "env":
        it.stop()
    if given.verb == "up":
        it.start()
    up = f"Slurm is up in {folder}: {', '.join(it.node_names)}\n{usage}"
    out({"up": up, "env": usage, "down": f"stopped the Slurm in {folder}\n"}[given.verb])
    return 0


if __name__ == "__main__":
    sys.exit(main())
