"""`rltuned check`: is this a site on which rltuned can work, and with which rights."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rltuned.errors import BackendError
from rltuned.slurm.config_checks import Check, Status, judge
from rltuned.slurm.run import Commands
from rltuned.slurm.site import parse_config, release_of
from rltuned.trusted import user_name

NEEDED: Final = ("squeue", "sinfo", "sprio", "scontrol", "sdiag")
"""Slurm's programs that a cycle runs."""
USEFUL: Final = ("sacctmgr",)
"""Asked for rltuned's level by this check alone, where there is slurmdbd."""
_SKEW_WARN_S: Final = 2.0
_SKEW_FAIL_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class CheckInput:
    """What was read for the checks. ping: its output, or why there is none. reachable: it and the
    configuration could be read. now: rltuned's clock then, Unix seconds. admin_level: in slurmdbd;
    None = not asked, or no answer. client: of `scontrol --version`; "" = nothing.
    """

    ping: str
    reachable: bool
    config: str
    now: float
    uid: int
    user: str
    admin_level: str | None = None
    client: str = ""
    missing: tuple[str, ...] = ()


def gather(commands: Commands, now: float) -> CheckInput:
    """Read what the checks need. Writes nothing, and never raises for a Slurm that is away."""
    uid = os.geteuid()
    user = user_name(uid)
    missing = tuple(name for name in (*NEEDED, *USEFUL) if commands.where(name) is None)
    try:
        ping = commands.ask("scontrol", "ping").strip()
        config = commands.ask("scontrol", "show", "config")
        client = commands.ask("scontrol", "--version").strip()
    except BackendError as error:
        return CheckInput(str(error), False, "", now, uid, user, missing=missing)
    level = _admin_level(commands, config, user)
    return CheckInput(ping, True, config, now, uid, user, level, client, missing)


def _admin_level(commands: Commands, config: str, user: str) -> str | None:
    if "slurmdbd" not in parse_config(config).get("AccountingStorageType", ""):
        return None
    try:
        answer = commands.ask("sacctmgr", "-n", "-P", "show", "user", user, "format=adminlevel")
    except BackendError:
        return None
    return answer.strip().split("\n")[0]


def examine(evidence: CheckInput) -> tuple[Check, ...]:
    """Judge the evidence; every finding with its remedy. Pure."""
    programs = _programs(parse_config(evidence.config), evidence)
    if programs.status is Status.FAIL:
        return (programs,)
    if not evidence.reachable:
        return (
            programs,
            Check.fail(
                "slurm",
                evidence.ping,
                "start slurmctld, or set [slurm] bin_dir and conf in rltuned.toml",
            ),
        )
    config = parse_config(evidence.config)
    found = [programs, Check.ok("slurm", evidence.ping.replace("\n", "; "))]
    found.extend(judge(config))
    found.append(_client(config, evidence))
    found.append(_clock(config, evidence))
    found.append(_rights(config, evidence))
    found.append(_private_data(config, evidence))
    return tuple(found)


def _programs(config: Mapping[str, str], evidence: CheckInput) -> Check:
    lacking = [name for name in evidence.missing if name in NEEDED]
    if lacking:
        return Check.fail(
            "programs",
            f"not found here: {', '.join(lacking)}",
            "install Slurm's commands (Debian: slurm-client), or set [slurm] bin_dir",
        )
    if evidence.missing and "slurmdbd" in config.get("AccountingStorageType", ""):
        return Check.warn(
            "programs",
            f"not found here: {', '.join(evidence.missing)}, so rights are not known",
            "install Slurm's commands whole (Debian: slurm-client)",
        )
    found = (name for name in (*NEEDED, *USEFUL) if name not in evidence.missing)
    return Check.ok("programs", ", ".join(found))


def _client(config: Mapping[str, str], evidence: CheckInput) -> Check:
    """Slurm's commands may be older than slurmctld, never newer."""
    text = evidence.client.rpartition(" ")[2]
    ours, theirs = release_of(text), release_of(config.get("SLURM_VERSION", ""))
    if ours is None or theirs is None:
        return Check.warn("client", f"scontrol --version says {text!r}", "compare the releases")
    if ours == theirs:
        return Check.ok("client", f"Slurm's commands here are of {text}")
    detail = f"Slurm's commands here are of {text}, slurmctld of {config['SLURM_VERSION']}"
    remedy = "install the commands of slurmctld's release here, or set [slurm] bin_dir"
    return Check("client", Status.FAIL if ours > theirs else Status.WARN, detail, remedy)


