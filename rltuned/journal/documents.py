"""Recipes and plans as the journal keeps them: text under its digest, and compressed JSON.

Apart from recipe.py, because the journal must open without numpy, and that imports it.
"""

import hashlib
import json
import zlib
from typing import Any

from rltuned.errors import JournalError

Document = dict[str, Any]
"""A JSON object."""


def digest_of(text: str) -> str:
    """SHA-256 of an encoded recipe."""
    return hashlib.sha256(text.encode()).hexdigest()


def pack_plan(document: Document) -> bytes:
    """Compressed JSON."""
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode())


def unpack_plan(body: bytes) -> Document:
    """The document that was packed.

    Raises:
        JournalError: it is damaged.
    """
    try:
        found = json.loads(zlib.decompress(body))
    except (zlib.error, ValueError) as error:
        raise JournalError(f"a plan in the journal cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise JournalError("a plan in the journal is no JSON object")
    return found
