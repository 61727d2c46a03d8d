"""`rltuned check`: everything that must be right before going live, each with its remedy."""

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry

from rltuned.cli.controllers import controller_checks
from rltuned.cli.flags import ConfigOption, JsonOption, say, settings_of
from rltuned.cli.machine import machine_checks, user_name
from rltuned.cli.reach import order_checks
from rltuned.cli.world import real_slurm
from rltuned.daemon.canary.breaker import clusters
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.signals import is_paused
from rltuned.daemon.surroundings import doubts
from rltuned.daemon.web.server import Health, MetricsServer
from rltuned.daemon.web.tls import endpoint_context
from rltuned.daemon.wiring import find_policy
from rltuned.domain.snapshot import Snapshot
from rltuned.errors import (
    BackendError,
    JournalError,
    JournalLostError,
    ModelError,
    SettingsError,
    SnapshotError,
    SolverError,
)
from rltuned.journal.journal import Journal
from rltuned.settings import Loaded
from rltuned.slurm.checks import Check, Status
from rltuned.solver import probe, solver_named

app = typer.Typer()

_PROBE_S = 30.0
"""A slow solver is found slow, and not broken."""
_MARKS = {Status.OK: "ok  ", Status.WARN: "warn", Status.FAIL: "FAIL"}


@app.command()
def check(
    *,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    only_here: Annotated[
        bool, typer.Option("--no-slurm", help="Leave Slurm out: settings, model, state folder.")
    ] = False,
) -> None:
    """Check settings, model, state folder and Slurm. Changes nothing in Slurm.

    Exit codes: 0 = nothing fails (warnings may remain); 1 = something fails; 2 = the settings file
    cannot be read at all.
    """
    loaded = settings_of(config)
    checks = list(_here(loaded))
    if not only_here:
        backend = real_slurm(loaded, SystemClock())
        slurm = backend.check()
        checks += [
            *slurm,
            *controller_checks(loaded, backend),
            *_fit(loaded, slurm),
            *_queue(loaded, backend.observe),
            *order_checks(loaded, backend),
        ]
    if as_json:
        rows = [
            {"name": c.name, "status": c.status.value, "detail": c.detail, "remedy": c.remedy}
            for c in checks
        ]
        say(json.dumps(rows, indent=2))
    else:
        for item in checks:
            say(f"{_MARKS[item.status]}  {item.name}: {item.detail}")
            if item.remedy and item.status is not Status.OK:
                say(f"      remedy: {item.remedy}")
    raise typer.Exit(1 if any(c.status is Status.FAIL for c in checks) else 0)


def _here(loaded: Loaded) -> Iterator[Check]:
    yield Check.ok("settings", f"{loaded.path or 'no file: defaults'}")
    yield from machine_checks(loaded)
    yield from _trust(loaded)
    yield _policy(loaded)
    yield _solver(loaded)
    journal = _journal(loaded)
    yield journal
    yield _http(loaded)
    yield _mode(loaded)
    if journal.status is Status.OK:
        yield _breakers(loaded)


def _trust(loaded: Loaded) -> Iterator[Check]:
    """Who can change what the daemon runs and reads; what any user can change stops its start."""
    found = doubts(loaded)
    for doubt in found:
        status = Status.FAIL if doubt.fatal else Status.WARN
        detail, _, fix = f"{doubt.key}: {doubt}".partition("; fix with: ")
        yield Check("trust", status, detail, fix)
    if not found:
        yield Check.ok("trust", "only root and this user can change what is run and read")


def _policy(loaded: Loaded) -> Check:
    try:
        policy, digest, _ = find_policy(loaded)
    except (SettingsError, ModelError) as error:
        return Check.fail("policy", str(error), "choose another [policy] name")
    detail = f"{policy.name}, card sha256 {digest}" if digest else f"{policy.name}, a base policy"
    return Check.ok("policy", detail)


def _solver(loaded: Loaded) -> Check:
    """A tiny program, solved as the daemon would."""
    settings = loaded.settings
    if settings.policy.placement != "milp":
        return Check.ok("solver", f"not needed: placement {settings.policy.placement}")
    name, budget = settings.placement.solver, settings.knobs().tuning.budget
    began = time.perf_counter()
    try:
        probe(solver_named(name), replace(budget, wall_s=max(budget.wall_s, _PROBE_S)))
    except SolverError as error:
        return Check.fail(
            "solver",
            f"{error}: every joint decision would fall back to best fit",
            "pip install highspy" if name == "highs" else "reinstall pulp: CBC comes with it",
        )
    took_s = time.perf_counter() - began
    if took_s > budget.wall_s:
        return Check.warn(
            "solver",
            f"{name} takes {took_s:.2f} s for the smallest program and may take {budget.wall_s} s: "
            "joint decisions fall back to best fit",
            "raise [placement] budget_s, or give this machine less to do",
        )
    return Check.ok("solver", f"{name} solves, {took_s:.2f} s")


