"""What `rltuned check` asks Slurm: the site, the queue, and how far delays reach."""

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

from rltuned.cli.asking import real_slurm
from rltuned.cli.facts import FAIL, OK, WARN, Answer, Check, Facts, Question, answers, otherwise
from rltuned.cli.facts import wrong as error_of
from rltuned.cli.plan import known
from rltuned.core.decide import decide
from rltuned.core.slurm_plan import Parameters
from rltuned.daemon.apply import PlanApplier
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.lease import open_lease
from rltuned.daemon.wiring import find_policy, in_force
from rltuned.errors import BackendError
from rltuned.journal.journal import Journal
from rltuned.run import Call
from rltuned.settings import Loaded
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.run import NEEDED
from rltuned.slurm.site import (
    BASIC,
    CALM,
    MULTIFACTOR,
    acting_host,
    option_of,
    pressures,
    rate_limit,
    release_of,
    site_factor_plugin,
    weights_of,
)
from rltuned.slurm.values import absent, whole_numbers
from rltuned.text import hours
from rltuned.trusted import user_name

TRIED: Final = ((22, 5), (26, 5))
"""Releases that the reader has been run against, oldest and newest."""
COARSE_S: Final = 600.0
"""A point that is worth more waiting than this orders too coarsely."""
MAX_WEIGHT: Final = 2**32 - 1
"""Slurm takes no higher PriorityWeight*."""
_SKEW_WARN_S, _SKEW_FAIL_S = 2, 30
_LEFT_ALONE: Final = (
    "sla_partitions", "partitions", "excluded_users", "excluded_accounts", "excluded_qos",
)  # fmt: skip
_SHOWN: Final = 5
"""So many remarks are quoted."""
_LIMITED: Final = (
    "slurmctld takes {} requests of a user at once (rl_bucket_size), and a cycle needs up to {} "
    "besides its changes. Raise both together."
)
_CYCLE_REQUESTS: Final = 11
"""Of a cycle besides its changes: 6 to look, 2 for the configuration, 3 to read back
(docs/operations.md, "Load on slurmctld")."""


def slurm_checks(loaded: Loaded) -> Iterator[Check]:
    """All that Slurm answers, and how the settings fit to it. Changes nothing there."""
    said: dict[str, None] = {}

    def listen(call: Call) -> None:
        said.update(dict.fromkeys(f"{call.program}: {remark}" for remark in call.remarks))

    facts = facts_of(loaded, real_slurm(loaded, SystemClock(), listen))
    for check in answers(SITE, facts):
        yield check
        if check.status is FAIL and check.name in {"programs", "slurm"}:
            return  # there is nobody to ask
    yield from answers(QUEUE, facts)
    if not error_of(facts["seen"]):
        yield from answers(ORDER, facts)
    facts["said"] = [*said]
    yield from answers(REMARKS, facts)


def facts_of(loaded: Loaded, backend: SlurmBackend | None, **known: object) -> Facts:
    """What Slurm answers, asked when it is first needed."""
    return Facts(PROBES, loaded=loaded, settings=loaded.settings, backend=backend, **known)


def _level(s: Facts) -> str | None:
    """AdminLevel of this user; None = there is no slurmdbd, or no answer."""
    words = ("-n", "-P", "show", "user", s["user"], "format=adminlevel")
    with suppress(BackendError):
        if s["accounts"]:
            return str(s["backend"].commands.ask("sacctmgr", *words)).strip().split("\n")[0]
    return None


def _unknown(s: Facts) -> str:
    """Partitions that the settings name and Slurm does not show, with the lines that name them."""
    settings = s["settings"]
    named = [
        ("scope.sla_partitions", settings.scope.sla_partitions),
        ("scope.partitions", settings.scope.partitions),
        ("oversubscribe.scope", settings.oversubscribe.scope),
        *((f"sla.{n}.partition", [p.partition]) for n, p in enumerate(settings.sla) if p.partition),
    ]
    found = ((key, ", ".join(n for n in names if n not in s["partitions"])) for key, names in named)
    return "; ".join(f"{s['loaded'].origin(key)}: {key}: {names}" for key, names in found if names)


def _qos(s: Facts) -> dict[str, int]:
    """Every QOS and its priority; empty = not known."""
    with suppress(BackendError):
        return dict(s["backend"].qos()) if s["system"].ages else {}
    return {}


