"""The state of the daemon for `rltuned status`: from its socket, and from the journal.

The daemon need not answer, and only its owner and root may read the journal. Either is of use
without the other.
"""

import http.client
import json
import os
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rltuned.cli.flags import BackendChoice
from rltuned.daemon.breaker import BREAKERS
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.lease import Lease
from rltuned.daemon.state import Condition, HealthState, kept_state
from rltuned.daemon.web.server import Connection
from rltuned.domain.kinds import Digester
from rltuned.domain.plan import Backend, Clock
from rltuned.errors import JournalError
from rltuned.journal import cycles, owned, store
from rltuned.journal.cycles import Document, JobChange, latest
from rltuned.journal.store import FILE_NAME, read_salt, reading
from rltuned.run import Call
from rltuned.settings import Loaded, Settings
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.pyslurm import ReaderChoice
from rltuned.slurm.run import Fence
from rltuned.text import span

# The world and its clock, by name: the real Slurm, or the cluster built in.


def kept_digester(loaded: Loaded) -> Digester | None:
    """What makes the kinds for a command that only looks; None = no kinds, or no readable salt."""
    wanted = loaded.settings.predictor.kinds
    try:
        salt = read_salt(loaded.settings.daemon.state_dir) if wanted else None
    except JournalError:
        return None  # `rltuned check` says what is wrong with it
    return None if salt is None else Digester(salt, wanted)


def open_world(
    world: BackendChoice,
    system: SystemClock | None = None,
    *,
    speed: float = 1.0,
    seed: int = 0,
    on_call: Callable[[Call], None] = lambda _call: None,
    on_reading: Callable[[ReaderChoice], None] = lambda _reading: None,
    lease: Lease | None = None,
    digester: Callable[[Loaded], Digester | None] = kept_digester,
) -> tuple[Clock, Callable[[Loaded], Backend]]:
    """The world's clock, and what makes a backend. system: real time. on_reading: called
    with each new reader of the jobs. lease: asked before every batch of updates. digester: makes
    the kinds; called at every reload.
    """
    system = system or SystemClock()
    if world is BackendChoice.SLURM:
        return system, lambda loaded: real_slurm(
            loaded, system, on_call, lease, on_reading, digester=digester(loaded)
        )
    from rltuned.sim.backend import ScaledClock, demo_backend  # noqa: PLC0415 - simulated clusters only

    clock = ScaledClock(system, speed)
    simulated = demo_backend(seed, clock)
    return clock, lambda _: simulated


def real_slurm(
    loaded: Loaded,
    clock: SystemClock,
    on_call: Callable[[Call], None] = lambda _call: None,
    lease: Lease | None = None,
    on_reading: Callable[[ReaderChoice], None] = lambda _reading: None,
    *,
    digester: Digester | None = None,
) -> SlurmBackend:
    """The real cluster, called as the settings say."""
    max_age_s = loaded.settings.daemon.max_snapshot_age_s
    fence = Fence(clock.readings, max_age_s, *((lease.lost,) if lease else ()))
    return SlurmBackend(
        loaded.settings.slurm.cli(),
        clock.now,
        on_call=on_call,
        fair_shares=loaded.settings.limits.write_mode == "priority",
        fence=fence,
        pyslurm=loaded.settings.slurm.pyslurm_python,
        on_reading=on_reading,
        digester=digester,
    )


PATIENCE_S: Final = 3.0
PLAYED_S: Final = 60.0
"""For what the daemon has to play first."""
_MOST: Final = 256 * 1024 * 1024
"""Bytes of an answer: a plan has about 1 KiB for each waiting job."""
_OLD_S: Final = 60.0
_OLD_CYCLES: Final = 3
"""An answer is old after both."""
CHANGES: Final = 8
"""Last changes that are shown."""
_SHOWN: Final = ("at", "address", "field", "old", "new", "result", "delay_s")
"""Of a change, for JSON."""


def journal_document(db: sqlite3.Connection) -> tuple[Document, tuple[JobChange, ...]]:
    """What a journal that is open says now, for JSON, and the last changes, the latest first.
    model: digest; null = a rule, or not known. carrying: jobs that may still carry a value of
    rltuned's. breakers: the open ones.
    """
    cycle, changes = cycles.last_row(db), latest(db, CHANGES)
    (count,) = db.execute("SELECT count(*) FROM cycles").fetchone()
    model = db.execute(
        "SELECT model FROM cycles WHERE policy != '' ORDER BY cycle DESC LIMIT 1"
    ).fetchone()
    known = BREAKERS.of(store.get(db, BREAKERS.name))
    state = kept_state(store.get(db, store.STATE))
    document = {
        "cycle": None if cycle is None else asdict(cycle),
        "cycles": count,
        "model": (model and model[0]) or None,
        "carrying": len(owned.carrying(db)),
        "state": None if state is None else state.model_dump(mode="json"),
        "changes": [{name: getattr(one, name) for name in _SHOWN} for one in changes],
        "breakers": [
            {"cluster": cluster, "partition": name, **asdict(found)}
            for cluster, those in sorted(known.items())
            for name, found in sorted(those.items())
            if found.is_open
        ],
    }
    return document, changes


