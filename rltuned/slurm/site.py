"""What slurmctld says of itself: its configuration, which of them acts, and how busy it is."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from rltuned.domain.priority import PrioritySystem
from rltuned.errors import BackendError, SnapshotError
from rltuned.slurm.run import Commands
from rltuned.slurm.values import absent, parse_limit_s, parse_number
from rltuned.text import one_line

BASIC: Final = "priority/basic"
MULTIFACTOR: Final = "priority/multifactor"
_WEIGHT: Final = "PriorityWeight"
_SLURMDBD: Final = "accounting_storage/slurmdbd"


@dataclass(frozen=True, slots=True)
class SlurmSite:
    """The settings that change what Slurm's answers mean. version: such as (22, 5). memory_counts:
    CR_*_Memory: a job's figure means something. increase_only: INCR_ONLY: no priority sinks.
    exclusive_partitions: where sinfo hides it (26.05). accounts: slurmdbd keeps ended jobs.
    hides_nodes: sinfo shows no cloud node that is powered down.
    """

    cluster: str
    version: tuple[int, int]
    priorities: PrioritySystem
    memory_counts: bool
    preemption: bool
    increase_only: bool = False
    exclusive_partitions: frozenset[str] = frozenset()
    accounts: bool = False
    hides_nodes: bool = False

    @property
    def multifactor(self) -> bool:
        """priority/multifactor runs, so sprio answers and SiteFactor has an effect."""
        return self.priorities.kind == "multifactor"


def parse_config(text: str) -> dict[str, str]:
    """The "Key = value" lines of `scontrol show config`; "(null)" becomes empty."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and key.strip() and not line.startswith(" "):
            found.setdefault(key.strip(), value.strip().replace("(null)", ""))
    return found


def read_site(config: Mapping[str, str]) -> SlurmSite:
    """The site behind a configuration. Raises SnapshotError: a key is missing or unfit."""
    release = release_of(_value(config, "SLURM_VERSION"))
    if release is None:
        raise SnapshotError(f"scontrol show config: version {config['SLURM_VERSION'][:40]!r}")
    return SlurmSite(
        cluster=_value(config, "ClusterName"),
        version=release,
        priorities=read_system(config),
        memory_counts="MEMORY" in _value(config, "SelectTypeParameters").upper(),
        preemption=_value(config, "PreemptType") not in {"", "preempt/none"},
        increase_only="INCR_ONLY" in config.get("PriorityFlags", "").upper().split(","),
        accounts=config.get("AccountingStorageType", "") == _SLURMDBD,
        hides_nodes=not absent(config.get("ResumeProgram", ""))
        and "cloud" not in config.get("PrivateData", "").split(","),
    )


def release_of(version: str) -> tuple[int, int] | None:
    """(22, 5) of "22.05.8"; None = no release."""
    found = re.match(r"([0-9]+)\.([0-9]+)(?:[.-]|$)", version)
    return (int(found[1]), int(found[2])) if found else None


def rate_limit(config: Mapping[str, str]) -> tuple[int, int] | None:
    """Slurmctld's limit per user (SlurmctldParameters=rl_enable, from 23.02 on): requests at once,
    and more in each second; None = there is none.
    """
    options = config.get("SlurmctldParameters", "").split(",")
    if "rl_enable" not in options or (release_of(config["SLURM_VERSION"]) or (0, 0)) < (23, 2):
        return None
    given = dict(option.split("=", 1) for option in options if "=" in option)
    # Slurm's own defaults
    return option_of(given, "rl_bucket_size") or 30, option_of(given, "rl_refill_rate") or 2


def option_of(options: Mapping[str, str], name: str, most: int = 10**6) -> int | None:
    """The value of an option that is set, from 1 to `most`."""
    text = options.get(name, "")
    return int(text) if text.isdecimal() and 0 < int(text) <= most else None


def weights_of(config: Mapping[str, str]) -> dict[str, str]:
    """By factor the weights that count: without slurmdbd those of age and fair share do not."""
    dead = set() if config.get("AccountingStorageType", "") == _SLURMDBD else {"Age", "FairShare"}
    weights = {k.removeprefix(_WEIGHT): v for k, v in config.items() if k.startswith(_WEIGHT)}
    return {name: v for name, v in weights.items() if v not in {"", "0"} and name not in dead}


