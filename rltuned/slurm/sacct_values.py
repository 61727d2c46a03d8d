"""Values in a row of sacct: times, amounts, limits; and what makes a row unfit."""

import math
import re
from collections.abc import Mapping
from sys import intern
from typing import Final

from rltuned.slurm.sacct import ELAPSED
from rltuned.slurm.strings import Tasks, parse_tasks
from rltuned.slurm.values import absent, parse_limit_s

_NEVER: Final = frozenset({"CANCELLED", "DEADLINE", "FAILED", "REVOKED"})
"""How a job may end that never started."""
_OPEN: Final = frozenset({"PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "RESIZING", "COMPLETING"})
NUMBERS: Final = re.compile("[0-9]{1,18}")
_RAW: Final = re.compile("[0-9]{1,10}")
_NAMED: Final = re.compile(r"[0-9]{1,10}(_([0-9]{1,10}|\[.*\]))?(\+[0-9]{1,10})?")
_MINUTES: Final = re.compile("[0-9]{1,10}")
LATEST_S: Final = 1e11
"""The year 5138. A later time is none of sacct's."""
_CUT: Final = "..."
"""Where sacct cuts a list of tasks (SLURM_BITSTR_LEN)."""
NOT_ASKED: Final = "*"
"""What NodeList has where sacct was not asked for it."""


class LeaveOut(Exception):  # noqa: N818 - no error: a row that is left out, with its reason
    """Raised where it is found out; args[0] is the reason."""


def started_at(
    row: Mapping[str, str], state: str, start_s: float | None, end_s: float | None
) -> float | None:
    """When it started; None = it still waits. A job that ended waiting is left out."""
    placed = not absent(row["NodeList"]) or row["NodeList"] == NOT_ASKED
    if start_s is None or not placed:
        if state in _NEVER:
            raise LeaveOut("ended while it waited (cancelled, or never could start)")
        if state not in {"PENDING", ""}:
            raise LeaveOut(f"state {state} without a start")
        return None
    if end_s is None and state and state not in _OPEN:
        raise LeaveOut(f"state {state} without an end")
    if end_s is not None and end_s < start_s:
        raise LeaveOut("ends before it starts (clocks)")
    return start_s


def eligible_at(submit_s: float, eligible_s: float | None, start_s: float | None) -> float:
    """From when on it could start: dependencies, --begin and holds are over then."""
    known = submit_s if eligible_s is None else max(submit_s, eligible_s)
    return known if start_s is None else min(known, start_s)


def suspended_s_of(row: Mapping[str, str], start_s: float | None, end_s: float | None) -> float:
    """By how much sacct's elapsed time is shorter than that between start and end, or what it says
    of it itself; 0 where it says neither.
    """
    if start_s is None or end_s is None:
        return 0.0
    span_s, elapsed_s = end_s - start_s, elapsed_s_of(row)
    if elapsed_s is not None:
        return min(span_s, max(0.0, span_s - elapsed_s))
    return min(span_s, parse_limit_s(row.get("Suspended", "")) or 0.0)


def elapsed_s_of(row: Mapping[str, str]) -> float | None:
    """How long it has run, without suspensions; None = the source does not say."""
    elapsed = row.get(ELAPSED, "")
    if _RAW.fullmatch(elapsed):
        return float(elapsed)
    shown = row.get("Elapsed", "")
    return None if absent(shown) else parse_limit_s(shown) or 0.0


def check_key(key: str, *, raw: bool) -> None:
    """Raises ValueError: it is no job's number (raw), or no job as people name it."""
    if not (_RAW if raw else _NAMED).fullmatch(key):
        raise ValueError(f"{'JobIDRaw' if raw else 'JobID'} is no number")


def gpus_of(tres: Mapping[str, int]) -> int:
    """All GPUs of a TRES list, typed or not."""
    typed = sum(n for name, n in tres.items() if name.startswith("gres/gpu:"))
    return tres.get("gres/gpu", typed)


def types_of(tres: Mapping[str, int]) -> tuple[str, ...]:
    """The one type of GPU that a TRES list names; none where it names none."""
    found = sorted(n.partition(":")[2] for n, v in tres.items() if v and n.startswith("gres/gpu:"))
    if len(found) > 1:
        raise LeaveOut("asks for several types of GPUs at once")
    return tuple(map(intern, found))


def limit_s_of(row: Mapping[str, str]) -> float:
    """The time limit in seconds; inf = none is known."""
    if "TimelimitRaw" not in row:
        known = parse_limit_s(row["Timelimit"])
        return math.inf if known is None else known
    text = row["TimelimitRaw"]
    if text in {"UNLIMITED", "Partition_Limit", "INVALID", ""}:
        return math.inf
    if not _MINUTES.fullmatch(text):
        raise ValueError("TimelimitRaw is no number of minutes")
    return max(60.0, 60.0 * int(text))


def priority_of(text: str) -> int | None:
    """A priority; None = none is recorded."""
    return int(text) if text.isascii() and text.isdigit() and int(text) else None


def waiting_tasks(job_id: str) -> list[Tasks]:
    """Of an array that waits undivided, `17_[1-5]`; cut lists count as far as they go."""
    _, bracket, listed = job_id.partition("_[")
    found = list[Tasks]()
    for part in listed.rstrip("]").partition("%")[0].split(",") if bracket else ():
        if part.endswith(_CUT):
            break
        found.append(parse_tasks(part))
    return found