def _short(s: Facts) -> object:
    """What the priorities of now lack for the delays of now, and how many jobs are ordered."""
    loaded, seen = in_force(s["loaded"], SystemClock().now()), s["seen"]
    knobs = loaded.settings.knobs()
    knobs = replace(knobs, rules=replace(knobs.rules, min_age_s=0.0))
    with closing(Journal(loaded.settings.daemon.state_dir)) as journal:
        writer = PlanApplier(journal, SystemClock())
        seen = seen.marked(writer.remembered(seen.cluster, seen.taken_at))
        decision = decide(seen, find_policy(loaded)[0], knobs, context=known(writer, seen))
    return decision.short, len(decision.entries)


def _slope(s: Facts) -> float:
    """Points that a second of delay takes; 0 = no delay can be written."""
    if s["system"].ages:
        return float(s["system"].slope)
    no_ages = s["system"].kind == "basic" or s["mode"] == "priority"
    return 0.0 if no_ages else float(s["settings"].knobs().writing.own_slope)


PROBES: Final[Mapping[str, Callable[[Any], object]]] = {
    "uid": lambda _: os.geteuid(),
    "user": lambda s: user_name(s["uid"]),
    "missing": lambda s: [
        n for n in (*NEEDED, "sacctmgr") if s["backend"].commands.where(n) is None
    ],
    "config": lambda s: s["backend"].config(),
    "controllers": lambda s: s["backend"].controllers(),
    "count": lambda s: len(s["controllers"]),
    "hosts": lambda s: ", ".join(s["controllers"]),
    "acts": lambda s: f"the slurmctld on {acting_host(s['controllers'])} acts",
    "off_s": lambda s: s["config"] and s["backend"].ahead_s,
    "way": lambda s: "ahead of" if s["off_s"] > 0 else "behind",
    "client": lambda s: s["backend"].commands.ask("scontrol", "--version").split()[-1],
    "release": lambda s: release_of(s["SLURM_VERSION"]),
    "client_release": lambda s: release_of(str(s["client"])),
    "scheduler": lambda s: dict(o.split("=", 1) for o in s["options"] if "=" in o),
    "options": lambda s: s["SchedulerParameters"].split(","),
    "flags": lambda s: s["PriorityFlags"].upper().split(","),
    "plugin": lambda s: site_factor_plugin(s["config"]),
    "weights": lambda s: weights_of(s["config"]),
    "accounts": lambda s: "slurmdbd" in s["AccountingStorageType"],
    "level": _level,
    "may_all": lambda s: s["uid"] == 0 or s["SlurmUser"].endswith(f"({s['uid']})"),
    "operates": lambda s: s["level"] in {"Operator", "Administrator"},
    "slurm_user": lambda s: s["SlurmUser"].partition("(")[0] or "slurm",
    "memory": lambda s: (
        "DefMemPerGPU" in s["JobDefaults"]
        or any(
            s[f"DefMemPer{of}"].upper() not in {"", "UNLIMITED"} for of in ("CPU", "Node", "GPU")
        )
    ),
    "hidden": lambda s: (
        {"jobs", "nodes", "partitions", "reservations"} & {*s["PrivateData"].split(",")}
    ),
    "reading": lambda s: s["backend"].reading(),
    "limit": lambda s: rate_limit(s["config"]),
    "most": lambda s: s["settings"].limits.max_changes,
    "mode": lambda s: s["settings"].limits.write_mode,
    "lease": lambda s: open_lease(s["settings"], SystemClock()),
    "bounds": lambda s: s["settings"].load.bounds(),
    "load": lambda s: s["backend"].load(),
    "seen": lambda s: s["backend"].observe(),
    "shown": lambda s: ", ".join(s["partitions"]),
    "partitions": lambda s: {p.name: p for p in s["seen"].partitions},
    "leaves_alone": lambda s: any(getattr(s["settings"].scope, key) for key in _LEFT_ALONE),
    "system": lambda s: s["seen"].priorities,
    "pending": lambda s: s["seen"].pending,
    "delay_s": lambda s: s["settings"].order.max_delay_s,
    "delay": lambda s: hours(s["delay_s"]),
    "slope": _slope,
    "reach": lambda s: s["slope"] * s["delay_s"],
    "qos": _qos,
    "shares": lambda s: s["backend"].fair_shares(s["pending"]) if s["system"].fair_weight else (),
    "short": _short,
}


