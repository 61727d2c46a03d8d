"""The fault file: what befalls nodes, and when.

CSV with the header `at_s,node,change`; change is fail, drain or resume; at_s is in the trace's
seconds; node may be a hostlist.
"""

import csv
import math
from pathlib import Path

from rltuned.domain.hostlist import expand_hosts
from rltuned.errors import TraceError
from rltuned.sim.world import Fault, NodeFault

HEADER = ["at_s", "node", "change"]


def read_faults(path: Path) -> tuple[Fault, ...]:
    """Read a fault file. Raises TraceError: names the file, the line and the field."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from error
    rows = list(csv.reader(lines))
    if not rows or [c.strip() for c in rows[0]] != HEADER:
        raise TraceError(f"{path}: the header must be {','.join(HEADER)}")
    faults: list[Fault] = []
    for number, row in enumerate(rows[1:], 2):
        if row:
            faults.extend(_faults(row, f"{path}:{number}"))
    return tuple(faults)


def _faults(row: list[str], where: str) -> list[Fault]:
    if len(row) != len(HEADER):
        raise TraceError(f"{where}: {len(row)} fields, the header has {len(HEADER)}")
    at, node, change = (cell.strip() for cell in row)
    try:
        at_s = float(at)
        faults = [Fault(at_s, name, NodeFault(change)) for name in expand_hosts(node)]
    except ValueError as error:
        raise TraceError(f"{where}: {error}") from error
    if not math.isfinite(at_s):
        raise TraceError(f"{where}: at_s is not a finite number: {at!r}")
    return faults
