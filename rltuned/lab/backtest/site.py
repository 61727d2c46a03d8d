"""A site's cluster and Slurm's own weights there, from what scontrol shows; and what is not played.

Four files in a folder, as `--collect` saves them: config.txt (`scontrol show config`), nodes.txt
(`scontrol -o show node`), partitions.txt (`scontrol -o show partition`), and sacct.txt, which may
end in .gz.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Final, Generic, NamedTuple, TypeVar

from rltuned.core.slurm_plan import Parameters, parameters_text, read_parameters
from rltuned.domain.cluster import GpuCount, Node, Partition, Resources
from rltuned.domain.units import GpuType, NodeName
from rltuned.errors import SnapshotError, TraceError
from rltuned.files import refuse_device
from rltuned.sim.cluster import Cluster
from rltuned.sim.dispatch import BackfillRule, Natural, Whole
from rltuned.sim.trace import TraceJob
from rltuned.slurm.accounting import SacctRecord
from rltuned.slurm.nodes import gpus_by_type, is_schedulable
from rltuned.slurm.site import SlurmSite, parse_config, read_site
from rltuned.slurm.values import absent, parse_gres, parse_limit_s, whole_numbers

# Nodes and partitions from `scontrol -o show node` and `show partition`, live or saved in a file.
#
# One line per record, or without -o several that begin with a space, `Key=value` with a space
# between; text that people write (Reason, Comment) stands behind what is read here, and of two keys
# of one name the first counts. A record that cannot be read costs itself.


T = TypeVar("T")

_FIELD: Final = re.compile(r"(?:^| )([A-Za-z_]+)=(\S*)")
_NEVER: Final = frozenset({"FUTURE"})
"""States of nodes that are not there yet."""


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record of a file that cannot be read. what: `node`, `partition`; line: where it begins."""

    source: str
    what: str
    line: int
    why: str


class _Kind(NamedTuple, Generic[T]):
    """What a file holds. first: the key with which a record begins."""

    source: str
    what: str
    first: str
    made_of: Callable[[dict[str, str]], T]


def read_nodes_shown(text: str, source: str, bad: list[BadRecord]) -> tuple[Node, ...]:
    """All nodes, idle, in the answer's order; schedulable is as now. bad: takes records that cannot
    be read. Raises SnapshotError: there is none that can.
    """
    return tuple(_read(text, _Kind(source, "node", "NodeName", _node), bad))


def read_partitions_shown(text: str, source: str, bad: list[BadRecord]) -> tuple[Partition, ...]:
    """All partitions, in the order of the answer. As read_nodes_shown."""
    return tuple(_read(text, _Kind(source, "partition", "PartitionName", _partition), bad))


def _read(text: str, kind: _Kind[T], bad: list[BadRecord]) -> Iterator[T]:
    names: set[str] = set()
    wrong: list[BadRecord] = []
    for number, record in _records(text):
        fields: dict[str, str] = {}
        for key, value in _FIELD.findall(record):
            fields.setdefault(key, value)
        if fields.get("State", "").split("+")[0].rstrip("*~#!%$@^-") in _NEVER:
            continue
        try:
            found = _made(record, fields, kind, names)
        except ValueError as error:
            wrong.append(BadRecord(kind.source, kind.what, number, str(error)))
        else:
            names.add(fields[kind.first])
            yield found
    bad += wrong
    if not names:
        first = f":{wrong[0].line}: {wrong[0].why}" if wrong else f": no {kind.what} in it"
        raise SnapshotError(f"{kind.source}{first}; save `scontrol -o show {kind.what}`")


def _made(record: str, fields: dict[str, str], kind: _Kind[T], names: set[str]) -> T:
    if not record.startswith(f"{kind.first}="):
        raise ValueError(f"does not begin with {kind.first}=: {record[:60]!r}")
    name = f"{kind.what} {fields[kind.first]}"
    if fields[kind.first] in names:
        raise ValueError(f"{name} stands twice")
    try:
        return kind.made_of(fields)
    except KeyError as error:
        raise ValueError(f"{name}: no {error}") from None
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _records(text: str) -> Iterator[tuple[int, str]]:
    """Each record in one line, and where it begins."""
    held: list[str] = []
    at = 0
    for number, line in enumerate(text.splitlines(), 1):
        if held and line[:1] in {" ", "\t"}:
            held.append(line.strip())
            continue
        if held:
            yield at, " ".join(held)
        held, at = [line] if line.strip() else [], number
    if held:
        yield at, " ".join(held)


