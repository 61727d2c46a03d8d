"""The table of `rltuned check`: what is asked, what may be found, and what to do about it.

`SITE` is the part that Slurm's own answers settle; worth.py and cli/check*.py have the other parts.
"""

import math
import os
from collections import ChainMap, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final, NamedTuple

from rltuned.errors import BackendError, RltunedError, SnapshotError
from rltuned.slurm.pyslurm import ReaderChoice
from rltuned.slurm.run import Commands
from rltuned.slurm.site import BASIC, MULTIFACTOR, parse_config, read_priorities, release_of
from rltuned.slurm.values import absent
from rltuned.trusted import user_name

TRIED: Final = ((22, 5), (26, 5))
"""Releases that this reader has been run against, oldest and newest."""
NEEDED: Final = ("squeue", "sinfo", "sprio", "scontrol", "sdiag")
"""Slurm's programs that a cycle runs."""
USEFUL: Final = ("sacctmgr",)
"""Asked for rltuned's level by this check alone, where there is slurmdbd."""
_SKEW_WARN_S: Final = 2
_SKEW_FAIL_S: Final = 30


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


OK, WARN, FAIL = Status


class Check(NamedTuple):
    """One line of `rltuned check`; remedy says what to do about a warn or fail."""

    name: str
    status: Status
    detail: str
    remedy: str = ""


Facts = dict[str, Any]
"""What is judged: Slurm's configuration by its own names, and all else in small letters."""


class Answer(NamedTuple):
    """One answer to a question. holds: tells it by the facts, as something that is true. says and
    remedy: `{found}` is that, `{NAME}` a fact; says "" = there is nothing to say.
    """

    status: Status
    holds: Callable[[Any], object]
    says: str
    remedy: str = ""


class Question(NamedTuple):
    """A row of the table: its answer is the first of `states` that holds, if one does. key, fits:
    what `rltuned config init` sets by it, to a value (None = a comment), and why.
    """

    name: str
    asks: str
    states: tuple[Answer, ...]
    key: str = ""
    fits: Callable[[Any], tuple[object, str] | None] = lambda _: None


def answers(table: Iterable[Question], facts: Facts) -> Iterator[Check]:
    """What the facts say to each question."""
    for row in table:
        for status, holds, says, remedy in row.states:
            if found := holds(facts):
                named = ChainMap({"found": found}, facts)
                if says:
                    yield Check(row.name, status, says.format_map(named), remedy.format_map(named))
                break


class Lazy(dict[str, Any]):
    """Facts that are found out when first asked for, by `probes`; an error is a fact too."""

    def __init__(self, probes: Mapping[str, Callable[[Any], object]], **known: object) -> None:
        super().__init__(known)
        self._probes = probes

    def __missing__(self, name: str) -> Any:
        try:
            self[name] = self._probes[name](self)
        except RltunedError as error:
            self[name] = error
        return self[name]


def wrong(fact: object) -> tuple[str, str] | None:
    """Of an error: what it says, and the command that fixes it ("" = it names none)."""
    what, _, fix = str(fact).partition("; fix with: ")
    return (what, fix) if isinstance(fact, Exception) else None


def at_most(facts: Facts, name: str, most: int) -> int | None:
    """The value of a parameter of sched/backfill where it is set and so small; 0 = no limit."""
    text = facts["priorities"].scheduler.get(name, "")
    backfills = facts["SchedulerType"] == "sched/backfill"
    return int(text) if backfills and text.isdecimal() and 0 < int(text) <= most else None


def otherwise(_: object) -> bool:
    """Of the last state of a question: none before it held."""
    return True


def gather(commands: Commands, now: float, reading: Callable[[], ReaderChoice]) -> Facts:
    """Ask Slurm. Writes nothing, and never raises for a Slurm that is away."""
    uid = os.geteuid()
    user = user_name(uid)
    missing = [name for name in (*NEEDED, *USEFUL) if commands.where(name) is None]
    said: dict[str, Any] = {"uid": uid, "user": user, "missing": missing}
    try:
        said["ping"] = commands.ask("scontrol", "ping").strip().replace("\n", "; ")
        text = commands.ask("scontrol", "show", "config")
        said["client"] = commands.ask("scontrol", "--version").strip()
    except BackendError as error:
        return site_facts("", now, **said, trouble=str(error))
    if "slurmdbd" in parse_config(text).get("AccountingStorageType", ""):
        with suppress(BackendError):  # the level is not known then
            words = ("show", "user", user, "format=adminlevel")
            said["level"] = commands.ask("sacctmgr", "-n", "-P", *words).strip().split("\n")[0]
    try:
        said["reading"] = reading()
    except (BackendError, SnapshotError) as error:
        said["unread"] = str(error)
    return site_facts(text, now, **said)


