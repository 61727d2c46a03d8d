"""The state of the daemon for `rltuned status`: from its socket, and from the journal.

The daemon need not answer, and only its owner and root may read the journal. Either is of use
without the other.
"""

import http.client
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rltuned.daemon.canary.breaker import BREAKERS, Breaker
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.state import Condition, HealthState, KeptState, kept_state
from rltuned.daemon.web.questions import Connection
from rltuned.errors import JournalError
from rltuned.journal import cycles, named_values, owned
from rltuned.journal.cycles import CycleRow, Document
from rltuned.journal.queries import JobChange, latest
from rltuned.journal.snapshots import FILE_NAME, reading
from rltuned.settings import Loaded, Settings
from rltuned.text import span

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


@dataclass(frozen=True, slots=True)
class Glance:
    """The journal now; None = not kept. cycles: how many are kept. model: digest; "" = a rule, or
    not known. carrying: jobs that may still carry a value of rltuned's. changes: the latest first.
    breakers: the open ones, as (cluster, partition, breaker).
    """

    cycle: CycleRow | None
    cycles: int
    model: str
    carrying: int
    changes: tuple[JobChange, ...]
    breakers: tuple[tuple[str, str, Breaker], ...]
    state: KeptState | None

    def document(self) -> Document:
        return {
            "cycle": None if self.cycle is None else asdict(self.cycle),
            "cycles": self.cycles,
            "model": self.model or None,
            "carrying": self.carrying,
            "state": None if self.state is None else self.state.model_dump(mode="json"),
            "changes": [{name: getattr(one, name) for name in _SHOWN} for one in self.changes],
            "breakers": [
                {"cluster": cluster, "partition": name, **asdict(found)}
                for cluster, name, found in self.breakers
            ],
        }


def glance(db: sqlite3.Connection) -> Glance:
    """Look at a journal that is open."""
    (count,) = db.execute("SELECT count(*) FROM cycles").fetchone()
    model = db.execute(
        "SELECT model FROM cycles WHERE policy != '' ORDER BY cycle DESC LIMIT 1"
    ).fetchone()
    known = BREAKERS.of(named_values.get(db, BREAKERS.name))
    return Glance(
        cycle=cycles.last_row(db),
        cycles=count,
        model="" if model is None else model[0],
        carrying=owned.count(db),
        changes=latest(db, CHANGES),
        breakers=tuple(
            (cluster, name, found)
            for cluster, those in sorted(known.items())
            for name, found in sorted(those.items())
            if found.is_open
        ),
        state=kept_state(named_values.get(db, named_values.STATE)),
    )


@dataclass(slots=True)
class DaemonState:
    """All that could be found out. daemon: its /status.json, else `silent` says why not. kept: what
    the journal says, else `unread` says why not.
    """

    settings: Settings
    daemon: dict[str, Any] | None
    silent: str
    kept: Glance | None = None
    unread: str = ""

    def age_s(self, now: float) -> float | None:
        """Since the last cycle in the journal; None = none is known."""
        cycle = self.kept.cycle if self.kept else None
        return None if cycle is None else max(0.0, now - cycle.at)

    def sentences(self) -> list[tuple[str, bool]]:
        """The state, worst first: each sentence, and whether it is trouble.

        The daemon's own sentences, or those of the journal; a circuit breaker may have been closed
        since the last cycle, so the journal has the last word on them.
        """
        found = []
        if self.daemon is not None:
            shown = self.daemon.get("conditions", ())  # an older daemon does not say them
            found = [(c["state"], c["sentence"], c["trouble"]) for c in shown]
        if self.kept is not None:
            found = [row for row in found if row[0] != HealthState.BREAKER_OPEN]
        names = [name for _, name, _ in self.kept.breakers] if self.kept else []
        opened = [Condition(HealthState.BREAKER_OPEN, ", ".join(names)).sentence] if names else []
        ranked = [(sentence, trouble) for _, sentence, trouble in found]
        worst = [*self._unanswered(), *((sentence, True) for sentence in opened)]
        return worst + sorted(ranked, key=lambda one: not one[1])

    def _unanswered(self) -> Iterator[tuple[str, bool]]:
        if self.daemon is None:
            yield f"the daemon does not answer: {self.silent}", True
        if self.daemon is None and self.kept is None:
            yield f"the journal cannot be read: {self.unread}", True

    def troubles(self) -> list[str]:
        return [sentence for sentence, trouble in self.sentences() if trouble]

    def document(self) -> dict[str, Any]:
        """For --json; without single jobs, which `rltuned plan --json` has."""
        return {
            "ok": not self.troubles(),
            "state": [sentence for sentence, _ in self.sentences()],
            "troubles": self.troubles(),
            "daemon": self.daemon,
            "daemon_silent": self.silent or None,
            "journal": None if self.kept is None else self.kept.document(),
            "journal_unread": self.unread or None,
        }


def ask(loaded: Loaded) -> DaemonState:
    """Find out what can be found out; nothing that fails here is an error."""
    settings = loaded.settings
    state = DaemonState(settings, *ask_daemon(settings))
    try:
        with reading(settings.daemon.state_dir / FILE_NAME) as db:
            state.kept = glance(db)
    except JournalError as error:
        state.unread = str(error)
    return state


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