def ask(loaded: Loaded) -> tuple[Document, tuple[JobChange, ...]]:
    """All that can be found out, for JSON, and the last changes; nothing that fails here is an
    error. daemon: its /status.json, else `daemon_silent` says why not; journal, else
    `journal_unread`. Single jobs are in `rltuned plan --json`.
    """
    daemon, silent = ask_daemon(loaded.settings)
    kept, unread, changes = None, "", tuple[JobChange, ...]()
    try:
        with reading(loaded.settings.daemon.state_dir / FILE_NAME) as db:
            kept, changes = journal_document(db)
    except JournalError as error:
        unread = str(error)
    said = [f"the daemon does not answer: {silent}"] if daemon is None else []
    said += [f"the journal cannot be read: {unread}"] if daemon is None and kept is None else []
    found = [] if daemon is None else list(daemon.get("conditions", ()))  # an older one has none
    if kept is not None:
        # a breaker may have been closed since the last cycle: the journal has the last word
        found = [one for one in found if one["state"] != HealthState.BREAKER_OPEN]
        names = ", ".join(one["partition"] for one in kept["breakers"])
        said += [Condition(HealthState.BREAKER_OPEN, names).sentence] if names else []
    troubles = said + [one["sentence"] for one in found if one["trouble"]]
    return {
        "ok": not troubles,
        "state": troubles + [one["sentence"] for one in found if not one["trouble"]],
        "troubles": troubles,
        "daemon": daemon,
        "daemon_silent": silent or None,
        "journal": kept,
        "journal_unread": unread or None,
    }, changes


def is_private(state_dir: Path) -> bool:
    """Whether there is, or may be, a journal that this user may not read."""
    path = state_dir / FILE_NAME
    try:
        path.stat()
    except PermissionError:
        return True
    except OSError:
        return False
    return not os.access(path, os.R_OK)


def ask_about(
    settings: Settings, path: str, key: str, patience_s: float = PATIENCE_S
) -> tuple[dict[str, Any] | None, str]:
    """One part of what the daemon answers to this user; None = it does not, and why. patience_s: of
    a daemon that has answered; one that hangs is not waited for as long.
    """
    found, why = ask_daemon(settings) if patience_s > PATIENCE_S else ({}, "")
    if found is not None:
        found, why = ask_daemon(settings, path, patience_s)
    if found is None:
        return None, f"the daemon does not answer: {why}"
    return found.get(key), f"the daemon answers: {found.get('why')}"


def old(document: Mapping[str, Any], settings: Settings) -> str:
    """What to say of an answer about jobs that Slurm showed long ago; empty = it is fresh."""
    taken_at = document.get("taken_at")
    age_s = 0.0 if taken_at is None else SystemClock().now() - taken_at
    if age_s < max(_OLD_S, _OLD_CYCLES * settings.daemon.interval_s):
        return ""
    return f"the daemon last saw the queue {span(age_s)} ago; `rltuned status` says why"


def ask_daemon(
    settings: Settings, path: str = "/status.json", patience_s: float | None = None
) -> tuple[dict[str, Any] | None, str]:
    """What the daemon of these settings answers over its socket; None = none answers, and why."""
    where, state_dir = settings.daemon.socket, settings.daemon.state_dir
    connection = Connection(where, PATIENCE_S if patience_s is None else patience_s)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            return None, f"{where} answered {answer.status}"
        body = answer.read(_MOST + 1)
        if len(body) > _MOST:
            return None, f"{where}: its answer is longer than {_MOST // 2**20} MiB"
        found = json.loads(body)
    except OSError as error:
        return None, f"{where}: {error.strerror or error}"
    except (http.client.HTTPException, RecursionError, ValueError) as error:
        return None, f"{where}: {error}"
    finally:
        connection.close()
    if not isinstance(found, dict) or "rltuned" not in found:
        return None, f"{where} is not rltuned"
    if found.get("state_dir") != str(state_dir):
        return None, f"{where} is of a daemon with another state_dir than {state_dir}"
    return found, ""
