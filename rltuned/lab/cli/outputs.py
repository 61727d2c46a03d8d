"""Where a command is to write: what cannot be written is found out before the work."""

from pathlib import Path

from rltuned.errors import TraceError


def check_file(path: Path | None) -> None:
    """Raises TraceError: there can be no such file. None = none is asked for."""
    if path is not None and path.is_dir():
        raise TraceError(f"{path}: cannot be written: it is a folder")
    if path is not None and not path.parent.is_dir():
        raise TraceError(f"{path}: cannot be written: no folder {path.parent}")


def check_folder(path: Path | None, *, new: bool = False) -> None:
    """Raises TraceError: there can be no such folder, or (new) there is one."""
    if path is None:
        return
    if new and path.exists():
        raise TraceError(f"{path}: exists already; remove it or choose another name")
    nearest = next(place for place in (path, *path.parents) if place.exists())
    if not nearest.is_dir():
        raise TraceError(f"{path}: cannot be made: {nearest} is no folder")


def write_text(path: Path, text: str) -> None:
    """Write a file. Raises TraceError."""
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise TraceError(f"{path}: cannot be written: {error.strerror}") from None