def _journal(loaded: Loaded) -> Check:
    """Opens the journal as the daemon does, and tells what it says is still ours."""
    folder = loaded.settings.daemon.state_dir
    journal = Journal(folder)
    try:
        journal.probe()
        cycle = journal.last_cycle()
    except JournalError as error:
        detail, _, fix = str(error).partition("; fix with: ")
        remedy = f"mkdir -p {folder} && chown -R {user_name()}: {folder} && chmod 0700 {folder}"
        if isinstance(error, JournalLostError):
            remedy = (
                "stop the daemon, rltuned restore --all --as-shown, put the journal's files away"
            )
        elif fix.startswith("chmod"):
            remedy = fix
        elif not fix and os.access(folder, os.W_OK | os.X_OK):
            remedy = "make room there, or set daemon.state_dir to another folder"
        return Check.fail("journal", detail, remedy)
    finally:
        journal.close()
    return Check.ok("journal", f"{journal.path}, last cycle {cycle}")


def _http(loaded: Loaded) -> Check:
    http = loaded.settings.http
    if not http.enabled:
        return Check.ok("http", "switched off")
    try:
        tls = endpoint_context(http)
    except SettingsError as error:
        return Check.fail("http", str(error), "correct http.tls_cert, tls_key, tls_clients")
    try:
        server = MetricsServer(
            http.address,
            http.port,
            CollectorRegistry(),
            lambda: Health(ready=False, reason=""),
            tls=tls,
        )
    except SettingsError as error:
        return Check.warn(
            "http",
            str(error),
            "fine when it is this daemon that listens there; else choose another http.port",
        )
    server.close()
    return Check.ok("http", f"{http.address}:{http.port} is free")


def _mode(loaded: Loaded) -> Check:
    daemon = loaded.settings.daemon
    rung = loaded.settings.ladder.ladder().rung
    if not rung.writes:
        return Check.ok("mode", f"stage {rung}: nothing is written to Slurm")
    if is_paused(daemon.pause_file):
        return Check.warn("mode", f"paused by {daemon.pause_file}", "remove the file to go on")
    mode = loaded.settings.limits.write_mode
    return Check.ok("mode", f"stage {rung}: it writes, write_mode {mode}")


def _breakers(loaded: Loaded) -> Check:
    journal = Journal(loaded.settings.daemon.state_dir)
    try:
        every = [item for those in clusters(journal).values() for item in those.items()]
    except JournalError as error:
        remedy = "rltuned restore --all, then move the journal away"
        return Check.fail("breakers", str(error), remedy)
    finally:
        journal.close()
    named = sorted({name for name, breaker in every if breaker.is_open})
    if not named:
        return Check.ok("breakers", "no circuit breaker is open")
    return Check.warn(
        "breakers",
        f"open: {', '.join(named)}; nothing is written there",
        "rltuned breaker show says why; rltuned breaker reset when it is fixed",
    )


def _queue(loaded: Loaded, observe: Callable[[], Snapshot]) -> Iterator[Check]:
    """Reads queue and nodes as a cycle does, and compares the partitions with the settings."""
    try:
        seen = observe()
    except (BackendError, SnapshotError) as error:
        yield Check.fail(
            "queue",
            str(error),
            "run squeue, sinfo and sprio by hand as this user; see [slurm] bin_dir, timeout_s",
        )
        return
    told = f"{len(seen.pending)} pending, {len(seen.running)} running, {len(seen.nodes)} nodes"
    yield Check.ok("queue", told)
    yield _time_limits(seen)
    there = {p.name for p in seen.partitions}
    scope = loaded.settings.scope
    if scope.sla_partitions:
        told = f"left alone: jobs that name {', '.join(scope.sla_partitions)}, also among others"
        yield Check.ok("scope", told)
    for key, names in (
        ("scope.sla_partitions", scope.sla_partitions),
        ("scope.partitions", scope.partitions),
        ("oversubscribe.scope", loaded.settings.oversubscribe.scope),
    ):
        missing = [name for name in names if name not in there]
        if missing:
            yield Check.warn(
                key,
                f"{loaded.origin(key)}: Slurm shows no partition {', '.join(missing)}",
                f"correct the name in {key}; partitions with nodes: {', '.join(sorted(there))}",
            )


def _time_limits(seen: Snapshot) -> Check:
    """Most rules and the models look at the limit; a job without one tells them nothing."""
    endless = {None, math.inf}
    names = [
        p.name for p in seen.partitions if p.default_time_s in endless and p.max_time_s in endless
    ]
    if not names:
        return Check.ok("time_limits", "every partition gives its jobs a time limit")
    return Check.warn(
        "time_limits",
        f"a job that names no limit has none in {', '.join(names)}, so that a short one cannot be "
        "told from a long one",
        "set DefaultTime or MaxTime for the partition in slurm.conf",
    )


def _fit(loaded: Loaded, slurm: tuple[Check, ...]) -> Iterator[Check]:
    """What only settings and site together tell."""
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