def _weight(s: Facts, name: str) -> int:
    return sum(whole_numbers(s["weights"].get(name, "0")))


def _unit(s: Facts, name: str, largest: int) -> int:
    """What Slurm divides such priorities by: the largest, unless flags forbid it (22.05 shows each
    NO_NORMAL_* as NO_NORMAL_ALL).
    """
    return 1 if f"NO_NORMAL_{name}" in s["flags"] else max(1, largest)


def nearest(s: Facts, factor: str) -> tuple[float, str] | None:
    """Points between the two partitions, or the two QOS of jobs that wait (else of all), that are
    nearest, and their names; None = there are no two, or their weight is 0.
    """
    levels: Mapping[str, int] = s["qos"]
    if factor == "Partition":
        levels = {name: one.priority_factor for name, one in s["partitions"].items()}
    unit = _unit(s, factor[:4].upper(), max(levels.values(), default=1))
    used = {job.qos for job in s["pending"]} & levels.keys() if factor == "QOS" else {*levels}
    chosen = used if len({levels[name] for name in used}) > 1 else levels.keys()
    by_level = {levels[name]: name for name in sorted(chosen)}
    pairs = [(high - low, low, high) for low, high in pairwise(sorted(by_level))]
    if not pairs or not _weight(s, factor):
        return None
    gap, low, high = min(pairs)
    return _weight(s, factor) * gap / unit, f"{by_level[low]} and {by_level[high]}"


def _crossed(factor: str) -> Callable[[Facts], object]:
    """A step between partitions or QOS that a delay can cross: its points, what they part, their
    hours, and the weight that is enough. Without slurmdbd's answer the weight is known, which is
    the widest step that there can be.
    """

    def found(s: Facts) -> object:
        weight, step = _weight(s, factor), nearest(s, factor) if s["slope"] else None
        least = "at least " if "NO_NORMAL_ALL" in s["flags"] else ""
        if factor == "QOS" and s["slope"] and weight and not s["qos"]:
            step, least = (weight, "the farthest"), "at most "
        if step is None or step[0] > s["reach"]:
            return None
        enough = math.ceil(weight * s["reach"] / step[0])
        return f"{least}{step[0]:.0f}", step[1], hours(step[0] / s["slope"]), enough

    return found


def worth(s: Facts) -> str:
    """The weights in hours of waiting."""

    def in_hours(points: float) -> str:
        return hours(points / s["slope"])

    said = [f"the longest delay is {s['delay']} = {s['reach']:.0f} points"]
    said += [f"QOS {two[1]} are {in_hours(two[0])} apart"] if (two := nearest(s, "QOS")) else []
    weight, shares = _weight(s, "FairShare"), s["shares"]
    if weight and len(shares) > 1:
        step = weight * min(b - a for a, b in pairwise(shares))
        mostly = ", so that delays mostly order the jobs of one user" if step > s["reach"] else ""
        widest = in_hours(weight * (shares[-1] - shares[0]))
        said.append(
            f"fair share parts the users who wait by up to {widest}, at least {in_hours(step)}"
            f"{mostly}"
        )
    return "; ".join(said)


def _no_room(s: Facts) -> tuple[float, str] | None:
    """The least that slurm.conf gives a new job, where the longest delay takes more, and what to do
    about it.
    """
    if not s["slope"]:
        return None
    weight = _weight(s, "Partition")
    factors = [one.priority_factor for one in s["partitions"].values()]
    share = min(factors, default=0) / _unit(s, "PART", max(factors, default=1))
    qos = s["qos"].values() or [0]
    least = weight * share + _weight(s, "QOS") * min(qos) / _unit(s, "QOS", max(qos))
    lacking = math.ceil(s["reach"] - least) + 1
    if lacking <= 0:
        return None
    enough = math.ceil(weight + lacking / (share or 1))
    if enough > MAX_WEIGHT:
        return least, "bring all PriorityJobFactor nearer to each other"
    return least, (
        f"set PriorityWeightPartition={enough} in slurm.conf, with PriorityJobFactor=1 or more in "
        "every partition"
    )


def at_most(name: str, most: int) -> Callable[[Facts], object]:
    """Whether a parameter of sched/backfill is set and so small; 0 = no limit."""
    return lambda s: (
        s["SchedulerType"] == "sched/backfill" and option_of(s["scheduler"], name, most)
    )


