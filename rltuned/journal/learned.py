"""What was learned of run times, in a file of its own beside the journal.

Losing it costs predictions for a while and nothing else, so it is no table of the journal: it is
large, written every few minutes, and belongs to no change.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from rltuned.durable import write_whole
from rltuned.errors import JournalError
from rltuned.journal.storage import hand_to_folder_owner
from rltuned.trusted import owner_of, read_trusted

FILE_NAME: Final = "run-times"
_MAGIC: Final = b"rltuned run times 1\n"
_DIGEST: Final = hashlib.sha256().digest_size
_MOST_BYTES: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Learned:
    """What it belongs to. salt: fingerprint. seen_at: Unix time of its last look."""

    cluster: str
    salt: str
    seen_at: float


_ADAPTER: Final = TypeAdapter(Learned)


def keep_learned(folder: Path, about: Learned, body: bytes) -> None:
    """Put a file in place of the last one, whole. Raises JournalError: it cannot be written."""
    path = folder / FILE_NAME
    content = json.dumps(asdict(about)).encode() + b"\n" + body
    try:
        owner = folder.stat()
        write_whole(
            path,
            _MAGIC + hashlib.sha256(content).digest() + content,
            prepare=lambda file: hand_to_folder_owner(file, owner),
        )
    except OSError as error:
        raise JournalError(f"{path}: cannot be written: {error.strerror}") from None


def read_learned(folder: Path) -> tuple[Learned, bytes] | None:
    """The last one; None = none. Raises JournalError: unreadable, untrusted or damaged."""
    path = folder / FILE_NAME
    try:
        data, _ = read_trusted(path, _MOST_BYTES, also=owner_of(folder))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise JournalError(f"{path}: cannot be read: {error.strerror}") from None
    start = len(_MAGIC) + _DIGEST
    content = data[start:]
    if not data.startswith(_MAGIC) or hashlib.sha256(content).digest() != data[len(_MAGIC) : start]:
        raise JournalError(f"{path}: is damaged, or of another release")
    about, _, body = content.partition(b"\n")
    try:
        return _ADAPTER.validate_json(about), body
    except ValidationError:
        raise JournalError(f"{path}: is of another release") from None
