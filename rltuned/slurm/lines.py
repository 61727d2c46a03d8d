"""The lines that scontrol receives: one job, one value, and nothing else."""

import re
from typing import Final

from rltuned.domain.address import ARGUMENT_LIMIT, is_address
from rltuned.domain.fields import FIELDS, NICE, RELEASE, Action, Field
from rltuned.slurm.talk import one_line


def _assignment(field: Field) -> str:
    values = "-?[0-9]{1,10}" if field.pattern is None else field.pattern.pattern
    return f"{field.argument}=(?:{values})"


_LINE: Final = re.compile(
    rf"release \S+|update JobId=\S+ (?:{'|'.join(_assignment(f) for f in FIELDS if f.argument)})"
)
"""All that scontrol receives from the daemon and from restore."""


def command_lines(action: Action, address: str) -> list[str]:
    """Scontrol's lines for one action. Raises ValueError: no job's address, or too long a line."""
    if not is_address(address):
        raise ValueError(f"{one_line(address, 60)!r} is no address of a job; nothing was sent")
    if action.field is RELEASE:
        lines = [f"release {address}"]
        lines += [f"update JobId={address} {NICE.argument}={action.nice}"] if action.nice else []
    else:
        lines = [f"update JobId={address} {action.field.argument}={action.new}"]
    if not all(_LINE.fullmatch(line) for line in lines):
        raise ValueError(f"{one_line(lines[0], 80)!r} is no line for scontrol; nothing was sent")
    if max(map(len, lines)) > ARGUMENT_LIMIT:
        raise ValueError("a list of tasks is too long for scontrol's arguments; nothing was sent")
    return lines
