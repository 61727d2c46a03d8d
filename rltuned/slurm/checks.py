"""`rltuned check`: is this a site on which rltuned can work, and with which rights."""

import os
import pwd
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rltuned.errors import BackendError
from rltuned.slurm.commands import Commands
from rltuned.slurm.site import parse_config
from rltuned.slurm.values import absent

TRIED: Final = ((22, 5), (26, 5))
"""Releases that this reader has been run against, oldest and newest."""
_SKEW_WARN_S: Final = 2.0
_SKEW_FAIL_S: Final = 30.0
_FIRST_WITH_LIMIT: Final = (23, 2)


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of `rltuned check`; mend says what to do about a warn or fail."""

    name: str
    status: Status
    detail: str
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was read for the checks.

    Attributes:
        ping: output of `scontrol ping`, or why there is none.
        reachable: whether it and the configuration could be read.
        config: output of `scontrol show config`, empty when not reachable.
        now: our clock when the configuration was asked for, Unix seconds.
        uid, user: who we are.
        admin_level: our level in slurmdbd; None = not asked or no answer.
    """

    ping: str
    reachable: bool
    config: str
    now: float
    uid: int
    user: str
    admin_level: str | None = None


def gather(commands: Commands, now: float) -> Evidence:
    """Read what the checks need. Writes nothing, and never raises for a Slurm that is away."""
    uid = os.geteuid()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    try:
        ping = commands.ask("scontrol", "ping").stdout.strip()
        config = commands.ask("scontrol", "show", "config").stdout
    except BackendError as error:
        return Evidence(str(error), False, "", now, uid, user)
    return Evidence(ping, True, config, now, uid, user, _admin_level(commands, config, user))


def _admin_level(commands: Commands, config: str, user: str) -> str | None:
    if "slurmdbd" not in parse_config(config).get("AccountingStorageType", ""):
        return None
    try:
        answer = commands.ask(
            "sacctmgr", "-n", "-P", "show", "user", user, "format=adminlevel"
        ).stdout
    except BackendError:
        return None
    return answer.strip().split("\n")[0]


def examine(evidence: Evidence) -> tuple[Check, ...]:
    """Judge the evidence; every finding with its mend. Pure."""
    if not evidence.reachable:
        return (
            Check(
                "slurm",
                Status.FAIL,
                evidence.ping,
                "start slurmctld, or set [slurm] bin_dir and conf in rltuned.toml",
            ),
        )
    config = parse_config(evidence.config)
    found = [Check("slurm", Status.OK, evidence.ping.replace("\n", "; "))]
    found.extend(judge(config) for judge in _CONFIG_CHECKS)
    found.append(_clock(config, evidence))
    found.append(_rights(config, evidence))
    found.append(_private_data(config, evidence))
    return tuple(found)


def _version(config: Mapping[str, str]) -> Check:
    text = config.get("SLURM_VERSION", "")
    release = _release(text)
    if release is None:
        return Check("version", Status.FAIL, f"version {text!r} cannot be read", "report this")
    if TRIED[0] <= release <= TRIED[1]:
        return Check("version", Status.OK, f"Slurm {text}")
    return Check(
        "version",
        Status.WARN,
        f"Slurm {text} is outside the releases that were tried (22.05 to 26.05)",
        "watch some cycles of `rltuned run --dry-run` before going live",
    )


def _release(text: str) -> tuple[int, int] | None:
    parts = text.split(".")
    if len(parts) < 2 or not all(p.isdigit() for p in parts[:2]):  # noqa: PLR2004
        return None
    return int(parts[0]), int(parts[1])


def _priority(config: Mapping[str, str]) -> Check:
    kind = config.get("PriorityType", "")
    if kind == "priority/multifactor":
        return Check(
            "priority",
            Status.OK,
            f"{kind}: both write modes work; site_factor keeps age and fair-share alive",
        )
    return Check(
        "priority",
        Status.WARN,
        f"{kind}: SiteFactor has no effect, only write_mode = priority works",
        "set PriorityType=priority/multifactor, or keep write_mode = priority",
    )


def _site_factor_plugin(config: Mapping[str, str]) -> Check:
    plugin = config.get("PrioritySiteFactorPlugin", "")
    if absent(plugin) or plugin.endswith("/none"):
        return Check("site_factor_plugin", Status.OK, "no plugin writes site factors")
    return Check(
        "site_factor_plugin",
        Status.WARN,
        f"{plugin} overwrites site factors every PriorityCalcPeriod",
        "use write_mode = priority, or unset PrioritySiteFactorPlugin",
    )


def _scheduler(config: Mapping[str, str]) -> Check:
    kind = config.get("SchedulerType", "")
    options = config.get("SchedulerParameters", "").split(",")
    if kind != "sched/backfill":
        return Check(
            "scheduler", Status.WARN, f"{kind}: no backfill", "set SchedulerType=sched/backfill"
        )
    if "bf_continue" not in options:
        return Check(
            "scheduler",
            Status.WARN,
            "sched/backfill without bf_continue: any job update ends a backfill cycle early",
            "add bf_continue to SchedulerParameters",
        )
    return Check("scheduler", Status.OK, "sched/backfill with bf_continue")


