"""MariaDB and slurmdbd of a lab's own: users, admin levels, PrivateData. Only Slurm's own programs.

The database lies in the lab's folder and answers on a socket there, never on the network.
"""

import os
import pwd
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("mariadbd", "mariadb", "mariadb-install-db", "slurmdbd", "sacctmgr")
SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OPERATOR, PLAIN, OWNER = "games", "news", "mail"
"""Users that every Debian has and that nobody uses: so no test has to make any."""
_INSTALL_S = 60.0
_AS_MYSQL = ("setpriv", "--reuid=mysql", "--regid=mysql", "--clear-groups")


def missing() -> str:
    """Why this machine cannot run an accounting database; empty when it can."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=SEARCH) is None]
    if absent:
        return f"not installed: {', '.join(absent)} (Debian: mariadb-server slurmdbd)"
    known = {entry.pw_name for entry in pwd.getpwall()}
    unknown = [user for user in (OPERATOR, PLAIN, OWNER) if user not in known]
    return f"no such user here: {', '.join(unknown)}" if unknown else ""


def as_user(user: str) -> tuple[str, ...]:
    """What runs a command as this user; it may read every file, because a checkout may lie in
    root's home. Slurm only asks munge who it is, so it has no more rights there.
    """
    caps = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    return ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *caps)


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
        subprocess.run(
            [
                "mariadb-install-db",
                "--no-defaults",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                f"--datadir={place}/data",
                "--user=mysql",
                *_SMALL,
            ],
            env={**os.environ, "PATH": SEARCH},
            check=True,
            capture_output=True,
            timeout=_INSTALL_S,
        )
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
    "--innodb-log-file-size=4M",
    "--innodb-buffer-pool-size=32M",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-lock-wait-timeout=900",
)
