"""Histories of sacct that are saved: asked for in portions, kept in files, parted into cells.

A file may have a header row (then any order of columns) or none (then those of the documented
command). What `--collect` saves has a character between fields that stands in none. The documented
command has `|`, which may stand in a job's constraint, and in texts that a file of a person's own
has besides: a row with too many fields is parted from both ends.
"""

import errno
import gzip
import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, tzinfo
from functools import partial
from io import TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import Final

from rltuned.errors import TraceError
from rltuned.files import whole_folder
from rltuned.lab.backtest.site import CONFIG, HISTORY, NODES, PARTITIONS
from rltuned.lab.replay.trace_file import text_bytes
from rltuned.run import LINE_BYTES
from rltuned.settings.keys import SlurmKeys
from rltuned.slurm.accounting import COLUMNS, ELAPSED, Reading, SacctAnswer, ask_rows
from rltuned.slurm.columns import FIELD
from rltuned.slurm.run import Commands
from rltuned.slurm.site import parse_config

REQUIRED: Final = tuple(name for name in COLUMNS[:14] if name != ELAPSED)
"""Without these a backtest cannot be played; the others are reported as missing."""
_PORTION_S, _TIMEOUT_S = 86_400.0, 600.0
_PLAIN: Final = dict.fromkeys(map(ord, f"{FIELD}\n"), "?")
"""No text of a user's ends a field or a row of a file."""
Report = Callable[[str, float], None]
"""Called with what is being done, and how much of it is done, 0..1."""
_SAVE_IT: Final = f"sacct -a -X -D -P -o {','.join(COLUMNS)}"
_BAR: Final = "|"
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
"""Columns in which a bar may stand."""
_LOOKED_AT: Final = 1_000
"""So many lines may stand before the first that says what the columns are."""


def lines_of(path: Path) -> Iterator[str]:
    """Lines of a text file, plain or gzip, never all at once. Raises TraceError."""
    with (
        text_bytes(path) as raw,
        TextIOWrapper(raw, encoding="utf-8-sig", errors="backslashreplace") as file,
    ):
        while line := file.readline(LINE_BYTES + 1):
            if len(line) > LINE_BYTES:
                raise OSError(errno.EFBIG, f"a line of more than {LINE_BYTES} characters")
            yield line.rstrip("\n")


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
    rows = ((n, text) for n, text in enumerate(lines, 1) if text.strip())
    before, names = list[tuple[int, str]](), tuple[str, ...]()
    missing: tuple[str, ...] = ()
    for line, text in islice(rows, _LOOKED_AT):
        cells = _parted(text)
        bare = tuple(cell.strip() for cell in cells)
        if "JobIDRaw" in bare or "JobID" in bare:
            lacking = [c for c in required if not {c, STANDS_FOR.get(c, c)} & set(bare)]
            if lacking:
                raise TraceError(
                    f"{source}:{line}: header: no column {lacking[0]!r}; save it with: {_SAVE_IT}"
                )
            names, missing = bare, tuple(c for c in COLUMNS if c not in bare)
            break
        before.append((line, text))
        if len(bare) >= len(_OLDER) and bare[0].partition(".")[0].isdigit():
            missing = () if _is_newer(cells) else (ELAPSED,)
            break
    else:
        if not before:
            raise TraceError(f"{source}: empty; save it with: {_SAVE_IT}")
        raise TraceError(
            f"{source}:{before[0][0]}: no header of sacct, and not the {len(COLUMNS)} columns of: "
            f"{_SAVE_IT}"
        )
    reading = Reading(names or COLUMNS, zone, since, None)
    for line, text in chain(before, rows):
        reading.take(source, line, partial(_cells, text, names))
    return replace(reading.end(), missing=missing)


def _cells(text: str, names: tuple[str, ...]) -> list[str]:
    """The fields of a row, one for each name; none = those of the documented command. What is too
    much belongs to the texts among them. Raises ValueError.
    """
    cells = _parted(text)
    is_older = not names and not _is_newer(cells)
    names = _OLDER if is_older else names or COLUMNS
    at = [i for i, name in enumerate(names) if name in _TEXTS]
    if len(cells) > len(names) and not cells[-1] and set(at) <= {len(names) - 1}:
        cells = cells[:-1]  # --parsable ends a row with a bar
    more = len(cells) - len(names)
    if more > 0 and at and FIELD not in text:
        first, last = at[0], at[-1]
        if last - first == len(at) - 1:  # no other column between them
            between = _BAR.join(cells[first : last + more + 1])
            cells = [*cells[:first], between, *[""] * (last - first), *cells[last + more + 1 :]]
    if len(cells) != len(names):
        raise ValueError(f"{len(cells)} fields instead of {len(names)}")
    return [*cells[:_AT], "", *cells[_AT:]] if is_older else cells


