"""Histories of sacct that are saved: asked for in portions, kept in files, parted into cells.

A file may have a header row (then any order of columns) or none (then those of the documented
command). What `--collect` saves has a character between fields that stands in none. The documented
command has `|`, which may stand in a job's constraint, and in texts that a file of a person's own
has besides: a row with too many fields is parted from both ends.
"""

import errno
import gzip
import math
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import partial
from io import TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import Final

from rltuned.errors import TraceError
from rltuned.files import unpacked, whole_folder
from rltuned.lab.backtest.site import CONFIG, HISTORY, NODES, PARTITIONS
from rltuned.run import LINE_BYTES
from rltuned.slurm.accounting import COLUMNS, ELAPSED, Reading, SacctAnswer, ask_rows
from rltuned.slurm.columns import FIELD
from rltuned.slurm.run import Commands
from rltuned.slurm.site import parse_config

REQUIRED: Final = tuple(name for name in COLUMNS[:14] if name != ELAPSED)
"""Without these a backtest cannot be played; the others are reported as missing."""
PORTION_S: Final = 86_400.0
_PLAIN: Final = dict.fromkeys(map(ord, f"{FIELD}\n"), "?")
"""No text of a user's ends a field or a row of a file."""
Report = Callable[[float], None]
"""Called with how much of the time has been asked for, 0..1."""
FORMAT: Final = ",".join(COLUMNS)
SAVED: Final = f"sacct -a -X -D -P -o {FORMAT}"


def ask_history(
    commands: Commands, since: float, until: float, report: Report = lambda _part: None
) -> Iterator[str]:
    """Rows of COLUMNS, FIELD between their cells, a day at a time, some twice; Unix seconds.
    commands: with TZ=UTC, as sacct takes times for local ones. Raises BackendError: sacct failed,
    or too long an answer.
    """
    begin = since
    while begin < until:
        end = min(begin + PORTION_S, until)
        for cells in ask_rows(commands, begin, end, COLUMNS):
            yield FIELD.join(cell.translate(_PLAIN) for cell in cells)
        begin = end
        report((begin - since) / max(1.0, until - since))


def lines_of(path: Path) -> Iterator[str]:
    """Lines of a text file, plain or gzip, never all at once. Raises TraceError."""
    try:
        with (
            unpacked(path) as raw,
            TextIOWrapper(raw, encoding="utf-8-sig", errors="backslashreplace") as file,
        ):
            while line := file.readline(LINE_BYTES + 1):
                if len(line) > LINE_BYTES:
                    why = f"a line of more than {LINE_BYTES} characters"
                    raise OSError(errno.EFBIG, why)  # noqa: TRY301 - as all that is wrong with it
                yield line.rstrip("\n")
    except (OSError, EOFError, zlib.error) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise TraceError(f"{path}: cannot be read: {why}") from error


BAR: Final = "|"
_OLDER: Final = tuple(name for name in COLUMNS if name != ELAPSED)
"""Of the command that was documented before: rows without a header may have these."""
_AT: Final = COLUMNS.index(ELAPSED)
_SAME: Final = {"JobIDRaw": "JobID", "TimelimitRaw": "Timelimit"}
STANDS_FOR: Final = _SAME | {other: name for name, other in _SAME.items()}
"""Columns of which either will do."""
_TEXTS: Final = frozenset(
    {
        "Constraints", "JobName", "WorkDir", "SubmitLine", "Comment", "AdminComment",
        "SystemComment", "WCKey", "Extra", "Container", "StdErr", "StdIn", "StdOut",
    }
)  # fmt: skip
"""Columns in which a BAR may stand."""
_LOOKED_AT: Final = 1_000
"""So many lines may stand before the first that says what the columns are."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a source. has_header: they come from a header row. missing: of COLUMNS."""

    names: tuple[str, ...]
    has_header: bool
    missing: tuple[str, ...]

    def cells(self, text: str) -> list[str]:
        """The fields of a row, one for each name. Raises ValueError."""
        cells = _parted(text)
        if not self.has_header and not _is_newer(cells):
            found = _fitted(cells, _OLDER, text)
            return [*found[:_AT], "", *found[_AT:]]
        return _fitted(cells, self.names, text)


def read_columns(
    lines: Iterable[str], source: str, required: tuple[str, ...]
) -> tuple[Columns, Iterator[tuple[int, str]]]:
    """The columns, and all numbered rows without the header row. Raises TraceError: there are no
    rows, or the first rows are none of sacct's.
    """
    numbered = ((n, text) for n, text in enumerate(lines, 1) if text.strip())
    before: list[tuple[int, str]] = []
    for line, text in islice(numbered, _LOOKED_AT):
        columns = _columns(_parted(text), f"{source}:{line}", required)
        if columns is not None:
            first = [] if columns.has_header else [(line, text)]
            return columns, chain(before, first, numbered)
        before.append((line, text))
    if not before:
        raise TraceError(f"{source}: empty; save it with: {SAVED}")
    raise TraceError(
        f"{source}:{before[0][0]}: no header of sacct, and not the {len(COLUMNS)} columns of: "
        f"{SAVED}"
    )


