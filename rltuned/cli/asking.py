"""The worlds that commands look at, and what the daemon answers over its socket."""

import http.client
import json
import math
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from rltuned.cli import flags
from rltuned.cli.flags import BackendChoice
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.documents import Document
from rltuned.daemon.lease import Lease
from rltuned.daemon.web.server import connection
from rltuned.domain.kinds import Digester
from rltuned.domain.plan import Backend, Clock
from rltuned.errors import JournalError
from rltuned.journal.store import FILE_NAME, read_salt
from rltuned.run import Call
from rltuned.settings import Loaded, Settings
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.pyslurm import ReaderChoice
from rltuned.slurm.run import Fence
from rltuned.text import span

PATIENCE_S: Final = 3.0
PLAYED_S: Final = 60.0
"""For what the daemon has to play first."""
_MOST: Final = 256 * 1024 * 1024
"""Bytes of an answer: a plan has about 1 KiB for each waiting job."""
_OLD_S: Final = 60.0
_OLD_CYCLES: Final = 3
"""An answer is old after both."""


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
    digester: Callable[[Loaded], Digester | None] = kept_digester,
    **slurm: Any,
) -> tuple[Clock, Callable[[Loaded], Backend]]:
    """The world's clock, and what makes a backend. system: real time. digester: makes the kinds;
    called at every reload. slurm: as of real_slurm.
    """
    system = system or SystemClock()
    if world is BackendChoice.SLURM:
        return system, lambda loaded: real_slurm(loaded, system, digester=digester(loaded), **slurm)
    from rltuned.sim.backend import ScaledClock, demo_backend  # noqa: PLC0415 - simulated clusters only

    clock = ScaledClock(system, speed)
    simulated = demo_backend(seed, clock)
    return clock, lambda _: simulated


def real_slurm(
    loaded: Loaded,
    clock: SystemClock,
    on_call: Callable[[Call], None] = lambda _call: None,
    *,
    lease: Lease | None = None,
    on_reading: Callable[[ReaderChoice], None] = lambda _reading: None,
    digester: Digester | None = None,
) -> SlurmBackend:
    """The real cluster, called as the settings say. lease: asked before every batch of updates.
    on_reading: called with each new reader of the jobs.
    """
    settings, lost = loaded.settings, (lease.lost,) if lease else ()
    return SlurmBackend(
        settings.slurm.cli(),
        clock.now,
        on_call=on_call,
        fair_shares=settings.limits.write_mode == "priority",
        fence=Fence(clock.readings, settings.daemon.max_snapshot_age_s, *lost),
        pyslurm=settings.slurm.pyslurm_python,
        on_reading=on_reading,
        digester=digester,
    )


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


def answered(
    settings: Settings, path: str, key: str, patience_s: float = PATIENCE_S
) -> Document | None:
    """One part of what the daemon answers to this user; None = it does not. What to know of that is
    said on standard error. patience_s: of a daemon that has answered; one that hangs is not waited
    for as long.
    """
    found, why = ask_daemon(settings) if patience_s > PATIENCE_S else ({}, "")
    if found is not None:
        found, why = ask_daemon(settings, path, patience_s)
    if found is None or found.get(key) is None:
        says = f"does not answer: {why}" if found is None else f"answers: {found.get('why')}"
        flags.warn(f"decided without the daemon: the daemon {says}")
        return None
    document = dict(found[key])
    age_s = SystemClock().now() - document.get("taken_at", math.inf)
    if age_s >= max(_OLD_S, _OLD_CYCLES * settings.daemon.interval_s):
        flags.warn(f"the daemon last saw the queue {span(age_s)} ago; `rltuned status` says why")
    return document


def ask_daemon(
    settings: Settings, path: str = "/status.json", patience_s: float | None = None
) -> tuple[Document | None, str]:
    """What the daemon of these settings answers over its socket; None = none answers, and why."""
    where, state_dir = settings.daemon.socket, settings.daemon.state_dir
    try:
        with closing(connection(where, patience_s or PATIENCE_S)) as made:
            made.request("GET", path)
            answer = made.getresponse()
            body = answer.read(_MOST + 1)
        if answer.status != http.client.OK:
            return None, f"{where} answered {answer.status}"
        if len(body) > _MOST:
            return None, f"{where}: its answer is longer than {_MOST // 2**20} MiB"
        found = json.loads(body)
    except OSError as error:
        return None, f"{where}: {error.strerror or error}"
    except (http.client.HTTPException, RecursionError, ValueError) as error:
        return None, f"{where}: {error}"
    if not isinstance(found, dict) or "rltuned" not in found:
        return None, f"{where} is not rltuned"
    if found.get("state_dir") != str(state_dir):
        return None, f"{where} is of a daemon with another state_dir than {state_dir}"
    return found, ""
