"""`rltuned check`: how far delays reach beside the weights of this site, and what bounds them."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import numpy as np

from rltuned.cli.observed import marked
from rltuned.core.decide import decide
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.newcomers import POLICY, good_until
from rltuned.daemon.wiring import find_policy
from rltuned.domain.snapshot import Snapshot
from rltuned.errors import BackendError, ModelError, PolicyError, SettingsError, SnapshotError
from rltuned.journal.journal import Journal
from rltuned.settings import Loaded
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.config_checks import Check
from rltuned.slurm.site import Priorities, read_priorities
from rltuned.slurm.worth import Site, judge_order, judge_room


def order_checks(loaded: Loaded, backend: SlurmBackend) -> Iterator[Check]:
    """How far delays reach, from one look at the queue."""
    try:
        seen, config = backend.observe(), backend.config()
    except (BackendError, SnapshotError):
        return  # the check of the queue says so
    site = _site(loaded, backend, seen, read_priorities(config))
    yield from judge_order(site)
    yield from _room(loaded, site, seen)
    yield newcomers(loaded, config.get("JobSubmitPlugins", ""))


def qos_of(backend: SlurmBackend, seen: Snapshot) -> dict[str, int]:
    """Every QOS and its priority; empty = slurmdbd does not say."""
    try:
        return backend.qos() if seen.priorities.ages else {}
    except BackendError:
        return {}


def shares_of(backend: SlurmBackend, seen: Snapshot) -> tuple[float, ...]:
    """The different fair-share factors of those who wait; empty = none counts."""
    return backend.fair_shares(seen.pending) if seen.priorities.fair_weight else ()


def _site(loaded: Loaded, backend: SlurmBackend, seen: Snapshot, priorities: Priorities) -> Site:
    settings = loaded.settings
    scope, writing = settings.scope, settings.limits.writing(settings.order)
    left = (
        scope.sla_partitions,
        scope.partitions,
        scope.excluded_users,
        scope.excluded_accounts,
        scope.excluded_qos,
    )
    return Site(
        seen.priorities,
        priorities,
        seen.partitions,
        writing.own_slope,
        settings.order.max_delay_s,
        writes_priority=writing.mode == "priority",
        leaves_alone=any(left),
        qos=qos_of(backend, seen),
        used_qos=frozenset(job.qos for job in seen.pending),
        shares=shares_of(backend, seen),
        pending=len(seen.pending),
    )


def _room(loaded: Loaded, site: Site, seen: Snapshot) -> Iterator[Check]:
    try:
        policy, _, _ = find_policy(loaded)
        knobs = loaded.settings.knobs()
        knobs = replace(knobs, rules=replace(knobs.rules, min_age_s=0.0))
        with closing(Journal(loaded.settings.daemon.state_dir)) as journal:
            decision = decide(marked(seen, journal), policy, knobs)
    except (ModelError, PolicyError, SettingsError):
        return  # the check of the policy says so
    if decision.room_s is not None:
        wanted_s = np.minimum(decision.delays.wished_s, decision.delays.upper_s)
        yield from judge_room(site, wanted_s.tolist(), decision.room_s.tolist())


def newcomers(loaded: Loaded, plugins: str) -> Check:
    """Whether new jobs get their delay at submission."""
    path = loaded.settings.order.newcomers
    if path is None:
        told = "new jobs stand at the neutral delay until the next cycle"
        return Check.ok("newcomers", f"{told}: order.newcomers is not set")
    if "lua" not in plugins.split(","):
        return Check.warn(
            "newcomers",
            f"slurmctld has no JobSubmitPlugins=lua, so that nobody reads {path}",
            "put deploy/job_submit.lua beside slurm.conf, set JobSubmitPlugins=lua",
        )
    until = good_until(path)
    if until is not None and SystemClock().now() <= until:
        return Check.ok("newcomers", "new jobs get their delay at submission")
    return Check.warn(
        "newcomers",
        f"{path}: {'there is no stamp' if until is None else 'the stamp is out of date'}, so that "
        "new jobs stand at the neutral delay until the next cycle",
        f"run the daemon on stage full with policy {POLICY} and site factors",
    )