def _columns(cells: list[str], where: str, required: tuple[str, ...]) -> Columns | None:
    """From a header row, or those of the documented command; None = the row is neither."""
    bare = tuple(c.strip() for c in cells)
    if "JobIDRaw" in bare or "JobID" in bare:
        missing = [c for c in required if not {c, STANDS_FOR.get(c, c)} & set(bare)]
        if missing:
            raise TraceError(f"{where}: header: no column {missing[0]!r}; save it with: {SAVED}")
        return Columns(bare, True, tuple(c for c in COLUMNS if c not in bare))
    if len(bare) >= len(_OLDER) and bare[0].partition(".")[0].isdigit():
        return Columns(COLUMNS, False, () if _is_newer(cells) else (ELAPSED,))
    return None


def _parted(text: str) -> list[str]:
    return text.split(FIELD if FIELD in text else BAR)


def _is_newer(cells: list[str]) -> bool:
    """Whether a row without a header has an elapsed time where an older one has its state."""
    return len(cells) > _AT and not cells[_AT].strip().strip("0123456789")


def _fitted(cells: list[str], names: tuple[str, ...], text: str) -> list[str]:
    """As many cells as names; what is too much belongs to the texts among them."""
    at = [i for i, name in enumerate(names) if name in _TEXTS]
    if len(cells) > len(names) and not cells[-1] and set(at) <= {len(names) - 1}:
        cells = cells[:-1]  # --parsable ends a row with a BAR
    more = len(cells) - len(names)
    if more > 0 and at and FIELD not in text:
        first, last = at[0], at[-1]
        if last - first == len(at) - 1:  # no other column between them
            between = BAR.join(cells[first : last + more + 1])
            cells = [*cells[:first], between, *[""] * (last - first), *cells[last + more + 1 :]]
    if len(cells) != len(names):
        raise ValueError(f"{len(cells)} fields instead of {len(names)}")
    return cells


def read_history(
    lines: Iterable[str],
    source: str,
    zone: tzinfo,
    *,
    since: float = -math.inf,
    required: tuple[str, ...] = REQUIRED,
) -> SacctAnswer:
    """Read a history.

    zone: of times that name none (epochs need none). since: records that ended before are left out.
    required: columns that a header row must name. JobID may stand for JobIDRaw, and Timelimit for
    TimelimitRaw. Raises TraceError: empty, the columns are others, or there are too many records.
    """
    columns, rows = read_columns(lines, source, required)
    reading = Reading(columns.names, zone, since, None)
    for line, text in rows:
        reading.take(source, line, partial(columns.cells, text))
    return replace(reading.end(), missing=columns.missing)


# Ask a live site for the four files of a backtest, and keep them in a folder.
#
# Nothing half-written: the folder appears when it is whole. sacct's rows are packed as they come.


PACKED: Final = f"{HISTORY}.gz"
SHOWN: Final = ((NODES, ("-o", "show", "node")), (PARTITIONS, ("-o", "show", "partition")))


def collect(
    commands: Commands,
    folder: Path,
    since: float,
    until: float,
    report: Report = lambda _part: None,
    *,
    has_other: bool = False,
) -> tuple[str, ...]:
    """Save config, nodes, partitions and history; what to warn of.

    commands needs TZ=UTC in its environment. folder: new, or empty. since, until: Unix seconds.
    has_other: there is another source of the history, so one may be missing here.

    Raises:
        BackendError: a command failed.
        TraceError: there is no accounting, or the folder cannot be written.
    """
    check_new(folder)
    config = commands.ask("scontrol", "show", "config")
    known = parse_config(config)
    storage = known.get("AccountingStorageType", "")
    is_kept = storage not in {"", "accounting_storage/none"}
    if not is_kept and not has_other:
        raise TraceError(
            "this Slurm keeps no history (AccountingStorageType is not slurmdbd): there is nothing "
            "to play; `rltuned run --dry-run` and `rltuned plan` show what would change now"
        )
    try:
        with whole_folder(folder) as place:
            (place / CONFIG).write_text(config, encoding="utf-8")
            for name, words in SHOWN:
                with (place / name).open("w", encoding="utf-8") as out:
                    shown = commands.call("scontrol", *words).lines()
                    out.writelines(f"{line}\n" for line in shown)
            if is_kept:
                with gzip.open(place / PACKED, "wt", encoding="utf-8") as rows:
                    found = ask_history(commands, since, until, report)
                    rows.writelines(f"{row}\n" for row in found)
    except OSError as error:
        raise TraceError(f"{folder}: cannot be written: {error.strerror}") from error
    if not is_kept:
        return ("this Slurm keeps no history: the daemon's journal alone is the record",)
    private = known.get("PrivateData", "none")
    if "jobs" in private:
        return (f"PrivateData={private}: sacct shows all jobs to operators only",)
    return ()


def check_new(folder: Path) -> None:
    """Refuse a folder that holds something. Raises TraceError: it does, or it is none."""
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise TraceError(f"{folder}: is there already and not empty; choose another folder")
    except OSError as error:
        raise TraceError(f"{folder}: {error.strerror}") from error