def _clock(config: Mapping[str, str], evidence: CheckInput) -> Check:
    first = evidence.config.split("\n", 1)[0].rpartition(" ")[2]
    if not first.isdigit():
        return Check.warn("clock", "slurmctld did not tell its time", "compare by hand")
    skew = int(first) - math.floor(evidence.now)  # slurmctld tells whole seconds
    host = config.get("SlurmctldHost[0]", "?")
    if abs(skew) <= 1:
        return Check.ok("clock", f"slurmctld on {host} and this machine agree within a second")
    way = "ahead of" if skew > 0 else "behind"
    detail = f"slurmctld on {host} is {abs(skew)} s {way} the clock here"
    if abs(skew) > _SKEW_FAIL_S:
        return Check.fail("clock", detail, "synchronise both clocks (chrony, ntpd)")
    if abs(skew) > _SKEW_WARN_S:
        return Check.warn("clock", detail, "synchronise both clocks (chrony, ntpd)")
    return Check.ok("clock", detail)


def _is_privileged(config: Mapping[str, str], evidence: CheckInput) -> bool:
    slurm_user = config.get("SlurmUser", "")
    return (
        evidence.uid == 0
        or slurm_user.endswith(f"({evidence.uid})")
        or evidence.admin_level in {"Operator", "Administrator"}
    )


def _private_data(config: Mapping[str, str], evidence: CheckInput) -> Check:
    """A part of the queue looks like a short queue: nothing shows it later."""
    hidden = config.get("PrivateData", "").split(",")
    if not {"jobs", "nodes", "partitions", "reservations"} & set(hidden):
        return Check.ok("private_data", "Slurm shows all users every job")
    names = ",".join(hidden)
    if _is_privileged(config, evidence):
        return Check.ok("private_data", f"PrivateData={names}, and this user sees all")
    return Check.fail(
        "private_data",
        f"PrivateData={names}: this user sees only its own "
        f"{'jobs' if 'jobs' in hidden else 'part'}, so every rank would be wrong",
        "run rltuned as an account with AdminLevel=Operator",
    )


def _rights(config: Mapping[str, str], evidence: CheckInput) -> Check:
    who = f"{evidence.user} ({evidence.uid})"
    slurm_user = config.get("SlurmUser", "")
    if evidence.uid == 0 or slurm_user.endswith(f"({evidence.uid})"):
        remedy = "run rltuned as an account of its own with AdminLevel=Operator"
        detail = f"{who} may write, and much more"
        if evidence.admin_level is None:
            return Check.ok("rights", f"{detail} (no slurmdbd, so no operator level)")
        return Check.warn("rights", detail, remedy)
    if evidence.admin_level in {"Operator", "Administrator"}:
        return Check.ok("rights", f"{who} is {evidence.admin_level}")
    if "slurmdbd" not in config.get("AccountingStorageType", ""):
        name = slurm_user.partition("(")[0] or "slurm"
        return Check.fail(
            "rights",
            f"{who} cannot write: without slurmdbd only root and SlurmUser {slurm_user} can",
            f"run the service as {name} (User={name} in a drop-in, docs/install.md), and this "
            f"check as well: runuser -u {name} -- rltuned check",
        )
    return Check.fail(
        "rights",
        f"{who} has admin level {evidence.admin_level or 'unknown'}; Priority needs Operator",
        _grant(evidence),
    )


def _grant(evidence: CheckInput) -> str:
    """The command that gives the level: slurmdbd modifies a user that it knows, and adds others."""
    if evidence.admin_level is None:
        return "start slurmdbd, which does not answer, and run this check again"
    if evidence.admin_level:
        return f"sacctmgr -i modify user {evidence.user} set adminlevel=Operator"
    return f"sacctmgr -i add user {evidence.user} account=root adminlevel=Operator"
