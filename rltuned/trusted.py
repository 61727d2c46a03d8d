"""Who can change what is read or run here: one rule for every file and folder.

A file or folder is trusted when it belongs to root or to the user who runs this process, and when
no other user may write to it. The process's own primary group may write: who is in it is the
administrator's choice. A folder of root's with the sticky bit (as /tmp) is trusted on the way to
what lies below it, because there no one can replace what belongs to another user.

A path is only as good as every folder and link that leads to it, so `flaws_on` looks at all of
them. docs/security.md lists what is looked at, and what follows.
"""

import os
import pwd
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

_MOST_LINKS: Final = 40
"""As many as Linux follows."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """Why a file or folder is not trusted. by_group: only its group can change it."""

    path: Path
    reason: str
    by_group: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def flaw_of(
    path: Path,
    status: os.stat_result,
    *,
    also: Collection[int] = (),
    passage: bool = False,
) -> Flaw | None:
    """What is wrong with one file or folder; None = it is trusted. status: of the open file where
    there is one. also: further user ids that may own it. passage: a folder on the way only.
    """
    if status.st_uid not in {0, os.geteuid(), *also}:
        return Flaw(
            path,
            f"belongs to uid {status.st_uid}; it must belong to root or to uid {os.geteuid()}, "
            f"which runs rltuned; fix with: chown root {path}",
        )
    if stat.S_ISLNK(status.st_mode):
        return None  # its mode says nothing; the folder that holds it is looked at
    mode = stat.S_IMODE(status.st_mode)
    fix = f"others may write to it (mode {mode:04o}); fix with: chmod go-w {path}"
    if passage and mode & stat.S_ISVTX:
        return None
    if mode & stat.S_IWOTH:
        return Flaw(path, fix)
    if mode & stat.S_IWGRP and status.st_gid != os.getegid():
        return Flaw(path, fix, by_group=True)
    return None


def read_trusted(
    path: Path, most_bytes: int, *, also: Collection[int] = (), follow: bool = False
) -> tuple[bytes, os.stat_result]:
    """The bytes of a plain file that no other user can write to, and its status. also: further user
    ids that may own it. follow: it may be a link. Raises OSError: strerror says why.
    """
    # without waiting: opening a named pipe would wait for a process that writes into it
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    with open(os.open(path, flags), "rb") as file:  # noqa: PTH123
        status = os.fstat(file.fileno())
        flaw = flaw_of(path, status, also=also)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "not a plain file")
        if flaw is not None:
            raise PermissionError(0, flaw.reason)
        if status.st_size > most_bytes:
            raise OSError(0, f"{status.st_size} bytes, at most {most_bytes}")
        return file.read(status.st_size), status


def read_secret(
    path: Path, most_bytes: int, *, also: Collection[int] = (), follow: bool = False
) -> bytes:
    """The same of a file that no other user can read either: a salt, a key. Raises OSError."""
    found, status = read_trusted(path, most_bytes, also=also, follow=follow)
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        reason = f"other users may read it (mode {mode:04o}); fix with: chmod 0600 {path}"
        raise PermissionError(0, reason)
    return found


def owner_of(folder: Path) -> tuple[int, ...]:
    """Who may own what lies there beside root and this user; empty = it cannot be looked at."""
    try:
        return () if os.geteuid() else (folder.stat().st_uid,)
    except OSError:
        return ()


@cache
def user_name(uid: int) -> str:
    """A user's name; one that has none is named by the number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def flaws_on(path: Path, *, also: Collection[int] = ()) -> tuple[Flaw, ...]:
    """What is wrong with a path and all that leads to it; of what is not there, with the last
    folder that is. Raises OSError: a folder cannot be looked at, or links form a circle.
    """
    steps = list(_steps(path))
    judged = (
        flaw_of(at, status, also=also, passage=number < len(steps) - 1)
        for number, (at, status) in enumerate(steps)
    )
    return tuple(flaw for flaw in judged if flaw is not None)


def _steps(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every folder and link that leads to a path, and what stands there; links are followed."""
    here, links = Path("/"), 0
    todo = list(reversed(path.absolute().parts[1:]))
    yield here, here.lstat()
    while todo:
        name = todo.pop()
        if name == "..":
            here = here.parent
            continue
        at = here / name
        try:
            status = at.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return
        if not stat.S_ISLNK(status.st_mode):
            here = at
            yield at, status
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(40, "too many symbolic links", str(path))
        yield at, status
        target = at.readlink()
        here = Path("/") if target.is_absolute() else here
        todo.extend(reversed(target.parts[1:] if target.is_absolute() else target.parts))
