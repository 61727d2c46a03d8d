"""A site's cluster and Slurm's own weights there, from what scontrol shows; and what is not played.

Four files in a folder, as `--collect` saves them: config.txt (`scontrol show config`), nodes.txt
(`scontrol -o show node`), partitions.txt (`scontrol -o show partition`), and sacct.txt, which may
end in .gz.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Final, TypeVar

from rltuned.core.slurm_plan import Parameters, parameters_text, read_parameters
from rltuned.domain.cluster import GpuCount, Node, Partition, Resources
from rltuned.domain.units import GpuType, NodeName
from rltuned.errors import SnapshotError, TraceError
from rltuned.files import refuse_device
from rltuned.sim.cluster import Cluster
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import BackfillRule, Natural
from rltuned.slurm.accounting import SacctRecord
from rltuned.slurm.nodes import gpus_by_type, is_schedulable
from rltuned.slurm.site import SlurmSite, parse_config, read_site
from rltuned.slurm.values import absent, parse_gres, parse_limit_s, whole_numbers

T = TypeVar("T")
CONFIG, NODES, PARTITIONS, HISTORY = "config.txt", "nodes.txt", "partitions.txt", "sacct.txt"
PLAYED_WEIGHTS: Final = ("PriorityWeightAge", "PriorityWeightJobSize", "PriorityWeightPartition")
OTHER_WEIGHTS: Final = ("PriorityWeightFairShare", "PriorityWeightQOS", "PriorityWeightAssoc")
RECORDED: Final = 0.9
"""Part of the jobs whose recorded priority must be known for it to be used."""
_LARGEST: Final = 2**31
_SECOND_PLAYED: Final = frozenset({"", "NO_FAIR_TREE", "FAIR_TREE", "MAX_TRES", "ACCRUE_ALWAYS"})
_RECORD: Final = re.compile(r"^.*\S.*(?:\n[ \t].*)*", re.MULTILINE)
"""In one line, or without -o in several that begin with a space."""
_FIELD: Final = re.compile(r"(?:^|\s)([A-Za-z_]+)=(\S*)")


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
    """Read the three files of a site. Raises TraceError: one is missing, or cannot be read; names
    file and field.
    """
    config, bad = parse_config(_text(folder / CONFIG)), list[str]()
    try:
        slurm = read_site(config)
        nodes = read_shown(folder / NODES, "NodeName", _node, bad)
        partitions = read_shown(folder / PARTITIONS, "PartitionName", _partition, bad)
    except SnapshotError as error:
        where = "" if str(folder) in str(error) else f"{folder / CONFIG}: "
        raise TraceError(f"{where}{error}") from error
    known, named = {p.name for p in partitions}, {p for n in nodes for p in n.partitions}
    strange = [f"{folder / NODES}: partition {p!r} is not in {PARTITIONS}" for p in named - known]
    if strange and known.isdisjoint(named):
        raise TraceError(min(strange))
    if not any(n.total.gpus for n in nodes):
        raise TraceError(f"{folder / NODES}: no node has GPUs (Gres=gpu): rltuned ranks GPU jobs")
    nodes = [replace(n, partitions=tuple(p for p in n.partitions if p in known)) for n in nodes]
    cluster = Cluster(slurm.cluster, tuple(n for n in nodes if n.partitions), tuple(partitions))
    natural, share = _natural(config, slurm, folder)
    scheduler = config.get("SchedulerParameters", "")
    parameters, others = read_parameters(scheduler, slurm.version)
    return SiteModel(
        cluster=cluster,
        natural=natural,
        backfill="none" if config.get("SchedulerType") == "sched/builtin" else "easy",
        parameters=parameters,
        slurm=slurm,
        scheduler=scheduler,
        unplayed=tuple(_unplayed(config, slurm, others)),
        other_weight=share,
        left_out=(*bad, *sorted(strange)),
    )


def read_shown(
    path: Path, first: str, made_of: Callable[[dict[str, str]], T], bad: list[str]
) -> list[T]:
    """Records of `scontrol show node` or `show partition`, in the answer's order: `Key=value` with
    a space between; text that people write (Reason, Comment) stands behind what is read here, and
    of two keys of one name the first counts. first: the key with which a record begins. bad: takes
    file, line and reason of those that cannot be read. Raises SnapshotError: none of them can.
    """
    what, found, wrong = first.removesuffix("Name").lower(), dict[str, T](), list[str]()
    text = _text(path)
    line, at = 1, 0
    for record in _RECORD.finditer(text):
        line, at = line + text.count("\n", at, record.start()), record.start()
        fields = dict(reversed(_FIELD.findall(record[0])))
        name = fields.get(first, "")
        if fields.get("State", "").split("+")[0].rstrip("*~#!%$@^-") == "FUTURE":
            continue
        why = "stands twice" if name in found else ""
        if not record[0].startswith(f"{first}="):
            why = f"does not begin with {first}=: {record[0][:60]!r}"
        try:
            found |= {} if why else {name: made_of(fields)}
        except (KeyError, ValueError) as error:
            why = f"no {error}" if isinstance(error, KeyError) else str(error)
        if why:
            wrong.append(f"{path}:{line}: {what} {name}: {why}")
    if not found:
        why = wrong[0] if wrong else f"{path}: no {what} in it"
        raise SnapshotError(f"{why}; save `scontrol -o show {what}`")
    bad += wrong
    return list(found.values())


def _node(fields: dict[str, str]) -> Node:
    """Idle; schedulable is as now."""
    counts = gpus_by_type(parse_gres(fields.get("Gres", "")))
    # without what jobs do not get: CoreSpecCount, MemSpecLimit
    cpus, memory = int(fields.get("CPUEfctv", fields["CPUTot"])), int(fields["RealMemory"])
    memory -= min(memory, int(fields.get("MemSpecLimit", "0")))
    total = Resources(sum(counts.values()), cpus, memory)
    named = fields.get("Partitions", "")
    return Node(
        name=NodeName(fields["NodeName"]),
        gpus=tuple(GpuCount(GpuType(kind), n, n) for kind, n in counts.items()),
        total=total,
        free=total,
        schedulable=is_schedulable(fields["State"]),
        partitions=() if absent(named) else tuple(sorted(named.split(","))),
        state=fields["State"],
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
    natural, cluster, whole = site.natural, site.cluster, site.cluster.whole
    started = [record for record, _ in rows if record.start_s is not None]
    known = sum(record.priority is not None for record in started)
    if not site.other_weight or known < RECORDED * max(1, len(started)):
        return natural, False
    factors = {p.name: p.priority_factor for p in cluster.partitions}
    most = max(1, *factors.values())
    own: list[int | None] = []
    for record, job in rows:
        request, priority = job.request(), record.priority
        if priority is None or record.start_s is None or priority >= _LARGEST:
            own.append(None)
            continue
        played = natural.priority(
            number=1,
            waited_s=record.start_s - record.eligible_s,
            size_share=natural.size(request.total, request.nodes, whole),
            partition_share=factors.get(job.partition, 1) / most,
        )
        own.append(priority - played)
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
    weights = list[int]()
    for name in (*PLAYED_WEIGHTS, *OTHER_WEIGHTS):
        if not (text := config.get(name, "")).isdigit():
            raise TraceError(f"{folder / CONFIG}: {name} is missing or no number: {text!r}")
        weights.append(int(text))
    age, size, partition, *more = weights
    others = sum(more) + sum(whole_numbers(config.get("PriorityWeightTRES", "")))
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
    found = []
    if site.multifactor:
        weights = [n for n in OTHER_WEIGHTS if config.get(n, "0") not in {"0", ""}]
        weights += ["PriorityWeightTRES"] if config.get("PriorityWeightTRES") else []
        if weights:
            found.append(f"{', '.join(weights)}: played as recorded, or not at all (see above)")
        flags = set(config.get("PriorityFlags", "").split(",")) - _SECOND_PLAYED
        found += [f"PriorityFlags={','.join(sorted(flags))}"] if flags else []
        found.append(f"PriorityCalcPeriod={config.get('PriorityCalcPeriod', '?')}: here at once")
    found += [f"preemption ({config['PreemptType']})"] if site.preemption else []
    enforce = config.get("AccountingStorageEnforce", "none")
    if "limits" in enforce or "qos" in enforce:
        found.append(f"limits of QOS, accounts and users (AccountingStorageEnforce={enforce})")
    found += [f"SchedulerParameters: {', '.join(options)}"] if options else []
    found.append("the time that a pass of sched/backfill takes")
    found += [f"{n}={config[n]}" for n in ("JobSubmitPlugins", "Licenses") if config.get(n)]
    found.append(
        "nodes that were down, drained or not there yet in that time; topology; constraints; "
        "throttles of arrays; users who act otherwise when their jobs start earlier or later"
    )
    return found