def site_facts(text: str, now: float, **said: Any) -> Facts:
    """What follows from `scontrol show config` at rltuned's time now, and from what else was said:
    ping, uid, user, client (`scontrol --version`), level (AdminLevel; None = no answer), missing
    (programs), trouble (why there is no configuration), reading, or unread: why there is none.
    """
    more = {"ping": "", "client": "", "level": None, "missing": (), "trouble": "", "unread": ""}
    facts = defaultdict[str, Any](str, {**parse_config(text), **more, "reading": None, **said})
    first = text.split("\n", 1)[0].rpartition(" ")[2]  # slurmctld tells whole seconds
    skew_s = int(first) - math.floor(now) if first.isdigit() else None
    way = "" if skew_s is None else f"{abs(skew_s)} s {'ahead of' if skew_s > 0 else 'behind'}"
    client = facts["client"].rpartition(" ")[2]
    kinds = {key: facts[key] for key in ("DefMemPerCPU", "DefMemPerNode", "DefMemPerGPU")}
    memory = [f"{k}={v}" for k, v in kinds.items() if v and v.upper() != "UNLIMITED"]
    memory += [word for word in facts["JobDefaults"].split(",") if "DefMemPerGPU" in word]
    hidden = {"jobs", "nodes", "partitions", "reservations"} & {*facts["PrivateData"].split(",")}
    facts |= {
        "priorities": read_priorities(facts),
        "release": release_of(facts["SLURM_VERSION"]),
        "client": client,
        "client_release": release_of(client),
        "accounts": "slurmdbd" in facts["AccountingStorageType"],
        "may_all": facts["uid"] == 0 or facts["SlurmUser"].endswith(f"({facts['uid']})"),
        "operates": facts["level"] in {"Operator", "Administrator"},
        "slurm_user": facts["SlurmUser"].partition("(")[0] or "slurm",
        "skew_s": skew_s,
        "off": f"slurmctld on {facts['SlurmctldHost[0]'] or '?'} is {way} the clock here",
        "host": facts["SlurmctldHost[0]"] or "?",
        "memory": ", ".join(memory),
        "hidden": hidden,
        "hidden_part": "jobs" if "jobs" in hidden else "part",
    }
    return facts


def examine(facts: Facts) -> Iterator[Check]:
    """Judge the facts: what cannot be asked ends it."""
    for check in answers(SITE, facts):
        yield check
        if check.status is FAIL and check.name in {"programs", "slurm"}:
            return


