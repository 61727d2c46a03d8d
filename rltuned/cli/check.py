"""`rltuned check`: everything that must be right before going live, each with its remedy."""

import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Final

import typer
from prometheus_client import CollectorRegistry

from rltuned import __version__, errors
from rltuned.cli.asking import ask_daemon
from rltuned.cli.check_slurm import slurm_checks
from rltuned.cli.flags import ConfigOption, JsonOption, say, settings_of
from rltuned.daemon.canary.breaker import BREAKERS
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.signals import is_paused
from rltuned.daemon.state import Condition, Health, HealthState
from rltuned.daemon.surroundings import doubts
from rltuned.daemon.web.server import MetricsServer
from rltuned.daemon.wiring import configured_predictor, find_policy, in_force, trust_in_vain
from rltuned.journal.journal import Journal
from rltuned.journal.salt import FILE_NAME, read_salt
from rltuned.journal.snapshots import FILE_NAME as DATABASE
from rltuned.policies.actor import Actor
from rltuned.settings import Loaded
from rltuned.slurm.config_checks import Check, Status
from rltuned.solver import Cbc, probe
from rltuned.text import trusted
from rltuned.trusted import user_name

app = typer.Typer()

_PROBE_S = 30.0
"""A slow solver is found slow, and not broken."""
PYTHONS: Final = ((3, 11), (3, 14))
"""Oldest and newest that rltuned was run with."""
_LIBRARIES: Final = ("numpy", "pulp", "pydantic")
_MIB: Final = 1024 * 1024
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
        checks += slurm_checks(loaded)
    if as_json:
        rows = [asdict(c) for c in checks]
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
    yield _kinds(loaded)
    yield _predictor(loaded)
    yield _http(loaded)
    yield _mode(loaded)
    if journal.status is Status.OK:
        yield _breakers(loaded)


def machine_checks(loaded: Loaded) -> Iterator[Check]:
    """Python, the user, room for the journal."""
    folder = loaded.settings.daemon.state_dir
    yield _runtime()
    yield _user(folder)
    yield from _space(folder, loaded.settings.journal.max_mib)


def _runtime() -> Check:
    found = f"rltuned {__version__}, Python {platform.python_version()}"
    try:
        found += "".join(f", {name} {version(name)}" for name in _LIBRARIES)
    except PackageNotFoundError as error:
        return Check.warn(
            "runtime",
            f"{found}; the package {error.name} is not installed",
            "install rltuned again, with everything that it depends on",
        )
    if PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        return Check.ok("runtime", found)
    return Check.warn("runtime", found, "use one of Python 3.11 to 3.14; others were not tried")


def _user(folder: Path) -> Check:
    """Root may nearly everything: what root finds in order may not be so for the service."""
    uid = os.geteuid()
    name = user_name(uid)
    try:
        owner = folder.stat().st_uid
    except OSError:
        return Check.ok("user", f"{name} ({uid})")  # the journal's check says why
    if uid != 0 or owner == 0:
        return Check.ok("user", f"{name} ({uid})")
    return Check.warn(
        "user",
        f"{name} asks, but {folder} belongs to {user_name(owner)}: rights in Slurm may differ",
        f"runuser -u {user_name(owner)} -- rltuned check",
    )


def _space(folder: Path, max_mib: int) -> Iterator[Check]:
    try:
        free_mib = shutil.disk_usage(folder).free / _MIB
        used_mib = sum(file.stat().st_size for file in folder.glob(f"{DATABASE}*")) / _MIB
    except OSError:
        return  # the journal's check says why
    room = f"{free_mib:.0f} MiB free for a journal of at most {max_mib} MiB, {used_mib:.0f} used"
    if free_mib + used_mib >= max_mib:
        yield Check.ok("space", room)
    else:
        remedy = "lower journal.max_mib, or move daemon.state_dir: a full disk ends all writing"
        yield Check.warn("space", room, remedy)


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
    in_vain = trust_in_vain(loaded)
    try:
        loaded = in_force(loaded, SystemClock().now())
        policy, digest, _, in_place_of = find_policy(loaded)
    except (errors.SettingsError, errors.ModelError) as error:
        return Check.fail("policy", str(error), "choose another [policy] name")
    if in_place_of:
        why = f"{policy.name} orders in place of {in_place_of}"
        return Check("policy", Status.WARN, why, "install the models, or choose a [policy] name")
    name = trusted(policy.name, policy.trust)
    detail = f"{name}, sha256 {digest}" if digest else f"{name}, a rule"
    detail += f"; {policy.verdict}" if isinstance(policy, Actor) else ""
    order = loaded.settings.order
    if loaded.generation:
        detail += f", of {loaded.generation}: own {order.own:g}, share {order.share:g}"
    return Check.ok("policy", f"{detail}; {in_vain}" if in_vain else detail)


