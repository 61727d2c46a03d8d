"""The files of a bundle: opened once, judged on the open descriptor, bounded by their headers.

How large something will be is read off headers (zip directory, npy, safetensors) before anything is
unpacked or built. Whatever goes wrong with a file is a ModelError that names it.
"""

import hashlib
import io
import json
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load

from rltuned.errors import ModelError
from rltuned.text import first_flaw
from rltuned.trusted import flaws_on, read_trusted

Part = TypeVar("Part", bound=BaseModel)

MAX_FILE_BYTES: Final = 64 * 1024 * 1024
MAX_CARD_BYTES: Final = 1024 * 1024
MAX_ARCHIVE_BYTES: Final = 8 * 1024 * 1024
"""Of an archive of arrays, packed and unpacked: a self-test needs no more."""
_MAX_HEADER_BYTES: Final = 64 * 1024
_MAX_MEMBERS: Final = 8
_END: Final = struct.Struct("<4s4H2LH")
"""Of a zip file without a comment; its fifth field counts the members."""

PARITY_TOLERANCE: Final = 1e-5
"""How far a network's answers may lie from those of its training; see unlike()."""


def unlike(found: NDArray[np.float32], wanted: NDArray[np.float32]) -> float:
    """The largest difference, as a part of the largest wanted value (of 1 if all are smaller)."""
    unit = max(1.0, float(np.abs(wanted).max(initial=0.0)))
    return float(np.abs(found - wanted).max(initial=0.0)) / unit


_DAMAGE: Final = (
    ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, RuntimeError, SyntaxError,
    TypeError, ValueError, struct.error, tokenize.TokenError, zipfile.BadZipFile,
    zipfile.LargeZipFile, zlib.error, SafetensorError,
)  # fmt: skip
"""What the readers of damaged JSON, archives, arrays and tensors raise."""


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Let nothing but a ModelError with this file out."""
    try:
        yield
    except ModelError:
        raise
    except OSError as error:
        raise ModelError(f"model {path}: {error.strerror or error}") from error
    except _DAMAGE as error:
        detail = " ".join(str(error).split()) or "cannot be read"
        raise ModelError(f"model {path}: {detail[:300]} ({type(error).__name__})") from error


def check_folder(bundle: Path) -> None:
    """Refuse a bundle that another user can change. Raises ModelError: names folder and user."""
    with named(bundle):
        # a group may share the folders above
        for flaw in flaws_on(bundle):
            if flaw.path == bundle or not flaw.by_group:
                raise ModelError(f"model {flaw}")


def read(path: Path, most_bytes: int = MAX_FILE_BYTES) -> bytes:
    """The bytes of a plain file that no other user can write to. Raises ModelError."""
    with named(path):
        return read_trusted(path, most_bytes, follow=True)[0]


def read_sealed(path: Path, digest: str | None, sealed_by: str) -> bytes:
    """The bytes of a file that must have this SHA-256; else, and as of `read`, a ModelError."""
    data = read(path)
    found = hashlib.sha256(data).hexdigest()
    if found != digest:
        raise ModelError(f"model {path}: SHA-256 {found[:12]}..., {sealed_by} {str(digest)[:12]}")
    return data


def parsed(kind: type[Part], path: Path, data: bytes) -> Part:
    """A file of JSON as its model; names the first wrong field in a ModelError."""
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        raise ModelError(f"model {path}: field {first_flaw(error)}") from error


def read_arrays(path: Path, data: bytes, *names: str) -> tuple[np.ndarray, ...]:
    """Arrays of an npz archive of MAX_ARCHIVE_BYTES at most. Raises ModelError."""
    found = read_archive(path, data)
    for name in names:
        if name not in found:
            raise ModelError(f"model {path}: has no {name}.npy")
    return tuple(found[name] for name in names)


def read_archive(
    path: Path, data: bytes, most_bytes: int = MAX_ARCHIVE_BYTES
) -> dict[str, np.ndarray]:
    """All arrays of an npz archive, by name; most_bytes: packed, and unpacked. Raises ModelError:
    it is damaged or larger; path is for messages.
    """
    with named(path):
        members = _END.unpack(data[-_END.size :])[4] if len(data) >= _END.size else 0
        if not data[-_END.size :].startswith(b"PK\x05\x06"):
            raise ValueError("not an archive of arrays")
        if len(data) > most_bytes or members > _MAX_MEMBERS:
            raise ValueError(f"{len(data)} bytes in {members} members are too many")
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            sizes = {info.filename: info.file_size for info in archive.infolist()}
            if sum(sizes.values()) > most_bytes:
                raise ValueError(f"unpacks to {sum(sizes.values())} bytes")
            return {
                name.removesuffix(".npy"): _array(archive, name, size)
                for name, size in sizes.items()
            }


def _array(archive: zipfile.ZipFile, name: str, size: int) -> np.ndarray:
    with archive.open(name) as member:
        # with a size, or zipfile unpacks all that the member holds, whatever the directory says
        file = io.BytesIO(member.read(size + 1))
    version = npy.read_magic(file)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"{name}: format {version}")
    shape, by_column, kind = readers[version](file)
    body = file.read()
    if kind.hasobject or any(n < 0 for n in shape):
        raise ValueError(f"{name}: holds {kind} of shape {shape}")
    if math.prod(shape) * kind.itemsize != len(body):
        raise ValueError(f"{name}: {len(body)} bytes are no {kind} of shape {shape}")
    return np.frombuffer(body, kind).reshape(shape, order="F" if by_column else "C").copy()


def read_tensors(
    path: Path, data: bytes, wanted: Mapping[str, tuple[int, ...]]
) -> dict[str, np.ndarray]:
    """The weights of a safetensors file: finite float32 of just these names and shapes; path is for
    messages. Raises ModelError: it is damaged, or holds others.
    """
    with named(path):
        promised = _promised(data)
        for name, (kind, shape) in promised.items():
            if name not in wanted:
                raise ValueError(f"unexpected tensor {name}")
            want = list(wanted[name])
            if kind != "F32" or shape != want or not all(type(n) is int for n in shape):
                raise ValueError(
                    f"tensor {name} is {kind!s:.40} {shape!s:.80}; card.json says F32 {want}"
                )
        lacking = sorted(wanted.keys() - promised.keys())
        if lacking:
            raise ValueError(f"missing tensors: {', '.join(lacking)}")
        found = load(data)
        for name, tensor in found.items():
            if not bool(np.isfinite(tensor).all()):
                raise ModelError(f"model {path}: tensor {name} is not finite float32")
        return {name: found[name] for name in wanted}


def _promised(data: bytes) -> dict[str, tuple[object, object]]:
    """Type and shape of every tensor, as the header says."""
    size = int.from_bytes(data[:8], "little")
    if not 0 < size <= min(_MAX_HEADER_BYTES, len(data) - 8):
        raise ValueError(f"a header of {size} bytes")
    header: Any = json.loads(data[8 : 8 + size])
    if not isinstance(header, dict):
        raise TypeError("the header is no table")
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    if not all(isinstance(entry, dict) for entry in entries.values()):
        raise TypeError("the header holds no tables")
    return {name: (entry.get("dtype"), entry.get("shape")) for name, entry in entries.items()}