def _node(fields: dict[str, str]) -> Node:
    counts = gpus_by_type(parse_gres(fields.get("Gres", "")))
    gpus = tuple(GpuCount(GpuType(kind), n, n) for kind, n in counts.items())
    # without what jobs do not get: CoreSpecCount, MemSpecLimit
    cpus, memory = int(fields.get("CPUEfctv", fields["CPUTot"])), int(fields["RealMemory"])
    memory -= min(memory, int(fields.get("MemSpecLimit", "0")))
    total = Resources(sum(counts.values()), cpus, memory)
    named = fields.get("Partitions", "")
    state = fields["State"]
    return Node(
        name=NodeName(fields["NodeName"]),
        gpus=gpus,
        total=total,
        free=total,
        schedulable=is_schedulable(state),
        partitions=() if absent(named) else tuple(sorted(named.split(","))),
        state=state,
    )


def _partition(fields: dict[str, str]) -> Partition:
    whole = fields.get("Exclusive", "").upper() in {"NODE", "YES"}
    return Partition(
        name=fields["PartitionName"],
        default=fields.get("Default", "NO") == "YES",
        up=fields.get("State", "UP") == "UP",
        max_time_s=parse_limit_s(fields["MaxTime"]),
        default_time_s=parse_limit_s(fields.get("DefaultTime", "")),
        priority_tier=int(fields["PriorityTier"]),
        priority_factor=int(fields["PriorityJobFactor"]),
        oversubscribe="EXCLUSIVE" if whole else fields["OverSubscribe"],
    )


CONFIG, NODES, PARTITIONS, HISTORY = "config.txt", "nodes.txt", "partitions.txt", "sacct.txt"
PLAYED_WEIGHTS: Final = ("PriorityWeightAge", "PriorityWeightJobSize", "PriorityWeightPartition")
OTHER_WEIGHTS: Final = ("PriorityWeightFairShare", "PriorityWeightQOS", "PriorityWeightAssoc")
RECORDED: Final = 0.9
"""Part of the jobs whose recorded priority must be known for it to be used."""
_LARGEST: Final = 2**31
_SECOND_PLAYED: Final = frozenset({"", "NO_FAIR_TREE", "FAIR_TREE", "MAX_TRES", "ACCRUE_ALWAYS"})


@dataclass(frozen=True, slots=True)
class SiteModel:
    """A site as the simulator can play it.

    Attributes:
        parameters: of the backfill `slurm`. scheduler: SchedulerParameters as it stands.
        unplayed: what this site has and the simulator does not, in words.
        other_weight: part of the priority weights that is not played, 0..1.
        left_out: records of the files that are not played, by file, line and reason.
    """

    cluster: Cluster
    natural: Natural
    backfill: BackfillRule
    parameters: Parameters
    slurm: SlurmSite
    scheduler: str
    unplayed: tuple[str, ...]
    other_weight: float
    left_out: tuple[str, ...] = ()


def with_own_backfill(site: SiteModel) -> SiteModel:
    """With sched/backfill where the site has it, in place of EASY."""
    return replace(site, backfill="slurm") if site.backfill == "easy" else site