def _solver(loaded: Loaded) -> Check:
    """A tiny program, solved as the daemon would."""
    settings = loaded.settings
    if settings.policy.placement != "milp":
        return Check.ok("solver", f"not needed: placement {settings.policy.placement}")
    budget = settings.knobs().tuning.budget
    began = time.perf_counter()
    try:
        probe(Cbc(), replace(budget, wall_s=max(budget.wall_s, _PROBE_S)))
    except errors.SolverError as error:
        return Check.warn(
            "solver",
            f"{error}: every joint placement falls back to best fit, and no job is set to share",
            "reinstall pulp: CBC comes with it",
        )
    took_s = time.perf_counter() - began
    if took_s > budget.wall_s:
        return Check.warn(
            "solver",
            f"cbc takes {took_s:.2f} s for the smallest program and may take {budget.wall_s} s: "
            "joint placements fall back to best fit",
            "raise [placement] budget_s, or give this machine less to do",
        )
    return Check.ok("solver", f"cbc solves, {took_s:.2f} s")


def _journal(loaded: Loaded) -> Check:
    folder = loaded.settings.daemon.state_dir
    journal = Journal(folder)
    try:
        journal.probe()
        cycle = journal.last_cycle()
    except errors.JournalError as error:
        detail, _, fix = str(error).partition("; fix with: ")
        owner = user_name(os.geteuid())
        remedy = f"mkdir -p {folder} && chown -R {owner}: {folder} && chmod 0700 {folder}"
        if isinstance(error, errors.JournalLostError):
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


def _kinds(loaded: Loaded) -> Check:
    wanted, folder = loaded.settings.predictor.kinds, loaded.settings.daemon.state_dir
    if not wanted:
        return Check.ok("kinds", "switched off")
    try:
        salt = read_salt(folder)
    except errors.JournalError as error:
        detail, _, fix = str(error).partition("; fix with: ")
        remedy = f"rm {folder / FILE_NAME}: another one is drawn, and what was learned is lost"
        return Check.fail("kinds", f"{detail}; jobs have no kinds", fix or remedy)
    drawn = "" if salt else "; the salt is drawn when the daemon starts"
    return Check.ok("kinds", f"jobs are likened by salted digests of {', '.join(wanted)}{drawn}")


def _predictor(loaded: Loaded) -> Check:
    if not loaded.settings.predictor.enabled:
        return Check.ok("predictor", "switched off: policies go by time limits")
    try:
        loaded = in_force(loaded, SystemClock().now())
        digest = configured_predictor(loaded.settings).digest
    except errors.ModelError as error:
        return Check.fail("predictor", str(error), "install rltuned again, or set enabled = false")
    return Check.ok("predictor", f"{loaded.settings.predictor.model}, card sha256 {digest}")


def _http(loaded: Loaded) -> Check:
    settings = loaded.settings
    http = settings.http
    if not http.enabled:
        return Check.ok("http", "switched off")
    try:
        server = MetricsServer(
            http.address,
            http.port,
            CollectorRegistry(),
            lambda: Health([Condition(HealthState.STARTING)]),
        )
    except errors.SettingsError as error:
        if http.port and ask_daemon(settings)[0] is not None:
            return Check.ok("http", f"rltuned runs; {http.address}:{http.port} is taken")
        return Check.warn("http", str(error), "choose another http.port")
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
    try:
        with closing(Journal(loaded.settings.daemon.state_dir)) as journal:
            every = [item for those in BREAKERS.read(journal).values() for item in those.items()]
    except errors.JournalError as error:
        remedy = "rltuned restore --all, then move the journal away"
        return Check.fail("breakers", str(error), remedy)
    named = sorted({name for name, breaker in every if breaker.is_open})
    if not named:
        return Check.ok("breakers", "no circuit breaker is open")
    return Check.warn(
        "breakers",
        f"open: {', '.join(named)}; nothing is written there",
        "rltuned breaker show says why; rltuned breaker reset when it is fixed",
    )