def _memory(config: Mapping[str, str]) -> Check:
    kind = config.get("SelectType", "")
    parameters = config.get("SelectTypeParameters", "")
    if "MEMORY" not in parameters.upper():
        return Check("select", Status.OK, f"{kind} {parameters}: memory is not handed out")
    defaults = {
        key: config.get(key, "") for key in ("DefMemPerCPU", "DefMemPerNode", "DefMemPerGPU")
    }
    set_ones = [f"{k}={v}" for k, v in defaults.items() if v and v.upper() != "UNLIMITED"]
    set_ones += [w for w in config.get("JobDefaults", "").split(",") if "DefMemPerGPU" in w]
    if set_ones:
        return Check("select", Status.OK, f"{kind} {parameters} with {', '.join(set_ones)}")
    return Check(
        "select",
        Status.WARN,
        f"{kind} {parameters} without DefMemPerCPU: a job without --mem takes a whole node",
        "set DefMemPerCPU (or DefMemPerGPU) in slurm.conf",
    )


def _preemption(config: Mapping[str, str]) -> Check:
    kind = config.get("PreemptType", "")
    if absent(kind) or kind.endswith("/none"):
        return Check("preemption", Status.OK, "off")
    return Check(
        "preemption",
        Status.WARN,
        f"{kind}, mode {config.get('PreemptMode', '?')}: pre-empted jobs return to the queue",
        "list the partitions or QOS that may pre-empt under [scope] as not ours",
    )


def _rate_limit(config: Mapping[str, str]) -> Check:
    options = config.get("SlurmctldParameters", "").split(",")
    release = _release(config.get("SLURM_VERSION", ""))
    if "rl_enable" not in options or release is None or release < _FIRST_WITH_LIMIT:
        return Check("rate_limit", Status.OK, "none")
    limits = ", ".join(o for o in options if o.startswith("rl_"))
    return Check(
        "rate_limit",
        Status.WARN,
        f"{limits}: by default 30 updates at once, then 2 a second, for all but SlurmUser and root",
        "raise rl_bucket_size and rl_refill_rate, or lower [limits] max_changes to fit",
    )


_CONFIG_CHECKS: Final[tuple[Callable[[Mapping[str, str]], Check], ...]] = (
    _version,
    _priority,
    _site_factor_plugin,
    _scheduler,
    _memory,
    _preemption,
    _rate_limit,
)


def _clock(config: Mapping[str, str], evidence: Evidence) -> Check:
    first = evidence.config.split("\n", 1)[0].rpartition(" ")[2]
    if not first.isdigit():
        return Check("clock", Status.WARN, "slurmctld did not tell its time", "compare by hand")
    skew = float(first) - evidence.now
    detail = f"slurmctld on {config.get('SlurmctldHost[0]', '?')} is {skew:+.0f} s from our clock"
    if abs(skew) > _SKEW_FAIL_S:
        return Check("clock", Status.FAIL, detail, "synchronise both clocks (chrony, ntpd)")
    if abs(skew) > _SKEW_WARN_S:
        return Check("clock", Status.WARN, detail, "synchronise both clocks (chrony, ntpd)")
    return Check("clock", Status.OK, detail)


def _is_privileged(config: Mapping[str, str], evidence: Evidence) -> bool:
    slurm_user = config.get("SlurmUser", "")
    return (
        evidence.uid == 0
        or slurm_user.endswith(f"({evidence.uid})")
        or evidence.admin_level in {"Operator", "Administrator"}
    )


def _private_data(config: Mapping[str, str], evidence: Evidence) -> Check:
    """A queue of which we see a part looks like a short queue: nothing would warn us later."""
    hidden = config.get("PrivateData", "").split(",")
    if not {"jobs", "nodes", "partitions", "reservations"} & set(hidden):
        return Check("private_data", Status.OK, "Slurm shows everybody every job")
    names = ",".join(hidden)
    if _is_privileged(config, evidence):
        return Check("private_data", Status.OK, f"PrivateData={names}, and this user sees all")
    return Check(
        "private_data",
        Status.FAIL,
        f"PrivateData={names}: this user sees only its own "
        f"{'jobs' if 'jobs' in hidden else 'part'}, so every rank would be wrong",
        "run rltuned as an account with AdminLevel=Operator",
    )


def _rights(config: Mapping[str, str], evidence: Evidence) -> Check:
    who = f"{evidence.user} ({evidence.uid})"
    slurm_user = config.get("SlurmUser", "")
    if evidence.uid == 0 or slurm_user.endswith(f"({evidence.uid})"):
        mend = "run rltuned as an account of its own with AdminLevel=Operator"
        detail = f"{who} may write, and much more"
        if evidence.admin_level is None:
            return Check("rights", Status.OK, f"{detail} (no slurmdbd, so no operator level)")
        return Check("rights", Status.WARN, detail, mend)
    if evidence.admin_level in {"Operator", "Administrator"}:
        return Check("rights", Status.OK, f"{who} is {evidence.admin_level}")
    if "slurmdbd" not in config.get("AccountingStorageType", ""):
        return Check(
            "rights",
            Status.FAIL,
            f"{who} cannot write: without slurmdbd only root and SlurmUser {slurm_user} can",
            "run rltuned as SlurmUser, or set up slurmdbd and an operator",
        )
    return Check(
        "rights",
        Status.FAIL,
        f"{who} has admin level {evidence.admin_level or 'unknown'}; Priority needs Operator",
        f"sacctmgr modify user {evidence.user} set adminlevel=Operator",
    )
