"""Files and folders that are there whole or not at all; files also after the power has failed."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def write_whole(
    path: Path, data: bytes, mode: int = 0o600, prepare: Callable[[int], object] | None = None
) -> None:
    """Put a file in place of the last one, if there is one.

    Args:
        path: of the file. A link there is replaced, and not followed.
        data: what it holds.
        mode: its permissions, whatever the umask.
        prepare: takes the descriptor of the new file before anything is written.

    Raises OSError: it cannot be written; the last one is as it was.
    """
    # of this process alone, also where two machines share the folder
    made = path.with_name(f".{path.name}-{os.uname().nodename}-{os.getpid()}")
    try:
        with suppress(FileNotFoundError):
            made.unlink()
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
    """A folder beside this place, moved there when the block has filled it; an empty one gives way.

    Raises OSError: it cannot be made or moved.
    """
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
    """What its entries say is on the disk when this returns.

    Raises OSError: the folder cannot be opened; a file system that cannot do it is no error.
    """
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # some network file systems refuse
            os.fsync(place)
    finally:
        os.close(place)
