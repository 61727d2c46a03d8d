"""What `rltuned check` asks Slurm: controllers and load, the queue, and how far delays reach."""

import math
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from typing import Final

from rltuned.cli.plan import known
from rltuned.cli.world import real_slurm
from rltuned.core.decide import decide
from rltuned.daemon.apply import PlanApplier
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.lease import open_lease
from rltuned.daemon.load import CALM
from rltuned.daemon.wiring import find_policy, in_force
from rltuned.domain.snapshot import Snapshot
from rltuned.errors import BackendError, ModelError, PolicyError, SettingsError, SnapshotError
from rltuned.journal.journal import Journal
from rltuned.settings import Loaded
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.config_checks import Check, Status
from rltuned.slurm.sdiag import pressures
from rltuned.slurm.site import (
    Priorities,
    RateLimit,
    acting_host,
    read_priorities,
    read_rate_limit,
)
from rltuned.slurm.talk import CallRecord
from rltuned.slurm.worth import Site, judge_order, judge_room

_SHOWN: Final = 5
"""So many remarks are quoted."""


def slurm_checks(loaded: Loaded) -> Iterator[Check]:
    """All that Slurm answers, and how the settings fit to it. Changes nothing there."""
    said: dict[str, None] = {}

    def listen(call: CallRecord) -> None:
        said.update(dict.fromkeys(f"{call.program}: {remark}" for remark in call.remarks))

    backend = real_slurm(loaded, SystemClock(), listen)
    slurm = backend.check()
    yield from slurm
    yield from controller_checks(loaded, backend)
    yield from fit_checks(loaded, slurm)
    seen = look(backend)
    if isinstance(seen, Check):
        yield seen
    else:
        yield from queue_checks(loaded, seen)
        yield from order_checks(loaded, backend, seen)
    yield remarks(list(said))


def remarks(said: list[str]) -> Check:
    """What Slurm's commands print on standard error beside answers that are used."""
    if not said:
        return Check.ok("remarks", "Slurm's commands print answers alone")
    more = f"; {len(said) - _SHOWN} more" if len(said) > _SHOWN else ""
    return Check.warn(
        "remarks",
        f"beside their answers, which are used: {'; '.join(said[:_SHOWN])}{more}",
        "correct what they name in the slurm.conf of this host",
    )


def controller_checks(loaded: Loaded, slurm: SlurmBackend) -> Iterator[Check]:
    """The controllers against [ha], and their load against [load]; nothing while none answers."""
    try:
        found, limit = slurm.controllers(), read_rate_limit(slurm.config())
    except BackendError:
        return  # the first check says so
    yield _ha(loaded, found)
    if loaded.settings.load.enabled:
        yield _load(loaded, slurm)
    yield _rate_limit(loaded, limit)


def _ha(loaded: Loaded, found: Mapping[str, bool]) -> Check:
    hosts = ", ".join(found)
    lease = open_lease(
        loaded.settings.ha,
        loaded.settings.slurm.timeout_s,
        SystemClock(),
        loaded.settings.daemon.state_dir,
    )
    acts = f"the slurmctld on {acting_host(found)} acts"
    if lease is None:
        if len(found) == 1:
            return Check.ok("ha", f"one slurmctld, on {hosts}")
        return Check.warn(
            "ha",
            f"{len(found)} slurmctld ({hosts}; {acts}) and no [ha] lease_dir",
            "run rltuned on one machine only, or set [ha] lease_dir on each of them",
        )
    if lease.host not in found:
        return Check.fail(
            "ha",
            f"this machine is {lease.host}, SlurmctldHost are {hosts}: it would never write",
            "set [ha] host to this machine's name in SlurmctldHost",
        )
    trouble = lease.trouble()
    if trouble:
        return Check.fail(
            "ha",
            trouble,
            "make lease_dir a folder of the user who runs rltuned, mode 0700, on all hosts",
        )
    return Check.ok("ha", f"{acts}; this is {lease.host}")


def _rate_limit(loaded: Loaded, limit: RateLimit | None) -> Check:
    if limit is None:
        return Check.ok("rate_limit", "none")
    most = loaded.settings.limits.max_changes
    text = (
        f"rl_enable: {limit.bucket} updates at once, then {limit.refill} a second, for all but "
        f"SlurmUser and root; a cycle sends up to {most}"
    )
    if limit.bucket >= most:
        return Check.ok("rate_limit", text)
    return Check.warn(
        "rate_limit", text, "raise rl_bucket_size, or lower [limits] max_changes to fit"
    )


