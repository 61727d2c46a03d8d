"""Which slurmctld acts: the first, in the order of SlurmctldHost, that answers `scontrol ping`.

It is the one that Slurm's own commands reach, because they try in the same order. In a takeover
by hand the primary ends, so it does not answer; one that comes back acts as soon as it answers.
"""

import re
from dataclasses import dataclass
from typing import Final

from rltuned.errors import BackendError
from rltuned.slurm.commands import Commands
from rltuned.slurm.talk import one_line

_LINE: Final = re.compile(
    r"^Slurmctld\((?P<role>[a-z]+\d*)\) at (?P<host>\S+) is (?P<state>UP|DOWN)\s*$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Controller:
    """One line of `scontrol ping`. role: primary, backup, backup2 and so on."""

    role: str
    host: str
    up: bool


def parse_ping(text: str) -> tuple[Controller, ...]:
    """The controllers in the order of SlurmctldHost."""
    return tuple(Controller(m["role"], m["host"], m["state"] == "UP") for m in _LINE.finditer(text))


def ask_controllers(commands: Commands) -> tuple[Controller, ...]:
    """Every slurmctld, in order of SlurmctldHost. Raises BackendError: none answers."""
    answer = commands.call("scontrol", "ping")  # ends with 1 when one of them is down
    if answer.failure:
        raise BackendError(answer.failure)
    found = parse_ping(answer.stdout)
    if not any(c.up for c in found):
        message = one_line(answer.stdout) or one_line(answer.stderr) or "no message"
        raise BackendError(f"scontrol ping: no slurmctld answers: {message}")
    return found


def acting_host(found: tuple[Controller, ...]) -> str:
    """Name of the host whose slurmctld acts, as SlurmctldHost has it."""
    return next(c.host for c in found if c.up)
