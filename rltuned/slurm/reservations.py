"""`scontrol -o show reservations` -> reservations."""

import math
import re
from collections.abc import Iterable
from typing import Final

from rltuned.domain.cluster import Reservation, Resources
from rltuned.domain.snapshot import Unreadable
from rltuned.domain.units import NodeName, UnixTime
from rltuned.slurm.strings import expand_hosts, parse_tres
from rltuned.slurm.values import absent, parse_epoch, resources_of
from rltuned.text import one_line

_NAME: Final = "ReservationName="
_NONE: Final = "No reservations in the system"
_FIELD: Final = re.compile(r"(?<!\S)([A-Za-z]+)=(\S*)")


def read_reservations(
    lines: Iterable[str],
) -> tuple[tuple[Reservation, ...], tuple[Unreadable, ...]]:
    """Those that keep nodes, and what cannot be read: a line costs its own reservation."""
    found: dict[str, Reservation] = {}
    bad: list[Unreadable] = []
    for line in lines:
        if not line.strip() or line.startswith(_NONE):
            continue
        shown = dict(reversed(_FIELD.findall(line)))  # of two the first: a comment stands last
        name = shown.get("ReservationName", "")
        try:
            if not line.startswith(_NAME) or not name or name in found:
                raise ValueError(f"{one_line(line, 120)!r} is no reservation")  # noqa: TRY301
            one = _reservation(name, shown)
        except (KeyError, ValueError) as error:
            why = f"no {error.args[0]}" if isinstance(error, KeyError) else str(error)
            bad.append(Unreadable("reservation", one_line(name, 40), why))
            continue
        if one.nodes:
            found[name] = one
    return tuple(found.values()), tuple(bad)


def _reservation(name: str, shown: dict[str, str]) -> Reservation:
    start, end = parse_epoch(shown["StartTime"]), parse_epoch(shown["EndTime"])
    if start is None:
        raise ValueError("no start")
    nodes = () if absent(shown["Nodes"]) else expand_hosts(shown["Nodes"])
    return Reservation(
        name=name,
        start_at=start,
        end_at=UnixTime(math.inf) if end is None else end,
        nodes=tuple(map(NodeName, nodes)),
        kept=_kept(shown["TRES"]),
        users=_listed(shown["Users"]),
        accounts=_listed(shown["Accounts"]),
        others=any(_listed(shown.get(key, "")) for key in ("Groups", "QOS", "AllowedPartitions")),
        flags=tuple(sorted(_listed(shown["Flags"].upper()))),
    )


def _kept(text: str) -> Resources | None:
    tres = {} if absent(text) else parse_tres(text)
    if "cpu" not in tres:
        return None
    typed = sum(count for name, count in tres.items() if name.startswith("gres/gpu:"))
    return resources_of(max(typed, tres.get("gres/gpu", 0)), tres["cpu"], 0)


def _listed(text: str) -> tuple[str, ...]:
    return () if absent(text) else tuple(text.split(","))