def _parted(text: str) -> list[str]:
    return text.split(FIELD if FIELD in text else _BAR)


def _is_newer(cells: list[str]) -> bool:
    """Whether a row without a header has an elapsed time where an older one has its state."""
    return len(cells) > _AT and not cells[_AT].strip().strip("0123456789")


# -- The four files of a site, asked of the live Slurm and kept in a folder -----------------------


def ask_history(
    commands: Commands, since: float, until: float, report: Report = lambda _what, _part: None
) -> Iterator[str]:
    """Rows of COLUMNS, FIELD between their cells, a day at a time, some twice; Unix seconds.
    commands: with TZ=UTC, as sacct takes times for local ones. Raises BackendError: sacct failed,
    or too long an answer.
    """
    begin = since
    while begin < until:
        end = min(begin + _PORTION_S, until)
        for cells in ask_rows(commands, begin, end, COLUMNS):
            yield FIELD.join(cell.translate(_PLAIN) for cell in cells)
        begin = end
        report("asking sacct", (begin - since) / max(1.0, until - since))


def collect(
    slurm: SlurmKeys,
    folder: Path,
    since: float,
    until: float,
    report: Report,
    *,
    has_other: bool = False,
) -> str:
    """Save config, nodes, partitions and history in a new or empty folder, which appears when it is
    whole; what to warn of. since, until: Unix seconds. has_other: there is another source of the
    history, so one may be missing here.

    Raises BackendError: a command failed; TraceError: there is no accounting, or the folder cannot
    be written.
    """
    check_new(folder)
    # sacct takes the times that it is given for local ones, and prints epochs (slurm/run)
    cli = replace(slurm.cli(), timeout_s=_TIMEOUT_S)
    commands = Commands(cli, environ={**os.environ, "TZ": "UTC"})
    config = commands.ask("scontrol", "show", "config")
    known = parse_config(config)
    is_kept = known.get("AccountingStorageType", "") not in {"", "accounting_storage/none"}
    if not is_kept and not has_other:
        raise TraceError(
            "this Slurm keeps no history (AccountingStorageType is not slurmdbd): there is nothing "
            "to play; `rltuned run --dry-run` and `rltuned plan` show what would change now"
        )
    try:
        with whole_folder(folder) as place:
            (place / CONFIG).write_text(config, encoding="utf-8")
            for name, what in ((NODES, "node"), (PARTITIONS, "partition")):
                shown = commands.call("scontrol", "-o", "show", what).lines()
                with (place / name).open("w", encoding="utf-8") as out:
                    out.writelines(f"{line}\n" for line in shown)
            if is_kept:
                with gzip.open(place / f"{HISTORY}.gz", "wt", encoding="utf-8") as rows:
                    found = ask_history(commands, since, until, report)
                    rows.writelines(f"{row}\n" for row in found)
    except OSError as error:
        raise TraceError(f"{folder}: cannot be written: {error.strerror}") from error
    if not is_kept:
        return "this Slurm keeps no history: the daemon's journal alone is the record"
    private = known.get("PrivateData", "")
    return f"PrivateData={private}: sacct shows all to operators only" if "jobs" in private else ""


def history_file(site: Path) -> Path | None:
    """Sacct's rows in a folder; None = there are none."""
    files = (site / name for name in (HISTORY, f"{HISTORY}.gz"))
    return next((file for file in files if file.is_file()), None)


def saved_history(site: Path, since: float | None) -> SacctAnswer:
    """The history in a folder. since: see read_history. Raises TraceError."""
    if (rows := history_file(site)) is None:
        raise TraceError(f"{site}: neither {HISTORY} nor {HISTORY}.gz in it")
    since = -math.inf if since is None else since
    return read_history(lines_of(rows), str(rows), UTC, since=since)


def check_new(folder: Path) -> None:
    """Refuse a folder that holds something. Raises TraceError: it does, or it is none."""
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise TraceError(f"{folder}: is there already and not empty; choose another folder")
    except OSError as error:
        raise TraceError(f"{folder}: {error.strerror}") from error
