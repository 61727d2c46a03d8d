"""Slurm's hostlists: "p[1-2,07],k1" stands for p1, p2, p07 and k1."""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

MAX_HOSTS: Final = 1_000_000
"""A hostlist that stands for more is a mistake or an attack."""
_PLAIN: Final = re.compile(r"[\w.-]+")
_RANGE: Final = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


def expand_hosts(text: str, *, most: int = MAX_HOSTS) -> tuple[str, ...]:
    """Names of a hostlist in its order; leading zeros are kept, several brackets multiply. Raises
    ValueError: it is malformed, or names more than `most`.
    """
    if _PLAIN.fullmatch(text):
        return (text,)
    names: list[str] = []
    for item in split_outside(text):
        names.extend(_expand_one(item, most))
        if len(names) > most:
            raise ValueError(f"hostlist of more than {most} names")
    return tuple(names)


def split_outside(text: str, brackets: str = "[]") -> Iterator[str]:
    """What stands between the commas outside brackets. Raises ValueError: they do not match."""
    inside, first = False, 0
    for at, sign in enumerate(text):
        if sign in brackets:
            if inside == (sign == brackets[0]):
                raise ValueError(f"hostlist or GRES {text[:200]!r}: brackets do not match")
            inside = not inside
        elif sign == "," and not inside:
            yield text[first:at]
            first = at + 1
    if inside:
        raise ValueError(f"hostlist or GRES {text[:200]!r}: brackets do not match")
    yield text[first:]


def _expand_one(item: str, most: int) -> Iterable[str]:
    if not item:
        raise ValueError("hostlist with an empty name")
    choices: list[Sequence[str]] = [
        _expand_ranges(part, most) if index % 2 else [part]
        for index, part in enumerate(re.split(r"\[([^\[\]]*)\]", item))
    ]
    if math.prod(len(c) for c in choices) > most:
        raise ValueError(f"hostlist of more than {most} names")
    return ("".join(combination) for combination in itertools.product(*choices))


def _expand_ranges(text: str, most: int) -> list[str]:
    numbers: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"hostlist: {part!r} is no range")
        low, high = match[1], match[2] or match[1]
        if int(high) < int(low) or int(high) - int(low) > most:
            raise ValueError(f"hostlist: range {part!r} is too long or runs backwards")
        numbers.extend(str(n).zfill(len(low)) for n in range(int(low), int(high) + 1))
    return numbers
