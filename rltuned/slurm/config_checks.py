"""What a site's configuration says about whether rltuned can work there. Pure."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from rltuned.slurm.site import BASIC, MULTIFACTOR, read_priorities, release_of
from rltuned.slurm.values import absent

TRIED: Final = ((22, 5), (26, 5))
"""Releases that this reader has been run against, oldest and newest."""


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of `rltuned check`; remedy says what to do about a warn or fail."""

    name: str
    status: Status
    detail: str
    remedy: str = ""

    @classmethod
    def ok(cls, name: str, detail: str) -> Self:
        return cls(name, Status.OK, detail)

    @classmethod
    def warn(cls, name: str, detail: str, remedy: str) -> Self:
        return cls(name, Status.WARN, detail, remedy)

    @classmethod
    def fail(cls, name: str, detail: str, remedy: str) -> Self:
        return cls(name, Status.FAIL, detail, remedy)


def judge(config: Mapping[str, str]) -> Iterator[Check]:
    """Every check that needs the configuration alone."""
    return (one(config) for one in _JUDGES)


def _version(config: Mapping[str, str]) -> Check:
    text = config.get("SLURM_VERSION", "")
    release = release_of(text)
    if release is None:
        return Check.fail("version", f"version {text!r} cannot be read", "report this")
    if TRIED[0] <= release <= TRIED[1]:
        return Check.ok("version", f"Slurm {text}")
    return Check.warn(
        "version",
        f"Slurm {text} is outside the releases that were tried (22.05 to 26.05)",
        "watch some cycles of `rltuned run --dry-run` before going live",
    )


def _priority(config: Mapping[str, str]) -> Check:
    kind = config.get("PriorityType", "")
    if kind == MULTIFACTOR and "INCR_ONLY" in read_priorities(config).flags:
        return Check.fail(
            "priority",
            "PriorityFlags=INCR_ONLY: a number may never come down again, so no job is written",
            "take INCR_ONLY out of PriorityFlags",
        )
    if kind == MULTIFACTOR:
        return Check.ok(
            "priority", f"{kind}: both write modes work; site_factor keeps age and fair-share alive"
        )
    if kind != BASIC:
        return Check.fail(
            "priority",
            f"{kind or 'no PriorityType'}: how it orders jobs is not known, so nothing is done",
            "set PriorityType=priority/multifactor or priority/basic",
        )
    return Check.warn(
        "priority",
        f"{kind}: SiteFactor has no effect, only write_mode = auto or priority works",
        "set PriorityType=priority/multifactor",
    )


def _weights(config: Mapping[str, str]) -> Check:
    return Check.ok("weights", str(read_priorities(config)))


def _site_factor_plugin(config: Mapping[str, str]) -> Check:
    plugin = read_priorities(config).plugin
    if not plugin:
        return Check.ok("site_factor_plugin", "no plugin writes site factors")
    return Check.warn(
        "site_factor_plugin",
        f"{plugin} overwrites site factors every PriorityCalcPeriod",
        "use write_mode = priority, or unset PrioritySiteFactorPlugin",
    )


def _scheduler(config: Mapping[str, str]) -> Check:
    kind = config.get("SchedulerType", "")
    options = config.get("SchedulerParameters", "").split(",")
    if kind != "sched/backfill":
        return Check.warn("scheduler", f"{kind}: no backfill", "set SchedulerType=sched/backfill")
    if "bf_continue" not in options:
        return Check.warn(
            "scheduler",
            "sched/backfill without bf_continue: any job update ends a backfill cycle early",
            "add bf_continue to SchedulerParameters",
        )
    floor = next((o for o in options if o.startswith("bf_min_prio_reserve=")), "")
    if floor:
        return Check.warn(
            "scheduler",
            f"{floor}: only jobs above that number get a start reserved, and rltuned moves jobs "
            "across it",
            "unset bf_min_prio_reserve, or take the jobs that need it out of [scope]",
        )
    return Check.ok("scheduler", "sched/backfill with bf_continue")


def _memory(config: Mapping[str, str]) -> Check:
    kind = config.get("SelectType", "")
    parameters = config.get("SelectTypeParameters", "")
    if "MEMORY" not in parameters.upper():
        return Check.ok(
            "select", f"{kind} {parameters}: memory is not counted, so no job waits for it"
        )
    defaults = {
        key: config.get(key, "") for key in ("DefMemPerCPU", "DefMemPerNode", "DefMemPerGPU")
    }
    set_ones = [f"{k}={v}" for k, v in defaults.items() if v and v.upper() != "UNLIMITED"]
    set_ones += [w for w in config.get("JobDefaults", "").split(",") if "DefMemPerGPU" in w]
    if set_ones:
        return Check.ok("select", f"{kind} {parameters} with {', '.join(set_ones)}")
    return Check.warn(
        "select",
        f"{kind} {parameters} without DefMemPerCPU: a job without --mem takes a whole node",
        "set DefMemPerCPU (or DefMemPerGPU) in slurm.conf",
    )


def _preemption(config: Mapping[str, str]) -> Check:
    kind = config.get("PreemptType", "")
    if absent(kind) or kind.endswith("/none"):
        return Check.ok("preemption", "off")
    return Check.warn(
        "preemption",
        f"{kind}, mode {config.get('PreemptMode', '?')}: pre-empted jobs return to the queue",
        "list the partitions or QOS that may pre-empt under [scope] as left alone",
    )


_JUDGES: Final[tuple[Callable[[Mapping[str, str]], Check], ...]] = (
    _version, _priority, _weights, _site_factor_plugin, _scheduler, _memory, _preemption,
)  # fmt: skip