def site_factor_plugin(config: Mapping[str, str]) -> str:
    """What sets site factors beside rltuned; empty = nothing."""
    plugin = config.get("PrioritySiteFactorPlugin", "")
    return "" if absent(plugin) or plugin.endswith("/none") else plugin


def read_system(config: Mapping[str, str]) -> PrioritySystem:
    """How slurmctld turns waiting into priority. Raises SnapshotError."""
    kind = _value(config, "PriorityType")
    if kind == BASIC:
        return PrioritySystem()
    if kind != MULTIFACTOR:
        raise SnapshotError(f"scontrol show config: PriorityType {kind[:60]!r} is not known")
    ages, key = config.get("AccountingStorageType", "") == _SLURMDBD, ""
    numbers: dict[str, float] = {}
    try:
        for key in (f"{_WEIGHT}Age", *([f"{_WEIGHT}FairShare"] if ages else [])):
            numbers[key] = parse_number(_value(config, key))
        for key in ("PriorityMaxAge", "PriorityCalcPeriod"):
            if (seconds := parse_limit_s(text := _value(config, key))) is None:
                raise ValueError(f"{text[:40]!r} is no time")  # noqa: TRY301 - as another text
            numbers[key] = seconds
        return PrioritySystem(
            kind="multifactor",
            ages=ages,
            age_weight=int(numbers[f"{_WEIGHT}Age"]),
            max_age_s=numbers["PriorityMaxAge"],
            calc_period_s=numbers["PriorityCalcPeriod"],
            fair_weight=int(numbers.get(f"{_WEIGHT}FairShare", 0)),
            site_factor_plugin=site_factor_plugin(config),
        )
    except ValueError as error:
        raise SnapshotError(f"scontrol show config: {key}: {error}") from None


def _value(config: Mapping[str, str], key: str) -> str:
    if key not in config:
        raise SnapshotError(f"scontrol show config: no {key} in the answer")
    return config[key]


_PING: Final = re.compile(r"^Slurmctld\([a-z]+\d*\) at (\S+) is (UP|DOWN)\s*$", re.MULTILINE)


def ask_controllers(commands: Commands) -> dict[str, bool]:
    """The controllers' hosts in the order of SlurmctldHost, and whether each answers. Raises
    BackendError: none does.
    """
    answer = commands.call("scontrol", "ping")  # ends with 1 when one of them is down
    if answer.failure:
        raise BackendError(answer.failure)
    found = {host: state == "UP" for host, state in _PING.findall(answer.stdout)}
    if not any(found.values()):
        message = one_line(answer.stdout) or one_line(answer.stderr) or "no message"
        raise BackendError(f"scontrol ping: no slurmctld answers: {message}")
    return found


def acting_host(found: Mapping[str, bool]) -> str:
    """Name of the host whose slurmctld acts: Slurm's own commands try in the same order. In a
    takeover by hand the primary does not answer; one that comes back acts as soon as it does.
    """
    return next(host for host, answers in found.items() if answers)


_FIGURE: Final = re.compile(r"^\s*(?P<name>[A-Z][^:\n]*?)\s*:\s*(?P<value>\d+)\s*$", re.MULTILINE)
_RPC: Final = re.compile(r"\bcount:(?P<count>\d+)\s+ave_time:\d+\s+total_time:(?P<total>\d+)\s*$")
_PRINTED_AT: Final = re.compile(r"^sdiag output at .*\(([0-9]{1,11})\)\s*$", re.MULTILINE)
_CONFIGURED_AT: Final = re.compile(r"Configuration data as of ([0-9]{1,11})\s*$", re.MULTILINE)
_COUNTED_AT: Final = re.compile(r"^Job states ts: .*\(([0-9]{1,11})\)\s*$", re.MULTILINE)
_BY_TYPE: Final = "Remote Procedure Call statistics by message type"
_BACKFILL: Final = "Backfilling stats"
APART_S: Final = 10.0
"""More jobs may end between sdiag and squeue than have ended in the second before a count."""


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
            rpc_total_s=sum(int(m["total"]) for m in counts) / 1e6,
            backfill_s=_figures(backfill).get("Last cycle", 0) / 1e6,
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

    def lacking(self, looks: Iterable["JobCounts"], shown: int) -> str:
        """Why an answer is not whole; empty = that does not show. looks: those before, in order; at
        the first one it is not known what has ended. shown: jobs in the answer that have not ended.
        """
        earlier = [one for one in looks if one.at < self.at]
        before = [one for one in earlier if one.at < self.counted_at - APART_S][-1:] or earlier[:1]
        if not before or before[0].ended > self.ended:  # or the statistics began again
            return ""
        counted = self.pending + self.running
        # those that have ended since may still be in the count
        if shown >= counted - (self.ended - before[0].ended):
            return ""
        return f"slurmctld counts {counted} jobs that wait or run, and squeue shows {shown}"


