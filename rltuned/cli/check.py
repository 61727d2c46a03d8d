"""`rltuned check`: everything that must be right before going live, each with its remedy."""

import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, Final

import typer

from rltuned import __version__, errors
from rltuned.cli.asking import ask_daemon
from rltuned.cli.check_slurm import slurm_checks
from rltuned.cli.flags import ConfigOption, JsonOption, say, settings_of
from rltuned.daemon.breaker import BREAKERS
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.surroundings import doubts
from rltuned.daemon.systemd import is_paused
from rltuned.daemon.web.server import listen
from rltuned.daemon.wiring import configured_predictor, find_policy, in_force
from rltuned.journal.journal import Journal
from rltuned.journal.store import FILE_NAME, SALT_FILE, read_salt
from rltuned.policies.actor import Actor
from rltuned.policies.plugins import Plugin
from rltuned.settings import Loaded
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
from rltuned.solver import Cbc, probe
from rltuned.text import trusted
from rltuned.trusted import user_name

app = typer.Typer()

_PROBE_S = 30.0
"""A slow solver is found slow, and not broken."""
PYTHONS: Final = ((3, 11), (3, 14))
"""Oldest and newest that rltuned was run with."""
_MIB: Final = 1024 * 1024
_MARKS = {OK: "ok  ", WARN: "warn", FAIL: "FAIL"}


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
    checks = list(here(loaded))
    if not only_here:
        checks += slurm_checks(loaded)
    if as_json:
        say(json.dumps([one._asdict() for one in checks], indent=2))
    else:
        for item in checks:
            say(f"{_MARKS[item.status]}  {item.name}: {item.detail}")
            if item.remedy and item.status is not OK:
                say(f"      remedy: {item.remedy}")
    raise typer.Exit(1 if any(c.status is FAIL for c in checks) else 0)


def here(loaded: Loaded) -> Iterator[Check]:
    """What can be checked without Slurm."""
    facts = Lazy(
        PROBES,
        loaded=loaded,
        settings=loaded.settings,
        folder=loaded.settings.daemon.state_dir,
        salt_file=loaded.settings.daemon.state_dir / SALT_FILE,
        user=user_name(os.geteuid()),
    )
    yield from answers(MACHINE, facts)
    yield from _trust(loaded)
    yield from answers(DAEMON, facts)


def _trust(loaded: Loaded) -> Iterator[Check]:
    """Who can change what the daemon runs and reads; what any user can change stops its start."""
    found = doubts(loaded)
    for doubt in found:
        detail, _, fix = f"{doubt.key}: {doubt}".partition("; fix with: ")
        yield Check("trust", FAIL if doubt.fatal else WARN, detail, fix)
    if not found:
        yield Check("trust", OK, "only root and this user can change what is run and read")


# -- how the facts are found out -----------------------------------------------------------------


def _runtime(_: Facts) -> tuple[str, str]:
    """The libraries with their versions, and the one that is not installed."""
    found = f"rltuned {__version__}, Python {platform.python_version()}"
    try:
        names = ("numpy", "pulp", "pydantic")
        return found + "".join(f", {name} {version(name)}" for name in names), ""
    except PackageNotFoundError as error:
        return found, str(error.name)


def _other_owner(facts: Facts) -> str:
    """Whose the state folder is, where root asks: root may nearly everything, and what root finds
    in order may not be so for the service.
    """
    try:
        owner = facts["folder"].stat().st_uid
    except OSError:
        return ""  # the journal's check says why
    return user_name(owner) if os.geteuid() == 0 and owner else ""


def _space(facts: Facts) -> tuple[float, float] | None:
    """MiB that are free, and those that the journal has; None = the journal's check says why."""
    try:
        free = shutil.disk_usage(facts["folder"]).free
        used = sum(file.stat().st_size for file in facts["folder"].glob(f"{FILE_NAME}*"))
    except OSError:
        return None
    return free / _MIB, used / _MIB


