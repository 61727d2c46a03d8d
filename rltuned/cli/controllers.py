"""What `rltuned check` says of slurmctld: how many there are, which acts, how busy it is."""

from collections.abc import Iterator

from rltuned.daemon.clock import SystemClock
from rltuned.daemon.ha.leader import open_lease
from rltuned.daemon.load import CALM
from rltuned.errors import BackendError, SnapshotError
from rltuned.settings import Loaded
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.checks import Check
from rltuned.slurm.controllers import Controller, acting_host
from rltuned.slurm.sdiag import pressures
from rltuned.slurm.site import RateLimit


def controller_checks(loaded: Loaded, slurm: SlurmBackend) -> Iterator[Check]:
    """The controllers against [ha], and their load against [load]; nothing while none answers."""
    try:
        found, limit = slurm.controllers(), slurm.rate_limit()
    except BackendError:
        return  # the first check says so
    yield _ha(loaded, found)
    if loaded.settings.load.enabled:
        yield _load(loaded, slurm)
    yield _rate_limit(loaded, limit)


def _ha(loaded: Loaded, found: tuple[Controller, ...]) -> Check:
    hosts = ", ".join(c.host for c in found)
    lease = open_lease(loaded.settings.ha, loaded.settings.slurm.timeout_s, SystemClock())
    acts = f"the slurmctld on {acting_host(found)} acts"
    if lease is None:
        if len(found) == 1:
            return Check.ok("ha", f"one slurmctld, on {hosts}")
        return Check.warn(
            "ha",
            f"{len(found)} slurmctld ({hosts}; {acts}) and no [ha] lease_dir",
            "run rltuned on one machine only, or set [ha] lease_dir on each of them",
        )
    if lease.host not in {c.host for c in found}:
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
    told = (
        f"rl_enable: {limit.bucket} updates at once, then {limit.refill} a second, for all but "
        f"SlurmUser and root; a cycle sends up to {most}"
    )
    if limit.bucket >= most:
        return Check.ok("rate_limit", told)
    return Check.warn(
        "rate_limit", told, "raise rl_bucket_size, or lower [limits] max_changes to fit"
    )


def _load(loaded: Loaded, slurm: SlurmBackend) -> Check:
    try:
        load = slurm.load()
    except (BackendError, SnapshotError) as error:
        return Check.warn("load", str(error), "without sdiag rltuned does not back off by load")
    shares = pressures(load, None, loaded.settings.load.bounds())
    told = f"{load.server_threads} server threads, backfill cycle {load.backfill_s:.2f} s"
    high = [f"{figure} {share:.0%}" for figure, share in shares.items() if share > CALM]
    if high:
        return Check.warn(
            "load",
            f"of its bound: {', '.join(high)}",
            "if that is usual here, raise the bound under [load]: at 100 % cycles are skipped",
        )
    return Check.ok("load", told)