def read_site_model(folder: Path) -> SiteModel:
    """Read the three files of a site.

    Raises TraceError: one is missing, or cannot be read; names file and field.
    """
    config = parse_config(_text(folder / CONFIG))
    bad: list[BadRecord] = []
    try:
        slurm = read_site(config)
        nodes = read_nodes_shown(_text(folder / NODES), str(folder / NODES), bad)
        partitions = read_partitions_shown(
            _text(folder / PARTITIONS), str(folder / PARTITIONS), bad
        )
    except SnapshotError as error:
        where = "" if str(folder) in str(error) else f"{folder / CONFIG}: "
        raise TraceError(f"{where}{error}") from error
    known = {p.name for p in partitions}
    strange = sorted({p for n in nodes for p in n.partitions} - known)
    if strange and known.isdisjoint(p for n in nodes for p in n.partitions):
        raise TraceError(f"{folder / NODES}: partition {strange[0]!r} is not in {PARTITIONS}")
    nodes = tuple(
        replace(n, partitions=tuple(p for p in n.partitions if p in known)) for n in nodes
    )
    if not any(n.total.gpus for n in nodes):
        raise TraceError(f"{folder / NODES}: no node has GPUs (Gres=gpu): rltuned ranks GPU jobs")
    homed = tuple(n for n in nodes if n.partitions)
    natural, share = _natural(config, slurm, folder)
    parameters, others = read_parameters(config.get("SchedulerParameters", ""), slurm.version)
    return SiteModel(
        cluster=Cluster(slurm.cluster, homed, partitions),
        natural=natural,
        backfill="none" if config.get("SchedulerType") == "sched/builtin" else "easy",
        parameters=parameters,
        slurm=slurm,
        scheduler=config.get("SchedulerParameters", ""),
        unplayed=tuple(_unplayed(config, slurm, others)),
        other_weight=share,
        left_out=(
            *(f"{b.source}:{b.line}: {b.why}" for b in bad),
            *(f"{folder / NODES}: partition {name!r} is not in {PARTITIONS}" for name in strange),
        ),
    )


def without_unused(site: SiteModel, used: frozenset[str]) -> tuple[SiteModel, tuple[str, ...]]:
    """Leave out nodes that are out of service now and on which nothing of the history ran."""
    gone = tuple(n.name for n in site.cluster.nodes if not n.schedulable and n.name not in used)
    kept = tuple(n for n in site.cluster.nodes if n.name not in set(gone))
    if not any(n.total.gpus for n in kept):
        raise TraceError(
            f"{site.cluster.name}: every node with GPUs is out of service, and none was used"
        )
    nodes = tuple(replace(n, schedulable=True, state="IDLE") for n in kept)
    return replace(site, cluster=replace(site.cluster, nodes=nodes)), gone


def residual_priority(
    rows: Sequence[tuple[SacctRecord, TraceJob]], site: SiteModel
) -> tuple[Natural, bool]:
    """Slurm's order with what the recorded priorities hold beyond age, size and partition.

    Fair share, QOS, TRES, nice: slurmdbd keeps the priority that a job had when it started; what
    the played factors do not explain of it counts for the job from its submit on, unchanged. It
    says nothing of run times. False: there is nothing of the kind, or it is not known.
    """
    natural = site.natural
    recorded = [r for r, _ in rows if r.priority is not None and r.start_s is not None]
    started = sum(r.start_s is not None for r, _ in rows)
    if not site.other_weight or len(recorded) < RECORDED * max(1, started):
        return natural, False
    nodes = site.cluster.nodes
    whole = Whole(site.cluster.gpus, sum(n.total.cpus for n in nodes), len(nodes))
    factors = {p.name: p.priority_factor for p in site.cluster.partitions}
    most = max(1, *factors.values())
    own: list[int | None] = []
    for record, job in rows:
        request = job.request()
        if record.priority is None or record.start_s is None or record.priority >= _LARGEST:
            own.append(None)
            continue
        played = natural.priority(
            number=1,
            waited_s=record.start_s - record.eligible_s,
            size_share=natural.size(request.total, request.nodes, whole),
            partition_share=factors.get(job.partition, 1) / most,
        )
        own.append(record.priority - played)
    middle = int(median(p for p in own if p is not None))
    return replace(natural, own=tuple(middle if p is None else p for p in own)), True


def noted(records: Sequence[SacctRecord]) -> list[str]:
    """What some jobs had that is not played."""
    counts = {
        "in a reservation": sum(r.reserved for r in records),
        "with a constraint (--constraint)": sum(r.constrained for r in records),
        "parts of heterogeneous jobs, played but not scored": sum(r.het for r in records),
        "runs that were requeued, preempted or lost a node": sum(
            r.state in {"REQUEUED", "PREEMPTED", "NODE_FAIL"} for r in records
        ),
    }
    return [f"{count} jobs {what}" for what, count in counts.items() if count]