def _load(loaded: Loaded, slurm: SlurmBackend) -> Check:
    try:
        load = slurm.load()
    except (BackendError, SnapshotError) as error:
        return Check.warn("load", str(error), "without sdiag rltuned does not back off by load")
    shares = pressures(load, None, loaded.settings.load.bounds())
    high = [f"{figure} {share:.0%}" for figure, share in shares.items() if share > CALM]
    if high:
        return Check.warn(
            "load",
            f"of its bound: {', '.join(high)}",
            "if that is usual here, raise the bound under [load]: at 100 % cycles are skipped",
        )
    figures = f"{load.server_threads} server threads, backfill cycle {load.backfill_s:.2f} s"
    return Check.ok("load", figures)


def look(backend: SlurmBackend) -> Snapshot | Check:
    """Queue and nodes as a cycle reads them, or why they cannot be read."""
    try:
        return backend.observe()
    except (BackendError, SnapshotError) as error:
        remedy = "run squeue, sinfo and sprio by hand as this user; see [slurm] bin_dir, timeout_s"
        return Check.fail("queue", str(error), remedy)


def queue_checks(loaded: Loaded, seen: Snapshot) -> Iterator[Check]:
    """How much there is in the queue, and the partitions beside the settings."""
    counts = f"{len(seen.pending)} pending, {len(seen.running)} running, {len(seen.nodes)} nodes"
    yield Check.ok("queue", counts)
    yield time_limits(seen)
    there = {p.name for p in seen.partitions}
    scope = loaded.settings.scope
    if scope.sla_partitions:
        left = ", ".join(scope.sla_partitions)
        yield Check.ok("scope", f"left alone: jobs that name {left}, also among others")
    for key, names in (
        ("scope.sla_partitions", scope.sla_partitions),
        ("scope.partitions", scope.partitions),
        ("oversubscribe.scope", loaded.settings.oversubscribe.scope),
        *(
            (f"sla.{number}.partition", [one.partition])
            for number, one in enumerate(loaded.settings.sla)
            if one.partition
        ),
    ):
        missing = [name for name in names if name not in there]
        if missing:
            yield Check.warn(
                key,
                f"{loaded.origin(key)}: Slurm shows no partition {', '.join(missing)}",
                f"correct the name in {key}; partitions with nodes: {', '.join(sorted(there))}",
            )


def time_limits(seen: Snapshot) -> Check:
    """Most rules and the models look at the limit; a job without one gives them none."""
    endless = {None, math.inf}
    names = [
        p.name for p in seen.partitions if p.default_time_s in endless and p.max_time_s in endless
    ]
    if not names:
        return Check.ok("time_limits", "every partition gives its jobs a time limit")
    return Check.warn(
        "time_limits",
        f"a job that names no limit has none in {', '.join(names)}, so that a short one "
        "looks like a long one",
        "set DefaultTime or MaxTime for the partition in slurm.conf",
    )


def fit_checks(loaded: Loaded, slurm: tuple[Check, ...]) -> Iterator[Check]:
    """What depends on settings and site together."""
    kind = next((c for c in slurm if c.name == "priority"), None)
    if kind is None:
        return
    mode = loaded.settings.limits.write_mode
    is_canary = loaded.settings.ladder.switchback() is not None
    if is_canary and mode == "priority" and kind.status is Status.OK:
        yield Check.warn(
            "canary",
            "in on blocks jobs are frozen at a number that follows fair share only as rltuned "
            "works it out, while those of off blocks follow Slurm's",
            "write_mode = auto compares delays alone",
        )
    if mode == "site_factor" and kind.status is not Status.OK:
        yield Check.fail(
            "write_mode",
            "write_mode = site_factor has no effect without priority/multifactor",
            "set PriorityType=priority/multifactor, or write_mode = auto",
        )


def order_checks(loaded: Loaded, backend: SlurmBackend, seen: Snapshot) -> Iterator[Check]:
    """How far delays reach, from one look at the queue."""
    try:
        config = backend.config()
    except (BackendError, SnapshotError):
        return  # the check of the controllers says so
    site = _site_of(loaded, seen, read_priorities(config), backend)
    yield from judge_order(site)
    yield from _room(loaded, seen)


def _site_of(loaded: Loaded, seen: Snapshot, priorities: Priorities, backend: SlurmBackend) -> Site:
    """What decides how far delays reach."""
    settings = loaded.settings
    scope, writing = settings.scope, settings.knobs().writing
    left = (
        scope.sla_partitions,
        scope.partitions,
        scope.excluded_users,
        scope.excluded_accounts,
        scope.excluded_qos,
    )
    qos: dict[str, int] = {}
    if seen.priorities.ages:
        with suppress(BackendError):  # slurmdbd does not say
            qos = backend.qos()
    return Site(
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


def _room(loaded: Loaded, seen: Snapshot) -> Iterator[Check]:
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
