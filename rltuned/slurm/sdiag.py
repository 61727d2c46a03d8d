"""How busy slurmctld says it is (`sdiag`), and from where on that is too busy for rltuned."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from rltuned.errors import SnapshotError

_SECONDS_PER_US: Final = 1e-6
_FIGURE: Final = re.compile(r"^\s*(?P<name>[A-Z][^:\n]*?)\s*:\s*(?P<value>\d+)\s*$", re.MULTILINE)
_RPC: Final = re.compile(r"\bcount:(?P<count>\d+)\s+ave_time:\d+\s+total_time:(?P<total>\d+)\s*$")
_PRINTED_AT: Final = re.compile(r"^sdiag output at .*\((?P<at>[0-9]{1,11})\)\s*$", re.MULTILINE)
_CONFIGURED_AT: Final = re.compile(
    r"Configuration data as of (?P<at>[0-9]{1,11})\s*$", re.MULTILINE
)
_COUNTED_AT: Final = re.compile(r"^Job states ts: .*\((?P<at>[0-9]{1,11})\)\s*$", re.MULTILINE)
APART_S: Final = 10.0
"""More jobs may end between sdiag and squeue than have ended in the second before a count."""
_BY_TYPE: Final = "Remote Procedure Call statistics by message type"
_BACKFILL: Final = "Backfilling stats"


class Figure(StrEnum):
    """What is compared with a bound."""

    SERVER_THREADS = "server_threads"
    AGENT_QUEUE = "agent_queue"
    DBD_QUEUE = "dbd_queue"
    RPC = "rpc_mean"
    BACKFILL = "backfill_cycle"


@dataclass(frozen=True, slots=True)
class Load:
    """One look at slurmctld's own statistics. server_threads: RPCs being served; Slurm's bound is
    256. agent_queue, dbd_queue: messages that wait. rpc_count, rpc_total_s: since the statistics
    began.

    backfill_s: of the last cycle; 0 before the first. rate_limited: how often rltuned's commands
    backed off since the last read. clock_off_s: seconds that slurmctld's clock is ahead of
    rltuned's; 0 = within a second; None = not known.
    """

    server_threads: int
    agent_queue: int
    dbd_queue: int
    rpc_count: int
    rpc_total_s: float
    backfill_s: float
    rate_limited: int = 0
    clock_off_s: float | None = None

    def rpc_mean_s(self, before: "Load | None") -> float | None:
        """Mean time of the RPCs answered since the look before; None = that is not known."""
        if before is None or self.rpc_count <= before.rpc_count:
            return None  # the first look, or the statistics began again
        spent_s = self.rpc_total_s - before.rpc_total_s
        return spent_s / (self.rpc_count - before.rpc_count) if spent_s >= 0 else None


@dataclass(frozen=True, slots=True)
class Bounds:
    """From where on slurmctld counts as busy, see Load; 0 = this figure does not count. rpc_s: mean
    time of the RPCs answered since rltuned's last look.
    """

    server_threads: int = 100
    agent_queue: int = 500
    dbd_queue: int = 5_000
    rpc_s: float = 0.5
    backfill_s: float = 120.0


def parse_sdiag(text: str) -> Load:
    """The load in sdiag's text, of 22.05 to 26.05. Raises SnapshotError: a figure is missing."""
    head, found, tail = text.partition(_BACKFILL)
    backfill, by_type, rpcs = tail.partition(_BY_TYPE)
    if not found or not by_type:
        raise SnapshotError(f"sdiag: no {_BY_TYPE if found else _BACKFILL!r} in the answer")
    figures = _figures(head)
    # up to the first blank line: the statistics by user count the same RPCs again
    lines = rpcs.strip("\n").split("\n\n", 1)[0].split("\n")
    counts = [m for line in lines if (m := _RPC.search(line))]
    try:
        return Load(
            server_threads=figures["Server thread count"],
            agent_queue=figures["Agent queue size"],
            dbd_queue=figures["DBD Agent queue size"],
            rpc_count=sum(int(m["count"]) for m in counts),
            rpc_total_s=sum(int(m["total"]) for m in counts) * _SECONDS_PER_US,
            backfill_s=_figures(backfill).get("Last cycle", 0) * _SECONDS_PER_US,
        )
    except KeyError as error:
        raise SnapshotError(f"sdiag: no {error} in the answer") from None


class JobCounts(NamedTuple):
    """How many jobs slurmctld counts, each task of an array as one. pending, running: at
    counted_at, in the last half minute. ended: since the statistics began, as of `at`. Unix
    seconds.
    """

    pending: int
    running: int
    ended: int
    counted_at: float
    at: float

    def before(self, looks: Iterable["JobCounts"]) -> "JobCounts | None":
        """The last of the looks that lies before this count, else the first; None = this look is
        the first.
        """
        earlier = sorted((one for one in looks if one.at < self.at), key=lambda one: one.at)
        found = [one for one in earlier if one.at < self.counted_at - APART_S]
        return found[-1] if found else next(iter(earlier), None)

    def lacking(self, before: "JobCounts | None", shown: int) -> str:
        """Why an answer is not whole; empty = that does not show. before: a look before this count,
        or none so long ago; None = there is none. shown: jobs in the answer that have not ended.
        """
        if before is None or before.ended > self.ended:
            return ""
        counted = self.pending + self.running
        # those that have ended since may still be in the count
        if shown >= counted - (self.ended - before.ended):
            return ""
        return f"slurmctld counts {counted} jobs that wait or run, and squeue shows {shown}"


def parse_counts(text: str) -> JobCounts | None:
    """The numbers of jobs in sdiag's text; None = they are not all there."""
    figures = _figures(text.partition(_BACKFILL)[0])
    counted, printed = _COUNTED_AT.search(text), _PRINTED_AT.search(text)
    if counted is None or printed is None:
        return None
    try:
        ended = sum(figures[f"Jobs {how}"] for how in ("completed", "canceled", "failed"))
        pending, running = figures["Jobs pending"], figures["Jobs running"]
    except KeyError:
        return None
    return JobCounts(pending, running, ended, float(counted["at"]), float(printed["at"]))


def clock_off_s(text: str, asked_at: float, answered_at: float) -> float | None:
    """How far slurmctld's clock is ahead of rltuned's: seconds; 0 = it may be the same; None = the
    answer bears no moment. text: of sdiag or of `scontrol show config`. asked_at, answered_at: Unix
    seconds by the clock here.
    """
    found = _PRINTED_AT.search(text) or _CONFIGURED_AT.match(text)
    if found is None:
        return None
    at = float(found["at"])  # the second that had begun
    return at - answered_at if at > answered_at else min(0.0, at + 1.0 - asked_at)


def _figures(text: str) -> dict[str, int]:
    return {m["name"]: int(m["value"]) for m in _FIGURE.finditer(text)}


def pressures(load: Load, rpc_mean_s: float | None, bounds: Bounds) -> dict[Figure, float]:
    """Each figure as a share of its bound; unknown ones and those that do not count left out."""
    figures = (
        (Figure.SERVER_THREADS, load.server_threads, bounds.server_threads),
        (Figure.AGENT_QUEUE, load.agent_queue, bounds.agent_queue),
        (Figure.DBD_QUEUE, load.dbd_queue, bounds.dbd_queue),
        (Figure.RPC, rpc_mean_s, bounds.rpc_s),
        (Figure.BACKFILL, load.backfill_s, bounds.backfill_s),
    )
    return {name: value / bound for name, value, bound in figures if value is not None and bound}
