"""What `rltuned check` asks Slurm: controllers and load, the queue, and how far delays reach."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, Final

from rltuned.cli.asking import real_slurm
from rltuned.cli.plan import known
from rltuned.core.decide import decide
from rltuned.daemon.apply import PlanApplier
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.lease import open_lease
from rltuned.daemon.wiring import find_policy, in_force
from rltuned.domain.snapshot import Snapshot
from rltuned.errors import BackendError, ModelError, PolicyError, SettingsError, SnapshotError
from rltuned.journal.journal import Journal
from rltuned.run import Call
from rltuned.settings import Loaded
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.config_checks import (
    FAIL,
    OK,
    WARN,
    Answer,
    Check,
    Facts,
    Lazy,
    Question,
    answers,
    otherwise,
    wrong,
)
from rltuned.slurm.site import CALM, acting_host, pressures, read_priorities, read_rate_limit
from rltuned.slurm.worth import Site, judge_order, judge_room

_SHOWN: Final = 5
"""So many remarks are quoted."""
_CYCLE_REQUESTS: Final = 11
"""Of a cycle besides its changes: 6 to look, 2 for the configuration, 3 to read back
(docs/operations.md, "Load on slurmctld")."""

_LIMITED: Final = (
    "slurmctld takes {} requests of a user at once (rl_bucket_size), and a cycle needs up to {} "
    "besides its changes. Raise both together."
)


def slurm_checks(loaded: Loaded) -> Iterator[Check]:
    """All that Slurm answers, and how the settings fit to it. Changes nothing there."""
    said: dict[str, None] = {}

    def listen(call: Call) -> None:
        said.update(dict.fromkeys(f"{call.program}: {remark}" for remark in call.remarks))

    backend = real_slurm(loaded, SystemClock(), listen)
    slurm = backend.check()
    yield from slurm
    priority = next((one for one in slurm if one.name == "priority"), None)
    facts = facts_of(loaded, backend, priority=priority)
    yield from queue_checks(facts)
    if isinstance(facts["seen"], Snapshot):
        yield from order_checks(loaded, backend, facts["seen"])
    yield from answers(REMARKS, {"said": [*said]})


def facts_of(loaded: Loaded, backend: SlurmBackend | None, **known: object) -> Lazy:
    """What Slurm answers, asked when it is first needed. priority: the check of that name."""
    settings = loaded.settings
    return Lazy(PROBES, loaded=loaded, settings=settings, backend=backend, **known)


def queue_checks(facts: Lazy) -> Iterator[Check]:
    """The controllers, the settings beside them, and the queue. What does not answer has been
    named by the first checks.
    """
    if not wrong(facts["config"]) and not wrong(facts["controllers"]):
        yield from answers(CONTROLLERS, facts)
    if facts["priority"] is not None:
        yield from answers(FIT, facts)
    yield from answers(QUEUE, facts)
    if wrong(facts["seen"]):
        return
    scope, there = facts["settings"].scope, {p.name for p in facts["seen"].partitions}
    for key, names in (
        ("scope.sla_partitions", scope.sla_partitions),
        ("scope.partitions", scope.partitions),
        ("oversubscribe.scope", facts["settings"].oversubscribe.scope),
        *(
            (f"sla.{number}.partition", [one.partition])
            for number, one in enumerate(facts["settings"].sla)
            if one.partition
        ),
    ):
        if missing := [name for name in names if name not in there]:
            yield Check(
                key,
                WARN,
                f"{facts['loaded'].origin(key)}: Slurm shows no partition {', '.join(missing)}",
                f"correct the name in {key}; partitions with nodes: {', '.join(sorted(there))}",
            )


# -- how the facts are found out -----------------------------------------------------------------


def _lease(facts: Facts) -> object:
    keys = facts["settings"]
    return open_lease(keys, SystemClock())


def _high(facts: Facts) -> str:
    """The figures that are near their bounds."""
    shares = pressures(facts["load"], None, facts["settings"].load.bounds())
    return ", ".join(f"{figure} {share:.0%}" for figure, share in shares.items() if share > CALM)


def _endless(facts: Facts) -> str:
    """The partitions that give a job no time limit, at which most rules and the models look."""
    none = {None, math.inf}
    those = (p for p in facts["seen"].partitions if {p.default_time_s, p.max_time_s} <= none)
    return ", ".join(p.name for p in those)


def _quoted(facts: Facts) -> str:
    said = facts["said"]
    more = [f"{len(said) - _SHOWN} more"] if len(said) > _SHOWN else []
    return "; ".join([*said[:_SHOWN], *more])


PROBES: Final[Mapping[str, Callable[[Any], object]]] = {
    "config": lambda s: s["backend"].config(),
    "controllers": lambda s: s["backend"].controllers(),
    "priorities": lambda s: read_priorities(s["config"]),
    "limit": lambda s: read_rate_limit(s["config"]),
    "most": lambda s: s["settings"].limits.max_changes,
    "lease": _lease,
    "count": lambda s: len(s["controllers"]),
    "hosts": lambda s: ", ".join(s["controllers"]),
    "acts": lambda s: f"the slurmctld on {acting_host(s['controllers'])} acts",
    "load": lambda s: s["backend"].load(),
    "seen": lambda s: s["backend"].observe(),
    "partitions": lambda s: [p.name for p in s["seen"].partitions],
}


# -- the table -----------------------------------------------------------------------------------

CONTROLLERS: Final = (
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
        Answer(OK, lambda s: s["settings"].load.bounds() is None, ""),
        Answer(WARN, lambda s: wrong(s["load"]), "{load}",
              "without sdiag rltuned does not back off by load"),
        Answer(WARN, _high, "of its bound: {found}",
              "if that is usual here, raise the bound under [load]: at 100 % cycles are skipped"),
        Answer(OK, otherwise,
              "{load.server_threads} server threads, backfill cycle {load.backfill_s:.2f} s"),
    )),
    Question("rate_limit", "Does slurmctld take all changes of a cycle at once?", (
        Answer(OK, lambda s: s["limit"] is None, "none"),
        Answer(OK, lambda s: s["limit"].bucket >= s["most"],
              "rl_enable: {limit.bucket} updates at once, then {limit.refill} a second, for all "
              "but SlurmUser and root; a cycle sends up to {most}"),
        Answer(WARN, otherwise,
              "rl_enable: {limit.bucket} updates at once, then {limit.refill} a second, for all "
              "but SlurmUser and root; a cycle sends up to {most}",
              "raise rl_bucket_size, or lower [limits] max_changes to fit"),
    ), "limits.max_changes", lambda s: s["limit"] and (
        max(1, s["limit"].bucket - _CYCLE_REQUESTS),
        _LIMITED.format(s["limit"].bucket, _CYCLE_REQUESTS))),
)  # fmt: skip
FIT: Final = (
    Question("canary", "Can blocks be compared?", (
        Answer(WARN, lambda s: s["settings"].ladder.switchback() is not None
              and s["settings"].limits.write_mode == "priority" and s["priority"].status is OK,
              "in on blocks jobs are frozen at a number that follows fair share only as rltuned "
              "works it out, while those of off blocks follow Slurm's",
              "write_mode = auto compares delays alone"),
    )),
    Question("write_mode", "Has the write mode an effect?", (
        Answer(FAIL, lambda s: s["settings"].limits.write_mode == "site_factor"
              and s["priority"].status is not OK,
              "write_mode = site_factor has no effect without priority/multifactor",
              "set PriorityType=priority/multifactor, or write_mode = auto"),
    )),
)  # fmt: skip
QUEUE: Final = (
    Question("queue", "Can queue and nodes be read as a cycle reads them?", (
        Answer(FAIL, lambda s: wrong(s["seen"]), "{seen}",
              "run squeue, sinfo and sprio by hand as this user; see [slurm] bin_dir, timeout_s"),
        Answer(OK, lambda s: [len(s["seen"].pending), len(s["seen"].running), len(s["seen"].nodes)],
              "{found[0]} pending, {found[1]} running, {found[2]} nodes"),
    )),
    Question("time_limits", "Has every job a limit that rules and models can look at?", (
        Answer(OK, lambda s: wrong(s["seen"]), ""),
        Answer(WARN, _endless,
              "a job that names no limit has none in {found}, so that a short one looks like a "
              "long one", "set DefaultTime or MaxTime for the partition in slurm.conf"),
        Answer(OK, otherwise, "every partition gives its jobs a time limit"),
    )),
    Question("scope", "Which partitions are left alone?", (
        Answer(OK, lambda s: not wrong(s["seen"]) and ", ".join(s["settings"].scope.sla_partitions),
              "left alone: jobs that name {found}, also among others"),
    ), "scope.partitions", lambda s: (s["partitions"], "")),
)  # fmt: skip
REMARKS: Final = (
    Question("remarks", "Do Slurm's commands print answers alone?", (
        Answer(OK, lambda s: not s["said"], "Slurm's commands print answers alone"),
        Answer(WARN, _quoted, "beside their answers, which are used: {found}",
              "correct what they name in the slurm.conf of this host"),
    )),
)  # fmt: skip


# -- how far delays reach ------------------------------------------------------------------------


def order_checks(loaded: Loaded, backend: SlurmBackend, seen: Snapshot) -> Iterator[Check]:
    """How far delays reach, from one look at the queue."""
    try:
        priorities = read_priorities(backend.config())
    except (BackendError, SnapshotError):
        return  # the check of the controllers says so
    settings = loaded.settings
    scope, writing = settings.scope, settings.knobs().writing
    left = [scope.sla_partitions, scope.partitions]
    left += [scope.excluded_users, scope.excluded_accounts, scope.excluded_qos]
    qos: dict[str, int] = {}
    if seen.priorities.ages:
        with suppress(BackendError):  # slurmdbd does not say
            qos = backend.qos()
    site = Site(
        seen.priorities,
        priorities,
        seen.partitions,
        writing.own_slope,
        settings.order.max_delay_s,
        writes_priority=writing.mode == "priority",
        leaves_alone=any(left),
        qos=qos,
        used_qos=frozenset(job.qos for job in seen.pending),
        shares=backend.fair_shares(seen.pending) if seen.priorities.fair_weight else (),
        pending=len(seen.pending),
    )
    yield from judge_order(site)
    try:
        loaded = in_force(loaded, SystemClock().now())
        policy = find_policy(loaded)[0]
        knobs = loaded.settings.knobs()
        knobs = replace(knobs, rules=replace(knobs.rules, min_age_s=0.0))
        with closing(Journal(loaded.settings.daemon.state_dir)) as journal:
            writer = PlanApplier(journal, SystemClock())
            seen = seen.marked(writer.remembered(seen.cluster, seen.taken_at))
            decision = decide(seen, policy, knobs, context=known(writer, seen))
    except (ModelError, PolicyError, SettingsError):
        return  # the check of the policy says so
    yield from judge_room(decision.short, len(decision.entries))
