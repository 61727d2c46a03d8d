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
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from rltuned import __version__, errors
from rltuned.cli.asking import ask_daemon
from rltuned.cli.check_slurm import slurm_checks
from rltuned.cli.facts import (
    FAIL,
    OK,
    WARN,
    Answer,
    Check,
    Facts,
    Question,
    answers,
    otherwise,
    wrong,
)
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
    facts = Facts(PROBES, loaded=loaded, settings=loaded.settings)
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


def _runtime(_: Facts) -> tuple[str, str]:
    """The libraries with their versions, and the one that is not installed."""
    found = f"rltuned {__version__}, Python {platform.python_version()}"
    try:
        names = ("numpy", "pulp", "pydantic")
        return found + "".join(f", {name} {version(name)}" for name in names), ""
    except PackageNotFoundError as error:
        return found, str(error.name)


def _of_folder(facts: Facts, ask: Callable[[Path], Any]) -> Any:
    """What is asked of the state folder; None = the journal's check says why it has no answer."""
    try:
        return ask(facts["folder"])
    except OSError:
        return None


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
    budget = facts["settings"].knobs().tuning.budget
    began = time.perf_counter()
    probe(Cbc(), replace(budget, wall_s=max(budget.wall_s, _PROBE_S)))
    return time.perf_counter() - began


def _journal(facts: Facts) -> str:
    with closing(Journal(facts["folder"])) as journal:
        journal.probe()
        return f"{journal.path}, last cycle {journal.last_cycle()}"


def _no_journal(facts: Facts) -> tuple[str, str] | None:
    """Why the journal cannot be used, and what to do about it."""
    error, found, folder = facts["journal"], wrong(facts["journal"]), facts["folder"]
    if found is None or found[1].startswith("chmod"):
        return found
    if isinstance(error, errors.JournalLostError):
        fix = "stop the daemon, rltuned restore --all --as-shown, put the journal's files away"
    elif not found[1] and os.access(folder, os.W_OK | os.X_OK):
        fix = "make room there, or set daemon.state_dir to another folder"
    else:
        fix = f"mkdir -p {folder} && chown -R {facts['user']}: {folder} && chmod 0700 {folder}"
    return found[0], fix


def _no_salt(facts: Facts) -> tuple[str, str] | None:
    found = wrong(facts["salt"])
    rm = f"rm {facts['folder'] / SALT_FILE}: another one is drawn, and what was learned is lost"
    return (found[0], found[1] or rm) if found else None


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
    "runtime": _runtime,
    "folder": lambda s: s["settings"].daemon.state_dir,
    "user": lambda _: user_name(os.geteuid()),
    # root may nearly everything: what root finds in order may not be so for the service
    "owner": lambda s: os.geteuid() == 0 and _of_folder(s, lambda f: f.stat().st_uid),
    "owned": lambda s: user_name(s["owner"]),
    "free": lambda s: _of_folder(s, lambda f: shutil.disk_usage(f).free / _MIB),
    "used": lambda s: _of_folder(
        s, lambda f: sum(one.stat().st_size for one in f.glob(f"{FILE_NAME}*")) / _MIB
    ),
    "policy": _policy,
    "solved_s": _solved_s,
    "journal": _journal,
    "kinds": lambda s: ", ".join(s["settings"].predictor.kinds),
    "salt": lambda s: read_salt(s["folder"]),
    "digest": lambda s: (
        configured_predictor(in_force(s["loaded"], SystemClock().now()).settings).digest
    ),
    "endpoint": _endpoint,
    "rung": lambda s: s["settings"].ladder.ladder().rung,
    "breakers": _open_breakers,
}


_SPACE: Final = "{free:.0f} MiB free for a journal of at most {settings.journal.max_mib} MiB"

MACHINE: Final = (
    Question("settings", "Which file has been read?", (
        Answer(OK, lambda s: s["loaded"].path or "no file: defaults", "{found}"),
    )),
    Question("runtime", "Is everything installed, for a Python that was tried?", (
        Answer(WARN, lambda s: s["runtime"][1],
              "{runtime[0]}; the package {found} is not installed",
              "install rltuned again, with everything that it depends on"),
        Answer(OK, lambda _: PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1], "{runtime[0]}"),
        Answer(WARN, otherwise, "{runtime[0]}", "use one of Python 3.11 to 3.14"),
    )),
    Question("user", "Does the service's own user ask?", (
        Answer(WARN, lambda s: s["owner"],
              "{user} asks, but {folder} belongs to {owned}: rights in Slurm may differ",
              "runuser -u {owned} -- rltuned check"),
        Answer(OK, otherwise, "{user}"),
    )),
    Question("space", "Has the journal room?", (
        Answer(OK, lambda s: s["free"] is None or s["used"] is None, ""),
        Answer(OK, lambda s: s["free"] + s["used"] >= s["settings"].journal.max_mib, _SPACE),
        Answer(WARN, otherwise, _SPACE,
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
        Answer(FAIL, _no_journal, "{found[0]}", "{found[1]}"), Answer(OK, otherwise, "{journal}"),
    )),
    Question("kinds", "Can jobs be likened to jobs before?", (
        Answer(OK, lambda s: not s["kinds"], "switched off"),
        Answer(FAIL, _no_salt, "{found[0]}; jobs have no kinds", "{found[1]}"),
        Answer(OK, otherwise, "jobs are likened by salted digests of {kinds}"),
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
