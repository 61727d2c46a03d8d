"""Everything that can change what the daemon runs or decides, and who can change that.

The settings file and a model are judged where they are read. Here is the rest: Slurm's programs and
the folders that they are found in, slurm.conf, and the folders of the journal, the lease and the
pause file. docs/security.md has the list.
"""

import os
import pwd
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rltuned.errors import SettingsError
from rltuned.settings import Loaded
from rltuned.slurm.run import NEEDED
from rltuned.trusted import Flaw, flaws_on, owner_of

SLURM_CONF: Final = Path("/etc/slurm/slurm.conf")
"""Where Slurm is mostly built to look."""
STATE: Final = "daemon.state_dir"
_SLURM: Final = "slurm"
"""The usual SlurmUser: it rules the cluster, so what it owns of Slurm is trusted."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A place that is not trusted. key: the setting. fatal: any user can change it: no start."""

    key: str
    flaw: Flaw
    fatal: bool

    def __str__(self) -> str:
        return str(self.flaw)


def refuse_untrusted(loaded: Loaded, *, dry_run: bool = False) -> tuple[Doubt, ...]:
    """What is not trusted, where a warning is enough. dry_run: another user's state folder does not
    matter. Raises SettingsError: any user can change a place, or it cannot be looked at.
    """
    found = doubts(loaded)
    fatal = [d for d in found if d.fatal and not (dry_run and d.key == STATE)]
    lines = [str(loaded.error(d.key, str(d))) for d in fatal]
    if lines:
        raise SettingsError("\n".join(dict.fromkeys(lines)))
    return found


def doubts(loaded: Loaded, path: str | None = None) -> tuple[Doubt, ...]:
    """Every place that is not trusted, each once."""
    searched = os.environ.get("PATH", "") if path is None else path
    return tuple(dict.fromkeys((*_of_slurm(loaded, searched), *_of_ours(loaded))))


def _of_slurm(loaded: Loaded, path: str) -> Iterator[Doubt]:
    slurm = loaded.settings.slurm
    also = _uids_of(_SLURM)
    for place in _programs(slurm.bin_dir, path):
        if not place.is_absolute():
            flaw = Flaw(place, "PATH names a folder that is not absolute")
            yield Doubt("slurm.bin_dir", flaw, fatal=True)
            continue
        yield from _doubts("slurm.bin_dir", place, also)
    yield from _doubts("slurm.conf", slurm.conf or SLURM_CONF, also)
    if slurm.pyslurm_python is not None:
        yield from _doubts("slurm.pyslurm_python", slurm.pyslurm_python, also)


def _programs(bin_dir: Path | None, path: str) -> Iterator[Path]:
    """The programs of a cycle, with every place that is searched before the one that has it."""
    for name in NEEDED:
        for folder in [bin_dir] if bin_dir is not None else map(Path, path.split(os.pathsep)):
            program = folder / name
            yield program
            if os.access(program, os.X_OK):
                break


def _of_ours(loaded: Loaded) -> Iterator[Doubt]:
    settings = loaded.settings
    if loaded.path is not None:
        yield from _doubts("settings", loaded.path)
    state, lease = settings.daemon.state_dir, settings.ha.lease_dir
    yield from _doubts(STATE, state, owner_of(state))
    if lease is not None:
        yield from _doubts("ha.lease_dir", lease)
    pause = settings.daemon.pause_file.parent
    for doubt in _doubts("daemon.pause_file", pause):
        # where a folder is sticky, others can pause the daemon, but not end a pause
        sticky = doubt.flaw.path == pause and pause.stat().st_mode & stat.S_ISVTX
        yield Doubt(doubt.key, doubt.flaw, fatal=doubt.fatal and not sticky)


def _doubts(key: str, place: Path, also: tuple[int, ...] = ()) -> Iterator[Doubt]:
    try:
        for flaw in flaws_on(place, also=also):
            yield Doubt(key, flaw, fatal=not flaw.by_group)
    except OSError as error:
        yield Doubt(key, Flaw(place, f"cannot be looked at: {error.strerror}"), fatal=False)


def _uids_of(name: str) -> tuple[int, ...]:
    try:
        return (pwd.getpwnam(name).pw_uid,)
    except KeyError:
        return ()
