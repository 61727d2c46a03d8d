"""What jobs are likened by besides their request: digests of the texts that users choose.

The readers of Slurm turn each text into a salted digest at once. No name, command, folder or submit
line is in a snapshot, in the journal, in a log line or in a metric.
"""

import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, get_args

KindName = Literal["name", "command", "work_dir", "submit_line"]
KIND_NAMES: Final[tuple[KindName, ...]] = get_args(KindName)
WIDTHS: Final = {"name": 128, "command": 256, "work_dir": 256, "submit_line": 256}
"""Bytes of a text that are read; the last CUT of them do not count."""
CUT: Final = 4
"""A character of UTF-8 that is cut in the middle is no longer than this."""
SALT_BYTES: Final = 32
_WORDS: Final = 6
"""Of a submit line, the command included."""
_CACHED: Final = 16_384
_NUMBERS: Final = re.compile(r"[0-9]+")
_ABSENT: Final = frozenset({"", "(null)"})


@dataclass(frozen=True, slots=True)
class Kinds:
    """Salted digests of 64 bits with a sign; 0 = not known, or switched off. name, submit_line:
    without digits. command: path of the script, or the program. submit_line: sacct alone shows it.
    """

    name: int = 0
    command: int = 0
    work_dir: int = 0
    submit_line: int = 0


NO_KINDS: Final = Kinds()


class Digester:
    """Makes kinds of texts; under one salt of SALT_BYTES equal texts have equal digests. wanted:
    which texts count; the others stay 0. Raises ValueError: the salt has another length.
    """

    def __init__(self, salt: bytes, wanted: Collection[KindName] = KIND_NAMES) -> None:
        if len(salt) != SALT_BYTES:
            raise ValueError(f"a salt has {SALT_BYTES} bytes, not {len(salt)}")
        self._salt = salt
        self.wanted = tuple(name for name in KIND_NAMES if name in wanted)
        self.kinds = lru_cache(maxsize=_CACHED)(self._kinds)
        """(names, *texts) -> the kinds of a job with these texts; equal ones are one object."""

    def _kinds(self, names: tuple[KindName, ...], *texts: str) -> Kinds:
        found = zip(names, texts, strict=True)
        return Kinds(**{kind: self._digest(kind, text) for kind, text in found})

    def _digest(self, kind: KindName, text: str) -> int:
        plain = _plain(kind, text)
        if not plain:
            return 0
        made = hashlib.blake2b(
            plain.encode("utf-8", "backslashreplace"),
            digest_size=8,
            key=self._salt,
            person=kind.encode(),
        )
        return int.from_bytes(made.digest(), "big", signed=True) or 1


def _plain(kind: KindName, text: str) -> str:
    """What of a text counts; empty = nothing is known."""
    text = text.strip()
    words = text.split(" ") if kind in {"command", "submit_line"} else [text]
    some = " ".join(words[: _WORDS if kind == "submit_line" else 1])
    raw = some.encode("utf-8", "backslashreplace")[: WIDTHS[kind] - CUT]
    found = raw.decode("utf-8", "ignore").strip()
    if found in _ABSENT:
        return ""
    found = found.replace('"', "`")  # as slurmdbd keeps it
    return _NUMBERS.sub("", found) if kind in {"name", "submit_line"} else found
