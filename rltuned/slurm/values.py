"""Single values in Slurm's notations: amounts, memory, time limits, moments.

Every parser either understands the whole text or raises ValueError with the text in it. Absent
values ("N/A", "(null)", empty ...) are recognised in one place, `absent`.
"""

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from rltuned.domain.cluster import Resources
from rltuned.domain.units import UnixTime

_ABSENT: Final = frozenset(
    {"", "(null)", "n/a", "none", "null", "unknown", "not_set", "none assigned"}
)
_SCALE: Final = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}
_AMOUNT: Final = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,6}))?([KMGTP]?)")
_NUMBER: Final = re.compile(r"-?[0-9]{1,10}")
_MOST: Final = 10**12
"""A larger amount is none of a job or node; so many of them add up in 64 bits for all jobs."""
_SHORT: Final = 9
"""So many digits are certainly below 2**32."""
_EPOCH_DIGITS: Final = 11
LONGER_THAN_A_YEAR: Final = "invalid"
"""What squeue and sacct print for a time limit of more than 365 days."""
_WHOLE: Final = re.compile(r"(?:^|=)(\d+)")
SHOWN: Final = 40
"""Characters of a wrong value that a message says again."""
_CLOCK: Final = re.compile(r"(?:([0-9]{1,9})-)?([0-9]{1,9}(?::[0-9]{1,9}){0,2})")


@lru_cache(maxsize=1024)  # asked for ten values of every job, and most jobs say the same words
def absent(text: str) -> bool:
    """Whether Slurm says that there is no value."""
    return text.strip().lower() in _ABSENT


def parse_number(text: str) -> int:
    """A whole number of at most 32 bits, as Slurm keeps priorities, site factors and nice."""
    if text.isascii() and text.isdigit() and len(text) <= _SHORT:
        return int(text)
    if _NUMBER.fullmatch(text) is None or abs(number := int(text)) >= 2**32:
        raise ValueError(f"{text[:40]!r} is no number of 32 bits")
    return number


def parse_numbers(texts: Sequence[str]) -> list[int]:
    """The same of several, which takes a third of the time."""
    together = "".join(texts)
    plain = together.isascii() and together.isdigit()
    if plain and all(texts) and max(map(len, texts)) <= _SHORT:
        return list(map(int, texts))
    return list(map(parse_number, texts))


@lru_cache(maxsize=1024)
def whole_numbers(text: str) -> tuple[int, ...]:
    """The numbers of "10" or "cpu=10,gres/gpu=5", fractions cut off; none where there are none."""
    return tuple(map(int, _WHOLE.findall(text)))


def is_amount(text: str) -> bool:
    """Whether parse_count would take it."""
    return _AMOUNT.fullmatch(text) is not None


def parse_count(text: str) -> int:
    """A number with an optional suffix: "2" is 2, "2K" is 2048. Rounded up."""
    return _amount(text, unit=1)


@lru_cache(maxsize=1024)
def parse_memory_mib(text: str) -> int:
    """Memory such as "500M", "62.50G", "4T"; a bare number is MiB. In MiB, rounded up."""
    bare = text[-1:].isdigit()
    return _amount(f"{text}M" if bare else text, unit=_SCALE["M"])


def _amount(text: str, unit: int) -> int:
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no amount")
    decimals = match[2] or ""
    scaled = int(match[1] + decimals) * _SCALE[match[3]]
    whole: int = 10 ** len(decimals)
    return -(-scaled // (unit * whole))


def resources_of(gpus: int, cpus: int, mem_mib: int) -> Resources:
    """Amounts that were read. Raises ValueError: no job or node has so much."""
    if max(gpus, cpus, mem_mib) > _MOST:
        raise ValueError(f"{gpus} GPUs, {cpus} CPUs and {mem_mib} MiB are too much")
    return Resources(gpus, cpus, mem_mib)


def parse_limit_s(text: str) -> float | None:
    """A limit in seconds; inf = UNLIMITED or INVALID (over a year); None = not set."""
    word = text.strip().lower()
    if word in {"unlimited", "infinite", LONGER_THAN_A_YEAR}:
        return math.inf
    if absent(word) or word == "partition_limit":
        return None
    match = _CLOCK.fullmatch(word)
    if match is None:
        raise ValueError(f"{text[:SHOWN]!r} is no time limit")
    parts = [int(p) for p in match[2].split(":")]
    if match[1] is not None:  # D-HH[:MM[:SS]]
        seconds = _seconds([*parts, 0, 0][:3]) + int(match[1]) * 86_400
    else:  # [[HH:]MM:]SS, and a bare number is minutes
        seconds = _seconds([0, 0, *parts][-3:]) if len(parts) > 1 else parts[0] * 60
    return float(seconds) if seconds > 0 else None


def asked_limit_s(text: str) -> float:
    """The limit that sbatch's --time gives a job, in seconds; inf = none. Zero is none, and seconds
    are rounded up to whole minutes. Raises ValueError: sbatch refuses it.
    """
    if text == "-1" or text.lower() in {"unlimited", "infinite"}:
        return math.inf
    clock = f"{text}0" if text.endswith("-") else text  # "2-" is two days
    if _CLOCK.fullmatch(clock) is None:
        raise ValueError(f"{text[:SHOWN]!r} is no time limit")
    seconds = parse_limit_s(clock)
    return math.inf if seconds is None else 60.0 * math.ceil(seconds / 60.0)


def _seconds(hms: Sequence[int]) -> int:
    return hms[0] * 3600 + hms[1] * 60 + hms[2]


@lru_cache(maxsize=16_384)  # most of a job's moments are one, and the same in the next look
def parse_epoch(text: str) -> UnixTime | None:
    """Unix seconds; None = Slurm does not know (yet)."""
    if text.isascii() and text.isdigit() and len(text) <= _EPOCH_DIGITS:
        return None if text == "0" else UnixTime(float(text))
    if absent(text):
        return None
    raise ValueError(f"{text[:40]!r} is no Unix time")
