"""Text files and their rows: a row that cannot be read costs itself, and is named by its line."""

import codecs
import csv
import io
import math
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

from rltuned.durable import unpacked
from rltuned.errors import TraceError
from rltuned.sim.trace import Bad

UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
MOST_LINES: Final = 20
"""Of one row of a CSV."""
LATEST_S: Final = 1e11
"""The year 5138. A later time is in milliseconds, or is not a time."""


def read_text(path: Path) -> str:
    """A text file, plain or gzip. Bytes that are not UTF-8 appear as backslash escapes. Raises
    TraceError: it cannot be read.
    """
    try:
        with unpacked(path) as file:
            raw = file.read()
    except (OSError, EOFError, zlib.error) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise TraceError(f"{path}: cannot be read: {why}") from error
    if raw[:2] in UTF_16:
        raise TraceError(f"{path}: is UTF-16 text; `iconv -f UTF-16 -t UTF-8` makes UTF-8 of it")
    return raw.decode("utf-8-sig", "backslashreplace")


def lines_in(text: str) -> list[str]:
    """Its lines with their ends: a name may hold what other readers take for one."""
    return io.StringIO(text, newline="").readlines()


def csv_rows(lines: Iterable[str], first: int = 1) -> Iterator[tuple[int, list[str] | Bad]]:
    """Rows of a CSV with the lines at which they begin. A quoted cell may go over MOST_LINES lines;
    a quote that stays open, and a row that cannot be read, cost one line.
    """
    left = deque(enumerate(lines, first))
    while left:
        line, text = left.popleft()
        more, quotes = 0, text.count('"')
        while quotes % 2 and more < min(MOST_LINES, len(left)):
            quotes += left[more][1].count('"')
            more += 1
        if quotes % 2:
            more = 0
        try:
            rest = (following for _, following in islice(left, more))
            row = next(csv.reader([text, *rest], strict=True), [])
        except csv.Error as error:
            yield line, Bad(line, str(error))
            continue
        for _ in range(more):
            left.popleft()
        if row:
            yield line, row


SHOWN = 40
"""Characters of a cell that an error shows."""
Row = Mapping[str, str]
"""One row of a table, by column."""


def number(row: Row, name: str) -> float:
    """A finite number of a table. Raises ValueError: it is none."""
    try:
        value = float(row[name])
    except ValueError:
        raise ValueError(f"{name} is not a number: {row[name][:SHOWN]!r}") from None
    if not math.isfinite(value):
        raise ValueError(f"{name} is not a finite number: {row[name][:SHOWN]!r}")
    return value
