"""Files: those that are there whole or not at all, and those that nobody else can change."""

import errno
import glob
import gzip
import io
import os
import pwd
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Final

# Files and folders that are there whole or not at all, files also after the power has failed; and
# others' files, read up to a bound.


def write_whole(
    path: Path, data: bytes, mode: int = 0o600, prepare: Callable[[int], object] | None = None
) -> None:
    """Put a file in place of the last one, whole. A link there is replaced, and not followed. mode:
    whatever the umask. prepare: takes the new file's descriptor first. What killed processes of
    this machine left half written beside it is removed. Raises OSError.
    """
    # of this process alone, also where two machines share the folder
    stem = f".{path.name}-{os.uname().nodename}-"
    made = path.with_name(f"{stem}{os.getpid()}")
    try:
        for left in path.parent.glob(f"{glob.escape(stem)}*"):
            if left == made or not Path("/proc", left.name.removeprefix(stem)).exists():
                left.unlink(missing_ok=True)
        number = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        with os.fdopen(number, "wb") as file:
            os.fchmod(number, mode)
            if prepare is not None:
                prepare(number)
            file.write(data)
            file.flush()
            os.fsync(number)
        made.replace(path)
    except OSError:
        with suppress(OSError):
            made.unlink()
        raise
    sync_folder(path.parent)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A folder beside this place, moved there when the block has filled it. Raises OSError."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as work:
        made = Path(work, folder.name)
        made.mkdir()
        yield made
        if folder.exists():
            folder.rmdir()
        shutil.move(made, folder)
        folder.chmod(0o755)


def sync_folder(folder: Path) -> None:
    """Put a folder's entries on the disk, where the file system can. Raises OSError."""
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # some network file systems refuse
            os.fsync(place)
    finally:
        os.close(place)


MOST_TEXT_BYTES: Final = 512 * 1024**2
"""Of a file as it is unpacked: three million packed bytes can make three thousand million."""


@contextmanager
def unpacked(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, plain or gzip, never all at once. Raises OSError, EOFError, zlib.error:
    it is a device or cannot be read, or more than MOST_TEXT_BYTES come out of it.
    """
    refuse_device(path)
    with path.open("rb") as probe:
        packed = probe.read(2) == b"\x1f\x8b"
    opened: Callable[..., Any] = gzip.open if packed else open
    with opened(path, "rb") as file, io.BufferedReader(_Bounded(file)) as bounded:
        yield bounded


class _Bounded(io.RawIOBase):
    """Another file's bytes, up to the bound."""

    def __init__(self, file: io.BufferedIOBase) -> None:
        super().__init__()
        self._file = file
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        got = self._file.readinto(into)
        self._count += got
        if self._count > MOST_TEXT_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {MOST_TEXT_BYTES} bytes of text")
        return got


def refuse_device(path: Path) -> None:
    """Raise OSError for a device: some of them, as /dev/full, can be read without end."""
    mode = path.stat().st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise OSError(errno.ENXIO, "it is a device", str(path))


# Files that come with the program: beside a wheel's packages, or in the checkout.


PLACES: Final = (Path(sys.prefix, "share", "rltuned"), Path(__file__).resolve().parents[1])


def shared_files(folder: str, pattern: str) -> list[Path]:
    """Files of the first place that has any; empty = this installation lacks them."""
    return next((f for place in PLACES if (f := sorted((place / folder).glob(pattern)))), [])


# Who can change what is read or run here: one rule for every file and folder.
#
# A file or folder is trusted when it belongs to root or to the user who runs this process, and when
# no other user may write to it. The process's own primary group may write: who is in it is the
# administrator's choice. A folder of root's with the sticky bit (as /tmp) is trusted on the way to
# what lies below it, because there no one can replace what belongs to another user.
#
# A path is only as good as every folder and link that leads to it, so `flaws_on` looks at all of
# them. docs/security.md lists what is looked at, and what follows.


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