def _policy(facts: Facts) -> tuple[str, str, str]:
    """Its name, the one that it orders in place of, and all that is said of it."""
    loaded = in_force(facts["loaded"], SystemClock().now())
    policy, in_place_of = find_policy(loaded)
    digest = policy.digest if isinstance(policy, Actor | Plugin) else ""
    order = loaded.settings.order
    said = f"{trusted(policy.name, policy.trust)}, {f'sha256 {digest}' if digest else 'a rule'}"
    said += f"; {policy.verdict}" if isinstance(policy, Actor) else ""
    if loaded.generation:
        said += f", of {loaded.generation}: own {order.own:g}, share {order.share:g}"
    return policy.name, in_place_of, said


def _solved_s(facts: Facts) -> float:
    """A tiny program, solved as the daemon would."""
    budget = facts["budget"]
    began = time.perf_counter()
    probe(Cbc(), replace(budget, wall_s=max(budget.wall_s, _PROBE_S)))
    return time.perf_counter() - began


def _journal(facts: Facts) -> str:
    with closing(Journal(facts["folder"])) as journal:
        journal.probe()
        return f"{journal.path}, last cycle {journal.last_cycle()}"


def _digest(facts: Facts) -> str:
    return configured_predictor(in_force(facts["loaded"], SystemClock().now()).settings).digest


def _endpoint(facts: Facts) -> str:
    """An address that is free."""
    http = facts["settings"].http
    listen(http.address, http.port).close()
    return f"{http.address}:{http.port}"


def _open_breakers(facts: Facts) -> str | None:
    """Their partitions; None = there is no journal to ask."""
    if wrong(facts["journal"]):
        return None
    with closing(Journal(facts["folder"])) as journal:
        every = [item for those in BREAKERS.read(journal).values() for item in those.items()]
    return ", ".join(sorted({name for name, breaker in every if breaker.is_open}))


PROBES: Final[Mapping[str, Callable[[Any], object]]] = {
    "runtime": _runtime, "owner": _other_owner, "space": _space, "policy": _policy,
    "solved_s": _solved_s, "journal": _journal, "digest": _digest, "endpoint": _endpoint,
    "breakers": _open_breakers,
    "budget": lambda s: s["settings"].knobs().tuning.budget,
    "kinds": lambda s: ", ".join(s["settings"].predictor.kinds),
    "salt": lambda s: read_salt(s["folder"]),
    "rung": lambda s: s["settings"].ladder.ladder().rung,
}  # fmt: skip


# -- the table -----------------------------------------------------------------------------------

