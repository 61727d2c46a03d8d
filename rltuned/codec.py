"""Snapshots as JSON and back, for the journal, for replay and for tests.

pydantic checks what comes in against the frozen dataclasses of the domain, whose own constructors
then check the rest, so a damaged file cannot become a snapshot.
"""

import hashlib
from typing import Final

from pydantic import ConfigDict, TypeAdapter, ValidationError

from rltuned.domain.snapshot import Snapshot
from rltuned.errors import SnapshotError

# In a tuple of one, because a dataclass itself takes no configuration but inherits it. JSON has no
# infinity: numbers say "Infinity" as text, and texts stay what they are.
_ADAPTER: Final = TypeAdapter(tuple[Snapshot], config=ConfigDict(ser_json_inf_nan="strings"))


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """One line of JSON in the order of the fields: equal snapshots give equal bytes."""
    return _ADAPTER.dump_json((snapshot,))[1:-1]


def decode_snapshot(data: bytes) -> Snapshot:
    """The snapshot that was encoded.

    Raises:
        SnapshotError: not JSON, not a snapshot, or of another version; names the first bad field.
    """
    try:
        return _ADAPTER.validate_json(b"[%b]" % data)[0]
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        field = f" field {where}" if where else ""
        raise SnapshotError(f"snapshot{field}: {first['msg']}") from error


def digest_of(data: bytes) -> str:
    """SHA-256 of an encoded snapshot, by which the journal names it."""
    return hashlib.sha256(data).hexdigest()