SITE: Final = (
    Question("programs", "Are Slurm's programs here?", (
        Answer(FAIL, lambda s: ", ".join(name for name in s["missing"] if name in NEEDED),
              "not found here: {found}",
              "install Slurm's commands (Debian: slurm-client), or set [slurm] bin_dir"),
        Answer(WARN, lambda s: s["accounts"] and ", ".join(s["missing"]),
              "not found here: {found}, so rights are not known",
              "install Slurm's commands whole (Debian: slurm-client)"),
        Answer(OK, lambda s: ", ".join(n for n in (*NEEDED, *USEFUL) if n not in s["missing"]),
              "{found}"),
    )),
    Question("slurm", "Does slurmctld answer?", (
        Answer(FAIL, lambda s: s["trouble"], "{found}",
              "start slurmctld, or set [slurm] bin_dir and conf in rltuned.toml"),
        Answer(OK, otherwise, "{ping}"),
    )),
    Question("version", "Was rltuned tried with its release?", (
        Answer(FAIL, lambda s: s["release"] is None,
              "version {SLURM_VERSION!r} cannot be read", "report this"),
        Answer(WARN, lambda s: not TRIED[0] <= s["release"] <= TRIED[1],
              "Slurm {SLURM_VERSION} is outside the releases that were tried (22.05 to 26.05)",
              "watch some cycles of `rltuned run --dry-run` before going live"),
        Answer(OK, otherwise, "Slurm {SLURM_VERSION}"),
    )),
    Question("priority", "How does it order jobs?", (
        Answer(FAIL, lambda s: s["PriorityType"] == MULTIFACTOR
              and "INCR_ONLY" in s["priorities"].flags,
              "PriorityFlags=INCR_ONLY: a number may never come down again, so no job is written",
              "take INCR_ONLY out of PriorityFlags"),
        Answer(OK, lambda s: s["PriorityType"] == MULTIFACTOR,
              "{PriorityType}: both write modes work; site_factor keeps age and fair-share alive"),
        Answer(WARN, lambda s: s["PriorityType"] == BASIC,
              "{PriorityType}: SiteFactor has no effect, only write_mode = auto or priority works",
              "set PriorityType=priority/multifactor"),
        Answer(FAIL, lambda s: s["PriorityType"] or "no PriorityType",
              "{found}: how it orders jobs is not known, so nothing is done",
              "set PriorityType=priority/multifactor or priority/basic"),
    )),
    Question("weights", "What counts in its order?", (Answer(OK, otherwise, "{priorities}"),)),
    Question("site_factor_plugin", "Does anyone else write site factors?", (
        Answer(WARN, lambda s: s["priorities"].plugin,
              "{found} overwrites site factors every PriorityCalcPeriod",
              "use write_mode = priority, or unset PrioritySiteFactorPlugin"),
        Answer(OK, otherwise, "no plugin writes site factors"),
    ), "limits.write_mode", lambda s: (
        "priority" if s["priorities"].plugin else "auto", s["priorities"].advice)),
    Question("scheduler", "Does it backfill, and go on after an update?", (
        Answer(WARN, lambda s: s["SchedulerType"] != "sched/backfill",
              "{SchedulerType}: no backfill", "set SchedulerType=sched/backfill"),
        Answer(WARN, lambda s: "bf_continue" not in s["SchedulerParameters"].split(","),
              "sched/backfill without bf_continue: any job update ends a backfill cycle early",
              "add bf_continue to SchedulerParameters"),
        Answer(WARN, lambda s: s["priorities"].scheduler.get("bf_min_prio_reserve"),
              "bf_min_prio_reserve={found}: only jobs above that number get a start reserved, and "
              "rltuned moves jobs across it",
              "unset bf_min_prio_reserve, or take the jobs that need it out of [scope]"),
        Answer(OK, otherwise, "sched/backfill with bf_continue"),
    )),
    Question("backfill", "Does it reserve for all users, and far enough ahead?", (
        Answer(WARN, lambda s: at_most(s, "bf_max_job_user", 10),
              "bf_max_job_user={found}: so few jobs of a user are tested in each pass, so that all "
              "wait longer where few users hold the queue",
              "unset bf_max_job_user, or raise it above 10 in SchedulerParameters"),
        Answer(WARN, lambda s: at_most(s, "bf_window", 6 * 60),
              "bf_window={found}: nothing is reserved for jobs that start later than so many "
              "minutes from now, so that wide ones wait longer",
              "unset bf_window, or give it the minutes of the longest time limit"),
        Answer(OK, otherwise, ""),
    )),
    Question("select", "Does a job without --mem leave room for others?", (
        Answer(OK, lambda s: "MEMORY" not in s["SelectTypeParameters"].upper(),
              "{SelectType} {SelectTypeParameters}: memory is not counted, so no job waits for it"),
        Answer(OK, lambda s: s["memory"], "{SelectType} {SelectTypeParameters} with {found}"),
        Answer(WARN, otherwise,
              "{SelectType} {SelectTypeParameters} without DefMemPerCPU: a job without --mem takes "
              "a whole node",
              "set DefMemPerCPU (or DefMemPerGPU) in slurm.conf"),
    )),
    Question("preemption", "Do jobs return to the queue?", (
        Answer(OK, lambda s: absent(s["PreemptType"]) or s["PreemptType"].endswith("/none"), "off"),
        Answer(WARN, lambda s: s["PreemptMode"] or "?",
              "{PreemptType}, mode {found}: pre-empted jobs return to the queue",
              "list the partitions or QOS that may pre-empt under [scope] as left alone"),
    )),
    Question("client", "Are the commands of slurmctld's release, or older?", (
        Answer(WARN, lambda s: None in {s["release"], s["client_release"]},
              "scontrol --version says {client!r}", "compare the releases"),
        Answer(OK, lambda s: s["client_release"] == s["release"],
              "Slurm's commands here are of {client}"),
        Answer(FAIL, lambda s: s["client_release"] > s["release"],
              "Slurm's commands here are of {client}, slurmctld of {SLURM_VERSION}",
              "install the commands of slurmctld's release here, or set [slurm] bin_dir"),
        Answer(WARN, otherwise,
              "Slurm's commands here are of {client}, slurmctld of {SLURM_VERSION}",
              "install the commands of slurmctld's release here, or set [slurm] bin_dir"),
    )),
    Question("clock", "Do slurmctld and this machine agree on the time?", (
        Answer(WARN, lambda s: s["skew_s"] is None, "slurmctld did not tell its time",
              "compare by hand"),
        Answer(OK, lambda s: abs(s["skew_s"]) <= 1,
              "slurmctld on {host} and this machine agree within a second"),
        Answer(FAIL, lambda s: abs(s["skew_s"]) > _SKEW_FAIL_S, "{off}",
              "synchronise both clocks (chrony, ntpd)"),
        Answer(WARN, lambda s: abs(s["skew_s"]) > _SKEW_WARN_S, "{off}",
              "synchronise both clocks (chrony, ntpd)"),
        Answer(OK, otherwise, "{off}"),
    )),
    Question("rights", "May this user write, and no more?", (
        Answer(OK, lambda s: s["may_all"] and s["level"] is None,
              "{user} ({uid}) may write, and much more (no slurmdbd, so no operator level)"),
        Answer(WARN, lambda s: s["may_all"], "{user} ({uid}) may write, and much more",
              "run rltuned as an account of its own with AdminLevel=Operator"),
        Answer(OK, lambda s: s["operates"], "{user} ({uid}) is {level}"),
        Answer(FAIL, lambda s: not s["accounts"],
              "{user} ({uid}) cannot write: without slurmdbd only root and SlurmUser "
              "{SlurmUser} can",
              "run the service as {slurm_user} (User={slurm_user} in a drop-in, docs/install.md), "
              "and this check as well: runuser -u {slurm_user} -- rltuned check"),
        Answer(FAIL, lambda s: s["level"] is None,
              "{user} ({uid}) has admin level unknown; Priority needs Operator",
              "start slurmdbd, which does not answer, and run this check again"),
        Answer(FAIL, lambda s: s["level"],
              "{user} ({uid}) has admin level {found}; Priority needs Operator",
              "sacctmgr -i modify user {user} set adminlevel=Operator"),
        # slurmdbd modifies a user that it knows, and adds others
        Answer(FAIL, otherwise, "{user} ({uid}) has admin level unknown; Priority needs Operator",
              "sacctmgr -i add user {user} account=root adminlevel=Operator"),
    )),
    Question("private_data", "Does Slurm show this user every job?", (
        Answer(OK, lambda s: not s["hidden"], "Slurm shows all users every job"),
        Answer(OK, lambda s: s["may_all"] or s["operates"],
              "PrivateData={PrivateData}, and this user sees all"),
        Answer(FAIL, otherwise,
              "PrivateData={PrivateData}: this user sees only its own {hidden_part}, so every rank "
              "would be wrong",
              "run rltuned as an account with AdminLevel=Operator"),
    )),
    Question("reader", "What reads the queue?", (
        Answer(FAIL, lambda s: s["unread"], "{found}", "see the check of the queue"),
        Answer(WARN, lambda s: s["reading"] and s["reading"].stands_in,
              "{reading.detail}; squeue as text stands in",
              "build the pyslurm of slurmctld's release for the interpreter slurm.pyslurm_python "
              "(docs/compatibility.md), or take slurm.pyslurm_python out"),
        Answer(OK, lambda s: s["reading"], "{found.detail}"),
    )),
)  # fmt: skip
