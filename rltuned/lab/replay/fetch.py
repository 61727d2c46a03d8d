"""Public traces from where their authors publish them, checked by the checksum that they publish.

Listed are those whose repository states a SHA-256 (a Git LFS pointer). Nothing is kept of a file
that differs from it.
"""

import hashlib
import tarfile
import urllib.request
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final
from urllib.error import URLError

from rltuned.errors import TraceError

_CHUNK_BYTES: Final = 1 << 20
_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Archive:
    """A file to fetch: tar.gz, its size and checksum, and the member that is kept of it."""

    url: str
    size_bytes: int
    sha256: str
    member: str

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class TraceSource:
    """A public trace. convert: what `rltuned traces convert` then reads, and how."""

    archives: tuple[Archive, ...]
    licence: str
    paper: str
    convert: str

    @property
    def size_bytes(self) -> int:
        return sum(archive.size_bytes for archive in self.archives)


_PAI: Final = "https://aliopentrace.oss-cn-beijing.aliyuncs.com/v2020GPUTraces"
SOURCES: Final[Mapping[str, TraceSource]] = {
    "philly": TraceSource(
        archives=(
            Archive(
                "https://github.com/msr-fiddle/philly-traces/raw/"
                "9425c49842ff332bf748967fd7ff0ab64112ad10/trace-data.tar.gz",
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
            Archive(f"{_PAI}/{table}.tar.gz", size_bytes, sha256, f"{table}.csv")
            for table, size_bytes, sha256 in (
                (
                    "pai_job_table",
                    62_065_432,
                    "5aad7f7caac501136d14ed6a48e40546f825d7b0617a3a4f337e2348fe0a6cb0",
                ),
                (
                    "pai_task_table",
                    35_514_117,
                    "cd1d6dc3215d2a8607ccf6b6dd952b5db776df86926c73259fea7c1499ac40e5",
                ),
                (
                    "pai_instance_table",
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
        raise TraceError(f"{folder}: {error.strerror or error}") from error


def _bring(archive: Archive, folder: Path, report: Report, origin: Path | None) -> None:
    part = folder / f".{archive.name}.part"
    try:
        with part.open("wb") as into:
            if origin is None:
                _download(archive, into, report)
            else:
                with _stored(origin / archive.name) as stored:
                    _copy(archive, stored, into, report)
        _unpack(archive, part, folder)
    finally:
        part.unlink(missing_ok=True)


def _stored(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from error


def _download(archive: Archive, into: IO[bytes], report: Report) -> None:
    try:
        with urllib.request.urlopen(archive.url, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - ours
            _copy(archive, answer, into, report)
    except (URLError, ConnectionError, TimeoutError) as error:
        reason = getattr(error, "reason", None) or error
        raise TraceError(
            f"{archive.url}: {reason}; fetch it elsewhere, and name its folder by --from"
        ) from error


def _copy(archive: Archive, stored: IO[bytes], into: IO[bytes], report: Report) -> None:
    """All bytes, refused unless they are those of the checksum."""
    digest, done = hashlib.sha256(), 0
    while done <= archive.size_bytes and (chunk := stored.read(_CHUNK_BYTES)):
        digest.update(chunk)
        into.write(chunk)
        done += len(chunk)
        report(archive.name, done / archive.size_bytes)
    if done != archive.size_bytes:
        size = "more" if done > archive.size_bytes else str(done)
        raise TraceError(f"{archive.name}: {size} bytes, {archive.size_bytes} are published")
    if digest.hexdigest() != archive.sha256:
        raise TraceError(f"{archive.name}: its SHA-256 is not the published {archive.sha256}")


def _unpack(archive: Archive, packed: Path, folder: Path) -> None:
    """The one member, whatever folder it has inside; nothing else is written."""
    made = folder / f".{archive.member}.part"
    try:
        with tarfile.open(packed, "r:gz") as tar:
            for entry in tar:
                if entry.isfile() and Path(entry.name).name == archive.member:
                    _write(tar.extractfile(entry), made)
                    made.replace(folder / archive.member)
                    return
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise TraceError(f"{archive.name}: {error}") from error
    finally:
        made.unlink(missing_ok=True)
    raise TraceError(f"{archive.name}: holds no {archive.member}")


def _write(member: IO[bytes] | None, path: Path) -> None:
    if member is None:
        raise tarfile.TarError(f"{path.name} cannot be read")
    with path.open("wb") as file:
        while chunk := member.read(_CHUNK_BYTES):
            file.write(chunk)