def parse_counts(text: str) -> JobCounts | None:
    """The numbers of jobs in sdiag's text; None = they are not all there."""
    figures = _figures(text.partition(_BACKFILL)[0])
    counted, printed = _COUNTED_AT.search(text), _PRINTED_AT.search(text)
    names = ("pending", "running", "completed", "canceled", "failed")
    found = [figures.get(f"Jobs {name}") for name in names]
    if counted is None or printed is None or None in found:
        return None
    pending, running, *ended = (number or 0 for number in found)
    return JobCounts(pending, running, sum(ended), float(counted[1]), float(printed[1]))


def clock_off_s(text: str, asked_at: float, answered_at: float) -> float | None:
    """How far slurmctld's clock is ahead of rltuned's: seconds; 0 = it may be the same; None = the
    answer bears no moment. text: of sdiag or of `scontrol show config`. asked_at, answered_at: Unix
    seconds by the clock here.
    """
    found = _PRINTED_AT.search(text) or _CONFIGURED_AT.match(text)
    if found is None:
        return None
    at = float(found[1])  # the second that had begun
    return at - answered_at if at > answered_at else min(0.0, at + 1.0 - asked_at)


def _figures(text: str) -> dict[str, int]:
    return {m["name"]: int(m["value"]) for m in _FIGURE.finditer(text)}


CALM: Final = 0.5
"""At or below this share of every bound slurmctld counts as calm."""


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


@dataclass(frozen=True, slots=True)
class Weighed:
    """What one look came to. load: None = not known, and `unknown` says why. shares: each figure as
    a share of its bound. stretch: factor on the interval now.
    """

    load: Load | None
    shares: Mapping[Figure, float]
    stretch: float
    unknown: str = ""

    @property
    def busy(self) -> tuple[str, ...]:
        """The figures at or over their bounds, in words; not empty = leave slurmctld alone."""
        over = {figure: share for figure, share in self.shares.items() if share >= 1.0}
        return tuple(f"{figure} is {share:.1f} times its bound" for figure, share in over.items())


def next_stretch(stretch: float, pressure: float, most: float) -> float:
    """The factor on the interval after a look. pressure: the highest share of a bound. At a bound
    it doubles, and it is halved where all are calm: with the gap between it does not flutter.
    """
    factor = 2.0 if pressure >= 1.0 else 0.5 if pressure <= CALM else 1.0
    return min(max(stretch * factor, 1.0), most)


class Throttle:
    """Keeps the factor, and the last look, from cycle to cycle and over reloads."""

    def __init__(self) -> None:
        self.stretch = 1.0
        self._before: Load | None = None

    def weigh(self, ask: Callable[[], Load], bounds: Bounds, most: float) -> Weighed:
        """Look at the load. ask: its errors end here. most: largest factor, >= 1."""
        try:
            load = ask()
        except (BackendError, SnapshotError) as error:
            return Weighed(None, {}, self.stretch, str(error))
        shares = pressures(load, load.rpc_mean_s(self._before), bounds)
        self._before = load
        # a rate limit is about us alone: fewer cycles help, so it skips none
        pressure = max(shares.values(), default=0.0) if not load.rate_limited else 1.0
        self.stretch = next_stretch(self.stretch, pressure, most)
        return Weighed(load, shares, self.stretch)