MACHINE: Final = (
    Question("settings", "Which file has been read?", (
        Answer(OK, lambda s: s["loaded"].path or "no file: defaults", "{found}"),
    )),
    Question("runtime", "Is everything installed, for a Python that was tried?", (
        Answer(WARN, lambda s: s["runtime"][1],
              "{runtime[0]}; the package {found} is not installed",
              "install rltuned again, with everything that it depends on"),
        Answer(OK, lambda _: PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1], "{runtime[0]}"),
        Answer(WARN, lambda s: s["runtime"], "{found[0]}",
              "use one of Python 3.11 to 3.14; others were not tried"),
    )),
    Question("user", "Does the service's own user ask?", (
        Answer(WARN, lambda s: s["owner"],
              "{user} asks, but {folder} belongs to {found}: rights in Slurm may differ",
              "runuser -u {found} -- rltuned check"),
        Answer(OK, lambda _: str(os.geteuid()), "{user} ({found})"),
    )),
    Question("space", "Has the journal room?", (
        Answer(OK, lambda s: s["space"] and sum(s["space"]) >= s["settings"].journal.max_mib,
              "{space[0]:.0f} MiB free for a journal of at most {settings.journal.max_mib} MiB, "
              "{space[1]:.0f} used"),
        Answer(WARN, lambda s: s["space"],
              "{space[0]:.0f} MiB free for a journal of at most {settings.journal.max_mib} MiB, "
              "{space[1]:.0f} used",
              "lower journal.max_mib, or move daemon.state_dir: a full disk ends all writing"),
    )),
)  # fmt: skip
DAEMON: Final = (
    Question("policy", "Can the policy be loaded?", (
        Answer(FAIL, lambda s: wrong(s["policy"]), "{policy}", "choose another [policy] name"),
        Answer(WARN, lambda s: s["policy"][1], "{policy[0]} orders in place of {found}",
              "install the models, or choose a [policy] name"),
        Answer(OK, otherwise, "{policy[2]}"),
    )),
    Question("solver", "Does the solver answer in its time?", (
        Answer(OK, lambda s: s["settings"].policy.placement != "milp",
              "not needed: placement {settings.policy.placement}"),
        Answer(WARN, lambda s: wrong(s["solved_s"]),
              "{solved_s}: every joint placement falls back to best fit, and no job is set to "
              "share", "reinstall pulp: CBC comes with it"),
        Answer(OK, otherwise, "cbc solves, {solved_s:.2f} s"),
    )),
    Question("journal", "Can the journal be used?", (
        Answer(FAIL, lambda s: isinstance(s["journal"], errors.JournalLostError)
              and wrong(s["journal"]), "{found[0]}",
              "stop the daemon, rltuned restore --all --as-shown, put the journal's files away"),
        Answer(FAIL, lambda s: (bad := wrong(s["journal"])) and bad[1].startswith("chmod") and bad,
              "{found[0]}", "{found[1]}"),
        Answer(FAIL, lambda s: (bad := wrong(s["journal"])) and not bad[1]
              and os.access(s["folder"], os.W_OK | os.X_OK) and bad,
              "{found[0]}", "make room there, or set daemon.state_dir to another folder"),
        Answer(FAIL, lambda s: wrong(s["journal"]), "{found[0]}",
              "mkdir -p {folder} && chown -R {user}: {folder} && chmod 0700 {folder}"),
        Answer(OK, otherwise, "{journal}"),
    )),
    Question("kinds", "Can jobs be likened to jobs before?", (
        Answer(OK, lambda s: not s["kinds"], "switched off"),
        Answer(FAIL, lambda s: (bad := wrong(s["salt"])) and bad[1] and bad,
              "{found[0]}; jobs have no kinds", "{found[1]}"),
        Answer(FAIL, lambda s: wrong(s["salt"]), "{found[0]}; jobs have no kinds",
              "rm {salt_file}: another one is drawn, and what was learned is lost"),
        Answer(OK, lambda s: s["salt"], "jobs are likened by salted digests of {kinds}"),
        Answer(OK, otherwise, "jobs are likened by salted digests of {kinds}; the salt is drawn "
              "when the daemon starts"),
    )),
    Question("predictor", "Can run times be predicted?", (
        Answer(OK, lambda s: not s["settings"].predictor.enabled,
              "switched off: policies go by time limits"),
        Answer(FAIL, lambda s: wrong(s["digest"]), "{digest}",
              "install rltuned again, or set enabled = false"),
        Answer(OK, otherwise, "{settings.predictor.model}, card sha256 {digest}"),
    )),
    Question("http", "Is the port of the page and the metrics free?", (
        Answer(OK, lambda s: not s["settings"].http.enabled, "switched off"),
        Answer(OK, lambda s: wrong(s["endpoint"]) and s["settings"].http.port
              and ask_daemon(s["settings"])[0] is not None,
              "rltuned runs; {settings.http.address}:{settings.http.port} is taken"),
        Answer(WARN, lambda s: wrong(s["endpoint"]), "{endpoint}", "choose another http.port"),
        Answer(OK, otherwise, "{endpoint} is free"),
    )),
    Question("mode", "Does it write?", (
        Answer(OK, lambda s: not s["rung"].writes, "stage {rung}: nothing is written to Slurm"),
        Answer(WARN, lambda s: is_paused(s["settings"].daemon.pause_file),
              "paused by {settings.daemon.pause_file}", "remove the file to go on"),
        Answer(OK, otherwise, "stage {rung}: it writes, write_mode {settings.limits.write_mode}"),
    )),
    Question("breakers", "Is a circuit breaker open?", (
        Answer(FAIL, lambda s: wrong(s["breakers"]), "{breakers}",
              "rltuned restore --all, then move the journal away"),
        Answer(WARN, lambda s: s["breakers"], "open: {found}; nothing is written there",
              "rltuned breaker show says why; rltuned breaker reset when it is fixed"),
        Answer(OK, lambda s: s["breakers"] == "", "no circuit breaker is open"),
    )),
)  # fmt: skip
