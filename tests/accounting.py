"""MariaDB and slurmdbd of a lab's own: users, admin levels, PrivateData. Only Slurm's own programs.

The database lies in the lab's folder and answers on a socket there, never on the network. The empty
one is made once for all labs of a test run, which copy it.
"""

import fcntl
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("mariadbd", "mariadb", "mariadb-install-db", "slurmdbd", "sacctmgr")
SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OPERATOR, PLAIN, OWNER, THIRD = "games", "news", "mail", "lp"
"""Users that every Debian has and that nobody uses: so no test has to make any."""
SHARED = "RLTUNED_TEST_SHARED"
"""Names a folder of one test run, which its processes share (tests/conftest.py)."""
NOTES = "notes.txt"
"""What the run's report has to say of that folder."""
_INSTALL_S = 120.0
_TRIES = 2
_AS_MYSQL = ("setpriv", "--reuid=mysql", "--regid=mysql", "--clear-groups")


def missing() -> str:
    """Why this machine cannot run an accounting database; empty when it can."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=SEARCH) is None]
    if absent:
        return f"not installed: {', '.join(absent)} (Debian: mariadb-server slurmdbd)"
    known = {entry.pw_name for entry in pwd.getpwall()}
    unknown = [user for user in (OPERATOR, PLAIN, OWNER, THIRD) if user not in known]
    return f"no such user here: {', '.join(unknown)}" if unknown else ""


def as_user(user: str) -> tuple[str, ...]:
    """What runs a command as this user; it may read every file, because a checkout may lie in
    root's home. Slurm only asks munge who it is, so it has no more rights there.
    """
    caps = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    return ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *caps)


class DatabaseError(RuntimeError):
    """MariaDB did not make an empty database."""


def copy_empty(target: Path) -> None:
    """Give `target` an empty database, made by the first process of the run that asks.

    Raises:
        DatabaseError: neither try made one. It has what the program printed and what is free.
    """
    if SHARED not in os.environ:
        _install(target)
        return
    shared = Path(os.environ[SHARED])
    made = shared / "database"
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            first = _install(shared / "making")
            (shared / "making").rename(made)
            if first:
                (shared / NOTES).write_text(f"MariaDB was installed at the second try: {first}\n")
    subprocess.run(["cp", "-a", made, target], check=True, timeout=_INSTALL_S)


def _install(target: Path) -> str:
    """Make an empty database in this folder; how the first try failed, empty when it did not."""
    failures: list[str] = []
    for _ in range(_TRIES):
        shutil.rmtree(target, ignore_errors=True)
        failure = _failure(target)
        if not failure:
            return "".join(failures)
        failures.append(failure)
    raise DatabaseError("\n".join(failures))


def _failure(target: Path) -> str:
    program = shutil.which("mariadb-install-db", path=SEARCH)
    if program is None:
        raise DatabaseError("mariadb-install-db is not installed")
    try:
        done = subprocess.run(
            [
                program,
                "--no-defaults",
                "--force",  # needs no names of hosts
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                f"--datadir={target}",
                "--user=mysql",
                *_SMALL,
            ],
            env={**os.environ, "PATH": SEARCH},
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=_INSTALL_S,
        )
    except subprocess.TimeoutExpired as slow:
        printed = (slow.stdout or b"").decode(errors="replace")  # bytes, whatever was asked for
        return f"mariadb-install-db took more than {_INSTALL_S:g} s; {_free(target)}\n{printed}"
    if done.returncode == 0:
        return ""
    return f"mariadb-install-db ended with {done.returncode}; {_free(target)}\n{done.stdout}"


def _free(target: Path) -> str:
    """What such a program runs out of."""
    folders = {str(target.parent), tempfile.gettempdir()}
    disks = [f"{shutil.disk_usage(name).free >> 20} MiB in {name}" for name in sorted(folders)]
    memory = Path("/proc/meminfo").read_text().splitlines()
    left = next(line.split()[1] for line in memory if line.startswith("MemAvailable:"))
    return f"free: {', '.join(disks)}, {int(left) >> 10} MiB of memory"


@dataclass(frozen=True)
class Accounting:
    """Where the database of one lab lies.

    Args:
        folder: the lab's; readable for the user mysql.
        port: of slurmdbd.
        munge: the lab's munge socket.
        host: name of this machine, as slurmdbd knows it.
    """

    folder: Path
    port: int
    munge: Path
    host: str

    @property
    def socket(self) -> Path:
        return self.folder / "db" / "s"

    @property
    def conf(self) -> Path:
        """slurmdbd looks for it beside slurm.conf."""
        return self.folder / "slurmdbd.conf"

    @property
    def environ(self) -> dict[str, str]:
        """What slurmdbd needs to find the socket."""
        return {"MYSQL_UNIX_PORT": str(self.socket)}

    def slurm_conf(self) -> tuple[str, ...]:
        """The lines of slurm.conf that lead to it."""
        return (
            "AccountingStorageType=accounting_storage/slurmdbd",
            "AccountingStorageHost=127.0.0.1",
            f"AccountingStoragePort={self.port}",
            f"AccountingStoragePass={self.munge}",
        )

    def prepare(self) -> None:
        """Make an empty database and the configuration."""
        place = self.folder / "db"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        shutil.chown(place, "mysql", "mysql")
        copy_empty(place / "data")
        self.conf.write_text(
            f"AuthType=auth/munge\nAuthInfo=socket={self.munge}\n"
            f"DbdHost={self.host}\nDbdAddr=127.0.0.1\nDbdPort={self.port}\n"
            f"SlurmUser=root\nLogFile={self.folder}/log/slurmdbd.log\n"
            f"PidFile={self.folder}/pid/slurmdbd.own\n"
            "StorageType=accounting_storage/mysql\nStorageHost=localhost\nStorageUser=root\n"
            "StorageLoc=slurm_acct_db\n"
        )
        self.conf.chmod(0o600)  # slurmdbd refuses any other mode

    def start(
        self,
        spawn: Callable[[str, list[str]], None],
        wait: Callable[[Callable[[], bool], str], None],
    ) -> None:
        """Start both daemons; `spawn` starts one by name and argv, `wait` asks until it is so."""
        place = self.folder / "db"
        spawn(
            "mariadbd",
            [
                *_AS_MYSQL,
                "mariadbd",
                "--no-defaults",
                f"--datadir={place}/data",
                f"--socket={self.socket}",
                f"--pid-file={place}/pid",
                "--skip-networking",
                *_SMALL,
            ],
        )
        wait(self.socket.exists, "the database's socket")
        spawn("slurmdbd", ["slurmdbd", "-D"])


_SMALL = (
    "--skip-log-bin",
    "--innodb-use-native-aio=0",  # a whole machine shares a limit of those
    "--innodb-log-file-size=4M",
    "--innodb-buffer-pool-size=32M",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-lock-wait-timeout=900",
)
