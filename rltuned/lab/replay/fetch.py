"""Public traces from where their authors publish them, checked by the checksum that they publish.

Listed are those whose repository states a SHA-256 (a Git LFS pointer). Nothing is kept of a file
that differs from it.
"""

import hashlib
import shutil
import tarfile
import urllib.request
import zlib
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, NamedTuple
from urllib.error import URLError

from rltuned.errors import TraceError

_CHUNK_BYTES: Final = 1 << 20
_TIMEOUT_S: Final = 60.0


class Archive(NamedTuple):
    """A file to fetch: tar.gz, its size and checksum, and the member that is kept of it."""

    url: str
    size_bytes: int
    sha256: str
    member: str


@dataclass(frozen=True, slots=True)
class TraceSource:
    """A public trace. convert: what `rltuned traces convert` then reads, and how."""

    archives: tuple[Archive, ...]
    licence: str
    paper: str
    convert: str


_PHILLY: Final = (
    "https://github.com/msr-fiddle/philly-traces/raw/9425c49842ff332bf748967fd7ff0ab64112ad10"
)
_PAI: Final = "https://aliopentrace.oss-cn-beijing.aliyuncs.com/v2020GPUTraces"
SOURCES: Final[Mapping[str, TraceSource]] = {
    "philly": TraceSource(
        archives=(
            Archive(
                f"{_PHILLY}/trace-data.tar.gz",
                1_055_988_361,
                "2037ccf63a725a02be718b0e1aeee6142c90b7f62d0d849295120e9f6ba13d2c",
                "cluster_job_log",
            ),
        ),
        licence="CC BY 4.0",
        paper="Jeon et al., ATC'19",
        convert="{folder}/cluster_job_log --from philly-log",
    ),
    "pai": TraceSource(
        archives=tuple(
            Archive(f"{_PAI}/pai_{table}.tar.gz", size_bytes, sha256, f"pai_{table}.csv")
            for table, size_bytes, sha256 in (
                (
                    "job_table",
                    62_065_432,
                    "5aad7f7caac501136d14ed6a48e40546f825d7b0617a3a4f337e2348fe0a6cb0",
                ),
                (
                    "task_table",
                    35_514_117,
                    "cd1d6dc3215d2a8607ccf6b6dd952b5db776df86926c73259fea7c1499ac40e5",
                ),
                (
                    "instance_table",
                    694_839_139,
                    "1bf1e423a7ce3f8d086699801c362fd56a7182abdb234139e5ebbed97995ca06",
                ),
            )
        ),
        licence="CC BY 4.0",
        paper="Weng et al., NSDI'22",
        convert="{folder} --from pai",
    ),
}
"""By name."""

Report = Callable[[str, float], None]
"""Takes the file at work and the part of it that is done."""


def fetch(source: TraceSource, folder: Path, report: Report, origin: Path | None = None) -> None:
    """Put a trace's missing files into a folder. origin: a folder with the archives; None = the
    net. Raises TraceError: an archive is missing, of another checksum, or lacks its member.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for archive in source.archives:
            if not (folder / archive.member).exists():
                _bring(archive, folder, report, origin)
    except OSError as error:
        raise TraceError(f"{error.filename or folder}: {error.strerror or error}") from error


def _bring(archive: Archive, folder: Path, report: Report, origin: Path | None) -> None:
    """The archive, and of it the one member, whatever folder it has inside."""
    name = archive.url.rpartition("/")[2]
    part, made = folder / f".{name}.part", folder / f".{archive.member}.part"
    try:
        with closing(_opened(archive.url, origin and origin / name)) as stored:
            _copy(archive, name, stored, part, report)
        with tarfile.open(part, "r:gz") as tar:
            members = (e for e in tar if e.isfile() and Path(e.name).name == archive.member)
            found = next(members, None)
            member = None if found is None else tar.extractfile(found)
            if member is None:
                raise TraceError(f"{name}: holds no {archive.member}")
            with made.open("wb") as into:
                shutil.copyfileobj(member, into, _CHUNK_BYTES)
        made.replace(folder / archive.member)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise TraceError(f"{name}: {error}") from error
    finally:
        part.unlink(missing_ok=True)
        made.unlink(missing_ok=True)


def _opened(url: str, path: Path | None) -> IO[bytes]:
    if path is not None:
        return path.open("rb")
    try:
        found: IO[bytes] = urllib.request.urlopen(url, timeout=_TIMEOUT_S)  # noqa: S310 - ours
    except URLError as error:
        why = f"{error.reason}; fetch it elsewhere, and name its folder by --from"
        raise TraceError(f"{url}: {why}") from error
    return found


def _copy(archive: Archive, name: str, stored: IO[bytes], to: Path, report: Report) -> None:
    """All bytes, refused unless they are those of the checksum."""
    digest, done = hashlib.sha256(), 0
    with to.open("wb") as into:
        while done <= archive.size_bytes and (chunk := stored.read(_CHUNK_BYTES)):
            digest.update(chunk)
            into.write(chunk)
            done += len(chunk)
            report(name, done / archive.size_bytes)
    if done != archive.size_bytes:
        size = "more" if done > archive.size_bytes else str(done)
        raise TraceError(f"{name}: {size} bytes, {archive.size_bytes} are published")
    if digest.hexdigest() != archive.sha256:
        raise TraceError(f"{name}: its SHA-256 is not the published {archive.sha256}")