_COMMANDS: Final = "the commands here are of {client}, slurmctld of {SLURM_VERSION}"
_SAME: Final = "install the commands of slurmctld's release here, or set [slurm] bin_dir"
_CLOCKS: Final = "synchronise both clocks (chrony, ntpd)"
_OFF: Final = "slurmctld is {found:.0f} s {way} the clock here"
_LIMIT: Final = (
    "rl_enable: {limit[0]} updates at once, {limit[1]} a second; a cycle sends up to {most}"
)
_BASIC: Final = "set PriorityType=priority/multifactor"
_NO_LEVEL: Final = "{user} ({uid}) has admin level unknown; Priority needs Operator"

SITE: Final = (
    Question("programs", "Are Slurm's programs here?", (
        Answer(FAIL, lambda s: ", ".join(n for n in s["missing"] if n in NEEDED),
              "not found here: {found}",
              "install Slurm's commands (Debian: slurm-client), or set [slurm] bin_dir"),
        Answer(WARN, lambda s: s["missing"] and s["accounts"],
              "not found here: sacctmgr, so rights are not known", "install the rest of it"),
        Answer(OK, otherwise, "all found"),
    )),
    Question("slurm", "Does slurmctld answer?", (
        Answer(FAIL, lambda s: error_of(s["config"]) or error_of(s["controllers"]), "{found[0]}",
              "start slurmctld, or set [slurm] bin_dir and conf in rltuned.toml"),
        Answer(OK, otherwise, "{acts}"),
    )),
    Question("version", "Was rltuned tried with its release?", (
        Answer(FAIL, lambda s: s["release"] is None, "{SLURM_VERSION!r} is no release", "report"),
        Answer(WARN, lambda s: not TRIED[0] <= s["release"] <= TRIED[1],
              "Slurm {SLURM_VERSION} is outside the releases that were tried (22.05 to 26.05)",
              "watch some cycles of `rltuned run --dry-run` before going live"),
        Answer(OK, otherwise, "Slurm {SLURM_VERSION}"),
    )),
    Question("priority", "How does it order jobs?", (
        Answer(FAIL, lambda s: s["PriorityType"] == MULTIFACTOR and "INCR_ONLY" in s["flags"],
              "PriorityFlags=INCR_ONLY: no number comes down again, so no job is written",
              "take INCR_ONLY out of PriorityFlags"),
        Answer(OK, lambda s: s["PriorityType"] == MULTIFACTOR, "{PriorityType}"),
        Answer(WARN, lambda s: s["PriorityType"] == BASIC,
              "{PriorityType}: a SiteFactor has no effect", _BASIC),
        Answer(FAIL, otherwise, "PriorityType {PriorityType!r} is not known: nothing is done",
              f"{_BASIC} or priority/basic"),
    )),
    Question("weights", "What counts in its order?", (
        Answer(OK, lambda s: ", ".join(f"{name} {w}" for name, w in s["weights"].items())
              or "all 0", "{PriorityType}, weights: {found}"),
    )),
    Question("site_factor_plugin", "Does anyone else write site factors?", (
        Answer(WARN, lambda s: s["plugin"],
              "{found} overwrites site factors every PriorityCalcPeriod",
              "use write_mode = priority, or unset PrioritySiteFactorPlugin"),
        Answer(OK, otherwise, "no plugin"),
    ), "limits.write_mode", lambda s: (
        ("priority", f"{s['plugin']} sets site factors here, so Priority= is written.")
        if s["plugin"] else
        ("auto", "multifactor runs here, so site factors are written: QOS and fair share stay.")
        if s["PriorityType"] == MULTIFACTOR else
        ("auto", "This queue knows no site factors, so Priority= is written."))),
    Question("scheduler", "Does it backfill, and go on after an update?", (
        Answer(WARN, lambda s: s["SchedulerType"] != "sched/backfill",
              "{SchedulerType}: no backfill", "set SchedulerType=sched/backfill"),
        Answer(WARN, lambda s: "bf_continue" not in s["options"],
              "sched/backfill without bf_continue: any job update ends a backfill cycle early",
              "add bf_continue to SchedulerParameters"),
        Answer(WARN, lambda s: s["scheduler"].get("bf_min_prio_reserve"),
              "bf_min_prio_reserve={found}: rltuned moves jobs across it, and only those above get "
              "a start reserved", "unset it, or take the jobs that need it out of [scope]"),
        Answer(OK, otherwise, "sched/backfill with bf_continue"),
    )),
    Question("backfill", "Does it reserve for all users, and far enough ahead?", (
        Answer(WARN, at_most("bf_max_job_user", 10),
              "bf_max_job_user={found}: all wait longer where few users hold the queue",
              "unset bf_max_job_user, or raise it above 10 in SchedulerParameters"),
        Answer(WARN, at_most("bf_window", 6 * 60),
              "bf_window={found} minutes: nothing is reserved for jobs that start later",
              "unset bf_window, or give it the minutes of the longest time limit"),
    )),
    Question("select", "Does a job without --mem leave room for others?", (
        Answer(OK, lambda s: "MEMORY" not in s["SelectTypeParameters"].upper() or s["memory"],
              "{SelectType} {SelectTypeParameters}"),
        Answer(WARN, otherwise, "no DefMemPerCPU: a job without --mem takes a whole node",
              "set DefMemPerCPU (or DefMemPerGPU) in slurm.conf"),
    )),
    Question("preemption", "Do jobs return to the queue?", (
        Answer(OK, lambda s: absent(s["PreemptType"]) or s["PreemptType"].endswith("/none"), "off"),
        Answer(WARN, otherwise, "{PreemptType}, mode {PreemptMode}: jobs return to the queue",
              "list the partitions or QOS that may pre-empt under [scope] as left alone"),
    )),
    Question("client", "Are the commands of slurmctld's release, or older?", (
        Answer(WARN, lambda s: s["client_release"] is None,
              "scontrol --version says {client!r}", "compare the releases"),
        Answer(OK, lambda s: s["client_release"] == s["release"], "of {client}"),
        Answer(FAIL, lambda s: s["client_release"] > (s["release"] or (0, 0)), _COMMANDS, _SAME),
        Answer(WARN, otherwise, _COMMANDS, _SAME),
    )),
    Question("clock", "Do slurmctld and this machine agree on the time?", (
        Answer(WARN, lambda s: s["off_s"] is None, "slurmctld did not tell", "compare by hand"),
        Answer(FAIL, lambda s: abs(s["off_s"]) > _SKEW_FAIL_S and abs(s["off_s"]), _OFF, _CLOCKS),
        Answer(WARN, lambda s: abs(s["off_s"]) > _SKEW_WARN_S and abs(s["off_s"]), _OFF, _CLOCKS),
        Answer(OK, otherwise, "slurmctld and this machine agree within two seconds"),
    )),
    Question("rights", "May this user write, and no more?", (
        Answer(OK, lambda s: s["may_all"] and s["level"] is None,
              "{user} ({uid}) may write, and much more (no slurmdbd, so no operator level)"),
        Answer(WARN, lambda s: s["may_all"], "{user} ({uid}) may write, and much more",
              "run rltuned as an account of its own with AdminLevel=Operator"),
        Answer(OK, lambda s: s["operates"], "{user} ({uid}) is {level}"),
        Answer(FAIL, lambda s: not s["accounts"],
              "{user} ({uid}) cannot write: without slurmdbd only root and SlurmUser {SlurmUser} "
              "can", "run the service and this check as {slurm_user} (docs/install.md)"),
        Answer(FAIL, lambda s: s["level"] is None, _NO_LEVEL,
              "start slurmdbd, which does not answer, and run this check again"),
        Answer(FAIL, lambda s: s["level"],
              "{user} ({uid}) has admin level {found}; Priority needs Operator",
              "sacctmgr -i modify user {user} set adminlevel=Operator"),
        # slurmdbd modifies a user that it knows, and adds others
        Answer(FAIL, otherwise, _NO_LEVEL,
              "sacctmgr -i add user {user} account=root adminlevel=Operator"),
    )),
    Question("private_data", "Does Slurm show this user every job?", (
        Answer(OK, lambda s: not s["hidden"] or s["may_all"] or s["operates"], "it does"),
        Answer(FAIL, otherwise,
              "PrivateData={PrivateData}: this user sees a part, so every rank would be wrong",
              "run rltuned as an account with AdminLevel=Operator"),
    )),
    Question("reader", "What reads the queue?", (
        Answer(FAIL, lambda s: error_of(s["reading"]), "{found[0]}", "see the check of the queue"),
        Answer(WARN, lambda s: s["reading"].stands_in, "squeue as text: {reading.detail}",
              "build the pyslurm of slurmctld's release for the interpreter slurm.pyslurm_python "
              "(docs/compatibility.md), or take slurm.pyslurm_python out"),
        Answer(OK, otherwise, "{reading.detail}"),
    )),
)  # fmt: skip
QUEUE: Final = (
    Question("ha", "Is this machine the one that may write?", (
        Answer(OK, lambda s: s["lease"] is None and s["count"] == 1, "one slurmctld, on {hosts}"),
        Answer(WARN, lambda s: s["lease"] is None,
              "{count} slurmctld ({hosts}; {acts}) and no [ha] lease_dir",
              "run rltuned on one machine only, or set [ha] lease_dir on each of them"),
        Answer(FAIL, lambda s: s["lease"].host not in s["controllers"],
              "this machine is {lease.host}, SlurmctldHost are {hosts}: it would never write",
              "set [ha] host to this machine's name in SlurmctldHost"),
        Answer(FAIL, lambda s: s["lease"].trouble(), "{found}",
              "make lease_dir a folder of the user who runs rltuned, mode 0700, on all hosts"),
        Answer(OK, otherwise, "{acts}; this is {lease.host}"),
    ), "ha.lease_dir", lambda s: None if s["count"] == 1 else (
        None, f"{s['count']} slurmctld here: a second rltuned beside the backup needs this.")),
    Question("load", "Is slurmctld far from its bounds?", (
        Answer(OK, lambda s: s["bounds"] is None, ""),
        Answer(WARN, lambda s: error_of(s["load"]), "{load}",
              "without sdiag rltuned does not back off by load"),
        Answer(WARN, lambda s: ", ".join(f"{name} {share:.0%}" for name, share in pressures(
              s["load"], None, s["bounds"]).items() if share > CALM), "of its bound: {found}",
              "if that is usual here, raise the bound under [load]: at 100 % cycles are skipped"),
        Answer(OK, otherwise,
              "{load.server_threads} server threads, backfill cycle {load.backfill_s:.2f} s"),
    )),
    Question("rate_limit", "Does slurmctld take all changes of a cycle at once?", (
        Answer(OK, lambda s: s["limit"] is None, "none"),
        Answer(OK, lambda s: s["limit"][0] >= s["most"], _LIMIT),
        Answer(WARN, otherwise, _LIMIT, "raise rl_bucket_size, or lower [limits] max_changes"),
    ), "limits.max_changes", lambda s: s["limit"] and (
        max(1, s["limit"][0] - _CYCLE_REQUESTS), _LIMITED.format(s["limit"][0], _CYCLE_REQUESTS))),
    Question("canary", "Can blocks be compared?", (
        Answer(WARN, lambda s: s["settings"].ladder.switchback() is not None
              and s["mode"] == "priority" and s["PriorityType"] == MULTIFACTOR,
              "in on blocks jobs follow fair share as rltuned works it out, in off blocks as Slurm "
              "does", "write_mode = auto compares delays alone"),
    )),
    Question("write_mode", "Has the write mode an effect?", (
        Answer(FAIL, lambda s: s["mode"] == "site_factor" and s["PriorityType"] != MULTIFACTOR,
              "write_mode = site_factor has no effect without priority/multifactor",
              f"{_BASIC}, or write_mode = auto"),
    )),
    Question("queue", "Can queue and nodes be read as a cycle reads them?", (
        Answer(FAIL, lambda s: error_of(s["seen"]), "{seen}",
              "run squeue, sinfo and sprio by hand as this user; see [slurm] bin_dir, timeout_s"),
        Answer(OK, lambda s: [len(s["seen"].pending), len(s["seen"].running), len(s["seen"].nodes)],
              "{found[0]} pending, {found[1]} running, {found[2]} nodes"),
    )),
    Question("time_limits", "Has every job a limit that rules and models can look at?", (
        Answer(OK, lambda s: error_of(s["seen"]), ""),
        Answer(WARN, lambda s: ", ".join(name for name, one in s["partitions"].items()
              if {one.default_time_s, one.max_time_s} <= {None, math.inf}),
              "a job that names no limit has none in {found}: a short one looks like a long one",
              "set DefaultTime or MaxTime for the partition in slurm.conf"),
        Answer(OK, otherwise, "every partition gives its jobs a time limit"),
    )),
    Question("scope", "Which partitions are left alone?", (
        Answer(OK, lambda s: error_of(s["seen"]), ""),
        Answer(WARN, _unknown, "Slurm shows no such partition: {found}",
              "correct the name; partitions with nodes: {shown}"),
        Answer(OK, lambda s: ", ".join(s["settings"].scope.sla_partitions),
              "left alone: jobs that name {found}, also among others"),
    ), "scope.partitions", lambda s: ([*s["partitions"]], "")),
)  # fmt: skip
ORDER: Final = (
    Question("order", "What is the longest delay worth?", (
        Answer(WARN, lambda s: s["system"].kind == "basic" and s["leaves_alone"],
              "under priority/basic a job that rltuned leaves alone stands behind every job that "
              "it writes, where they share nodes",
              f"{_BASIC}, or take SLA partitions and exclusions out of [scope]"),
        Answer(OK, lambda s: s["system"].kind == "basic",
              "a point is a minute of waiting: jobs that are not written stand behind the others"),
        Answer(FAIL, lambda s: s["mode"] != "priority" and s["plugin"],
              "{found} sets site factors, so that no delay is written",
              "unset PrioritySiteFactorPlugin, or set write_mode = priority"),
        Answer(WARN, lambda s: not s["slope"] and not s["system"].ages,
              "slurmctld counts age only with slurmdbd: no delay can be written as a priority",
              "set write_mode = auto"),
        Answer(WARN, lambda s: not s["slope"] and math.ceil(s["system"].max_age_s / COARSE_S),
              "PriorityWeightAge = 0: waiting is worth no points, so that no delay can be written",
              "set PriorityWeightAge to {found} or more"),
        Answer(OK, worth, "{found}"),
    )),
    Question("order", "Is a point fine enough?", (
        Answer(WARN, lambda s: s["system"].ages and 0 < s["slope"] * COARSE_S < 1
              and (1 / s["slope"] / 60, math.ceil(1 / s["slope"] / COARSE_S)),
              "a point is worth {found[0]:.0f} minutes of waiting: too coarse to order by",
              "multiply all PriorityWeight* by {found[1]} or more"),
    )),
    Question("order", "Does age grow for long enough?", (
        Answer(WARN, lambda s: s["system"].ages and s["system"].max_age_s < 2 * s["delay_s"]
              and hours(s["system"].max_age_s),
              "age stops growing after {found} (PriorityMaxAge), and a delay may last {delay}",
              "set PriorityMaxAge to twice [order] max_delay_s or more, and scale "
              "PriorityWeightAge with it; or lower max_delay_s"),
    )),
    *(Question("order", f"Can a delay cross what {factor} parts?", (
        Answer(WARN, _crossed(factor),
              f"{factor} {{found[1]}} lie {{found[0]}} points = {{found[2]}} of waiting apart: a "
              "delay of up to {delay} can cross that",
              f"raise PriorityWeight{factor} above {{found[3]}}, or lower max_delay_s"),
    )) for factor in ("Partition", "QOS")),
    Question("order", "Is every job looked at?", (
        Answer(WARN, lambda s: len(s["pending"]) > (
              option_of(s["scheduler"], "bf_max_job_test") or Parameters().bf_max_job_test)
              and len(s["pending"]),
              "{found} jobs wait, more than bf_max_job_test: wide ones wait longer",
              "raise bf_max_job_test in SchedulerParameters, as far as slurmctld has time for it"),
    )),
    Question("order", "Has a new job the points for the longest delay?", (
        Answer(WARN, _no_room,
              "the longest delay takes {reach:.0f} points, and slurm.conf gives a new job as few "
              "as {found[0]:.0f}: in a long queue delays are cut",
              "{found[1]}; or lower [order] max_delay_s"),
    )),
    Question("order", "Have the jobs that wait?", (
        Answer(OK, lambda s: error_of(s["short"]), ""),  # the check of the policy says so
        Answer(WARN, lambda s: s["short"][0].jobs and [*s["short"], hours(s["short"][0].least_s)],
              "{found[0].jobs} of {found[1]} pending jobs have priorities too low for their "
              "delays, which are shortened to as little as {found[2]}", "{found[0].remedy}"),
    )),
)  # fmt: skip
REMARKS: Final = (
    Question("remarks", "Do Slurm's commands print answers alone?", (
        Answer(OK, lambda s: not s["said"], "they do"),
        Answer(WARN, lambda s: "; ".join(s["said"][:_SHOWN]), "beside good answers: {found}",
              "correct what they name in the slurm.conf of this host"),
    )),
)  # fmt: skip
