"""The lines that scontrol receives: one job, one value, and nothing else."""

import re
from typing import Final, assert_never

from rltuned.domain import plan
from rltuned.domain.address import ARGUMENT_LIMIT, is_address
from rltuned.slurm.talk import one_line

_LINE: Final = re.compile(
    r"release \S+|update JobId=\S+ (?:(?:Priority|SiteFactor|Nice)=-?[0-9]{1,10}"
    r"|OverSubscribe=(?:YES|NO)|NumNodes=[0-9]{1,6}-[0-9]{1,6})"
)
"""All that scontrol receives from the daemon and from restore."""


def command_lines(action: plan.Action, address: str) -> list[str]:
    """Scontrol's lines for one action. Raises ValueError: no job's address, or too long a line."""
    if not is_address(address):
        raise ValueError(f"{one_line(address, 60)!r} is no address of a job; nothing was sent")
    if isinstance(action, plan.Release):
        lines = [f"release {address}"]
        lines += [f"update JobId={address} Nice={action.nice:d}"] if action.nice else []
    else:
        lines = [f"update JobId={address} {_assignment(action)}"]
    if not all(_LINE.fullmatch(line) for line in lines):
        raise ValueError(f"{one_line(lines[0], 80)!r} is no line for scontrol; nothing was sent")
    if max(map(len, lines)) > ARGUMENT_LIMIT:
        raise ValueError("a list of tasks is too long for scontrol's arguments; nothing was sent")
    return lines


def _assignment(
    action: plan.SetPriority
    | plan.SetSiteFactor
    | plan.SetNice
    | plan.SetOverSubscribe
    | plan.SetRequest,
) -> str:
    match action:
        case plan.SetNice():
            return f"Nice={action.new:d}"
        case plan.SetPriority():
            return f"Priority={action.new:d}"
        case plan.SetSiteFactor():
            return f"SiteFactor={action.new:d}"
        case plan.SetOverSubscribe():
            return f"OverSubscribe={action.new}"
        case plan.SetRequest():
            return f"NumNodes={action.new}"
        case _:
            assert_never(action)
