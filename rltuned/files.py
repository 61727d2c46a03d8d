"""Files and folders that are there whole or not at all, and others' files, read up to a bound."""

import errno
import glob
import gzip
import io
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final


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
    if path.is_fifo():
        raise OSError(errno.ESPIPE, "it is a pipe, which cannot be read twice", str(path))
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
