"""Who asks: the user of a connection from this same machine, as its kernel knows it.

/proc/net/tcp shows the owner of each socket. Only a connection that stands counts: what is left of
a closed one belongs to uid 0 there.
"""

import os
import pwd
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED: Final = "01"
_NO_INODE: Final = "0"
_WORD: Final = 4


@dataclass(frozen=True, slots=True)
class Asker:
    """user: empty = not known. is_admin: root, or the daemon's own user. sees_all: or all are shown
    to all.
    """

    user: str = ""
    is_admin: bool = False
    sees_all: bool = False

    def sees(self, user: str) -> bool:
        """Whether it may see the jobs of a user."""
        return self.sees_all or bool(self.user and self.user == user)


def asker_of(connection: socket.socket, *, everyone: bool = False) -> Asker:
    """Who is at the other end. everyone: the settings show all jobs to all."""
    uid = None
    with suppress(OSError, ValueError):  # a kernel without the table knows no users
        uid = _owner(connection.getpeername()[:2], connection.getsockname()[1])
    name, is_admin = "", uid is not None and uid in {0, os.geteuid()}
    if uid is not None:
        with suppress(KeyError):
            name = pwd.getpwuid(uid).pw_name
    return Asker(name, is_admin, is_admin or everyone)


def _owner(client: tuple[str, int], port: int) -> int | None:
    """The uid of the socket that is connected from a client's address to this port."""
    address = client[0].removeprefix("::ffff:")  # of IPv4, as a socket for both shows it
    table = _TABLES[":" in address]
    wanted = f"{_in_table(address)}:{client[1]:04X}"
    for line in table.read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        _, local, remote, state, _, _, _, uid, _, inode = fields[:10]
        if (local, state) == (wanted, _ESTABLISHED) and remote.endswith(f":{port:04X}"):
            return None if inode == _NO_INODE else int(uid)
    return None


def _in_table(address: str) -> str:
    """An address as the table has it: words of the machine's byte order."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    raw = socket.inet_pton(family, address)
    words = (raw[at : at + _WORD] for at in range(0, len(raw), _WORD))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