def _text(path: Path) -> str:
    try:
        refuse_device(path)
        return path.read_text(encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise TraceError(
            f"{path}: cannot be read: {error.strerror} (rltuned backtest --help says what to save)"
        ) from error


def _natural(config: Mapping[str, str], site: SlurmSite, folder: Path) -> tuple[Natural, float]:
    """Slurm's own order there, and the part of the weights that is not played."""
    if not site.multifactor:
        return Natural(kind="fcfs"), 0.0
    age, size, partition = (_weight(config, name, folder) for name in PLAYED_WEIGHTS)
    others = sum(_weight(config, name, folder) for name in OTHER_WEIGHTS)
    others += sum(whole_numbers(config.get("PriorityWeightTRES", "")))
    longest_s = parse_limit_s(config.get("PriorityMaxAge", ""))
    if age and not longest_s:
        raise TraceError(f"{folder / CONFIG}: PriorityMaxAge is missing or no time")
    natural = Natural(
        kind="multifactor",
        age_weight=age,
        size_weight=size,
        partition_weight=partition,
        max_age_s=longest_s or 1.0,
        favor_small=config.get("PriorityFavorSmall", "").lower() in {"yes", "1"},
        size_of="nodes",
    )
    total = age + size + partition + others
    return natural, others / total if total else 0.0


def _weight(config: Mapping[str, str], name: str, folder: Path) -> int:
    text = config.get(name, "")
    if not text.isdigit():
        raise TraceError(f"{folder / CONFIG}: {name} is missing or no number: {text!r}")
    return int(text)


def backfill_text(site: SiteModel) -> str:
    """How the simulated Slurm fills its queue, in words."""
    if site.backfill == "slurm":
        return f"sched/backfill with {parameters_text(site.parameters) or 'the defaults of Slurm'}"
    if site.backfill == "none":
        return "none"
    return f"EASY, and not sched/backfill with {site.scheduler or 'the defaults of Slurm'}"


def line_to_write(scheduler: str, change: str) -> str:
    """SchedulerParameters with this name=value in place of what there is."""
    name = change.partition("=")[0]
    kept = [one for one in scheduler.split(",") if one and one.partition("=")[0] != name]
    return f"SchedulerParameters={','.join([*kept, change])}"


def _unplayed(config: Mapping[str, str], site: SlurmSite, options: Sequence[str]) -> list[str]:
    """What this site has switched on that the simulator does not play."""
    found = _unplayed_order(config) if site.multifactor else []
    if site.preemption:
        found.append(f"preemption ({config['PreemptType']})")
    enforce = config.get("AccountingStorageEnforce", "none")
    if "limits" in enforce or "qos" in enforce:
        found.append(f"limits of QOS, accounts and users (AccountingStorageEnforce={enforce})")
    if options:
        found.append(f"SchedulerParameters: {', '.join(options)}")
    found.append("the time that a pass of sched/backfill takes")
    for name in ("JobSubmitPlugins", "Licenses"):
        if config.get(name):
            found.append(f"{name}={config[name]}")
    found.append(
        "nodes that were down, drained or not there yet in that time; topology; constraints; "
        "throttles of arrays; users who act otherwise when their jobs start earlier or later"
    )
    return found


def _unplayed_order(config: Mapping[str, str]) -> list[str]:
    found = []
    named = [n for n in OTHER_WEIGHTS if config.get(n, "0") not in {"0", ""}]
    named += ["PriorityWeightTRES"] if config.get("PriorityWeightTRES") else []
    if named:
        found.append(f"{', '.join(named)}: played as recorded, or not at all (see above)")
    flags = set(config.get("PriorityFlags", "").split(",")) - _SECOND_PLAYED
    if flags:
        found.append(f"PriorityFlags={','.join(sorted(flags))}")
    found.append(f"PriorityCalcPeriod={config.get('PriorityCalcPeriod', '?')}: here at once")
    return found
