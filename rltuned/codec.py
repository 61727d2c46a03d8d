"""Snapshots as JSON and back, for the journal, for `plan --from` and for tests.

pydantic checks what comes in against the frozen dataclasses of the domain, whose own constructors
then check the rest, so a damaged file cannot become a snapshot.
"""

import hashlib
import json
import math
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from rltuned.domain.snapshot import Snapshot
from rltuned.errors import SnapshotError

_ADAPTER: Final = TypeAdapter(Snapshot)
_INFINITE: Final = {"unlimited": True}
"""Stands for infinity, which JSON lacks. No part of a snapshot and no user's text looks like it."""


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """One line of JSON with sorted keys: equal snapshots give equal bytes."""
    tree = _without_infinity(_ADAPTER.dump_python(snapshot, mode="python"))
    return json.dumps(tree, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def decode_snapshot(data: bytes) -> Snapshot:
    """The snapshot that was encoded.

    Raises:
        SnapshotError: not JSON, not a snapshot, or of another version; names the first bad field.
    """
    try:
        tree = json.loads(data)
        return _ADAPTER.validate_python(_with_infinity(tree))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise SnapshotError(f"snapshot field {where or '(whole)'}: {first['msg']}") from error
    except ValueError as error:
        raise SnapshotError(f"snapshot: {error}") from error


def digest(snapshot: Snapshot) -> str:
    """SHA-256 of the encoded snapshot."""
    return hashlib.sha256(encode_snapshot(snapshot)).hexdigest()


def _without_infinity(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_infinity(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinity(item) for item in value]
    return _INFINITE if value == math.inf else value


def _with_infinity(value: Any) -> Any:
    if value == _INFINITE:
        return math.inf
    if isinstance(value, dict):
        return {key: _with_infinity(item) for key, item in value.items()}
    return [_with_infinity(item) for item in value] if isinstance(value, list) else value
