"""A Debian 12 machine of our own: a root made by debootstrap, booted by systemd-nspawn.

The root is made once, under .run/roots, and never written to again: every machine lies on top of it
as an overlay. A machine has a network of its own with nothing but loopback, so no port of it meets
one of this computer's. It is stopped by the process id that we were given.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.programs import ran

ROOTS = Path(__file__).resolve().parents[2] / ".run" / "roots"
SUITE = "bookworm"
PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "procps", "iproute2", "curl", "sqlite3",
    "slurmctld", "slurmd", "slurm-client", "slurmdbd", "mariadb-server", "munge",
    "prometheus", "python3", "python3-venv", "python3-apt", "ansible-core",
    "python3-cffi-backend",  # ansible-core needs a name that it provides; debootstrap sees no such
    "man-db", "bash-completion", "zsh", "fish",
)  # fmt: skip
BOOT_S = 60.0
PATIENCE = 5.0
"""The bounds below are for a machine with nothing else to do; none of them is what is tested."""
ADDRESS = """\
[Unit]
Description=an address that is not 127/8, or getaddrinfo finds no address family in use
DefaultDependencies=no
Before=network-pre.target sysinit.target
[Service]
Type=oneshot
ExecStart=/usr/sbin/ip addr add 192.0.2.1/32 dev lo
"""
CLEAN = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/root"}


class MachineError(RuntimeError):
    """The machine could not be made or booted, or a command in it failed."""


def base_root() -> Path:
    """The root under all machines; made when it is not there (a few minutes)."""
    root = ROOTS / SUITE
    if (root / "made").exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    root.parent.mkdir(parents=True, exist_ok=True)
    _host(
        ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(root)],
        timeout_s=3600,
    )
    (root / "made").touch()
    return root


def _host(argv: list[str], *, timeout_s: float) -> str:
    done = ran(*argv, code=None, timeout=timeout_s)
    if done.returncode:
        raise MachineError(f"{' '.join(argv)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


@dataclass(frozen=True)
class Done:
    code: int
    text: str
    """Standard output and standard error, as they came."""


class Machine:
    """Boots on entry, powers off and leaves nothing on exit.

    Args:
        folder: an empty folder for the overlay; on a file system that can hold one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self._nspawn: subprocess.Popen[bytes] | None = None
        self._leader = 0

    def __enter__(self) -> Self:
        base = base_root()
        layers = {name: self.folder / name for name in ("upper", "work", "root")}
        for layer in layers.values():
            layer.mkdir()
        options = f"lowerdir={base},upperdir={layers['upper']},workdir={layers['work']}"
        _host(["mount", "-t", "overlay", "overlay", "-o", options, str(self.root)], timeout_s=30)
        try:
            self.write("/etc/systemd/system/address.service", ADDRESS)
            self.write(
                "/etc/systemd/system.conf.d/short.conf", "[Manager]\nDefaultTimeoutStopSec=10s\n"
            )
            wants = self.root / "etc/systemd/system/sysinit.target.wants"
            wants.mkdir(parents=True, exist_ok=True)
            (wants / "address.service").symlink_to("../address.service")
            self.boot()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.power_off()
        _host(["umount", str(self.root)], timeout_s=60)
        shutil.rmtree(self.folder / "upper")

    # -- power --------------------------------------------------------------------------------

    def boot(self) -> None:
        """Start it and wait until systemd says that it is up."""
        with (self.folder / "console.log").open("ab") as console:
            self._nspawn = subprocess.Popen(
                ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network",
                 "--boot", "-D", str(self.root)],
                stdin=subprocess.DEVNULL, stdout=console, stderr=console, env=CLEAN,
            )  # fmt: skip
        self.until(self._find_leader, BOOT_S, "systemd did not start")
        self.until(
            lambda: self.run("systemctl is-system-running").text.strip() in {"running", "degraded"},
            BOOT_S,
            "systemd did not finish booting",
        )

    def power_off(self) -> None:
        """As a person would: every service is stopped in order."""
        if self._nspawn is None:
            return
        if self._leader:
            os.kill(self._leader, signal.SIGRTMIN + 4)  # systemd: poweroff
        try:
            self._nspawn.wait(90 * PATIENCE)
        except subprocess.TimeoutExpired:
            self._nspawn.terminate()
            self._nspawn.wait(30)
        self._nspawn, self._leader = None, 0

    def _find_leader(self) -> bool:
        assert self._nspawn is not None
        if self._nspawn.poll() is not None:
            raise MachineError((self.folder / "console.log").read_text()[-2000:])
        pid = self._nspawn.pid
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if found and Path(f"/proc/{found[0]}/comm").read_text().strip() == "systemd":
            self._leader = int(found[0])
            return True
        return False

    # -- inside -------------------------------------------------------------------------------

    def run(self, command: str, *, user: str = "root", timeout_s: float = 120) -> Done:
        """A shell command line in the machine."""
        argv = ["nsenter", "-t", str(self._leader), "-a"]
        if user != "root":
            argv += ["runuser", "-u", user, "--"]
        done = subprocess.run(
            [*argv, "sh", "-c", command],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False, timeout=timeout_s * PATIENCE, env=CLEAN,
        )  # fmt: skip
        return Done(done.returncode, done.stdout)

    def do(self, command: str, *, user: str = "root", timeout_s: float = 120) -> str:
        """Like run(); a command that fails is an error."""
        done = self.run(command, user=user, timeout_s=timeout_s)
        if done.code:
            raise MachineError(f"{command}: exit {done.code}\n{done.text[-4000:]}")
        return done.text

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """A file of root's, its folders made."""
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)

    def copy(self, source: Path, path: str) -> None:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copy(source, target)

    def until(self, holds: Callable[[], bool], within_s: float, otherwise: str) -> None:
        """Wait until it holds."""
        end = time.monotonic() + within_s * PATIENCE
        while not holds():
            if time.monotonic() > end:
                raise MachineError(otherwise)
            time.sleep(0.2)
